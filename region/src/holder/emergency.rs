//! A holder's flush without the server, and what visitors are told meanwhile.

use std::os::fd::OwnedFd;

use perdura_dirty::RegionError;
use perdura_media::file::Engine;
use perdura_media::{Clock, FileDevice};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::error::{HolderError, failed};
use super::socket::admit;
use super::wire::{Message, receive, send};
use crate::attachment::Attachment;
use crate::flush::FlushOptions;

/// Flushes the held memory to the held image.
pub(super) fn flush(
    attachment: &Attachment,
    image: &OwnedFd,
    threads: usize,
    clock: &dyn Clock,
) -> Result<Message, HolderError> {
    let used_bytes = attachment.used_bytes();
    let began_ns = clock.now_ns();
    let image = image.try_clone().map_err(failed("copy a descriptor"))?;
    let options = FlushOptions { threads, unix_ms: clock.unix_ms() };
    let report = FileDevice::from_fd(image, Engine::Auto)
        .map_err(|error| RegionError::Latched { cause: error.to_string() })
        .and_then(|device| attachment.flush(&device, options))
        .map_err(|source| HolderError::Flush { used_bytes, source })?;
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

/// Runs `flush` on a thread of its own, and meanwhile answers every visitor with `wait`. If the
/// system has no thread or descriptor left, `flush` runs here and visitors get no answer.
pub(super) fn answer_while(
    listener: &OwnedFd,
    wait: &Message,
    flush: impl Fn() -> Result<Message, HolderError> + Sync,
) -> Result<Message, HolderError> {
    let Ok(done) = eventfd(0, EventfdFlags::CLOEXEC) else { return flush() };
    std::thread::scope(|scope| {
        let worker = std::thread::Builder::new().spawn_scoped(scope, || {
            // Signals even if the flush panics.
            let _signal = SignalOnDrop(&done);
            flush()
        });
        let Ok(worker) = worker else { return flush() };
        loop {
            let mut fds = [PollFd::new(&done, PollFlags::IN), PollFd::new(listener, PollFlags::IN)];
            match poll(&mut fds, None) {
                Err(rustix::io::Errno::INTR) => continue,
                // Visitors get no answer any more; the flush is waited for below.
                Err(_) => break,
                Ok(_) if !fds[0].revents().is_empty() => break,
                Ok(_) => {}
            }
            if let Some(visitor) = admit(listener) {
                // The request does not matter, but closing a socket with unread bytes would discard
                // the answer.
                let _ = receive(&visitor);
                let _ = send(&visitor, wait, &[]);
            }
        }
        match worker.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Makes an event descriptor readable when it is dropped.
struct SignalOnDrop<'a>(&'a OwnedFd);

impl Drop for SignalOnDrop<'_> {
    fn drop(&mut self) {
        // The counter is 0 here, so adding 1 cannot block.
        let _ = rustix::io::write(self.0, &1u64.to_ne_bytes());
    }
}
