//! Emptying whole runs of slots of values that are better far.
//!
//! Values that are moved one by one leave free slots of their own size all over memory, and no span
//! for the addresses that take their places. So where spans are short, all values of a run of slots
//! are moved: those used least to a device, the others to other slots.

use perdura_slots::{Lane, Run};

use crate::api::{Access, Key};
use crate::entry::Entry;
use crate::error::StoreError;
use crate::far::{FAR_VALUE_BYTES_MIN, NearValue};
use crate::rebuild::reserve_bytes;
use crate::record::{Header, RecordKind, hash_key};
use crate::run::Patience;
use crate::store::{Store, find};

/// Fewest bytes of a slot that may hold a value worth moving.
const SLOT_BYTES_MIN: u64 = 96;

/// A run that is being emptied: no slot of it is handed out until [`Store::end_emptying`].
#[derive(Debug)]
pub struct EmptyingRun {
    run: Run,
    /// Keys whose values go to other slots, each with its database.
    staying: Vec<(u8, Box<[u8]>)>,
}

/// What was found where a run was looked for.
#[derive(Debug)]
pub enum FoundRun {
    /// A run that is being emptied now.
    Emptying(EmptyingRun),
    /// A run that is better left alone.
    Other,
    /// The end of memory.
    End,
}

impl EmptyingRun {
    /// Bytes of memory that the run takes.
    pub fn len_bytes(&self) -> u64 {
        self.run.len_bytes
    }
}

impl Store {
    /// Bytes of free memory that only who empties runs of slots may use.
    pub fn reserve_bytes(&self) -> u64 {
        reserve_bytes(self.region().len_bytes(), self.heap.shards())
    }

    /// Most bytes of runs that are to be emptied at a time: their addresses have room in the
    /// reserve, even if they take as much memory as the values.
    pub fn emptying_bytes_max(&self) -> u64 {
        self.reserve_bytes() / 2
    }

    /// Looks at the first run of slots at region offset `from` or behind it, and moves `from`
    /// behind that. The run is emptied if it has values only and `moves` says of at least half of
    /// them, by their uses and their bytes, that they are to be far: `f` is called with these.
    pub fn begin_emptying(
        &self,
        from: &mut u64,
        moves: impl Fn(u8, usize) -> bool,
        mut f: impl FnMut(NearValue<'_>),
    ) -> FoundRun {
        let Some(far) = &self.far else { return FoundRun::End };
        let Some(run) = self.heap.run_from(*from) else {
            *from = 0;
            return FoundRun::End;
        };
        *from = run.offset + run.len_bytes;
        if run.slot_bytes < SLOT_BYTES_MIN || run.used == 0 {
            return FoundRun::Other;
        }
        let mut lane = self.heap.lock(run.lane);
        if !lane.has_run(&run) {
            return FoundRun::Other;
        }
        let is_cold = |entry: &Entry<'_>| {
            let uses = far.uses.of(hash_key(entry.header.db, entry.key()));
            u64::from(entry.header.value_len) >= FAR_VALUE_BYTES_MIN
                && moves(uses, entry.header.value_len as usize)
        };
        let records: Vec<u64> =
            run.slots().filter(|slot| self.is_movable_at(&lane, &run, *slot)).collect();
        let cold = records.iter().filter(|at| is_cold(&Entry::new(&lane, **at))).count();
        let is_whole = records.len() as u32 == lane.used_slots(&run);
        if !is_whole || cold * 2 < records.len() || !lane.freeze_run(&run) {
            return FoundRun::Other;
        }
        let mut staying = Vec::new();
        for at in records {
            let entry = Entry::new(&lane, at);
            if !is_cold(&entry) {
                staying.push((entry.header.db, entry.key().into()));
                continue;
            }
            f(NearValue {
                key: Key { db: entry.header.db, bytes: entry.key() },
                kind: entry.header.kind as u8,
                value: entry.value(),
                uses: 0,
                memory_bytes: run.slot_bytes,
            });
        }
        FoundRun::Emptying(EmptyingRun { run, staying })
    }

    /// Ends the emptying of a run, after its cold values were made far: the others get other slots.
    /// Returns the bytes that are free for anything then.
    ///
    /// # Errors
    /// The errors of [`Store::run`]. The run is used again as it is.
    pub fn end_emptying(&self, emptying: EmptyingRun) -> Result<u64, StoreError> {
        let EmptyingRun { run, staying } = emptying;
        let moved = staying
            .iter()
            .try_for_each(|(db, bytes)| self.change_slot(Key { db: *db, bytes }, &run));
        let mut lane = self.heap.lock(run.lane);
        let is_empty = lane.thaw_run(&run);
        drop(lane);
        moved.map(|()| if is_empty { run.len_bytes } else { 0 })
    }

    /// Gives up the emptying of a run: it is used again as it is.
    pub fn give_up_emptying(&self, emptying: EmptyingRun) {
        self.heap.lock(emptying.run.lane).thaw_run(&emptying.run);
    }

    /// Writes a value that lies in a run to another slot.
    pub(crate) fn change_slot(&self, key: Key<'_>, run: &Run) -> Result<(), StoreError> {
        self.run_with(Access::Key(key), Patience::ForBudgetFromReserve, |tx| {
            let Some((at, kind)) = tx.record_at(key) else { return Ok(()) };
            if !(run.offset..run.offset + run.len_bytes).contains(&at) {
                return Ok(());
            }
            let value = tx.near_at(key, kind as u8).map(<[u8]>::to_vec);
            value.map_or(Ok(()), |value| tx.replace(key, kind, &value))
        })
    }

    /// Whether the record of a key that can be moved lies in a slot. A slot may hold anything,
    /// also the bytes of an object that was freed: the index decides.
    pub(crate) fn is_movable_at(&self, lane: &Lane<'_>, run: &Run, slot: u64) -> bool {
        let Ok(header) = Header::try_load(lane, slot) else { return false };
        let is_within = header.len_bytes() <= run.slot_bytes;
        let is_movable = is_within
            && header.db < crate::api::DATABASES
            && RecordKind::of_far_value(header.kind as u8).is_some();
        if !is_movable {
            return false;
        }
        let bytes = lane.bytes(slot + header.head_bytes(), usize::from(header.key_len));
        let place = self.place(Key { db: header.db, bytes });
        place.lane == lane.id()
            && find(lane, &place, Key { db: header.db, bytes })
                .is_some_and(|found| found.record() == slot)
    }
}
