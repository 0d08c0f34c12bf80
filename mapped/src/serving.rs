//! The socket at which programs ask: a thread for each of them.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

use perdura_region::Guest;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
    listen, recvmsg, sendmsg, socket_with,
};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, kill_process};

use crate::error::MappedError;
use crate::host::Host;
use crate::wire::{ASK_WORDS, Ask};

/// Time until a program is accepted again after that has failed.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// Programs that wait to be accepted.
const BACKLOG: i32 = 128;
/// Time in which a program that has closed its link must have ended, or be another.
const ENDS_WITHIN_S: i64 = 10;

/// A host whose socket is open. Threads go on as long as there are programs.
pub struct Serving {
    programs: Arc<Programs>,
}

/// The programs that are connected.
#[derive(Default)]
struct Programs {
    count: AtomicUsize,
    /// Those that have come, also if they have gone since: their links tell.
    known: Mutex<Known>,
    gone: Mutex<()>,
    left: Condvar,
}

#[derive(Default)]
struct Known {
    programs: Vec<(Pid, Weak<OwnedFd>)>,
    /// Whoever comes now is killed, too.
    is_over: bool,
}

impl Serving {
    /// Serves programs that connect at `path`.
    ///
    /// # Errors
    /// The path cannot be used, or the system starts no thread.
    pub fn start(host: Arc<Host>, path: &Path) -> Result<Self, MappedError> {
        let failed = |errno: Errno| MappedError::File {
            what: "listen at",
            path: path.to_owned(),
            source: errno.into(),
        };
        let kind = SocketType::SEQPACKET;
        let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
        let socket = socket.map_err(failed)?;
        bind(&socket, &SocketAddrUnix::new(path).map_err(failed)?).map_err(failed)?;
        listen(&socket, BACKLOG).map_err(failed)?;
        let programs = Arc::new(Programs::default());
        let of_thread = Arc::clone(&programs);
        let accept = move || {
            loop {
                let link = match accept_with(&socket, SocketFlags::CLOEXEC) {
                    Ok(link) => link,
                    Err(error) => {
                        // Descriptors or memory are short. The program waits meanwhile.
                        tracing::error!(%error, "a program cannot connect");
                        std::thread::sleep(ACCEPT_AGAIN);
                        continue;
                    }
                };
                of_thread.count.fetch_add(1, Ordering::SeqCst);
                let link = Arc::new(link);
                of_thread.note(&link);
                let (host, programs) = (Arc::clone(&host), Arc::clone(&of_thread));
                let leaving = Leaving(programs);
                let serve = move || {
                    let _leaving = leaving;
                    serve_program(&host, &link);
                };
                let started =
                    std::thread::Builder::new().name("perdura-program".into()).spawn(serve);
                if let Err(error) = started {
                    tracing::error!(%error, "a program cannot be served");
                }
            }
        };
        std::thread::Builder::new()
            .name("perdura-accept".into())
            .spawn(accept)
            .map_err(|source| MappedError::System { what: "start a thread", source })?;
        Ok(Self { programs })
    }

    /// Kills all programs that are connected: their memory is closed, and they would wait for ever.
    pub fn kill(&self) {
        let mut known = self.programs.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.is_over = true;
        for (pid, link) in &known.programs {
            if link.strong_count() > 0 {
                // It may have ended.
                let _ = kill_process(*pid, Signal::KILL);
            }
        }
    }

