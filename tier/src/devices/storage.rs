//! The devices as the store's storage of far values: reads, and the count of what is still needed.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use perdura_store::{FarAddress, FarError, FarStorage, FarValue};

use super::assign::can_sleep;
use super::members::Devices;

/// Longest wait of an allocation for the mover. A device that takes longer for a batch is as good
/// as failed.
const PATIENCE: Duration = Duration::from_secs(10);

impl FarStorage for Devices {
    fn read(&self, wanted: &[FarValue]) -> Vec<Result<Box<[u8]>, FarError>> {
        let mut results: Vec<_> = wanted.iter().map(|value| Err(absent(value))).collect();
        let (mut parts, mut places) = (Vec::new(), Vec::new());
        for member in self.members() {
            let here = |index: &usize| wanted[*index].at.device == member.number();
            let indices: Vec<_> = (0..wanted.len()).filter(here).collect();
            if !indices.is_empty() {
                let values = indices.iter().map(|index| wanted[*index].clone()).collect();
                parts.push((member, values));
                places.push(indices);
            }
        }
        for (indices, values) in places.into_iter().zip(self.readers.read(parts)) {
            indices.into_iter().zip(values).for_each(|(index, value)| results[index] = value);
        }
        results
    }

    fn freed(&self, at: FarAddress, was_found: bool) {
        if was_found && let Some(member) = self.member(at.device) {
            member.segments.lock().take_live(at.offset, u64::from(at.record_bytes));
        }
    }

    fn found(&self, at: FarAddress) {
        let is_there = self.member(at.device).is_some_and(|member| {
            member.segments.lock().found(at.offset, u64::from(at.record_bytes))
        });
        if !is_there {
            tracing::debug!(device = at.device, offset = at.offset, "a value lies on no device");
        }
    }

    fn make_room(&self) -> bool {
        let mut progress = self.progress.lock();
        if !progress.has_mover {
            return false;
        }
        let (bytes, failures) = (progress.bytes, progress.failures);
        let end = Instant::now() + PATIENCE;
        self.waiting.begin(self.clock.now_ns());
        while progress.bytes == bytes && progress.failures == failures && !progress.is_over {
            progress.is_wanted = true;
            self.wanted.notify_all();
            if self.moved.wait_until(&mut progress, end).timed_out() {
                break;
            }
        }
        self.waiting.end(self.clock.now_ns());
        progress.bytes != bytes
    }

    fn keeps_near(&self, uses: u8, at: FarAddress) -> bool {
        if uses >= self.uses_to_return.load(Relaxed) {
            return true;
        }
        // It leaves memory to a primary, so that it wakes the idle device only once.
        let members = self.members();
        let member = members.iter().find(|member| member.number() == at.device);
        member.is_some_and(|member| can_sleep(member, &members))
    }
}

fn absent(value: &FarValue) -> FarError {
    let why = "it is not there; add its directory to those of the server".into();
    FarError { device: value.at.device, place: "unknown".into(), why }
}
