//! Charts as SVG. Colours are classes of the page's style, so that a page can be light or dark; a
//! plotting library would draw with fixed colours.

use std::fmt::Write;

use crate::axis::Axis;
use crate::text::{escape, short};

/// A chart over a few named places on its horizontal axis.
#[derive(Debug, Clone, Default)]
pub struct Chart {
    /// The line above the chart; programs that read pages aloud say it, too.
    pub title: String,
    /// The quantity of the vertical axis, with its unit.
    pub y_name: String,
    /// The names of the places on the horizontal axis, from left to right.
    pub x_names: Vec<String>,
    /// The quantity of the horizontal axis.
    pub x_name: String,
    /// The series of the chart; later series are drawn above earlier ones.
    pub series: Vec<Series>,
    /// Whether the vertical axis is logarithmic.
    pub is_log: bool,
    /// Width in pixels.
    pub width: f64,
    /// Height in pixels, without the legend below.
    pub height: f64,
}

/// Values that belong together: one line, one colour of bars or marks.
#[derive(Debug, Clone, Default)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// The colour as a class of the style: one of [`COLOURS`], `base` or `paper`.
    pub class: String,
    /// The values.
    pub points: Vec<Point>,
    /// How the values are drawn.
    pub style: Style,
}

impl Series {
    /// A series with a value for each place from left to right, without intervals. A place whose
    /// value is `None` stays empty.
    pub fn over(
        name: impl Into<String>,
        class: impl Into<String>,
        style: Style,
        values: impl IntoIterator<Item = Option<f64>>,
    ) -> Self {
        let point = |(x, y): (usize, Option<f64>)| Some(Point { x, y: y?, range: None });
        let points = values.into_iter().enumerate().filter_map(point).collect();
        Self { name: name.into(), class: class.into(), points, style }
    }
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Style {
    /// A line with a dot at each point.
    #[default]
    Line,
    /// A dashed line with a dot at each point.
    Dashed,
    /// Hollow diamonds.
    Marks,
    /// Bars beside those of the other series.
    Bars,
    /// Bars on top of those of the series before.
    Stacked,
}

/// A value of a series.
#[derive(Debug, Clone, Copy, Default)]
pub struct Point {
    /// The place on the horizontal axis, as an index of the chart's `x_names`.
    pub x: usize,
    /// The value, in the unit of the vertical axis.
    pub y: f64,
    /// The ends of the value's interval.
    pub range: Option<[f64; 2]>,
}

/// Colours for series without a colour of their own.
pub const COLOURS: [&str; 9] = ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8"];

const LEFT: f64 = 58.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 42.0;
const LEGEND_ROW: f64 = 17.0;

impl Chart {
    /// An empty chart of half a page's width: two of them lie beside each other.
    #[must_use]
    pub fn half() -> Self {
        Self { width: 535.0, height: 260.0, ..Self::default() }
    }

    /// An empty chart of a page's width.
    #[must_use]
    pub fn whole() -> Self {
        Self { width: 1080.0, ..Self::half() }
    }

    /// The chart as an `svg` element, with a legend where there are two series or more.
    pub fn svg(&self) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let axis = self.axis();
        let (width, height) = (self.width, self.height);
        let (legend, rows) = self.legend();
        let whole = height + LEGEND_ROW * rows as f64;
        write!(
            out,
            "<svg viewBox=\"0 0 {width} {whole}\" width=\"{width}\" height=\"{whole}\" \
             role=\"img\" \
             aria-label=\"{}\"><text class=\"title\" x=\"{LEFT}\" y=\"15\">{}</text>",
            escape(&self.title),
            escape(&self.title)
        )?;
        self.write_axes(out, &axis)?;
        for (index, series) in self.series.iter().enumerate() {
            self.write_series(out, &axis, series, index)?;
        }
        out.push_str(&legend);
        out.push_str("</svg>");
        Ok(())
    }

