//! A virtual clock for several threads, which take turns: one runs, the others wait.
//!
//! Time passes only when all threads wait, and then to the instant at which the first of them
//! continues. So a region with its own thread runs as fast as it computes, the same way every time,
//! and computing takes no time. Threads wait by [`Clock::sleep_ns`] and [`Clock::wait_change`]; a
//! thread that waits for another in any other way stops all threads.
//!
//! Before [`TurnClock::begin`] and after [`TurnClock::end`] threads run freely: sleeping advances
//! the clock at once, and other waits are real, and short.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::thread::ThreadId;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::clock::{Clock, RealClock};
use crate::sys::Watched;

/// Longest wait while threads do not take turns.
const FREE_WAIT: Duration = Duration::from_millis(1);

/// The clock that threads share.
#[derive(Debug, Default)]
pub struct TurnClock {
    now_ns: AtomicU64,
    is_begun: AtomicBool,
    turns: Mutex<Turns>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Turns {
    /// Waiting threads, in the order in which they first waited: at equal times the first continues
    /// first.
    threads: Vec<Waiting>,
    running: Option<ThreadId>,
}

#[derive(Debug)]
struct Waiting {
    thread: ThreadId,
    until_ns: u64,
    word: Option<Watched>,
}

impl Waiting {
    fn may_go_on(&self, now_ns: u64) -> bool {
        self.until_ns <= now_ns || self.word.as_ref().is_some_and(Watched::has_changed)
    }
}

impl TurnClock {
    /// Begins the turns. This thread runs; `others` are waited for until all of them wait.
    pub fn begin(&self, others: usize) {
        let mut turns = self.turns.lock();
        turns.threads.clear();
        turns.running = Some(std::thread::current().id());
        self.is_begun.store(true, SeqCst);
        while turns.threads.len() < others {
            self.changed.wait(&mut turns);
        }
    }

    /// Ends the turns: threads run freely from now on.
    pub fn end(&self) {
        let mut turns = self.turns.lock();
        self.is_begun.store(false, SeqCst);
        turns.threads.clear();
        self.changed.notify_all();
    }

    /// Waits until that instant, if it has not passed.
    pub fn sleep_until_ns(&self, until_ns: u64) {
        if !self.is_begun.load(SeqCst) {
            self.now_ns.fetch_max(until_ns, SeqCst);
        } else if until_ns > self.now_ns() {
            self.wait(until_ns, None);
        }
    }

    fn wait(&self, until_ns: u64, word: Option<Watched>) {
        let thread = std::thread::current().id();
        let mut turns = self.turns.lock();
        let is_new = !turns.threads.iter().any(|waiting| waiting.thread == thread);
        let waiting = Waiting { thread, until_ns, word };
        match turns.threads.iter_mut().find(|waiting| waiting.thread == thread) {
            Some(place) => *place = waiting,
            None => turns.threads.push(waiting),
        }
        if turns.running == Some(thread) {
            turns.running = Some(self.next(&turns));
        }
        if turns.running != Some(thread) || is_new {
            self.changed.notify_all();
        }
        self.wait_for_turn(&mut turns, thread);
        // The watched word may be gone from now on.
        if let Some(place) = turns.threads.iter_mut().find(|waiting| waiting.thread == thread) {
            (place.until_ns, place.word) = (u64::MAX, None);
        }
    }

    fn wait_for_turn(&self, turns: &mut MutexGuard<'_, Turns>, thread: ThreadId) {
        while turns.running != Some(thread) && self.is_begun.load(SeqCst) {
            self.changed.wait(turns);
        }
    }

    /// The thread that continues next; all threads wait.
    fn next(&self, turns: &Turns) -> ThreadId {
        loop {
            let now_ns = self.now_ns.load(SeqCst);
            if let Some(next) = turns.threads.iter().find(|waiting| waiting.may_go_on(now_ns)) {
                return next.thread;
            }
            let first_ns = turns.threads.iter().map(|waiting| waiting.until_ns).min();
            self.now_ns.store(first_ns.unwrap_or(now_ns), SeqCst);
        }
    }
}

impl Clock for TurnClock {
    fn now_ns(&self) -> u64 {
        self.now_ns.load(SeqCst)
    }

    fn unix_ms(&self) -> u64 {
        self.now_ns() / 1_000_000
    }

    fn thread_cpu_ns(&self) -> u64 {
        0
    }

    fn sleep_ns(&self, duration_ns: u64) {
        self.sleep_until_ns(self.now_ns().saturating_add(duration_ns));
    }

    fn wait_change(&self, word: &AtomicU32, seen: u32, longest: Duration) {
        if !self.is_begun.load(SeqCst) {
            return RealClock.wait_change(word, seen, longest.min(FREE_WAIT));
        }
        if word.load(SeqCst) == seen {
            let longest_ns = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
            let until_ns = self.now_ns().saturating_add(longest_ns);
            // SAFETY: `wait` drops the reference before it returns; after `end` no thread reads the
            // word.
            self.wait(until_ns, Some(unsafe { Watched::new(word, seen) }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_to_whoever_is_first_and_a_changed_word_wakes_at_once() {
        let (clock, word) = (TurnClock::default(), AtomicU32::new(0));
        let seen = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Waits are real before the beginning, so this thread returns again and again.
                while !clock.is_begun.load(SeqCst) {
                    clock.wait_change(&word, 0, Duration::from_secs(1));
                }
                for version in 0..3 {
                    clock.wait_change(&word, version, Duration::from_nanos(100));
                    seen.lock().push(("called", clock.now_ns(), word.load(SeqCst)));
                }
                clock.sleep_ns(7);
                seen.lock().push(("slept", clock.now_ns(), 0));
                clock.sleep_ns(1_000_000);
            });
            clock.begin(1);
            for at_ns in [30, 60, 500] {
                clock.sleep_until_ns(at_ns);
                seen.lock().push(("writes", clock.now_ns(), 0));
                if at_ns < 500 {
                    word.fetch_add(1, SeqCst);
                }
            }
            clock.end();
        });
        let expected = [
            ("writes", 30, 0),
            ("called", 30, 1),
            ("writes", 60, 0),
            ("called", 60, 2),
            ("called", 160, 2),
            ("slept", 167, 0),
            ("writes", 500, 0),
        ];
        assert_eq!(*seen.lock(), expected);
    }
}
