//! The time between the attempts of one operation: the records that were written already, and the
//! wait for budget or memory.
//!
//! A value larger than a fraction of the budget is never written under one hold of its shard. The
//! attempt that meets such a value ends. The record is written piece by piece into an object to
//! which no reference leads, and the next attempt finds the record by its bytes and only links it.
//! Records of attempts that ended for want of budget are kept the same way.

use perdura_slots::{Lane, LaneId, LaneSet, Need, Stop};

use crate::building::{Built, Whole};
use crate::error::StoreError;
use crate::far::{FarValue, Fetched};
use crate::record::Header;
use crate::store::Store;
use crate::table;

/// Bytes that are staged under one hold of a shard.
const PIECE_BYTES: u64 = 64 << 10;
/// Attempts that leave a staged record unused, until an operation whose values keep changing is
/// given up. Attempts that use all staged records are steps forward, and there are as many as the
/// operation's values need.
const STRAYS_MAX: u32 = 64;
/// Records staged, until values up to twice as large are written under one hold, as far as the
/// budget allows: every attempt reads all staged records again.
const STAGES_PER_DOUBLING: u32 = 16;

/// A record that is written, and to which no reference leads yet.
pub(crate) struct Staged {
    pub lane: LaneId,
    /// Offset of the record.
    pub offset: u64,
    /// Bytes that were asked for the record, slack included.
    pub capacity: u64,
    /// Whether the present attempt has linked the record.
    pub used: bool,
}

/// A record that is to be written outside of an attempt.
pub(crate) struct Stash {
    pub lane: LaneId,
    /// Bytes to ask for the record, slack included.
    pub capacity: u64,
    /// Header, key and value.
    pub bytes: Vec<u8>,
}

/// Why an attempt ended before its commit.
pub(crate) enum Halt {
    /// The heap stopped the attempt.
    Stop(Stop),
    /// A record must be staged.
    Stage(Stash),
    /// A value for a key of this lane must be built.
    Build(LaneId, Whole),
    /// Values must be read that are not in memory.
    Fetch(Vec<FarValue>),
}

/// The state of an operation that lasts from attempt to attempt.
#[derive(Default)]
pub(crate) struct Session {
    pub staged: Vec<Staged>,
    /// Index in `staged` where the search for a record begins: attempts ask for the records in the
    /// order in which they were staged.
    pub hand: usize,
    /// Staged records that the present attempt has linked. Once these are all, no further record
    /// need be searched for.
    taken: usize,
    /// The time in milliseconds since 1970 that all attempts read, so that they do the same.
    pub now_ms: Option<u64>,
    /// Records that were staged one by one, outside of an attempt.
    stages: u32,
    /// Attempts that left a staged record unused.
    strays: u32,
    /// Whether the last attempt wrote records that the next one will find.
    progressed: bool,
    /// Bytes of budget that were last asked for.
    asked_bytes: u64,
    /// Whether free memory was already searched for.
    reclaimed: bool,
    /// Rounds of eviction that were made for the operation.
    evictions: u32,
    /// Values that were read because an attempt needed them.
    pub fetched: Option<Box<Fetched>>,
    /// Values that were built outside of attempts.
    pub built: Vec<Built>,
    /// Whether an attempt has met a value that could have been built outside.
    pub can_build: bool,
    /// Whether all such values are built outside.
    pub builds: bool,
    /// Values that were built and that the next attempt did not ask for.
    pub stray_builds: u32,
    /// Whether the operation is of who makes room in memory, and so never waits for that.
    pub is_movers: bool,
    /// Whether the operation may take spans of the reserve, if there are no others.
    pub may_use_reserve: bool,
    /// Whether the operation may take spans of the reserve.
    pub uses_reserve: bool,
}

