//! Pushes, pops and trims: changes at the ends of a list.

use perdura_region::Planted;
use perdura_slots::{Heat, LaneId};

use super::{Stored, packed_offset, packed_with};
use crate::api::{Expiry, Key};
use crate::error::TxError;
use crate::list::chunk::{
    AT_BOUNDS, CHUNK_BYTES_MAX, Chunk, HEAD_BYTES, capacity_for, part_header,
};
use crate::list::index::{self, Item as IndexItem, Path};
use crate::list::{End, Root};
use crate::listpack::{self, Item};
use crate::shard::Detached;
use crate::store::Place;
use crate::tx::{Tx, check_key, check_value};

/// More elements at once are written as whole chunks, which the next attempt finds if this one
/// has to wait for budget.
const PUSHED_ONE_BY_ONE_MAX: usize = 64;

/// A chunk that elements are pushed to.
struct Growing {
    chunk: Chunk,
    /// Where the chunk's memory ends, from its beginning.
    room_end: usize,
    /// Whether the chunk was made by this call, so that nothing leads to it before the commit.
    is_fresh: bool,
    /// Whether the bounds are not stored yet.
    is_changed: bool,
}

impl Growing {
    fn has_room(&self, bytes: usize, is_front: bool) -> bool {
        match is_front {
            true => self.chunk.start >= HEAD_BYTES + bytes,
            false => self.chunk.end + bytes <= self.room_end,
        }
    }
}

