//! Changes inside a list: elements that are set, inserted and removed.

use perdura_slots::LaneId;

use super::{Stored, elements_of, packed_offset};
use crate::api::{Expiry, Key};
use crate::error::TxError;
use crate::list::chunk::{AT_BOUNDS, CHUNK_BYTES_MAX, Chunk, HEAD_BYTES, part, with_element};
use crate::list::index::{self, Item as IndexItem, Path};
use crate::list::{PACKED_BYTES_MAX, Place as Hook, Root, Spot};
use crate::listpack::{self, INLINE_BYTES_MAX, Item};
use crate::store::Place;
use crate::tx::{Tx, check_value};

/// A chunk between the ends whose entries are fewer bytes is merged with a neighbour.
const FEW_BYTES: usize = CHUNK_BYTES_MAX / 4;
/// Most bytes of the entries of two chunks that are merged.
const MERGED_BYTES_MAX: usize = CHUNK_BYTES_MAX * 3 / 4;

/// What stays of a chunk's entries.
struct Kept {
    entries: Vec<u8>,
    /// Bytes at the beginning that are as before.
    same: usize,
    /// Elements that do not stay, and those of them that have records of their own.
    gone: u64,
    parts: Vec<u64>,
}

impl Tx<'_> {
    /// Sets the element at `index`. Returns whether the list has one there.
    ///
    /// # Errors
    /// The key holds another kind of value; the element is too long; the attempt is over.
    pub fn list_set(&mut self, key: Key<'_>, index: u64, element: &[u8]) -> Result<bool, TxError> {
        check_value(element.len() as u64)?;
        let Some(list) = self.list(key)?.filter(|list| index < list.len()) else {
            return Ok(false);
        };
        if list.get(index, |old| old == element) == Some(true) {
            self.touch(key);
            return Ok(true);
        }
        self.splice(key, index, true, element).map(|()| true)
    }

    /// Inserts an element before the one at `index`, or behind the last one if there are only
    /// `index` elements. The key must have a list of at least as many.
    ///
    /// # Errors
    /// The errors of [`Tx::list_set`].
    pub fn list_insert(&mut self, key: Key<'_>, index: u64, element: &[u8]) -> Result<(), TxError> {
        check_value(element.len() as u64)?;
        let len = self.list(key)?.map_or(0, |list| list.len());
        assert!(len > 0 && index <= len, "element {index} of {len}");
        if index == len {
            return self.list_push(key, crate::list::End::Back, [element].into_iter()).map(drop);
        }
        self.splice(key, index, false, element)
    }

    /// Removes up to `most` elements that are equal to this one, from the first on or, if `down`,
    /// from the last on. Returns how many were removed. With its last element the key goes, too.
    ///
    /// # Errors
    /// The key holds another kind of value; the attempt is over.
    pub fn list_remove(
        &mut self,
        key: Key<'_>,
        element: &[u8],
        most: u64,
        down: bool,
    ) -> Result<u64, TxError> {
        let place = self.place(key);
        match self.list_stored(key)? {
            None => Ok(0),
            Some(Stored::Packed(packed)) => {
                let kept = self.kept(&place, &packed, None, element, (most, down));
                if kept.entries.is_empty() {
                    self.delete(key)?;
                } else if kept.gone > 0 {
                    self.put_rest(&place, key, &kept.entries)?;
                }
                Ok(kept.gone)
            }
            Some(Stored::Large(root)) => {
                self.settle(key);
                let mut now = root;
                let gone = self.remove_from_chunks(&place, &mut now, element, most, down)?;
                if gone == 0 {
                    return Ok(0);
                }
                self.touch(key);
                self.save_root(place.lane, &root, &now)?;
                if now.head | now.tail | now.top == 0 {
                    self.delete(key)?;
                } else {
                    self.repack(&place, key, &now)?;
                }
                Ok(gone)
            }
        }
    }

    /// Puts an element before the one at `index`, or in its place.
    fn splice(
        &mut self,
        key: Key<'_>,
        index: u64,
        takes: bool,
        element: &[u8],
    ) -> Result<(), TxError> {
        let place = self.place(key);
        match self.list_stored(key)? {
            Some(Stored::Large(root)) => {
                self.touch(key);
                let mut now = root;
                let item = self.item_of(place.lane, element)?;
                let spot = root.seek(self.op.lane(place.lane), index);
                self.splice_chunk(place.lane, &mut now, &spot, takes, &item)?;
                self.save_root(place.lane, &root, &now)
            }
            Some(Stored::Packed(packed)) => {
                let from = packed_offset(&packed, index);
                let to = if takes { packed_offset(&packed, index + 1) } else { from };
                let is_short = element.len() <= INLINE_BYTES_MAX;
                let mut out = packed[..from].to_vec();
                if is_short {
                    Item::of(element).push(&mut out);
                    out.extend_from_slice(&packed[to..]);
                    if out.len() <= PACKED_BYTES_MAX {
                        return self.put_packed_list(&place, key, &out, Expiry::Keep);
                    }
                }
                let lane = self.op.lane(place.lane);
                let copy = |entries| elements_of(entries, |item, f| with_element(lane, item, f));
                let (before, behind) = (copy(&packed[..from]), copy(&packed[to..]));
                let all = before.iter().map(Vec::as_slice).chain([element]);
                let all: Vec<&[u8]> = all.chain(behind.iter().map(Vec::as_slice)).collect();
                let chunks = self.make_chunks(place.lane, all.into_iter())?;
                self.put_chunks(&place, key, chunks, Expiry::Keep)
            }
            None => Ok(()),
        }
    }

    fn splice_chunk(
        &mut self,
        id: LaneId,
        root: &mut Root,
        spot: &Spot,
        takes: bool,
        item: &Item<'_>,
    ) -> Result<(), TxError> {
        let (lane, chunk) = (self.op.lane(id), spot.chunk);
        let entries = chunk.entries(lane);
        let from = chunk.offset_of(lane, spot.index);
        let (old, taken) = match takes {
            true => Some(chunk.first(lane, &entries[from..])).unzip(),
            false => (None, None),
        };
        let (before, behind) = (&entries[..from], &entries[from + taken.unwrap_or(0)..]);
        let old_part = match old {
            Some(Item::Part(at)) => Some(at),
            _ => None,
        };
        let count = chunk.count + u64::from(!takes);
        let is_part = matches!(item, Item::Part(_));
        let parts = chunk.parts + u64::from(is_part) - u64::from(old_part.is_some());
        let len = before.len() + item.len() + behind.len();
        let room_end = CHUNK_BYTES_MAX.min(lane.usable_bytes(chunk.at) as usize);
        let fits_behind = chunk.start + len <= room_end;
        let fits_before = chunk.end >= HEAD_BYTES + len;
        let mut bytes = Vec::with_capacity(CHUNK_BYTES_MAX);
        if fits_behind || fits_before {
            let mut now = Chunk { count, parts, ..chunk };
            let at = if fits_behind && (!fits_before || behind.len() <= before.len()) {
                item.push(&mut bytes);
                if item.len() != taken.unwrap_or(0) {
                    bytes.extend_from_slice(behind);
                }
                now.end = chunk.start + len;
                chunk.start + from
            } else {
                if item.len() != taken.unwrap_or(0) {
                    bytes.extend_from_slice(before);
                }
                item.push(&mut bytes);
                now.start = chunk.end - len;
                chunk.end - behind.len() - bytes.len()
            };
            self.has_freed_room |= now.len() < chunk.len();
            self.change(id, chunk.at + at as u64, &bytes)?;
            if now != chunk {
                self.change(id, chunk.at + AT_BOUNDS, &now.bounds())?;
            }
            if let (Hook::Middle(path), false) = (&spot.place, takes) {
                self.recount(id, path, chunk.at, count)?;
                root.middle += 1;
            }
        } else {
            bytes.extend_from_slice(before);
            item.push(&mut bytes);
            bytes.extend_from_slice(behind);
            self.remake(id, root, spot, &bytes, (count, parts))?;
        }
        old_part.into_iter().for_each(|part| self.op.free(part));
        Ok(())
    }

    /// Writes the entries of a chunk, which has no room for them, to one or two others.
    fn remake(
        &mut self,
        id: LaneId,
        root: &mut Root,
        spot: &Spot,
        entries: &[u8],
        (count, parts): (u64, u64),
    ) -> Result<(), TxError> {
        let len = entries.len();
        let (mut at, mut first_count, mut first_parts) = (len, count, parts);
        if HEAD_BYTES + len > CHUNK_BYTES_MAX {
            (at, first_count, first_parts) = (0, 0, 0);
            while at < len / 2 {
                let (item, len) = spot.chunk.first(self.op.lane(id), &entries[at..]);
                at += len;
                first_count += 1;
                first_parts += u64::from(matches!(item, Item::Part(_)));
            }
        }
        let (left, right) = entries.split_at(at);
        let first = IndexItem {
            child: self.write_chunk(id, left, first_count, first_parts, left.len() / 2)?,
            count: first_count,
        };
        let second = match right {
            [] => None,
            _ => {
                let (count, parts) = (count - first_count, parts - first_parts);
                let child = self.write_chunk(id, right, count, parts, right.len() / 2)?;
                Some(IndexItem { child, count })
            }
        };
        self.op.free(spot.chunk.at);
        let op = &mut self.op;
        let stopped = match (&spot.place, second) {
            (Hook::Middle(path), second) => {
                root.middle += count - spot.chunk.count;
                index::replace(op, id, path, first).and_then(|()| match second {
                    Some(second) => index::insert(op, id, root.top, path, second, true),
                    None => Ok(root.top),
                })
            }
            (Hook::Head, None) => {
                root.head = first.child;
                Ok(root.top)
            }
            (Hook::Tail, None) => {
                root.tail = first.child;
                Ok(root.top)
            }
            (Hook::Head, Some(second)) => {
                root.head = first.child;
                if root.top == 0 && root.tail == 0 {
                    root.tail = second.child;
                    Ok(0)
                } else {
                    root.middle += second.count;
                    index::push(op, id, root.top, second, true)
                }
            }
            (Hook::Tail, Some(second)) => {
                root.tail = second.child;
                if root.top == 0 && root.head == 0 {
                    root.head = first.child;
                    Ok(0)
                } else {
                    root.middle += first.count;
                    index::push(op, id, root.top, first, false)
                }
            }
        };
        root.top = stopped.map_err(|stop| self.stop(stop))?;
        Ok(())
    }

    fn recount(&mut self, id: LaneId, path: &Path, child: u64, count: u64) -> Result<(), TxError> {
        let done = index::replace(&mut self.op, id, path, IndexItem { child, count });
        done.map_err(|stop| self.stop(stop))
    }

    /// Removes elements chunk by chunk. Each chunk that changes is written from its first change
    /// on.
    fn remove_from_chunks(
        &mut self,
        place: &Place,
        root: &mut Root,
        element: &[u8],
        most: u64,
        down: bool,
    ) -> Result<u64, TxError> {
        let id = place.lane;
        let mut len = root.len(self.op.lane(id));
        let (mut gone, mut position) = (0, if down { len } else { 0 });
        while gone < most && if down { position > 0 } else { position < len } {
            let lane = self.op.lane(id);
            let spot = root.seek(lane, if down { position - 1 } else { position });
            let chunk = spot.chunk;
            let entries = chunk.entries(lane);
            let kept = self.kept(place, entries, Some(&chunk), element, (most - gone, down));
            position = match down {
                true => position - chunk.count,
                false => position + chunk.count - kept.gone,
            };
            (gone, len) = (gone + kept.gone, len - kept.gone);
            if kept.gone > 0 {
                self.keep_in_chunk(id, root, &spot, kept, down)?;
            }
        }
        Ok(gone)
    }

    /// Takes the elements out of a chunk that do not stay.
    fn keep_in_chunk(
        &mut self,
        id: LaneId,
        root: &mut Root,
        spot: &Spot,
        kept: Kept,
        down: bool,
    ) -> Result<(), TxError> {
        let chunk = spot.chunk;
        let parts = chunk.parts - kept.parts.len() as u64;
        kept.parts.into_iter().for_each(|part| self.op.free(part));
        let count = chunk.count - kept.gone;
        if count == 0 {
            self.op.free(chunk.at);
            match &spot.place {
                Hook::Head => root.head = 0,
                Hook::Tail => root.tail = 0,
                Hook::Middle(path) => {
                    root.middle -= kept.gone;
                    let top = index::remove(&mut self.op, id, root.top, path);
                    root.top = top.map_err(|stop| self.stop(stop))?;
                }
            }
            return Ok(());
        }
        let Hook::Middle(path) = &spot.place else {
            return self.store_kept(id, &chunk, count, parts, (&kept.entries, kept.same));
        };
        root.middle -= kept.gone;
        if kept.entries.len() >= FEW_BYTES {
            self.store_kept(id, &chunk, count, parts, (&kept.entries, kept.same))?;
            return self.recount(id, path, chunk.at, count);
        }
        // Only with a chunk that was looked at already, so that the others stay where they are.
        let lane = self.op.lane(id);
        let neighbour = path.neighbour(lane, down).and_then(|(path, item)| {
            let other = Chunk::load(lane, item.child);
            (other.len() + kept.entries.len() <= MERGED_BYTES_MAX).then_some((path, other))
        });
        let Some((other_path, other)) = neighbour else {
            self.store_kept(id, &chunk, count, parts, (&kept.entries, kept.same))?;
            return self.recount(id, path, chunk.at, count);
        };
        let others = other.entries(lane);
        let merged = match down {
            true => [&kept.entries, others].concat(),
            false => [others, &kept.entries].concat(),
        };
        let (count, parts) = (count + other.count, parts + other.parts);
        let child = self.write_chunk(id, &merged, count, parts, 0)?;
        self.recount(id, &other_path, child, count)?;
        let top = index::remove(&mut self.op, id, root.top, path);
        root.top = top.map_err(|stop| self.stop(stop))?;
        self.op.free(chunk.at);
        self.op.free(other.at);
        Ok(())
    }

    fn store_kept(
        &mut self,
        id: LaneId,
        chunk: &Chunk,
        count: u64,
        parts: u64,
        (entries, same): (&[u8], usize),
    ) -> Result<(), TxError> {
        self.has_freed_room = true;
        let now = Chunk { end: chunk.start + entries.len(), count, parts, ..*chunk };
        if same < entries.len() {
            self.change(id, chunk.at + (chunk.start + same) as u64, &entries[same..])?;
        }
        self.change(id, chunk.at + AT_BOUNDS, &now.bounds())
    }

    /// Leaves out up to `most` of these entries, those of a chunk if there is one, whose element is
    /// equal to this one.
    fn kept(
        &self,
        place: &Place,
        entries: &[u8],
        chunk: Option<&Chunk>,
        element: &[u8],
        (most, down): (u64, bool),
    ) -> Kept {
        let lane = self.op.lane(place.lane);
        let wanted = (element.len() <= INLINE_BYTES_MAX).then(|| Item::of(element));
        let is_equal = |item: Item<'_>| match (item, wanted) {
            (Item::Part(at), None) => part(lane, at) == element,
            (item, Some(wanted)) => item == wanted,
            _ => false,
        };
        let walk = |f: &mut dyn FnMut(Item<'_>, &[u8])| {
            let mut rest = entries;
            while let Some((item, len)) = listpack::first(rest) {
                f(item, &rest[..len]);
                rest = &rest[len..];
            }
        };
        let (mut equal, mut met) = (0, 0);
        walk(&mut |item, _| {
            equal += u64::from(is_equal(item));
            met += 1;
        });
        if let Some(chunk) = chunk.filter(|chunk| chunk.count != met) {
            chunk.damaged(lane).unwind();
        }
        let gone = equal.min(most);
        let mut kept = Kept { entries: Vec::new(), same: 0, gone, parts: Vec::new() };
        if gone == 0 {
            kept.entries = entries.to_vec();
            return kept;
        }
        let mut before = if down { equal - gone } else { 0 };
        let mut left = gone;
        walk(&mut |item, bytes| {
            if left > 0 && is_equal(item) {
                if before == 0 {
                    if left == gone {
                        kept.same = kept.entries.len();
                    }
                    left -= 1;
                    if let Item::Part(at) = item {
                        kept.parts.push(at);
                    }
                    return;
                }
                before -= 1;
            }
            kept.entries.extend_from_slice(bytes);
        });
        kept
    }
}
