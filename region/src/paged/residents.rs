//! Which units are in DRAM, and which goes when another comes: pure code over numbers.
//!
//! A queue in two parts (segmented FIFO, as VMS had it). What comes in is *mapped*: touches cost
//! nothing and are not seen. From the front of that queue units go to a second one, of *inactive*
//! units: still in DRAM, but a touch is seen and brings the unit back behind the mapped ones. The
//! oldest inactive unit leaves DRAM first. With no room for inactive units this is plain FIFO.
//!
//! Invariants: a unit is in one place; mapped, inactive and arriving ones together are at most the
//! cap; a unit is dirty only in DRAM; who leaves dirty is written to the medium before its place is
//! taken.

use super::planted::PlantedPaging;

/// A unit's number: pages are paged in runs of equal length.
pub type Unit = u32;

const NONE: Unit = u32::MAX;

/// Where a unit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// On the medium, or nowhere yet.
    Out,
    /// On its way, either way: whoever wants it waits.
    Moving,
    /// In DRAM and in the page table.
    Mapped,
    /// In DRAM only.
    Inactive,
}

/// What a touch asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touched {
    /// Nothing: somebody else was first.
    Present {
        /// Whether it may be written without being seen.
        is_dirty: bool,
    },
    /// It is dirty from now on: open it for writing.
    Dirtied,
    /// It was inactive: enter it again.
    Reactivated {
        /// Whether it may be written without being seen.
        is_dirty: bool,
        /// The unit that becomes inactive instead: take it out of the page table.
        to_deactivate: Option<Unit>,
    },
    /// It must come; it is moving until [`Residents::arrived`].
    Missed {
        /// Who goes.
        victim: Option<Victim>,
        /// Whether the medium has it; else it begins as zeros.
        is_stored: bool,
    },
    /// It, or all of DRAM, is moving: wait.
    Busy,
}

/// Who leaves DRAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Victim {
    /// Which.
    pub unit: Unit,
    /// Whether it is in the page table.
    pub is_mapped: bool,
    /// What is to be done with its bytes.
    pub parting: Parting,
}

/// What is to be done with the bytes of who leaves DRAM. But for [`Parting::Nothing`] it is moving
/// until [`Residents::left`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parting {
    /// The medium has them.
    Nothing,
    /// To be written to the medium.
    Write,
    /// They are zeros that nobody wrote: to be given up.
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

/// See the module.
pub struct Residents {
    units: Box<[State]>,
    mapped: Queue,
    inactive: Queue,
    arriving: u32,
    cap: u32,
    mapped_max: u32,
    planted: PlantedPaging,
}

impl Residents {
    /// None of `units` is in DRAM; `cap` may be, of which `inactive_max` are inactive.
    pub fn new(units: u32, cap: u32, inactive_max: u32, planted: PlantedPaging) -> Self {
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

    /// A thread touched it and the kernel stopped it.
    pub fn touched(&mut self, unit: Unit, is_store: bool) -> Touched {
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
            // Everything is on its way already.
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

    /// What was to be done with a victim's bytes is done.
    pub fn left(&mut self, unit: Unit) {
        let state = self.state(unit);
        assert_eq!(state.place, Place::Moving, "unit {unit} left");
        state.place = Place::Out;
    }

    /// A missed unit is in DRAM. Returns the unit that becomes inactive instead: take it out of the
    /// page table.
    pub fn arrived(&mut self, unit: Unit, is_store: bool) -> Option<Unit> {
        assert_eq!(self.state(unit).place, Place::Moving, "unit {unit} arrived");
        self.arriving -= 1;
        self.state(unit).is_dirty = is_store;
        self.enter(unit)
    }

    /// What it held is of no use any more: it is nowhere, and begins as zeros. False: it is moving,
    /// wait.
    pub fn forget(&mut self, unit: Unit) -> bool {
        match self.state(unit).place {
            Place::Moving => return false,
            Place::Mapped | Place::Inactive => self.unlink(unit),
            Place::Out => {}
        }
        let state = self.state(unit);
        (state.place, state.is_dirty, state.is_stored) = (Place::Out, false, false);
        true
    }

    /// Where it is.
    pub fn place(&self, unit: Unit) -> Place {
        self.units[unit as usize].place
    }

    /// Units in DRAM, those on their way in among them.
    pub fn resident(&self) -> u32 {
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

    /// Behind the last of a queue.
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
