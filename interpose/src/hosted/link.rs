//! The connection to the host. Whoever asks holds the lock of [`crate::hosted::served`].

use std::ffi::c_int;
use std::mem::{MaybeUninit, size_of, zeroed};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering::*};

use crate::hosted::wire::{ANSWER_WORDS, Ask, BOARD_BYTES, FILES_MAX};
use crate::kernel::{close, end_with, errno, hide, open_again, userfaultfd};

/// Bytes for two descriptors beside a message; more than the kernel needs.
const CONTROL_BYTES: usize = 64;

/// Where the board is mapped; 0: nowhere yet. It stays as long as the process runs.
static BOARD: AtomicUsize = AtomicUsize::new(0);
/// The descriptors of the connection, which the program must not close: its memory would not be
/// tracked any more.
static OWN: [AtomicI32; 5] = [const { AtomicI32::new(-1) }; 5];

/// The connection, and what came with the first answer.
pub struct Link {
    socket: c_int,
    /// Kept open: as long as it is, memory stays protected even if the host is killed.
    uffd: c_int,
    /// The host's memory.
    pub memory: c_int,
    /// The end of a pipe whose other end the host keeps.
    alive: c_int,
    /// The board, opened by this process itself: its locks are against other processes.
    pub lock: c_int,
}

/// Whether a file is on the board; `None`: there is no board yet.
pub fn is_on_board(inode: u64) -> Option<bool> {
    let board = BOARD.load(Acquire) as *const u64;
    if board.is_null() {
        return None;
    }
    let word = |at: usize| {
        // SAFETY: the board is mapped for good, and has this many words.
        unsafe { std::ptr::read_volatile(board.wrapping_add(at)) }
    };
    let count = (word(0) as usize).min(FILES_MAX);
    Some((1..=count).any(|at| word(at) == inode))
}

/// The length that the host knows of a file, by its number.
fn len_on_board(file: u64) -> Option<u64> {
    let board = BOARD.load(Acquire) as *const u64;
    let place = 1 + FILES_MAX + usize::try_from(file).ok().filter(|file| *file < FILES_MAX)?;
    // SAFETY: as above.
    (!board.is_null()).then(|| unsafe { std::ptr::read_volatile(board.wrapping_add(place)) })
}

/// Whether a descriptor is this library's.
pub fn is_own(fd: c_int) -> bool {
    fd >= 0 && OWN.iter().any(|own| own.load(Relaxed) == fd)
}

/// The descriptors of this library in a range, ascending.
pub fn own_within(first: u32, last: u32) -> impl Iterator<Item = u32> {
    let mut own = OWN.each_ref().map(|own| u32::try_from(own.load(Relaxed)).unwrap_or(u32::MAX));
    own.sort_unstable();
    own.into_iter().filter(move |fd| *fd != u32::MAX && (first..=last).contains(fd))
}

/// An answer.
pub struct Answer {
    words: [u64; ANSWER_WORDS],
    len: usize,
    fds: [c_int; 3],
}

impl Answer {
    /// The numbers behind the first, which says that it went well.
    pub fn words(&self) -> &[u64] {
        &self.words[1..self.len.max(1)]
    }
}

impl Link {
    /// Connects and greets.
    pub fn open(socket_path: &Path) -> Result<Self, c_int> {
        let uffd = hide(userfaultfd()?)?;
        let socket = hide(connect(socket_path)?)?;
        let mut link = Self { socket, uffd, memory: -1, alive: -1, lock: -1 };
        let answer = link.ask_with(Ask::Hello, Some(uffd))?;
        let [memory, board, alive] = answer.fds;
        link.memory = hide(memory)?;
        link.alive = hide(alive)?;
        end_with(link.alive)?;
        if BOARD.load(Relaxed) == 0 {
            let (read, shared) = (libc::PROT_READ, libc::MAP_SHARED);
            // SAFETY: a new mapping at a place that the kernel chooses.
            let mapped = unsafe { crate::kernel::map(0, BOARD_BYTES, read, shared, board, 0)? };
            BOARD.store(mapped, Release);
        }
        link.lock = hide(open_again(board)?)?;
        close(board);
        for (own, fd) in OWN.iter().zip(link.descriptors()) {
            own.store(fd, Relaxed);
        }
        Ok(link)
    }

    fn descriptors(&self) -> [c_int; 5] {
        [self.socket, self.uffd, self.memory, self.alive, self.lock]
    }

