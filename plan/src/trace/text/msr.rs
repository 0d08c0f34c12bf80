//! The MSR Cambridge traces: `time,host,disk,op,offset,bytes,response time`, comma-separated,
//! without a header.
//!
//! Times are in Windows's ticks of 100 ns since 1601, whose nanoseconds fit 64 bits until the year
//! 2185. A volume is named `host_disk`, as the files of that collection are. Most lines take a fast
//! path, which knows one spelling and the first few volumes. All other lines are parsed field by
//! field, and errors are found there.

use super::super::sink::{Seen, Sink};
use super::super::{Op, TimeUnit};
use super::Parse;
use super::fields::{columns, cut, digits, known_op, number, op, time_ns, whole};

const COLUMNS: &str = "7: time,host,disk,op,offset,bytes,response time";
const TICK_NS: u64 = 100;

/// How many volumes are found without hashing.
const RECENT: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Msr {
    /// The text `host,disk,` of the first volumes, and their numbers.
    recent: Vec<(Vec<u8>, u32)>,
    /// The place in `recent` of the last line's volume.
    last: usize,
}

/// Whether a line looks like one of the MSR Cambridge collection.
pub(crate) fn looks(line: &[u8]) -> bool {
    let (count, [time, _, disk, op, offset, ..]) = cut::<6>(line, b',');
    count == 7
        && known_op(op).is_some()
        && [time, disk, offset].into_iter().all(|field| whole(field).is_some())
}

impl Parse for Msr {
    #[inline]
    fn line(&mut self, line: &[u8], sink: &mut Sink) -> Seen {
        match self.fast(line) {
            Some((time_ns, volume, op, offset_bytes, len_bytes)) => {
                sink.access(time_ns, volume, op, offset_bytes, len_bytes)
            }
            None => self.by_field(line, sink),
        }
    }
}

impl Msr {
    #[inline]
    fn fast(&mut self, line: &[u8]) -> Option<(u64, u32, Op, u64, u64)> {
        let mut at = 0;
        let time_ns = digits(line, &mut at)?.checked_mul(TICK_NS)?;
        let (volume, rest) = self.volume(line[at..].strip_prefix(b",")?)?;
        let (op, rest) = match rest {
            [b'W', b'r', b'i', b't', b'e', b',', rest @ ..] => (Op::Write, rest),
            [b'R', b'e', b'a', b'd', b',', rest @ ..] => (Op::Read, rest),
            _ => return None,
        };
        at = 0;
        let offset_bytes = digits(rest, &mut at)?;
        let rest = rest[at..].strip_prefix(b",")?;
        at = 0;
        let len_bytes = digits(rest, &mut at)?;
        let rest = rest[at..].strip_prefix(b",")?;
        at = 0;
        digits(rest, &mut at).filter(|_| at == rest.len())?;
        Some((time_ns, volume, op, offset_bytes, len_bytes))
    }

    /// The volume that a line names, and the rest of the line behind the name.
    #[inline]
    fn volume<'a>(&mut self, line: &'a [u8]) -> Option<(u32, &'a [u8])> {
        let (name, volume) = self.recent.get(self.last)?;
        if let Some(rest) = line.strip_prefix(name.as_slice()) {
            return Some((*volume, rest));
        }
        let named = |(at, (name, volume)): (usize, &(Vec<u8>, u32))| {
            line.strip_prefix(name.as_slice()).map(|rest| (at, *volume, rest))
        };
        let (at, volume, rest) = self.recent.iter().enumerate().find_map(named)?;
        self.last = at;
        Some((volume, rest))
    }

    /// Parses a line of any spelling field by field, and finds its mistake.
    fn by_field(&mut self, line: &[u8], sink: &mut Sink) -> Seen {
        let (count, [time, host, disk, kind, offset, len, response]) = cut::<7>(line, b',');
        if count != 7 {
            return Err(columns(COLUMNS, count, line));
        }
        let time_ns = time_ns("time", time, TimeUnit::HundredNanos)?;
        let op = op("op", kind)?;
        let offset_bytes = number("offset", offset)?;
        let len_bytes = number("size", len)?;
        number("response time", response)?;
        let volume = sink.volumes.named(&[host, b"_", disk].concat())?;
        let prefix = [host, b",", disk, b","].concat();
        if self.recent.len() < RECENT && self.recent.iter().all(|(known, _)| *known != prefix) {
            self.recent.push((prefix, volume));
        }
        sink.access(time_ns, volume, op, offset_bytes, len_bytes)
    }
}
