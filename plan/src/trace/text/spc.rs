//! The ASCII traces of SNIA and the Storage Performance Council: `unit,block,bytes,op,seconds`,
//! perhaps with further columns.
//!
//! The size of a block is in the description that comes with a trace, not in the file. In the
//! published traces it is 512 B.

use super::super::TimeUnit;
use super::super::sink::{Seen, Sink};
use super::Parse;
use super::fields::{columns, cut, known_op, number, op, scaled, time_ns, whole};

pub(crate) struct Spc {
    pub(crate) unit: TimeUnit,
    pub(crate) block_bytes: u64,
}

/// Whether a line looks like one of the Storage Performance Council's format.
pub(crate) fn looks(line: &[u8]) -> bool {
    let (count, [unit, block, bytes, op, time]) = cut::<5>(line, b',');
    let are_numbers = [unit, block, bytes].into_iter().all(|field| whole(field).is_some());
    count >= 5
        && are_numbers
        && known_op(op).is_some()
        && time_ns("time", time, TimeUnit::Seconds).is_ok()
}

impl Parse for Spc {
    #[inline]
    fn line(&mut self, line: &[u8], sink: &mut Sink) -> Seen {
        let (count, [unit, block, bytes, kind, time]) = cut::<5>(line, b',');
        if count < 5 {
            return Err(columns("5 or more: unit,block,bytes,op,time", count, line));
        }
        let volume = sink.volumes.numbered(number("unit", unit)?)?;
        let offset_bytes =
            scaled("block", block, number("block", block)?, self.block_bytes, "bytes")?;
        let len_bytes = number("size", bytes)?;
        let op = op("op", kind)?;
        sink.access(time_ns("time", time, self.unit)?, volume, op, offset_bytes, len_bytes)
    }
}