impl Session {
    /// Takes a staged record with this header and these bytes behind it; its expiry may differ.
    pub fn take(
        &mut self,
        lane: &Lane<'_>,
        capacity: u64,
        header: &Header,
        parts: &[&[u8]],
    ) -> Option<u64> {
        let count = self.staged.len();
        let steps = if self.taken == count { 0 } else { count };
        for step in 0..steps {
            let index = (self.hand + step) % count;
            let staged = &mut self.staged[index];
            let fits = staged.lane == lane.id() && !staged.used && staged.capacity == capacity;
            if fits && is_equal(lane, staged.offset, header, parts) {
                staged.used = true;
                self.hand = index + 1;
                self.taken += 1;
                return Some(staged.offset);
            }
        }
        None
    }

    /// Keeps the records that an attempt wrote, which has ended early, for the next attempt.
    pub fn keep(&mut self, written: &mut Vec<Staged>) {
        self.strays += u32::from(self.staged.iter().any(|staged| !staged.used));
        self.progressed = !written.is_empty();
        self.staged.append(written);
    }

    /// Prepares for the next attempt.
    pub fn rewind(&mut self) {
        (self.hand, self.taken) = (0, 0);
        self.disuse();
    }

    /// Notes that nothing of what an attempt has used is in use, because it was rolled back.
    pub fn disuse(&mut self) {
        self.staged.iter_mut().for_each(|staged| staged.used = false);
        self.built.iter_mut().for_each(|built| built.used = false);
    }
}

fn is_equal(lane: &Lane<'_>, at: u64, header: &Header, parts: &[&[u8]]) -> bool {
    if Header::load(lane, at).first_word() != header.first_word() {
        return false;
    }
    let mut at = at + header.head_bytes();
    parts.iter().all(|part| {
        let here = at;
        at += part.len() as u64;
        lane.bytes(here, part.len()) == *part
    })
}

impl Store {
    /// Most bytes of a value that are written under one hold of a shard.
    pub(crate) fn piece_bytes_max(&self) -> u64 {
        (self.region().budget_bytes() / 8).min(256 << 10)
    }

    /// Bytes of the longest record that an attempt writes itself; longer ones are staged.
    pub(crate) fn stage_above_bytes(&self, session: &Session) -> u64 {
        let doublings = (session.stages / STAGES_PER_DOUBLING).min(16);
        (self.region().budget_bytes() / 8).min((256 << 10) << doublings)
    }

    /// Meets the need of a halted attempt while no shard is held. Returns the budget bytes that the
    /// next attempt may spend.
    pub(crate) fn relieve(&self, halt: Halt, session: &mut Session) -> Result<u64, StoreError> {
        match halt {
            Halt::Stage(_) if session.strays > STRAYS_MAX => {
                Err(StoreError::Contended { attempts: session.strays })
            }
            Halt::Stage(stash) => {
                session.asked_bytes = 0;
                session.stages += 1;
                self.stage(stash, session).map(|()| 0)
            }
            Halt::Build(lane, whole) => {
                session.asked_bytes = 0;
                self.build(lane, whole, session).map(|()| 0)
            }
            Halt::Stop(Stop::Killed) => Err(StoreError::Killed),
            Halt::Stop(Stop::Need(Need::Buffer)) => Ok(self.region().satisfy(Need::Buffer)?),
            Halt::Stop(Stop::Need(Need::Room { bytes })) => {
                let budget_bytes = self.region().budget_now_bytes();
                let wanted = bytes.max(session.asked_bytes.saturating_mul(2));
                // An attempt that had the whole budget and got no further never will.
                let is_stuck = session.asked_bytes >= budget_bytes
                    && (!session.progressed || session.strays > STRAYS_MAX);
                if is_stuck && session.can_build && !session.builds {
                    // The rest of the operation may fit.
                    (session.builds, session.asked_bytes) = (true, 0);
                    session.rewind();
                    self.free_staged(session);
                    return Ok(0);
                }
                if bytes > budget_bytes || is_stuck {
                    let needed_bytes = bytes.max(session.asked_bytes);
                    return Err(StoreError::TransactionTooLarge { needed_bytes, budget_bytes });
                }
                session.asked_bytes = wanted.min(budget_bytes);
                Ok(self.region().satisfy(Need::Room { bytes: session.asked_bytes })?)
            }
            Halt::Fetch(wanted) => {
                self.fetch(wanted, session.fetched.get_or_insert_default()).map(|()| 0)
            }
            Halt::Stop(Stop::OutOfMemory { needed_bytes, free_bytes, lane }) => {
                match self.make_room(lane, session)? {
                    true => Ok(0),
                    false if session.may_use_reserve && !session.uses_reserve => {
                        session.uses_reserve = true;
                        Ok(0)
                    }
                    false => Err(StoreError::OutOfMemory { needed_bytes, free_bytes }),
                }
            }
        }
    }

