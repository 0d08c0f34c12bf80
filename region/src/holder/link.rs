//! The server's side: starting a holder or asking a guard to hold, and taking over what is held.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use perdura_dirty::LIVE_LAYOUT;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::error::{LinkError, failed};
use super::socket::{connect_to, socket_pair};
use super::starter::{Process, Start};
use super::times::Times;
use super::wire::{ImageFile, Message, receive, send};

/// A holder or guard that does not answer within this time counts as hung.
pub(super) const ANSWER: Duration = Duration::from_secs(10);

/// The longest drill.
const DRILL: Duration = Duration::from_secs(3600);

/// A region that a holder or a guard handed over.
#[derive(Debug)]
pub(crate) struct Held {
    /// Descriptor of the region's memory.
    pub(crate) memory: OwnedFd,
    /// Descriptor of the region's ledger.
    pub(crate) ledger: OwnedFd,
    /// Descriptor of the image: the first opener's own open file, which has the image's lock.
    pub(crate) image: OwnedFd,
    /// Dirty bytes.
    pub(crate) used_bytes: u64,
    /// The connection to the holder or guard.
    pub(crate) link: Link,
}

/// The connection between a server and its holder or guard. A broken connection tells them that
/// the server is gone.
#[derive(Debug)]
pub struct Link {
    socket: OwnedFd,
    /// The holder's process, if this process started it, or had it started.
    process: Option<Process>,
}

/// The answer to asking whoever listens at a socket for a region's memory.
#[derive(Debug)]
pub(crate) enum TakeOver {
    /// Nobody listens there.
    Nobody,
    /// Whoever listens there does not hold that memory.
    NotHeld,
    /// The memory was handed over.
    Held(Held),
    /// The memory is being flushed: ask again, for as long as the grace.
    Flushing {
        /// Time that the last server gave for a flush.
        grace: Duration,
        /// Dirty bytes when the flush began.
        used_bytes: u64,
    },
    /// A holder ended while it was asked: ask again.
    Unanswered,
}

/// Waits for a message on a link.
pub(super) fn answer(
    socket: &OwnedFd,
    within: Duration,
) -> Result<(Message, Vec<OwnedFd>), LinkError> {
    let timeout =
        Timespec { tv_sec: within.as_secs() as i64, tv_nsec: i64::from(within.subsec_nanos()) };
    let mut ready = [PollFd::new(socket, PollFlags::IN)];
    let count = loop {
        match poll(&mut ready, Some(&timeout)) {
            // Begins the whole wait again: signals are rare here.
            Err(Errno::INTR) => {}
            outcome => break outcome.map_err(failed("wait for an answer"))?,
        }
    };
    if count == 0 {
        return Err(LinkError::Answer(format!("nothing within {within:?}")));
    }
    receive(socket).map_err(failed("read an answer"))?.ok_or(LinkError::Closed)
}

/// Asks whoever listens at `socket`, if anybody does, for the memory of an image's region. Whoever
/// hands it over keeps to `times` from then on.
pub(crate) fn take_over(
    socket: &Path,
    times: Times,
    image: ImageFile,
) -> Result<TakeOver, LinkError> {
    match connect_to(socket)? {
        Some(socket) => ask(socket, times, image),
        None => Ok(TakeOver::Nobody),
    }
}

/// Asks as [`take_over`] does, over a connection.
fn ask(socket: OwnedFd, times: Times, image: ImageFile) -> Result<TakeOver, LinkError> {
    match send(&socket, &Message::TakeOver { times, image, layout: LIVE_LAYOUT }, &[]) {
        Ok(()) => {}
        Err(error) if is_gone(&error) => return Ok(TakeOver::Unanswered),
        Err(error) => return Err(failed("ask for the memory")(error).into()),
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
        Message::NotHeld => Ok(TakeOver::NotHeld),
        // A guard that was started again does not know that this process still waits.
        Message::Ready => Ok(TakeOver::Unanswered),
        Message::Flushing { grace_ms, used_bytes } => {
            Ok(TakeOver::Flushing { grace: Duration::from_millis(grace_ms), used_bytes })
        }
        Message::Busy { pid } => Err(LinkError::Busy { pid }),
        Message::Failed { why } => Err(LinkError::Refused { why }),
        other => Err(LinkError::Answer(format!("{other:?}"))),
    }
}

