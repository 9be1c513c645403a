//! The *order* of a figure's bars: the paper's, and whether ours is the same.

use std::fmt;

use serde::Serialize;

use crate::paper::{Order, Paper};
use crate::row::{Row, number_text};

/// Bars of a figure in ascending order of the paper's, as they came out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bars {
    /// The figure's name.
    pub figure: String,
    /// Where the paper shows the order.
    pub source: String,
    /// The bars: each step is above the one before it, and has several where the paper does not tell their order.
    pub steps: Vec<Vec<Bar>>,
    /// Whether ours are in this order.
    pub is_kept: bool,
}

/// One bar.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bar {
    /// The device's profile.
    pub device: String,
    /// The series.
    pub series: String,
    /// What came out; not a number if it was not run.
    pub ours: f64,
}

impl Bars {
    /// All bars of a figure whose order in the paper is known.
    pub(crate) fn of_figure(figure: &str, paper: &Paper, rows: &[Row]) -> Vec<Bars> {
        paper.orders.iter().map(|order| Bars::new(figure, order, rows)).collect()
    }

    fn new(figure: &str, order: &Order, rows: &[Row]) -> Bars {
        let bar = |(device, series): (&str, &str)| {
            let row = rows.iter().find(|row| row.device == device && row.series == series);
            let ours = row.map_or(f64::NAN, |row| row.ours);
            Bar { device: device.to_owned(), series: series.to_owned(), ours }
        };
        let steps: Vec<Vec<Bar>> = order.steps().map(|step| step.into_iter().map(bar).collect()).collect();
        let is_kept = inverted(&steps).next().is_none();
        Bars { figure: figure.to_owned(), source: order.source.clone(), steps, is_kept }
    }

    /// What a bar is called: its series, or its device where all have one series.
    fn name(&self, bar: &Bar) -> String {
        let is_one_device = self.steps.iter().flatten().all(|other| other.device == bar.device);
        format!("\"{}\"", if is_one_device { &bar.series } else { &bar.device })
    }
}

/// A bar is above another one if it is by more than this, relative to it: less does not show in a printed figure.
const DIFFERENCE_SHOWN: f64 = 0.01;

/// Bars of neighbouring steps of which the second is not above the first.
fn inverted(steps: &[Vec<Bar>]) -> impl Iterator<Item = (&Bar, &Bar)> {
    let pairs = steps.iter().zip(steps.iter().skip(1));
    let pairs = pairs
        .flat_map(|(lower, upper)| lower.iter().flat_map(|low| upper.iter().map(move |high| (low, high))));
    pairs.filter(|(low, high)| {
        let least = low.ours + low.ours.abs() * DIFFERENCE_SHOWN;
        least.partial_cmp(&high.ours).is_none_or(|order| order.is_ge())
    })
}

impl fmt::Display for Bars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |step: &Vec<Bar>| step.iter().map(|bar| self.name(bar)).collect::<Vec<_>>().join(", ");
        let steps: Vec<String> = self.steps.iter().map(named).collect();
        write!(f, "The paper's order of bars is {}: ", steps.join(" < "))?;
        if self.is_kept {
            return f.write_str("kept");
        }
        let inverted = inverted(&self.steps).map(|(low, high)| {
            let [low, high] =
                [low, high].map(|bar| format!("{} ({})", self.name(bar), number_text(bar.ours)));
            format!("{low} is not below {high}")
        });
        write!(f, "broken, {}", inverted.collect::<Vec<_>>().join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDERS: &str = r#"
[[order]]
device = "drive"
series = ["X", ["B", "C"], "P"]
source = "made up"

[[order]]
device = ["slow", "drive"]
series = ["P"]
source = "made up"
"#;

    fn bars(of_drive: [(&str, f64); 4]) -> Vec<Bars> {
        let row = |device, (series, ours)| Row::new(["f", device, series], None, false, ours, String::new());
        let mut rows: Vec<Row> = of_drive.into_iter().map(|bar| row("drive", bar)).collect();
        rows.push(row("slow", ("P", 2.0)));
        Bars::of_figure("f", &toml::from_str(ORDERS).unwrap(), &rows)
    }

    #[test]
    fn the_order_of_the_paper_is_kept() {
        for [b, c] in [[20.0, 10.0], [10.0, 20.0], [10.0, 10.0]] {
            let found = bars([("P", 30.0), ("B", b), ("X", 1.0), ("C", c)]);
            let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
            let expected = [
                "The paper's order of bars is \"X\" < \"B\", \"C\" < \"P\": kept",
                "The paper's order of bars is \"slow\" < \"drive\": kept",
            ];
            assert_eq!(texts, expected);
        }
    }

    /// Negative control. Bars that are as good as equal break the order, and so does one that was not run.
    #[test]
    fn another_order_is_told() {
        let found = bars([("P", 1.0), ("B", 20.0), ("X", 5.0), ("C", 0.5)]);
        let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert!(texts[0].ends_with(
            ": broken, \"X\" (5.00) is not below \"C\" (0.50); \"B\" (20.0) is not below \"P\" (1.00)"
        ));
        assert!(texts[1].ends_with(": broken, \"slow\" (2.00) is not below \"drive\" (1.00)"));
        for c in [30.0, 29.8, f64::NAN] {
            let found = bars([("P", 30.0), ("B", 20.0), ("X", 1.0), ("C", c)]);
            assert_eq!(found.iter().map(|bars| bars.is_kept).collect::<Vec<_>>(), [false, true], "{c}");
        }
    }
}
