//! Consumer groups of a stream, and their consumers. As in Redis, who watches the key is not told
//! of changes of its groups: they are not changes of what the key holds.

use std::ops::ControlFlow;

use perdura_slots::LaneId;

use crate::api::Key;
use crate::error::TxError;
use crate::record::RecordKind;
use crate::store::Place;
use crate::stream::StreamId;
use crate::stream::chunk::part_header;
use crate::stream::group::{AT_WORDS, ConsumerWords, GroupWords, name_at};
use crate::stream::node::{Probe, Tree, Words};
use crate::stream::pieces::Piece;
use crate::stream::tree;
use crate::tx::stream::bytes_of;
use crate::tx::{Tx, check_value};

impl Tx<'_> {
    /// Adds a group to a stream. Returns whether there is such a stream and the group is new.
    ///
    /// # Errors
    /// The key holds another kind of value; the attempt is over.
    pub fn group_create(
        &mut self,
        key: Key<'_>,
        name: &[u8],
        last_id: StreamId,
        entries_read: Option<u64>,
    ) -> Result<bool, TxError> {
        self.settle(key);
        check_value(name.len() as u64)?;
        let Some(before) = self.stream_root(key)? else { return Ok(false) };
        if self.group_at(key, name)?.is_some() {
            return Ok(false);
        }
        let place = self.place(key);
        let (pending, pending_top, consumers_top) = (0, 0, 0);
        let words = GroupWords { last_id, entries_read, pending, pending_top, consumers_top };
        let group = self.write_named(&place, RecordKind::StreamGroup, &words.words(), name)?;
        let mut root = before;
        let item: Words = [group, 0, 0, 0, 0];
        let top = tree::insert(&mut self.op, place.lane, Tree::Groups, root.groups_top, item);
        root.groups_top = top.map_err(|stop| self.stop(stop))?;
        self.save_stream(place.lane, &before, &root)?;
        Ok(true)
    }

    /// Sets the ID up to which a group has got entries, and the number of these. Returns whether
    /// there is such a group.
    ///
    /// # Errors
    /// The key holds another kind of value; the attempt is over.
    pub fn group_set(
        &mut self,
        key: Key<'_>,
        name: &[u8],
        last_id: StreamId,
        entries_read: Option<u64>,
    ) -> Result<bool, TxError> {
        self.settle(key);
        let Some((at, before)) = self.group_at(key, name)? else { return Ok(false) };
        let lane = self.place(key).lane;
        self.save_group(lane, at, &before, &GroupWords { last_id, entries_read, ..before })?;
        Ok(true)
    }

    /// Removes a group with its consumers. Returns whether there was such a group.
    ///
    /// # Errors
    /// The key holds another kind of value; the attempt is over.
    pub fn group_destroy(&mut self, key: Key<'_>, name: &[u8]) -> Result<bool, TxError> {
        self.settle(key);
        let Some(before) = self.stream_root(key)? else { return Ok(false) };
        let place = self.place(key);
        let lane = self.op.lane(place.lane);
        let found = tree::find(lane, Tree::Groups, before.groups_top, Probe::Name(name));
        let Some(path) = found else { return Ok(false) };
        let group = path.item(lane)[0];
        let mut root = before;
        let top = tree::remove(&mut self.op, place.lane, root.groups_top, &path);
        root.groups_top = top.map_err(|stop| self.stop(stop))?;
        self.detach_stream(place.lane, vec![Piece::Group(group)]);
        self.save_stream(place.lane, &before, &root)?;
        Ok(true)
    }

    /// Adds a consumer to a group, seen at this time. Returns whether there is such a group and the
    /// consumer is new.
    ///
    /// # Errors
    /// The key holds another kind of value; the attempt is over.
    pub fn consumer_create(
        &mut self,
        key: Key<'_>,
        group: &[u8],
        name: &[u8],
        seen_ms: u64,
    ) -> Result<bool, TxError> {
        self.settle(key);
        check_value(name.len() as u64)?;
        let Some((at, before)) = self.group_at(key, group)? else { return Ok(false) };
        let place = self.place(key);
        if self.consumer_at(&place, &before, name).is_some() {
            return Ok(false);
        }
        let words = ConsumerWords { seen_ms, active_ms: None, pending: 0, pending_top: 0 };
        let consumer =
            self.write_named(&place, RecordKind::StreamConsumer, &words.words(), name)?;
        let (mut after, item) = (before, [consumer, 0, 0, 0, 0]);
        let top =
            tree::insert(&mut self.op, place.lane, Tree::Consumers, after.consumers_top, item);
        after.consumers_top = top.map_err(|stop| self.stop(stop))?;
        self.save_group(place.lane, at, &before, &after)?;
        Ok(true)
    }

    /// Removes a consumer with its pending entries, and returns how many these were; `None` if
    /// there is no such consumer.
    ///
    /// # Errors
    /// The key holds another kind of value; the attempt is over.
    pub fn consumer_delete(
        &mut self,
        key: Key<'_>,
        group: &[u8],
        name: &[u8],
    ) -> Result<Option<u64>, TxError> {
        self.settle(key);
        let Some((at, before)) = self.group_at(key, group)? else { return Ok(None) };
        let place = self.place(key);
        let lane = self.op.lane(place.lane);
        let found = tree::find(lane, Tree::Consumers, before.consumers_top, Probe::Name(name));
        let Some(path) = found else { return Ok(None) };
        let consumer = path.item(lane)[0];
        let mut ids = Vec::new();
        if let Some(consumer) = self.stream(key)?.and_then(|s| s.group(group)?.consumer(name)) {
            consumer.pending_from(StreamId::MIN, &mut |id| {
                ids.push(id);
                ControlFlow::Continue(())
            });
        }
        let mut after = before;
        for id in &ids {
            let lane = self.op.lane(place.lane);
            let found = tree::find(lane, Tree::Pending, after.pending_top, Probe::Id(*id));
            let Some(path) = found else { continue };
            let top = tree::remove(&mut self.op, place.lane, after.pending_top, &path);
            after.pending_top = top.map_err(|stop| self.stop(stop))?;
            after.pending -= 1;
        }
        let top = tree::remove(&mut self.op, place.lane, after.consumers_top, &path);
        after.consumers_top = top.map_err(|stop| self.stop(stop))?;
        self.detach_stream(place.lane, vec![Piece::Consumer(consumer)]);
        self.save_group(place.lane, at, &before, &after)?;
        Ok(Some(ids.len() as u64))
    }

    /// Sets when a consumer asked last and, if it got something, that it was active then. Returns
    /// whether there is such a consumer.
    ///
    /// # Errors
    /// The key holds another kind of value; the attempt is over.
    pub fn consumer_seen(
        &mut self,
        key: Key<'_>,
        group: &[u8],
        name: &[u8],
        seen_ms: u64,
        was_active: bool,
    ) -> Result<bool, TxError> {
        self.settle(key);
        let Some((_, words)) = self.group_at(key, group)? else { return Ok(false) };
        let place = self.place(key);
        let Some((at, before)) = self.consumer_at(&place, &words, name) else { return Ok(false) };
        let active_ms = if was_active { Some(seen_ms) } else { before.active_ms };
        let after = ConsumerWords { seen_ms, active_ms, ..before };
        self.save_consumer(&place, at, &before, &after)?;
        Ok(true)
    }

    /// Where a group is, and its words.
    pub(super) fn group_at(
        &self,
        key: Key<'_>,
        name: &[u8],
    ) -> Result<Option<(u64, GroupWords)>, TxError> {
        let group = self.stream(key)?.and_then(|stream| stream.group(name));
        Ok(group.map(|group| (group.at, group.words)))
    }

    /// Where a consumer is, and its words.
    pub(super) fn consumer_at(
        &self,
        place: &Place,
        group: &GroupWords,
        name: &[u8],
    ) -> Option<(u64, ConsumerWords)> {
        let lane = self.op.lane(place.lane);
        let path = tree::find(lane, Tree::Consumers, group.consumers_top, Probe::Name(name))?;
        let at = path.item(lane)[0];
        Some((at, ConsumerWords::load(lane, at)))
    }

    pub(super) fn save_group(
        &mut self,
        lane: LaneId,
        at: u64,
        before: &GroupWords,
        after: &GroupWords,
    ) -> Result<(), TxError> {
        self.save_words(lane, at + AT_WORDS, &before.words(), &after.words())
    }

    pub(super) fn save_consumer(
        &mut self,
        place: &Place,
        at: u64,
        before: &ConsumerWords,
        after: &ConsumerWords,
    ) -> Result<(), TxError> {
        self.save_words(place.lane, at + AT_WORDS, &before.words(), &after.words())
    }

    /// Writes a group or a consumer to which no reference leads yet.
    pub(super) fn write_named(
        &mut self,
        place: &Place,
        kind: RecordKind,
        words: &[u64],
        name: &[u8],
    ) -> Result<u64, TxError> {
        let header = part_header(kind, (8 * words.len() + name.len()) as u64);
        self.write_part(place.lane, header, &[&bytes_of(words), name], 0)
    }

    /// The name of a group or a consumer, copied.
    pub(super) fn name_of(&self, place: &Place, at: u64) -> Vec<u8> {
        name_at(self.op.lane(place.lane), at).to_vec()
    }
}
