//! Reads a `ptrace` file block by block. No block is used before its checksum was compared.

use zerocopy::{FromBytes, IntoBytes};

use super::super::error::Damage;
use super::super::input::Input;
use super::super::sink::Sink;
use super::super::source::Source;
use super::super::text::fields::shown;
use super::super::{Fault, Looks, Op, Place, TraceError};
use super::layout::{
    BlockHeader, Header, KIND_END, KIND_LOOKS, KIND_RECORDS, KIND_VOLUMES, MAGIC, NAME_BYTES_MAX,
    PAYLOAD_BYTES_MAX, RawLooks, RawRecord, VERSION, VERSION_LOOKS,
};

pub(crate) struct Native {
    input: Input,
    version: u32,
    /// The place at which the next block starts.
    at_bytes: u64,
    /// The place at which the payload that is held starts.
    payload_at: u64,
    payload: Vec<u8>,
    /// The number of records in the payload, and how many of them were taken.
    records: usize,
    taken: usize,
    total: u64,
}

impl Native {
    pub(crate) fn open(mut input: Input, file: &str) -> Result<Native, TraceError> {
        let mut header = Header::new(VERSION);
        let bytes = input.read_full(header.as_mut_bytes())?;
        let damage = if bytes < size_of::<Header>() {
            Some(Damage::Cut { records: 0 })
        } else if header.magic != MAGIC {
            Some(Damage::Magic { found: shown(&header.magic) })
        } else if header.checksum.get() != header.sum() {
            Some(Damage::Checksum { found: header.sum(), expected: header.checksum.get() })
        } else if !(VERSION..=VERSION_LOOKS).contains(&header.version.get()) {
            Some(Damage::Version { found: header.version.get(), known: VERSION_LOOKS })
        } else if header.record_bytes.get() as usize != size_of::<RawRecord>() {
            let found = header.record_bytes.get().to_string();
            Some(Damage::Field { field: "size of a record", found, expected: "32 bytes" })
        } else if header.zero.get() != 0 {
            let found = header.zero.get().to_string();
            Some(Damage::Field { field: "reserved word", found, expected: "0" })
        } else {
            None
        };
        match damage {
            Some(damage) => {
                Err(TraceError::Damaged { file: file.to_owned(), place: Place::Byte(0), damage })
            }
            None => Ok(Native {
                input,
                version: header.version.get(),
                at_bytes: size_of::<Header>() as u64,
                payload_at: 0,
                payload: Vec::new(),
                records: 0,
                taken: 0,
                total: 0,
            }),
        }
    }

    /// Reads and checks the next block; false behind the last one.
    fn next_block(&mut self, sink: &mut Sink) -> Result<bool, TraceError> {
        let place = Place::Byte(self.at_bytes);
        let damaged = |damage| TraceError::Damaged { file: sink.file().to_owned(), place, damage };
        let mut header = BlockHeader::new(0, 0, &[]);
        let mut got = self.input.read_full(header.as_mut_bytes())?;
        let payload_bytes = header.payload_bytes.get() as usize;
        if got == size_of::<BlockHeader>() {
            if payload_bytes > PAYLOAD_BYTES_MAX {
                return Err(damaged(Damage::Block));
            }
            self.payload.resize(payload_bytes, 0);
            got += self.input.read_full(&mut self.payload)?;
        }
        if got < size_of::<BlockHeader>() + payload_bytes {
            sink.bad(place, Box::new(Fault::Unfinished { records: self.total }))?;
            return Ok(false);
        }
        if header.checksum.get() != header.sum(&self.payload) {
            return Err(damaged(Damage::Checksum {
                found: header.sum(&self.payload),
                expected: header.checksum.get(),
            }));
        }
        if header.zero.get() != 0 {
            let (field, found) = ("reserved word", header.zero.get().to_string());
            return Err(damaged(Damage::Field { field, found, expected: "0" }));
        }
        self.payload_at = self.at_bytes + size_of::<BlockHeader>() as u64;
        self.at_bytes = self.payload_at + payload_bytes as u64;
        (self.records, self.taken) = (0, 0);
        let items = header.items.get() as usize;
        let is_sound = match header.kind.get() {
            KIND_VOLUMES => self.name_volumes(items, sink),
            KIND_RECORDS => {
                self.records = items;
                self.total += items as u64;
                items * size_of::<RawRecord>() == payload_bytes
            }
            KIND_LOOKS => self.version == VERSION_LOOKS && items == 1 && self.take_looks(sink),
            KIND_END => {
                let counted = u64::read_from_bytes(&self.payload).map(u64::from_le);
                return match counted {
                    Ok(records) if records == self.total && self.input.read(&mut [0])? == 0 => {
                        Ok(false)
                    }
                    _ => Err(damaged(Damage::End { records: self.total })),
                };
            }
            kind => {
                let (field, expected) = ("kind of block", "1, 2, 3 or 4");
                return Err(damaged(Damage::Field { field, found: kind.to_string(), expected }));
            }
        };
        match is_sound {
            true => Ok(true),
            false => Err(TraceError::Damaged {
                file: sink.file().to_owned(),
                place,
                damage: Damage::Block,
            }),
        }
    }

