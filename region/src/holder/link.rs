//! The server's side: start a holder, or take over what one holds.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, socketpair,
    sockopt,
};

use super::times::Times;
use super::wire::{Message, SOCKET_NAME, receive, send};

/// A holder answers within this time, or is taken for hung.
const ANSWER: Duration = Duration::from_secs(10);

/// Why no holder could be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// Another server uses the directory.
    #[error("process {pid} is using this directory")]
    Busy {
        /// That server.
        pid: i32,
    },
    /// The holder closed the connection without an answer.
    #[error("the holder closed the connection")]
    Closed,
    /// A flush was asked for while one is under way.
    #[error("the holder is flushing {used_bytes} bytes already, and ends when they are on the SSD")]
    FlushesAlready {
        /// Bytes dirty when it began.
        used_bytes: u64,
    },
    /// The holder said something else than expected, or nothing.
    #[error("the holder gave no usable answer: {0}")]
    Answer(String),
}

/// What a holder keeps.
#[derive(Debug)]
pub struct Held {
    /// The region's memory.
    pub memory: OwnedFd,
    /// Its ledger.
    pub ledger: OwnedFd,
    /// Its image: the same open file, with its lock.
    pub image: OwnedFd,
    /// Budget in force, bytes.
    pub budget_bytes: u64,
    /// Dirty bytes.
    pub used_bytes: u64,
    /// The connection to the holder.
    pub link: Link,
}

/// The connection between a server and its holder. The holder notices when it breaks.
#[derive(Debug)]
pub struct Link {
    socket: OwnedFd,
    /// The holder's process, if we started it.
    child: Option<Child>,
}

/// What was found in a directory.
#[derive(Debug)]
pub enum TakeOver {
    /// No holder: whatever the image says is all there is.
    Nobody,
    /// A holder whose server is gone.
    Held(Held),
    /// A holder in the middle of its flush: ask again, for as long as its grace.
    Flushing {
        /// Time that the holder was told it has.
        grace: Duration,
        /// Bytes that were dirty when it began.
        used_bytes: u64,
    },
    /// A holder that ended, or did not get round to answering, while it was asked: ask again.
    Unanswered,
}

fn io_error(what: impl Into<String>) -> impl FnOnce(rustix::io::Errno) -> LinkError {
    move |errno| LinkError::Io { what: what.into(), source: errno.into() }
}

pub(super) fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// The address of a directory's holder. Long paths do not fit a socket address: the directory is
/// opened and named through /proc.
pub(super) fn address(dir: &Path) -> Result<(SocketAddrUnix, OwnedFd), LinkError> {
    let fd = rustix::fs::open(
        dir,
        rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )
    .map_err(io_error(format!("open {}", dir.display())))?;
    use std::os::fd::AsRawFd;
    let path = PathBuf::from(format!("/proc/self/fd/{}/{SOCKET_NAME}", fd.as_raw_fd()));
    let address = SocketAddrUnix::new(path).map_err(io_error("socket address"))?;
    Ok((address, fd))
}

fn dial(dir: &Path) -> Result<Option<OwnedFd>, LinkError> {
    let (address, _dir) = address(dir)?;
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(io_error("socket"))?;
    // A holder that accepts nobody, behind a full queue, must not be waited for without end.
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(ANSWER))
        .map_err(io_error("socket timeout"))?;
    match connect(&socket, &address) {
        Ok(()) => Ok(Some(socket)),
        Err(rustix::io::Errno::AGAIN) => {
            Err(LinkError::Answer(format!("it accepts no connection within {ANSWER:?}")))
        }
        // A socket file whose holder is gone, or none at all.
        Err(rustix::io::Errno::CONNREFUSED | rustix::io::Errno::NOENT) => Ok(None),
        Err(errno) => {
            Err(io_error(format!("connect to {}", dir.join(SOCKET_NAME).display()))(errno))
        }
    }
}

fn answer(socket: &OwnedFd, within: Duration) -> Result<(Message, Vec<OwnedFd>), LinkError> {
    let timeout = rustix::event::Timespec {
        tv_sec: within.as_secs() as i64,
        tv_nsec: i64::from(within.subsec_nanos()),
    };
    let mut ready = [PollFd::new(socket, PollFlags::IN)];
    let count = loop {
        match poll(&mut ready, Some(&timeout)) {
            // Waits anew; signals are rare here.
            Err(rustix::io::Errno::INTR) => {}
            outcome => break outcome.map_err(io_error("wait for the holder"))?,
        }
    };
    if count == 0 {
        return Err(LinkError::Answer(format!("nothing within {within:?}")));
    }
    receive(socket)
        .map_err(|source| LinkError::Io { what: "read from the holder".into(), source })?
        .ok_or(LinkError::Closed)
}

