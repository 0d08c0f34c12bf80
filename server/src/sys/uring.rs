//! An io_uring for sockets: polls, receives into buffers the kernel picks, sends.
//!
//! Ownership: a buffer belongs either to the kernel or to us. One to be received into goes to the kernel with
//! [`Ring::give_back`] and returns in a [`Completion::Received`]; one to be sent goes with [`Ring::send`] and
//! returns in a [`Completion::Sent`]. `drop` takes back what the kernel has before anything is freed.
//!
//! A descriptor is named by its number until it is submitted: submit before closing one.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering::Release};

use io_uring::types::{BufRingEntry, CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

/// What the kernel has done. Tokens are those given with the request.
#[derive(Debug)]
pub(crate) enum Completion {
    /// The descriptor is ready, or has failed: who uses it will see.
    Polled { token: u64 },
    /// Bytes, or none at the end of the stream. `more`: there was more to be had.
    Received { token: u64, result: io::Result<Filled>, more: bool },
    /// The buffer, and how much of what was asked has been sent.
    Sent { token: u64, buffer: Vec<u8>, from: usize, result: io::Result<usize> },
}

/// A buffer the kernel has received into.
#[derive(Debug)]
pub(crate) struct Filled {
    /// None at the end of a stream.
    buffer: Option<(u16, Box<[u8]>)>,
    len: usize,
}

impl Filled {
    /// What was received.
    pub fn bytes(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], |(_, bytes)| &bytes[..self.len])
    }
}

/// Tokens are below this: the rest of the 64 bits says what was asked.
pub(crate) const TOKEN_BITS: u32 = 62;
const POLL: u64 = 0;
const RECEIVE: u64 = 1;
const SEND: u64 = 2;

/// The group of the buffers to be received into.
const GROUP: u16 = 0;

pub(crate) struct Ring {
    ring: IoUring,
    pool: Pool,
    sends: Vec<Option<Outgoing>>,
    free_sends: Vec<u32>,
}

/// Bytes that the kernel is sending.
struct Outgoing {
    token: u64,
    buffer: Vec<u8>,
    from: usize,
}

impl Ring {
    /// A ring with `buffers` (a power of two) of `buffer_bytes` to receive into.
    ///
    /// # Errors
    /// The system has no io_uring for us, or not all that is asked of it (Linux 6.1).
    pub fn new(buffers: u16, buffer_bytes: usize) -> io::Result<Self> {
        let mut builder = IoUring::builder();
        builder.setup_single_issuer().setup_defer_taskrun().setup_cqsize(COMPLETIONS);
        let ring = builder.build(SUBMISSIONS)?;
        let pool = Pool::new(buffers, buffer_bytes);
        // SAFETY: the entries are page aligned, as many as said, and live until `drop` has unregistered them.
        unsafe {
            let entries = pool.entries.as_ptr() as u64;
            ring.submitter().register_buf_ring_with_flags(entries, buffers, GROUP, 0)?;
        }
        Ok(Self { ring, pool, sends: Vec::new(), free_sends: Vec::new() })
    }

    /// Tells once when the descriptor can be read.
    pub fn poll(&mut self, fd: impl AsFd, token: u64) -> io::Result<()> {
        let fd = Fd(fd.as_fd().as_raw_fd());
        self.push(opcode::PollAdd::new(fd, libc::POLLIN as u32).build(), POLL, token)
    }

    /// Receives once. `wait_first`: nothing is expected to be there yet.
    pub fn receive(&mut self, fd: impl AsFd, token: u64, wait_first: bool) -> io::Result<()> {
        let fd = Fd(fd.as_fd().as_raw_fd());
        let flags = if wait_first { RECVSEND_POLL_FIRST } else { 0 };
        let entry = opcode::Recv::new(fd, std::ptr::null_mut(), 0).buf_group(GROUP).ioprio(flags);
        let entry = entry.build().flags(squeue::Flags::BUFFER_SELECT);
        self.push(entry, RECEIVE, token)
    }

    /// Sends `buffer[from..]`, or part of it.
    pub fn send(
        &mut self,
        fd: impl AsFd,
        token: u64,
        buffer: Vec<u8>,
        from: usize,
    ) -> io::Result<()> {
        let place = self.free_sends.pop().unwrap_or(self.sends.len() as u32);
        if place as usize == self.sends.len() {
            self.sends.push(None);
        }
        let bytes = &buffer[from..];
        let len = bytes.len().min(SEND_BYTES_MAX) as u32;
        let entry = opcode::Send::new(Fd(fd.as_fd().as_raw_fd()), bytes.as_ptr(), len).build();
        // The bytes of a `Vec` stay where they are when it moves.
        self.sends[place as usize] = Some(Outgoing { token, buffer, from });
        self.push(entry, SEND, u64::from(place))
    }

