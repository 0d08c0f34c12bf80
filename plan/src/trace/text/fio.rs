//! Logs of fio (`write_iolog`): a line with the version, then lines of `file action [offset
//! bytes]`, which begin with the time in version 3.
//!
//! Version 2 has no times except `wait` lines, in microseconds since the wait before. Version 3
//! counts microseconds since its start. A volume is a file. Opening, closing, syncing and trimming
//! are not accesses.

use super::super::sink::{Seen, Sink};
use super::super::{Fault, Op, TimeUnit};
use super::Parse;
use super::fields::{columns, number, shown, time_ns, words};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    Unknown,
    Two,
    Three,
}

pub(crate) struct Fio {
    version: Version,
    unit: TimeUnit,
    now_ns: u64,
    last: Vec<u8>,
    volume: u32,
}

const FIRST_LINES: [(&[u8], Version); 2] =
    [(b"fio version 2 iolog", Version::Two), (b"fio version 3 iolog", Version::Three)];

/// Whether a line looks like the first line of a log of fio.
pub(crate) fn looks(line: &[u8]) -> bool {
    FIRST_LINES.iter().any(|(first, _)| line.trim_ascii() == *first)
}

impl Fio {
    pub(crate) fn new(unit: TimeUnit) -> Fio {
        Fio { version: Version::Unknown, unit, now_ns: 0, last: Vec::new(), volume: 0 }
    }

    fn access(
        &mut self,
        file: &[u8],
        op: Op,
        offset: &[u8],
        bytes: &[u8],
        sink: &mut Sink,
    ) -> Seen {
        let offset_bytes = number("offset", offset)?;
        let len_bytes = number("size", bytes)?;
        if self.last != file || self.last.is_empty() {
            self.volume = sink.volumes.named(file)?;
            self.last.clear();
            self.last.extend_from_slice(file);
        }
        sink.access(self.now_ns, self.volume, op, offset_bytes, len_bytes)
    }
}

impl Parse for Fio {
    fn line(&mut self, line: &[u8], sink: &mut Sink) -> Seen {
        let (mut count, [mut file, mut action, mut offset, mut bytes, fifth]) = words::<5>(line);
        match self.version {
            Version::Unknown => {
                let found = FIRST_LINES.iter().find(|(first, _)| line.trim_ascii() == *first);
                let expected = "fio version 2 iolog or fio version 3 iolog";
                let odd = || {
                    Box::new(Fault::Value {
                        column: "the first line",
                        value: shown(line),
                        expected,
                    })
                };
                self.version = found.ok_or_else(odd)?.1;
                return Ok(());
            }
            Version::Two => {}
            Version::Three => {
                if count < 3 {
                    return Err(columns("3 or 5: time file action offset bytes", count, line));
                }
                self.now_ns = time_ns("time", file, self.unit)?;
                (file, action, offset, bytes) = (action, offset, bytes, fifth);
                count -= 1;
            }
        }
        let op = match action {
            b"read" => Op::Read,
            b"write" => Op::Write,
            b"wait" if self.version == Version::Three => {
                let (column, value) = ("action", shown(action));
                let expected = "one of version 3, whose lines have times and need no waits";
                return Err(Box::new(Fault::Value { column, value, expected }));
            }
            b"wait" if count >= 3 => {
                let wait_ns = time_ns("wait", offset, TimeUnit::Micros)?;
                self.now_ns = self.now_ns.saturating_add(wait_ns);
                sink.ignored += 1;
                return Ok(());
            }
            b"add" | b"open" | b"close" | b"sync" | b"datasync" | b"sync_file_range" | b"trim" => {
                sink.ignored += 1;
                return Ok(());
            }
            _ => {
                let expected = "read, write, wait, sync, datasync, trim, add, open or close";
                return Err(Box::new(Fault::Value {
                    column: "action",
                    value: shown(action),
                    expected,
                }));
            }
        };
        if count != 4 {
            return Err(columns("a file, an action, an offset and bytes", count, line));
        }
        self.access(file, op, offset, bytes, sink)
    }
}
