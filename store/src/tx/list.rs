//! Operations on lists, which are packed in one record while small, and have chunks above.
//!
//! Every way by which a key that had no list gets one ends in [`Tx::put_packed_list`] or in
//! [`Tx::put_large_list`]; a key that stays a list never becomes empty. So these two, and the
//! commit in `Tx::end`, are where a key is known to have got its first element.

mod ends;
mod inside;

use perdura_slots::{Heat, LaneId};

use crate::api::{Expiry, Key, Kind};
use crate::building::{IN_LIST_BYTES, Whole, weight};
use crate::error::{TxError, WrongType};
use crate::list::chunk::{
    CHUNK_BYTES_MAX, Chunk, HEAD_BYTES, capacity_for, part_header, with_element,
};
use crate::list::index::{self, Item as IndexItem};
use crate::list::{
    APPENDED_BYTES_MAX, APPENDED_LEN_MAX, Form, List, PACKED_BYTES_MAX, REPACKED_BYTES_MAX, Root,
};
use crate::listpack::{self, INLINE_BYTES_MAX, Item};
use crate::record::RecordKind;
use crate::store::Place;
use crate::tx::records::padding;
use crate::tx::{Tx, check_key, check_value};

/// A list as it is stored, copied where it is small.
enum Stored {
    Packed(Vec<u8>),
    Large(Root),
}

