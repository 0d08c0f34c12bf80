//! Moving values out of memory, the coldest first, in batches (Sprint-AEP, section III.B and C:
//! synchronisation and eviction).

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;

use perdura_region::Planted;
use perdura_store::{EmptyingRun, FarCursor, FarStorage, FoundRun, Store, StoreError, Unreadable};

use super::batch::Batch;
use super::device::FarDevice;
use super::error::MoveError;
use super::format::Record;
use super::members::{Devices, Progress, target};
use super::policy::{Level, Memory, Sample};

/// Buckets of the index that are looked at under one hold of a shard.
const BUCKETS_PER_HOLD: u64 = 16;
/// Fewest bytes that are moved at a time, so that a device is written to in long runs.
const MOVE_BYTES_MIN: u64 = 1 << 20;
/// Most bytes that the records of one run of slots take in a batch, about.
const RUN_BYTES_MAX: usize = 256 << 10;
/// Values of a run that are counted when it is looked at, whatever it has.
const VALUES_PER_RUN: u64 = 32;
/// Time between two looks at memory, if nobody asks for one.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Time between two looks at the counts of uses.
const AGE_EVERY_NS: u64 = 1_000_000_000;

/// What one step of a mover has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moved {
    /// Values moved out of memory.
    pub values: u64,
    /// Bytes of memory that this freed.
    pub bytes: u64,
    /// Bytes of memory that became free for objects of any size, by emptying runs of slots.
    pub span_bytes: u64,
    /// Whether memory was so full that values were to be moved.
    pub is_due: bool,
    /// Values that stayed, because there was no memory for their addresses.
    pub without_memory: u64,
    /// Segments of devices emptied.
    pub segments: u64,
    /// Values moved from one place of a device to another.
    pub moved_on: u64,
}

/// Moves values between memory and devices. A store has one.
pub struct Mover {
    pub(crate) devices: Arc<Devices>,
    cursor: FarCursor,
    /// Region offset from which on a run of slots is looked for.
    run_cursor: u64,
    level: Level,
    /// Batches that are not written yet, for the members with the same index.
    pub(crate) batches: Vec<Batch>,
    aged_ns: u64,
    sample: Sample,
}

impl Mover {
    /// A mover of the values of the store that has these devices.
    pub fn new(devices: Arc<Devices>) -> Self {
        let (cursor, level) = (FarCursor::default(), Level::default());
        let (batches, sample) = (Vec::new(), Sample::default());
        Self { devices, cursor, run_cursor: 0, level, batches, aged_ns: 0, sample }
    }

