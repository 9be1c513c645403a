//! Plots as SVG text, without fonts of its own: the viewer has some.

use std::fmt::Display;

use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::{
    ChartBuilder, Color as _, IntoDrawingArea as _, IntoLogRange as _, IntoSegmentedCoord as _, LineSeries,
    PathElement, RGBColor, Rectangle, SVGBackend, SegmentValue, WHITE,
};

use crate::error::FigureError;
use crate::figure::Plot;
use crate::lab::{Curve, Sheet};
use crate::row::Row;

/// Pixels.
const WIDTH: u32 = 860;
const BAR_HEIGHT: u32 = 24;
const LABEL_WIDTH: u32 = 330;
const CURVE_HEIGHT: u32 = 180;

/// A family that every viewer has, and its size.
const FONT: (&str, u32) = ("sans-serif", 16);

const OURS: RGBColor = RGBColor(62, 114, 163);
const PAPER: RGBColor = RGBColor(196, 78, 43);

/// A bar of a plot.
#[derive(Clone, Debug, PartialEq)]
pub struct PlotBar {
    /// What it stands for.
    pub label: String,
    /// How long it is.
    pub length: f64,
    /// Where a line crosses it, to compare.
    pub mark: Option<f64>,
}

impl PlotBar {
    /// What was measured, and a line for what the paper prints.
    fn from_row(row: &Row) -> PlotBar {
        let mark = row.paper.as_ref().map(|paper| paper.value);
        PlotBar { label: format!("{}: {}", row.device, row.series), length: row.ours, mark }
    }
}

/// A plot of bars, as an SVG document, and what to say of its scale behind a unit; below the axis stands `about`, if there is one.
///
/// # Errors
/// [`FigureError::Plot`] with `name` if the plotting library fails.
pub fn plot_bars(
    name: &str,
    about: Option<&str>,
    bars: &[PlotBar],
) -> Result<(String, &'static str), FigureError> {
    let mut svg = String::new();
    let axis = Axis::of(bars);
    let failed = |why| plot_failed(name, why);
    let scale = if axis.logarithmic { ", logarithmic" } else { "" };
    let about = about.map(|about| format!("{about}{scale}"));
    axis.draw(&mut svg, about.as_deref(), bars).map_err(failed)?;
    Ok((svg, scale))
}

impl Sheet {
    /// The figure's plots, each with a caption, as SVG documents.
    ///
    /// # Errors
    /// [`FigureError::Plot`] if the plotting library fails.
    pub fn plots(&self) -> Result<Vec<(String, String)>, FigureError> {
        match self.figure.config.plot {
            Plot::Bars => self.bars(),
            Plot::Depth => self.curves.iter().map(|curve| self.curve(curve)).collect(),
        }
    }

    /// Bars, one plot for each unit.
    fn bars(&self) -> Result<Vec<(String, String)>, FigureError> {
        let mut units: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !units.contains(&row.unit.as_str()) {
                units.push(&row.unit);
            }
        }
        let plot = |unit: &str| {
            let bars: Vec<PlotBar> =
                self.rows.iter().filter(|row| row.unit == unit).map(PlotBar::from_row).collect();
            let (svg, scale) = plot_bars(&self.figure.name, None, &bars)?;
            Ok((format!("{unit}{scale}; bar: ours, line: the paper"), svg))
        };
        units.into_iter().map(plot).collect()
    }

    fn curve(&self, curve: &Curve) -> Result<(String, String), FigureError> {
        let mut svg = String::new();
        draw_curve(&mut svg, curve).map_err(|why| plot_failed(&self.figure.name, why))?;
        let Curve { device, experiment, depth_max, .. } = curve;
        Ok((
            format!("{device}, {experiment}: commands in the queue of {depth_max} over virtual time in ms"),
            svg,
        ))
    }
}

fn plot_failed(name: &str, why: impl Display) -> FigureError {
    FigureError::Plot { figure: name.to_owned(), why: why.to_string() }
}

/// What a drawing function answers.
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// The largest number of an axis: never zero, never without a value.
fn end_of_axis(values: impl Iterator<Item = f64>) -> f64 {
    values.filter(|value| value.is_finite()).fold(1e-9, f64::max) * 1.05
}