    fn push(&mut self, entry: squeue::Entry, kind: u64, token: u64) -> io::Result<()> {
        debug_assert!(token >> TOKEN_BITS == 0);
        let entry = entry.user_data(kind << TOKEN_BITS | token);
        loop {
            // SAFETY: a poll names no memory; a receive takes it from the pool, which `drop` takes back first; a
            // send's bytes are owned by `sends` until its completion, or until `drop` has cancelled it.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return Ok(());
            }
            self.submit()?;
        }
    }

    /// Hands over what was asked so far.
    pub fn submit(&mut self) -> io::Result<()> {
        if self.ring.submission().is_empty() {
            return Ok(());
        }
        ignore_early_return(self.ring.submit())
    }

    /// Hands over what was asked, and waits until something is done or the time is over. `wanted` completions are
    /// waited for, more than one only for a moment, and only where the kernel can (Linux 6.12).
    pub fn wait(&mut self, timeout_ns: u32, wanted: usize) -> io::Result<()> {
        let time = Timespec::new().nsec(timeout_ns);
        let args = SubmitArgs::new().timespec(&time);
        if wanted > 1 && self.ring.params().is_feature_min_timeout() {
            let args = args.min_wait_usec(MOMENT_US);
            return ignore_early_return(self.ring.submitter().submit_with_args(wanted, &args));
        }
        ignore_early_return(self.ring.submitter().submit_with_args(1, &args))
    }

    /// The next thing done. Those that were not asked for with a token of this ring do not exist.
    pub fn reap(&mut self) -> Option<Completion> {
        let entry = self.ring.completion().next()?;
        let (kind, token) =
            (entry.user_data() >> TOKEN_BITS, entry.user_data() & ((1 << TOKEN_BITS) - 1));
        let result = match entry.result() {
            errno @ ..0 => Err(io::Error::from_raw_os_error(-errno)),
            count => Ok(count as usize),
        };
        Some(match kind {
            POLL => Completion::Polled { token },
            RECEIVE => {
                let buffer = cqueue::buffer_select(entry.flags());
                let buffer = buffer.map(|id| (id, self.pool.taken(id)));
                let more = cqueue::sock_nonempty(entry.flags());
                let result = result.map(|len| Filled { buffer, len });
                Completion::Received { token, result, more }
            }
            _ => {
                let sent = self.sends.get_mut(token as usize).and_then(Option::take);
                let Outgoing { token: of, buffer, from } = sent?;
                self.free_sends.push(token as u32);
                Completion::Sent { token: of, buffer, from, result }
            }
        })
    }

    /// Gives a buffer to the kernel again.
    pub fn give_back(&mut self, filled: Filled) {
        if let Some((id, bytes)) = filled.buffer {
            self.pool.give(id, bytes);
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // What can be sent at once still is.
        let _ = self.submit();
        let submitter = self.ring.submitter();
        let cancelled = submitter.register_sync_cancel(None, CancelBuilder::any());
        let none = matches!(&cancelled, Err(error) if error.raw_os_error() == Some(libc::ENOENT));
        let unregistered = submitter.unregister_buf_ring(GROUP);
        if (cancelled.is_err() && !none) || unregistered.is_err() {
            // The kernel may still use them: better lost than freed under its hands.
            std::mem::forget(std::mem::take(&mut self.sends));
            self.pool.lost = true;
        }
    }
}

/// An interrupted or timed-out wait, or one with no room for completions, is looked into by the caller.
fn ignore_early_return(result: io::Result<usize>) -> io::Result<()> {
    match result {
        Ok(_) => Ok(()),
        Err(error) => match error.raw_os_error() {
            Some(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN) => Ok(()),
            _ => Err(error),
        },
    }
}

/// The buffers to be received into, and the entries through which the kernel gets them.
struct Pool {
    entries: NonNull<BufRingEntry>,
    /// By number; null while a buffer is ours.
    buffers: Vec<*mut u8>,
    buffer_bytes: usize,
    tail: u16,
    lost: bool,
}