impl Tx<'_> {
    /// Pushes elements to an end of a list, one behind the other, or makes a list of them. Returns
    /// the number of elements of the list then.
    ///
    /// # Errors
    /// The key holds another kind of value; an element is too long; the attempt is over.
    pub fn list_push<'e>(
        &mut self,
        key: Key<'_>,
        end: End,
        elements: impl Iterator<Item = &'e [u8]> + Clone,
    ) -> Result<u64, TxError> {
        check_key(key.bytes)?;
        elements.clone().try_for_each(|element| check_value(element.len() as u64))?;
        let place = self.place(key);
        let packed = match self.list_stored(key)? {
            Some(Stored::Large(root)) => {
                return self.push_to_chunks(&place, key, root, end, elements);
            }
            Some(Stored::Packed(packed)) => packed,
            None => Vec::new(),
        };
        if elements.clone().next().is_none() {
            return Ok(listpack::count(&packed).map_or(0, |(count, _)| count));
        }
        if let Some(packed) = packed_with(&packed, elements.clone(), end.is_front()) {
            self.put_packed_list(&place, key, &packed, Expiry::Keep)?;
            return Ok(listpack::count(&packed).map_or(0, |(count, _)| count));
        }
        let old = super::elements_of(&packed, |item, f| {
            // No element of a packed list has a record of its own.
            crate::list::chunk::with_element(self.op.lane(place.lane), item, f);
        });
        let mut all: Vec<&[u8]> = Vec::new();
        if end.is_front() {
            all.extend(elements.map(|element| -> &[u8] { element }));
            all.reverse();
            all.extend(old.iter().map(Vec::as_slice));
        } else {
            all.extend(old.iter().map(Vec::as_slice));
            all.extend(elements.map(|element| -> &[u8] { element }));
        }
        let chunks = self.make_chunks(place.lane, all.iter().copied())?;
        self.put_chunks(&place, key, chunks, Expiry::Keep)?;
        Ok(all.len() as u64)
    }

    /// Takes away up to `count` elements at an end of a list, and returns how many. With its last
    /// element the key goes, too. However many these are, only the chunks at the new end change:
    /// those between are cut off, and freed after the commit.
    ///
    /// # Errors
    /// The key holds another kind of value; the attempt is over.
    pub fn list_cut(&mut self, key: Key<'_>, end: End, count: u64) -> Result<u64, TxError> {
        let Some(stored) = self.list_stored(key)? else { return Ok(0) };
        let place = self.place(key);
        let len = match &stored {
            Stored::Packed(packed) => listpack::count(packed).map_or(0, |(len, _)| len),
            // The chunk at this end has more elements mostly; then the others do not matter.
            Stored::Large(root) => {
                let (lane, near) = (self.op.lane(place.lane), root.near(end.is_front()));
                match near != 0 && Chunk::load(lane, near).count > count {
                    true => u64::MAX,
                    false => root.len(lane),
                }
            }
        };
        if count >= len {
            self.delete(key)?;
            return Ok(len);
        }
        if count == 0 {
            return Ok(0);
        }
        match stored {
            Stored::Packed(packed) => {
                let kept = match end {
                    End::Front => &packed[packed_offset(&packed, count)..],
                    End::Back => &packed[..packed_offset(&packed, len - count)],
                };
                self.put_rest(&place, key, kept)?;
            }
            Stored::Large(root) => {
                self.touch(key);
                let mut cut = root;
                self.cut_chunks(place.lane, &mut cut, end.is_front(), count)?;
                self.save_root(place.lane, &root, &cut)?;
                self.repack(&place, key, &cut)?;
            }
        }
        Ok(count)
    }

    fn push_to_chunks<'e>(
        &mut self,
        place: &Place,
        key: Key<'_>,
        before: Root,
        end: End,
        elements: impl Iterator<Item = &'e [u8]> + Clone,
    ) -> Result<u64, TxError> {
        self.touch(key);
        let (id, is_front, mut root) = (place.lane, end.is_front(), before);
        if elements.clone().nth(PUSHED_ONE_BY_ONE_MAX).is_some() {
            let mut all: Vec<&[u8]> = elements.collect();
            if is_front {
                all.reverse();
            }
            let mut chunks = self.make_chunks(id, all.into_iter())?;
            if is_front {
                chunks.reverse();
            }
            for chunk in chunks {
                self.hang(id, &mut root, is_front, chunk.child)?;
            }
        } else {
            let mut growing = self.growing(id, &root, is_front);
            for element in elements {
                let item = self.item_of(id, element)?;
                let has_room = |growing: &Growing| growing.has_room(item.len(), is_front);
                let mut chunk = match growing.take_if(|growing| has_room(growing)) {
                    Some(chunk) => chunk,
                    None => {
                        if let Some(full) = growing.take() {
                            self.save_bounds(id, &full)?;
                        }
                        self.new_chunk(id, &mut root, is_front, item.len())?
                    }
                };
                self.push_entry(id, &mut chunk, is_front, &item)?;
                growing = Some(chunk);
            }
            if let Some(chunk) = growing {
                self.save_bounds(id, &chunk)?;
            }
        }
        self.save_root(id, &before, &root)?;
        Ok(root.len(self.op.lane(id)))
    }

    /// The chunk that a push may find room in. A list of a single chunk has it at both ends.
    fn growing(&self, id: LaneId, root: &Root, is_front: bool) -> Option<Growing> {
        let (near, far) = if is_front { (root.head, root.tail) } else { (root.tail, root.head) };
        let at = if near == 0 && root.top == 0 { far } else { near };
        let lane = self.op.lane(id);
        (at != 0).then(|| Growing {
            chunk: Chunk::load(lane, at),
            room_end: CHUNK_BYTES_MAX.min(lane.usable_bytes(at) as usize),
            is_fresh: false,
            is_changed: false,
        })
    }

    /// Makes an empty chunk at an end of a list, for entries of this size. A list of few chunks
    /// gets small ones, so that the room at its ends is a small part of it.
    fn new_chunk(
        &mut self,
        id: LaneId,
        root: &mut Root,
        is_front: bool,
        entry_bytes: usize,
    ) -> Result<Growing, TxError> {
        let wanted = match index::breadth(self.op.lane(id), root.top) {
            None | Some((0..8, true)) => CHUNK_BYTES_MAX / 8,
            Some((8..16, true)) => CHUNK_BYTES_MAX / 4,
            Some((16..32, true)) => CHUNK_BYTES_MAX / 2,
            Some(_) => CHUNK_BYTES_MAX,
        };
        let capacity = capacity_for(entry_bytes, wanted);
        let at = self.op.alloc(id, capacity as u64).map_err(|stop| self.stop(stop))?;
        let room_end = CHUNK_BYTES_MAX.min(self.op.lane(id).usable_bytes(at) as usize);
        let start = if is_front { room_end } else { HEAD_BYTES };
        let chunk = Chunk { at, start, end: start, count: 0, parts: 0 };
        match self.op.fill(id, at, HEAD_BYTES, Some(Heat::COLD)) {
            Ok(bytes) => {
                let first_word = part_header(chunk_value_bytes(room_end)).first_word();
                bytes[..8].copy_from_slice(&first_word.to_le_bytes());
                bytes[8..].copy_from_slice(&chunk.bounds());
            }
            Err(stop) => return Err(self.stop(stop)),
        }
        self.hang(id, root, is_front, at)?;
        Ok(Growing { chunk, room_end, is_fresh: true, is_changed: true })
    }

    /// Makes a chunk the first one, or the last one. The one that was there goes to the tree, or to
    /// the other end if nothing is there.
    fn hang(
        &mut self,
        id: LaneId,
        root: &mut Root,
        is_front: bool,
        chunk: u64,
    ) -> Result<(), TxError> {
        let ends = (&mut root.head, &mut root.tail);
        let (near, far) = if is_front { ends } else { (ends.1, ends.0) };
        let old = std::mem::replace(near, chunk);
        if old == 0 {
            return Ok(());
        }
        if *far == 0 && root.top == 0 {
            *far = old;
            return Ok(());
        }
        let count = Chunk::load(self.op.lane(id), old).count;
        let item = IndexItem { child: old, count };
        let pushed = index::push(&mut self.op, id, root.top, item, is_front);
        root.top = pushed.map_err(|stop| self.stop(stop))?;
        root.middle += count;
        Ok(())
    }

    /// Writes an entry to the room of a chunk. Its bounds are stored later.
    fn push_entry(
        &mut self,
        id: LaneId,
        growing: &mut Growing,
        is_front: bool,
        item: &Item<'_>,
    ) -> Result<(), TxError> {
        let (chunk, len) = (&mut growing.chunk, item.len());
        let at = if is_front { chunk.start - len } else { chunk.end };
        let from = chunk.at + at as u64;
        // Room that this operation has made itself still has bytes that are to be put back if it
        // is rolled back.
        let keeps_old = self.has_freed_room && !growing.is_fresh;
        if keeps_old && !self.store.region().planted().is(Planted::FillFreedRoom) {
            let mut bytes = Vec::with_capacity(len);
            item.push(&mut bytes);
            self.change(id, from, &bytes)?;
        } else {
            match self.op.fill(id, from, len, None) {
                Ok(bytes) => item.write(bytes),
                Err(stop) => return Err(self.stop(stop)),
            }
        }
        if is_front {
            chunk.start = at;
        } else {
            chunk.end += len;
        }
        chunk.count += 1;
        chunk.parts += u64::from(matches!(item, Item::Part(_)));
        growing.is_changed = true;
        Ok(())
    }

    fn save_bounds(&mut self, id: LaneId, growing: &Growing) -> Result<(), TxError> {
        let (at, bounds) = (growing.chunk.at + AT_BOUNDS, growing.chunk.bounds());
        if !growing.is_changed {
            return Ok(());
        }
        if !growing.is_fresh {
            return self.change(id, at, &bounds);
        }
        match self.op.fill(id, at, bounds.len(), None) {
            Ok(bytes) => bytes.copy_from_slice(&bounds),
            Err(stop) => return Err(self.stop(stop)),
        }
        Ok(())
    }

    /// Takes away `count` elements at an end; more must be left.
    fn cut_chunks(
        &mut self,
        id: LaneId,
        root: &mut Root,
        is_front: bool,
        mut count: u64,
    ) -> Result<(), TxError> {
        let near = root.near(is_front);
        if near != 0 {
            let chunk = Chunk::load(self.op.lane(id), near);
            if count < chunk.count {
                return self.trim(id, &chunk, is_front, count);
            }
            self.free_chunk(id, &chunk);
            count -= chunk.count;
            *near_of(root, is_front) = 0;
        }
        if count == 0 {
            return Ok(());
        }
        if count < root.middle {
            let kept = if is_front { count } else { root.middle - 1 - count };
            let (path, index) = Path::to(self.op.lane(id), root.top, kept);
            let (mut index_nodes, mut chunks) = (Vec::new(), Vec::new());
            let top =
                index::cut(
                    &mut self.op,
                    id,
                    root.top,
                    &path,
                    is_front,
                    &mut |level, at| match level {
                        None => chunks.push(at),
                        Some(_) => index_nodes.push(at),
                    },
                );
            root.top = top.map_err(|stop| self.stop(stop))?;
            self.detached.push((id, Detached::of_pieces(index_nodes, chunks)));
            // The chunk at the new end leaves the tree.
            let lane = self.op.lane(id);
            let path = Path::to_end(lane, root.top, is_front);
            let chunk = Chunk::load(lane, path.item(lane).child);
            let top = index::remove(&mut self.op, id, root.top, &path);
            root.top = top.map_err(|stop| self.stop(stop))?;
            let here = if is_front { index } else { chunk.count - 1 - index };
            root.middle -= count - here + chunk.count;
            *near_of(root, is_front) = chunk.at;
            return self.trim(id, &chunk, is_front, here);
        }
        if root.top != 0 {
            self.detached.push((id, Detached::of_pieces(vec![root.top], Vec::new())));
            count -= root.middle;
            (root.top, root.middle) = (0, 0);
        }
        let far = if is_front { root.tail } else { root.head };
        let chunk = Chunk::load(self.op.lane(id), far);
        self.trim(id, &chunk, is_front, count)
    }

    /// Takes away `count` elements at an end of a chunk; more must be left.
    fn trim(
        &mut self,
        id: LaneId,
        chunk: &Chunk,
        is_front: bool,
        count: u64,
    ) -> Result<(), TxError> {
        if count == 0 {
            return Ok(());
        }
        let (lane, mut trimmed) = (self.op.lane(id), *chunk);
        let (entries, left) = (chunk.entries(lane), chunk.count - count);
        let gone = if is_front {
            let at = chunk.offset_of(lane, count);
            trimmed.start += at;
            &entries[..at]
        } else {
            let at = chunk.offset_of(lane, left);
            trimmed.end = chunk.start + at;
            &entries[at..]
        };
        let parts = chunk.parts_in(lane, gone);
        (trimmed.count, trimmed.parts) = (left, chunk.parts - parts.len() as u64);
        parts.into_iter().for_each(|part| self.op.free(part));
        self.has_freed_room = true;
        self.change(id, chunk.at + AT_BOUNDS, &trimmed.bounds())
    }
}

fn near_of(root: &mut Root, is_front: bool) -> &mut u64 {
    if is_front { &mut root.head } else { &mut root.tail }
}

/// Bytes that the header of an empty chunk names as its value's.
fn chunk_value_bytes(room_end: usize) -> u64 {
    room_end as u64 - 8
}
