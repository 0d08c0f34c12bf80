//! A profile in picoseconds, as the rule computes with it.

use super::Access;
use super::energy::PowerOf;
use crate::profile::{Pays, System};

pub(super) struct Timing {
    pub(super) granule_bytes: u64,
    pub(super) interleave_bytes: u64,
    pub(super) units: usize,
    pub(super) read: Direction,
    pub(super) write: Direction,
    /// Time by which a write is acknowledged before it leaves the buffer.
    buffer_ps: u64,
    /// Longest time from a write's arrival until its last granule is written.
    pub(super) write_through_ps: u64,
    near_ps: u64,
    far_ps: u64,
    unit_bytes: u64,
    /// Number of writes on a unit from which they slow each other down, and the factor.
    pub(super) write_contention: Option<(u64, f64)>,
    pub(super) payment: Payment,
    pub(super) half_duplex: bool,
    pub(super) link_latency_ps: u64,
    pub(super) request_ps: u64,
    pub(super) command_ps: u64,
    to_device: Wires,
    from_device: Wires,
    pub(super) power: PowerOf,
}

pub(super) struct Direction {
    pub(super) latency_ps: u64,
    pub(super) sequential_latency_ps: u64,
    /// Time for which a granule keeps a unit busy.
    pub(super) cycle_ps: u64,
    /// Further time of a granule that does not follow the last one.
    pub(super) random_ps: u64,
}

#[derive(Clone, Copy)]
pub(super) struct Wires {
    /// Time of a byte on the wires; 0 without wires. Fractions count: 64 GB/s are 15.6 ps a byte.
    pub(super) ps_per_byte: f64,
}

pub(super) enum Payment {
    Request,
    Line { line_bytes: u64, in_flight: u64 },
}

/// The part of a range on one unit, in the unit's own addresses.
pub(super) struct Share {
    pub(super) unit: usize,
    pub(super) start_bytes: u64,
    pub(super) len_bytes: u64,
}

impl Timing {
    pub(super) fn of(system: &System, capacity_bytes: u64) -> Self {
        let medium = &system.medium;
        let units = u64::from(system.modules) * u64::from(medium.units);
        let cycle = |rate: u64| span(medium.granule.0, ps_per_byte(rate)).max(1);
        let read = Direction {
            latency_ps: medium.read_latency.0,
            sequential_latency_ps: medium.sequential_read_latency.0,
            cycle_ps: cycle(medium.read_bandwidth.0),
            random_ps: cycle(medium.random_read_bandwidth.0) - cycle(medium.read_bandwidth.0),
        };
        let write = Direction {
            latency_ps: medium.write_latency.0,
            sequential_latency_ps: medium.sequential_write_latency.0,
            cycle_ps: cycle(medium.write_bandwidth.0),
            random_ps: cycle(medium.random_write_bandwidth.0) - cycle(medium.write_bandwidth.0),
        };
        let link = system.link.as_ref();
        let wires = |rate: Option<u64>| Wires { ps_per_byte: rate.map_or(0.0, ps_per_byte) };
        let buffer_ps = span(medium.write_buffer.0, ps_per_byte(medium.write_bandwidth.0));
        Self {
            granule_bytes: medium.granule.0,
            interleave_bytes: medium.interleave.0.max(medium.granule.0),
            units: units as usize,
            write_through_ps: if buffer_ps > 0 { 0 } else { write.latency_ps },
            read,
            write,
            buffer_ps,
            near_ps: medium.positioning.0.0,
            far_ps: medium.positioning.1.0,
            unit_bytes: (capacity_bytes / units).max(1),
            write_contention: medium
                .write_contention
                .map(|(streams, slowdown)| (u64::from(streams) - 1, slowdown)),
            payment: match link.map(|link| link.pays) {
                Some(Pays::Line { line, in_flight }) => {
                    Payment::Line { line_bytes: line.0, in_flight: u64::from(in_flight) }
                }
                Some(Pays::Request) | None => Payment::Request,
            },
            half_duplex: link.is_some_and(|link| link.half_duplex),
            link_latency_ps: link.map_or(0, |link| link.latency.0),
            request_ps: link.map_or(0, |link| link.request.0),
            command_ps: link.map_or(0, |link| link.command.0),
            to_device: wires(link.map(|link| link.to_device.0)),
            from_device: wires(link.map(|link| link.from_device.0)),
            power: PowerOf::of(system),
        }
    }

