//! A process that starts holders for a server which may start no program any more.
//!
//! The server starts it while it still may, with a connection as its standard input. A request is
//! [`Message::Start`] with the holder's end of a link; the answer is [`Message::Ready`] with a
//! descriptor of the holder's process. The server chooses nothing else: program and arguments are
//! the starter's own. It ends with the server, whose end of the connection is closed then.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::error::{LinkError, failed};
use super::link::{ANSWER, answer};
use super::program::HolderProgram;
use super::socket::socket_pair;
use super::wire::{Message, receive, send};

/// The server's connection to its starter.
#[derive(Debug)]
pub(crate) struct Starter {
    requests: OwnedFd,
}

/// How a holder is started: by this process, or by its starter.
pub(super) enum Start<'a> {
    Here(Command),
    By(&'a Starter),
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
        Ok(Self { requests })
    }

    fn start(&self, link: &OwnedFd) -> Result<OwnedFd, LinkError> {
        send(&self.requests, &Message::Start, &[link.as_fd()])
            .map_err(failed("ask for a holder"))?;
        match answer(&self.requests, ANSWER)? {
            (Message::Ready, mut fds) if fds.len() == 1 => Ok(fds.remove(0)),
            (Message::Failed { why }, _) => Err(LinkError::Answer(why)),
            (other, _) => Err(LinkError::Answer(format!("{other:?}"))),
        }
    }
}

impl Start<'_> {
    /// Starts the holder with `link` as its standard input. No copy of it stays here, or the
    /// holder's death would not be noticed.
    pub(super) fn start(self, link: OwnedFd) -> Result<Process, LinkError> {
        match self {
            Self::Here(mut program) => {
                let child = program.stdin(Stdio::from(link)).spawn();
                Ok(Process::Child(child.map_err(failed("start the holder"))?))
            }
            Self::By(starter) => starter.start(&link).map(Process::Other),
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
    serve(&requests, program)
}

fn serve(requests: &OwnedFd, mut program: impl FnMut() -> Command) -> Result<(), LinkError> {
    while let Some((message, mut fds)) = receive(requests).map_err(failed("read a request"))? {
        let link = fds.pop().filter(|_| message == Message::Start && fds.is_empty());
        let started = link.ok_or_else(|| LinkError::Answer(format!("{message:?}")));
        let (said, process) = match started.and_then(|link| start_one(program(), link)) {
            Ok(process) => (Message::Ready, Some(process)),
            Err(error) => (Message::Failed { why: error.to_string() }, None),
        };
        let process: Vec<_> = process.iter().map(AsFd::as_fd).collect();
        send(requests, &said, &process).map_err(failed("answer a request"))?;
    }
    Ok(())
}

/// Starts a holder, whose end is waited for on a thread, and returns a descriptor of its process.
fn start_one(mut program: Command, link: OwnedFd) -> Result<OwnedFd, LinkError> {
    let mut child = program.stdin(Stdio::from(link)).spawn().map_err(failed("start the holder"))?;
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
    let process = process.map_err(failed("open the holder's process")).inspect_err(|_| {
        drop(child.kill());
        drop(child.wait());
    })?;
    std::thread::Builder::new()
        .name("perdura-reaps".into())
        .spawn(move || child.wait())
        .map_err(failed("start a thread"))?;
    Ok(process)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::link::Link;
    use super::super::times::Times;
    use super::*;

    /// A starter in this process, whose holder is `program`.
    fn starter(program: fn() -> Command) -> (Starter, std::thread::JoinHandle<()>) {
        let (ours, theirs) = socket_pair().unwrap();
        let serving = std::thread::spawn(move || serve(&theirs, program).unwrap());
        (Starter { requests: ours }, serving)
    }

    fn hand_over(starter: &Starter) -> Result<Link, LinkError> {
        let null = std::fs::File::open("/dev/null").unwrap();
        let times = Times { grace: Duration::from_secs(1), wait: None };
        Link::start(Start::By(starter), [null.as_fd(); 3], times, 1)
    }

    #[test]
    fn a_holder_is_started_by_another_process_and_its_end_is_waited_for() {
        let (starter, serving) = starter(|| {
            let mut shell = Command::new("sh");
            // It answers on the link, and lives until it is told to go.
            shell.args(["-c", "printf ready >&0; exec cat >/dev/null"]);
            shell
        });
        let link = hand_over(&starter).unwrap();
        assert!(link.is_live());
        drop(starter);
        serving.join().unwrap();
        assert!(link.is_live(), "a holder goes on when its starter has ended");
    }

    #[test]
    fn a_holder_of_a_starter_that_gives_no_usable_answer_is_ended() {
        let (starter, serving) = starter(|| {
            let mut shell = Command::new("sh");
            shell.args(["-c", "printf $$ >&0; exec sleep 1000"]);
            shell
        });
        let LinkError::Answer(said) = hand_over(&starter).unwrap_err() else { panic!() };
        let pid = said.split('"').nth(1).unwrap();
        assert!(pid.parse::<u32>().is_ok(), "{said}");
        drop(starter);
        serving.join().unwrap();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        assert!(stat.is_empty() || stat.contains(") Z"), "{stat}");
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error_and_the_starter_goes_on() {
        let (starter, serving) = starter(|| Command::new("/dev/null/no-program"));
        for _ in 0..2 {
            let error = hand_over(&starter).unwrap_err().to_string();
            assert!(error.contains("start the holder"), "{error}");
        }
        drop(starter);
        serving.join().unwrap();
    }
}
