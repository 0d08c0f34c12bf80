//! Sources that are chosen by name: the words of `--warning`.

use crate::error::WarningError;
use crate::file::StatusFile;
use crate::nut;
use crate::source::WarningSource;

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
];

/// Opens the source that `text` names, such as `file:/run/ups/on-battery`.
///
/// # Errors
/// There is no such source, or it cannot be opened.
pub fn open(text: &str) -> Result<Box<dyn WarningSource>, WarningError> {
    let named = text.split_once(':').and_then(|(name, argument)| {
        SOURCES.iter().find(|source| source.name == name).map(|source| (source, argument))
    });
    let Some((source, argument)) = named else {
        let forms = SOURCES.iter().map(|source| format!("{}:{}", source.name, source.argument));
        let known = forms.collect::<Vec<_>>().join(", ");
        return Err(WarningError::Unknown { text: text.to_owned(), known });
    };
    (source.open)(argument)
}