impl Tx<'_> {
    /// The key's list; `None` if there is no such key.
    ///
    /// # Errors
    /// The key holds another kind of value.
    pub fn list(&self, key: Key<'_>) -> Result<Option<List<'_>>, TxError> {
        match self.get(key) {
            Some(entry) if entry.kind != Kind::List => Err(WrongType.into()),
            other => Ok(other.and_then(|entry| entry.list())),
        }
    }

    /// Makes the key a list of these elements, whatever the key held. Without elements the key is
    /// removed.
    ///
    /// # Errors
    /// An element is too long; the attempt is over.
    pub fn list_put<'e>(
        &mut self,
        key: Key<'_>,
        elements: impl Iterator<Item = &'e [u8]> + Clone,
        expiry: Expiry,
    ) -> Result<(), TxError> {
        check_key(key.bytes)?;
        elements.clone().try_for_each(|element| check_value(element.len() as u64))?;
        let place = self.place(key);
        if elements.clone().next().is_none() {
            return self.delete(key).map(drop);
        }
        if let Some(packed) = packed_with(&[], elements.clone(), false) {
            return self.put_packed_list(&place, key, &packed, expiry);
        }
        let weight = weight(elements.clone().map(<[u8]>::len), IN_LIST_BYTES);
        let whole = |_: &Self| Ok(Whole::List(elements.clone().map(<[u8]>::to_vec).collect()));
        if self.put_built(&place, key, weight, whole, expiry)? {
            return Ok(());
        }
        let chunks = self.make_chunks(place.lane, elements)?;
        self.put_chunks(&place, key, chunks, expiry)
    }

    /// Copies a large list, chunk by chunk.
    pub(crate) fn copy_list(
        &mut self,
        (from, source): (Key<'_>, &Place),
        root: &Root,
        target: &Place,
        to: Key<'_>,
        expiry: Expiry,
    ) -> Result<bool, TxError> {
        let weight = root.entry_bytes(self.op.lane(source.lane));
        let whole = |tx: &Self| {
            let mut elements = Vec::new();
            if let Some(list) = tx.list(from)? {
                list.for_each(0..u64::MAX, false, &mut |element| elements.push(element.to_vec()));
            }
            Ok(Whole::List(elements))
        };
        if self.put_built(target, to, weight, whole, expiry)? {
            return Ok(true);
        }
        let mut chunks = Vec::new();
        let mut next = Some(root.seek(self.op.lane(source.lane), 0));
        while let Some(spot) = next {
            let lane = self.op.lane(source.lane);
            next = root.next(lane, &spot, false);
            let chunk = spot.chunk;
            let mut entries = chunk.entries(lane).to_vec();
            if listpack::count(&entries) != Some((chunk.count, chunk.parts)) {
                chunk.damaged(lane).unwind();
            }
            if chunk.parts > 0 {
                let elements = elements_of(&entries, |item, f| with_element(lane, item, f));
                entries.clear();
                for element in elements {
                    self.item_of(target.lane, &element)?.push(&mut entries);
                }
            }
            let (count, parts) = (chunk.count, chunk.parts);
            let child = self.write_chunk(target.lane, &entries, count, parts, 0)?;
            chunks.push(IndexItem { child, count });
        }
        self.put_chunks(target, to, chunks, expiry)?;
        Ok(true)
    }

    fn list_stored(&self, key: Key<'_>) -> Result<Option<Stored>, TxError> {
        Ok(self.list(key)?.map(|list| match list.form() {
            Form::Packed(packed) => Stored::Packed(packed.to_vec()),
            Form::Large(root) => Stored::Large(root),
        }))
    }

    /// Makes the key a list with these packed elements, of which there is at least one.
    fn put_packed_list(
        &mut self,
        place: &Place,
        key: Key<'_>,
        packed: &[u8],
        expiry: Expiry,
    ) -> Result<(), TxError> {
        self.put_record(place, key, RecordKind::PackedList, &[packed], expiry, 0)
    }

    /// Makes the key a list of what is left of packed elements, of which there is at least one. A
    /// list that does not only grow leaves its record earlier than one that does.
    fn put_rest(&mut self, place: &Place, key: Key<'_>, packed: &[u8]) -> Result<(), TxError> {
        if packed.len() <= PACKED_BYTES_MAX {
            return self.put_packed_list(place, key, packed, Expiry::Keep);
        }
        let lane = self.op.lane(place.lane);
        let elements = elements_of(packed, |item, f| with_element(lane, item, f));
        let chunks = self.make_chunks(place.lane, elements.iter().map(Vec::as_slice))?;
        self.put_chunks(place, key, chunks, Expiry::Keep)
    }

    /// Makes the key a list of these chunks, of which there is at least one.
    fn put_chunks(
        &mut self,
        place: &Place,
        key: Key<'_>,
        mut chunks: Vec<IndexItem>,
        expiry: Expiry,
    ) -> Result<(), TxError> {
        let head = chunks.remove(0).child;
        let tail = chunks.pop().map_or(0, |last| last.child);
        let middle = chunks.iter().map(|item| item.count).sum();
        let top = index::build(&mut self.op, place.lane, chunks).map_err(|stop| self.stop(stop))?;
        self.put_large_list(place, key, &Root { at: 0, head, tail, top, middle }, expiry)
    }

    /// Makes the key a list with a new root.
    fn put_large_list(
        &mut self,
        place: &Place,
        key: Key<'_>,
        root: &Root,
        expiry: Expiry,
    ) -> Result<(), TxError> {
        let value = [padding(key), &root.encode()[..]];
        self.put_record(place, key, RecordKind::LargeList, &value, expiry, 0)
    }

    /// Stores the words of a root that have changed.
    fn save_root(&mut self, lane: LaneId, before: &Root, root: &Root) -> Result<(), TxError> {
        if before == root {
            return Ok(());
        }
        let (old, new) = (before.encode(), root.encode());
        let Some(from) = (0..new.len()).step_by(8).find(|at| old[*at..][..8] != new[*at..][..8])
        else {
            return Ok(());
        };
        let to = (0..new.len()).step_by(8).rfind(|at| old[*at..][..8] != new[*at..][..8]);
        let to = to.map_or(from, |last| last + 8);
        self.change(lane, root.at + from as u64, &new[from..to])
    }

    /// Changes bytes that references lead to.
    fn change(&mut self, lane: LaneId, at: u64, bytes: &[u8]) -> Result<(), TxError> {
        self.op.overwrite(lane, at, bytes).map_err(|stop| self.stop(stop))
    }

    /// The item of an element, which gets a record of its own if it is too long for a chunk.
    fn item_of<'e>(&mut self, lane: LaneId, element: &'e [u8]) -> Result<Item<'e>, TxError> {
        if element.len() <= INLINE_BYTES_MAX {
            return Ok(Item::of(element));
        }
        let header = part_header(element.len() as u64);
        self.write(lane, header, &[], &[element], 0, Heat::COLD).map(Item::Part)
    }

    /// Writes a chunk with room for `slack_bytes` behind its entries, to which no reference leads
    /// yet.
    fn write_chunk(
        &mut self,
        lane: LaneId,
        entries: &[u8],
        count: u64,
        parts: u64,
        slack_bytes: usize,
    ) -> Result<u64, TxError> {
        let end = HEAD_BYTES + entries.len();
        assert!(end <= CHUNK_BYTES_MAX, "a chunk of {end} bytes");
        let bounds = Chunk { at: 0, start: HEAD_BYTES, end, count, parts }.bounds();
        let header = part_header((end - 8) as u64);
        let slack_bytes = slack_bytes.min(CHUNK_BYTES_MAX - end) as u64;
        self.write(lane, header, &[], &[&bounds, entries], slack_bytes, Heat::COLD)
    }

    /// Writes full chunks of these elements, the last one but as full as it gets.
    fn make_chunks<'e>(
        &mut self,
        lane: LaneId,
        elements: impl Iterator<Item = &'e [u8]>,
    ) -> Result<Vec<IndexItem>, TxError> {
        let (mut chunks, mut entries) = (Vec::new(), Vec::new());
        let (mut count, mut parts, mut bytes_max) = (0, 0, CHUNK_BYTES_MAX);
        // Most elements are as long as the one before.
        let (mut last_len, mut capacity) = (0, CHUNK_BYTES_MAX);
        for element in elements {
            let item = self.item_of(lane, element)?;
            if item.len() != last_len {
                (last_len, capacity) = (item.len(), capacity_for(item.len(), CHUNK_BYTES_MAX));
            }
            let fitting = capacity.min(bytes_max);
            if count > 0 && HEAD_BYTES + entries.len() + item.len() > fitting {
                let child = self.write_chunk(lane, &entries, count, parts, 0)?;
                chunks.push(IndexItem { child, count });
                entries.clear();
                (count, parts, bytes_max) = (0, 0, CHUNK_BYTES_MAX);
            }
            item.push(&mut entries);
            count += 1;
            parts += u64::from(matches!(item, Item::Part(_)));
            bytes_max = bytes_max.min(capacity);
        }
        if count > 0 {
            let child = self.write_chunk(lane, &entries, count, parts, 0)?;
            chunks.push(IndexItem { child, count });
        }
        Ok(chunks)
    }

    /// Frees a chunk on commit, and the elements with records of their own among its entries.
    fn free_chunk(&mut self, lane: LaneId, chunk: &Chunk) {
        let lane = self.op.lane(lane);
        let parts = chunk.parts_in(lane, chunk.entries(lane));
        parts.into_iter().for_each(|part| self.op.free(part));
        self.op.free(chunk.at);
    }

    /// Packs a large list that has become small.
    fn repack(&mut self, place: &Place, key: Key<'_>, root: &Root) -> Result<(), TxError> {
        if root.top != 0 {
            return Ok(());
        }
        let lane = self.op.lane(place.lane);
        let ends = [root.head, root.tail].into_iter().filter(|at| *at != 0);
        let chunks: [Option<Chunk>; 2] = {
            let mut loaded = ends.map(|at| Chunk::load(lane, at));
            [loaded.next(), loaded.next()]
        };
        let chunks = || chunks.iter().flatten();
        let bytes = chunks().map(|chunk| chunk.len()).sum::<usize>();
        if bytes > REPACKED_BYTES_MAX || chunks().any(|chunk| chunk.parts > 0) {
            return Ok(());
        }
        let packed: Vec<u8> = chunks().flat_map(|chunk| chunk.entries(lane)).copied().collect();
        self.put_packed_list(place, key, &packed, Expiry::Keep)
    }
}