/// A number on an axis: 20, 50 K.
fn axis_text(value: f64) -> String {
    let rounded = |value: f64| (value * 100.0).round() / 100.0;
    if value >= 1000.0 { format!("{} K", rounded(value / 1e3)) } else { format!("{}", rounded(value)) }
}

/// The axis of bars.
struct Axis {
    from: f64,
    to: f64,
    logarithmic: bool,
}

/// A bar shorter than this share of the axis cannot be seen.
const SEEN: f64 = 0.01;

impl Axis {
    /// From zero; logarithmic where a bar could not be seen beside the longest.
    fn of(bars: &[PlotBar]) -> Axis {
        let values = || bars.iter().flat_map(|bar| [Some(bar.length), bar.mark]).flatten();
        let to = end_of_axis(values());
        let least = values().filter(|value| *value > 0.0).fold(to, f64::min);
        let logarithmic = least < to * SEEN;
        // A decade begins below the least bar, which then is one.
        let from = if logarithmic { 10_f64.powf((least / 1.5).log10().floor()) } else { 0.0 };
        Axis { from, to, logarithmic }
    }

    fn draw(&self, svg: &mut String, about: Option<&str>, bars: &[PlotBar]) -> Drawn {
        if self.logarithmic {
            draw_bars(svg, about, bars, ((self.from..self.to).log_scale(), self.from))
        } else {
            draw_bars(svg, about, bars, (self.from..self.to, self.from))
        }
    }
}

fn draw_bars<X>(svg: &mut String, about: Option<&str>, bars: &[PlotBar], (axis, from): (X, f64)) -> Drawn
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let axis_height = if about.is_some() { 55 } else { 30 };
    let height = BAR_HEIGHT * bars.len() as u32 + 20 + axis_height;
    let root = SVGBackend::with_string(svg, (WIDTH, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let last = bars.len().saturating_sub(1);
    let mut chart = ChartBuilder::on(&root)
        .margin(10)
        .margin_right(30)
        .x_label_area_size(axis_height)
        .y_label_area_size(LABEL_WIDTH)
        .build_cartesian_2d(axis, (0..last).into_segmented())?;
    // The axis grows upwards, the bars go down.
    let label = |place: &SegmentValue<usize>| match place {
        SegmentValue::CenterOf(place) => bars.get(last - place.min(&last)).map(|bar| bar.label.clone()),
        _ => None,
    };
    chart
        .configure_mesh()
        .disable_y_mesh()
        .light_line_style(WHITE)
        .x_desc(about.unwrap_or_default())
        .x_label_formatter(&|value| axis_text(*value))
        .y_labels(bars.len() + 1)
        .y_label_formatter(&|place| label(place).unwrap_or_default())
        .x_labels(8)
        .label_style(FONT)
        .draw()?;
    for (place, bar) in bars.iter().rev().enumerate() {
        let (top, bottom) = (SegmentValue::Exact(place), SegmentValue::Exact(place + 1));
        let mut drawn =
            Rectangle::new([(from, top.clone()), (bar.length.max(from), bottom.clone())], OURS.filled());
        drawn.set_margin(4, 4, 0, 0);
        chart.draw_series([drawn])?;
        if let Some(value) = bar.mark {
            chart.draw_series([PathElement::new([(value, top), (value, bottom)], PAPER.stroke_width(3))])?;
        }
    }
    root.present()?;
    Ok(())
}

fn draw_curve(svg: &mut String, curve: &Curve) -> Drawn {
    let depth = &curve.depth;
    let at = |place: usize| place as f64 * depth.sample_us / 1e3;
    let top = f64::from(curve.depth_max.max(depth.max)) * 1.05;
    let end = at(depth.samples.len()).max(1e-9);
    let root = SVGBackend::with_string(svg, (WIDTH, CURVE_HEIGHT)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .margin(10)
        .margin_right(30)
        .x_label_area_size(30)
        .y_label_area_size(40)
        .build_cartesian_2d(0.0..end, 0.0..top)?;
    chart.configure_mesh().light_line_style(WHITE).y_labels(5).x_labels(8).label_style(FONT).draw()?;
    // A step for each sample: between two the depth is not on its way.
    let steps =
        depth.samples.iter().enumerate().flat_map(|(place, sample)| {
            [(at(place), f64::from(*sample)), (at(place + 1), f64::from(*sample))]
        });
    chart.draw_series(LineSeries::new(steps, OURS.stroke_width(2)))?;
    root.present()?;
    Ok(())
}
