//! The block traces of cloud providers: tables of five columns without a header.

use super::super::sink::{Seen, Sink};
use super::super::{Fault, Op, TimeUnit};
use super::Parse;
use super::fields::{columns, cut, known_op, number, op, scaled, shown, time_ns, whole};

/// Alibaba's lines are `device,op,offset,bytes,time`, the time in microseconds.
pub(crate) struct Alibaba {
    pub(crate) unit: TimeUnit,
}

/// Tencent: `time,sector,sectors,op,volume`, the time in seconds, 0 reads and 1 writes.
pub(crate) struct Tencent {
    pub(crate) unit: TimeUnit,
    pub(crate) sector_bytes: u64,
}

pub(crate) fn looks_alibaba(line: &[u8]) -> bool {
    let (count, [device, op, offset, bytes, time]) = cut::<5>(line, b',');
    let are_numbers = [device, offset, bytes, time].into_iter().all(|field| whole(field).is_some());
    count == 5 && are_numbers && known_op(op).is_some()
}

pub(crate) fn looks_tencent(line: &[u8]) -> bool {
    let (count, [time, sector, sectors, op, volume]) = cut::<5>(line, b',');
    let are_numbers =
        [time, sector, sectors, volume].into_iter().all(|field| whole(field).is_some());
    count == 5 && are_numbers && matches!(op, b"0" | b"1")
}

impl Parse for Alibaba {
    #[inline]
    fn line(&mut self, line: &[u8], sink: &mut Sink) -> Seen {
        let (count, [device, kind, offset, bytes, time]) = cut::<5>(line, b',');
        if count != 5 {
            return Err(columns("5: device,op,offset,bytes,time", count, line));
        }
        let volume = sink.volumes.numbered(number("device", device)?)?;
        let op = op("op", kind)?;
        let offset_bytes = number("offset", offset)?;
        let len_bytes = number("size", bytes)?;
        sink.access(time_ns("time", time, self.unit)?, volume, op, offset_bytes, len_bytes)
    }
}

impl Parse for Tencent {
    #[inline]
    fn line(&mut self, line: &[u8], sink: &mut Sink) -> Seen {
        let (count, [time, sector, sectors, op, volume]) = cut::<5>(line, b',');
        if count != 5 {
            return Err(columns("5: time,sector,sectors,op,volume", count, line));
        }
        let time_ns = time_ns("time", time, self.unit)?;
        let offset_bytes =
            scaled("sector", sector, number("sector", sector)?, self.sector_bytes, "bytes")?;
        let len_bytes =
            scaled("sectors", sectors, number("sectors", sectors)?, self.sector_bytes, "bytes")?;
        let op = match op {
            b"0" => Op::Read,
            b"1" => Op::Write,
            _ => return Err(odd_op(op)),
        };
        let volume = sink.volumes.numbered(number("volume", volume)?)?;
        sink.access(time_ns, volume, op, offset_bytes, len_bytes)
    }
}

#[cold]
fn odd_op(op: &[u8]) -> Box<Fault> {
    Box::new(Fault::Value { column: "op", value: shown(op), expected: "0 (read) or 1 (write)" })
}
