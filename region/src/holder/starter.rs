//! A process that starts holders for a server which may start no program any more.
//!
//! The server starts it while it still may, with a connection as its standard input. A request is
//! [`Message::Start`] with the holder's end of a link; the answer is [`Message::Ready`] with a
//! descriptor of the holder's process. The server chooses nothing else: program and arguments are
//! the starter's own. It ends with the server, whose end of the connection is closed then.
//!
//! A starter may be late, or die between two steps. The server then takes the memory back out of
//! the link, so that a holder that is started all the same finds nothing: it would take the server
//! for dead, and end it before it flushes. Where nothing is left in the link, a holder has it.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::RecvFlags;
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open,
    pidfd_send_signal, set_dumpable_behavior, waitid,
};

use super::error::{LinkError, failed};
use super::link::{ANSWER, answer, is_gone};
use super::program::HolderProgram;
use super::socket::socket_pair;
use super::wire::{Message, receive, send};

/// The server's connection to its starter.
#[derive(Debug)]
pub(crate) struct Starter {
    requests: OwnedFd,
    /// A starter that does not answer within this time is late.
    patience: Duration,
    /// Answers that are late. Each brings a holder that is to be ended: it has no memory, or its
    /// link was lost.
    owed: usize,
}

/// How a holder is started: by this process, or by its starter.
pub(super) enum Start<'a> {
    Here(Command),
    By(&'a mut Starter),
}

/// The process of a holder.
#[derive(Debug)]
pub(super) enum Process {
    /// A child of this process.
    Child(Child),
    /// A child of the starter, by a descriptor of the process.
    Other(OwnedFd),
}

impl Starter {
    pub(super) fn new(
        program: &HolderProgram,
        dir: &Path,
        threads: usize,
    ) -> Result<Self, LinkError> {
        let (requests, theirs) = socket_pair().map_err(failed("socket pair"))?;
        let mut command = program.command(dir, threads);
        let started = command.stdin(Stdio::from(theirs)).spawn();
        drop(started.map_err(failed("start the process that starts holders"))?);
        Ok(Self { requests, patience: ANSWER, owed: 0 })
    }

    /// Starts a holder with `link`, and returns its process: `None` if it runs, but the starter has
    /// not said which process it is.
    fn start(&mut self, link: &OwnedFd) -> Result<Option<OwnedFd>, LinkError> {
        while self.owed > 0 {
            let (_, late) = self.answer()?;
            for process in late {
                let _has_ended = pidfd_send_signal(process, Signal::KILL);
            }
        }
        send(&self.requests, &Message::Start, &[link.as_fd()]).map_err(|_| LinkError::NoStarter)?;
        self.owed += 1;
        let error = match self.answer() {
            Ok((Message::Ready, mut fds)) if fds.len() == 1 => return Ok(fds.pop()),
            Ok((Message::Failed { why }, _)) => LinkError::Answer(why),
            Ok((other, _)) => LinkError::Answer(format!("{other:?}")),
            Err(error) => error,
        };
        let in_link = rustix::net::recv(link, &mut [0u8], RecvFlags::DONTWAIT);
        if in_link.is_ok() { Err(error) } else { Ok(None) }
    }

    fn answer(&mut self) -> Result<(Message, Vec<OwnedFd>), LinkError> {
        let answered = answer(&self.requests, self.patience);
        let answered = answered.map_err(|error| match error {
            LinkError::Closed | LinkError::Io { .. } => LinkError::NoStarter,
            late => late,
        })?;
        self.owed -= 1;
        Ok(answered)
    }
}

impl Start<'_> {
    /// Starts the holder with `link` as its standard input. No copy of it stays here, or the
    /// holder's death would not be noticed. Returns the holder's process: `None` if nobody knows
    /// which it is.
    pub(super) fn start(self, link: OwnedFd) -> Result<Option<Process>, LinkError> {
        match self {
            Self::Here(mut program) => {
                let child = program.stdin(Stdio::from(link)).spawn();
                Ok(Some(Process::Child(child.map_err(failed("start the holder"))?)))
            }
            Self::By(starter) => Ok(starter.start(&link)?.map(Process::Other)),
        }
    }
}