/// Asks the directory's holder, if there is one, for what it holds; it keeps to `times` from then
/// on.
pub fn take_over(dir: &Path, times: Times) -> Result<TakeOver, LinkError> {
    let Some(socket) = dial(dir)? else { return Ok(TakeOver::Nobody) };
    match send(&socket, &Message::TakeOver { times }, &[]) {
        Ok(()) => {}
        Err(error) if is_gone(&error) => return Ok(TakeOver::Unanswered),
        Err(source) => return Err(LinkError::Io { what: "write to the holder".into(), source }),
    }
    let (message, fds) = match answer(&socket, ANSWER) {
        Ok(answer) => answer,
        Err(LinkError::Closed) => return Ok(TakeOver::Unanswered),
        Err(LinkError::Io { source, .. }) if is_gone(&source) => return Ok(TakeOver::Unanswered),
        Err(error) => return Err(error),
    };
    match message {
        Message::Held { budget_bytes, used_bytes } => {
            let [memory, ledger, image] = <[OwnedFd; 3]>::try_from(fds).map_err(|fds| {
                LinkError::Answer(format!("{} descriptors, expected 3", fds.len()))
            })?;
            let link = Link { socket, child: None };
            Ok(TakeOver::Held(Held { memory, ledger, image, budget_bytes, used_bytes, link }))
        }
        Message::Flushing { grace_ms, used_bytes } => {
            Ok(TakeOver::Flushing { grace: Duration::from_millis(grace_ms), used_bytes })
        }
        Message::Busy { pid } => Err(LinkError::Busy { pid }),
        other => Err(LinkError::Answer(format!("{other:?}"))),
    }
}

/// The other side ended with our message unread.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// Tells the directory's holder to flush now. `None`: there is no holder.
pub fn flush(dir: &Path) -> Result<Option<(u64, u64, Duration)>, LinkError> {
    let Some(socket) = dial(dir)? else { return Ok(None) };
    send(&socket, &Message::Flush, &[])
        .map_err(|source| LinkError::Io { what: "write to the holder".into(), source })?;
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
    /// Starts `program` as a holder (its standard input is the link) and hands it the descriptors.
    ///
    /// `program` must call [`super::serve`]; `perdura holder` does.
    pub fn start(
        mut program: Command,
        fds: [BorrowedFd<'_>; 3],
        times: Times,
        unix_ms: u64,
    ) -> Result<Self, LinkError> {
        let failed = |what: &str| {
            let what = what.to_owned();
            move |source| LinkError::Io { what, source }
        };
        let (ours, theirs) = socket_pair().map_err(failed("socket pair"))?;
        // Before there is a holder: the message waits in the socket, so a holder that runs has the
        // memory, even if this process is killed at this moment.
        send(&ours, &Message::Hold { times, unix_ms }, &fds)
            .map_err(failed("hand memory to the holder"))?;
        program.stdin(Stdio::from(theirs));
        let mut child = program.spawn().map_err(failed("start the holder"))?;
        // Our copy of its end must go, or a holder that dies would not be noticed.
        drop(program);
        let error = match answer(&ours, ANSWER) {
            Ok((Message::Ready, _)) => return Ok(Self { socket: ours, child: Some(child) }),
            Ok((Message::Failed { why }, _)) => LinkError::Answer(why),
            Ok((other, _)) => LinkError::Answer(format!("{other:?}")),
            Err(error) => error,
        };
        // We hold what it holds. One that came round to it later would take us for dead: it would
        // flush beside us at a warning, and offer to the next server what we have done with.
        let _ = child.kill();
        let _ = child.wait();
        Err(error)
    }

    /// Everything is on the SSD: the holder may go, and does before this returns.
    pub fn goodbye(self) -> Result<(), LinkError> {
        send(&self.socket, &Message::Goodbye, &[])
            .map_err(|source| LinkError::Io { what: "say goodbye to the holder".into(), source })?;
        match answer(&self.socket, ANSWER) {
            Err(LinkError::Answer(_) | LinkError::Closed) | Ok(_) => {}
            Err(error) => return Err(error),
        }
        self.reap();
        Ok(())
    }

    /// Collects a holder of ours that has ended, so that it leaves no zombie.
    pub fn reap(self) {
        if let Some(mut child) = self.child {
            // It has closed its end of the link and ends by itself; its status says nothing new.
            let _ = child.wait();
        }
    }

    /// The link, to be watched: it becomes readable when the holder is gone.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_that_gives_no_usable_answer_is_ended() {
        let mut program = Command::new("sh");
        // Its standard input is the link.
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
