//! An io_uring for sockets: it polls, receives into buffers that the kernel picks, and sends.
//!
//! A receive continues by itself until it is ended, fails or finds no buffer. To start a receive
//! for each request would add a twentieth to the cost of a small request.
//!
//! Ownership: a buffer belongs either to the kernel or to this process. A buffer to receive into
//! goes to the kernel with [`Ring::give_back`] and returns in a [`Completion::Received`]. A buffer
//! to send goes with [`Ring::send`] and returns in a [`Completion::Sent`]. `drop` takes all buffers
//! back from the kernel before it frees any.
//!
//! A request names its descriptor by number until it is submitted, so call [`Ring::submit`] before
//! closing a descriptor. From then on the request keeps the file open until the kernel has ended
//! the request. After a SIGKILL that is later than the end of the process, so request nothing from
//! a file that the next process needs for itself alone, such as a listening socket.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering::Release};

use io_uring::types::{BufRingEntry, CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

/// A request that the kernel has carried out, with the token that was given with the request.
#[derive(Debug)]
pub(crate) enum Completion {
    /// The descriptor is ready, or has failed, which its next use shows.
    Polled { token: u64 },
    /// A receive has brought bytes, or none at the end of the stream. `goes_on`: the receive
    /// continues without a new request.
    Received { token: u64, result: io::Result<Filled>, goes_on: bool },
    /// A send is over: its buffer comes back, with the number of bytes that were sent.
    Sent { token: u64, buffer: Vec<u8>, from: usize, result: io::Result<usize> },
}

/// The completions, besides those of sends, that one wait should bring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Several {
    /// Number of completions to wait for.
    pub count: usize,
    /// Time after which any number is enough, microseconds.
    pub moment_us: u32,
}

/// What a buffer to receive into holds. It is not cleared first, so a page of it takes no memory
/// before bytes are received there, and many clients with small requests take a page each.
type Bytes = [MaybeUninit<u8>];

/// A buffer with bytes that the kernel has received.
#[derive(Debug)]
pub(crate) struct Filled {
    /// The buffer and its number; `None` at the end of a stream.
    buffer: Option<(u16, Box<Bytes>)>,
    /// The kernel has written so many of the buffer's bytes.
    len: usize,
}

impl Filled {
    /// The bytes that were received.
    pub fn bytes(&self) -> &[u8] {
        let Some((_, bytes)) = &self.buffer else { return &[] };
        let bytes = &bytes[..self.len];
        // SAFETY: the kernel says that it has written these bytes.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) }
    }
}

/// Bits of a token. The other bits of the 64 say which kind of request it was.
pub(crate) const TOKEN_BITS: u32 = 62;
const POLL: u64 = 0;
const RECEIVE: u64 = 1;
const SEND: u64 = 2;
const END: u64 = 3;

/// Number of the group of buffers to receive into.
const GROUP: u16 = 0;

/// An io_uring with its buffers.
pub(crate) struct Ring {
    ring: IoUring,
    pool: Pool,
    /// Most bytes that are received from one socket before others have their turn. 0: the kernel
    /// has no such limit, and before Linux 6.17 it takes 32 buffers.
    turn_bytes: u32,
    /// Sends under way, at the places that their tokens name.
    sends: Vec<Option<Outgoing>>,
    /// Unused places in `sends`.
    free_sends: Vec<u32>,
    /// Sends that were asked for since the last wait.
    sends_asked: usize,
}

/// Bytes that the kernel is sending.
struct Outgoing {
    token: u64,
    buffer: Vec<u8>,
    from: usize,
}