/// Whether a socket's error means that the other side ended with the message unread.
pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// Tells whoever listens at `socket` to flush the memory of an image's region now and to let it
/// go. Returns dirty bytes, bytes written to the device, and the time of the flush. `None` means
/// that nobody holds that memory there.
///
/// # Errors
/// The region is in use or being flushed, or the flush failed.
pub fn flush(socket: &Path, image: ImageFile) -> Result<Option<(u64, u64, Duration)>, LinkError> {
    let Some(socket) = connect_to(socket)? else { return Ok(None) };
    send(&socket, &Message::Flush { image }, &[]).map_err(failed("ask for a flush"))?;
    match answer(&socket, Duration::from_secs(24 * 3600))?.0 {
        Message::Flushed { dirty_bytes, device_bytes, elapsed_ns } => {
            Ok(Some((dirty_bytes, device_bytes, Duration::from_nanos(elapsed_ns))))
        }
        Message::NotHeld => Ok(None),
        Message::Busy { pid } => Err(LinkError::Busy { pid }),
        Message::Flushing { used_bytes, .. } => Err(LinkError::FlushesAlready { used_bytes }),
        Message::Failed { why } => Err(LinkError::Refused { why }),
        other => Err(LinkError::Answer(format!("{other:?}"))),
    }
}

/// Asks the guard that listens at `socket` what it holds. Returns what it says of each region, and
/// of the power.
///
/// # Errors
/// No guard listens there, or it gives no usable answer.
pub fn look(socket: &Path) -> Result<Vec<Message>, LinkError> {
    let guard = connect_to(socket)?;
    let guard = guard.ok_or_else(|| LinkError::NoGuard { path: socket.to_owned() })?;
    send(&guard, &Message::Look, &[]).map_err(failed("ask the guard"))?;
    let mut said = Vec::new();
    loop {
        match answer(&guard, ANSWER)?.0 {
            Message::Ready => return Ok(said),
            Message::Failed { why } => return Err(LinkError::Refused { why }),
            message => said.push(message),
        }
    }
}

/// Lets all servers of the guard that listens at `socket` flush at the same time, for real. Returns
/// what it says of each.
///
/// # Errors
/// No guard listens there, or it refuses.
pub fn drill(socket: &Path, fills: bool) -> Result<Vec<Message>, LinkError> {
    let guard = connect_to(socket)?;
    let guard = guard.ok_or_else(|| LinkError::NoGuard { path: socket.to_owned() })?;
    send(&guard, &Message::Drill { fills }, &[]).map_err(failed("ask the guard"))?;
    let mut said = Vec::new();
    loop {
        match answer(&guard, DRILL)?.0 {
            Message::Ready => return Ok(said),
            Message::Failed { why } => return Err(LinkError::Refused { why }),
            message => said.push(message),
        }
    }
}

impl Link {
    /// The link over a connection to a holder that another process started.
    pub(super) fn over(socket: OwnedFd) -> Self {
        Self { socket, process: None }
    }