    /// Tells the host the length of a file, unless it knows.
    pub fn tell_len(&self, file: u64, len: u64) -> Result<(), c_int> {
        match len_on_board(file) == Some(len) {
            true => Ok(()),
            false => self.ask(Ask::Length { file, len }).map(drop),
        }
    }

    /// Asks, and returns the answer. `EIO`: the host is gone.
    pub fn ask(&self, ask: Ask) -> Result<Answer, c_int> {
        self.ask_with(ask, None)
    }

    /// Asks with a descriptor.
    pub fn ask_with(&self, ask: Ask, fd: Option<c_int>) -> Result<Answer, c_int> {
        send(self.socket, &ask.encode(), fd)?;
        let answer = receive(self.socket)?;
        match answer.len {
            0 => Err(libc::EIO),
            _ => match answer.words[0] {
                0 => Ok(answer),
                errno => Err(c_int::try_from(errno).unwrap_or(libc::EIO)),
            },
        }
    }

    /// Gives the connection up, in a child that has its parent's.
    pub fn abandon(self) {
        self.descriptors().into_iter().for_each(close);
        OWN.iter().for_each(|own| own.store(-1, Relaxed));
    }
}

fn connect(path: &Path) -> Result<c_int, c_int> {
    let bytes = path.as_os_str().as_bytes();
    // SAFETY: all zeros is a valid address.
    let mut address: libc::sockaddr_un = unsafe { zeroed() };
    address.sun_family = libc::AF_UNIX as u16;
    if bytes.len() >= address.sun_path.len() {
        return Err(libc::ENAMETOOLONG);
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: the calls take numbers, and an address that lives as long as they last.
    unsafe {
        let socket = libc::socket(libc::AF_UNIX, kind, 0);
        if socket < 0 {
            return Err(errno());
        }
        let len = size_of::<libc::sockaddr_un>() as u32;
        if libc::connect(socket, (&raw const address).cast(), len) != 0 {
            let errno = errno();
            close(socket);
            return Err(errno);
        }
        Ok(socket)
    }
}

fn send(socket: c_int, words: &[u64], fd: Option<c_int>) -> Result<(), c_int> {
    let mut control = [0u64; CONTROL_BYTES / 8];
    let mut part =
        libc::iovec { iov_base: words.as_ptr().cast_mut().cast(), iov_len: size_of_val(words) };
    // SAFETY: the message and everything that it points to live until the call returns; the control
    // buffer is aligned and has room for a header and a descriptor.
    unsafe {
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        if let Some(fd) = fd {
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(size_of::<c_int>() as u32) as usize;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size_of::<c_int>() as u32) as usize;
            libc::CMSG_DATA(header).cast::<c_int>().write_unaligned(fd);
        }
        while libc::syscall(libc::SYS_sendmsg, socket, &raw const message, libc::MSG_NOSIGNAL) < 0 {
            match errno() {
                libc::EINTR => {}
                errno => return Err(errno),
            }
        }
    }
    Ok(())
}

fn receive(socket: c_int) -> Result<Answer, c_int> {
    let mut answer = Answer { words: [0; ANSWER_WORDS], len: 0, fds: [-1; 3] };
    let mut control = MaybeUninit::<[u64; CONTROL_BYTES / 8]>::zeroed();
    let mut part = libc::iovec {
        iov_base: answer.words.as_mut_ptr().cast(),
        iov_len: size_of_val(&answer.words),
    };
    // SAFETY: as in `send`; descriptors are read only as far as the kernel says that they are
    // there.
    unsafe {
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = CONTROL_BYTES;
        let flags = libc::MSG_CMSG_CLOEXEC;
        let got = loop {
            let got = libc::syscall(libc::SYS_recvmsg, socket, &raw mut message, flags);
            match usize::try_from(got) {
                Ok(got) => break got,
                Err(_) if errno() == libc::EINTR => {}
                Err(_) => return Err(errno()),
            }
        };
        answer.len = got / 8;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if !header.is_null() && (*header).cmsg_type == libc::SCM_RIGHTS {
            let bytes = (*header).cmsg_len - libc::CMSG_LEN(0) as usize;
            let fds = libc::CMSG_DATA(header).cast::<c_int>();
            for (at, fd) in answer.fds.iter_mut().enumerate().take(bytes / size_of::<c_int>()) {
                *fd = fds.add(at).read_unaligned();
            }
        }
    }
    Ok(answer)
}
