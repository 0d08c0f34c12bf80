//! MSR Cambridge CSV: `time,host,disk,op,offset,bytes,response time`, without a header.
//!
//! Times are Windows's, ticks of 100 ns since 1601, which are 64 bits of nanoseconds until the year 2185. A volume is named
//! `host_disk`, as the files of that collection are. Most lines take the fast way, which knows exactly one spelling and the
//! last line's volume; any other line goes field by field, which also finds out what is wrong with it.

use super::super::sink::{Seen, Sink};
use super::super::{Op, TimeUnit};
use super::Parse;
use super::fields::{columns, cut, digits, known_op, number, op, time_ns, whole};

const COLUMNS: &str = "7: time,host,disk,op,offset,bytes,response time";
const TICK_NS: u64 = 100;

#[derive(Debug, Default)]
pub(crate) struct Msr {
    /// `host,disk,` of the last line, and the volume that it is.
    last: Vec<u8>,
    volume: u32,
}

/// Whether a line looks like one of these.
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
            Some((time_ns, op, offset_bytes, len_bytes)) => {
                sink.access(time_ns, self.volume, op, offset_bytes, len_bytes)
            }
            None => self.by_field(line, sink),
        }
    }
}

impl Msr {
    #[inline]
    fn fast(&self, line: &[u8]) -> Option<(u64, Op, u64, u64)> {
        let mut at = 0;
        let time_ns = digits(line, &mut at)?.checked_mul(TICK_NS)?;
        let rest = line[at..].strip_prefix(b",")?.strip_prefix(self.last.as_slice())?;
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
        (!self.last.is_empty()).then_some((time_ns, op, offset_bytes, len_bytes))
    }

    #[cold]
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
        let mut name = host.to_vec();
        name.push(b'_');
        name.extend_from_slice(disk);
        self.volume = sink.volumes.named(&name)?;
        self.last.clear();
        for field in [host, disk] {
            self.last.extend_from_slice(field);
            self.last.push(b',');
        }
        sink.access(time_ns, self.volume, op, offset_bytes, len_bytes)
    }
}
