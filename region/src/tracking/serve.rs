//! How faults reach the fault path: by signal in the faulting thread, or by message to a thread of
//! ours.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::fault::{Blocked, serve_signal};
use super::pages::{Guard, PAGE_BYTES, PageTracker};
use crate::core::Core;
use crate::error::OpenError;
use perdura_dirty::stats::Counters;
use perdura_dirty::sys::signals::{FaultSignal, RANGES_MAX, Registration};
use perdura_dirty::sys::{Delivery, Uffd};

/// Faults the thread keeps at a time; the kernel keeps the others.
const FAULTS_MAX: usize = 1024;
/// How soon faults that could not be served are tried again. New faults arrive on a descriptor,
/// room on a futex: one thread cannot sleep on both.
const RETRY: Duration = Duration::from_micros(200);

/// Whatever brings the faults of a region to it, until dropped. To be dropped before the region's
/// core.
pub(crate) enum Service {
    Signal(#[expect(dead_code, reason = "dropping it ends the service")] Registration),
    Thread { stop: OwnedFd, thread: Option<JoinHandle<()>> },
}

impl Service {
    /// From now on stores to closed pages are served.
    pub fn start(core: &Arc<Core>) -> Result<Option<Self>, OpenError> {
        let Some(tracker) = core.tracking.pages() else { return Ok(None) };
        let refused = |source| OpenError::Tracking { mode: "fault service", source };
        let signal = match &tracker.guard {
            Guard::Uffd(_, Delivery::Message) => {
                let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(refused)?;
                let stopped = stop.try_clone().map_err(|_| refused(Errno::MFILE))?;
                let core = Arc::clone(core);
                let thread = std::thread::Builder::new()
                    .name("perdura-faults".into())
                    .spawn(move || serve_messages(&core, &stopped))
                    .map_err(|_| refused(Errno::AGAIN))?;
                return Ok(Some(Self::Thread { stop, thread: Some(thread) }));
            }
            Guard::Uffd(_, Delivery::Signal) => FaultSignal::Bus,
            Guard::Mprotect => FaultSignal::Segv,
        };
        let start = core.map.base() as usize;
        let end = start + core.map.len_bytes() as usize;
        let context = Arc::as_ptr(core).cast();
        // SAFETY: `Region` drops the service before its last reference to the core.
        let registration = unsafe { Registration::new(signal, start, end, context, serve_signal) };
        match registration.map_err(refused)? {
            Some(registration) => Ok(Some(Self::Signal(registration))),
            None => Err(OpenError::Setting {
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
            // An eventfd at 0 takes any number of ones.
            let _ = rustix::io::write(&*stop, &1u64.to_ne_bytes());
            if thread.take().is_some_and(|thread| thread.join().is_err()) {
                tracing::error!("the fault thread panicked");
            }
        }
    }
}

fn serve_messages(core: &Core, stop: &OwnedFd) {
    let Some(tracker) = core.tracking.pages() else { return };
    let Guard::Uffd(uffd, _) = &tracker.guard else { return };
    let mut faults = Vec::with_capacity(FAULTS_MAX);
    loop {
        let longest = (!faults.is_empty()).then_some(RETRY);
        let outcome = uffd.wait(stop, longest).and_then(|stopped| {
            if stopped {
                return Ok(true);
            }
            let waiting = faults.len();
            uffd.read_faults(FAULTS_MAX - waiting, &mut faults)?;
            Counters::add(&core.stats.faults, (faults.len() - waiting) as u64);
            Ok(false)
        });
        match outcome {
            Ok(false) => faults.retain(|address| !tracker.answer(core, uffd, *address)),
            Ok(true) => break,
            Err(error) => {
                // Faults stay unanswered: their threads wait, which loses nothing.
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
    /// Tries to serve one fault. True: its thread goes on.
    fn answer(&self, core: &Core, uffd: &Uffd, address: usize) -> bool {
        if self.gone.load(Acquire) {
            return false;
        }
        let page = (address - core.map.base() as usize) as u64 / PAGE_BYTES;
        match self.open_page(core, page, None) {
            Ok(()) => true,
            Err(Blocked::Broken) => {
                tracing::error!(page, "a page cannot be opened");
                let page_at = core.map.base() as usize + (page * PAGE_BYTES) as usize;
                // It traps again: the thread waits, and nothing is written.
                uffd.wake(page_at, PAGE_BYTES as usize).is_err()
            }
            Err(blocked) => {
                self.ask(core, page, blocked);
                false
            }
        }
    }
}