    /// Waits until every program has gone.
    pub fn wait(&self) {
        let mut gone = self.programs.gone.lock().unwrap_or_else(PoisonError::into_inner);
        while self.programs.count.load(Ordering::SeqCst) > 0 {
            gone = self.programs.left.wait(gone).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Programs {
    /// Notes who has connected.
    fn note(&self, link: &Arc<OwnedFd>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.programs.retain(|(_, link)| link.strong_count() > 0);
        let Ok(peer) = rustix::net::sockopt::socket_peercred(link) else { return };
        if known.is_over {
            let _ = kill_process(peer.pid, Signal::KILL);
        }
        known.programs.push((peer.pid, Arc::downgrade(link)));
    }

    fn leave(&self) {
        let _gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        self.count.fetch_sub(1, Ordering::SeqCst);
        self.left.notify_all();
    }
}

/// A program leaves when this is dropped: also if nobody serves it, or its thread panics, or the
/// run would wait for it for ever.
struct Leaving(Arc<Programs>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Answers one program until it goes.
fn serve_program(host: &Host, link: &OwnedFd) {
    let mut guest = None;
    // The program is killed when the other end is closed: by the end of this function, or of this
    // process. It has given its tracking up, or nobody serves its faults any more.
    let Ok((alive, kept)) = pipe_with(PipeFlags::CLOEXEC) else { return };
    converse(host, link, &mut guest, &alive);
    // The program's end is the same open file, which would send the signal as long as this copy is
    // open, whatever that process executes by then.
    drop(alive);
    // One that executes another program has closed its link and is closing its end of the pipe: it
    // is tracked until then, and must not be killed on its way.
    let within = Timespec { tv_sec: ENDS_WITHIN_S, tv_nsec: 0 };
    let mut ends = [PollFd::new(&kept, PollFlags::empty())];
    while let Err(Errno::INTR) = poll(&mut ends, Some(&within)) {}
}

/// Answers one program until it has closed its link.
fn converse(host: &Host, link: &OwnedFd, guest: &mut Option<Guest>, alive: &OwnedFd) {
    let mut said = String::new();
    loop {
        let Ok(Some((words, fd))) = receive(link) else { return };
        let answered = match Ask::decode(&words) {
            Some(ask) => answer(host, guest, alive, ask, fd),
            None => Err(MappedError::Strange("an unknown request")),
        };
        let failed;
        let (words, fds) = match &answered {
            Ok((words, fds)) => (words.as_slice(), fds.as_slice()),
            Err(error) => {
                let text = error.to_string();
                if said != text {
                    // Once: a program that asks again and again would fill the log.
                    tracing::error!(%error, "a program asked in vain");
                    said = text;
                }
                failed = [error.errno().raw_os_error() as u64];
                (&failed[..], &[][..])
            }
        };
        if send(link, words, fds).is_err() {
            return;
        }
    }
}

type Answer<'h> = (Vec<u64>, Vec<BorrowedFd<'h>>);

/// The first number of an answer is 0.
fn answer<'h>(
    host: &'h Host,
    guest: &mut Option<Guest>,
    alive: &'h OwnedFd,
    ask: Ask,
    fd: Option<OwnedFd>,
) -> Result<Answer<'h>, MappedError> {
    let needs_fd = fd.ok_or(MappedError::Strange("no descriptor"));
    let needs_guest = || guest.as_ref().ok_or(MappedError::Strange("no greeting"));
    let mut words = vec![0];
    let mut fds = Vec::new();
    match ask {
        Ask::Hello => {
            *guest = Some(host.region().admit_guest(needs_fd?)?);
            fds.extend(host.for_guests());
            fds.push(alive.as_fd());
        }
        Ask::Serve => words.push(host.serve(needs_fd?)?),
        Ask::Pieces { file, len } => {
            let pieces = host.pieces(file, len)?;
            words.extend(pieces.into_iter().flat_map(|(offset, len)| [offset, len]));
        }
        Ask::Track { address, offset, len } => {
            needs_guest()?.map(address as usize, offset, len)?;
        }
        Ask::Untrack { address, len } => needs_guest()?.unmap(address as usize, len),
        Ask::Length { file, len } => host.set_len(file, len)?,
        Ask::Changed { device, inode } => host.look_at_len((device, inode))?,
        Ask::Renamed => host.find_names()?,
        Ask::Checkpoint => host.region().checkpoint()?,
    }
    Ok((words, fds))
}

/// The numbers of a request, and its descriptor.
type Request = (Vec<u64>, Option<OwnedFd>);

/// The next request; `None`: the program has gone.
fn receive(link: &OwnedFd) -> Result<Option<Request>, Errno> {
    let mut bytes = [0; ASK_WORDS * 8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = loop {
        let part = [std::io::IoSliceMut::new(&mut bytes)];
        match recvmsg(link, &mut { part }, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            outcome => break outcome?.bytes,
        }
    };
    let mut fd = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            fd = fds.into_iter().next();
        }
    }
    if got == 0 {
        return Ok(None);
    }
    let word = |chunk: &[u8]| chunk.try_into().map(u64::from_ne_bytes).unwrap_or_default();
    Ok(Some((bytes[..got].chunks_exact(8).map(word).collect(), fd)))
}

fn send(link: &OwnedFd, words: &[u64], fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    let part = [std::io::IoSlice::new(&bytes)];
    sendmsg(link.as_fd(), &part, &mut control, SendFlags::NOSIGNAL).map(drop)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test's own failure
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use perdura_media::sim::SimDevice;
    use rustix::net::sockopt::{Timeout, set_socket_timeout};

    use super::*;
    use crate::testing::region_on;

    /// Has the path of the socket in the process that connects, which is this test again.
    const CONNECTS: &str = "PERDURA_TEST_CONNECTS";

    #[test]
    fn who_connects_after_all_were_killed_is_killed_too_and_nobody_is_waited_for() {
        if let Some(path) = std::env::var_os(CONNECTS) {
            let kind = SocketType::SEQPACKET;
            let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
            let socket = socket.unwrap();
            let address = SocketAddrUnix::new(Path::new(&path)).unwrap();
            rustix::net::connect(&socket, &address).unwrap();
            // It is killed long before.
            let patience = Some(Duration::from_secs(10));
            set_socket_timeout(&socket, Timeout::Recv, patience).unwrap();
            assert!(receive(&socket).is_ok());
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let host = Host::new(region_on(&SimDevice::new(0, 0)), dir.path().to_owned()).unwrap();
        let path = dir.path().join("socket");
        let serving = Serving::start(Arc::new(host), &path).unwrap();
        serving.kill();
        let name = "serving::tests::who_connects_after_all_were_killed_is_killed_too_and_nobody_\
                    is_waited_for";
        let mut again = Command::new(std::env::current_exe().unwrap());
        let output = again.args(["--exact", name]).env(CONNECTS, &path).output().unwrap();
        assert_eq!(output.status.signal(), Some(9), "{output:?}");
        serving.wait();
    }
}
