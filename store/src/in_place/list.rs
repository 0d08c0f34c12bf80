//! Pushing to, and popping from, the chunk at an end of a large list: whatever is written is in the
//! chunk's room, where nobody sees it, until the word of the bounds is stored.

use crate::api::Key;
use crate::list::chunk::{AT_BOUNDS, CHUNK_BYTES_MAX, Chunk, HEAD_BYTES, with_element};
use crate::list::{End, REPACKED_BYTES_MAX, Root};
use crate::listpack::{INLINE_BYTES_MAX, Item};
use crate::record::RecordKind;
use crate::store::{Place, Store};

impl Store {
    /// Pushes elements to an end of a large list, one behind the other, if the chunk at this end
    /// has room for them and that is all there is to do: see [`Store::replace_at`]. Returns the
    /// number of elements of the list then.
    pub fn list_push_at<'e>(
        &self,
        key: Key<'_>,
        place: Place,
        end: End,
        elements: impl Iterator<Item = &'e [u8]> + Clone,
    ) -> Option<u64> {
        let mut held = self.hold(key, &place)?;
        let (at, _) = held.value(key, RecordKind::LargeList)?;
        let (root, is_front) = (Root::load(&held.lane, at.next_multiple_of(8)), end.is_front());
        // A list of a single chunk has it at both ends.
        let (near, far) = (root.near(is_front), root.near(!is_front));
        let at = if near == 0 && root.top == 0 { far } else { near };
        let before = (at != 0).then(|| Chunk::load(&held.lane, at))?;
        let other = if at == far { 0 } else { far };
        let other_len = if other == 0 { 0 } else { Chunk::load(&held.lane, other).count };
        let (mut bytes, mut after) = (0, before);
        for element in elements.clone() {
            let item = (element.len() <= INLINE_BYTES_MAX).then(|| Item::of(element))?;
            bytes += item.len();
            after.count += 1;
        }
        let from = match is_front {
            true => {
                after.start = before.start.checked_sub(bytes).filter(|at| *at >= HEAD_BYTES)?;
                after.start
            }
            false => {
                after.end = before.end + bytes;
                before.end
            }
        };
        let room_end = CHUNK_BYTES_MAX.min(held.lane.usable_bytes(at) as usize);
        if bytes == 0 || after.end > room_end {
            return None;
        }
        let mut rest = held.lane.fill_unreached(at + from as u64, bytes).ok()?;
        for element in elements {
            let item = Item::of(element);
            // The element that is pushed last is the first one.
            let (here, left) = match is_front {
                true => {
                    let (left, here) = rest.split_at_mut(rest.len() - item.len());
                    (here, left)
                }
                false => rest.split_at_mut(item.len()),
            };
            item.write(here);
            rest = left;
        }
        held.lane.store_alone(at + AT_BOUNDS, u64::from_le_bytes(after.bounds())).ok()?;
        self.note_use(&place);
        Some(root.middle.saturating_add(other_len).saturating_add(after.count))
    }

    /// Takes the element at an end of a large list away and calls `f` with it, if its chunk keeps
    /// others and that is all there is to do: see [`Store::replace_at`].
    pub fn list_pop_at<R>(
        &self,
        key: Key<'_>,
        place: Place,
        end: End,
        f: impl FnOnce(&[u8]) -> R,
    ) -> Option<R> {
        let mut held = self.hold(key, &place)?;
        let (at, _) = held.value(key, RecordKind::LargeList)?;
        let (root, is_front) = (Root::load(&held.lane, at.next_multiple_of(8)), end.is_front());
        let at = Some(root.near(is_front)).filter(|at| *at != 0)?;
        let mut chunk = Chunk::load(&held.lane, at);
        let entries = chunk.entries(&held.lane);
        let (item, len) = match is_front {
            true => chunk.first(&held.lane, entries),
            false => chunk.last(&held.lane, entries),
        };
        // A list that becomes small is packed again, and a part has a record to be freed.
        let stays_large = root.top != 0 || entries.len() - len > REPACKED_BYTES_MAX;
        if matches!(item, Item::Part(_)) || chunk.count < 2 || !stays_large {
            return None;
        }
        let from = if is_front { chunk.start } else { chunk.end - len };
        if is_front {
            chunk.start += len
        } else {
            chunk.end -= len
        }
        chunk.count -= 1;
        held.lane.store_alone(at + AT_BOUNDS, u64::from_le_bytes(chunk.bounds())).ok()?;
        self.note_use(&place);
        // The bytes stay as they are while the shard is held.
        let entry = held.lane.bytes(at + from as u64, len);
        let (item, _) = chunk.first(&held.lane, entry);
        Some(with_element(&held.lane, item, f))
    }
}
