//! Sources that are chosen by name: the words of `--warning`.

use crate::cloud::{aws, azure, gcp};
use crate::error::WarningError;
use crate::file::StatusFile;
use crate::source::WarningSource;
use crate::{command, logind, nut, power_supply};

/// A source that a user can choose by name.
pub struct Named {
    /// The word before the colon.
    pub name: &'static str,
    /// The form of the text behind the colon, for help and errors.
    pub argument: &'static str,
    /// Opens the source with the text behind the colon.
    pub open: fn(&str) -> Result<Box<dyn WarningSource>, WarningError>,
}

/// All sources that can be chosen by name. Signals are not among them: every program that waits
/// for warnings heeds them.
pub const SOURCES: &[Named] = &[
    // One line for each source.
    Named { name: "file", argument: "PATH", open: |path| StatusFile::open(path.as_ref()) },
    Named { name: "nut", argument: "UPS@HOST[:PORT]", open: nut::open },
    Named { name: "power-supply", argument: "[DIR]", open: power_supply::open },
    Named { name: "logind", argument: "[BUS ADDRESS]", open: logind::open },
    Named { name: "command", argument: "SHELL COMMAND", open: command::open },
    Named { name: "aws", argument: "[URL]", open: aws::open },
    Named { name: "gcp", argument: "[URL]", open: gcp::open },
    Named { name: "azure", argument: "[URL]", open: azure::open },
];

/// Opens the source that `text` names, such as `file:/run/ups/on-battery`.
///
/// # Errors
/// There is no such source, or it cannot be opened.
pub fn open(text: &str) -> Result<Box<dyn WarningSource>, WarningError> {
    // A source whose argument may be left out is also called by its name alone.
    let (name, argument) = text.split_once(':').unwrap_or((text, ""));
    let named = SOURCES.iter().find(|source| {
        source.name == name && (text.contains(':') || source.argument.starts_with('['))
    });
    let Some(source) = named else {
        let forms = SOURCES.iter().map(|source| match source.argument.strip_prefix('[') {
            Some(left_out) => format!("{}[:{left_out}", source.name),
            None => format!("{}:{}", source.name, source.argument),
        });
        let known = forms.collect::<Vec<_>>().join(", ");
        return Err(WarningError::Unknown { text: text.to_owned(), known });
    };
    (source.open)(argument)
}
