//! The one reader of all formats: opens, finds the format out, gives batches.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::binary::srt::Srt;
use super::binary::vscsi::Vscsi;
use super::input::{Input, Progress};
use super::native::Native;
#[cfg(feature = "formats")]
use super::parquet::{Rows, Stored};
use super::sink::{BATCH_RECORDS, Sink};
use super::text::blkparse::Blkparse;
use super::text::cloud::{Alibaba, Tencent};
use super::text::disksim::{self, DiskSim};
use super::text::fields::shown;
use super::text::fio::Fio;
use super::text::msr::Msr;
use super::text::spc::Spc;
use super::text::table::Table;
use super::text::ycsb::Ycsb;
use super::text::{Text, memory};
use super::{
    Columns, Format, Looks, Packing, ReadOptions, Record, Skipped, TimeUnit, TraceError, detect,
};

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
    packing: Option<Packing>,
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
        let mut start = [0; 4];
        if about.is_file() && options.format.is_none_or(|format| format == Format::Parquet) {
            // A file that is too short to start so is none.
            let is_parquet =
                file.read_exact_at(&mut start, 0).is_ok() && detect::looks_parquet(&start);
            if is_parquet {
                let progress = Progress::default();
                let mut sink = Sink::new(&name, Format::Parquet, options);
                let source = rows_of_file(file, progress.clone(), options, &mut sink)?;
                return Ok(TraceReader {
                    source,
                    sink,
                    progress,
                    packing: None,
                    total_bytes,
                    more: true,
                });
            }
        }
        TraceReader::new(&name, Box::new(file), total_bytes, options)
    }

    /// Reads a stream. `name` is for messages, and for the volume of a format that names none;
    /// `total_bytes` for progress.
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
            None => detect::of(&input, name, options)?,
        };
        let (progress, packing) = (input.progress(), input.packing());
        let mut sink = Sink::new(name, format, options);
        let source = source(format, input, options, &mut sink)?;
        Ok(TraceReader { source, sink, progress, packing, total_bytes, more: true })
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

    /// How the file is packed, if it is.
    pub fn packing(&self) -> Option<Packing> {
        self.packing
    }

    /// The bad records that were passed over so far.
    pub fn skipped(&self) -> &Skipped {
        self.sink.skipped()
    }

    /// Records so far that are no access: flushes, discards, instructions, other steps of an access
    /// that counts once.
    pub fn ignored(&self) -> u64 {
        self.sink.ignored
    }

    /// What looks the trace was made by, as far as it was read; none if it is no recording, or does
    /// not say.
    pub fn looks(&self) -> Option<Looks> {
        self.sink.looks
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

/// The format, at work.
fn source(
    format: Format,
    input: Input,
    options: &ReadOptions,
    sink: &mut Sink,
) -> Result<Box<dyn Source>, TraceError> {
    let unit = |default| options.time_unit.unwrap_or(default);
    // Formats that name no volume have one, named like the file.
    let file = stem(sink.file()).to_owned();
    let named = |sink: &mut Sink| sink.volumes.named(file.as_bytes()).unwrap_or_default();
    let clock = memory::Clock::new(options.instructions_per_s);
    Ok(match format {
        Format::Ptrace => Box::new(Native::open(input, sink.file())?),
        Format::Parquet => rows_of_stream(input, options, sink)?,
        Format::Csv => {
            let columns = options.columns.clone().unwrap_or_else(Columns::own);
            let Some(unit) = columns.time.1.or(options.time_unit) else {
                return Err(TraceError::ColumnUnit {
                    file: sink.file().to_owned(),
                    column: columns.time.0.to_string(),
                    kind: "text".to_owned(),
                });
            };
            let volume = if columns.volume.is_none() { named(sink) } else { 0 };
            Box::new(Text::new(input, Table::new(columns, unit, volume)))
        }
        Format::Msr => Box::new(Text::new(input, Msr::default())),
        Format::DiskSim => match options.time_unit {
            Some(unit) => Box::new(Text::new(input, DiskSim { unit })),
            None => return Err(no_unit(format, &input, sink.file())),
        },
        Format::Spc => Box::new(Text::new(input, Spc { unit: unit(TimeUnit::Seconds) })),
        Format::Blkparse => {
            let (action, unit) = (options.block_action, unit(TimeUnit::Seconds));
            Box::new(Text::new(input, Blkparse { action, unit }))
        }
        Format::Fio => Box::new(Text::new(input, Fio::new(unit(TimeUnit::Micros)))),
        Format::Vscsi => Box::new(Vscsi::new(input, unit(TimeUnit::Micros), named(sink))),
        Format::Alibaba => Box::new(Text::new(input, Alibaba { unit: unit(TimeUnit::Micros) })),
        Format::Tencent => Box::new(Text::new(input, Tencent { unit: unit(TimeUnit::Seconds) })),
        Format::Srt => Box::new(Srt::new(input)),
        Format::Ucsd => Box::new(Text::new(input, memory::Ucsd { clock, volume: named(sink) })),
        Format::Lackey => Box::new(Text::new(input, memory::Lackey { clock, volume: named(sink) })),
        Format::Ramulator => {
            Box::new(Text::new(input, memory::Ramulator { clock, volume: named(sink) }))
        }
        Format::LoadStore => {
            Box::new(Text::new(input, memory::LoadStore { clock, volume: named(sink) }))
        }
        Format::Ycsb => {
            Box::new(Text::new(input, Ycsb::new(options.record_bytes, options.operations_per_s)))
        }
    })
}

/// A Parquet file, at work.
#[cfg(feature = "formats")]
fn rows_of_file(
    file: File,
    progress: Progress,
    options: &ReadOptions,
    sink: &mut Sink,
) -> Result<Box<dyn Source>, TraceError> {
    let stored = Stored::file(file, progress)
        .map_err(|source| TraceError::Open { file: sink.file().to_owned(), source })?;
    Ok(Box::new(Rows::open(stored, options, sink)?))
}

/// A Parquet file that comes as a stream, at work.
#[cfg(feature = "formats")]
fn rows_of_stream(
    input: Input,
    options: &ReadOptions,
    sink: &mut Sink,
) -> Result<Box<dyn Source>, TraceError> {
    let stored = Stored::stream(input, sink.file())?;
    Ok(Box::new(Rows::open(stored, options, sink)?))
}

#[cfg(not(feature = "formats"))]
fn rows_of_file(
    _: File,
    _: Progress,
    _: &ReadOptions,
    sink: &mut Sink,
) -> Result<Box<dyn Source>, TraceError> {
    Err(not_built(sink))
}

#[cfg(not(feature = "formats"))]
fn rows_of_stream(
    _: Input,
    _: &ReadOptions,
    sink: &mut Sink,
) -> Result<Box<dyn Source>, TraceError> {
    Err(not_built(sink))
}

#[cfg(not(feature = "formats"))]
fn not_built(sink: &Sink) -> TraceError {
    TraceError::NotBuilt { file: sink.file().to_owned(), format: Format::Parquet.to_string() }
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

/// Times without a unit: says what there is to tell it by.
fn no_unit(format: Format, input: &Input, file: &str) -> TraceError {
    let lines = detect::first_lines(input);
    let time =
        |line: Option<&&[u8]>| line.map(|line| shown(disksim::time(line))).unwrap_or_default();
    TraceError::Unit {
        file: file.to_owned(),
        format,
        records: lines.len(),
        first: time(lines.first()),
        last: time(lines.last()),
    }
}
