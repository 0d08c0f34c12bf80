//! The trait of a format: a source of records.

use super::TraceError;
use super::sink::Sink;

/// A format that makes records of one trace.
pub(crate) trait Source: Send {
    /// Makes records until the sink is full; false when there are no more.
    fn fill(&mut self, sink: &mut Sink) -> Result<bool, TraceError>;
}

/// A file's name without its directory and without what says how it is packed and written.
pub(crate) fn stem(file: &str) -> &str {
    let name = file.rsplit('/').next().unwrap_or(file);
    let packed = [".gz", ".zst", ".bz2", ".xz"];
    let name = packed.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    match name.rsplit_once('.') {
        Some((stem, _)) if !stem.is_empty() => stem,
        _ => name,
    }
}
