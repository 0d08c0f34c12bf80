//! userfaultfd, called without a library, because the kernel's ABI is a few numbers and structures.
//! Tracking, paging and recordings all use it from here.
//!
//! Protection belongs to a mapping. It does not see a store through another mapping, `write(2)` on
//! the memory file, or DMA into pages that were pinned before they were protected.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

const API: u64 = 0xAA;
const FEATURE_PAGEFAULT_FLAG_WP: u64 = 1 << 0;
const FEATURE_MISSING_SHMEM: u64 = 1 << 5;
const FEATURE_SIGBUS: u64 = 1 << 7;
const FEATURE_MINOR_SHMEM: u64 = 1 << 10;
const FEATURE_WP_HUGETLBFS_SHMEM: u64 = 1 << 12;
const FEATURE_WP_UNPOPULATED: u64 = 1 << 13;
const FEATURE_WP_ASYNC: u64 = 1 << 15;
const REGISTER_MODE_MISSING: u64 = 1 << 0;
const REGISTER_MODE_WP: u64 = 1 << 1;
const REGISTER_MODE_MINOR: u64 = 1 << 2;
const CONTINUE_MODE_WP: u64 = 1 << 1;
const WRITEPROTECT_MODE_WP: u64 = 1 << 0;
const EVENT_PAGEFAULT: u8 = 0x12;
const USER_MODE_ONLY: i32 = 1;

#[repr(C)]
struct ApiArgs {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct RangeArgs {
    start: u64,
    len: u64,
}

#[repr(C)]
struct RegisterArgs {
    range: RangeArgs,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct WriteProtectArgs {
    range: RangeArgs,
    mode: u64,
}

#[repr(C)]
struct ContinueArgs {
    range: RangeArgs,
    mode: u64,
    mapped_bytes: i64,
}

/// A message of the kernel; we ask for page faults only.
#[repr(C)]
#[derive(Clone, Copy)]
struct Message {
    event: u8,
    reserved1: u8,
    reserved2: u16,
    reserved3: u32,
    flags: u64,
    address: u64,
    thread: u64,
}

/// `_IOWR(0xAA, number, T)`.
const fn iowr<T>(number: u64) -> u64 {
    3 << 30 | (size_of::<T>() as u64) << 16 | API << 8 | number
}
/// `_IOR(0xAA, number, T)`.
const fn ior<T>(number: u64) -> u64 {
    2 << 30 | (size_of::<T>() as u64) << 16 | API << 8 | number
}

const IOCTL_API: u64 = iowr::<ApiArgs>(0x3F);
const IOCTL_REGISTER: u64 = iowr::<RegisterArgs>(0x00);
const IOCTL_UNREGISTER: u64 = ior::<RangeArgs>(0x01);
const IOCTL_WAKE: u64 = ior::<RangeArgs>(0x02);
const IOCTL_WRITEPROTECT: u64 = iowr::<WriteProtectArgs>(0x06);
const IOCTL_CONTINUE: u64 = iowr::<ContinueArgs>(0x07);

const _: () = assert!(size_of::<ContinueArgs>() == 32 && IOCTL_CONTINUE == 0xc020_aa07);
const _: () = assert!(size_of::<ApiArgs>() == 24 && IOCTL_API == 0xc018_aa3f);
const _: () = assert!(size_of::<RegisterArgs>() == 32 && IOCTL_REGISTER == 0xc020_aa00);
const _: () = assert!(size_of::<RangeArgs>() == 16 && IOCTL_WAKE == 0x8010_aa02);
const _: () = assert!(IOCTL_UNREGISTER == 0x8010_aa01);
const _: () = assert!(size_of::<WriteProtectArgs>() == 24 && IOCTL_WRITEPROTECT == 0xc018_aa06);
const _: () = assert!(size_of::<Message>() == 32);

/// How faults of a registered range are delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// The faulting thread gets SIGBUS; system calls fail with `EFAULT`.
    Signal,
    /// The reader of the descriptor gets a message; the faulting thread waits, even inside a system
    /// call.
    Message,
}

/// A userfaultfd, which write-protects or pages the ranges that are registered with it.
#[derive(Debug)]
pub struct Uffd {
    fd: OwnedFd,
    user_mode_only: bool,
}

impl Uffd {
    /// Opens a userfaultfd for write-protection. `Delivery::Signal` also accepts one that sees
    /// user-mode faults only, which needs no privilege.
    pub(crate) fn open(delivery: Delivery) -> Result<Self, Errno> {
        let (fd, user_mode_only) = match (open_fd(0), delivery) {
            (Ok(fd), _) => (fd, false),
            (Err(_), Delivery::Signal) => (open_fd(USER_MODE_ONLY)?, true),
            (Err(refused), Delivery::Message) => return Err(refused),
        };
        let uffd = Self { fd, user_mode_only };
        let signal = if delivery == Delivery::Signal { FEATURE_SIGBUS } else { 0 };
        uffd.agree(FEATURE_PAGEFAULT_FLAG_WP | FEATURE_WP_HUGETLBFS_SHMEM | signal)?;
        Ok(uffd)
    }

