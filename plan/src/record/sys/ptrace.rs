//! Stops one thread of another process with `ptrace`, and lets it go on.
//!
//! A tracee is seized and not attached, so it gets no signal from the recorder, and job control
//! works as ever. If the recorder dies, the kernel lets the tracee go on. All calls must come from
//! the thread that seized it.

use rustix::io::Errno;

use super::last_errno;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The process ended with this status.
    Code(i32),
    /// A signal ended the process.
    Signal(i32),
}

/// Why a tracee stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The thread was asked to stop, or job control stopped it.
    Asked,
    /// The thread is about to get this signal.
    Signal(i32),
    /// A system call begins or ends.
    Call,
    /// The thread has become another program.
    Exec,
    /// The thread is about to end, and its memory is there still.
    Exiting,
    /// The thread has ended.
    Ended(Exit),
}

/// Where a thread's sequences are registered: `struct ptrace_rseq_configuration`.
#[cfg(target_arch = "x86_64")]
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct RseqPlace {
    pub(super) pointer: u64,
    size: u32,
    signature: u32,
    flags: u32,
    zero: u32,
}

/// A thread that we trace.
#[derive(Debug)]
pub struct Tracee {
    /// The number of the thread.
    pub thread: i32,
    options: libc::c_int,
}

impl Tracee {
    /// Begins to trace a thread, which goes on meanwhile.
    pub fn seize(thread: i32) -> Result<Self, Errno> {
        Self::seize_with(thread, libc::PTRACE_O_TRACESYSGOOD)
    }

    /// Begins to trace a thread that is about to become a program, at which it stops.
    pub fn seize_before_exec(thread: i32) -> Result<Self, Errno> {
        Self::seize_with(thread, libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACEEXEC)
    }

    fn seize_with(thread: i32, options: libc::c_int) -> Result<Self, Errno> {
        request(libc::PTRACE_SEIZE, thread, 0, options as usize)?;
        Ok(Self { thread, options })
    }

    /// Lets the thread stop when it is about to end, too, from now on.
    pub fn stop_at_the_end(&mut self) -> Result<(), Errno> {
        self.options |= libc::PTRACE_O_TRACEEXIT;
        request(libc::PTRACE_SETOPTIONS, self.thread, 0, self.options as usize)
    }

    /// Asks the thread to stop.
    pub fn interrupt(&self) -> Result<(), Errno> {
        request(libc::PTRACE_INTERRUPT, self.thread, 0, 0)
    }

    /// Lets the thread go on, with a signal or with 0.
    pub fn go_on(&self, signal: i32) -> Result<(), Errno> {
        request(libc::PTRACE_CONT, self.thread, 0, signal as usize)
    }

    /// Lets the thread stay as job control has it.
    pub fn listen(&self) -> Result<(), Errno> {
        request(libc::PTRACE_LISTEN, self.thread, 0, 0)
    }

    /// Lets the thread go on to where a system call begins or ends.
    pub fn to_next_call(&self) -> Result<(), Errno> {
        request(libc::PTRACE_SYSCALL, self.thread, 0, 0)
    }

    /// Ends tracing; the thread goes on.
    pub fn let_go(self) -> Result<(), Errno> {
        request(libc::PTRACE_DETACH, self.thread, 0, 0)
    }

    /// Waits until it stands still or has ended. The second value: whether job control stopped it.
    pub fn wait(&self) -> Result<(Stop, bool), Errno> {
        let mut status = 0;
        loop {
            // SAFETY: `status` outlives the call.
            let found = unsafe { libc::waitpid(self.thread, &raw mut status, libc::__WALL) };
            if found >= 0 {
                break;
            }
            match last_errno() {
                Errno::INTR => {}
                errno => return Err(errno),
            }
        }
        Ok(stop_of(status))
    }

