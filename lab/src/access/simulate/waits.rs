//! How long a thread waits for an access: memory is paid for by lines, of which a core keeps
//! several in flight.
//!
//! - Independent accesses overlap: the next one may begin after the share `n / r` of the time of an
//!   access of `n` lines, where `r` is `n` rounded up to a multiple of the lines in flight.
//! - A store that is not streamed fetches its lines first, unless the last access left them in the
//!   caches; then they are written back.
//! - A fence waits until they are; without a fence the thread goes on.
//! - Other media get one request at a time.

use perdura_media::{Access, Model};

use super::super::workload::Persist;

/// When a thread has what it asked for, and when it may ask again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Waited {
    pub done_ps: u64,
    pub next_ps: u64,
}

/// Outcome of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    /// The write is under way or done.
    Waited(Waited),
    /// The lines are fetched at this instant and then written back; the thread waits for that.
    Fetched(u64),
    /// The lines are fetched at the instant given and then written back; the thread does not wait.
    Beside(Waited, u64),
}

/// A read whose place depends on no other access under way.
pub(super) fn read(model: &Model, now_ps: u64, place: u64, bytes: u64) -> Waited {
    let done_ps = model.book(now_ps, Access::Read, place, bytes);
    Waited { done_ps, next_ps: passed_ps(model, now_ps, done_ps, bytes) }
}

/// A write with a persist setting; `is_cached`: its lines need not be fetched.
pub(super) fn write(
    model: &Model,
    now_ps: u64,
    place: u64,
    bytes: u64,
    persist: Persist,
    is_cached: bool,
) -> Written {
    let goes_on = persist == Persist::None;
    if persist == Persist::NoCache || is_cached || model.lines().is_none() {
        let done_ps = model.book(now_ps, Access::Write, place, bytes);
        let next_ps = if goes_on { passed_ps(model, now_ps, done_ps, bytes) } else { done_ps };
        return Written::Waited(Waited { done_ps: next_ps, next_ps });
    }
    let fetched_ps = model.book(now_ps, Access::Read, place, bytes);
    if !goes_on {
        return Written::Fetched(fetched_ps);
    }
    let next_ps = passed_ps(model, now_ps, fetched_ps, bytes);
    Written::Beside(Waited { done_ps: next_ps, next_ps }, fetched_ps)
}

/// How much of an access's time the next one waits for.
fn passed_ps(model: &Model, now_ps: u64, done_ps: u64, bytes: u64) -> u64 {
    let Some((line_bytes, in_flight)) = model.lines() else { return done_ps };
    let lines = bytes.div_ceil(line_bytes).max(1);
    let of_rounds = lines.div_ceil(in_flight) * in_flight;
    let passed = u128::from(done_ps - now_ps) * u128::from(lines) / u128::from(of_rounds);
    now_ps + passed as u64
}

#[cfg(test)]
mod tests {
    use perdura_media::System;

    use super::*;

    fn model(name: &str) -> Model {
        let system = System::find(name).unwrap();
        Model::new(&system, system.capacity().0)
    }

    #[test]
    fn independent_reads_of_a_line_overlap_and_those_of_whole_rounds_do_not() {
        let (_, in_flight) = model("apache-256").lines().unwrap();
        let line = read(&model("apache-256"), 0, 0, 64);
        assert_eq!(line.next_ps, line.done_ps / in_flight);
        let rounds = read(&model("apache-256"), 0, 0, 64 * in_flight * 2);
        assert_eq!(rounds.next_ps, rounds.done_ps);
    }

    #[test]
    fn what_is_streamed_or_cached_is_not_fetched_and_only_fences_wait() {
        let write = |persist, is_cached| write(&model("apache-256"), 0, 0, 64, persist, is_cached);
        let fetched_ps = read(&model("apache-256"), 0, 0, 64).done_ps;
        assert_eq!(write(Persist::NoCache, false), write(Persist::CacheInv, true));
        assert_eq!(write(Persist::Cache, false), Written::Fetched(fetched_ps));
        let Written::Beside(waited, at_ps) = write(Persist::None, false) else { panic!("waits") };
        assert!(waited.next_ps < fetched_ps / 5 && at_ps == fetched_ps);
    }

    #[test]
    fn a_disk_is_asked_one_thing_at_a_time_and_fetches_nothing() {
        let names = perdura_media::profile::names();
        let name = names.into_iter().find(|name| model(name).lines().is_none()).unwrap();
        let done = read(&model(name), 0, 0, 4096);
        assert_eq!(done.next_ps, done.done_ps);
        let write = |persist| write(&model(name), 0, 0, 4096, persist, false);
        assert_eq!(write(Persist::NoCache), write(Persist::None));
    }
}
