//! Streams as bytes, in the form of Redis 7.0.

use super::encoder::Encoder;
use crate::value::{Stream, StreamEntry, StreamId};

/// Most entries and bytes of one listpack: Redis' own bounds.
const NODE_ENTRIES_MAX: usize = 100;
const NODE_BYTES_MAX: usize = 4096;
/// Flag of an entry with the fields of the first one.
const SAME_FIELDS: i64 = 2;

pub(super) fn write(out: &mut Encoder<'_>, stream: &Stream) {
    let nodes = nodes(&stream.entries);
    out.number(nodes.len() as u64);
    for node in nodes {
        let base = node[0].id;
        // Both are strings of their own; the ID is never an integer, and is not compressed.
        out.number(16);
        out.raw(&base.to_bytes());
        out.string(&pack(base, node));
    }
    out.number(stream.entries.len() as u64);
    out.id(stream.last_id);
    out.id(stream.entries.first().map_or(StreamId::default(), |first| first.id));
    out.id(stream.max_deleted_id);
    out.number(stream.entries_added);
    out.number(stream.groups.len() as u64);
    for group in &stream.groups {
        out.string(&group.name);
        out.id(group.last_id);
        out.number(group.entries_read.unwrap_or(u64::MAX));
        out.number(group.pending.len() as u64);
        for pending in &group.pending {
            out.raw(&pending.id.to_bytes());
            out.raw(&pending.delivered_ms.to_le_bytes());
            out.number(pending.deliveries);
        }
        let mut of_consumers = vec![Vec::new(); group.consumers.len()];
        group.pending.iter().for_each(|pending| of_consumers[pending.consumer].push(pending.id));
        out.number(group.consumers.len() as u64);
        for (consumer, own) in group.consumers.iter().zip(of_consumers) {
            out.string(&consumer.name);
            out.raw(&consumer.seen_ms.to_le_bytes());
            out.number(own.len() as u64);
            own.iter().for_each(|id| out.raw(&id.to_bytes()));
        }
    }
}

/// The entries in runs, each for one listpack.
fn nodes(entries: &[StreamEntry]) -> Vec<&[StreamEntry]> {
    let mut nodes = Vec::new();
    let (mut from, mut bytes) = (0, 0);
    for (at, entry) in entries.iter().enumerate() {
        let own: usize = entry.fields.iter().map(|string| string.len() + 3).sum();
        if at > from && (at - from == NODE_ENTRIES_MAX || bytes + own > NODE_BYTES_MAX) {
            nodes.push(&entries[from..at]);
            (from, bytes) = (at, 0);
        }
        bytes += own;
    }
    if from < entries.len() {
        nodes.push(&entries[from..]);
    }
    nodes
}

/// The listpack of a run of entries.
fn pack(base: StreamId, entries: &[StreamEntry]) -> Vec<u8> {
    let mut pack = Listpack::new();
    let names = || entries[0].fields.pairs().map(|(name, _)| name);
    pack.int(entries.len() as i64);
    pack.int(0);
    pack.int(names().len() as i64);
    names().for_each(|name| pack.bytes(name));
    pack.int(0);
    for entry in entries {
        let has_names = names().eq(entry.fields.pairs().map(|(name, _)| name));
        pack.int(if has_names { SAME_FIELDS } else { 0 });
        // Later IDs may have smaller numbers behind the dash: the difference has a sign.
        pack.int(entry.id.ms.wrapping_sub(base.ms) as i64);
        pack.int(entry.id.seq.wrapping_sub(base.seq) as i64);
        let count = entry.fields.len() as i64;
        if has_names {
            entry.fields.pairs().for_each(|(_, value)| pack.bytes(value));
            pack.int(count / 2 + 3);
        } else {
            pack.int(count / 2);
            entry.fields.iter().for_each(|string| pack.bytes(string));
            pack.int(count + 4);
        }
    }
    pack.end()
}

/// A listpack that is being written.
struct Listpack {
    out: Vec<u8>,
    count: usize,
}

impl Listpack {
    fn new() -> Self {
        Self { out: vec![0; 6], count: 0 }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let before = self.out.len();
        match bytes.len() {
            short @ ..64 => self.out.push(0x80 | short as u8),
            middle @ 64..4096 => self.out.extend([0xe0 | (middle >> 8) as u8, middle as u8]),
            long => {
                self.out.push(0xf0);
                self.out.extend_from_slice(&(long as u32).to_le_bytes());
            }
        }
        self.out.extend_from_slice(bytes);
        self.close(before);
    }

    fn int(&mut self, int: i64) {
        let before = self.out.len();
        match int {
            0..128 => self.out.push(int as u8),
            -4096..4096 => self.out.extend([0xc0 | (int >> 8 & 31) as u8, int as u8]),
            _ => {
                self.out.push(0xf4);
                self.out.extend_from_slice(&int.to_le_bytes());
            }
        }
        self.close(before);
    }

    /// Writes the length of the entry that began at `before` behind it.
    fn close(&mut self, before: usize) {
        let len = self.out.len() - before;
        let groups = (1..5).find(|groups| len < 1 << (7 * groups)).unwrap_or(5);
        for group in (0..groups).rev() {
            let more = if group + 1 < groups { 128 } else { 0 };
            self.out.push((len >> (7 * group)) as u8 & 127 | more);
        }
        self.count += 1;
    }

    fn end(mut self) -> Vec<u8> {
        self.out.push(0xff);
        let (len, count) = (self.out.len() as u32, self.count.min(0xffff) as u16);
        self.out[..4].copy_from_slice(&len.to_le_bytes());
        self.out[4..6].copy_from_slice(&count.to_le_bytes());
        self.out
    }
}
