//! Which units are in DRAM, and which one leaves when another comes. This is pure code over
//! numbers.
//!
//! Units are in two queues (segmented FIFO, as in VMS). A unit that comes in is *mapped*: touches
//! of it cost nothing and are not seen. The oldest mapped unit moves to the *inactive* queue: it is
//! still in DRAM, but a touch of it traps and moves it behind the mapped ones. The oldest inactive
//! unit leaves DRAM first. If no inactive units are allowed, this is plain FIFO.
//!
//! Invariants:
//!
//! - a unit is in one place;
//! - mapped, inactive and arriving units together are at most the cap;
//! - only units in DRAM are dirty;
//! - a dirty unit that leaves is written to the medium before its place is used.

use super::planted::PlantedPaging;

/// The number of a unit: a run of pages that come and go together.
pub(super) type Unit = u32;

const NONE: Unit = u32::MAX;

/// The place of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The unit is on the medium, or was never touched.
    Out,
    /// The unit is coming or leaving. A thread that touches it waits.
    Moving,
    /// The unit is in DRAM and in the page table.
    Mapped,
    /// The unit is in DRAM, but not in the page table.
    Inactive,
}

/// The action that a touch needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Touched {
    /// None: another thread's touch has been served meanwhile.
    Present {
        /// Whether it may be written without being seen.
        is_dirty: bool,
    },
    /// The unit is dirty from now on: open it for writing.
    Dirtied,
    /// The unit was inactive: enter it into the page table again.
    Reactivated {
        /// Whether it may be written without being seen.
        is_dirty: bool,
        /// Another unit that is inactive now: take it out of the page table.
        to_deactivate: Option<Unit>,
    },
    /// The unit must come. It is moving until [`Residents::arrived`].
    Missed {
        /// The unit that leaves for it, if one must.
        victim: Option<Victim>,
        /// Whether the medium has the unit; otherwise it begins as zeros.
        is_stored: bool,
    },
    /// The unit, or everything in DRAM, is moving: wait.
    Busy,
}

/// A unit that leaves DRAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Victim {
    /// Number of the unit.
    pub unit: Unit,
    /// Whether the unit is still in the page table.
    pub is_mapped: bool,
    /// The step that its bytes need first.
    pub parting: Parting,
}

/// The step that the bytes of a unit need before the unit leaves DRAM. Unless the step is
/// [`Parting::Nothing`], the unit is moving until [`Residents::left`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parting {
    /// No step is needed, because the medium has the same bytes.
    Nothing,
    /// The bytes must be written to the medium.
    Write,
    /// The bytes are zeros that nobody wrote, and are dropped.
    GiveUp,
}

#[derive(Clone, Copy)]
struct State {
    place: Place,
    is_dirty: bool,
    is_stored: bool,
    before: Unit,
    behind: Unit,
}

#[derive(Clone, Copy)]
struct Queue {
    first: Unit,
    last: Unit,
    len: u32,
}

/// The places of all units of a paged memory.
pub(super) struct Residents {
    units: Box<[State]>,
    mapped: Queue,
    inactive: Queue,
    arriving: u32,
    cap: u32,
    mapped_max: u32,
    planted: PlantedPaging,
}

impl Residents {
    /// The state with none of `units` in DRAM. At most `cap` may be, and `inactive_max` of these
    /// are inactive.
    pub(super) fn new(units: u32, cap: u32, inactive_max: u32, planted: PlantedPaging) -> Self {
        assert!(cap > inactive_max, "a cap of {cap} units, {inactive_max} of them inactive");
        let out = State {
            place: Place::Out,
            is_dirty: false,
            is_stored: false,
            before: NONE,
            behind: NONE,
        };
        let empty = Queue { first: NONE, last: NONE, len: 0 };
        Self {
            units: vec![out; units as usize].into(),
            mapped: empty,
            inactive: empty,
            arriving: 0,
            cap,
            mapped_max: cap - inactive_max,
            planted,
        }
    }

    /// Notes that a thread's touch of a unit trapped.
    pub(super) fn touched(&mut self, unit: Unit, is_store: bool) -> Touched {
        match self.state(unit).place {
            Place::Moving => Touched::Busy,
            Place::Mapped => match (is_store, self.state(unit).is_dirty) {
                (true, false) => {
                    self.state(unit).is_dirty = true;
                    Touched::Dirtied
                }
                (_, is_dirty) => Touched::Present { is_dirty },
            },
            Place::Inactive => {
                self.unlink(unit);
                let was_dirty =
                    self.state(unit).is_dirty && self.planted != PlantedPaging::ReactivateAsClean;
                let is_dirty = was_dirty || is_store;
                self.state(unit).is_dirty = is_dirty;
                Touched::Reactivated { is_dirty, to_deactivate: self.enter(unit) }
            }
            Place::Out => self.miss(unit),
        }
    }

