//! On a slow device, those who wait for a block go before the threads that load in the background.
//!
//! A read of a block would wait behind the large reads of all these threads: tens of milliseconds
//! on a disk of 125 MB/s. So, as long as somebody asks for blocks, one thread at a time reads in
//! the background, and pauses before each read for as long as the last one took: half of the device
//! is left. On a fast device nobody waits for long, and nothing changes.

use std::sync::atomic::Ordering::*;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

/// A read that takes longer is of a slow device: 2 MiB at 400 MB/s.
const SLOW: Duration = Duration::from_millis(5);
/// Somebody who has asked for a block is likely to ask for another within this time.
const ASKS_AGAIN: Duration = Duration::from_millis(20);
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The reads of a device from which an image is being loaded: those that somebody waits for, and
/// those in the background.
pub(super) struct Traffic {
    began: Instant,
    /// Threads that load a block for somebody who waits.
    asking: AtomicU32,
    /// When the last of them was done, nanoseconds since the beginning.
    asked_ns: AtomicU64,
    /// How long the last read in the background took, nanoseconds.
    took_ns: AtomicU64,
    /// Whether a thread in the background has the turn.
    is_taken: AtomicBool,
}

/// A read for somebody who waits; ended when dropped.
pub(super) struct Asking<'t>(&'t Traffic);

/// The turn to read in the background; ended when dropped.
struct Turn<'t>(&'t Traffic);

impl Traffic {
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            asking: AtomicU32::new(0),
            asked_ns: AtomicU64::new(u64::MAX),
            took_ns: AtomicU64::new(0),
            is_taken: AtomicBool::new(false),
        }
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Begins a read for somebody who waits.
    pub(super) fn ask(&self) -> Asking<'_> {
        self.asking.fetch_add(1, Relaxed);
        Asking(self)
    }

    /// Whether somebody asks for blocks.
    fn is_asked(&self) -> bool {
        let asked_ns = self.asked_ns.load(Relaxed);
        let again_ns = asked_ns.saturating_add(ASKS_AGAIN.as_nanos() as u64);
        self.asking.load(Relaxed) > 0 || (asked_ns != u64::MAX && self.now_ns() < again_ns)
    }

    /// Reads in the background, when it is time.
    pub(super) fn read<T>(&self, read: impl FnOnce() -> T) -> T {
        let _turn = self.give_way();
        let began_ns = self.now_ns();
        let outcome = read();
        self.took_ns.store(self.now_ns().saturating_sub(began_ns), Relaxed);
        outcome
    }

    /// Waits until it is time to read in the background. Returns the turn, if threads take turns.
    fn give_way(&self) -> Option<Turn<'_>> {
        let pause = Duration::from_nanos(self.took_ns.load(Relaxed));
        if pause < SLOW {
            return None;
        }
        let began = Instant::now();
        while self.is_asked() {
            if began.elapsed() >= pause && !self.is_taken.swap(true, Acquire) {
                return Some(Turn(self));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        None
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.is_taken.store(false, Release);
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.asked_ns.store(self.0.now_ns(), Relaxed);
        self.0.asking.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads in the background by three threads, each of which takes `took`. Returns how many went
    /// on at once at the most, but for the first.
    fn most_at_once(traffic: &Traffic, took: Duration, reads: usize) -> u32 {
        let (now, most) = (AtomicU32::new(0), AtomicU32::new(0));
        // How long a read takes is known after the first.
        traffic.read(|| std::thread::sleep(took));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..reads {
                        traffic.read(|| {
                            most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
                            std::thread::sleep(took);
                            now.fetch_sub(1, SeqCst);
                        });
                    }
                });
            }
        });
        most.into_inner()
    }

    #[test]
    fn while_somebody_asks_one_thread_at_a_time_reads_from_a_slow_device() {
        let traffic = Traffic::new();
        let asking = traffic.ask();
        assert_eq!(most_at_once(&traffic, 2 * SLOW, 3), 1);
        drop(asking);
        assert!(traffic.is_asked(), "it may ask again");
    }

    #[test]
    fn nobody_waits_if_nobody_asks_or_the_device_is_fast() {
        let traffic = Traffic::new();
        assert!(most_at_once(&traffic, 2 * SLOW, 3) > 1);
        let traffic = Traffic::new();
        let _asking = traffic.ask();
        traffic.read(|| ());
        assert!(traffic.give_way().is_none());
    }
}
