//! Families of metrics as text: OpenMetrics 1.0, or the older text format of Prometheus.

use std::fmt::{Display, Write};

/// How the text is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus' text format 0.0.4, for clients that ask for it alone.
    Text,
}

impl Format {
    /// The format that the header `Accept` asks for.
    pub fn asked(accept: Option<&str>) -> Self {
        match accept {
            Some(accept) if accept.contains("openmetrics") => Self::OpenMetrics,
            Some(accept) if accept.contains("text/plain") => Self::Text,
            _ => Self::OpenMetrics,
        }
    }

    /// The header `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// What a family is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A value that rises and falls.
    Gauge,
    /// A count that only rises, but for a new start or CONFIG RESETSTAT.
    Counter,
    /// How many took how long.
    Histogram,
    /// Words that seldom change, as labels.
    Info,
    /// One of several states.
    StateSet,
}

impl Kind {
    /// The name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::Histogram => "histogram",
            Self::Info => "info",
            Self::StateSet => "stateset",
        }
    }

    /// The end that the names of samples have and those of families have not.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Counter => "_total",
            Self::Info => "_info",
            Self::Gauge | Self::Histogram | Self::StateSet => "",
        }
    }
}

/// The units that stand at the end of names.
const UNITS: [&str; 5] = ["bytes", "seconds", "joules", "watts", "celsius"];

/// A text that grows.
#[derive(Debug)]
pub struct Text {
    format: Format,
    out: String,
}

/// A label and its value.
pub type Label<'l> = (&'l str, &'l str);

impl Text {
    pub fn new(format: Format) -> Self {
        Self { format, out: String::with_capacity(64 << 10) }
    }

    /// Begins a family. `name` is without the kind's suffix.
    pub fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let out = &mut self.out;
        // Writing to a string does not fail.
        let _ = match self.format {
            Format::OpenMetrics => {
                let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {}\n", kind.name());
                let unit = UNITS.iter().find(|unit| name.ends_with(&format!("_{unit}")));
                unit.map_or(Ok(()), |unit| writeln!(out, "# UNIT {name} {unit}"))
            }
            Format::Text => {
                let (suffix, kind) = match kind {
                    Kind::Info | Kind::StateSet => (kind.suffix(), "gauge"),
                    _ => (kind.suffix(), kind.name()),
                };
                write!(out, "# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}\n")
            }
        };
    }

    /// Writes a sample; `name` has the kind's suffix.
    pub fn sample(&mut self, name: &str, labels: &[Label<'_>], value: impl Display) {
        self.out.push_str(name);
        for (at, (label, text)) in labels.iter().enumerate() {
            self.out.push_str(if at == 0 { "{" } else { "," });
            self.out.push_str(label);
            self.out.push_str("=\"");
            for mark in text.chars() {
                match mark {
                    '\\' => self.out.push_str("\\\\"),
                    '"' => self.out.push_str("\\\""),
                    '\n' => self.out.push_str("\\n"),
                    mark => self.out.push(mark),
                }
            }
            self.out.push('"');
        }
        if !labels.is_empty() {
            self.out.push('}');
        }
        // Writing to a string does not fail.
        let _ = writeln!(self.out, " {value}");
    }

    pub fn end(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.out.push_str("# EOF\n");
        }
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_name_families_and_escape_labels() {
        let text = |format| {
            let mut text = Text::new(format);
            text.family("p_sent_bytes", Kind::Counter, "Sent.");
            text.sample("p_sent_bytes_total", &[("a", "x\"\\\n"), ("b", "")], 7);
            text.family("p_build", Kind::Info, "Built.");
            text.end()
        };
        assert_eq!(
            text(Format::OpenMetrics),
            "# HELP p_sent_bytes Sent.\n# TYPE p_sent_bytes counter\n# UNIT p_sent_bytes bytes\n\
             p_sent_bytes_total{a=\"x\\\"\\\\\\n\",b=\"\"} 7\n\
             # HELP p_build Built.\n# TYPE p_build info\n# EOF\n"
        );
        assert!(text(Format::Text).starts_with("# HELP p_sent_bytes_total Sent.\n"));
        assert!(text(Format::Text).ends_with("# TYPE p_build_info gauge\n"));
    }

    #[test]
    fn a_client_gets_the_format_that_it_asks_for() {
        let prometheus = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5,*/*;q=0.1";
        assert_eq!(Format::asked(Some(prometheus)), Format::OpenMetrics);
        assert_eq!(Format::asked(Some("text/plain;version=0.0.4")), Format::Text);
        assert_eq!(Format::asked(Some("*/*")), Format::OpenMetrics);
        assert_eq!(Format::asked(None), Format::OpenMetrics);
    }
}