    /// Starts a holder, with the link as its standard input, and hands it the descriptors of
    /// memory, ledger and image.
    ///
    /// Its program must hold what arrives there, as `perdura holder` does.
    pub(super) fn start(
        start: Start<'_>,
        fds: [BorrowedFd<'_>; 3],
        times: Times,
        rate_bytes_per_s: u64,
    ) -> Result<Self, LinkError> {
        let (ours, theirs) = socket_pair().map_err(failed("socket pair"))?;
        // Sent before the holder is started: the message waits in the socket, so that a holder that
        // runs gets the memory even if this process is killed at this moment.
        let hold = Message::Hold { times, rate_bytes_per_s };
        send(&ours, &hold, &fds).map_err(failed("hand memory to the holder"))?;
        let process = start.start(theirs)?;
        let error = match answer(&ours, ANSWER) {
            Ok((Message::Ready, _)) => return Ok(Self { socket: ours, process }),
            Ok((Message::Failed { why }, _)) => LinkError::Answer(why),
            Ok((other, _)) => LinkError::Answer(format!("{other:?}")),
            Err(error) => error,
        };
        // A hung holder that went on later would take this process for dead: it would flush at a
        // warning beside this process, and offer its memory to the next server.
        if let Some(mut process) = process {
            process.kill();
            process.wait();
        }
        Err(error)
    }

    /// Hands the descriptors of memory, ledger and image to the guard that listens at `socket`.
    pub(crate) fn join(
        socket: &Path,
        fds: [BorrowedFd<'_>; 3],
        times: Times,
        rate_bytes_per_s: u64,
    ) -> Result<Self, LinkError> {
        let guard = connect_to(socket)?;
        let guard = guard.ok_or_else(|| LinkError::NoGuard { path: socket.to_owned() })?;
        let hold = Message::Hold { times, rate_bytes_per_s };
        send(&guard, &hold, &fds).map_err(failed("hand memory to the guard"))?;
        match answer(&guard, ANSWER)? {
            (Message::Ready, _) => Ok(Self::over(guard)),
            (Message::Failed { why }, _) => Err(LinkError::Refused { why }),
            (Message::Later { why }, _) => Err(LinkError::Later { why }),
            (other, _) => Err(LinkError::Answer(format!("{other:?}"))),
        }
    }

    /// Asks the guard for a share for the region that it has handed over.
    pub(super) fn claim(&self, rate_bytes_per_s: u64) -> Result<(), LinkError> {
        let claim = Message::Claim { rate_bytes_per_s };
        Ok(send(&self.socket, &claim, &[]).map_err(failed("claim a share"))?)
    }

    /// What a guard says on the link, which is readable; `None`: its end, or nothing that could be
    /// relied on.
    pub(super) fn hear(&self) -> Option<Message> {
        let (message, _) = receive(&self.socket).ok().flatten()?;
        if let Message::Unknown { text } = message {
            tracing::error!(text, "whoever holds the memory says what this version does not know");
            return None;
        }
        Some(message)
    }

    /// Tells the holder or guard that everything is on the SSD, so that it lets the memory go, and
    /// waits until it has: at most 10 s where this process did not start it. A holder that ended
    /// earlier, for example by a crash, is no error.
    pub(crate) fn goodbye(self) -> Result<(), LinkError> {
        match send(&self.socket, &Message::Goodbye, &[]) {
            Ok(()) => loop {
                match answer(&self.socket, ANSWER) {
                    // A guard may have said something before it read the goodbye.
                    Ok((
                        Message::Warning { .. } | Message::Share { .. } | Message::Drill { .. },
                        _,
                    )) => {}
                    Err(LinkError::Io { source, .. }) if is_gone(&source) => break,
                    Err(LinkError::Answer(_) | LinkError::Closed) | Ok(_) => break,
                    Err(error) => return Err(error),
                }
            },
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(failed("say goodbye")(error).into()),
        }
        self.reap();
        Ok(())
    }

    /// Waits for the end of a holder that this process started, so that it leaves no zombie. The
    /// holder has closed its end of the link and is about to end.
    pub(crate) fn reap(self) {
        if let Some(mut process) = self.process {
            process.wait();
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
    use std::process::{Command, Stdio};

    use super::*;

    const IMAGE: ImageFile = ImageFile { dev: 1, ino: 2 };

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
        assert!(matches!(ask(ours, times, IMAGE), Ok(TakeOver::Unanswered)));
        for reads in [false, true] {
            let (ours, theirs) = socket_pair().unwrap();
            let asked = std::thread::scope(|scope| {
                let asked = scope.spawn(|| ask(ours, times, IMAGE));
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
            let link = Link { socket: ours, process: Some(Process::Child(child)) };
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
        let error = Link::start(Start::Here(program), fds, times, 1).unwrap_err();
        let LinkError::Answer(said) = error else { panic!("{error}") };
        let pid = said.split('"').nth(1).unwrap();
        assert!(pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists(), "{said}");
    }
}
