//! The ASCII traces of DiskSim and SSDSim: `time device sector sectors op`, where 0 writes and 1
//! reads. Sectors have 512 B unless the user says otherwise.
//!
//! The unit of time is that of the simulator, or of the program that wrote the file. The file does
//! not name the unit, so the user must.

use super::super::sink::{Seen, Sink};
use super::super::{Fault, Op, TimeUnit};
use super::Parse;
use super::fields::{columns, is_time, number, scaled, shown, time_ns, whole, words};

pub(crate) struct DiskSim {
    pub(crate) unit: TimeUnit,
    pub(crate) sector_bytes: u64,
}

/// Whether a line looks like one of DiskSim's.
pub(crate) fn looks(line: &[u8]) -> bool {
    let (count, [time, device, sector, sectors, op]) = words::<5>(line);
    let is_time = is_time(time);
    let are_numbers = [device, sector, sectors].into_iter().all(|field| whole(field).is_some());
    count == 5 && is_time && are_numbers && matches!(op, b"0" | b"1")
}

/// The time of a line, as it stands in the file.
pub(crate) fn time(line: &[u8]) -> &[u8] {
    words::<1>(line).1[0]
}

impl Parse for DiskSim {
    #[inline]
    fn line(&mut self, line: &[u8], sink: &mut Sink) -> Seen {
        let (count, [time, device, sector, sectors, op]) = words::<5>(line);
        if count != 5 {
            return Err(columns("5: time device sector sectors op", count, line));
        }
        let time_ns = time_ns("time", time, self.unit)?;
        let device = number("device", device)?;
        let offset_bytes =
            scaled("sector", sector, number("sector", sector)?, self.sector_bytes, "bytes")?;
        let len_bytes =
            scaled("sectors", sectors, number("sectors", sectors)?, self.sector_bytes, "bytes")?;
        let op = match op {
            b"0" => Op::Write,
            b"1" => Op::Read,
            _ => return Err(odd_op(op)),
        };
        let volume = sink.volumes.numbered(device)?;
        sink.access(time_ns, volume, op, offset_bytes, len_bytes)
    }
}

#[cold]
fn odd_op(op: &[u8]) -> Box<Fault> {
    Box::new(Fault::Value { column: "op", value: shown(op), expected: "0 (write) or 1 (read)" })
}
