//! Threads that take turns: one runs, and at each point a seed decides who goes on.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use perdura_dirty::schedule;
use perdura_media::Clock;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

/// Points of a schedule after which it is given up: somebody waits for what nobody will do.
const POINTS_MAX: u64 = 400_000;
/// Threads of a schedule.
pub(super) const THREADS: usize = 4;
/// Points of a hundred at which another thread goes on.
const SWITCH_PERCENT: u32 = 30;

/// The end of a thread whose process was killed.
struct Killed;

/// The turns of some threads.
pub(super) struct Turns {
    state: Mutex<State>,
    /// One for each thread, so that only the next one is woken.
    changed: [Condvar; THREADS],
    now_ns: AtomicU64,
}

struct State {
    random: Random,
    running: usize,
    /// Threads that have not ended.
    alive: Vec<usize>,
    points: u64,
    /// The point at which the process is killed, and what is done then.
    kill_at: u64,
    kill: Option<Box<dyn FnOnce() + Send>>,
    is_killed: bool,
}

impl Turns {
    /// Turns in which the process is killed at the point `kill_at`, where `kill` is called.
    pub(super) fn new(seed: u64, kill_at: u64, kill: Box<dyn FnOnce() + Send>) -> &'static Self {
        let state = State {
            random: Random::seed_from_u64(seed),
            running: 0,
            alive: Vec::new(),
            points: 0,
            kill_at,
            kill: Some(kill),
            is_killed: false,
        };
        // A thread's step lives as long as the program. Some hundred schedules are some kilobytes.
        Box::leak(Box::new(Self {
            state: Mutex::new(state),
            changed: Default::default(),
            now_ns: AtomicU64::new(0),
        }))
    }

    /// Runs the threads to their ends, or until the process is killed. Returns whether it was.
    pub(super) fn run(&'static self, threads: [Box<dyn FnOnce() + Send>; THREADS]) -> bool {
        self.state.lock().alive = (0..threads.len()).collect();
        let begun = threads.into_iter().enumerate().map(|(me, run)| {
            std::thread::spawn(move || {
                let step: schedule::Step = Box::leak(Box::new(move || self.point(me)));
                schedule::follow(Some(step));
                let ended = catch_unwind(AssertUnwindSafe(|| {
                    self.wait(me);
                    run();
                }));
                schedule::follow(None);
                self.end(me, ended.as_ref().is_err_and(|panic| !panic.is::<Killed>()));
                match ended {
                    Err(panic) if !panic.is::<Killed>() => resume_unwind(panic),
                    _ => {}
                }
            })
        });
        let begun: Vec<_> = begun.collect();
        for thread in begun {
            if let Err(panic) = thread.join() {
                resume_unwind(panic);
            }
        }
        self.state.lock().is_killed
    }

    /// Waits for the thread's first turn.
    fn wait(&self, me: usize) {
        let mut state = self.state.lock();
        while state.running != me && !state.is_killed {
            self.changed[me].wait(&mut state);
        }
        if state.is_killed {
            drop(state);
            resume_unwind(Box::new(Killed));
        }
    }

    fn point(&self, me: usize) {
        if std::thread::panicking() {
            return;
        }
        let mut state = self.state.lock();
        state.points += 1;
        assert!(state.points < POINTS_MAX, "somebody waits for what nobody will do");
        if state.points == state.kill_at && !state.is_killed {
            state.is_killed = true;
            if let Some(kill) = state.kill.take() {
                kill();
            }
            self.changed.iter().for_each(|thread| _ = thread.notify_one());
        } else if state.random.random_range(0..100) < SWITCH_PERCENT {
            let alive = state.alive.len();
            let next = state.random.random_range(0..alive);
            state.running = state.alive[next];
            self.changed[state.running].notify_one();
        }
        drop(state);
        self.wait(me);
    }

    /// Ends a thread. One that panicked by itself ends all.
    fn end(&self, me: usize, has_panicked: bool) {
        let mut state = self.state.lock();
        state.alive.retain(|other| *other != me);
        state.is_killed |= has_panicked;
        state.running = state.alive.first().copied().unwrap_or_default();
        self.changed.iter().for_each(|thread| _ = thread.notify_one());
    }
}

impl Clock for Turns {
    fn now_ns(&self) -> u64 {
        self.now_ns.fetch_add(1_000, SeqCst)
    }

    fn unix_ms(&self) -> u64 {
        1_000
    }

    fn thread_cpu_ns(&self) -> u64 {
        0
    }

    fn sleep_ns(&self, duration_ns: u64) {
        self.now_ns.fetch_add(duration_ns, SeqCst);
        schedule::point();
    }

    /// Waits for the change alone: the bound on the time is left out, so that a lost notification
    /// is seen.
    fn wait_change(&self, word: &AtomicU32, seen: u32, _longest: Duration) {
        while word.load(SeqCst) == seen {
            schedule::point();
        }
    }
}
