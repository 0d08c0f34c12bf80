//! The server's side: starting a holder, or taking over what one holds.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{connect, sockopt};

use super::error::{LinkError, failed};
use super::socket::{self, SOCKET_NAME, socket_pair};
use super::times::Times;
use super::wire::{Message, receive, send};

/// A holder that does not answer within this time counts as hung.
const ANSWER: Duration = Duration::from_secs(10);

/// A region that a holder handed over.
#[derive(Debug)]
pub(crate) struct Held {
    /// Descriptor of the region's memory.
    pub(crate) memory: OwnedFd,
    /// Descriptor of the region's ledger.
    pub(crate) ledger: OwnedFd,
    /// Descriptor of the image: the holder's own open file, which has the image's lock.
    pub(crate) image: OwnedFd,
    /// Dirty bytes.
    pub(crate) used_bytes: u64,
    /// The connection to the holder.
    pub(crate) link: Link,
}

/// The connection between a server and its holder. A broken connection tells the holder that the
/// server is gone.
#[derive(Debug)]
pub struct Link {
    socket: OwnedFd,
    /// The holder's process, if this process started it.
    child: Option<Child>,
}

/// The answer to asking a directory's holder for what it holds.
#[derive(Debug)]
pub(crate) enum TakeOver {
    /// There is no holder: the image has the region's newest contents.
    Nobody,
    /// A holder without a server handed its region over.
    Held(Held),
    /// A holder is flushing: ask again, for as long as its grace.
    Flushing {
        /// Time that the holder's server gave it for a flush.
        grace: Duration,
        /// Dirty bytes when the flush began.
        used_bytes: u64,
    },
    /// A holder ended while it was asked: ask again.
    Unanswered,
}

/// Connects to the directory's holder; `None` if there is none.
fn dial(dir: &Path) -> Result<Option<OwnedFd>, LinkError> {
    let (address, _dir) = socket::address(dir)?;
    let socket = socket::open()?;
    // A connection behind a full queue would otherwise wait without end.
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(ANSWER))
        .map_err(failed("socket timeout"))?;
    match connect(&socket, &address) {
        Ok(()) => Ok(Some(socket)),
        Err(Errno::AGAIN) => {
            Err(LinkError::Answer(format!("it accepts no connection within {ANSWER:?}")))
        }
        // The socket's file is missing, or its holder is gone.
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(None),
        Err(errno) => {
            Err(failed(format!("connect to {}", dir.join(SOCKET_NAME).display()))(errno).into())
        }
    }
}

/// Waits for a message on a link.
fn answer(socket: &OwnedFd, within: Duration) -> Result<(Message, Vec<OwnedFd>), LinkError> {
    let timeout =
        Timespec { tv_sec: within.as_secs() as i64, tv_nsec: i64::from(within.subsec_nanos()) };
    let mut ready = [PollFd::new(socket, PollFlags::IN)];
    let count = loop {
        match poll(&mut ready, Some(&timeout)) {
            // Begins the whole wait again: signals are rare here.
            Err(Errno::INTR) => {}
            outcome => break outcome.map_err(failed("wait for the holder"))?,
        }
    };
    if count == 0 {
        return Err(LinkError::Answer(format!("nothing within {within:?}")));
    }
    receive(socket).map_err(failed("read from the holder"))?.ok_or(LinkError::Closed)
}

/// Asks the directory's holder, if there is one, for what it holds. A holder that hands its region
/// over keeps to `times` from then on.
pub(crate) fn take_over(dir: &Path, times: Times) -> Result<TakeOver, LinkError> {
    match dial(dir)? {
        Some(socket) => ask(socket, times),
        None => Ok(TakeOver::Nobody),
    }
}