impl Process {
    /// Ends it. One that has ended already is no error.
    pub(super) fn kill(&mut self) {
        match self {
            Self::Child(child) => drop(child.kill()),
            Self::Other(process) => drop(pidfd_send_signal(process, Signal::KILL)),
        }
    }

    /// Waits for its end. Its status says nothing new.
    pub(super) fn wait(&mut self) {
        match self {
            Self::Child(child) => drop(child.wait()),
            Self::Other(process) => {
                let mut ends = [PollFd::new(process, PollFlags::IN)];
                while poll(&mut ends, None) == Err(rustix::io::Errno::INTR) {}
            }
        }
    }
}

/// Starts a holder by `program` for each request that arrives, until the server is gone.
///
/// # Errors
/// The requests cannot be read or answered.
pub fn start_holders(requests: OwnedFd, program: impl FnMut() -> Command) -> Result<(), LinkError> {
    // An interrupt at the server's terminal is not meant for this process, which ends with the
    // server in any case. In a session of its own already, it needs no other.
    let _own_session = rustix::process::setsid();
    // This process has no filter. Who has taken the server over has the same user, and must not
    // write to its memory by `/proc/PID/mem`; another program, such as a holder, is as before.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(failed("close /proc/PID/mem"))?;
    serve(&requests, program)
}

fn serve(requests: &OwnedFd, mut program: impl FnMut() -> Command) -> Result<(), LinkError> {
    loop {
        let (message, mut fds) = match receive(requests) {
            Ok(Some(request)) => request,
            Ok(None) => return Ok(()),
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) => return Err(failed("read a request")(error).into()),
        };
        let link = fds.pop().filter(|_| message == Message::Start && fds.is_empty());
        let started = link.ok_or_else(|| LinkError::Answer(format!("{message:?}")));
        let (said, process) = match started.and_then(|link| start_one(program(), link)) {
            Ok(process) => (Message::Ready, Some(process)),
            Err(error) => (Message::Failed { why: error.to_string() }, None),
        };
        let process: Vec<_> = process.iter().map(AsFd::as_fd).collect();
        match send(requests, &said, &process) {
            Err(error) if is_gone(&error) => return Ok(()),
            sent => sent.map_err(failed("answer a request"))?,
        }
    }
}

