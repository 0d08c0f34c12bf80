//! The one reader of all formats: opens, finds the format out, gives batches.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::input::{Input, Progress};
use super::native::Native;
use super::sink::{BATCH_RECORDS, Sink};
use super::text::Text;
use super::text::msr::Msr;
use super::{Format, ReadOptions, Record, Skipped, TraceError, detect};

/// A format at work on one trace.
pub(crate) trait Source: Send {
    /// Makes records until the sink is full; false when there are no more.
    fn fill(&mut self, sink: &mut Sink) -> Result<bool, TraceError>;
}

/// A trace being read.
pub struct TraceReader {
    source: Box<dyn Source>,
    sink: Sink,
    progress: Progress,
    total_bytes: Option<u64>,
    more: bool,
}

impl TraceReader {
    /// Opens a file.
    pub fn open(path: &Path, options: &ReadOptions) -> Result<TraceReader, TraceError> {
        let name = path.display().to_string();
        let failed = |source| TraceError::Open { file: name.clone(), source };
        let file = File::open(path).map_err(failed)?;
        let about = file.metadata().map_err(failed)?;
        if about.is_dir() {
            return Err(TraceError::Directory { file: name });
        }
        let total_bytes = about.is_file().then_some(about.len());
        TraceReader::new(&name, Box::new(file), total_bytes, options)
    }

    /// Reads a stream. `name` is for messages, and for the volume of a format that names none; `total_bytes` for progress.
    pub fn new(
        name: &str,
        stream: Box<dyn Read + Send>,
        total_bytes: Option<u64>,
        options: &ReadOptions,
    ) -> Result<TraceReader, TraceError> {
        let input = Input::new(name, stream)?;
        if input.head().trim_ascii().is_empty() && input.head_is_all() {
            return Err(TraceError::Empty { file: name.to_owned() });
        }
        let format = match options.format {
            Some(format) => format,
            None => detect::of(&input, name)?,
        };
        let progress = input.progress();
        let sink = Sink::new(name, format, options);
        let source: Box<dyn Source> = match format {
            Format::Ptrace => Box::new(Native::open(input, name)?),
            Format::Msr => Box::new(Text::new(input, Msr::default())),
        };
        Ok(TraceReader { source, sink, progress, total_bytes, more: true })
    }

    /// Clears `into` and fills it with the next records, some 8192; false, and none, at the end.
    pub fn next_batch(&mut self, into: &mut Vec<Record>) -> Result<bool, TraceError> {
        into.clear();
        into.reserve(BATCH_RECORDS);
        std::mem::swap(into, &mut self.sink.out);
        let filled = self.fill();
        std::mem::swap(into, &mut self.sink.out);
        filled?;
        Ok(!into.is_empty())
    }

    fn fill(&mut self) -> Result<(), TraceError> {
        while self.more && !self.sink.is_full() {
            self.more = self.source.fill(&mut self.sink)?;
        }
        while !self.more && !self.sink.is_full() && self.sink.drain() {}
        Ok(())
    }

    /// The volumes that were seen so far, by index.
    pub fn volumes(&self) -> &[String] {
        self.sink.volumes.names()
    }

    /// The format, given or found.
    pub fn format(&self) -> Format {
        self.sink.format()
    }

    /// The bad records that were passed over so far.
    pub fn skipped(&self) -> &Skipped {
        self.sink.skipped()
    }

    /// Records so far that are no access: flushes, discards, instructions, other steps of an access that counts once.
    pub fn ignored(&self) -> u64 {
        self.sink.ignored
    }

    /// How much of the file was read, as it lies: packed, if it is.
    pub fn bytes_read(&self) -> u64 {
        self.progress.bytes()
    }

    /// How much there is, where that is known.
    pub fn total_bytes(&self) -> Option<u64> {
        self.total_bytes
    }
}
