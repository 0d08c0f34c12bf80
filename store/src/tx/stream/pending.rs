//! Pending entries: who has got an entry and not acknowledged it.

use crate::api::Key;
use crate::error::TxError;
use crate::store::Place;
use crate::stream::StreamId;
use crate::stream::group::{ConsumerWords, GroupWords};
use crate::stream::node::{Probe, Tree, Words};
use crate::stream::tree;
use crate::tx::Tx;

/// An entry that a consumer gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// ID of the entry, which need not be in the stream any more.
    pub id: StreamId,
    /// When it was delivered, in milliseconds since 1970.
    pub delivered_ms: u64,
    /// How often it was delivered.
    pub deliveries: u64,
}

impl Tx<'_> {
    /// Makes entries pending, and a consumer their owner, whoever has had them. Returns whether
    /// there are such a group and such a consumer.
    ///
    /// # Errors
    /// The key holds another kind of value; the attempt is over.
    pub fn pending_assign(
        &mut self,
        key: Key<'_>,
        group: &[u8],
        consumer: &[u8],
        deliveries: &[Delivery],
    ) -> Result<bool, TxError> {
        self.settle(key);
        let Some((group_at, group_before)) = self.group_at(key, group)? else { return Ok(false) };
        let place = self.place(key);
        let found = self.consumer_at(&place, &group_before, consumer);
        let Some((owner, owner_before)) = found else { return Ok(false) };
        if deliveries.is_empty() {
            return Ok(true);
        }
        let (mut group, mut owned) = (group_before, owner_before);
        for delivery in deliveries {
            let Delivery { id, delivered_ms, deliveries } = *delivery;
            let item: Words = [id.ms, id.seq, owner, delivered_ms, deliveries];
            let lane = self.op.lane(place.lane);
            let found = tree::find(lane, Tree::Pending, group.pending_top, Probe::Id(id));
            let other = found.map(|path| (path, path.item(lane)[2]));
            match other {
                Some((path, other)) => {
                    let set = path.set(&mut self.op, place.lane, &item);
                    set.map_err(|stop| self.stop(stop))?;
                    if other == owner {
                        continue;
                    }
                    self.disown(&place, other, id)?;
                }
                None => {
                    let (op, top) = (&mut self.op, group.pending_top);
                    let top = tree::insert(op, place.lane, Tree::Pending, top, item);
                    group.pending_top = top.map_err(|stop| self.stop(stop))?;
                    group.pending += 1;
                }
            }
            let (op, top) = (&mut self.op, owned.pending_top);
            let top = tree::insert(op, place.lane, Tree::Owned, top, [id.ms, id.seq, 0, 0, 0]);
            owned.pending_top = top.map_err(|stop| self.stop(stop))?;
            owned.pending += 1;
        }
        self.save_group(place.lane, group_at, &group_before, &group)?;
        self.save_consumer(&place, owner, &owner_before, &owned)?;
        Ok(true)
    }

    /// Ends that entries are pending. Returns how many were; 0 if there is no such group.
    ///
    /// # Errors
    /// The key holds another kind of value; the attempt is over.
    pub fn pending_drop(
        &mut self,
        key: Key<'_>,
        group: &[u8],
        ids: &[StreamId],
    ) -> Result<u64, TxError> {
        self.settle(key);
        let Some((group_at, before)) = self.group_at(key, group)? else { return Ok(0) };
        let place = self.place(key);
        let mut group = before;
        for id in ids {
            let lane = self.op.lane(place.lane);
            let found = tree::find(lane, Tree::Pending, group.pending_top, Probe::Id(*id));
            let Some((path, owner)) = found.map(|path| (path, path.item(lane)[2])) else {
                continue;
            };
            let top = tree::remove(&mut self.op, place.lane, group.pending_top, &path);
            group.pending_top = top.map_err(|stop| self.stop(stop))?;
            group.pending -= 1;
            self.disown(&place, owner, *id)?;
        }
        self.save_group(place.lane, group_at, &before, &group)?;
        Ok(before.pending - group.pending)
    }

    /// Takes an entry out of those that a consumer has.
    fn disown(&mut self, place: &Place, owner: u64, id: StreamId) -> Result<(), TxError> {
        let lane = self.op.lane(place.lane);
        let before = ConsumerWords::load(lane, owner);
        let found = tree::find(lane, Tree::Owned, before.pending_top, Probe::Id(id));
        let Some(path) = found else { return Ok(()) };
        let top = tree::remove(&mut self.op, place.lane, before.pending_top, &path);
        let pending_top = top.map_err(|stop| self.stop(stop))?;
        let after = ConsumerWords { pending: before.pending - 1, pending_top, ..before };
        self.save_consumer(place, owner, &before, &after)
    }

    /// The words of a group whose pending entries are new, with their tree.
    pub(super) fn build_pending(
        &mut self,
        place: &Place,
        words: GroupWords,
        items: Vec<Words>,
    ) -> Result<GroupWords, TxError> {
        let top = tree::build(&mut self.op, place.lane, Tree::Pending, items);
        let pending_top = top.map_err(|stop| self.stop(stop))?;
        Ok(GroupWords { pending_top, ..words })
    }
}