/// Asks a holder as [`take_over`] does, over a connection to it.
fn ask(socket: OwnedFd, times: Times) -> Result<TakeOver, LinkError> {
    match send(&socket, &Message::TakeOver { times }, &[]) {
        Ok(()) => {}
        Err(error) if is_gone(&error) => return Ok(TakeOver::Unanswered),
        Err(error) => return Err(failed("write to the holder")(error).into()),
    }
    let (message, fds) = match answer(&socket, ANSWER) {
        Ok(answer) => answer,
        Err(LinkError::Closed) => return Ok(TakeOver::Unanswered),
        Err(LinkError::Io { source, .. }) if is_gone(&source) => return Ok(TakeOver::Unanswered),
        Err(error) => return Err(error),
    };
    match message {
        Message::Held { used_bytes, .. } => {
            let [memory, ledger, image] = <[OwnedFd; 3]>::try_from(fds).map_err(|fds| {
                LinkError::Answer(format!("{} descriptors, expected 3", fds.len()))
            })?;
            Ok(TakeOver::Held(Held { memory, ledger, image, used_bytes, link: Link::over(socket) }))
        }
        Message::Flushing { grace_ms, used_bytes } => {
            Ok(TakeOver::Flushing { grace: Duration::from_millis(grace_ms), used_bytes })
        }
        Message::Busy { pid } => Err(LinkError::Busy { pid }),
        other => Err(LinkError::Answer(format!("{other:?}"))),
    }
}

/// Whether a socket's error means that the other side ended with the message unread.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// Tells the directory's holder to flush now, and returns dirty bytes, bytes written to the device,
/// and the time of the flush. `None` means that there is no holder.
pub fn flush(dir: &Path) -> Result<Option<(u64, u64, Duration)>, LinkError> {
    let Some(socket) = dial(dir)? else { return Ok(None) };
    send(&socket, &Message::Flush, &[]).map_err(failed("write to the holder"))?;
    match answer(&socket, Duration::from_secs(24 * 3600))?.0 {
        Message::Flushed { dirty_bytes, device_bytes, elapsed_ns } => {
            Ok(Some((dirty_bytes, device_bytes, Duration::from_nanos(elapsed_ns))))
        }
        Message::Busy { pid } => Err(LinkError::Busy { pid }),
        Message::Flushing { used_bytes, .. } => Err(LinkError::FlushesAlready { used_bytes }),
        other => Err(LinkError::Answer(format!("{other:?}"))),
    }
}

impl Link {
    /// The link over a connection to a holder that another process started.
    pub(super) fn over(socket: OwnedFd) -> Self {
        Self { socket, child: None }
    }

