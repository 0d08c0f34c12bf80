//! Sparse content of a simulated device: bytes that were never written read as zeros. A copy of the
//! whole is cheap, because blocks, and tables of blocks, are shared until one side writes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::device::BLOCK_BYTES;

#[derive(Clone, Default)]
pub(super) struct Blocks {
    tables: BTreeMap<u64, Arc<Table>>,
}

type Block = [u8; BLOCK_BYTES as usize];
type Table = [Option<Arc<Block>>; TABLE_BLOCKS];

impl Blocks {
    pub(super) fn read(&self, offset_bytes: u64, buf: &mut [u8]) {
        for (number, within, part) in pieces(offset_bytes, buf.len()) {
            let target = &mut buf[part.clone()];
            match self.block(number) {
                Some(block) => target.copy_from_slice(&block[within..within + part.len()]),
                None => target.fill(0),
            }
        }
    }

    pub(super) fn write(&mut self, offset_bytes: u64, bytes: &[u8]) {
        for (number, within, part) in pieces(offset_bytes, bytes.len()) {
            let (table, at) = place(number);
            let part = &bytes[part];
            if *part == ZEROS {
                if self.block(number).is_some() {
                    Arc::make_mut(self.tables.entry(table).or_default())[at] = None;
                }
                continue;
            }
            let table = Arc::make_mut(self.tables.entry(table).or_default());
            match &mut table[at] {
                Some(block) if part.len() < block.len() || Arc::strong_count(block) == 1 => {
                    Arc::make_mut(block)[within..within + part.len()].copy_from_slice(part);
                }
                // A shared block that is replaced as a whole need not be copied first.
                block => {
                    let mut new = ZEROS;
                    new[within..within + part.len()].copy_from_slice(part);
                    *block = Some(Arc::new(new));
                }
            }
        }
    }

    pub(super) fn flip_bit(&mut self, offset_bytes: u64, bit: u8) {
        let mut byte = [0];
        self.read(offset_bytes, &mut byte);
        self.write(offset_bytes, &[byte[0] ^ (1 << bit)]);
    }

    fn block(&self, number: u64) -> Option<&Block> {
        let (table, at) = place(number);
        self.tables.get(&table)?[at].as_deref()
    }
}

/// The number of a block's table, and the block's place in it.
fn place(number: u64) -> (u64, usize) {
    (number / TABLE_BLOCKS as u64, number as usize % TABLE_BLOCKS)
}

/// Cuts a range at block borders: block number, offset within the block, range within the buffer.
fn pieces(
    offset_bytes: u64,
    len_bytes: usize,
) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len_bytes {
            return None;
        }
        let at_bytes = offset_bytes + done as u64;
        let within = (at_bytes % BLOCK_BYTES) as usize;
        let end = len_bytes.min(done + BLOCK_BYTES as usize - within);
        let part = done..end;
        done = end;
        Some((at_bytes / BLOCK_BYTES, within, part))
    })
}

const ZEROS: Block = [0; BLOCK_BYTES as usize];
/// Blocks of a table.
const TABLE_BLOCKS: usize = 32;
