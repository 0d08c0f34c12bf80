//! Getting access to the memory of a process: by tracing it for one system call, or from its start
//! to its end.

use std::ffi::OsString;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::{fs, io};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use super::error::{Hindrance, RecordError};
use super::maps::Maps;
use super::processes::{has_only_other_threads, is_alive, is_of_kernel};
use super::space::{Space, kernel};
use super::sys::{
    Exit, InjectError, Stop, Tracee, finish_exec, foreign_userfaultfd, seccomp_filters,
    start_traced,
};

/// An event of the program that the recorder started.
#[derive(Debug)]
pub enum Event {
    /// The program stands at the first instruction of a program, its own or one that it became, and
    /// waits for an answer.
    Began(Space),
    /// The program's first thread is about to end, and most likely the program with it. The thread
    /// waits for an answer.
    Ending,
    /// The program has ended.
    Ended(Exit),
    /// The program can no longer be followed.
    Failed(RecordError),
}

/// The program that we started, as its recorder sees it.
#[derive(Debug)]
pub struct Started {
    /// The events of the program.
    pub events: Receiver<Event>,
    /// The answers, one for each event that waits for one.
    answers: Sender<()>,
    /// Keeps `events` open, so that waiting for one takes its time when no more will come: children
    /// may run on.
    _tells: Sender<Event>,
}

impl Started {
    /// Stands for the program where the recorder started none.
    pub fn nothing() -> Self {
        let ((tells, events), (answers, _)) = (channel(), channel());
        Self { events, answers, _tells: tells }
    }

    /// Answers an event that waits. A program that was killed meanwhile does not hear it.
    pub fn go_on(&self) {
        let _ = self.answers.send(());
    }
}

/// The memory of a process that runs; it stands still for some tens of microseconds.
pub fn attach(pid: i32) -> Result<Space, RecordError> {
    check(pid)?;
    let tracee = Tracee::seize(pid).map_err(|errno| refusal(pid, errno))?;
    let call = |what| move |errno| called(pid, what, errno);
    tracee.interrupt().map_err(call("stopping it"))?;
    loop {
        match tracee.wait().map_err(call("waiting for it to stop"))?.0 {
            Stop::Asked => break,
            Stop::Signal(signal) => tracee.go_on(signal).map_err(call("passing on a signal"))?,
            Stop::Ended(_) => return Err(RecordError::NoProcess { pid }),
            Stop::Call | Stop::Exec | Stop::Exiting => {
                tracee.go_on(0).map_err(call("letting it go on"))?;
            }
        }
    }
    let space = space_of(&tracee, pid);
    // A process that was killed meanwhile has nothing to be let go.
    match tracee.let_go() {
        Ok(()) | Err(Errno::SRCH) => space,
        Err(errno) => Err(call("letting it go on")(errno)),
    }
}

/// Starts a program and traces its first thread to its end, so that the last look comes before its
/// memory goes.
pub fn start(words: &[OsString]) -> Result<Started, RecordError> {
    let name = words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    let mut command = Command::new(words.first().map(OsString::as_os_str).unwrap_or_default());
    command.args(words.get(1..).unwrap_or_default());
    let (tells, events) = channel();
    let keeps_open = tells.clone();
    let (answers, answered) = channel();
    let (says, started) = channel();
    // The thread that seizes a tracee must make all calls about it, and this one waits for its
    // stops.
    let follow = move || match start_traced(command) {
        Err(cause) => drop(says.send(Err(RecordError::Start { program: name, cause }))),
        Ok(tracee) => {
            // Nobody listens any more: then it just goes on, traced until it ends.
            drop(says.send(Ok(())));
            if let Err(error) = follow(&tracee, &tells, &answered) {
                drop(tells.send(Event::Failed(error)));
            }
        }
    };
    std::thread::Builder::new()
        .name("trace".to_owned())
        .spawn(follow)
        .map_err(RecordError::Spawn)?;
    started.recv().map_err(|_| RecordError::Spawn(std::io::ErrorKind::Other.into()))??;
    Ok(Started { events, answers, _tells: keeps_open })
}

/// Follows a program from its first instruction on, at which it stands.
fn follow(
    tracee: &Tracee,
    tells: &Sender<Event>,
    answered: &Receiver<()>,
) -> Result<(), RecordError> {
    let pid = tracee.thread;
    let call = |errno| RecordError::Call { pid, what: "following it", errno };
    // Without a listener there is nothing to wait for.
    let tell = |event| {
        if tells.send(event).is_ok() {
            // Gone meanwhile: nothing to wait for either.
            let _ = answered.recv();
        }
    };
    let (mut stop, mut has_begun) = ((Stop::Exec, false), false);
    loop {
        let gone_on = match stop {
            (Stop::Exec, _) => {
                match finish_exec(tracee).map_err(call).and_then(|()| space_of(tracee, pid)) {
                    Ok(space) => tell(Event::Began(space)),
                    Err(error) => {
                        drop(tells.send(Event::Failed(error)));
                        // Run unrecorded, it would have to be run again.
                        if !has_begun {
                            kill(pid)?;
                        }
                    }
                }
                has_begun = true;
                tracee.go_on(0)
            }
            (Stop::Exiting, _) => {
                tell(Event::Ending);
                tracee.go_on(0)
            }
            (Stop::Asked, true) => tracee.listen(),
            (Stop::Asked, false) | (Stop::Call, _) => tracee.go_on(0),
            (Stop::Signal(signal), _) => tracee.go_on(signal),
            (Stop::Ended(exit), _) => {
                drop(tells.send(Event::Ended(exit)));
                return Ok(());
            }
        };
        stop = match gone_on {
            // Killed while it stood; the wait says so. Other errors would be ours.
            Ok(()) | Err(Errno::SRCH) => tracee.wait(),
            Err(errno) => Err(errno),
        }
        .map_err(call)?;
    }
}

