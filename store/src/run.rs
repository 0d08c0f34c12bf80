//! Running operations: an attempt is tried and commits, or it is rolled back, waits, and is tried
//! again.

use perdura_slots::{LaneId, LaneSet};

use crate::api::Access;
use crate::error::{StoreError, TxError};
use crate::staging::Session;
use crate::store::{Place, Store};
use crate::tx::{End, Tx};

/// What an operation waits for, when an attempt had to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// For budget, for memory, for values.
    ForAll,
    /// For budget; not for memory that this operation itself is to free.
    ForBudget,
    /// For budget; the operation frees whole spans, and may take some of the reserve for that.
    ForBudgetFromReserve,
    /// For nothing.
    None,
}

/// The lanes of an operation.
enum Lanes {
    One(LaneId),
    /// The lane of a key whose place is known.
    OfKey(Place),
    Many(Vec<LaneId>),
}

impl Store {
    /// Runs `op` with the shards of `access` held. All of its changes happen or none, also after a
    /// kill.
    ///
    /// `op` may be run more than once: when it must wait for budget, everything it did is rolled
    /// back first. So `op` must reset its own outputs at its start, and end when a call returns an
    /// error.
    ///
    /// # Errors
    /// `op` returned an error, or the store refuses the operation. Nothing has changed then.
    pub fn run<'a, R>(
        &'a self,
        access: Access<'a>,
        op: impl FnMut(&mut Tx<'_>) -> Result<R, TxError>,
    ) -> Result<R, StoreError> {
        self.run_with(access, Patience::ForAll, op)
    }

    /// Runs `op` as [`Store::run`] does, with so much patience.
    pub(crate) fn run_with<'a, R>(
        &'a self,
        access: Access<'a>,
        patience: Patience,
        op: impl FnMut(&mut Tx<'_>) -> Result<R, TxError>,
    ) -> Result<R, StoreError> {
        self.run_at(access, patience, None, op)
    }

    /// Runs `op` as [`Store::run_with`] does, at a time that was read before, if it was.
    pub(crate) fn run_at<'a, R>(
        &'a self,
        access: Access<'a>,
        patience: Patience,
        now_ms: Option<u64>,
        mut op: impl FnMut(&mut Tx<'_>) -> Result<R, TxError>,
    ) -> Result<R, StoreError> {
        let lanes = self.lanes_of(access);
        let hint = match (access, &lanes) {
            (Access::Key(key) | Access::Placed(key, _), Lanes::OfKey(place)) => Some((key, *place)),
            _ => None,
        };
        let set = match &lanes {
            Lanes::OfKey(place) => LaneSet::One(place.lane),
            Lanes::One(lane) => LaneSet::One(*lane),
            Lanes::Many(lanes) if lanes.is_empty() => LaneSet::One(LaneId(0)),
            Lanes::Many(lanes) => LaneSet::Many(lanes),
        };
        let mut session = Session::default();
        session.now_ms = now_ms;
        session.is_movers =
            matches!(patience, Patience::ForBudget | Patience::ForBudgetFromReserve);
        session.uses_reserve = patience == Patience::ForBudgetFromReserve;
        let mut credit = 0;
        let outcome = loop {
            if let Err(closed) = self.region().check_open() {
                break Err(closed.into());
            }
            let end = {
                let mut tx = Tx::begin(self, set, hint, credit, &mut session);
                let result = op(&mut tx);
                tx.end(result)
            };
            match end {
                End::Done(value) => break Ok(value),
                End::Refused(error) => break Err(error),
                End::Halted(_) if patience == Patience::None => {
                    session.rewind();
                    break Err(StoreError::Aborted("the operation would have had to wait"));
                }
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
        if !session.built.is_empty() {
            self.free_built(session.built);
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
            Access::Placed(_, place) => Lanes::OfKey(place),
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
}
