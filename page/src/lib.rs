//! Pages: results as one HTML file that needs no script and nothing from a network.
//!
//! [`page`] is the skeleton with its style, [`charts`] is a section with charts, [`Chart`] draws
//! SVG in the colours of that style, [`table`] writes tables, and [`escape`], [`short`] and
//! [`data`] put text, numbers and whole results on a page.

use std::fmt::{self, Write};

mod axis;
mod chart;
mod table;
mod text;

pub use chart::{COLOURS, Chart, Point, Series, Style};
pub use table::table;
pub use text::{escape, short};

/// A whole page with this title. `body` writes the content between the skeleton's beginning and
/// end.
pub fn page(title: &str, body: impl FnOnce(&mut String) -> fmt::Result) -> String {
    let mut out = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{}</title>\
         <style>{STYLE}</style></head><body>",
        escape(title)
    );
    // Writing to a string does not fail.
    let _ = body(&mut out);
    out.push_str("</body></html>\n");
    out
}

/// A section of a page: a heading with charts below. A chart without any point is left out.
pub fn charts(
    out: &mut String,
    heading: &str,
    charts: impl IntoIterator<Item = Chart>,
) -> fmt::Result {
    write!(out, "<h2>{}</h2><div class=\"charts\">", escape(heading))?;
    for chart in charts {
        if chart.series.iter().any(|series| !series.points.is_empty()) {
            out.push_str(&chart.svg());
        }
    }
    out.push_str("</div>");
    Ok(())
}

/// A chart as an SVG file of its own, light or dark as its reader prefers.
pub fn svg_file(chart: &Chart) -> String {
    let svg = chart.svg().replacen("<svg ", "<svg xmlns=\"http://www.w3.org/2000/svg\" ", 1);
    let style = format!("><style>{STYLE} svg {{ background: var(--page); }}</style>");
    format!("{}\n", svg.replacen('>', &style, 1))
}

/// Writes a whole result as JSON under the id `result`, for programs that read the page.
pub fn data(out: &mut String, result: &(impl serde::Serialize + ?Sized)) -> fmt::Result {
    // A result has only values that JSON can express. No text in it can end the script or begin
    // another.
    let json = serde_json::to_string(result).unwrap_or_default().replace('<', "\\u003c");
    write!(out, "<script type=\"application/json\" id=\"result\">{json}</script>")
}

const STYLE: &str = include_str!("page.css");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_in_a_file_of_its_own_has_its_style_and_its_name_space() {
        let file = svg_file(&Chart {
            title: "a < b".into(),
            width: 300.0,
            height: 200.0,
            ..Chart::default()
        });
        assert!(file.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox"), "{file}");
        assert!(file.contains("<style>:root") && file.contains("a &lt; b"), "{file}");
        assert_eq!(file.matches("</svg>").count(), 1);
    }

    #[test]
    fn the_skeleton_is_whole_and_asks_the_network_for_nothing() {
        let page = page("a < b", |out| write!(out, "<h1>hello</h1>"));
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</body></html>\n"));
        assert!(page.contains("<title>a &lt; b</title>") && page.contains("<h1>hello</h1>"));
        for unwanted in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!page.contains(unwanted), "{unwanted}");
        }
    }

    #[test]
    fn a_section_has_the_charts_that_have_points() {
        let full = Series::over("full", "c0", Style::Line, [Some(1.0), None, Some(2.0)]);
        assert_eq!(full.points.iter().map(|point| point.x).collect::<Vec<_>>(), [0, 2]);
        let chart = |series| Chart {
            series: vec![series],
            x_names: ["a", "b", "c"].map(String::from).to_vec(),
            width: 300.0,
            height: 200.0,
            ..Chart::default()
        };
        let mut out = String::new();
        charts(&mut out, "a < b", [chart(full), chart(Series::default())]).unwrap();
        assert!(out.starts_with("<h2>a &lt; b</h2>") && out.ends_with("</svg></div>"), "{out}");
        assert_eq!(out.matches("<svg").count(), 1);
    }

    #[test]
    fn text_in_a_result_cannot_end_its_script() {
        let mut out = String::new();
        data(&mut out, "</script><script>").unwrap();
        assert_eq!(out.matches("<script").count(), 1);
        assert_eq!(out.matches("</script>").count(), 1);
    }
}