fn kill(pid: i32) -> Result<(), RecordError> {
    let killed = Pid::from_raw(pid).map_or(Ok(()), |pid| kill_process(pid, Signal::KILL));
    killed.map_err(|errno| RecordError::Call { pid, what: "ending it", errno })
}

/// The memory of a process whose tracee stands still.
fn space_of(tracee: &Tracee, pid: i32) -> Result<Space, RecordError> {
    let read = |what| move |cause| asked(pid, what, cause);
    let status = fs::read_to_string(format!("/proc/{pid}/status")).map_err(read("its status"))?;
    let mut maps = Maps::open(pid).map_err(read("opening its mappings"))?;
    let areas = maps.read().map_err(read("reading its mappings"))?;
    let filtered = seccomp_filters(&status) != 0;
    let uffd = foreign_userfaultfd(tracee, pid, &areas, filtered).map_err(|error| match error {
        InjectError::Filtered => RecordError::Filtered { pid },
        InjectError::Narrow => RecordError::Narrow { pid },
        InjectError::Kernel(what, errno) => kernel(what, errno),
        InjectError::Call(errno) => called(pid, "a call in its name", errno),
    })?;
    Space::new(pid, uffd, maps)
}

/// The error of a call about a process that failed, perhaps because the process has ended.
fn called(pid: i32, what: &'static str, errno: Errno) -> RecordError {
    match errno {
        Errno::SRCH => RecordError::NoProcess { pid },
        errno => RecordError::Call { pid, what, errno },
    }
}

/// The error of reading what `/proc` says of a process, perhaps because it has ended.
fn asked(pid: i32, what: &'static str, cause: io::Error) -> RecordError {
    match Errno::from_io_error(&cause) {
        Some(Errno::SRCH | Errno::NOENT) => RecordError::NoProcess { pid },
        _ => RecordError::Read { pid, what, cause },
    }
}

/// Whether a process can be traced at all, or the error that says why not.
fn check(pid: i32) -> Result<(), RecordError> {
    if pid == std::process::id() as i32 {
        return Err(RecordError::Ourselves { pid });
    }
    // A process that has ended and waits to be asked for its status has no memory either.
    let Some(status) = Status::of(pid).filter(|_| is_alive(pid)) else {
        if has_only_other_threads(pid) {
            return Err(RecordError::FirstThreadEnded { pid });
        }
        return Err(RecordError::NoProcess { pid });
    };
    match status.number("Tgid:") {
        Some(process) if process != pid => return Err(RecordError::Thread { pid, process }),
        _ => {}
    }
    match status.field("VmSize:") {
        Some(_) => Ok(()),
        None if is_of_kernel(pid) => Err(RecordError::OfKernel { pid }),
        // It is ending, and its memory is gone already.
        None => Err(RecordError::NoProcess { pid }),
    }
}

fn refusal(pid: i32, errno: Errno) -> RecordError {
    let (Errno::PERM, Some(status)) = (errno, Status::of(pid)) else {
        return RecordError::NoProcess { pid };
    };
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let scope = scope.trim().parse().unwrap_or(0);
    let (us, by) = (rustix::process::geteuid().as_raw(), status.number("TracerPid:").unwrap_or(0));
    let owner = status.number("Uid:").unwrap_or(us);
    let why = match () {
        () if by != 0 => Hindrance::Traced { by },
        () if us == 0 => Hindrance::Capability { scope },
        () if owner != us => Hindrance::Owner { owner, us },
        () if scope != 0 => Hindrance::Yama { scope, us },
        () => Hindrance::Undumpable { us },
    };
    RecordError::Refused { pid, why }
}

/// The text of `/proc/PID/status`.
struct Status(String);

impl Status {
    fn of(pid: i32) -> Option<Self> {
        fs::read_to_string(format!("/proc/{pid}/status")).ok().map(Self)
    }

    fn field(&self, name: &str) -> Option<&str> {
        let line = self.0.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.split_whitespace().next())
    }

    fn number<N: std::str::FromStr>(&self, name: &str) -> Option<N> {
        self.field(name).and_then(|value| value.parse().ok())
    }
}
