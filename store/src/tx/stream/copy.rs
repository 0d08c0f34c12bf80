//! Copying a stream with its groups.

use std::collections::BTreeMap;

use crate::api::{Expiry, Key};
use crate::error::TxError;
use crate::record::RecordKind;
use crate::store::Place;
use crate::stream::Root;
use crate::stream::chunk::Chunk;
use crate::stream::group::{ConsumerWords, GroupWords};
use crate::stream::node::{Tree, Words};
use crate::stream::tree::{self, Path};
use crate::tx::Tx;

impl Tx<'_> {
    /// Copies a stream, chunk by chunk.
    pub(crate) fn copy_stream(
        &mut self,
        (from, source): (Key<'_>, &Place),
        root: &Root,
        target: &Place,
        to: Key<'_>,
        expiry: Expiry,
    ) -> Result<bool, TxError> {
        if self.copy_built(from, to, expiry)? {
            return Ok(true);
        }
        let mut copy = Root { chunks_top: 0, groups_top: 0, ..*root };
        let mut chunks = Vec::new();
        for mut words in self.entries_of(source, Tree::Chunks, root.chunks_top) {
            let lane = self.op.lane(source.lane);
            let chunk = Chunk::load(lane, words[2]);
            let bytes = chunk.bytes(lane).to_vec();
            words[2] = self.write_chunk_of(target, &mut { chunk.bounds }, &bytes, 0)?;
            chunks.push(words);
        }
        let mut inside = Vec::new();
        if let Some(tail) = root.tail(self.op.lane(source.lane)) {
            let bytes = tail.bytes(self.op.lane(source.lane)).to_vec();
            match tail.object {
                Some(_) => {
                    copy.tail = self.write_chunk_of(target, &mut { tail.bounds }, &bytes, 0)?;
                }
                None => inside = bytes,
            }
        }
        let top = tree::build(&mut self.op, target.lane, Tree::Chunks, chunks);
        copy.chunks_top = top.map_err(|stop| self.stop(stop))?;
        let mut groups = Vec::new();
        for words in self.entries_of(source, Tree::Groups, root.groups_top) {
            let group = self.copy_group(source, words[0], target)?;
            groups.push([group, 0, 0, 0, 0]);
        }
        let top = tree::build(&mut self.op, target.lane, Tree::Groups, groups);
        copy.groups_top = top.map_err(|stop| self.stop(stop))?;
        self.put_stream(target, to, &copy, &inside, 0, expiry)?;
        Ok(true)
    }

    fn copy_group(&mut self, source: &Place, at: u64, target: &Place) -> Result<u64, TxError> {
        let group = GroupWords::load(self.op.lane(source.lane), at);
        let (mut consumers, mut copies) = (Vec::new(), BTreeMap::new());
        for words in self.entries_of(source, Tree::Consumers, group.consumers_top) {
            let mut consumer = ConsumerWords::load(self.op.lane(source.lane), words[0]);
            let owned = self.entries_of(source, Tree::Owned, consumer.pending_top);
            let top = tree::build(&mut self.op, target.lane, Tree::Owned, owned);
            consumer.pending_top = top.map_err(|stop| self.stop(stop))?;
            let name = self.name_of(source, words[0]);
            let kind = RecordKind::StreamConsumer;
            let copy = self.write_named(target, kind, &consumer.words(), &name)?;
            copies.insert(words[0], copy);
            consumers.push([copy, 0, 0, 0, 0]);
        }
        let mut pending = self.entries_of(source, Tree::Pending, group.pending_top);
        for words in &mut pending {
            words[2] = copies.get(&words[2]).copied().unwrap_or(0);
        }
        let mut copy = self.build_pending(target, group, pending)?;
        let top = tree::build(&mut self.op, target.lane, Tree::Consumers, consumers);
        copy.consumers_top = top.map_err(|stop| self.stop(stop))?;
        let name = self.name_of(source, at);
        self.write_named(target, RecordKind::StreamGroup, &copy.words(), &name)
    }

    /// The entries of a tree's leaves.
    fn entries_of(&self, place: &Place, tree: Tree, top: u64) -> Vec<Words> {
        let lane = self.op.lane(place.lane);
        let (mut all, mut at) = (Vec::new(), None);
        if top != 0 {
            at = Some(Path::to_end(lane, tree, top, true));
        }
        while let Some(path) = &mut at {
            all.push(path.item(lane));
            if !path.step(lane, false) {
                break;
            }
        }
        all
    }
}
