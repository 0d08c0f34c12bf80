//! The reader of traces in all formats: opens a trace, detects its format, and gives batches of
//! records.

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
use super::source::{Source, stem};
use super::text::blkparse::Blkparse;
use super::text::cloud::{Alibaba, Tencent};
use super::text::disksim::{self, DiskSim};
use super::text::fields::shown;
use super::text::fio::Fio;
use super::text::msr::Msr;
use super::text::spc::Spc;
use super::text::table::Table;
use super::text::ycsb::Ycsb;
use super::text::{Parse, SECTOR_BYTES, Text, memory};
use super::{
    Columns, Format, Looks, Packing, ReadOptions, Record, Skipped, TimeUnit, TraceError, detect,
};

/// Reads a trace of any format, a batch of records at a time.
pub struct TraceReader {
    source: Box<dyn Source>,
    sink: Sink,
    progress: Progress,
    packing: Option<Packing>,
    total_bytes: Option<u64>,
    more: bool,
}

impl TraceReader {
    /// Opens a file and finds out its format.
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

    /// The names of the volumes that were seen so far, by number.
    pub fn volumes(&self) -> &[String] {
        self.sink.volumes.names()
    }

    /// The format, which was given or found out.
    pub fn format(&self) -> Format {
        self.sink.format()
    }

    /// How the file is packed; `None` where it is not.
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

    /// The looks that a recording was made by, as far as it was read; `None` where the trace is not
    /// a recording, or does not say.
    pub fn looks(&self) -> Option<Looks> {
        self.sink.looks
    }

    /// How many bytes of the file were read, as it is stored: packed, if it is packed.
    pub fn bytes_read(&self) -> u64 {
        self.progress.bytes()
    }

    /// How many bytes the file has, as it is stored, where that is known.
    pub fn total_bytes(&self) -> Option<u64> {
        self.total_bytes
    }
}

/// The source of records for a format.
fn source(
    format: Format,
    input: Input,
    options: &ReadOptions,
    sink: &mut Sink,
) -> Result<Box<dyn Source>, TraceError> {
    let unit = |default| options.time_unit.unwrap_or(default);
    let sector_bytes = options.sector_bytes.unwrap_or(SECTOR_BYTES);
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
            text(input, Table::new(columns, unit, volume))
        }
        Format::Msr => text(input, Msr::default()),
        Format::DiskSim => match options.time_unit {
            Some(unit) => text(input, DiskSim { unit, sector_bytes }),
            None => return Err(no_unit(format, &input, sink.file())),
        },
        Format::Spc => {
            let (unit, block_bytes) = (unit(TimeUnit::Seconds), sector_bytes);
            text(input, Spc { unit, block_bytes })
        }
        Format::Blkparse => {
            let (action, unit) = (options.block_action, unit(TimeUnit::Seconds));
            text(input, Blkparse { action, unit })
        }
        Format::Fio => text(input, Fio::new(unit(TimeUnit::Micros))),
        Format::Vscsi => {
            let unit = unit(TimeUnit::Micros);
            Box::new(Vscsi::new(input, unit, sector_bytes, named(sink)))
        }
        Format::Alibaba => text(input, Alibaba { unit: unit(TimeUnit::Micros) }),
        Format::Tencent => {
            let unit = unit(TimeUnit::Seconds);
            text(input, Tencent { unit, sector_bytes })
        }
        Format::Srt => Box::new(Srt::open(input, options.sector_bytes, sink.file())?),
        Format::Ucsd => text(input, memory::Ucsd { clock, volume: named(sink) }),
        Format::Lackey => text(input, memory::Lackey { clock, volume: named(sink) }),
        Format::Ramulator => text(input, memory::Ramulator { clock, volume: named(sink) }),
        Format::LoadStore => text(input, memory::LoadStore { clock, volume: named(sink) }),
        Format::Ycsb => text(input, Ycsb::new(options.record_bytes, options.operations_per_s)),
    })
}

/// The source for a format of lines.
fn text(input: Input, parser: impl Parse + 'static) -> Box<dyn Source> {
    Box::new(Text::new(input, parser, detect::of_line))
}

/// The source for a Parquet file.
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

/// The source for a Parquet file that comes as a stream.
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

/// The error for times without a unit, with the times that tell it.
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