    /// Whether the payload is a sound description of the looks. The last such block counts.
    fn take_looks(&self, sink: &mut Sink) -> bool {
        let looks = RawLooks::read_from_bytes(&self.payload).map(Looks::from).ok();
        sink.looks = looks.filter(|looks| looks.every_ns > 0);
        sink.looks.is_some()
    }

    /// Whether the payload holds that many names, all of them new.
    fn name_volumes(&self, items: usize, sink: &mut Sink) -> bool {
        let mut rest = self.payload.as_slice();
        for _ in 0..items {
            let Some((len, names)) = rest.split_first_chunk::<2>() else { return false };
            let len = usize::from(u16::from_le_bytes(*len));
            let Some((name, behind)) = names.split_at_checked(len) else { return false };
            let next = sink.volumes.names().len() as u32;
            if len > NAME_BYTES_MAX || sink.volumes.named(name).ok() != Some(next) {
                return false;
            }
            rest = behind;
        }
        rest.is_empty()
    }

    /// Gives records of the block that is held, as many as the batch takes.
    fn take(&mut self, sink: &mut Sink) -> Result<(), TraceError> {
        let (records, _) = <[RawRecord]>::ref_from_prefix_with_elems(&self.payload, self.records)
            .map_or((&[][..], &[][..]), |found| found);
        let volumes = sink.volumes.names().len() as u32;
        for raw in &records[self.taken..] {
            if sink.is_full() {
                return Ok(());
            }
            let op = match raw.op.get() {
                0 => Some(Op::Read),
                1 => Some(Op::Write),
                _ => None,
            };
            let seen = match op {
                Some(op) if raw.volume.get() < volumes => {
                    let (offset_bytes, len_bytes) = (raw.offset_bytes.get(), raw.len_bytes.get());
                    sink.access(raw.time_ns.get(), raw.volume.get(), op, offset_bytes, len_bytes)
                }
                Some(_) => Err(odd("volume", raw.volume.get(), "a volume that was named before")),
                None => Err(odd("op", raw.op.get(), "0 or 1")),
            };
            if let Err(fault) = seen {
                let at_bytes = self.payload_at + (self.taken * size_of::<RawRecord>()) as u64;
                sink.bad(Place::Byte(at_bytes), fault)?;
            }
            self.taken += 1;
        }
        Ok(())
    }
}

#[cold]
fn odd(column: &'static str, value: u32, expected: &'static str) -> Box<Fault> {
    Box::new(Fault::Value { column, value: value.to_string(), expected })
}

impl Source for Native {
    fn fill(&mut self, sink: &mut Sink) -> Result<bool, TraceError> {
        while !sink.is_full() {
            if self.taken < self.records {
                self.take(sink)?;
            } else if !self.next_block(sink)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
