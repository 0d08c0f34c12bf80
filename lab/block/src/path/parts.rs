//! The time of a request by part.
//!
//! Times are read from the hardware's own clock, so that they can be compared with the instant at
//! which a command is due. The parts of a request add up to its whole time; all parts but
//! [`Part::Hardware`] are software.

use super::Hardware;

/// A part of a request's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Checks the request and obtains a ticket (or a tag, in steps without tickets).
    Entry,
    /// Moves through the elevator.
    Scheduler,
    /// Takes locks, and waits for a command in the queue.
    Queue,
    /// Tells the device.
    Issue,
    /// Copies bytes beyond the time that the device takes.
    Copy,
    /// The device's time, from the end of the issue until due.
    Hardware,
    /// The time from the due instant until the thread is awake.
    Wakeup,
    /// The interrupt handler's work.
    Completion,
    /// Gives the request back, and returns to the caller.
    Return,
}

/// All parts, in the order in which a request meets them.
pub const PARTS: [Part; 9] = [
    Part::Entry,
    Part::Scheduler,
    Part::Queue,
    Part::Issue,
    Part::Copy,
    Part::Hardware,
    Part::Wakeup,
    Part::Completion,
    Part::Return,
];

impl Part {
    /// The part's name in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Entry => "entry",
            Self::Scheduler => "scheduler",
            Self::Queue => "queue",
            Self::Issue => "issue",
            Self::Copy => "copy",
            Self::Hardware => "hardware",
            Self::Wakeup => "wakeup",
            Self::Completion => "completion",
            Self::Return => "return",
        }
    }
}

/// Times of one request by part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Parts {
    ps: [u64; PARTS.len()],
    stamps: [u8; PARTS.len()],
}

impl Parts {
    /// Time of one part in picoseconds.
    #[must_use]
    pub fn ps(&self, part: Part) -> u64 {
        self.ps[part as usize]
    }

    /// Readings of the clock for this part. Their cost is in the part's time.
    #[must_use]
    pub fn stamps(&self, part: Part) -> u8 {
        self.stamps[part as usize]
    }

    /// Time of all parts in picoseconds.
    #[must_use]
    pub fn total_ps(&self) -> u64 {
        self.ps.iter().sum()
    }

    /// Time of all parts but the hardware's, in picoseconds.
    #[must_use]
    pub fn software_ps(&self) -> u64 {
        self.total_ps() - self.ps(Part::Hardware)
    }
}

/// Receives the driver's progress through a request.
pub(super) trait Probe {
    /// Counts the time since the last mark for this part.
    fn mark(&mut self, part: Part, hardware: &impl Hardware);
    /// Counts the time since the last mark for this part, but the time until `due_ps` for the
    /// hardware.
    fn mark_from(&mut self, due_ps: u64, part: Part, hardware: &impl Hardware);
}

/// A probe that measures nothing.
pub(super) struct Silent;

impl Probe for Silent {
    #[inline(always)]
    fn mark(&mut self, _: Part, _: &impl Hardware) {}
    #[inline(always)]
    fn mark_from(&mut self, _: u64, _: Part, _: &impl Hardware) {}
}

/// The readings of the clock for one request.
pub(super) struct Stamps {
    parts: Parts,
    last_ps: u64,
}

impl Stamps {
    pub(super) fn begin(now_ps: u64) -> Self {
        Self { parts: Parts::default(), last_ps: now_ps }
    }

    pub(super) fn parts(self) -> Parts {
        self.parts
    }

    fn count(&mut self, part: Part) {
        let stamps = &mut self.parts.stamps[part as usize];
        *stamps = stamps.saturating_add(1);
    }

    fn add(&mut self, part: Part, until_ps: u64) {
        // The clocks of two processors may differ by a few ticks, so no part gets a negative time.
        let until_ps = until_ps.max(self.last_ps);
        self.parts.ps[part as usize] += until_ps - self.last_ps;
        self.last_ps = until_ps;
    }
}

impl Probe for Stamps {
    #[inline]
    fn mark(&mut self, part: Part, hardware: &impl Hardware) {
        self.count(part);
        self.add(part, hardware.now_ps());
    }

    #[inline]
    fn mark_from(&mut self, due_ps: u64, part: Part, hardware: &impl Hardware) {
        self.count(part);
        let now_ps = hardware.now_ps();
        self.add(Part::Hardware, due_ps.min(now_ps));
        self.add(part, now_ps);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_and_time_before_due_is_the_hardwares() {
        let mut stamps = Stamps::begin(100);
        stamps.add(Part::Entry, 130);
        stamps.add(Part::Hardware, 150);
        stamps.add(Part::Copy, 180);
        // A reading of a clock that is behind the others.
        stamps.add(Part::Return, 170);
        let parts = stamps.parts();
        assert_eq!([parts.total_ps(), parts.software_ps(), parts.ps(Part::Copy)], [80, 60, 30]);
    }
}
