//! How faults reach the fault path: by signal in the faulting thread, or by message to a thread of
//! the region.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::*;
use std::sync::{Arc, Once};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::awake::{Awake, WINDOW};
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
    /// Each guest has a thread of its own.
    Guests,
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
                    .spawn(move || serve_own(&served, &stopped))
                    .map_err(|_| refused(Errno::AGAIN))?;
                return Ok(Self::Thread { stop, thread: Some(thread) });
            }
            Guard::Uffd(_, Delivery::Signal) => FaultSignal::Bus,
            Guard::Mprotect => FaultSignal::Segv,
            Guard::Guests(_) => return Ok(Self::Guests),
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

fn serve_own(tracker: &PageTracker, stop: &OwnedFd) {
    let Guard::Uffd(uffd, _) = &tracker.guard else { return };
    serve_messages(tracker, uffd, stop, &|address| tracker.own_page(address));
}

/// Serves the faults that a userfaultfd reports until `stop` is readable. `page_at` says which page
/// lies at an address.
pub(super) fn serve_messages(
    tracker: &PageTracker,
    uffd: &Uffd,
    stop: &OwnedFd,
    page_at: &dyn Fn(usize) -> Option<u64>,
) {
    let mut faults = Vec::with_capacity(FAULTS_MAX);
    let now = || Duration::from_nanos(tracker.memory.clock.now_ns());
    let mut awake = Awake::new(now());
    loop {
        let longest = match (faults.is_empty(), awake.is_held()) {
            (false, _) => Some(RETRY),
            (true, true) => Some(WINDOW),
            (true, false) => None,
        };
        let waiting = faults.len();
        let room = FAULTS_MAX - waiting;
        let outcome = uffd.wait(stop, room, longest).and_then(|stopped| {
            if stopped {
                return Ok(true);
            }
            uffd.read_faults(room, &mut faults)?;
            let new = faults.len() - waiting;
            Counters::add(&tracker.memory.stats.faults, new as u64);
            awake.note(new, now());
            Ok(false)
        });
        match outcome {
            Ok(false) => {
                faults.retain(|address| !tracker.answer(uffd, *address, page_at(*address)))
            }
            Ok(true) => break,
            Err(error) => {
                // The faults stay unserved and their threads wait, which loses nothing.
                tracing::error!(%error, "the fault thread stopped");
                break;
            }
        }
    }
    for address in faults {
        let _ = wake_at(uffd, address);
    }
}

/// Whether the log has said that a page cannot be opened.
static TOLD_BROKEN: Once = Once::new();

/// Wakes the thread that waits at an address. It traps again.
fn wake_at(uffd: &Uffd, address: usize) -> Result<(), Errno> {
    const PAGE: usize = PAGE_BYTES as usize;
    uffd.wake(address / PAGE * PAGE, PAGE)
}

impl PageTracker {
    /// The page at an address of this process's own mapping.
    fn own_page(&self, address: usize) -> Option<u64> {
        Some((address - self.memory.map.base() as usize) as u64 / PAGE_BYTES)
    }

    /// Tries to serve a fault. Returns whether its thread continues.
    fn answer(&self, uffd: &Uffd, address: usize, page: Option<u64>) -> bool {
        if self.gone.load(Acquire) {
            return false;
        }
        // A mapping that has gone meanwhile: its thread traps as it would without us.
        let Some(page) = page else { return wake_at(uffd, address).is_ok() };
        match self.open_page(page, None) {
            Ok(()) => true,
            Err(Blocked::Broken) => {
                // Its thread may come back with it again and again.
                TOLD_BROKEN.call_once(|| tracing::error!(page, "a page cannot be opened"));
                // Nothing is written. If the page is still the region's, the thread traps again,
                // with another message; trying this one again would bring ever more of them.
                wake_at(uffd, address).is_ok()
            }
            Err(blocked) => {
                self.ask(page, blocked);
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::geometry::{BLOCK_BYTES, GRAIN_SHIFT_TRAP, Geometry};
    use crate::memory::Memory;
    use crate::policy::PolicyKind;
    use crate::tracking::TrapKind;

    const PAGE: usize = PAGE_BYTES as usize;
    /// The page that is stored to, and the word in it.
    const AT: usize = 3 * PAGE + 800;

    /// A tracker whose faults are messages; `None` where only privileged threads get any.
    fn tracker() -> Option<Arc<PageTracker>> {
        let geometry = Geometry::new(4 * BLOCK_BYTES, GRAIN_SHIFT_TRAP, None, 4).unwrap();
        let memory = Arc::new(Memory::in_test(geometry, PolicyKind::default()));
        let tracker = PageTracker::new(TrapKind::UffdThread, memory, Duration::ZERO, false);
        if tracker.is_err() {
            eprintln!("skipped: userfaultfd delivers messages to privileged threads only");
        }
        tracker.ok().map(Arc::new)
    }

    /// The page of the next fault, counted from the beginning of the mapping.
    fn next_fault(uffd: &Uffd, tracker: &PageTracker) -> Option<usize> {
        let (never, _open) = rustix::pipe::pipe().unwrap();
        let mut faults = Vec::new();
        uffd.wait(&never, 1, Some(Duration::from_secs(2))).unwrap();
        uffd.read_faults(1, &mut faults).unwrap();
        faults.first().map(|address| (address - tracker.memory.map.base() as usize) / PAGE)
    }

    #[test]
    fn whoever_waits_for_a_page_when_the_service_ends_is_woken() {
        let Some(tracker) = tracker() else { return };
        let Guard::Uffd(uffd, _) = &tracker.guard else { panic!("another mechanism") };
        let map = &tracker.memory.map;
        // No page can be opened.
        tracker.gate.begin_shut();
        let service = Service::start(&tracker).unwrap();
        let again = std::thread::scope(|scope| {
            scope.spawn(|| map.words(AT as u64, 1)[0].store(7, Relaxed));
            let began = Instant::now();
            while tracker.memory.stats.read().faults == 0 && began.elapsed().as_secs() < 2 {
                std::thread::yield_now();
            }
            drop(service);
            let again = next_fault(uffd, &tracker);
            // Nothing is asserted before the writer can go on.
            uffd.protect(map.base() as usize, map.len_bytes() as usize, false).unwrap();
            again
        });
        assert_eq!(again, Some(AT / PAGE));
        assert_eq!(map.words(AT as u64, 1)[0].load(Relaxed), 7);
    }

    #[test]
    fn a_fault_is_over_when_its_page_is_open_or_can_never_be_opened() {
        let Some(tracker) = tracker() else { return };
        let Guard::Uffd(uffd, _) = &tracker.guard else { panic!("another mechanism") };
        let map = &tracker.memory.map;
        let (start, len) = (map.base() as usize, map.len_bytes() as usize);
        tracker.gate.begin_shut();
        assert!(
            !tracker.answer(uffd, start + AT, tracker.own_page(start + AT)),
            "a cut is being made"
        );
        tracker.gate.reopen();
        assert!(tracker.answer(uffd, start + AT, tracker.own_page(start + AT)));
        map.words(AT as u64, 1)[0].store(7, Relaxed);
        // The mapping is not the tracker's any more.
        uffd.unregister(start, len).unwrap();
        assert_eq!(tracker.open_page(5, None), Err(Blocked::Broken));
        assert!(tracker.answer(uffd, start + 5 * PAGE + 8, tracker.own_page(start + 5 * PAGE + 8)));
        tracker.retire();
        assert!(
            !tracker.answer(uffd, start + AT, tracker.own_page(start + AT)),
            "the region is being dropped"
        );
    }
}
