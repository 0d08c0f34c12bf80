//! A target of bare memory: records in an array in a region, without an index or a log of its own.
//!
//! In trap mode an update is plain stores into memory that is durable, as for Viyojit's users. In
//! barrier mode it announces the record first. An update cut off by a crash may be half done, and a
//! program that needs more must build it itself: this target measures the memory alone.

use std::hint::black_box;
use std::time::Instant;

use perdura_region::{BLOCK_BYTES, LaneId, Region, TrappedMemory};

use super::store::{StoreOptions, new_region, touch};
use super::{Figures, FinalFlush, Key, Outcome, Session, Target, TargetError, Write};
use crate::machine::process_cpu_ns;
use crate::workload::Layout;

const NAME: &str = "array";

/// Records in an array.
pub struct ArrayTarget {
    region: Region,
    layout: Layout,
    record_bytes: u64,
    flush_threads: usize,
    _dir: tempfile::TempDir,
}

impl ArrayTarget {
    /// Makes an array in a new image.
    ///
    /// # Errors
    /// The device or the region refuses, or a record is larger than 64 KiB.
    pub fn create(options: &StoreOptions, layout: Layout) -> Result<Self, TargetError> {
        let record_bytes = record_bytes(&layout);
        if record_bytes > BLOCK_BYTES {
            return Err(TargetError::Unsupported {
                what: "records larger than 64 KiB in an array",
            });
        }
        let (region, dir) = new_region(options)?;
        let (blocks, lanes) = (region.len_bytes() / BLOCK_BYTES, u64::from(region.lanes()));
        if region.trapped().is_none() {
            (0..blocks).for_each(|block| region.assign_block(block, lane_of(block, lanes)));
        }
        let flush_threads = options.flush_threads;
        Ok(Self { region, layout, record_bytes, flush_threads, _dir: dir })
    }

    /// Bytes of memory that `records` take.
    pub fn memory_bytes(layout: &Layout, records: u64) -> u64 {
        let per_block = (BLOCK_BYTES / record_bytes(layout)).max(1);
        records.div_ceil(per_block) * BLOCK_BYTES
    }

    /// Offset of a record. No record crosses a block's end, for a block belongs to one lane.
    fn place(&self, number: u64) -> Result<u64, TargetError> {
        let per_block = BLOCK_BYTES / self.record_bytes;
        let at = number / per_block * BLOCK_BYTES + number % per_block * self.record_bytes;
        if at + self.record_bytes > self.region.len_bytes() {
            return Err(TargetError::Engine {
                engine: NAME,
                message: format!("no room for record {number}; give it more memory"),
            });
        }
        Ok(at)
    }
}

fn record_bytes(layout: &Layout) -> u64 {
    ((layout.fields * layout.field_bytes) as u64).next_multiple_of(8).max(8)
}

fn lane_of(block: u64, lanes: u64) -> LaneId {
    LaneId((block % lanes) as u16)
}

impl Target for ArrayTarget {
    fn describe(&self) -> String {
        format!(
            "records in an array; {}; {}; {}",
            self.region.describe_tracking(),
            self.region.describe_device(),
            self.region.describe_memory()
        )
    }

    fn session(&self, _pipeline: usize) -> Result<Box<dyn Session + '_>, TargetError> {
        let buffer = vec![0; self.record_bytes as usize];
        Ok(Box::new(ArraySession { target: self, trapped: self.region.trapped(), buffer }))
    }

    fn figures(&self) -> Result<Figures, TargetError> {
        Ok(Figures::of_region(&self.region))
    }

    fn cpu_ns(&self) -> Option<u64> {
        Some(process_cpu_ns())
    }

    fn set_budget(&self, bytes: u64) -> Result<(), TargetError> {
        Ok(self.region.set_budget(bytes)?)
    }

    fn finish(&mut self) -> Result<Option<FinalFlush>, TargetError> {
        let began = Instant::now();
        let report = self.region.close(self.flush_threads)?;
        let elapsed_ns = began.elapsed().as_nanos() as u64;
        Ok(Some(FinalFlush { device_bytes: report.device_bytes, elapsed_ns }))
    }
}

struct ArraySession<'t> {
    target: &'t ArrayTarget,
    trapped: Option<TrappedMemory<'t>>,
    buffer: Vec<u8>,
}

impl ArraySession<'_> {
    fn store(&self, at: u64, bytes: &[u8]) -> Result<(), TargetError> {
        if let Some(memory) = &self.trapped {
            memory.write(at, bytes);
            return Ok(());
        }
        let region = &self.target.region;
        let lane = lane_of(at / BLOCK_BYTES, u64::from(region.lanes()));
        let mut credit = 0;
        loop {
            let mut guard = region.lock_with(lane, credit);
            let need = match guard.write(at, bytes) {
                Ok(()) => return Ok(()),
                Err(need) => need,
            };
            drop(guard);
            credit = region.satisfy(need)?;
        }
    }
}

impl Session for ArraySession<'_> {
    fn insert(&mut self, key: Key<'_>, values: &[&[u8]]) -> Result<Outcome, TargetError> {
        self.update(key, Write { first_field: 0, values })
    }

    fn read(&mut self, key: Key<'_>) -> Result<Outcome, TargetError> {
        let at = self.target.place(key.number)?;
        if let Some(memory) = &self.trapped {
            memory.read(at, &mut self.buffer);
            black_box(touch(&self.buffer));
            return Ok(Outcome::Done);
        }
        let region = &self.target.region;
        let guard = region.lock(lane_of(at / BLOCK_BYTES, u64::from(region.lanes())));
        black_box(touch(guard.bytes(at, self.buffer.len())));
        Ok(Outcome::Done)
    }

    fn update(&mut self, key: Key<'_>, write: Write<'_>) -> Result<Outcome, TargetError> {
        let field_bytes = self.target.layout.field_bytes as u64;
        let at = self.target.place(key.number)?;
        for (field, value) in write.fields().zip(write.values) {
            self.store(at + field as u64 * field_bytes, value)?;
        }
        Ok(Outcome::Done)
    }
}
