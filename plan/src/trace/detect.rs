//! Detects the format of a trace from its first bytes or lines.

use super::binary::{srt, vscsi};
use super::input::Input;
use super::text::fields::shown;
use super::text::{blkparse, cloud, disksim, fio, is_nothing, memory, msr, spc, table, ycsb};
use super::{Format, ReadOptions, TraceError, native};

/// How many lines are tried before the format is decided.
const LINES: usize = 32;

/// Tells whether a line looks like one of a format.
type Looks = fn(&[u8]) -> bool;

/// How a line of each format looks. Where several fit, the first that fits most lines is it.
const LOOKS: &[(Format, Looks)] = &[
    (Format::Msr, msr::looks),
    (Format::DiskSim, disksim::looks),
    (Format::Spc, spc::looks),
    (Format::Alibaba, cloud::looks_alibaba),
    (Format::Tencent, cloud::looks_tencent),
    (Format::Blkparse, blkparse::looks),
    (Format::Ucsd, memory::looks_ucsd),
    (Format::Lackey, memory::looks_lackey),
    (Format::LoadStore, memory::looks_load_store),
    (Format::Ramulator, memory::looks_ramulator),
    (Format::Ycsb, ycsb::looks),
];

/// Whether a trace starts as Parquet files do. Known without the library that reads them, so that
/// a build without the library can say which format it lacks.
pub(crate) fn looks_parquet(head: &[u8]) -> bool {
    head.starts_with(b"PAR1")
}

/// The format that a line has by itself.
pub(crate) fn of_line(line: &[u8]) -> Option<Format> {
    LOOKS.iter().find(|(_, looks)| looks(line)).map(|&(format, _)| format)
}

/// The format of a trace, by its first bytes and lines.
pub(crate) fn of(input: &Input, file: &str, options: &ReadOptions) -> Result<Format, TraceError> {
    let head = input.head();
    if native::looks(head) {
        return Ok(Format::Ptrace);
    }
    if looks_parquet(head) {
        return Ok(Format::Parquet);
    }
    if options.columns.is_some() {
        return Ok(Format::Csv);
    }
    if vscsi::looks(head) {
        return Ok(Format::Vscsi);
    }
    if srt::looks(head) {
        return Ok(Format::Srt);
    }
    let lines = first_lines(input);
    match lines.first() {
        Some(line) if fio::looks(line) => return Ok(Format::Fio),
        Some(line) if table::looks_own(line) => return Ok(Format::Csv),
        _ => {}
    }
    let mut best = (0, None);
    for &(format, looks) in LOOKS {
        let fitting = lines.iter().filter(|line| looks(line)).count();
        if fitting > best.0 {
            best = (fitting, Some(format));
        }
    }
    let file = || file.to_owned();
    best.1.ok_or_else(|| match lines.first() {
        Some(line) if table::looks_header(line) => {
            TraceError::Header { file: file(), start: shown(line) }
        }
        _ => TraceError::Unknown { file: file(), start: shown(head) },
    })
}

/// The first lines that are something; a cut one at the end of what was looked at is left out.
pub(crate) fn first_lines(input: &Input) -> Vec<&[u8]> {
    let mut lines: Vec<&[u8]> = input.head().split(|&byte| byte == b'\n').collect();
    if !input.head_is_all() {
        lines.pop();
    }
    let whole = lines.into_iter().map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    whole.filter(|line| !is_nothing(line)).take(LINES).collect()
}