    /// Starts `program` as a holder, with the link as its standard input, and hands it the
    /// descriptors of memory, ledger and image.
    ///
    /// `program` must call [`super::serve`], as `perdura holder` does.
    pub(crate) fn start(
        mut program: Command,
        fds: [BorrowedFd<'_>; 3],
        times: Times,
        unix_ms: u64,
    ) -> Result<Self, LinkError> {
        let (ours, theirs) = socket_pair().map_err(failed("socket pair"))?;
        // Sent before the holder is started: the message waits in the socket, so that a holder that
        // runs gets the memory even if this process is killed at this moment.
        send(&ours, &Message::Hold { times, unix_ms }, &fds)
            .map_err(failed("hand memory to the holder"))?;
        program.stdin(Stdio::from(theirs));
        let mut child = program.spawn().map_err(failed("start the holder"))?;
        // This process must close its copy of the holder's end, or it would not notice the
        // holder's death.
        drop(program);
        let error = match answer(&ours, ANSWER) {
            Ok((Message::Ready, _)) => return Ok(Self { socket: ours, child: Some(child) }),
            Ok((Message::Failed { why }, _)) => LinkError::Answer(why),
            Ok((other, _)) => LinkError::Answer(format!("{other:?}")),
            Err(error) => error,
        };
        // A hung holder that went on later would take this process for dead: it would flush at a
        // warning beside this process, and offer its memory to the next server.
        let _ = child.kill();
        let _ = child.wait();
        Err(error)
    }

    /// Tells the holder that everything is on the SSD, so that it ends, and waits for its end: at
    /// most 10 s for a holder that another process started. A holder that ended earlier, for
    /// example by a crash, is no error.
    pub(crate) fn goodbye(self) -> Result<(), LinkError> {
        match send(&self.socket, &Message::Goodbye, &[]) {
            Ok(()) => match answer(&self.socket, ANSWER) {
                Err(LinkError::Io { source, .. }) if is_gone(&source) => {}
                Err(LinkError::Answer(_) | LinkError::Closed) | Ok(_) => {}
                Err(error) => return Err(error),
            },
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(failed("say goodbye to the holder")(error).into()),
        }
        self.reap();
        Ok(())
    }

    /// Collects the exit status of a holder that this process started, so that it leaves no zombie.
    pub(crate) fn reap(self) {
        if let Some(mut child) = self.child {
            // The holder has closed its end of the link and is about to end. Its status says
            // nothing new.
            let _ = child.wait();
        }
    }

    /// Whether the holder still has its end open.
    pub(super) fn is_live(&self) -> bool {
        let mut ends = [PollFd::new(&self.socket, PollFlags::empty())];
        let outcome = poll(&mut ends, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        outcome.is_ok() && ends[0].revents().is_empty()
    }

    /// The link's descriptor, which becomes readable when the holder is gone.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goodbye_to_a_holder_that_is_gone_succeeds() {
        let (ours, theirs) = socket_pair().unwrap();
        drop(theirs);
        Link::over(ours).goodbye().unwrap();
    }

    #[test]
    fn goodbye_to_a_holder_that_dies_before_it_reads_it_succeeds() {
        let (ours, theirs) = socket_pair().unwrap();
        std::thread::scope(|scope| {
            let said = scope.spawn(|| Link::over(ours).goodbye());
            poll(&mut [PollFd::new(&theirs, PollFlags::IN)], None).unwrap();
            drop(theirs);
            said.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_holder_that_ends_before_it_has_read_the_question_or_answered_it_is_asked_again() {
        let times = Times { grace: Duration::from_secs(1), wait: None };
        let (ours, theirs) = socket_pair().unwrap();
        drop(theirs);
        assert!(matches!(ask(ours, times), Ok(TakeOver::Unanswered)));
        for reads in [false, true] {
            let (ours, theirs) = socket_pair().unwrap();
            let asked = std::thread::scope(|scope| {
                let asked = scope.spawn(|| ask(ours, times));
                poll(&mut [PollFd::new(&theirs, PollFlags::IN)], None).unwrap();
                if reads {
                    receive(&theirs).unwrap();
                }
                drop(theirs);
                asked.join().unwrap()
            });
            assert!(matches!(asked, Ok(TakeOver::Unanswered)), "it has read: {reads}");
        }
    }

    #[test]
    fn goodbye_is_said_and_the_end_of_the_holder_is_waited_for() {
        let (ours, theirs) = socket_pair().unwrap();
        let child = Command::new("sh").args(["-c", "read line"]).stdin(Stdio::piped()).spawn();
        let mut child = child.unwrap();
        let (pid, lives) = (child.id(), child.stdin.take());
        let proc = Path::new("/proc").join(pid.to_string());
        std::thread::scope(|scope| {
            let link = Link { socket: ours, child: Some(child) };
            let said = scope.spawn(|| link.goodbye());
            let (message, _) = receive(&theirs).unwrap().unwrap();
            assert_eq!(message, Message::Goodbye);
            drop(theirs);
            // The holder lives on for a moment.
            assert!(proc.exists() && !said.is_finished());
            drop(lives);
            said.join().unwrap().unwrap();
            assert!(!proc.exists(), "the holder is left as a zombie");
        });
    }

    #[test]
    fn a_holder_that_gives_no_usable_answer_is_ended() {
        let mut program = Command::new("sh");
        // The link is the program's standard input.
        program.args(["-c", "printf $$ >&0; exec sleep 1000"]);
        let null = std::fs::File::open("/dev/null").unwrap();
        let fds = [null.as_fd(); 3];
        let times = Times { grace: Duration::from_secs(1), wait: None };
        let error = Link::start(program, fds, times, 0).unwrap_err();
        let LinkError::Io { source, .. } = error else { panic!("{error}") };
        let said = source.to_string();
        let pid = said.split('"').nth(1).unwrap();
        assert!(pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists(), "{said}");
    }
}