    /// Waits for the exec of a thread that was seized before it. Returns false where there was none
    /// because the thread ended; its starter still learns from the system how.
    pub fn wait_for_exec(&self) -> Result<bool, Errno> {
        loop {
            // An end must be left to the starter, which is in this process and waits as well.
            // SAFETY: integers only, for which zeros are valid.
            let mut seen: libc::siginfo_t = unsafe { std::mem::zeroed() };
            let events = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | libc::__WALL;
            let thread = self.thread as libc::id_t;
            // SAFETY: `seen` outlives the call.
            if unsafe { libc::waitid(libc::P_PID, thread, &raw mut seen, events) } < 0 {
                match last_errno() {
                    Errno::INTR => continue,
                    // The starter was faster.
                    Errno::CHILD => return Ok(false),
                    errno => return Err(errno),
                }
            }
            if matches!(seen.si_code, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED) {
                return Ok(false);
            }
            match self.wait()?.0 {
                Stop::Exec => return Ok(true),
                Stop::Signal(signal) => self.go_on(signal)?,
                Stop::Ended(_) => return Ok(false),
                Stop::Asked | Stop::Call | Stop::Exiting => self.go_on(0)?,
            }
        }
    }

    /// The registers of the thread.
    pub fn registers(&self) -> Result<libc::user_regs_struct, Errno> {
        // SAFETY: integers only, for which zeros are valid.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        request(libc::PTRACE_GETREGS, self.thread, 0, (&raw mut registers) as usize)?;
        Ok(registers)
    }

    /// Sets the registers of the thread.
    pub fn set_registers(&self, registers: &libc::user_regs_struct) -> Result<(), Errno> {
        request(libc::PTRACE_SETREGS, self.thread, 0, &raw const *registers as usize)
    }

    /// The place at which the thread's restartable sequences are registered.
    #[cfg(target_arch = "x86_64")]
    pub fn rseq_place(&self) -> Result<RseqPlace, Errno> {
        /// A request of Linux 5.13 (`linux/ptrace.h`).
        const GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;
        let mut place = RseqPlace::default();
        let bytes = size_of::<RseqPlace>();
        request(GET_RSEQ_CONFIGURATION, self.thread, bytes, (&raw mut place) as usize)?;
        Ok(place)
    }

    /// The signals that the thread blocks.
    pub fn signal_mask(&self) -> Result<u64, Errno> {
        let mut mask = 0_u64;
        request(libc::PTRACE_GETSIGMASK, self.thread, size_of::<u64>(), (&raw mut mask) as usize)?;
        Ok(mask)
    }

    /// Sets the signals that the thread blocks.
    pub fn set_signal_mask(&self, mask: u64) -> Result<(), Errno> {
        let mask = &raw const mask as usize;
        request(libc::PTRACE_SETSIGMASK, self.thread, size_of::<u64>(), mask)
    }

    /// Lets its system calls by its own filters, or not again. Needs CAP_SYS_ADMIN.
    pub fn suspend_filters(&self, suspend: bool) -> Result<(), Errno> {
        let suspended = if suspend { libc::PTRACE_O_SUSPEND_SECCOMP } else { 0 };
        let options = self.options | suspended;
        request(libc::PTRACE_SETOPTIONS, self.thread, 0, options as usize)
    }
}

fn stop_of(status: i32) -> (Stop, bool) {
    if libc::WIFEXITED(status) {
        return (Stop::Ended(Exit::Code(libc::WEXITSTATUS(status))), false);
    }
    if libc::WIFSIGNALED(status) {
        return (Stop::Ended(Exit::Signal(libc::WTERMSIG(status))), false);
    }
    let signal = libc::WSTOPSIG(status);
    match status >> 16 {
        libc::PTRACE_EVENT_EXEC => (Stop::Exec, false),
        libc::PTRACE_EVENT_EXIT => (Stop::Exiting, false),
        libc::PTRACE_EVENT_STOP => (Stop::Asked, signal != libc::SIGTRAP),
        _ if signal == libc::SIGTRAP | 0x80 => (Stop::Call, false),
        _ => (Stop::Signal(signal), false),
    }
}

/// C libraries do not agree on the sign of a request's number, in constants or in the call.
#[cfg(not(target_env = "musl"))]
type Number = libc::c_uint;
#[cfg(target_env = "musl")]
type Number = libc::c_int;

fn request(number: impl Into<i64>, thread: i32, address: usize, data: usize) -> Result<(), Errno> {
    let number = number.into() as Number;
    // SAFETY: callers pass numbers, or addresses of what the request reads or writes and that
    // outlives the call.
    let done = unsafe { libc::ptrace(number, thread, address, data) };
    if done < 0 { Err(last_errno()) } else { Ok(()) }
}