    /// Starts a thread that moves values as long as the store is open.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(mut self, store: Weak<Store>) -> std::io::Result<()> {
        self.devices.progress.lock().has_mover = true;
        std::thread::Builder::new().name("mover".into()).spawn(move || {
            let _ending = Ending(Arc::clone(&self.devices));
            let (mut is_busy, mut pause) = (false, LOOK_EVERY);
            loop {
                let mut progress = self.devices.progress.lock();
                if !is_busy && !progress.is_wanted {
                    self.devices.wanted.wait_for(&mut progress, pause);
                }
                // Whoever asks from here on waits for the step after this one.
                let is_wanted = std::mem::take(&mut progress.is_wanted);
                drop(progress);
                let Some(store) = store.upgrade() else { break };
                if store.region().check_open().is_err() {
                    // The final flush has begun: whatever is in memory is written by that.
                    break;
                }
                let (moved, outcome) = self.step(&store, is_wanted);
                drop(store);
                let mut progress = self.devices.progress.lock();
                is_busy = note(&mut progress, &moved, outcome, is_wanted);
                // A look that finds memory full and nothing to move is long: the next one can wait.
                let is_vain = moved.is_due && !is_busy;
                pause = if is_vain { (pause * 2).min(LOOK_EVERY * 64) } else { LOOK_EVERY };
                self.devices.moved.notify_all();
            }
        })?;
        Ok(())
    }

    /// Looks once at memory and devices, and moves what is due; some values in any case if
    /// `is_wanted`. Returns what was moved, and why that is not all: values that were not moved
    /// stay where they are.
    pub fn step(&mut self, store: &Store, is_wanted: bool) -> (Moved, Result<(), MoveError>) {
        let mut moved = Moved::default();
        let outcome = match store.all_far_found() {
            None => Ok(()),
            Some(false) => Err(MoveError::NotSearched),
            // Memory that cannot be read must not end the mover.
            Some(true) => {
                let due = || self.move_due(store, is_wanted, &mut moved);
                Unreadable::catch(due).unwrap_or_else(|error| Err(error.into()))
            }
        };
        (moved, outcome)
    }

    fn move_due(
        &mut self,
        store: &Store,
        is_wanted: bool,
        moved: &mut Moved,
    ) -> Result<(), MoveError> {
        let now_ns = self.devices.clock.now_ns();
        if now_ns.saturating_sub(self.aged_ns) >= AGE_EVERY_NS {
            self.aged_ns = now_ns;
            store.age_uses();
        }
        self.devices.look_at_roles(&self.devices.members(), now_ns);
        let least = if is_wanted { MOVE_BYTES_MIN } else { 0 };
        let memory = memory(store);
        let policy = &self.devices.policy;
        let (wanted, span_bytes) = (policy.bytes_to_move(memory), policy.spans_to_free(memory));
        moved.is_due = span_bytes > 0 || wanted > 0;
        if span_bytes > 0 || is_wanted {
            self.empty_runs(store, span_bytes.max(least), moved)?;
        } else if wanted > 0 {
            self.evict(store, wanted.max(MOVE_BYTES_MIN), moved)?;
        } else {
            // There is room: what is read may come back sooner, until there is none.
            self.level = self.level.lower();
            self.devices.uses_to_return.store(self.level.uses_to_return(), Relaxed);
        }
        self.compact(store, moved)
    }

    /// Moves values until about so many bytes of memory are free, or every value was looked at.
    fn evict(&mut self, store: &Store, wanted: u64, moved: &mut Moved) -> Result<(), MoveError> {
        let mut rounds = 0;
        while moved.bytes < wanted && moved.without_memory == 0 {
            let members = self.devices.members();
            if !members.iter().any(|member| member.takes_values() && !is_full(member)) {
                return Ok(());
            }
            self.devices.assign_roles(&members);
            let has_come_round = self.gather(store, &members, wanted - moved.bytes);
            self.write_batches(store, &members, false, moved)?;
            if has_come_round {
                rounds += 1;
                self.level = self.level.raise();
            }
            // At the highest level everything that can be moved has been.
            if rounds > u8::BITS + 1 {
                return Ok(());
            }
        }
        self.devices.uses_to_return.store(self.level.uses_to_return(), Relaxed);
        Ok(())
    }

    /// Copies cold values into the batches of their devices until these free `wanted` bytes of
    /// memory or one is full. Returns whether the end of the index was passed.
    fn gather(&mut self, store: &Store, members: &[Arc<FarDevice>], wanted: u64) -> bool {
        self.prepare(members);
        let (mut gathered, mut is_one_full) = (0, false);
        let sample = &mut self.sample;
        let (level, max) = (self.level, self.devices.policy.value_bytes_max as usize);
        while gathered < wanted && !is_one_full {
            let goes_on = store.near_values(&mut self.cursor, BUCKETS_PER_HOLD, |near| {
                sample.looked += 1;
                sample.cold += u64::from(level.moves(near.uses));
                if !level.moves(near.uses) || near.value.len() > max || gathered >= wanted {
                    return;
                }
                let Some(index) = target(members, near.key.db, near.key.bytes) else { return };
                let batch = &mut self.batches[index];
                if !batch.fits(near.key.bytes.len(), near.value.len()) {
                    is_one_full = true;
                    return;
                }
                let (key, kind, value) = (near.key, near.kind, near.value);
                let record = Record { db: key.db, kind, key: key.bytes, value };
                batch.push(record, None, near.memory_bytes);
                gathered += near.memory_bytes;
            });
            if !goes_on {
                return true;
            }
        }
        self.level = self.sample.judge(self.level);
        false
    }

    /// Moves all values of runs of slots until so many bytes are free for anything, or every run
    /// was looked at.
    fn empty_runs(
        &mut self,
        store: &Store,
        wanted: u64,
        moved: &mut Moved,
    ) -> Result<(), MoveError> {
        let (mut freed, mut rounds, most) = (0, 0, store.emptying_bytes_max());
        while freed < wanted && rounds <= u8::BITS + 1 {
            let (freed_before, short_before) = (freed, moved.without_memory);
            let members = self.devices.members();
            if !members.iter().any(|member| member.takes_values() && !is_full(member)) {
                return Ok(());
            }
            self.devices.assign_roles(&members);
            self.prepare(&members);
            let mut emptying = Emptying { store, runs: Vec::new() };
            let mut emptying_bytes = 0;
            while freed + emptying_bytes < wanted
                && emptying_bytes < most
                && self.has_room_for_a_run()
            {
                let (level, max) = (self.level, self.devices.policy.value_bytes_max as usize);
                let batches = &mut self.batches;
                let moves = |uses, value_bytes| level.moves(uses) && value_bytes <= max;
                let found = store.begin_emptying(&mut self.run_cursor, moves, |near| {
                    let key = near.key;
                    let Some(index) = target(&members, key.db, key.bytes) else { return };
                    let (kind, value) = (near.kind, near.value);
                    let record = Record { db: key.db, kind, key: key.bytes, value };
                    if batches[index].fits(key.bytes.len(), value.len()) {
                        batches[index].push(record, None, near.memory_bytes);
                    }
                });
                match found {
                    FoundRun::Emptying(run) => {
                        self.sample.cold += VALUES_PER_RUN;
                        self.sample.looked += VALUES_PER_RUN;
                        emptying_bytes += run.len_bytes();
                        emptying.runs.push(run);
                    }
                    FoundRun::Other => self.sample.looked += VALUES_PER_RUN,
                    FoundRun::End => {
                        rounds += 1;
                        self.level = self.level.raise();
                        break;
                    }
                }
            }
            let mut written = self.write_batches(store, &members, true, moved);
            while let Some(run) = emptying.runs.pop() {
                match store.end_emptying(run) {
                    Ok(bytes) => freed += bytes,
                    Err(StoreError::OutOfMemory { .. }) => {}
                    Err(error) => written = written.and(Err(error.into())),
                }
            }
            self.level = self.sample.judge(self.level);
            moved.span_bytes += freed - freed_before;
            written?;
            if freed == freed_before && moved.without_memory > short_before {
                // Not even the reserve has room for addresses: more of this would only fill
                // devices with values that stay in memory.
                break;
            }
        }
        self.devices.uses_to_return.store(self.level.uses_to_return(), Relaxed);
        Ok(())
    }

    /// Whether all values of any run of slots fit each batch.
    fn has_room_for_a_run(&self) -> bool {
        self.batches
            .iter()
            .all(|batch| batch.room_bytes() >= RUN_BYTES_MAX.min(batch.capacity() / 2))
    }

    /// Makes an empty batch for each member.
    pub(crate) fn prepare(&mut self, members: &[Arc<FarDevice>]) {
        for (index, member) in members.iter().enumerate() {
            let segment_bytes = member.superblock.segment_bytes;
            match self.batches.get_mut(index) {
                Some(batch) if batch.capacity() as u64 == segment_bytes => batch.clear(),
                Some(batch) => *batch = Batch::new(segment_bytes),
                None => self.batches.push(Batch::new(segment_bytes)),
            }
        }
    }

    /// Writes the batches to their devices, all at a time, and lets the store's keys lead there.
    pub(crate) fn write_batches(
        &mut self,
        store: &Store,
        members: &[Arc<FarDevice>],
        empties_runs: bool,
        moved: &mut Moved,
    ) -> Result<(), MoveError> {
        let planted = store.region().planted();
        let flushes = !planted.is(Planted::FarBeforeFlush);
        let keeps_refused = planted.is(Planted::FarRefusedBatch);
        let mut due: Vec<_> =
            members.iter().zip(&mut self.batches).filter(|(_, batch)| !batch.is_empty()).collect();
        let write = |(member, batch): &mut (&Arc<FarDevice>, &mut Batch)| {
            match batch.write(member, flushes) {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => member.fail(&error),
            }
            // The values stay where they are, and go elsewhere next time.
            if !keeps_refused {
                batch.clear();
            }
        };
        if !self.devices.policy.is_parallel {
            due.iter_mut().for_each(write);
            due.clear();
        }
        std::thread::scope(|scope| {
            let Some((last, others)) = due.split_last_mut() else { return };
            others.iter_mut().for_each(|one| drop(scope.spawn(|| write(one))));
            write(last);
        });
        let mut refused = None;
        for written in self.batches[..members.len()].iter().flat_map(Batch::written) {
            let done = match (&refused, written.from) {
                (Some(_), _) => Ok(false),
                (None, None) => {
                    store.make_far(written.key, written.value, written.at, empties_runs)
                }
                (None, Some(from)) => store.move_far(written.key, from, written.at),
            };
            match done {
                Ok(true) if written.from.is_some() => moved.moved_on += 1,
                Ok(true) => {
                    moved.values += 1;
                    moved.bytes += written.memory_bytes;
                }
                Ok(false) => self.devices.freed(written.at, true),
                // A shard may have no memory for the address while others have.
                Err(StoreError::OutOfMemory { .. }) => {
                    moved.without_memory += 1;
                    self.devices.freed(written.at, true);
                }
                Err(error) => {
                    self.devices.freed(written.at, true);
                    refused = Some(error);
                }
            }
        }
        self.batches.iter_mut().for_each(Batch::clear);
        refused.map_or(Ok(()), |error| Err(error.into()))
    }
}