impl Ring {
    /// Makes a ring with `buffers` buffers of `buffer_bytes` each to receive into. Whenever they
    /// were too few, there are twice as many, up to `buffers_max`, a power of two.
    ///
    /// # Errors
    /// The system refuses an io_uring, or lacks a part of it that is needed (Linux 6.1 has all).
    pub fn new(buffers: u16, buffers_max: u16, buffer_bytes: usize) -> io::Result<Self> {
        let mut builder = IoUring::builder();
        builder.setup_single_issuer().setup_defer_taskrun().setup_cqsize(COMPLETIONS);
        let ring = builder.build(SUBMISSIONS)?;
        let pool = Pool::new(buffers, buffers_max, buffer_bytes);
        // SAFETY: the entries are page aligned, as many as said, and live until `drop` has
        // unregistered them.
        unsafe {
            let entries = pool.entries.as_ptr() as u64;
            ring.submitter().register_buf_ring_with_flags(entries, buffers_max, GROUP, 0)?;
        }
        let turn_bytes = buffer_bytes as u32;
        let (sends, free_sends) = (Vec::new(), Vec::new());
        let mut ring = Self { ring, pool, turn_bytes, sends, free_sends, sends_asked: 0 };
        if ring.try_receive().is_err() {
            ring.turn_bytes = 0;
            ring.try_receive()?;
        }
        Ok(ring)
    }

    /// Tries a receive, from a stream that is at its end, to see whether the kernel can do it.
    fn try_receive(&mut self) -> io::Result<()> {
        let (ours, _) = UnixStream::pair()?;
        self.receive(&ours, 0)?;
        self.wait(TRY_NS, ONE)?;
        match self.reap() {
            Some(Completion::Received { result, goes_on: false, .. }) => {
                self.give_back(result?);
                Ok(())
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Asks for one completion when the descriptor can be read.
    pub fn poll(&mut self, fd: impl AsFd, token: u64) -> io::Result<()> {
        let fd = Fd(fd.as_fd().as_raw_fd());
        self.push(opcode::PollAdd::new(fd, libc::POLLIN as u32).build(), POLL, token)
    }

    /// Starts a receive, which continues until one of its completions says that it has ended.
    pub fn receive(&mut self, fd: impl AsFd, token: u64) -> io::Result<()> {
        let fd = Fd(fd.as_fd().as_raw_fd());
        let entry = opcode::RecvMulti::new(fd, GROUP).len(self.turn_bytes).build();
        self.push(entry, RECEIVE, token)
    }

    /// Ends the receive with this token, if it still continues. A last completion of it says so.
    pub fn end_receive(&mut self, token: u64) -> io::Result<()> {
        let entry = opcode::AsyncCancel::new(RECEIVE << TOKEN_BITS | token).build();
        self.push(entry, END, token)
    }

    /// Sends `buffer[from..]`, or a first part of it.
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
        // The bytes of a `Vec` keep their address when the `Vec` moves.
        self.sends[place as usize] = Some(Outgoing { token, buffer, from });
        self.sends_asked += 1;
        self.push(entry, SEND, u64::from(place))
    }

    fn push(&mut self, entry: squeue::Entry, kind: u64, token: u64) -> io::Result<()> {
        debug_assert!(token >> TOKEN_BITS == 0);
        let entry = entry.user_data(kind << TOKEN_BITS | token);
        loop {
            // SAFETY: a poll and an end name no memory; a receive uses the pool's, which `drop`
            // takes back first; a send's bytes are owned by `sends` until its completion, or until
            // `drop` has cancelled it.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return Ok(());
            }
            self.submit()?;
        }
    }

    /// Hands all requests so far to the kernel.
    pub fn submit(&mut self) -> io::Result<()> {
        if self.ring.submission().is_empty() {
            return Ok(());
        }
        ignore_early_return(self.ring.submit())
    }

    /// Hands all requests so far to the kernel, and waits until something is done or the time is
    /// over. Where the kernel can (Linux 6.12), the wait does not end for sends, which are nearly
    /// always done when they have been handed over.
    pub fn wait(&mut self, timeout_ns: u32, several: Several) -> io::Result<()> {
        let sends = std::mem::take(&mut self.sends_asked);
        let time = Timespec::new().nsec(timeout_ns);
        let mut args = SubmitArgs::new().timespec(&time);
        let mut wanted = 1;
        // The kernel waits for the moment before it looks at the timeout, so a call without a
        // timeout must not ask for several completions.
        if timeout_ns > 0 && self.ring.params().is_feature_min_timeout() {
            wanted = (sends + several.count).clamp(1, COMPLETIONS as usize);
        }
        if wanted > 1 {
            args = args.min_wait_usec(several.moment_us);
        }
        ignore_early_return(self.ring.submitter().submit_with_args(wanted, &args))
    }

    /// Takes the next completion, if there is one.
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
                let goes_on = cqueue::more(entry.flags());
                if entry.result() == -libc::ENOBUFS {
                    self.pool.grow();
                }
                let result = result.map(|len| Filled { buffer, len });
                Completion::Received { token, result, goes_on }
            }
            END => return self.reap(),
            _ => {
                let sent = self.sends.get_mut(token as usize).and_then(Option::take);
                let Outgoing { token: of, buffer, from } = sent?;
                self.free_sends.push(token as u32);
                Completion::Sent { token: of, buffer, from, result }
            }
        })
    }

    /// Gives a buffer back to the kernel.
    pub fn give_back(&mut self, filled: Filled) {
        if let Some((id, bytes)) = filled.buffer {
            self.pool.give(id, bytes);
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // So that the kernel still sends what it can send at once.
        let _ = self.submit();
        let submitter = self.ring.submitter();
        let cancelled = submitter.register_sync_cancel(None, CancelBuilder::any());
        let none = matches!(&cancelled, Err(error) if error.raw_os_error() == Some(libc::ENOENT));
        let unregistered = submitter.unregister_buf_ring(GROUP);
        if (cancelled.is_err() && !none) || unregistered.is_err() {
            // The kernel may still use the buffers, so they are leaked and not freed.
            std::mem::forget(std::mem::take(&mut self.sends));
            self.pool.lost = true;
        }
    }
}

