//! Flushes without the server, each on a thread of its own, so that no flush waits for another
//! region's device and everybody gets an answer meanwhile.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use perdura_media::file::Engine;
use perdura_media::{Clock, FileDevice};
use perdura_region::holder::wire::{ImageFile, Message};
use perdura_region::{Attachment, FlushOptions, RegionError};
use rustix::event::{EventfdFlags, eventfd};

use crate::error::{HoldError, failed};
use crate::foreign::Foreign;
use crate::sys::Process;

/// Time that a server which has closed its link, or was killed, may take to end.
const ENDS_WITHIN: Duration = Duration::from_millis(200);

/// The outcome of a flush: the answer to whoever asked for it.
pub(crate) type Outcome = Result<Message, HoldError>;

/// The flushes under way, and the outcomes of those that have ended.
pub(crate) struct Flushes {
    threads: usize,
    clock: Arc<dyn Clock>,
    tell: Sender<(ImageFile, Outcome)>,
    told: Receiver<(ImageFile, Outcome)>,
    /// Readable when an outcome may be there.
    ended: Arc<OwnedFd>,
}

impl Flushes {
    pub(crate) fn new(threads: usize, clock: Arc<dyn Clock>) -> Result<Self, HoldError> {
        let (tell, told) = channel();
        let ended = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(failed("event descriptor"))?;
        Ok(Self { threads, clock, tell, told, ended: Arc::new(ended) })
    }

    /// Begins a flush of held memory to a held image, after the end of its server. If the system
    /// has no thread left, the flush runs here.
    pub(crate) fn begin(
        &self,
        name: ImageFile,
        server: Process,
        attachment: Arc<Attachment>,
        image: Arc<Foreign>,
    ) {
        let flush = Arc::new({
            let (tell, ended) = (self.tell.clone(), Arc::clone(&self.ended));
            let (threads, clock) = (self.threads, Arc::clone(&self.clock));
            move || {
                let used_bytes = attachment.used_bytes();
                let run = || flush(server, &attachment, &image, threads, &*clock);
                let outcome = catch_unwind(AssertUnwindSafe(run))
                    .unwrap_or(Err(HoldError::FlushPanicked { used_bytes }));
                // Nobody listens any more only at the end of this process.
                let _ = tell.send((name, outcome));
                // A counter at its limit has woken the loop already.
                let _ = rustix::io::write(&*ended, &1u64.to_ne_bytes());
            }
        });
        let on_thread = Arc::clone(&flush);
        let thread = std::thread::Builder::new().name("perdura-flush".into());
        if thread.spawn(move || on_thread()).is_err() {
            flush();
        }
    }

    /// A descriptor that is readable when a flush has ended.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }

    /// The flushes that have ended since the last call.
    pub(crate) fn take(&self) -> Vec<(ImageFile, Outcome)> {
        let mut counter = [0; 8];
        // Nothing to read means that no flush has ended.
        let _ = rustix::io::read(&*self.ended, &mut counter);
        self.told.try_iter().collect()
    }
}

fn flush(
    server: Process,
    attachment: &Attachment,
    image: &Foreign,
    threads: usize,
    clock: &dyn Clock,
) -> Outcome {
    let used_bytes = attachment.used_bytes();
    if !server.has_ended_within(ENDS_WITHIN) {
        return Err(HoldError::StillRuns { pid: server.pid, used_bytes });
    }
    let began_ns = clock.now_ns();
    let image = image.as_fd().try_clone_to_owned().map_err(failed("copy a descriptor"))?;
    let options = FlushOptions { threads, unix_ms: clock.unix_ms() };
    let report = FileDevice::from_fd(image, Engine::Auto)
        .map_err(|error| RegionError::Latched { cause: error.to_string() })
        .and_then(|device| attachment.flush(&device, options))
        .map_err(|source| HoldError::Flush { used_bytes, source })?;
    let elapsed_ns = clock.now_ns().saturating_sub(began_ns);
    tracing::info!(
        dirty_bytes = report.dirty_bytes,
        elapsed_ms = elapsed_ns / 1_000_000,
        "flushed without the server"
    );
    Ok(Message::Flushed {
        dirty_bytes: report.dirty_bytes,
        device_bytes: report.device_bytes,
        elapsed_ns,
    })
}
