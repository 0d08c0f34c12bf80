//! Knows the number of keys after an opening, without reading the records.
//!
//! A database's root has a word for the number of its keys in the shard. The word is written when
//! the number has not changed for a while ([`Store::save_quiet_counts`]), or at the end
//! ([`Store::save_counts`]), and the next operation that changes the number clears the word. Both
//! are logged stores: so the word is zero or right after every kill and every loss, and a busy
//! shard pays for it only once in a while. An opening believes the word; for a shard that was busy
//! when its process died, the entries of the index are counted. The search for free memory, which
//! meets all records anyway, compares its own count with the word's.

use std::sync::atomic::Ordering::{AcqRel, Acquire};

use perdura_region::Planted;
use perdura_slots::{HeapError, Lane, LaneId, LaneSet, Stop};

use crate::api::DATABASES;
use crate::error::{Damaged, OpenError, StoreError, Unreadable};
use crate::key_counts::KeyCount;
use crate::shard::Shard;
use crate::store::Store;
use crate::table::{self, Part};

/// Keys of each database in one shard.
pub(crate) type DbKeys = [KeyCount; DATABASES as usize];

impl Store {
    /// Saves the number of keys of each shard, so that the next opening need not count. Call it
    /// before the region's final flush: it takes no time worth speaking of, for it waits for no
    /// budget, and does nothing while shards are still searched for free memory. A shard whose
    /// number is not saved is counted by the next opening.
    pub fn save_counts(&self) {
        if self.shards_rebuilt() < self.heap.shards() {
            return;
        }
        for lane in self.heap.lanes() {
            let saved = Unreadable::catch(|| self.save_counts_of(lane));
            if !matches!(saved, Ok(Ok(()))) {
                return;
            }
        }
    }

    /// Saves the number of keys of each shard where it has not changed since the last call. A
    /// program that may be killed calls this about ten times a second.
    ///
    /// # Errors
    /// The errors of [`Store::run`]. The shards behind the refused one are not looked at.
    pub fn save_quiet_counts(&self) -> Result<(), StoreError> {
        for lane in self.heap.lanes() {
            if self.key_counts.of(lane).is_due_to_save() {
                self.save_counts_of(lane)?;
            }
        }
        Ok(())
    }

    fn save_counts_of(&self, lane: LaneId) -> Result<(), StoreError> {
        let counts = self.key_counts.of(lane);
        if self.region().check_open().is_err() || !counts.is_known() {
            return Ok(());
        }
        let mut op = self.heap.begin(LaneSet::One(lane), 0);
        let mut saved = [false; DATABASES as usize];
        for (db, saved) in (0..DATABASES).zip(&mut saved) {
            let root = self.root_of(lane, db);
            let is_empty = table::buckets(op.lane(lane), root) == 0;
            let word = if is_empty { Some(0) } else { counts.get(db).to_word() };
            let Some(word) = word else { continue };
            match table::store_len(&mut op, lane, root, word) {
                Ok(()) => *saved = true,
                Err(Stop::Killed) => return Err(StoreError::Killed),
                // Not worth waiting for: the operation is rolled back.
                Err(Stop::Need(_) | Stop::OutOfMemory { .. }) => return Ok(()),
            }
        }
        if let Some(shard) = op.lane_mut(lane).user_mut::<Shard>() {
            shard.dbs.iter_mut().zip(saved).for_each(|(db, saved)| db.is_saved = saved);
        }
        counts.set_saved();
        op.commit().map_err(|_| StoreError::Killed)
    }

    /// Believes the numbers of keys that the roots have. They are known then, of each shard that
    /// has them all.
    pub(crate) fn take_saved_counts(&self) -> Result<(), Damaged> {
        for id in self.heap.lanes() {
            let mut lane = self.heap.lock(id);
            let mut counts = [None; DATABASES as usize];
            for (db, count) in (0..DATABASES).zip(&mut counts) {
                *count = saved_count(&lane, self.root_of(id, db))?;
            }
            if let Some(shard) = lane.user_mut::<Shard>() {
                let saved = counts.iter().map(Option::is_some);
                shard.dbs.iter_mut().zip(saved).for_each(|(db, saved)| db.is_saved = saved);
            }
            if counts.iter().all(Option::is_some) {
                let known = self.key_counts.of(id);
                known.set_known(&counts.map(Option::unwrap_or_default));
                known.set_saved();
            }
        }
        Ok(())
    }

    /// Counts the keys of every shard whose number is not known, and returns when all numbers are
    /// known. Of memory that is not loaded yet only the index is loaded. Keys can be read and
    /// written meanwhile.
    pub fn count_keys(&self) {
        let shards = self.heap.shards();
        let is_known = |lane| self.key_counts.of(lane).is_known();
        if self.shards_counted.load(Acquire) == shards || self.heap.lanes().all(is_known) {
            return;
        }
        while self.shards_counted.load(Acquire) < shards && self.region().check_open().is_ok() {
            let done = self.shards_counted.load(Acquire);
            if let Err(error) = self.count_shard(LaneId(done)) {
                tracing::error!(%error, "the keys of a shard cannot be counted");
            }
            self.shards_counted.fetch_max(done + 1, AcqRel);
        }
    }

