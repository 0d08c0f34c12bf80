//! Operations on streams.
//!
//! Every way by which a key gets a stream ends in [`Tx::put_stream`]; every way by which a stream
//! gets an entry in [`Tx::stream_add`] or in a copy. So these, and the commit in `Tx::end`, are
//! where a key is known to have got an entry.

mod append;
mod copy;
mod delete;
mod groups;
mod pending;
mod put;

use perdura_slots::{Heat, LaneId};

use crate::api::{Expiry, Key, Kind};
use crate::error::{TxError, WrongType};
use crate::record::{Header, RecordKind};
use crate::shard::Detached;
use crate::store::Place;
use crate::stream::pieces::Piece;
use crate::stream::{Root, Stream, StreamId};
use crate::tx::Tx;
use crate::tx::records::padding;

pub use append::ChunkLimits;
pub use delete::{StreamTrim, TrimTo};
pub use pending::Delivery;
pub use put::StreamPart;

impl Tx<'_> {
    /// The key's stream; `None` if there is no such key.
    ///
    /// # Errors
    /// The key holds another kind of value.
    pub fn stream(&self, key: Key<'_>) -> Result<Option<Stream<'_>>, TxError> {
        match self.get(key) {
            Some(entry) if entry.kind != Kind::Stream => Err(WrongType.into()),
            other => Ok(other.and_then(|entry| entry.stream())),
        }
    }

    /// Makes the key a stream without entries, if there is no such key.
    ///
    /// # Errors
    /// The key holds another kind of value; the attempt is over.
    pub fn stream_create(&mut self, key: Key<'_>) -> Result<(), TxError> {
        if self.stream(key)?.is_some() {
            return Ok(());
        }
        let place = self.place(key);
        self.put_stream(&place, key, &Root::empty(), &[], 0, Expiry::None)
    }

    /// Sets what a stream says of the entries that it got. Returns whether there is such a stream.
    ///
    /// # Errors
    /// The key holds another kind of value; the attempt is over.
    pub fn stream_set(
        &mut self,
        key: Key<'_>,
        last_id: StreamId,
        added: Option<u64>,
        max_deleted: Option<StreamId>,
    ) -> Result<bool, TxError> {
        let Some(before) = self.stream_root(key)? else { return Ok(false) };
        let mut root = before;
        root.last_id = last_id;
        root.added = added.unwrap_or(root.added);
        root.max_deleted = max_deleted.unwrap_or(root.max_deleted);
        self.touch(key);
        let lane = self.place(key).lane;
        self.save_stream(lane, &before, &root)?;
        Ok(true)
    }

    fn stream_root(&self, key: Key<'_>) -> Result<Option<Root>, TxError> {
        Ok(self.stream(key)?.map(|stream| stream.root))
    }

    /// Makes the key a stream with a new record, whose last chunk may lie `inside`.
    fn put_stream(
        &mut self,
        place: &Place,
        key: Key<'_>,
        root: &Root,
        inside: &[u8],
        slack_bytes: u64,
        expiry: Expiry,
    ) -> Result<(), TxError> {
        let words = bytes_of(&root.words());
        let value = [padding(key), &words[..], inside];
        self.put_record(place, key, RecordKind::Stream, &value, expiry, slack_bytes)
    }

    /// Gives a stream another record, which has all that the one before leads to.
    fn move_stream(
        &mut self,
        place: &Place,
        key: Key<'_>,
        root: &Root,
        inside: &[u8],
        slack_bytes: u64,
    ) -> Result<(), TxError> {
        let Some(found) = self.find(place, key) else { return Err(TxError::Again) };
        let before = self.raw(place, &found).header;
        let words = bytes_of(&root.words());
        let value = [padding(key), &words[..], inside];
        let value_len: usize = value.iter().map(|part| part.len()).sum();
        let header = Header { value_len: value_len as u32, ..before };
        let heat = self.op.lane(place.lane).heat_of_successor(found.record());
        let record = self.write(place.lane, header, key.bytes, &value, slack_bytes, heat)?;
        self.link(place.lane, key, found.at, found.replaced(record, &header))?;
        self.op.free(found.record());
        Ok(())
    }

    /// Stores the words of a root that have changed.
    fn save_stream(&mut self, lane: LaneId, before: &Root, root: &Root) -> Result<(), TxError> {
        self.save_words(lane, before.at, &before.words(), &root.words())
    }

    /// Stores those of some words one behind the other that have changed.
    fn save_words(
        &mut self,
        lane: LaneId,
        at: u64,
        before: &[u64],
        words: &[u64],
    ) -> Result<(), TxError> {
        let differs = |index: &usize| before[*index] != words[*index];
        let Some(from) = (0..words.len()).find(differs) else { return Ok(()) };
        let to = (0..words.len()).rfind(differs).map_or(from, |last| last + 1);
        let bytes = bytes_of(&words[from..to]);
        let changed = self.op.overwrite(lane, at + 8 * from as u64, &bytes);
        changed.map_err(|stop| self.stop(stop))
    }

    /// Writes an object of a stream to which no reference leads yet.
    fn write_part(
        &mut self,
        lane: LaneId,
        header: Header,
        parts: &[&[u8]],
        slack_bytes: u64,
    ) -> Result<u64, TxError> {
        self.write(lane, header, &[], parts, slack_bytes, Heat::COLD)
    }

    /// Frees objects of a stream, and all that they lead to, after the commit.
    fn detach_stream(&mut self, lane: LaneId, pieces: Vec<Piece>) {
        if !pieces.is_empty() {
            self.detached.push((lane, Detached::of_stream(pieces)));
        }
    }
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
