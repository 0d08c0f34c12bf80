//! Running operations: lock, try, commit or roll back, wait, try again.

use perdura_slots::{LaneId, LaneSet};

use crate::api::Access;
use crate::error::{StoreError, TxError};
use crate::shard::{PARTS_PER_HOLD, Shard, reap};
use crate::staging::Session;
use crate::store::{Place, Store};
use crate::tx::{End, Tx};

/// The lanes of an operation.
enum Lanes {
    One(LaneId),
    OfKey(Place),
    Many(Vec<LaneId>),
}

impl Store {
    /// Runs `op` with the shards of `access` held; all of its changes happen or none, also after a
    /// kill.
    ///
    /// `op` may be run more than once: when it must wait for budget, everything it did is rolled
    /// back first. So it must reset its own outputs at its start, and end when a call returns an
    /// error.
    ///
    /// # Errors
    /// What `op` returned, or what the machine refuses; nothing has changed then.
    pub fn run<'a, R>(
        &'a self,
        access: Access<'a>,
        mut op: impl FnMut(&mut Tx<'_>) -> Result<R, TxError>,
    ) -> Result<R, StoreError> {
        let lanes = self.lanes_of(access);
        let hint = match (access, &lanes) {
            (Access::Key(key), Lanes::OfKey(place)) => Some((key, *place)),
            _ => None,
        };
        let set = match &lanes {
            Lanes::OfKey(place) => LaneSet::One(place.lane),
            Lanes::One(lane) => LaneSet::One(*lane),
            Lanes::Many(lanes) if lanes.is_empty() => LaneSet::One(LaneId(0)),
            Lanes::Many(lanes) => LaneSet::Many(lanes),
        };
        let mut session = Session::default();
        let mut credit = 0;
        let outcome = loop {
            if let Err(closed) = self.region().check_open() {
                break Err(closed.into());
            }
            let mut tx = Tx::begin(self, set, hint, credit, &mut session);
            let result = op(&mut tx);
            match tx.end(result) {
                End::Done(value) => break Ok(value),
                End::Refused(error) => break Err(error),
                End::Halted(halt) => match self.relieve(halt, &mut session) {
                    Ok(granted) => credit = granted,
                    Err(error) => {
                        session.rewind();
                        break Err(error);
                    }
                },
            }
            session.rewind();
        };
        if !session.staged.is_empty() {
            self.free_staged(&mut session);
        }
        outcome
    }

    fn lanes_of(&self, access: Access<'_>) -> Lanes {
        match access {
            Access::Key(key) => {
                let place = self.place(key);
                self.prefetch_bucket(&place);
                Lanes::OfKey(place)
            }
            Access::Keys([key]) => Lanes::One(self.place(*key).lane),
            Access::Keys(keys) => {
                let mut lanes: Vec<_> = keys.iter().map(|key| self.place(*key).lane).collect();
                lanes.sort_unstable();
                lanes.dedup();
                Lanes::Many(lanes)
            }
            Access::Everything => Lanes::Many(self.heap.lanes().collect()),
        }
    }

    /// Frees detached tables until none is left, releasing each shard in between.
    pub(crate) fn reap_all(&self) {
        for lane in self.heap.lanes() {
            while !self.heap.is_killed() && reap(&mut self.heap.lock(lane), PARTS_PER_HOLD) {}
        }
    }

    /// Finds memory that is free and not yet given back. Returns bytes given back.
    pub(crate) fn reclaim(&self) -> u64 {
        let before = self.heap.stats().free_bytes;
        let was_rebuilt = self.shards_rebuilt() == self.heap.shards();
        self.await_rebuild();
        let detached = |lane| {
            self.heap.lock(lane).user::<Shard>().is_some_and(|shard| !shard.detached.is_empty())
        };
        let had_detached = self.heap.lanes().any(detached);
        self.reap_all();
        self.heap.reclaim();
        let gained = self.heap.stats().free_bytes.saturating_sub(before);
        gained.max(u64::from(had_detached || !was_rebuilt))
    }
}