    /// Opens a userfaultfd for paging: pages that are not in the page table fault, too, though the
    /// file may have them.
    pub fn open_for_paging() -> Result<Self, Errno> {
        let (fd, user_mode_only) = match open_fd(0) {
            Ok(fd) => (fd, false),
            Err(_) => (open_fd(USER_MODE_ONLY)?, true),
        };
        let uffd = Self { fd, user_mode_only };
        let shmem = FEATURE_MISSING_SHMEM | FEATURE_MINOR_SHMEM | FEATURE_WP_HUGETLBFS_SHMEM;
        uffd.agree(FEATURE_PAGEFAULT_FLAG_WP | FEATURE_SIGBUS | shmem)?;
        Ok(uffd)
    }

    /// Takes over the userfaultfd that another process has opened and sent; its calls act on that
    /// process's memory.
    pub(crate) fn of_guest(fd: OwnedFd) -> Result<Self, Errno> {
        let uffd = Self { fd, user_mode_only: false };
        uffd.agree(FEATURE_PAGEFAULT_FLAG_WP | FEATURE_WP_HUGETLBFS_SHMEM)?;
        Ok(uffd)
    }

    /// Opens a userfaultfd of this process to be sent to another one, for
    /// [`crate::Guest::admit`].
    ///
    /// # Errors
    /// `PERM`: it takes `vm.unprivileged_userfaultfd`, or `CAP_SYS_PTRACE`.
    pub fn open_for_host() -> Result<OwnedFd, Errno> {
        open_fd(0)
    }

    /// Opens a userfaultfd whose features are not agreed with the kernel yet:
    /// [`Uffd::agree_to_open`] must follow.
    pub(crate) fn open_unagreed() -> Result<Self, Errno> {
        Ok(Self { fd: open_fd(USER_MODE_ONLY)?, user_mode_only: true })
    }

