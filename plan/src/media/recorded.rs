//! The load of a program that was recorded with `perdura-lab run --record`.

use std::collections::HashMap;

use perdura_media::recording::{Kind, Recording};

use super::{Locality, Workload};

/// The bytes of the pages that locality is counted by.
const PAGE_BYTES: u64 = 4096;

impl Workload {
    /// The load of a recorded program: rate, size and direction of its requests, and how often it
    /// touches each page. The rate is the program's on a medium that takes no time, so only the
    /// program's computing lies between two requests. All other settings are those of `usual`.
    /// `None`: the program read and wrote nothing.
    #[must_use]
    pub fn of_recording(recording: &Recording, usual: &Workload) -> Option<Self> {
        let (mut requests, mut reads, mut bytes, mut think_ps) = (0u64, 0u64, 0u64, 0u64);
        let mut touched: HashMap<u64, u64> = HashMap::new();
        for step in &recording.steps {
            think_ps = think_ps.saturating_add(step.think_ps);
            if step.kind == Kind::Flush || step.len_bytes == 0 {
                continue;
            }
            requests += 1;
            reads += u64::from(step.kind == Kind::Read);
            bytes += u64::from(step.len_bytes);
            let last_bytes = step.offset_bytes + u64::from(step.len_bytes) - 1;
            for page in step.offset_bytes / PAGE_BYTES..=last_bytes / PAGE_BYTES {
                *touched.entry(page).or_default() += 1;
            }
        }
        if requests == 0 {
            return None;
        }
        let pages = touched.len() as u64;
        Some(Self {
            capacity_bytes: pages * PAGE_BYTES,
            rate_per_s: requests as f64 / (think_ps.max(1) as f64 / 1e12),
            request_bytes: bytes / requests,
            read_share: reads as f64 / requests as f64,
            locality: Locality::of_counts(touched.into_values(), pages),
            ..usual.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use perdura_media::recording::Step;

    use super::*;

    fn recording(steps: Vec<Step>) -> Recording {
        Recording {
            steps,
            threads_seen: 1,
            cut_off_steps: 0,
            torn_steps: 0,
            is_finished: true,
            medium_bytes: 1 << 20,
        }
    }

    #[test]
    fn a_recording_is_counted_as_one_does_by_hand() {
        let step = |think_ps, kind, offset_bytes, len_bytes| Step {
            think_ps,
            kind,
            offset_bytes,
            len_bytes,
        };
        let steps = vec![
            step(500_000_000, Kind::Read, 0, 4096),
            step(250_000_000, Kind::Read, 100, 100),
            step(250_000_000, Kind::Write, 4000, 4096),
            step(0, Kind::Flush, 0, 0),
        ];
        let load = Workload::of_recording(&recording(steps), &Workload::default()).unwrap();
        // Pages 0 and 1: asked for three times and once.
        assert_eq!((load.capacity_bytes, load.request_bytes), (8192, (4096 + 100 + 4096) / 3));
        assert!(
            (load.rate_per_s - 3_000.0).abs() < 1e-6 && (load.read_share - 2.0 / 3.0).abs() < 1e-12
        );
        assert!((load.locality.hit_share(0.5) - 0.75).abs() < 1e-12);
    }

    #[test]
    fn a_recording_of_nothing_is_no_load() {
        assert_eq!(Workload::of_recording(&recording(Vec::new()), &Workload::default()), None);
    }
}
