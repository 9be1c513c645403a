//! A *record* is what a figure came to once: its rows as `weir figures NAME --json` printed them (`ours.json`), beside what the
//! paper prints (`paper.toml`). It is read in a moment, where a run takes minutes.

use serde::Deserialize;

use crate::error::FigureError;
use crate::paper::Paper;
use crate::row::{Ours, Row};

/// The recorded rows of a figure.
#[derive(Clone, Debug)]
pub struct Record {
    /// The figure's name.
    pub name: String,
    /// What the paper prints.
    pub paper: Paper,
    /// The rows.
    pub rows: Vec<Row>,
}

/// Of a recorded row, what does not follow from the paper's number.
#[derive(Deserialize)]
struct Recorded {
    device: String,
    series: String,
    /// None stands for what is not a number.
    ours: Option<f64>,
    ours_kind: Ours,
    unit: String,
    #[serde(default)]
    spread: Option<[f64; 2]>,
    #[serde(default)]
    range: Option<[f64; 2]>,
    #[serde(default)]
    seeds: Option<u64>,
}

impl Record {
    /// The record of a figure, of the text of `ours.json` and `paper.toml`.
    ///
    /// # Errors
    /// [`FigureError::File`] or [`FigureError::Record`] if one of them is damaged.
    pub fn parse(name: &str, ours: &str, paper: &str) -> Result<Record, FigureError> {
        let paper = Paper::parse(name, paper)?;
        let recorded: Vec<Recorded> = serde_json::from_str(ours)
            .map_err(|source| FigureError::Record { file: format!("{name}/ours.json"), source })?;
        let row = |recorded: Recorded| {
            let Recorded { device, series, ours, ours_kind, unit, spread, range, seeds } = recorded;
            let printed = paper.printed(&device, &series).cloned();
            let names = [name, &device, &series];
            let row = Row::new(names, printed, ours_kind == Ours::Fitted, ours.unwrap_or(f64::NAN), unit);
            Row { spread, range, seeds, ..row }
        };
        let rows = recorded.into_iter().map(row).collect();
        Ok(Record { name: name.to_owned(), paper, rows })
    }
}