/// Runs that are being emptied. Whatever happens, none of them stays frozen.
struct Emptying<'s> {
    store: &'s Store,
    runs: Vec<EmptyingRun>,
}

impl Drop for Emptying<'_> {
    fn drop(&mut self) {
        self.runs.drain(..).for_each(|run| self.store.give_up_emptying(run));
    }
}

/// Tells those who wait for room, when the mover's thread ends in any way.
struct Ending(Arc<Devices>);

impl Drop for Ending {
    fn drop(&mut self) {
        let mut progress = self.0.progress.lock();
        (progress.has_mover, progress.is_over) = (false, true);
        self.0.moved.notify_all();
    }
}

/// The store's memory now.
fn memory(store: &Store) -> Memory {
    let span_bytes = store.stats().free_bytes;
    let free_bytes = span_bytes + store.heap().free_slot_bytes();
    let (region_bytes, reserve_bytes) = (store.region().len_bytes(), store.reserve_bytes());
    Memory { region_bytes, free_bytes, span_bytes, reserve_bytes }
}

fn is_full(member: &FarDevice) -> bool {
    member.is_full.load(Relaxed)
}

/// Notes what a step has done. Returns whether the next step is due at once.
fn note(
    progress: &mut Progress,
    moved: &Moved,
    outcome: Result<(), MoveError>,
    was_wanted: bool,
) -> bool {
    progress.values += moved.values;
    progress.bytes += moved.bytes;
    progress.segments += moved.segments;
    progress.moved_on += moved.moved_on;
    let error = outcome.err().map(|error| error.to_string());
    if let Some(error) = &error
        && progress.last_error.as_ref() != Some(error)
    {
        tracing::warn!(error, "values could not be moved");
    }
    progress.last_error = error;
    let has_moved = moved.bytes > 0 || moved.segments > 0;
    if was_wanted && !has_moved {
        progress.failures += 1;
    }
    has_moved
}
