//! The rule of a model: the instant at which a medium would be done. One deterministic rule gives
//! latency and bandwidth.
//!
//! Each unit of each module, and each direction of the link, is *busy until* an instant. A request
//! claims the units of its bytes, and the link for its length, and waits for each that is busy. The
//! request is done when the last of them is done, and not before the latencies have passed. The
//! model keeps no other state, so booking takes tens of nanoseconds, and the same requests at the
//! same instants give the same answers on any machine.
//!
//! - The link is claimed when a request arrives, not when its data are ready: a disk that seeks
//!   does not keep the wires.
//! - Times are picoseconds since the caller's start and saturate. The rule is pure: it reads no
//!   clock.
//! - Claims are single atomic operations, so several threads book without a lock. One thread's
//!   bookings are exact; those of several happen in the order in which they reach each unit.
//!
//! Results are modelled, not measured. Sources: HASTE slides ("HASTE: Modeling Advanced NVMs", "DDR
//! Performance Trend"); Sprint-AEP, section II.

mod busy;
mod energy;
mod load;
mod modules;
#[cfg(test)]
mod tests;
mod timing;

use std::sync::atomic::Ordering::Relaxed;

use crate::profile::System;
use crate::units::Picoseconds;
use busy::{Busy, Unit};
pub use energy::EnergyUse;
pub use load::{ClosedLoop, Reached};
pub use modules::{Channels, Modules};
use timing::{Direction, Payment, Timing};

/// The direction of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Bytes come from the medium.
    Read,
    /// Bytes go to the medium.
    Write,
}

/// The modelled time of one [`System`]. Several threads may book at once.
pub struct Model {
    timing: Timing,
    units: Box<[Unit]>,
    controller: Busy,
    to_device: Busy,
    from_device: Busy,
}

impl Model {
    /// An idle medium of `capacity_bytes`. If its modules have less, addresses still go round all
    /// of them.
    #[must_use]
    pub fn new(system: &System, capacity_bytes: u64) -> Self {
        let timing = Timing::of(system, capacity_bytes);
        let units = (0..timing.units).map(|_| Unit::default()).collect();
        Self {
            timing,
            units,
            controller: Busy::default(),
            to_device: Busy::default(),
            from_device: Busy::default(),
        }
    }

    /// Books a request that arrives at `now_ps`; returns the instant at which it is done. A request
    /// of no bytes is a command.
    pub fn book(&self, now_ps: u64, access: Access, offset_bytes: u64, len_bytes: u64) -> u64 {
        let timing = &self.timing;
        let wires = timing.wires(access);
        let wire_ps = timing::span(len_bytes, wires.ps_per_byte);
        let link_end_ps = self.wire(access).claim(now_ps, wire_ps).saturating_add(wire_ps);
        let commanded_ps = self.controller.claim(now_ps, timing.command_ps);
        let issued_ps = commanded_ps.saturating_add(timing.request_ps + timing.link_latency_ps);
        let done_ps = match timing.payment {
            Payment::Request => match access {
                Access::Read => {
                    let (first_ps, last_ps) =
                        self.visit(issued_ps, access, offset_bytes, len_bytes);
                    // Data flow as they come: the wires are behind the medium by the time of one
                    // granule.
                    let last_piece_ps =
                        timing::span(len_bytes.min(timing.granule_bytes), wires.ps_per_byte);
                    let streamed_ps = first_ps.saturating_add(wire_ps);
                    streamed_ps.max(last_ps.saturating_add(last_piece_ps)).max(link_end_ps)
                }
                Access::Write => {
                    let arrived_ps = issued_ps.saturating_add(wire_ps).max(link_end_ps);
                    let (_, last_ps) = self.visit(issued_ps, access, offset_bytes, len_bytes);
                    let last_granule_ps = timing.direction(access).latency_ps;
                    last_ps.max(
                        arrived_ps.saturating_add(last_granule_ps.min(timing.write_through_ps)),
                    )
                }
            },
            Payment::Line { line_bytes, in_flight } => {
                let lines = timing::pieces(offset_bytes, len_bytes, line_bytes);
                let line_ps = timing.line_ps(access, wires.ps_per_byte, line_bytes);
                let rounds = lines.div_ceil(in_flight);
                // Each round of lines goes there and back. The first round's way there is in
                // `issued_ps`, its way back is added below.
                let ways_ps = rounds.saturating_sub(1).saturating_mul(2 * timing.link_latency_ps);
                let own_ps = rounds.saturating_mul(line_ps).saturating_add(ways_ps);
                let (first_ps, last_ps) = self.visit(issued_ps, access, offset_bytes, len_bytes);
                let waited_ps = first_ps
                    .saturating_sub(issued_ps.saturating_add(timing.direction(access).latency_ps));
                let asked_ps = issued_ps.saturating_add(own_ps).saturating_add(waited_ps);
                asked_ps.max(last_ps).max(link_end_ps)
            }
        };
        done_ps.saturating_add(timing.link_latency_ps)
    }

    /// Bytes of a line, and lines that a requester keeps in flight, if the link is paid for by
    /// lines as memory's is.
    #[must_use]
    pub fn lines(&self) -> Option<(u64, u64)> {
        match self.timing.payment {
            Payment::Line { line_bytes, in_flight } => Some((line_bytes, in_flight)),
            Payment::Request => None,
        }
    }

    /// The instant at which all writes before `now_ps` have left the buffers.
    pub fn flush(&self, now_ps: u64) -> u64 {
        let commanded_ps = self.controller.claim(now_ps, self.timing.command_ps);
        let issued_ps =
            commanded_ps.saturating_add(self.timing.request_ps + 2 * self.timing.link_latency_ps);
        let units = self.units.iter().map(|unit| unit.busy.until_ps());
        units.fold(issued_ps, u64::max)
    }