/// Takes a wait that was interrupted, timed out or found no room for completions as a success: the
/// caller looks for completions in any case.
fn ignore_early_return(result: io::Result<usize>) -> io::Result<()> {
    match result {
        Ok(_) => Ok(()),
        Err(error) => match error.raw_os_error() {
            Some(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN) => Ok(()),
            _ => Err(error),
        },
    }
}

/// The buffers to receive into, and the entries through which the kernel gets them.
struct Pool {
    entries: NonNull<BufRingEntry>,
    /// The buffers by number; null while a buffer belongs to this process, or was not made yet.
    buffers: Vec<*mut u8>,
    /// The number of buffers that were made.
    made: u16,
    /// Length of each buffer, bytes.
    buffer_bytes: usize,
    /// Number of entries written so far, modulo 2^16: the place of the next one.
    tail: u16,
    /// Whether the kernel may use the buffers for ever, so that they must not be freed.
    lost: bool,
}

impl Pool {
    fn new(buffers: u16, buffers_max: u16, buffer_bytes: usize) -> Self {
        assert!(buffers_max.is_power_of_two() && (1..=buffers_max).contains(&buffers));
        let layout = Self::layout(usize::from(buffers_max));
        // SAFETY: the layout is not empty.
        let Some(entries) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
            handle_alloc_error(layout)
        };
        let mut pool = Self {
            entries: entries.cast(),
            buffers: vec![std::ptr::null_mut(); usize::from(buffers_max)],
            made: 0,
            buffer_bytes,
            tail: 0,
            lost: false,
        };
        pool.make(buffers);
        pool
    }

    /// Makes as many buffers as there are, or as may be.
    fn grow(&mut self) {
        self.make(self.made.min(self.buffers.len() as u16 - self.made));
    }

    fn make(&mut self, more: u16) {
        for id in self.made..self.made + more {
            self.give(id, Box::new_uninit_slice(self.buffer_bytes));
        }
        self.made += more;
    }

    fn layout(buffers: usize) -> Layout {
        let bytes = size_of::<BufRingEntry>() * buffers;
        // This cannot fail, because the alignment is a power of two and the size is a few pages.
        Layout::from_size_align(bytes, PAGE_BYTES).unwrap_or(Layout::new::<[u8; PAGE_BYTES]>())
    }

    fn give(&mut self, id: u16, bytes: Box<Bytes>) {
        assert!(bytes.len() == self.buffer_bytes && self.buffers[usize::from(id)].is_null());
        let bytes = Box::into_raw(bytes).cast::<u8>();
        self.buffers[usize::from(id)] = bytes;
        let mask = self.buffers.len() as u16 - 1;
        // SAFETY: the place is inside the entries. The kernel reads only entries before the tail,
        // which moves after this entry is written (release). There are as many entries as buffers,
        // so no unread entry is written over.
        unsafe {
            let entry = &mut *self.entries.as_ptr().add(usize::from(self.tail & mask));
            entry.set_addr(bytes as u64);
            entry.set_len(self.buffer_bytes as u32);
            entry.set_bid(id);
        }
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the tail is a 16-bit word inside the first entry; only this code changes it, and
        // does so atomically.
        unsafe {
            let tail = BufRingEntry::tail(self.entries.as_ptr()).cast_mut();
            AtomicU16::from_ptr(tail).store(self.tail, Release);
        }
    }

    /// Takes the buffer that the kernel says it has filled.
    fn taken(&mut self, id: u16) -> Box<Bytes> {
        let bytes = std::mem::replace(&mut self.buffers[usize::from(id)], std::ptr::null_mut());
        assert!(!bytes.is_null(), "buffer {id} is not the kernel's");
        // SAFETY: `give` made the pointer by `Box::into_raw`, of this length. The kernel has handed
        // the buffer back, and the null left behind means that it is taken once.
        unsafe {
            Box::from_raw(std::ptr::slice_from_raw_parts_mut(bytes.cast(), self.buffer_bytes))
        }
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
        // SAFETY: allocated with this layout, and unregistered, so the kernel does not use it.
        unsafe { dealloc(self.entries.as_ptr().cast(), layout) };
    }
}