    fn write_axes(&self, out: &mut String, axis: &Axis) -> std::fmt::Result {
        let end = self.width - RIGHT;
        for tick in axis.ticks() {
            let y = self.y(axis, tick);
            write!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{end}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"tick\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 5.0,
                y + 3.5,
                short(tick)
            )?;
        }
        let bottom = self.height - BOTTOM;
        for (index, name) in self.x_names.iter().enumerate() {
            write!(
                out,
                "<text class=\"tick\" x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                self.x(index),
                bottom + 15.0,
                escape(name)
            )?;
        }
        write!(
            out,
            "<text class=\"name\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\
             <text class=\"name\" x=\"12\" y=\"{:.1}\" text-anchor=\"middle\" \
             transform=\"rotate(-90 12 {:.1})\">{}</text>",
            (LEFT + end) / 2.0,
            bottom + 32.0,
            escape(&self.x_name),
            (TOP + bottom) / 2.0,
            (TOP + bottom) / 2.0,
            escape(&self.y_name)
        )
    }

    fn write_series(
        &self,
        out: &mut String,
        axis: &Axis,
        series: &Series,
        index: usize,
    ) -> std::fmt::Result {
        let class = &series.class;
        match series.style {
            Style::Bars => return self.write_bars(out, axis, series, index),
            Style::Stacked => return self.write_stacked(out, axis, series, index),
            Style::Line | Style::Dashed | Style::Marks => {}
        }
        if series.style != Style::Marks {
            let dash = if series.style == Style::Dashed { " dashed" } else { "" };
            write!(out, "<polyline class=\"line {class}{dash}\" points=\"")?;
            for point in &series.points {
                write!(out, "{:.1},{:.1} ", self.x(point.x), self.y(axis, point.y))?;
            }
            out.push_str("\"/>");
        }
        for point in &series.points {
            let (x, y) = (self.x(point.x), self.y(axis, point.y));
            self.write_range(out, axis, point, class, x)?;
            let label = format!("{}: {}", series.name, short(point.y));
            let label = escape(&label);
            if series.style == Style::Marks {
                write!(
                    out,
                    "<path class=\"mark {class}\" d=\"M{x:.1} {:.1}l6 6l-6 6l-6 -6z\">\
                     <title>{label}</title></path>",
                    y - 6.0
                )?;
            } else {
                write!(
                    out,
                    "<circle class=\"dot {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\">\
                     <title>{label}</title></circle>"
                )?;
            }
        }
        Ok(())
    }

    fn write_bars(
        &self,
        out: &mut String,
        axis: &Axis,
        series: &Series,
        index: usize,
    ) -> std::fmt::Result {
        let bars = self.series.iter().filter(|series| series.style == Style::Bars).count() as f64;
        let width = self.step() * 0.7 / bars;
        let zero = self.y(axis, axis.low.max(0.0));
        for point in &series.points {
            let left = self.x(point.x) + (index as f64 - bars / 2.0) * width;
            let y = self.y(axis, point.y);
            write!(
                out,
                "<rect class=\"bar {}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\">\
                 <title>{}: {}</title></rect>",
                series.class,
                left + 1.0,
                y.min(zero),
                width - 2.0,
                (y - zero).abs().max(0.5),
                escape(&series.name),
                short(point.y)
            )?;
            self.write_range(out, axis, point, &series.class, left + width / 2.0)?;
        }
        Ok(())
    }

    fn write_stacked(
        &self,
        out: &mut String,
        axis: &Axis,
        series: &Series,
        index: usize,
    ) -> std::fmt::Result {
        let width = self.step() * 0.6;
        for point in &series.points {
            let below = self.stacked_below(index, point.x);
            let (low, high) = (self.y(axis, below), self.y(axis, below + point.y));
            write!(
                out,
                "<rect class=\"bar {}\" x=\"{:.1}\" y=\"{high:.1}\" width=\"{width:.1}\" \
                 height=\"{:.1}\">\
                 <title>{}: {}</title></rect>",
                series.class,
                self.x(point.x) - width / 2.0,
                (low - high).max(0.0),
                escape(&series.name),
                short(point.y)
            )?;
        }
        Ok(())
    }

    /// Sum of the stacked series before this one at a place.
    fn stacked_below(&self, index: usize, x: usize) -> f64 {
        let stacked = self.series[..index].iter().filter(|series| series.style == Style::Stacked);
        let points = stacked.flat_map(|series| &series.points);
        points.filter(|point| point.x == x).map(|point| point.y).sum()
    }

    fn write_range(
        &self,
        out: &mut String,
        axis: &Axis,
        point: &Point,
        class: &str,
        x: f64,
    ) -> std::fmt::Result {
        let Some([low, high]) = point.range else { return Ok(()) };
        let (low, high) = (self.y(axis, low), self.y(axis, high));
        write!(
            out,
            "<path class=\"range {class}\" d=\"M{x:.1} {low:.1}V{high:.1}M{:.1} {low:.1}h8M{:.1} \
             {high:.1}h8\"/>",
            x - 4.0,
            x - 4.0
        )
    }

    /// The legend and its number of rows; empty for a chart of one series.
    fn legend(&self) -> (String, usize) {
        if self.series.len() < 2 {
            return (String::new(), 0);
        }
        let (mut out, mut x, mut rows) = (String::new(), 8.0, 1);
        for series in &self.series {
            let class = &series.class;
            let width = 34.0 + 6.2 * series.name.chars().count() as f64;
            if x + width > self.width && x > 8.0 {
                (x, rows) = (8.0, rows + 1);
            }
            let y = self.height - 9.0 + LEGEND_ROW * rows as f64;
            let middle = y - 4.0;
            let _ = match series.style {
                Style::Marks => write!(
                    out,
                    "<path class=\"mark {class}\" d=\"M{} {}l5 5l-5 5l-5 -5z\"/>",
                    x + 8.0,
                    y - 9.0
                ),
                Style::Bars | Style::Stacked => write!(
                    out,
                    "<rect class=\"bar {class}\" x=\"{x}\" y=\"{}\" width=\"14\" height=\"9\"/>",
                    y - 8.0
                ),
                style => write!(
                    out,
                    "<line class=\"line {class}{}\" x1=\"{x}\" x2=\"{}\" y1=\"{middle}\" \
                     y2=\"{middle}\"/>",
                    if style == Style::Dashed { " dashed" } else { "" },
                    x + 16.0,
                ),
            };
            let _ = write!(
                out,
                "<text class=\"tick\" x=\"{}\" y=\"{y}\">{}</text>",
                x + 20.0,
                escape(&series.name)
            );
            x += width;
        }
        (out, rows)
    }

    fn axis(&self) -> Axis {
        let points = self.series.iter().flat_map(|series| &series.points);
        let values = points.flat_map(|point| {
            let [low, high] = point.range.unwrap_or([point.y; 2]);
            [point.y, low, high]
        });
        let piles = (0..self.x_names.len()).map(|x| self.stacked_below(self.series.len(), x));
        Axis::over(values.chain(piles), self.is_log)
    }

    fn step(&self) -> f64 {
        (self.width - LEFT - RIGHT) / self.x_names.len().max(1) as f64
    }

    fn x(&self, index: usize) -> f64 {
        LEFT + self.step() * (index as f64 + 0.5)
    }

    fn y(&self, axis: &Axis, value: f64) -> f64 {
        let bottom = self.height - BOTTOM;
        bottom - (bottom - TOP) * axis.share(value).clamp(-0.02, 1.02)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stacked_lies_on_what_came_before() {
        let series = |y| Series {
            points: vec![Point { x: 0, y, range: None }],
            style: Style::Stacked,
            ..Series::default()
        };
        let chart = Chart {
            x_names: vec!["x".into()],
            series: vec![series(10.0), series(30.0)],
            width: 300.0,
            height: 200.0,
            ..Chart::default()
        };
        assert_eq!([chart.stacked_below(1, 0), chart.stacked_below(2, 0)], [10.0, 40.0]);
        let axis = chart.axis();
        assert!(axis.share(40.0) <= 1.0, "{}", axis.share(40.0));
        // The upper bar ends where the lower one begins.
        let lower_top = format!("y=\"{:.1}\"", chart.y(&axis, 10.0));
        assert!(chart.svg().contains(&lower_top));
    }

    #[test]
    fn a_chart_is_well_formed_and_says_what_it_was_given() {
        let series = |style, y| Series {
            name: "a <b>".into(),
            class: "c0".into(),
            points: vec![Point { x: 0, y, range: Some([y * 0.5, y * 2.0]) }],
            style,
        };
        for style in [Style::Line, Style::Dashed, Style::Marks, Style::Bars, Style::Stacked] {
            for is_log in [false, true] {
                let chart = Chart {
                    title: "T & t".into(),
                    x_names: vec!["11".into()],
                    series: vec![series(style, 3.0), series(Style::Line, 0.0)],
                    is_log,
                    width: 300.0,
                    height: 200.0,
                    ..Chart::default()
                };
                let svg = chart.svg();
                assert!(svg.contains("T &amp; t") && svg.contains("a &lt;b&gt;"), "{svg}");
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
                assert_eq!(svg.matches("<svg").count(), svg.matches("</svg>").count());
            }
        }
    }
}