    /// Takes over the userfaultfd that another process has as descriptor `number`, where it stays
    /// open. Its calls act on that process's memory. No features are agreed yet.
    pub(crate) fn of_process(pid: i32, number: i32) -> Result<Self, Errno> {
        // SAFETY: the call takes numbers and gives a descriptor or -1.
        let process = owned(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
        // SAFETY: as above.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) };
        Ok(Self { fd: owned(fd)?, user_mode_only: false })
    }

    /// Agrees with the kernel that the kernel opens protected pages by itself when they are stored
    /// to. `INVAL`: it cannot.
    pub(crate) fn agree_to_open(&self) -> Result<(), Errno> {
        let everywhere = FEATURE_WP_HUGETLBFS_SHMEM | FEATURE_WP_UNPOPULATED;
        self.agree(FEATURE_PAGEFAULT_FLAG_WP | everywhere | FEATURE_WP_ASYNC)
    }

    fn agree(&self, features: u64) -> Result<(), Errno> {
        let mut args = ApiArgs { api: API, features, ioctls: 0 };
        // SAFETY: the structure is what IOCTL_API takes (asserted above) and outlives the call.
        unsafe { self.ioctl(IOCTL_API, (&raw mut args).cast())? };
        if args.features & features == features { Ok(()) } else { Err(Errno::OPNOTSUPP) }
    }

    /// Whether the userfaultfd sees faults of user mode only.
    pub(crate) fn is_user_mode_only(&self) -> bool {
        self.user_mode_only
    }

    /// Registers a mapped range for write-protection; nothing is protected yet.
    pub(crate) fn register(&self, start: usize, len: usize) -> Result<(), Errno> {
        self.register_for(start, len, REGISTER_MODE_WP)
    }

    /// Registers a mapped range for paging: any touch of a page without an entry in the page table
    /// is a fault.
    pub fn register_for_paging(&self, start: usize, len: usize) -> Result<(), Errno> {
        let mode = REGISTER_MODE_MISSING | REGISTER_MODE_MINOR | REGISTER_MODE_WP;
        self.register_for(start, len, mode)
    }

    fn register_for(&self, start: usize, len: usize, mode: u64) -> Result<(), Errno> {
        let mut args = RegisterArgs { range: range(start, len), mode, ioctls: 0 };
        // SAFETY: as in `open`; registering changes no byte of the range.
        unsafe { self.ioctl(IOCTL_REGISTER, (&raw mut args).cast()) }
    }

    /// Ends the registration of a range, which is not protected any more.
    pub(crate) fn unregister(&self, start: usize, len: usize) -> Result<(), Errno> {
        let mut args = range(start, len);
        // SAFETY: as in `register`.
        unsafe { self.ioctl(IOCTL_UNREGISTER, (&raw mut args).cast()) }
    }

    /// Protects a registered range, or opens it and wakes the threads that wait for it.
    /// Async-signal-safe.
    pub fn protect(&self, start: usize, len: usize, protect: bool) -> Result<(), Errno> {
        let mode = if protect { WRITEPROTECT_MODE_WP } else { 0 };
        let mut args = WriteProtectArgs { range: range(start, len), mode };
        loop {
            // SAFETY: as in `open`; protection changes no byte of the range.
            match unsafe { self.ioctl(IOCTL_WRITEPROTECT, (&raw mut args).cast()) } {
                // Another thread is changing the mapping at this moment, and the kernel asks to try
                // again.
                Err(Errno::AGAIN | Errno::INTR) => std::hint::spin_loop(),
                outcome => return outcome,
            }
        }
    }

    /// Enters pages of the file in the page table without a copy. Pages that are entered already
    /// stay as they are. Async-signal-safe. `NOENT` or `FAULT`: the file has no such page.
    pub fn enter(&self, start: usize, len: usize, protect: bool) -> Result<(), Errno> {
        let mode = if protect { CONTINUE_MODE_WP } else { 0 };
        let mut done = 0;
        while done < len {
            let range = range(start + done, len - done);
            let mut args = ContinueArgs { range, mode, mapped_bytes: 0 };
            // SAFETY: as in `open`; the bytes are those of the file, which the mapping is of.
            let outcome = unsafe { self.ioctl(IOCTL_CONTINUE, (&raw mut args).cast()) };
            done += usize::try_from(args.mapped_bytes).unwrap_or(0);
            match outcome {
                Ok(()) => return Ok(()),
                Err(Errno::EXIST) => done += 4096,
                Err(Errno::AGAIN | Errno::INTR) => std::hint::spin_loop(),
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Wakes the threads that wait for this range; they try again.
    pub(crate) fn wake(&self, start: usize, len: usize) -> Result<(), Errno> {
        let mut args = range(start, len);
        // SAFETY: as in `open`.
        unsafe { self.ioctl(IOCTL_WAKE, (&raw mut args).cast()) }
    }

    /// Appends the addresses of faults to `out`, at most `room` of them. Never waits.
    pub(crate) fn read_faults(&self, room: usize, out: &mut Vec<usize>) -> Result<(), Errno> {
        let mut messages = [Message {
            event: 0,
            reserved1: 0,
            reserved2: 0,
            reserved3: 0,
            flags: 0,
            address: 0,
            thread: 0,
        }; 16];
        let count = room.min(messages.len());
        if count == 0 {
            // The kernel refuses to read nothing.
            return Ok(());
        }
        let bytes = count * size_of::<Message>();
        // SAFETY: `messages` has room for `bytes`, and any bit pattern is a valid message.
        let read = unsafe { libc::read(self.fd.as_raw_fd(), messages.as_mut_ptr().cast(), bytes) };
        let Ok(read) = usize::try_from(read) else {
            return match last_errno() {
                Errno::AGAIN | Errno::INTR => Ok(()),
                error => Err(error),
            };
        };
        let messages = &messages[..read / size_of::<Message>()];
        let faults = messages.iter().filter(|message| message.event == EVENT_PAGEFAULT);
        out.extend(faults.map(|message| message.address as usize));
        Ok(())
    }

    /// Waits until there is a fault or `stop` is readable, at most `longest`. Who has no room for
    /// faults does not wait for them: they would be there all the time. Returns whether `stop` is
    /// readable.
    pub(crate) fn wait(
        &self,
        stop: &OwnedFd,
        room: usize,
        longest: Option<Duration>,
    ) -> Result<bool, Errno> {
        let faults = if room > 0 { PollFlags::IN } else { PollFlags::empty() };
        let mut fds = [PollFd::new(&self.fd, faults), PollFd::new(stop, PollFlags::IN)];
        let longest = longest.map(|longest| rustix::event::Timespec {
            tv_sec: longest.as_secs() as i64,
            tv_nsec: i64::from(longest.subsec_nanos()),
        });
        match poll(&mut fds, longest.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(fds[1].revents().contains(PollFlags::IN)),
            Err(error) => Err(error),
        }
    }

    /// # Safety
    /// `args` points to the structure that `request` takes, and it outlives the call.
    unsafe fn ioctl(&self, request: u64, args: *mut libc::c_void) -> Result<(), Errno> {
        // SAFETY: the descriptor is ours; the rest is the caller's promise.
        let outcome = unsafe { libc::ioctl(self.fd.as_raw_fd(), request as _, args) };
        if outcome < 0 { Err(last_errno()) } else { Ok(()) }
    }
}

fn range(start: usize, len: usize) -> RangeArgs {
    RangeArgs { start: start as u64, len: len as u64 }
}

fn open_fd(flags: i32) -> Result<OwnedFd, Errno> {
    let flags = flags | libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: the call takes flags and returns a new descriptor or -1.
    owned(unsafe { libc::syscall(libc::SYS_userfaultfd, flags) })
}

/// The descriptor that a system call made, or its error.
fn owned(number: libc::c_long) -> Result<OwnedFd, Errno> {
    if number < 0 {
        return Err(last_errno());
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(number as i32) })
}

pub(crate) fn last_errno() -> Errno {
    // SAFETY: the location is this thread's own. `io::Error` would do as well, but a signal handler
    // must not depend on what it does.
    Errno::from_raw_os_error(unsafe { *libc::__errno_location() })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::sys::SharedMemory;

    /// A thread that stores to a protected page waits until the page is open. If it is woken
    /// before, it says again where it waits.
    #[test]
    fn who_is_woken_without_an_open_page_asks_again_and_goes_on_when_it_is_open() {
        let Ok(uffd) = Uffd::open(Delivery::Message) else {
            eprintln!("skipped: userfaultfd delivers messages to privileged threads only");
            return;
        };
        let map = SharedMemory::create("test", 3 * 4096).unwrap().map().unwrap();
        let (start, page) = (map.base() as usize, map.base() as usize + 4096);
        uffd.register(start, 3 * 4096).unwrap();
        uffd.protect(start, 3 * 4096, true).unwrap();
        let (stop, stopping) = rustix::pipe::pipe().unwrap();
        let longest = Some(Duration::from_secs(10));
        let next = || {
            let mut faults = Vec::new();
            let is_stopped = uffd.wait(&stop, 5, longest).unwrap();
            // Without room the fault that is there now is not waited for.
            let never = Some(Duration::ZERO);
            assert!(!uffd.wait(&stop, 0, never).unwrap());
            let outcomes = [0, 5, 5].map(|room| uffd.read_faults(room, &mut faults));
            (is_stopped, outcomes, faults)
        };
        let word = &map.words(4096, 512)[100];
        let seen = std::thread::scope(|scope| {
            let writer = scope.spawn(|| word.store(7, Relaxed));
            let first = next();
            let (woken, again) = (uffd.wake(page, 4096), next());
            // Nothing is asserted before the writer has ended.
            let opened = uffd.protect(page, 4096, false);
            writer.join().unwrap();
            ([first, again], [woken, opened])
        });
        assert_eq!(seen.1, [Ok(()); 2]);
        for (is_stopped, outcomes, faults) in seen.0 {
            assert_eq!((is_stopped, outcomes), (false, [Ok(()); 3]));
            assert!(faults.len() == 1 && faults[0] / 4096 * 4096 == page, "{faults:x?}");
        }
        assert_eq!(word.load(Relaxed), 7);
        rustix::io::write(&stopping, &[1]).unwrap();
        assert!(uffd.wait(&stop, 0, longest).unwrap());
    }
}