impl Pool {
    fn new(buffers: u16, buffer_bytes: usize) -> Self {
        assert!(buffers.is_power_of_two());
        let layout = Self::layout(usize::from(buffers));
        // SAFETY: the layout is not empty.
        let Some(entries) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
            handle_alloc_error(layout)
        };
        let mut pool = Self {
            entries: entries.cast(),
            buffers: vec![std::ptr::null_mut(); usize::from(buffers)],
            buffer_bytes,
            tail: 0,
            lost: false,
        };
        for id in 0..buffers {
            pool.give(id, vec![0; buffer_bytes].into_boxed_slice());
        }
        pool
    }

    fn layout(buffers: usize) -> Layout {
        let bytes = size_of::<BufRingEntry>() * buffers;
        // Cannot fail: the alignment is a power of two, the size a few pages.
        Layout::from_size_align(bytes, PAGE_BYTES).unwrap_or(Layout::new::<[u8; PAGE_BYTES]>())
    }

    fn give(&mut self, id: u16, bytes: Box<[u8]>) {
        assert!(bytes.len() == self.buffer_bytes && self.buffers[usize::from(id)].is_null());
        let bytes = Box::into_raw(bytes).cast::<u8>();
        self.buffers[usize::from(id)] = bytes;
        let mask = self.buffers.len() as u16 - 1;
        // SAFETY: the place is inside the entries. The kernel reads only entries before the tail, which is moved
        // after this one is written (release); as many entries as buffers, so none is written over unread.
        unsafe {
            let entry = &mut *self.entries.as_ptr().add(usize::from(self.tail & mask));
            entry.set_addr(bytes as u64);
            entry.set_len(self.buffer_bytes as u32);
            entry.set_bid(id);
        }
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the tail is a 16-bit word inside the first entry, changed by nobody else and here atomically.
        unsafe {
            let tail = BufRingEntry::tail(self.entries.as_ptr()).cast_mut();
            AtomicU16::from_ptr(tail).store(self.tail, Release);
        }
    }

    /// The buffer the kernel says it has filled.
    fn taken(&mut self, id: u16) -> Box<[u8]> {
        let bytes = std::mem::replace(&mut self.buffers[usize::from(id)], std::ptr::null_mut());
        assert!(!bytes.is_null(), "buffer {id} is not the kernel's");
        // SAFETY: made by `Box::into_raw` in `give` with this length; the kernel has handed it back, and the
        // null left behind means that nobody does this twice.
        unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(bytes, self.buffer_bytes)) }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.lost {
            return;
        }
        for id in 0..self.buffers.len() {
            if !self.buffers[id].is_null() {
                drop(self.taken(id as u16));
            }
        }
        let layout = Self::layout(self.buffers.len());
        // SAFETY: allocated with this layout; unregistered, so the kernel has forgotten it.
        unsafe { dealloc(self.entries.as_ptr().cast(), layout) };
    }
}

/// How long several completions are waited for: about as long as an SSD takes to make a write durable.
const MOMENT_US: u32 = 100;
const SUBMISSIONS: u32 = 1024;
const COMPLETIONS: u32 = 8192;
const PAGE_BYTES: usize = 4096;
const SEND_BYTES_MAX: usize = 1 << 30;
/// `IORING_RECVSEND_POLL_FIRST`.
const RECVSEND_POLL_FIRST: u16 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    #[test]
    fn buffers_come_back_whatever_the_ring_is_doing() {
        let Ok(mut ring) = Ring::new(2, 4096) else { return };
        let (ours, mut peer) = UnixStream::pair().unwrap();
        for round in 0..10u64 {
            ring.receive(&ours, round, true).unwrap();
            peer.write_all(b"asked").unwrap();
            ring.send(&ours, 100 + round, b"__answer".to_vec(), 2).unwrap();
            let (mut received, mut sent) = (false, false);
            while !(received && sent) {
                ring.wait(1_000_000, 1).unwrap();
                while let Some(done) = ring.reap() {
                    match done {
                        Completion::Received { token, result, .. } => {
                            let filled = result.unwrap();
                            assert_eq!((token, filled.bytes()), (round, &b"asked"[..]));
                            ring.give_back(filled);
                            received = true;
                        }
                        Completion::Sent { token, result, .. } => {
                            assert_eq!((token, result.unwrap()), (100 + round, 6));
                            sent = true;
                        }
                        Completion::Polled { .. } => unreachable!(),
                    }
                }
            }
            let mut answer = [0; 6];
            peer.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"answer");
        }
        // Dropped while both directions wait: the peer reads nothing any more.
        ring.receive(&ours, 1, true).unwrap();
        ring.send(&ours, 2, vec![0; 8 << 20], 0).unwrap();
        ring.send(&ours, 3, vec![0; 8 << 20], 0).unwrap();
        ring.submit().unwrap();
    }
}