    pub(super) fn wires(&self, access: Access) -> Wires {
        match access {
            Access::Read => self.from_device,
            Access::Write => self.to_device,
        }
    }

    /// Time of a move over a distance: the root of the distance, as arms accelerate.
    pub(super) fn positioning(&self, distance_bytes: u64) -> u64 {
        if self.far_ps == 0 {
            return 0;
        }
        let share = (distance_bytes as f64 / self.unit_bytes as f64).min(1.0).sqrt();
        self.near_ps + ((self.far_ps - self.near_ps) as f64 * share) as u64
    }

    /// Time of one line of several that a processor asks for: its whole latency, and its time on
    /// the bus.
    pub(super) fn line_ps(&self, access: Access, ps_per_byte: f64, line_bytes: u64) -> u64 {
        let direction = match access {
            Access::Read => &self.read,
            Access::Write => &self.write,
        };
        // The first line of a granule does not follow the last one; its other lines do.
        let per_granule = (self.granule_bytes / line_bytes).max(1);
        let behind_ps = direction.sequential_latency_ps.saturating_mul(per_granule - 1);
        let latency_ps = direction.latency_ps.saturating_add(behind_ps) / per_granule;
        latency_ps.saturating_add(span(line_bytes, ps_per_byte))
    }

    /// The instant at which a write that its unit ends at `all_ps` is acknowledged: at once if
    /// there is room in the buffer.
    pub(super) fn acknowledged(&self, access: Access, from_ps: u64, all_ps: u64) -> u64 {
        match access {
            Access::Read => all_ps,
            Access::Write if self.buffer_ps == 0 => all_ps,
            Access::Write => all_ps.saturating_sub(self.buffer_ps).max(from_ps),
        }
    }

    /// The units under a range, each once. Its part of the range is one run in its own addresses.
    pub(super) fn shares(&self, offset_bytes: u64, len_bytes: u64) -> impl Iterator<Item = Share> {
        let (stripe, units) = (self.interleave_bytes, self.units as u64);
        let (start, end) = (offset_bytes, offset_bytes.saturating_add(len_bytes));
        let first = start / stripe;
        let chunks = (end - 1) / stripe - first + 1;
        (0..chunks.min(units)).map(move |nth| {
            let chunk = first + nth;
            // The unit's chunks of this range: this one, and each one a round further on.
            let rounds = (chunks - 1 - nth) / units;
            let last_chunk = chunk + rounds * units;
            let from = (chunk * stripe).max(start) - chunk * stripe;
            let to = (last_chunk * stripe).saturating_add(stripe).min(end) - last_chunk * stripe;
            let start_bytes = chunk / units * stripe + from;
            let end_bytes = last_chunk / units * stripe + to;
            Share {
                unit: (chunk % units) as usize,
                start_bytes,
                len_bytes: end_bytes - start_bytes,
            }
        })
    }
}

/// Number of aligned pieces of `piece_bytes` that a range touches.
pub(super) fn pieces(offset_bytes: u64, len_bytes: u64, piece_bytes: u64) -> u64 {
    if len_bytes == 0 {
        return 0;
    }
    let last_bytes = offset_bytes.saturating_add(len_bytes - 1);
    last_bytes / piece_bytes - offset_bytes / piece_bytes + 1
}

/// Time of so many bytes at so many picoseconds each.
pub(super) fn span(len_bytes: u64, ps_per_byte: f64) -> u64 {
    (len_bytes as f64 * ps_per_byte) as u64
}

fn ps_per_byte(rate: u64) -> f64 {
    1e12 / rate as f64
}