/// The packed list with these elements behind, or with each before the ones so far. `None` if it
/// would be too large to be packed.
fn packed_with<'e>(
    packed: &[u8],
    elements: impl Iterator<Item = &'e [u8]> + Clone,
    is_front: bool,
) -> Option<Vec<u8>> {
    let bytes_max = if is_front { PACKED_BYTES_MAX } else { APPENDED_BYTES_MAX };
    let (mut bytes, mut new) = (packed.len(), 0);
    for element in elements.clone() {
        let is_short = element.len() <= INLINE_BYTES_MAX;
        bytes += is_short.then(|| Item::of(element).len())?;
        new += 1;
        if bytes > bytes_max {
            return None;
        }
    }
    if bytes > PACKED_BYTES_MAX && listpack::count(packed)?.0 + new > APPENDED_LEN_MAX {
        return None;
    }
    let mut out = Vec::with_capacity(bytes);
    if !is_front {
        out.extend_from_slice(packed);
        elements.for_each(|element| Item::of(element).push(&mut out));
        return Some(out);
    }
    out.resize(bytes, 0);
    let mut at = bytes - packed.len();
    out[at..].copy_from_slice(packed);
    for element in elements {
        let item = Item::of(element);
        at -= item.len();
        item.write(&mut out[at..][..item.len()]);
    }
    Some(out)
}

/// Copies of the elements of these whole entries.
fn elements_of(mut entries: &[u8], with: impl Fn(Item<'_>, &mut dyn FnMut(&[u8]))) -> Vec<Vec<u8>> {
    let mut elements = Vec::new();
    while let Some((item, len)) = listpack::first(entries) {
        entries = &entries[len..];
        with(item, &mut |element| elements.push(element.to_vec()));
    }
    elements
}

/// Where the entry at `index` begins among packed entries, or where they end.
fn packed_offset(packed: &[u8], index: u64) -> usize {
    let mut at = 0;
    for _ in 0..index {
        match listpack::first(&packed[at..]) {
            Some((_, len)) => at += len,
            None => break,
        }
    }
    at
}
