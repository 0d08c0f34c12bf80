//! The queue without locks: a request is a tag, a tag is a bit of a word, and each request
//! completes its own command.
//!
//! A thread that finds no free tag waits under a lock that only waiters and wakers take. No wake-up
//! is lost: a waiter announces itself before it looks for a tag once more; a thread that frees a
//! tag looks for waiters afterwards; both are sequentially consistent. The wake-up is given under
//! the lock, which the waiter holds from its announcement until it sleeps.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};
use perdura_media::DeviceError;

use super::parts::{Part, Probe};
use super::{Hardware, PathSettings, PlantedPath, Transfer};

#[derive(Debug)]
pub(super) struct Atomic {
    free: CachePadded<AtomicU64>,
    waiters: CachePadded<AtomicUsize>,
    waiting: Mutex<()>,
    freed: Condvar,
    planted: PlantedPath,
}

/// A value on cache lines of its own; two, because processors fetch them in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct CachePadded<T>(T);

impl Atomic {
    pub(super) fn new(settings: &PathSettings) -> Self {
        Self {
            free: CachePadded(AtomicU64::new(u64::MAX >> (u64::BITS as usize - settings.tags))),
            waiters: CachePadded(AtomicUsize::new(0)),
            waiting: Mutex::new(()),
            freed: Condvar::new(),
            planted: settings.planted,
        }
    }

    #[inline]
    pub(super) fn submit<H: Hardware>(
        &self,
        hardware: &H,
        offset_bytes: u64,
        mut transfer: Transfer<'_>,
        spins: bool,
        probe: &mut impl Probe,
    ) -> Result<(), DeviceError> {
        let (access, len_bytes) = (transfer.access(), transfer.len_bytes() as u64);
        let tag = self.try_take().unwrap_or_else(|| self.wait_for_tag());
        probe.mark(Part::Entry, hardware);
        let due_ps = hardware.issue(tag, access, offset_bytes, len_bytes);
        probe.mark(Part::Issue, hardware);
        if self.planted == PlantedPath::FreeTagAtIssue {
            self.give(tag);
        }
        let copied = transfer.copy(hardware, offset_bytes);
        probe.mark_from(due_ps, Part::Copy, hardware);
        match spins {
            _ if self.planted == PlantedPath::ReturnWhenCopied => {}
            true => hardware.spin_until(due_ps),
            false => hardware.sleep_until(due_ps),
        }
        probe.mark_from(due_ps, Part::Wakeup, hardware);
        if self.planted != PlantedPath::FreeTagAtIssue {
            self.give(tag);
        }
        probe.mark(Part::Completion, hardware);
        copied
    }

    #[inline]
    fn try_take(&self) -> Option<usize> {
        let mut free = self.free.0.load(Ordering::SeqCst);
        while free != 0 {
            let without_lowest = free & (free - 1);
            match self.free.0.compare_exchange_weak(
                free,
                without_lowest,
                Ordering::SeqCst,
                Ordering::SeqCst,
            ) {
                Ok(_) => return Some(free.trailing_zeros() as usize),
                Err(now) => free = now,
            }
        }
        None
    }

    #[cold]
    fn wait_for_tag(&self) -> usize {
        let mut waiting = self.waiting.lock();
        self.waiters.0.fetch_add(1, Ordering::SeqCst);
        let tag = loop {
            match self.try_take() {
                Some(tag) => break tag,
                None => self.freed.wait(&mut waiting),
            }
        };
        self.waiters.0.fetch_sub(1, Ordering::SeqCst);
        tag
    }

    #[inline]
    fn give(&self, tag: usize) {
        self.free.0.fetch_or(1 << tag, Ordering::SeqCst);
        if self.waiters.0.load(Ordering::SeqCst) > 0 {
            drop(self.waiting.lock());
            self.freed.notify_one();
        }
    }
}