    /// Makes room in memory that is used up. Returns whether it is worth trying again.
    fn make_room(&self, lane: LaneId, session: &mut Session) -> Result<bool, StoreError> {
        let may_wait = !session.is_movers;
        // In a full store that evicts, every write comes here: what takes longer comes later.
        if may_wait && session.evictions == 0 && self.shards_rebuilt() == self.heap.shards() {
            // Nothing has to go while what was deleted is not free yet.
            if self.free_some_of(lane) {
                return Ok(true);
            }
            session.evictions += 1;
            if self.far.is_none() && self.evict_for(lane, 0)? {
                return Ok(true);
            }
        }
        // Memory that other shards have free, and detached tables, may be enough.
        if !session.reclaimed && self.reclaim() > 0 {
            session.reclaimed = true;
            return Ok(true);
        }
        if may_wait && self.far.as_ref().is_some_and(|far| far.storage.make_room()) {
            return Ok(true);
        }
        let round = session.evictions;
        session.evictions += 1;
        Ok(may_wait && (self.evict_for(lane, round)? || self.move_out_of_sparse_run()?))
    }

    /// A new table to which no reference leads, in a lane that is not held.
    pub(crate) fn new_table(&self, lane: LaneId) -> Result<u64, StoreError> {
        self.attempt(&mut Session::default(), |credit| {
            let mut op = self.heap.begin(LaneSet::One(lane), credit);
            let root = table::new_root(&mut op, lane)?;
            op.commit().map(|()| root)
        })
    }

    fn stage(&self, stash: Stash, session: &mut Session) -> Result<(), StoreError> {
        let Stash { lane, capacity, bytes } = stash;
        let mut inner = Session::default();
        let offset = self.attempt(&mut inner, |credit| {
            let mut op = self.heap.begin(LaneSet::One(lane), credit);
            let offset = op.alloc(lane, capacity)?;
            op.disown([offset]);
            op.commit().map(|()| offset)
        })?;
        // The record is entered first, so that it is freed whatever happens next.
        session.staged.push(Staged { lane, offset, capacity, used: false });
        let piece_bytes = PIECE_BYTES.min(self.piece_bytes_max()) as usize;
        let mut at = offset;
        for piece in bytes.chunks(piece_bytes) {
            let asked_bytes = piece.len() as u64 / 2;
            let mut inner = Session { asked_bytes, ..Session::default() };
            self.attempt(&mut inner, |credit| {
                self.heap.lock_with(lane, credit).write_unreached(at, piece)
            })?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Runs `f` until it needs nothing more.
    fn attempt<R>(
        &self,
        session: &mut Session,
        mut f: impl FnMut(u64) -> Result<R, Stop>,
    ) -> Result<R, StoreError> {
        let mut credit = 0;
        loop {
            match f(credit) {
                Ok(done) => return Ok(done),
                Err(stop) => credit = self.relieve(Halt::Stop(stop), session)?,
            }
        }
    }

    /// Frees the staged records that no attempt linked.
    pub(crate) fn free_staged(&self, session: &mut Session) {
        if self.heap.is_killed() {
            return;
        }
        for staged in session.staged.drain(..).filter(|staged| !staged.used) {
            self.heap.lock(staged.lane).free_unreached(staged.offset);
        }
    }
}
