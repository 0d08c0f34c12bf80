//! One `userfaultfd` system call on behalf of another process.
//!
//! Nothing in the process is changed. The call is made by a `syscall` instruction that the process
//! has anyway (in the vDSO or the C library), with the registers of one stopped thread, which are
//! restored. If the thread was waiting in a system call, that call begins again, as after any
//! signal without a handler; calls that cannot begin again (`epoll_wait`) end with EINTR. If the
//! recorder is killed by SIGKILL in these microseconds, the thread stays in the injected call: this
//! is the only harm that the kernel does not undo.

use std::fs::File;
use std::os::unix::fs::FileExt;

use perdura_dirty::written::Watch;
use rustix::io::Errno;

use super::ptrace::{Stop, Tracee};
use super::rseq::goes_on_at;
use crate::record::maps::Area;

/// Why a process gave no descriptor.
#[derive(Debug)]
pub enum InjectError {
    /// The system calls of the process are filtered, and we may not suspend that.
    Filtered,
    /// The process runs 32-bit code.
    Narrow,
    /// The kernel refused the call of this name.
    Kernel(&'static str, Errno),
    /// A call about the process failed.
    Call(Errno),
}

impl From<Errno> for InjectError {
    fn from(errno: Errno) -> Self {
        Self::Call(errno)
    }
}

/// The seccomp mode of a process, from `/proc/PID/status`: 0 is none, 1 is strict, 2 is filters.
pub fn seccomp_filters(status: &str) -> u32 {
    let line = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
    line.and_then(|mode| mode.trim().parse().ok()).unwrap_or(0)
}

/// Takes a tracee that has just become a program out of the call by which it did, to its first
/// instruction.
pub fn finish_exec(tracee: &Tracee) -> Result<(), Errno> {
    tracee.interrupt()?;
    tracee.go_on(0)?;
    until(tracee, Stop::Asked)
}

/// Makes a userfaultfd in the process of a tracee that stands still (not before a signal), takes
/// it, and closes it there. The tracee then stands still, with its registers as they were.
pub fn foreign_userfaultfd(
    tracee: &Tracee,
    pid: i32,
    areas: &[Area],
    filtered: bool,
) -> Result<Watch, InjectError> {
    let memory = File::open(format!("/proc/{pid}/mem")).map_err(errno_of)?;
    let instruction = find_instruction(&memory, areas)?;
    let (mut registers, mask) = (tracee.registers()?, tracee.signal_mask()?);
    const CODE_SEGMENT_64: u64 = 0x33;
    if registers.cs != CODE_SEGMENT_64 {
        return Err(InjectError::Narrow);
    }
    registers.rip = goes_on_at(tracee, &memory, registers.rip)?;
    if filtered {
        tracee.suspend_filters(true).map_err(|_| InjectError::Filtered)?;
    }
    // A signal would be delivered in the middle; it waits.
    tracee.set_signal_mask(!0)?;
    let made = make_and_take(tracee, pid, instruction, &registers);
    let restored = tracee
        .set_registers(&registers)
        .and_then(|()| tracee.set_signal_mask(mask))
        .and_then(|()| if filtered { tracee.suspend_filters(false) } else { Ok(()) });
    restored?;
    made
}

fn make_and_take(
    tracee: &Tracee,
    pid: i32,
    instruction: u64,
    registers: &libc::user_regs_struct,
) -> Result<Watch, InjectError> {
    /// The flag of a descriptor that needs no privilege. Faults of the kernel on the process's
    /// behalf open pages, too, for nobody is asked about them.
    const USER_MODE_ONLY: u64 = 1;
    let flags = libc::O_CLOEXEC as u64 | libc::O_NONBLOCK as u64 | USER_MODE_ONLY;
    let number = match call(tracee, instruction, registers, libc::SYS_userfaultfd, flags) {
        Err(errno @ (Errno::NOSYS | Errno::PERM | Errno::INVAL)) => {
            return Err(InjectError::Kernel("userfaultfd", errno));
        }
        number => number?,
    };
    let taken = Watch::of_process(pid, number);
    let closed = call(tracee, instruction, registers, libc::SYS_close, number as u64);
    let uffd = taken?;
    closed?;
    uffd.agree().map_err(|errno| InjectError::Kernel("UFFDIO_API with WP_ASYNC", errno))?;
    Ok(uffd)
}

/// Makes one call. Afterwards the tracee is stopped at a place where restoring its registers also
/// restores a system call in which it was waiting.
fn call(
    tracee: &Tracee,
    instruction: u64,
    registers: &libc::user_regs_struct,
    number: libc::c_long,
    argument: u64,
) -> Result<i32, Errno> {
    let mut changed = *registers;
    changed.rip = instruction;
    changed.rax = number as u64;
    changed.rdi = argument;
    // It is in no call, or the kernel would begin that again with these registers.
    changed.orig_rax = u64::MAX;
    tracee.set_registers(&changed)?;
    for _ in 0..2 {
        tracee.to_next_call()?;
        until(tracee, Stop::Call)?;
    }
    let value = tracee.registers()?.rax as i64;
    // Only a stop on the way to user mode looks for a call to begin again; the end of a call does
    // not.
    tracee.interrupt()?;
    tracee.go_on(0)?;
    until(tracee, Stop::Asked)?;
    match i32::try_from(value) {
        Ok(value @ -4095..0) => Err(Errno::from_raw_os_error(-value)),
        Ok(value) => Ok(value),
        Err(_) => Err(Errno::INVAL),
    }
}

/// Waits for one kind of stop. A stop by job control on the way is passed over; it is taken up
/// again at the end.
fn until(tracee: &Tracee, wanted: Stop) -> Result<(), Errno> {
    const STOPS_MAX: usize = 16;
    for _ in 0..STOPS_MAX {
        let (stop, _) = tracee.wait()?;
        match stop {
            stop if stop == wanted => return Ok(()),
            Stop::Ended(_) | Stop::Exiting => return Err(Errno::SRCH),
            // Signals are blocked but for those that cannot be, which end it or stop it.
            Stop::Signal(signal) => tracee.go_on(signal)?,
            _ if wanted == Stop::Call => tracee.to_next_call()?,
            _ => tracee.go_on(0)?,
        }
    }
    Err(Errno::BUSY)
}

/// The address of a `syscall` instruction in the process.
fn find_instruction(memory: &File, areas: &[Area]) -> Result<u64, Errno> {
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    const CHUNK_BYTES: usize = 1 << 20;
    let mut bytes = vec![0; CHUNK_BYTES];
    // The vDSO is small and has one; a program without it, or one whose has none, brings its own.
    let mut code: Vec<&Area> = areas.iter().filter(|area| area.executable).collect();
    code.sort_by_key(|area| area.name != "[vdso]");
    for area in code {
        let mut at = area.start;
        while at < area.end {
            let len = CHUNK_BYTES.min((area.end - at) as usize);
            // Not every area can be read (`[vsyscall]`); the next may.
            let Ok(read) = memory.read_at(&mut bytes[..len], at) else { break };
            if let Some(found) = bytes[..read].windows(2).position(|two| two == SYSCALL) {
                return Ok(at + found as u64);
            }
            if read == 0 {
                break;
            }
            at += read as u64;
        }
    }
    Err(Errno::NOEXEC)
}

fn errno_of(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