    /// Time of a request of `len_bytes` on an idle medium, at a place that does not follow the last
    /// one; on a disk, half of the disk away.
    #[must_use]
    pub fn unloaded(system: &System, access: Access, len_bytes: u64) -> Picoseconds {
        let capacity_bytes = system.capacity().0.max(4 * len_bytes).max(1 << 20);
        let model = Model::new(system, capacity_bytes);
        let whole = model.timing.interleave_bytes.max(len_bytes).max(1);
        let place = capacity_bytes / 2 / whole * whole;
        Picoseconds(model.book(0, access, place, len_bytes))
    }

    /// Bytes a second with always another request of `len_bytes`, one behind the other or at
    /// random. Simulated by the rule, not computed by a formula.
    #[must_use]
    pub fn saturated(system: &System, access: Access, len_bytes: u64, sequential: bool) -> u64 {
        let len_bytes = len_bytes.max(1);
        let capacity_bytes = system.capacity().0.max(SATURATING_REQUESTS * len_bytes);
        let model = Model::new(system, capacity_bytes);
        let places = capacity_bytes / len_bytes;
        // A step that is prime to most counts visits places far apart, the same each time.
        let stride = (places / 2 + places / 8).max(1) | 1;
        let mut last_ps = 0;
        for number in 0..SATURATING_REQUESTS {
            let place = if sequential { number } else { number.wrapping_mul(stride) };
            last_ps = model.book(0, access, place % places * len_bytes, len_bytes).max(last_ps);
        }
        let bytes = u128::from(SATURATING_REQUESTS * len_bytes);
        u64::try_from(bytes * PS_PER_S / u128::from(last_ps.max(1))).unwrap_or(u64::MAX)
    }

    /// Claims the units under a range; returns when its first granule, and when its last, is read
    /// or written.
    fn visit(&self, from_ps: u64, access: Access, offset_bytes: u64, len_bytes: u64) -> (u64, u64) {
        let timing = &self.timing;
        let direction = timing.direction(access);
        if len_bytes == 0 {
            return (from_ps, from_ps);
        }
        let (mut first_ps, mut last_ps) = (u64::MAX, from_ps);
        for share in timing.shares(offset_bytes, len_bytes) {
            let unit = &self.units[share.unit];
            let mut granules =
                timing::pieces(share.start_bytes, share.len_bytes, timing.granule_bytes);
            let end_bytes = share.start_bytes + share.len_bytes;
            // A disk has one head.
            let before_bytes = unit.end_bytes.swap(end_bytes, Relaxed);
            let follows = match timing.payment {
                Payment::Line { .. } => unit.streams[access as usize].follows(
                    share.start_bytes,
                    end_bytes,
                    timing.granule_bytes,
                ),
                Payment::Request => before_bytes == share.start_bytes,
            };
            if follows && !share.start_bytes.is_multiple_of(timing.granule_bytes) {
                // The last request's granule has the first part of this one.
                granules -= 1;
            }
            let (away_ps, latency_ps, random_ps) = match follows {
                true => (0, direction.sequential_latency_ps, 0),
                false => {
                    let away_ps = timing.positioning(before_bytes.abs_diff(share.start_bytes));
                    (away_ps, direction.latency_ps, direction.random_ps)
                }
            };
            let cycles_ps = granules.saturating_mul(direction.cycle_ps).saturating_add(random_ps);
            let cycles_ps = self.contended(unit, from_ps, access, cycles_ps);
            let start_ps = unit.busy.claim(from_ps, away_ps.saturating_add(cycles_ps));
            let ready_ps = start_ps.saturating_add(away_ps);
            let after_first_ps = cycles_ps.saturating_sub(direction.cycle_ps);
            let (one_ps, all_ps) = (
                ready_ps.saturating_add(latency_ps),
                ready_ps.saturating_add(latency_ps).saturating_add(after_first_ps),
            );
            unit.meter(
                &timing.power,
                start_ps,
                away_ps.saturating_add(latency_ps.max(direction.cycle_ps)) + after_first_ps,
            );
            first_ps = first_ps.min(one_ps);
            last_ps = last_ps.max(timing.acknowledged(access, from_ps, all_ps));
        }
        (first_ps, last_ps)
    }

    /// Makes a write longer if many writes are on its unit at once, where the profile says so
    /// (Sprint-AEP, figure 7).
    fn contended(&self, unit: &Unit, from_ps: u64, access: Access, cycles_ps: u64) -> u64 {
        match (access, self.timing.write_contention) {
            (Access::Write, Some((others, slowdown))) => {
                let queued_ps = unit.busy.until_ps().saturating_sub(from_ps);
                // The wait that the others would cause, less the part that the oldest has had
                // already.
                if queued_ps >= cycles_ps.saturating_mul(others).saturating_sub(cycles_ps / 2) {
                    (cycles_ps as f64 * slowdown) as u64
                } else {
                    cycles_ps
                }
            }
            _ => cycles_ps,
        }
    }

    fn wire(&self, access: Access) -> &Busy {
        match access {
            Access::Read if !self.timing.half_duplex => &self.from_device,
            _ => &self.to_device,
        }
    }
}

impl Timing {
    fn direction(&self, access: Access) -> &Direction {
        match access {
            Access::Read => &self.read,
            Access::Write => &self.write,
        }
    }
}

const PS_PER_S: u128 = 1_000_000_000_000;
const SATURATING_REQUESTS: u64 = 20_000;