    fn miss(&mut self, unit: Unit) -> Touched {
        let mut victim = None;
        if self.resident() >= self.cap {
            let oldest = [self.inactive, self.mapped].iter().find(|queue| queue.len > 0).copied();
            // Every unit in DRAM is moving already.
            let Some(oldest) = oldest else { return Touched::Busy };
            victim = Some(self.leave(oldest.first));
        }
        self.arriving += 1;
        assert!(self.resident() <= self.cap, "{} units resident of {}", self.resident(), self.cap);
        let state = self.state(unit);
        state.place = Place::Moving;
        Touched::Missed { victim, is_stored: state.is_stored }
    }

    fn leave(&mut self, unit: Unit) -> Victim {
        let is_mapped = self.state(unit).place == Place::Mapped;
        self.unlink(unit);
        let forget = self.planted == PlantedPaging::ForgetDirtyVictim;
        let state = self.state(unit);
        let is_dirty = state.is_dirty && !(forget && unit.is_multiple_of(7));
        let parting = match (is_dirty, state.is_stored) {
            (true, _) => Parting::Write,
            (false, true) => Parting::Nothing,
            (false, false) => Parting::GiveUp,
        };
        state.is_dirty = false;
        state.is_stored |= is_dirty;
        state.place = if parting == Parting::Nothing { Place::Out } else { Place::Moving };
        Victim { unit, is_mapped, parting }
    }

    /// Notes that a victim has left: its bytes were written or dropped.
    pub(super) fn left(&mut self, unit: Unit) {
        let state = self.state(unit);
        assert_eq!(state.place, Place::Moving, "unit {unit} left");
        state.place = Place::Out;
    }

    /// Notes that a missed unit is in DRAM. Returns another unit that is inactive now, which must
    /// be taken out of the page table.
    pub(super) fn arrived(&mut self, unit: Unit, is_store: bool) -> Option<Unit> {
        assert_eq!(self.state(unit).place, Place::Moving, "unit {unit} arrived");
        self.arriving -= 1;
        self.state(unit).is_dirty = is_store;
        self.enter(unit)
    }

    /// Forgets a unit's contents, so that it begins as zeros at its next touch. Returns false if
    /// the unit is moving: wait, then try again.
    pub(super) fn forget(&mut self, unit: Unit) -> bool {
        match self.state(unit).place {
            Place::Moving => return false,
            Place::Mapped | Place::Inactive => self.unlink(unit),
            Place::Out => {}
        }
        let state = self.state(unit);
        (state.place, state.is_dirty, state.is_stored) = (Place::Out, false, false);
        true
    }

    /// The place of a unit.
    pub(super) fn place(&self, unit: Unit) -> Place {
        self.units[unit as usize].place
    }

    /// The number of units in DRAM, arriving ones included.
    pub(super) fn resident(&self) -> u32 {
        self.mapped.len + self.inactive.len + self.arriving
    }

    fn enter(&mut self, unit: Unit) -> Option<Unit> {
        self.link(unit, Place::Mapped);
        if self.mapped.len <= self.mapped_max {
            return None;
        }
        let oldest = self.mapped.first;
        self.unlink(oldest);
        self.link(oldest, Place::Inactive);
        Some(oldest)
    }

    fn state(&mut self, unit: Unit) -> &mut State {
        &mut self.units[unit as usize]
    }

    fn queue(&mut self, place: Place) -> &mut Queue {
        match place {
            Place::Inactive => &mut self.inactive,
            Place::Mapped => &mut self.mapped,
            Place::Out | Place::Moving => unreachable!("no queue of units that are {place:?}"),
        }
    }

    /// Appends a unit to a queue.
    fn link(&mut self, unit: Unit, place: Place) {
        let queue = self.queue(place);
        let last = std::mem::replace(&mut queue.last, unit);
        if last == NONE {
            queue.first = unit;
        }
        queue.len += 1;
        if last != NONE {
            self.state(last).behind = unit;
        }
        let state = self.state(unit);
        (state.place, state.before, state.behind) = (place, last, NONE);
    }

    fn unlink(&mut self, unit: Unit) {
        let State { place, before, behind, .. } = *self.state(unit);
        let queue = self.queue(place);
        queue.len -= 1;
        if before == NONE {
            queue.first = behind;
        }
        if behind == NONE {
            queue.last = before;
        }
        if before != NONE {
            self.state(before).behind = behind;
        }
        if behind != NONE {
            self.state(behind).before = before;
        }
    }
}

#[cfg(test)]
mod tests;