    /// Counts the entries of a shard's index, unless their number is known. The shard is held
    /// meanwhile; no record is read.
    fn count_shard(&self, id: LaneId) -> Result<(), OpenError> {
        let count = || {
            let lane = self.heap.lock(id);
            if self.key_counts.of(id).is_known() {
                return Ok(());
            }
            let mut counts = DbKeys::default();
            for (db, count) in (0..DATABASES).zip(&mut counts) {
                *count = self.count_entries(&lane, self.root_of(id, db))?;
            }
            self.note_counted(&lane, &counts)
        };
        Unreadable::catch(count)?
    }

    fn count_entries(&self, lane: &Lane<'_>, root: u64) -> Result<KeyCount, OpenError> {
        let (buckets, words) = (table::buckets(lane, root), table::root_words(lane, root));
        let mut count = KeyCount::default();
        for bucket in 0..buckets {
            // The final flush waits for this shard, on the warning's time.
            self.region().check_open().map_err(HeapError::from)?;
            table::parts_of_bucket(lane, &words, bucket, &mut |part| {
                if let Part::Entry(entry) = part {
                    count.keys += 1;
                    count.with_expiry += u64::from(table::expires(entry));
                }
                Ok::<_, OpenError>(())
            })?;
        }
        Ok(count)
    }

    /// Takes the numbers of keys that were counted while the shard was held. Numbers other than
    /// those that were believed or saved are taken, too, but a program that can plant bugs refuses
    /// them, so that tests catch a wrong word.
    pub(crate) fn note_counted(&self, lane: &Lane<'_>, found: &DbKeys) -> Result<(), OpenError> {
        match self.wrong_count(lane, found)? {
            Some(wrong) if Planted::CAN_PLANT => return Err(wrong.into()),
            Some(wrong) => self.correct(lane.id(), found, &wrong),
            None if self.key_counts.of(lane.id()).is_known() => {}
            None => self.key_counts.of(lane.id()).set_known(found),
        }
        Ok(())
    }

    /// The first number of keys, believed or saved, that is not the one found.
    fn wrong_count(&self, lane: &Lane<'_>, found: &DbKeys) -> Result<Option<Damaged>, Damaged> {
        let counts = self.key_counts.of(lane.id());
        for (db, found) in (0..DATABASES).zip(found) {
            let root = self.root_of(lane.id(), db);
            let saved = saved_count(lane, root)?.is_none_or(|saved| saved == *found);
            let believed = !counts.is_known() || counts.get(db) == *found;
            if !(saved && believed) {
                let value = table::stored_len(lane, root);
                return Ok(Some(Damaged { what: "number of keys", offset: root, value }));
            }
        }
        Ok(None)
    }

    /// Takes the numbers found in place of wrong ones. The wrong word counts as saved, so the next
    /// change clears it, or the number that is saved before that replaces it.
    fn correct(&self, lane: LaneId, found: &DbKeys, wrong: &Damaged) {
        let shard = lane.0;
        tracing::error!(%wrong, shard, ?found, "a number of keys was wrong: those found are taken");
        self.key_counts.of(lane).set_known(found);
    }
}

/// The number of keys that a database's root has; `None` if the number was not saved.
fn saved_count(lane: &Lane<'_>, root: u64) -> Result<Option<KeyCount>, Damaged> {
    let (buckets, word) = (table::buckets(lane, root), table::stored_len(lane, root));
    let damaged = Damaged { what: "number of keys", offset: root, value: word };
    match (buckets, word) {
        (0, 0) => Ok(Some(KeyCount::default())),
        (_, 0) => Ok(None),
        (0, _) => Err(damaged),
        _ => KeyCount::from_word(word).map(Some).ok_or(damaged),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use perdura_media::SimClock;
    use perdura_media::sim::SimDevice;
    use perdura_region::{Config, Region};
    use perdura_slots::Heap;

    use super::*;
    use crate::{Key, StoreOptions};

    #[test]
    fn a_wrong_number_of_keys_is_corrected_in_memory_and_in_the_root() {
        let (device, clock) = (Arc::new(SimDevice::new(0, 1)), Arc::new(SimClock::new(1)));
        let config = Config { lanes: Some(2), thread: false, ..Config::new(24 << 20, 1 << 20) };
        let region = Region::open(device, clock.clone(), config).unwrap();
        let heap = Heap::open(region).unwrap();
        let store = Store::open(heap, clock, StoreOptions::default()).unwrap();
        store.put(Key::new(b"key"), b"value").unwrap();
        let id = store.place(Key::new(b"key")).lane;
        let right: DbKeys = std::array::from_fn(|db| store.key_counts.of(id).get(db as u8));
        let wrong = KeyCount { keys: 77, with_expiry: 5 };
        let saved = || saved_count(&store.heap.lock(id), store.root_of(id, 0)).unwrap();

        store.key_counts.of(id).set(0, wrong);
        store.save_counts();
        assert_eq!(saved(), Some(wrong));
        let found = store.wrong_count(&store.heap.lock(id), &right).unwrap().unwrap();
        store.correct(id, &right, &found);
        assert_eq!((store.len(0), store.keys_with_expiry(0)), (1, 0));
        for _ in 0..2 {
            store.save_quiet_counts().unwrap();
        }
        assert_eq!(saved(), Some(right[0]));
        assert!(store.wrong_count(&store.heap.lock(id), &right).unwrap().is_none());
    }
}
