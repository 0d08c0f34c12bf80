//! What each module was busy with, and the energy that follows from its own times: the peak power
//! while it syncs or fetches, and, of a module that sleeps, while it serves a read; otherwise a
//! primary draws the power of its requests, and a sleeping module the idle power. (Sprint-AEP,
//! section IV-B, reckons with the peak power of all modules while any of them syncs or fetches.)

use perdura_media::Watts;

/// A time, picoseconds: from and to.
type Span = (u64, u64);

/// The busy times of all modules.
#[derive(Debug, Clone, Default)]
pub struct Meters {
    /// When each module served clients.
    served: Vec<Vec<Span>>,
    /// When each module took part in a sync or a fetch, from the first to the last entry.
    copied: Vec<Vec<Span>>,
    /// The accesses of each module by syncs and fetches.
    copies: Vec<Vec<Span>>,
}

/// Power of a module.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Powers {
    /// Power of a module that sleeps.
    pub idle: Watts,
    /// Power of a primary under requests.
    pub primary: Watts,
    /// Power of a module that syncs or fetches.
    pub peak: Watts,
}

impl Meters {
    pub(super) fn new(devices: usize) -> Self {
        let none = || vec![Vec::new(); devices];
        Self { served: none(), copied: none(), copies: none() }
    }

    pub(super) fn served(&mut self, device: usize, from_ps: u64, to_ps: u64) {
        self.served[device].push((from_ps, to_ps));
    }

    pub(super) fn copies(&mut self, device: usize, from_ps: u64, to_ps: u64) {
        self.copies[device].push((from_ps, to_ps));
    }

    pub(super) fn copied(&mut self, devices: &[usize], from_ps: u64, to_ps: u64) {
        devices.iter().for_each(|device| self.copied[*device].push((from_ps, to_ps)));
    }

    /// Time in which a module was accessed, for clients or for copies, picoseconds: the paper's
    /// execution time.
    pub fn accessed_ps(&self, device: usize) -> u64 {
        length(&union([&self.served[device][..], &self.copies[device]].concat()))
    }

    /// Time in which anything was synced or fetched, picoseconds.
    pub fn copied_ps(&self) -> u64 {
        length(&union(self.copied.concat()))
    }

    /// Joules of all modules for so long, where the first `primaries` are primaries.
    pub fn joules(&self, powers: &Powers, primaries: usize, for_ps: u64) -> f64 {
        let joules = |Watts(watts): Watts, ps: u64| watts * ps as f64 / 1e12;
        let each = self.served.iter().zip(&self.copied).enumerate().map(|(device, spans)| {
            let (served, copied) = spans;
            let at_peak = match device < primaries {
                true => copied.clone(),
                false => [&served[..], copied].concat(),
            };
            let rest = if device < primaries { powers.primary } else { powers.idle };
            let peak_ps = length(&union(at_peak)).min(for_ps);
            joules(powers.peak, peak_ps) + joules(rest, for_ps - peak_ps)
        });
        each.sum()
    }
}

/// The times that spans cover, as spans that do not touch, in their order.
fn union(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable();
    let mut whole: Vec<Span> = Vec::new();
    for (from_ps, to_ps) in spans {
        match whole.last_mut() {
            Some(last) if from_ps <= last.1 => last.1 = last.1.max(to_ps),
            _ => whole.push((from_ps, to_ps)),
        }
    }
    whole
}

fn length(spans: &[Span]) -> u64 {
    spans.iter().map(|(from_ps, to_ps)| to_ps - from_ps).sum()
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    const POWERS: Powers = Powers { idle: Watts(1.91), primary: Watts(2.8), peak: Watts(3.64) };

    /// The power of each module at each moment of a fine grid, added up.
    fn sampled(meters: &Meters, primaries: usize, until_ps: u64) -> f64 {
        let step_ps = until_ps / 20_000;
        let is_in = |spans: &[Span], at: u64| spans.iter().any(|span| span.0 <= at && at < span.1);
        let mut joules = 0.0;
        for step in 0..20_000 {
            let at = step * step_ps + step_ps / 2;
            for (device, served) in meters.served.iter().enumerate() {
                let watts = match () {
                    () if is_in(&meters.copied[device], at) => POWERS.peak,
                    () if device < primaries => POWERS.primary,
                    () if is_in(served, at) => POWERS.peak,
                    () => POWERS.idle,
                };
                joules += watts.0 * step_ps as f64 / 1e12;
            }
        }
        joules
    }

    #[test]
    fn the_energy_is_that_of_a_sum_over_the_time() {
        for seed in 0..10 {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut meters = Meters::new(4);
            let until_ps = 1_000_000_000;
            let mut span = |longest: u64| {
                let from_ps = random.random_range(0..until_ps - longest);
                (from_ps, from_ps + random.random_range(0..longest))
            };
            for device in 0..4 {
                for _ in 0..50 {
                    let (from_ps, to_ps) = span(10_000_000);
                    meters.served(device, from_ps, to_ps);
                }
            }
            for work in 0..6 {
                let (from_ps, to_ps) = span(50_000_000);
                meters.copied(&[work % 2, 2 + work % 2], from_ps, to_ps);
            }
            let (found, summed) =
                (meters.joules(&POWERS, 1, until_ps), sampled(&meters, 1, until_ps));
            assert!((found / summed - 1.0).abs() < 0.01, "seed {seed}: {found} J, {summed} J");
        }
    }

    #[test]
    fn nothing_but_idleness_is_the_paper_s_arithmetic() {
        let meters = Meters::new(4);
        let second_ps = 1_000_000_000_000;
        let saved =
            1.0 - meters.joules(&POWERS, 1, second_ps) / meters.joules(&POWERS, 4, second_ps);
        // One primary at 2.8 W and three at 1.91 W.
        assert!((saved - 0.238).abs() < 0.001, "{saved}");
    }
}
