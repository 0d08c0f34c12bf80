//! What a naive user of a device may find after a power cut.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use super::{BLOCK, IMAGE};
use crate::device::{BLOCK_BYTES, Device};
use crate::file::{Direct, Engine, FileDevice, OpenMode};
use crate::sim::{SECTOR_BYTES, SimFiles};
use crate::sys::BlockBuf;

#[derive(Default)]
pub(super) struct Oracle {
    pub(super) is_created: bool,
    blocks: BTreeMap<u64, Block>,
    /// Blocks at the beginning that the file has for certain.
    certain_blocks: u64,
    last_byte: u8,
}

/// One block. Each write fills it with a byte of its own.
struct Block {
    /// The byte of the last completed write.
    newest: u8,
    /// Bytes that a sector may have after a power cut.
    allowed: Vec<u8>,
}

impl Oracle {
    /// A write of a new byte begins, which is returned.
    pub(super) fn attempt(&mut self, blocks: Range<u64>) -> u8 {
        self.last_byte += 1;
        for block in blocks {
            let block = self.blocks.entry(block).or_insert_with(|| Block::certain(0));
            block.allowed.push(self.last_byte);
        }
        self.last_byte
    }

    pub(super) fn completed(&mut self, blocks: Range<u64>, byte: u8) {
        self.blocks.range_mut(blocks).for_each(|(_, block)| block.newest = byte);
    }

    pub(super) fn durable(&mut self, blocks: Range<u64>, byte: u8) {
        self.certain_blocks = self.certain_blocks.max(blocks.end);
        self.blocks.range_mut(blocks).for_each(|(_, block)| *block = Block::certain(byte));
    }

    /// A device of this size has been flushed while `blocks` were being written with `byte`.
    pub(super) fn flushed(&mut self, capacity_bytes: u64, blocks: Range<u64>, byte: u8) {
        self.certain_blocks = capacity_bytes / BLOCK_BYTES;
        for (number, block) in &mut self.blocks {
            *block = Block::certain(block.newest);
            if blocks.contains(number) {
                block.allowed.push(byte);
            }
        }
    }

    /// Says what is missing in the files after a power cut.
    pub(super) fn check(&self, files: &SimFiles) -> Result<(), String> {
        let (path, mode) = (Path::new(IMAGE), OpenMode::Existing);
        let device = match FileDevice::open_in(files, path, mode, Engine::Pwrite, Direct::Off) {
            Ok(device) => device,
            Err(_) if !self.is_created => return Ok(()),
            Err(error) => return Err(format!("the image is gone: {error}")),
        };
        let found_blocks = device.capacity_bytes() / BLOCK_BYTES;
        if found_blocks < self.certain_blocks {
            return Err(format!("{found_blocks} blocks of {}", self.certain_blocks));
        }
        self.compare(&device, |block| &block.allowed)
    }

    /// Says what a device without a power cut reads wrongly.
    pub(super) fn check_reads(&self, device: &impl Device) -> Result<(), String> {
        self.compare(device, |block| std::slice::from_ref(&block.newest))
    }

    /// Compares each sector of a device with the bytes that it may have.
    fn compare(
        &self,
        device: &impl Device,
        allowed: impl Fn(&Block) -> &[u8],
    ) -> Result<(), String> {
        let mut buf = BlockBuf::zeroed(BLOCK);
        for (number, block) in self.blocks.range(..device.capacity_bytes() / BLOCK_BYTES) {
            let read = device.read_at(number * BLOCK_BYTES, &mut buf);
            read.map_err(|error| format!("block {number}: {error}"))?;
            let allowed = allowed(block);
            for sector in buf.chunks(SECTOR_BYTES) {
                let byte = sector[0];
                let is_whole = sector.iter().all(|other| *other == byte);
                if !is_whole || !allowed.contains(&byte) {
                    return Err(format!("block {number} has {byte}, and not one of {allowed:?}"));
                }
            }
        }
        Ok(())
    }
}

impl Block {
    fn certain(byte: u8) -> Self {
        Self { newest: byte, allowed: vec![byte] }
    }
}