/// Requests that fit the queue to the kernel.
const SUBMISSIONS: u32 = 1024;
/// Completions that fit the queue from the kernel.
const COMPLETIONS: u32 = 8192;
const PAGE_BYTES: usize = 4096;
/// Most time that the first, trial receive may take, nanoseconds.
const TRY_NS: u32 = 100_000_000;
const ONE: Several = Several { count: 1, moment_us: 0 };
const SEND_BYTES_MAX: usize = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn buffers_come_back_whatever_the_ring_is_doing() {
        let Ok(mut ring) = Ring::new(2, 2, 4096) else { return };
        let (ours, mut peer) = UnixStream::pair().unwrap();
        ring.receive(&ours, 7).unwrap();
        for round in 0..10u64 {
            peer.write_all(b"asked").unwrap();
            ring.send(&ours, 100 + round, b"__answer".to_vec(), 2).unwrap();
            let (mut received, mut sent) = (false, false);
            while !(received && sent) {
                ring.wait(1_000_000, ONE).unwrap();
                while let Some(done) = ring.reap() {
                    match done {
                        Completion::Received { token, result, goes_on } => {
                            let filled = result.unwrap();
                            assert_eq!((token, goes_on, filled.bytes()), (7, true, &b"asked"[..]));
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
        ring.send(&ours, 2, vec![0; 8 << 20], 0).unwrap();
        ring.send(&ours, 3, vec![0; 8 << 20], 0).unwrap();
        ring.submit().unwrap();
    }

    /// The next thing received.
    fn received(ring: &mut Ring) -> (u64, io::Result<Filled>, bool) {
        loop {
            match ring.reap() {
                Some(Completion::Received { token, result, goes_on }) => {
                    return (token, result, goes_on);
                }
                Some(other) => unreachable!("{other:?}"),
                None => ring.wait(100_000_000, ONE).unwrap(),
            }
        }
    }

    #[test]
    fn a_receive_ends_for_want_of_a_buffer_and_when_it_is_asked_to() {
        let Ok(mut ring) = Ring::new(2, 2, 4096) else { return };
        let pairs: Vec<_> = (0..3).map(|_| UnixStream::pair().unwrap()).collect();
        for (token, (ours, _)) in pairs.iter().enumerate() {
            ring.receive(ours, token as u64).unwrap();
        }
        ring.submit().unwrap();
        pairs.iter().for_each(|(_, peer)| (&*peer).write_all(b"asked").unwrap());
        let first: Vec<_> = (0..3).map(|_| received(&mut ring)).collect();
        let (filled, without): (Vec<_>, Vec<_>) =
            first.into_iter().partition(|(.., goes_on)| *goes_on);
        assert_eq!(filled.len(), 2);
        let [(late, Err(error), _)] = &without[..] else { unreachable!("{without:?}") };
        assert_eq!(error.raw_os_error(), Some(libc::ENOBUFS));
        // With a buffer again it gets what waited in the socket.
        filled.into_iter().for_each(|(_, result, _)| ring.give_back(result.unwrap()));
        ring.receive(&pairs[*late as usize].0, *late).unwrap();
        let (token, result, goes_on) = received(&mut ring);
        assert_eq!(
            (token, goes_on, result.as_ref().unwrap().bytes()),
            (*late, true, &b"asked"[..])
        );
        ring.give_back(result.unwrap());
        // One that is ended takes nothing any more; the others do.
        ring.end_receive(0).unwrap();
        ring.submit().unwrap();
        (&pairs[0].1).write_all(b"not for us").unwrap();
        (&pairs[1].1).write_all(b"asked").unwrap();
        let mut last = [received(&mut ring), received(&mut ring)];
        last.sort_by_key(|(token, ..)| *token);
        let [(0, Err(error), false), (1, Ok(filled), true)] = last else {
            unreachable!("{last:?}")
        };
        assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
        ring.give_back(filled);
        let mut left = [0; 10];
        (&pairs[0].0).read_exact(&mut left).unwrap();
        assert_eq!(&left, b"not for us");
    }

    #[test]
    fn there_are_twice_as_many_buffers_after_they_were_too_few() {
        let Ok(mut ring) = Ring::new(1, 4, 4096) else { return };
        for (round, asking) in (0..).zip([1, 1, 6, 6, 6]) {
            let pairs: Vec<_> = (0..asking).map(|_| UnixStream::pair().unwrap()).collect();
            for (ours, peer) in &pairs {
                ring.receive(ours, round).unwrap();
                (&*peer).write_all(b"asked").unwrap();
            }
            // Those of the rounds before are told that their streams have ended.
            let of_this = |ring: &mut Ring| loop {
                let (token, result, _) = received(ring);
                if token == round {
                    return result;
                }
            };
            let results: Vec<_> = (0..asking).map(|_| of_this(&mut ring)).collect();
            let filled: Vec<_> = results.into_iter().filter_map(Result::ok).collect();
            let (made, count) = (ring.pool.made, filled.len());
            match round {
                0 | 1 => assert_eq!((made, count), (1, 1)),
                2 => assert!(made >= 2 && count < asking, "{made} made, {count} filled"),
                _ => assert_eq!((made, count), (4, 4)),
            }
            filled.into_iter().for_each(|filled| ring.give_back(filled));
        }
    }

    #[test]
    fn who_does_not_want_to_wait_does_not_wait_for_several() {
        let Ok(mut ring) = Ring::new(2, 2, 4096) else { return };
        let (ours, _peer) = UnixStream::pair().unwrap();
        let began = std::time::Instant::now();
        ring.send(&ours, 1, b"answer".to_vec(), 0).unwrap();
        ring.wait(0, Several { count: 1, moment_us: 2_000_000 }).unwrap();
        assert!(began.elapsed().as_secs() < 1, "{:?}", began.elapsed());
        assert!(matches!(ring.reap(), Some(Completion::Sent { token: 1, .. })));
    }
}