/// Starts a holder, whose end is waited for on a thread, and returns a descriptor of its process.
fn start_one(mut program: Command, link: OwnedFd) -> Result<OwnedFd, LinkError> {
    let mut child = program.stdin(Stdio::from(link)).spawn().map_err(failed("start the holder"))?;
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
    let process = process.map_err(failed("open the holder's process")).inspect_err(|_| {
        drop(child.kill());
        drop(child.wait());
    })?;
    let reaper = std::thread::Builder::new().name("perdura-reaps".into());
    reaper.spawn(move || child.wait()).map_err(failed("start a thread")).inspect_err(|_| {
        let _killed = pidfd_send_signal(&process, Signal::KILL);
        let _reaped = waitid(WaitId::PidFd(process.as_fd()), WaitIdOptions::EXITED);
    })?;
    Ok(process)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Sender;
    use std::thread::JoinHandle;
    use std::time::Duration;

    use super::super::link::Link;
    use super::super::times::Times;
    use super::*;

    /// A starter in this process, whose holder is `program`.
    fn starter(program: fn() -> Command) -> (Starter, JoinHandle<()>) {
        let (ours, theirs) = socket_pair().unwrap();
        let serving = std::thread::spawn(move || serve(&theirs, program).unwrap());
        (Starter { requests: ours, patience: ANSWER, owed: 0 }, serving)
    }

    fn hand_over(starter: &mut Starter) -> Result<Link, LinkError> {
        let null = std::fs::File::open("/dev/null").unwrap();
        let times = Times { grace: Duration::from_secs(1), wait: None };
        Link::start(Start::By(starter), [null.as_fd(); 3], times, 1)
    }

    #[test]
    fn a_holder_is_started_by_another_process_and_its_end_is_waited_for() {
        let (mut starter, serving) = starter(|| {
            let mut shell = Command::new("sh");
            // It answers on the link, and lives until it is told to go.
            shell.args(["-c", "printf ready >&0; exec cat >/dev/null"]);
            shell
        });
        let link = hand_over(&mut starter).unwrap();
        assert!(link.is_live());
        drop(starter);
        serving.join().unwrap();
        assert!(link.is_live(), "a holder goes on when its starter has ended");
    }

    #[test]
    fn a_holder_of_a_starter_that_gives_no_usable_answer_is_ended() {
        let (mut starter, serving) = starter(|| {
            let mut shell = Command::new("sh");
            shell.args(["-c", "printf $$ >&0; exec sleep 1000"]);
            shell
        });
        let LinkError::Answer(said) = hand_over(&mut starter).unwrap_err() else { panic!() };
        let pid = said.split('"').nth(1).unwrap();
        assert!(pid.parse::<u32>().is_ok(), "{said}");
        drop(starter);
        serving.join().unwrap();
        let process = format!("/proc/{pid}");
        let until = std::time::Instant::now() + Duration::from_secs(10);
        while Path::new(&process).exists() {
            assert!(std::time::Instant::now() < until, "it lives on, or nobody waited for its end");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error_and_the_starter_goes_on() {
        let (mut starter, serving) = starter(|| Command::new("/dev/null/no-program"));
        for _ in 0..2 {
            let error = hand_over(&mut starter).unwrap_err().to_string();
            assert!(error.contains("start the holder"), "{error}");
        }
        drop(starter);
        serving.join().unwrap();
    }

    #[test]
    fn what_is_no_request_starts_nothing() {
        let (mut starter, serving) = starter(|| panic!("a holder is started"));
        let null = std::fs::File::open("/dev/null").unwrap();
        let fd = null.as_fd();
        let wrong: [(_, &[_]); 3] =
            [(Message::Goodbye, &[fd]), (Message::Start, &[]), (Message::Start, &[fd, fd])];
        for (message, fds) in wrong {
            send(&starter.requests, &message, fds).unwrap();
            starter.owed += 1;
            let (said, processes) = starter.answer().unwrap();
            assert!(matches!(said, Message::Failed { .. }) && processes.is_empty(), "{said:?}");
        }
        drop(starter);
        serving.join().unwrap();
    }

    /// A holder that answers if it finds memory, notes its process in `file`, and lives on.
    fn noting(file: &Path) -> Command {
        let mut shell = Command::new("sh");
        let script = "[ $(dd bs=5000 count=1 2>/dev/null | wc -c) -gt 0 ] || exit 1; \
                      echo $$ >> $0; printf ready >&0; exec cat >/dev/null";
        shell.arg("-c").arg(script).arg(file);
        shell
    }

    /// A starter of `noting` holders, with little patience, that starts one for each word of `go`.
    fn late_starter(file: &Path) -> (Starter, JoinHandle<()>, Sender<()>) {
        let file = file.to_owned();
        let (ours, theirs) = socket_pair().unwrap();
        let (go, gone) = std::sync::mpsc::channel();
        let serving = std::thread::spawn(move || {
            let program = || {
                gone.recv().unwrap();
                noting(&file)
            };
            serve(&theirs, program).unwrap();
        });
        (Starter { requests: ours, patience: Duration::from_millis(50), owed: 0 }, serving, go)
    }

    #[test]
    fn a_holder_of_a_starter_that_is_late_finds_no_memory_and_the_next_one_is_the_only_one() {
        let noted = tempfile::NamedTempFile::new().unwrap();
        let (mut starter, serving, go) = late_starter(noted.path());
        for _ in 0..2 {
            // The second time, nothing is asked for: the first answer is still to come.
            let error = hand_over(&mut starter).unwrap_err().to_string();
            assert!(error.contains("nothing within 50ms"), "{error}");
        }
        assert_eq!(starter.owed, 1);
        go.send(()).unwrap();
        go.send(()).unwrap();
        starter.patience = ANSWER;
        let link = hand_over(&mut starter).unwrap();
        assert!(link.is_live());
        assert_eq!(std::fs::read_to_string(noted.path()).unwrap().lines().count(), 1);
        drop(starter);
        serving.join().unwrap();
    }

    #[test]
    fn a_holder_that_has_the_memory_is_used_though_its_starter_died_before_it_said_so() {
        let noted = tempfile::NamedTempFile::new().unwrap();
        let (ours, theirs) = socket_pair().unwrap();
        let path = noted.path().to_owned();
        let dying = std::thread::spawn(move || {
            let (_, mut fds) = receive(&theirs).unwrap().unwrap();
            let link = Stdio::from(fds.remove(0));
            let child = noting(&path).stdin(link).spawn().unwrap();
            while std::fs::read(&path).unwrap().is_empty() {
                std::thread::yield_now();
            }
            child
        });
        let mut starter = Starter { requests: ours, patience: ANSWER, owed: 0 };
        let link = hand_over(&mut starter).unwrap();
        assert!(link.is_live());
        let mut holder = dying.join().unwrap();
        assert!(holder.try_wait().unwrap().is_none());
        let error = hand_over(&mut starter).unwrap_err().to_string();
        assert!(error.contains("restart the server"), "{error}");
        drop(link);
        holder.wait().unwrap();
    }

    #[test]
    fn a_holder_that_a_late_starter_starts_finds_no_memory_and_ends() {
        let noted = tempfile::NamedTempFile::new().unwrap();
        let (mut starter, serving, go) = late_starter(noted.path());
        hand_over(&mut starter).unwrap_err();
        go.send(()).unwrap();
        starter.patience = ANSWER;
        let (_, late) = starter.answer().unwrap();
        has_ended(&late[0]);
        assert_eq!(std::fs::read_to_string(noted.path()).unwrap(), "");
        drop(starter);
        serving.join().unwrap();
    }

    #[test]
    fn a_holder_of_which_a_late_starter_says_the_name_is_ended_when_its_link_is_lost() {
        let noted = tempfile::NamedTempFile::new().unwrap();
        let path = noted.path().to_owned();
        let (ours, theirs) = socket_pair().unwrap();
        let (go, gone) = std::sync::mpsc::channel();
        let serving = std::thread::spawn(move || {
            let (_, mut fds) = receive(&theirs).unwrap().unwrap();
            let mut hanging = Command::new("sh");
            let script = "dd bs=5000 count=1 of=$0 2>/dev/null; printf ready >&0; exec sleep 1000";
            hanging.arg("-c").arg(script).arg(&path);
            let process = start_one(hanging, fds.remove(0)).unwrap();
            gone.recv().unwrap();
            send(&theirs, &Message::Ready, &[process.as_fd()]).unwrap();
            serve(&theirs, || noting(&path)).unwrap();
            process
        });
        // A request that was given up when the holder had the memory.
        let (server, link) = socket_pair().unwrap();
        send(&server, &Message::Goodbye, &[]).unwrap();
        send(&ours, &Message::Start, &[link.as_fd()]).unwrap();
        while std::fs::read(noted.path()).unwrap().is_empty() {
            std::thread::yield_now();
        }
        let mut starter = Starter { requests: ours, patience: ANSWER, owed: 1 };
        go.send(()).unwrap();
        assert!(hand_over(&mut starter).unwrap().is_live());
        drop(starter);
        has_ended(&serving.join().unwrap());
    }

    fn has_ended(process: &OwnedFd) {
        let patience = rustix::event::Timespec { tv_sec: 10, tv_nsec: 0 };
        let mut ends = [PollFd::new(process, PollFlags::IN)];
        assert_eq!(poll(&mut ends, Some(&patience)), Ok(1), "it lives on");
    }
}
