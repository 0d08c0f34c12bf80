//! How faults reach the fault path: by signal in the faulting thread, or by message to a thread of
//! the region.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::fault::{Blocked, serve_signal};
use super::pages::{Guard, PAGE_BYTES, PageTracker};
use crate::error::SetupError;
use crate::stats::Counters;
use crate::sys::signals::{FaultSignal, RANGES_MAX, Registration};
use crate::sys::{Delivery, Uffd};

/// Most faults that the thread keeps at a time; the kernel keeps the others.
const FAULTS_MAX: usize = 1024;
/// Time until faults that could not be served are tried again. New faults arrive on a descriptor
/// and budget on a futex, and one thread cannot sleep on both.
const RETRY: Duration = Duration::from_micros(200);

/// Brings the faults of a region to the fault path until it is dropped, which must be before the
/// region's memory is dropped.
pub enum Service {
    /// Faults raise signals. The registration is dropped first, and the tracker after it.
    Signal(Registration, Arc<PageTracker>),
    /// Faults are messages that a thread reads.
    Thread {
        /// A descriptor that becomes readable when the thread is to end.
        stop: OwnedFd,
        /// The thread; `None` after it was joined.
        thread: Option<JoinHandle<()>>,
    },
}

impl Service {
    /// Begins to serve stores to closed pages.
    pub fn start(tracker: &Arc<PageTracker>) -> Result<Self, SetupError> {
        let refused = |source| SetupError::Tracking { mode: "fault service", source };
        let signal = match &tracker.guard {
            Guard::Uffd(_, Delivery::Message) => {
                let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(refused)?;
                let stopped = stop.try_clone().map_err(|_| refused(Errno::MFILE))?;
                let served = Arc::clone(tracker);
                let thread = std::thread::Builder::new()
                    .name("perdura-faults".into())
                    .spawn(move || serve_messages(&served, &stopped))
                    .map_err(|_| refused(Errno::AGAIN))?;
                return Ok(Self::Thread { stop, thread: Some(thread) });
            }
            Guard::Uffd(_, Delivery::Signal) => FaultSignal::Bus,
            Guard::Mprotect => FaultSignal::Segv,
        };
        let map = &tracker.memory.map;
        let start = map.base() as usize;
        let end = start + map.len_bytes() as usize;
        let context = Arc::as_ptr(tracker).cast();
        // SAFETY: the service keeps the tracker, and drops the registration before it.
        let registration = unsafe { Registration::new(signal, start, end, context, serve_signal) };
        match registration.map_err(refused)? {
            Some(registration) => Ok(Self::Signal(registration, Arc::clone(tracker))),
            None => Err(SetupError::Setting {
                name: "tracking",
                value: format!("{} trapped regions in this process", RANGES_MAX + 1),
                expected: "at most 64",
            }),
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Self::Thread { stop, thread } = self {
            // An eventfd at 0 accepts a 1, so this cannot fail.
            let _ = rustix::io::write(&*stop, &1u64.to_ne_bytes());
            if thread.take().is_some_and(|thread| thread.join().is_err()) {
                tracing::error!("the fault thread panicked");
            }
        }
    }
}

fn serve_messages(tracker: &PageTracker, stop: &OwnedFd) {
    let Guard::Uffd(uffd, _) = &tracker.guard else { return };
    let mut faults = Vec::with_capacity(FAULTS_MAX);
    loop {
        let longest = (!faults.is_empty()).then_some(RETRY);
        let waiting = faults.len();
        let room = FAULTS_MAX - waiting;
        let outcome = uffd.wait(stop, room, longest).and_then(|stopped| {
            if stopped {
                return Ok(true);
            }
            uffd.read_faults(room, &mut faults)?;
            Counters::add(&tracker.memory.stats.faults, (faults.len() - waiting) as u64);
            Ok(false)
        });
        match outcome {
            Ok(false) => faults.retain(|address| !tracker.answer(uffd, *address)),
            Ok(true) => break,
            Err(error) => {
                // The faults stay unserved and their threads wait, which loses nothing.
                tracing::error!(%error, "the fault thread stopped");
                break;
            }
        }
    }
    for address in faults {
        let _ = uffd.wake(address / 4096 * 4096, 4096);
    }
}

impl PageTracker {
    /// Tries to serve a fault. Returns whether its thread continues.
    fn answer(&self, uffd: &Uffd, address: usize) -> bool {
        if self.gone.load(Acquire) {
            return false;
        }
        let page = (address - self.memory.map.base() as usize) as u64 / PAGE_BYTES;
        match self.open_page(page, None) {
            Ok(()) => true,
            Err(Blocked::Broken) => {
                tracing::error!(page, "a page cannot be opened");
                let page_at = self.memory.map.base() as usize + (page * PAGE_BYTES) as usize;
                // The thread traps again and waits; nothing is written.
                uffd.wake(page_at, PAGE_BYTES as usize).is_err()
            }
            Err(blocked) => {
                self.ask(page, blocked);
                false
            }
        }
    }
}
