//! Taking entries out of a stream.

use perdura_region::Planted;

use crate::api::Key;
use crate::error::TxError;
use crate::store::Place;
use crate::stream::chunk::{AT_BOUNDS, Bounds, Chunk};
use crate::stream::node::{Probe, Tree};
use crate::stream::pieces::{self, Piece};
use crate::stream::tree::{self, CutOff, Path};
use crate::stream::{DELETED, Root, Spot, StreamId};
use crate::tx::Tx;

/// Which entries a stream keeps.
#[derive(Debug, Clone, Copy)]
pub enum TrimTo {
    /// The last so many.
    Len(u64),
    /// Those of this ID and of higher ones.
    Id(StreamId),
}

/// How a stream is trimmed.
#[derive(Debug, Clone, Copy)]
pub struct StreamTrim {
    /// Which entries are kept.
    pub to: TrimTo,
    /// Whether only whole chunks go, so that some more entries are kept.
    pub is_rough: bool,
    /// Most entries that go, if only whole chunks do; 0 for any number.
    pub limit: u64,
}

impl Tx<'_> {
    /// Deletes the entries of these IDs. Returns how many there were.
    ///
    /// # Errors
    /// The key holds another kind of value; the attempt is over.
    pub fn stream_delete(&mut self, key: Key<'_>, ids: &[StreamId]) -> Result<u64, TxError> {
        self.settle(key);
        let place = self.place(key);
        let mut deleted = 0;
        for id in ids {
            let Some(before) = self.stream_root(key)? else { break };
            let mut root = before;
            let lane = self.op.lane(place.lane);
            let Some(spot) = root.chunk_of(lane, *id) else { continue };
            let found = spot.chunk.entries(lane).find(|entry| entry.id >= *id);
            let Some(at) = found.filter(|e| e.id == *id && !e.is_deleted).map(|entry| entry.at)
            else {
                continue;
            };
            if deleted == 0 {
                self.touch(key);
            }
            if spot.chunk.bounds.live == 1 {
                self.drop_chunk(&place, &mut root, &spot)?;
            } else {
                self.mark_deleted(&place, &mut root, &spot, &[at])?;
            }
            root.len -= 1;
            root.max_deleted = root.max_deleted.max(*id);
            self.save_stream(place.lane, &before, &root)?;
            deleted += 1;
        }
        Ok(deleted)
    }

    /// Takes out a chunk with all of its entries. The caller stores the root.
    fn drop_chunk(&mut self, place: &Place, root: &mut Root, spot: &Spot) -> Result<(), TxError> {
        if let Some(path) = &spot.path {
            let top = tree::remove(&mut self.op, place.lane, root.chunks_top, path);
            root.chunks_top = top.map_err(|stop| self.stop(stop))?;
            spot.chunk.object.into_iter().for_each(|object| self.op.free(object));
            return Ok(());
        }
        self.drop_tail(place, root, &spot.chunk)
    }

    /// Takes out the last chunk; the one before becomes the last.
    fn drop_tail(&mut self, place: &Place, root: &mut Root, tail: &Chunk) -> Result<(), TxError> {
        tail.object.into_iter().for_each(|object| self.op.free(object));
        (root.tail, root.bounds) = (0, Bounds::default());
        if root.chunks_top == 0 {
            return Ok(());
        }
        let lane = self.op.lane(place.lane);
        let path = Path::to_end(lane, Tree::Chunks, root.chunks_top, false);
        root.tail = path.item(lane)[2];
        root.bounds = Chunk::load(lane, root.tail).bounds;
        let top = tree::remove(&mut self.op, place.lane, root.chunks_top, &path);
        root.chunks_top = top.map_err(|stop| self.stop(stop))?;
        Ok(())
    }

    /// Flags entries of a chunk as deleted, others of which stay. The caller stores the root.
    fn mark_deleted(
        &mut self,
        place: &Place,
        root: &mut Root,
        spot: &Spot,
        flags_at: &[usize],
    ) -> Result<(), TxError> {
        let (chunk, gone) = (spot.chunk, flags_at.len() as u64);
        for flags_at in flags_at {
            let at = chunk.base + *flags_at as u64;
            let flags = self.op.lane(place.lane).bytes(at, 1)[0] | DELETED;
            let changed = match self.store.region().planted().is(Planted::UnloggedDeletion) {
                true => self.op.fill(place.lane, at, 1, None).map(|byte| byte[0] = flags),
                false => self.op.overwrite(place.lane, at, &[flags]),
            };
            changed.map_err(|stop| self.stop(stop))?;
        }
        let bounds = Bounds { live: chunk.bounds.live - gone, ..chunk.bounds };
        match (spot.path, chunk.object) {
            (Some(_), Some(object)) => {
                let word = bounds.word().to_le_bytes();
                let changed = self.op.overwrite(place.lane, object + AT_BOUNDS, &word);
                changed.map_err(|stop| self.stop(stop))?;
            }
            _ => root.bounds = bounds,
        }
        Ok(())
    }

    /// Takes out the entries before those that are kept. Returns how many went.
    ///
    /// # Errors
    /// The key holds another kind of value; the attempt is over.
    pub fn stream_trim(&mut self, key: Key<'_>, trim: StreamTrim) -> Result<u64, TxError> {
        self.settle(key);
        let place = self.place(key);
        let Some(before) = self.stream_root(key)? else { return Ok(0) };
        let (mut root, mut removed) = (before, 0);
        let lane = self.op.lane(place.lane);
        let mut next = root.first_chunk(lane);
        while let Some(spot) = next {
            let behind = root.next_chunk(lane, &spot, false);
            let live = spot.chunk.bounds.live;
            let goes = match trim.to {
                TrimTo::Len(len) => before.len - removed >= len.saturating_add(live),
                TrimTo::Id(id) => match &behind {
                    Some(behind) if behind.chunk.master(lane) <= id => true,
                    _ => spot.chunk.last_id(lane) < id,
                },
            };
            let is_too_many = trim.limit > 0 && removed + live > trim.limit;
            if !goes || (trim.is_rough && is_too_many) {
                break;
            }
            removed += live;
            next = behind;
        }
        if removed > 0 {
            self.touch(key);
            self.cut_stream(&place, &mut root, next.as_ref())?;
            root.len -= removed;
        }
        if !trim.is_rough {
            removed += self.trim_chunk(&place, &mut root, trim.to)?;
        }
        if removed > 0 {
            self.touch(key);
        }
        self.save_stream(place.lane, &before, &root)?;
        Ok(removed)
    }

    /// Takes out all chunks before one, or all if there is none, without looking at each.
    fn cut_stream(
        &mut self,
        place: &Place,
        root: &mut Root,
        kept: Option<&Spot>,
    ) -> Result<(), TxError> {
        let Some(Spot { path: Some(_), chunk }) = kept else {
            // The whole tree goes, and perhaps the last chunk.
            let mut gone = pieces::of(&Root { groups_top: 0, ..*root });
            if kept.is_some() {
                gone.retain(|piece| !matches!(piece, Piece::Chunk(_)));
            } else {
                (root.tail, root.bounds) = (0, Bounds::default());
            }
            root.chunks_top = 0;
            self.detach_stream(place.lane, gone);
            return Ok(());
        };
        let lane = self.op.lane(place.lane);
        let probe = Probe::Id(chunk.master(lane));
        let Some(path) = tree::find(lane, Tree::Chunks, root.chunks_top, probe) else {
            return Err(TxError::Again);
        };
        let mut off = CutOff::default();
        let cut = tree::cut_before(&mut self.op, place.lane, root.chunks_top, &path, &mut off);
        root.chunks_top = cut.map_err(|stop| self.stop(stop))?;
        let nodes = off.nodes.into_iter().map(|at| Piece::Node(Tree::Chunks, at));
        let chunks = off.items.iter().filter_map(|words| pieces::of_leaf(Tree::Chunks, words));
        self.detach_stream(place.lane, nodes.chain(chunks).collect());
        Ok(())
    }

    /// Flags entries of the first chunk as deleted, of which some stay. Returns how many went.
    fn trim_chunk(&mut self, place: &Place, root: &mut Root, to: TrimTo) -> Result<u64, TxError> {
        let lane = self.op.lane(place.lane);
        let Some(spot) = root.first_chunk(lane) else { return Ok(0) };
        let mut flags_at = Vec::new();
        for entry in spot.chunk.entries(lane) {
            let goes = match to {
                TrimTo::Len(len) => root.len - flags_at.len() as u64 > len,
                TrimTo::Id(id) => entry.id < id,
            };
            if !goes {
                break;
            }
            if !entry.is_deleted {
                flags_at.push(entry.at);
            }
        }
        let gone = flags_at.len() as u64;
        if gone > 0 && gone == spot.chunk.bounds.live {
            // Deleted entries behind the last one that was left.
            self.drop_chunk(place, root, &spot)?;
        } else if gone > 0 {
            self.mark_deleted(place, root, &spot, &flags_at)?;
        }
        root.len -= gone;
        Ok(gone)
    }
}
