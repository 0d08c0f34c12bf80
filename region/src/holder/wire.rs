//! Messages between server and holder: one line of text, sometimes with three descriptors.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::times::Times;

/// Longest message, bytes; a longer one is cut off.
const MESSAGE_MAX_BYTES: usize = 512;
/// Most descriptors that a message carries: of memory, ledger and image.
const FDS_MAX: usize = 3;

/// A message between server and holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Message {
    /// From a server to its new holder, with descriptors: keep these.
    Hold { times: Times, unix_ms: u64 },
    /// From a starting server: hand over what you hold, and keep to these times from now on.
    TakeOver { times: Times },
    /// Answer with descriptors: this connection is the link from now on.
    Held { used_bytes: u64 },
    /// Answer: another server is linked.
    Busy { pid: i32 },
    /// Answer: a flush is under way, and takes no longer than the grace.
    Flushing { grace_ms: u64, used_bytes: u64 },
    /// From the server: everything is on the SSD, so the holder may end.
    Goodbye,
    /// From an operator: flush now.
    Flush,
    /// Answer: everything is on the SSD.
    Flushed { dirty_bytes: u64, device_bytes: u64, elapsed_ns: u64 },
    /// Answer: the request failed.
    Failed { why: String },
    /// From a new holder: the memory is held.
    Ready,
}

impl Message {
    fn encode(&self) -> String {
        match self {
            Self::Hold { times, unix_ms } => format!("hold {} {unix_ms}", times.encode()),
            Self::TakeOver { times } => format!("take-over {}", times.encode()),
            Self::Held { used_bytes } => format!("held {used_bytes}"),
            Self::Busy { pid } => format!("busy {pid}"),
            Self::Flushing { grace_ms, used_bytes } => format!("flushing {grace_ms} {used_bytes}"),
            Self::Goodbye => "goodbye".into(),
            Self::Flush => "flush".into(),
            Self::Flushed { dirty_bytes, device_bytes, elapsed_ns } => {
                format!("flushed {dirty_bytes} {device_bytes} {elapsed_ns}")
            }
            Self::Failed { why } => format!("failed {}", why.replace('\n', " ")),
            Self::Ready => "ready".into(),
        }
    }

    fn decode(text: &str) -> Option<Self> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let mut numbers = rest.split(' ').map(str::parse::<u64>);
        let mut next = || numbers.next().and_then(Result::ok);
        Some(match word {
            "hold" => Self::Hold { times: Times::decode(next()?, next()?), unix_ms: next()? },
            "take-over" => Self::TakeOver { times: Times::decode(next()?, next()?) },
            "held" => Self::Held { used_bytes: next()? },
            "busy" => Self::Busy { pid: rest.parse().ok()? },
            "goodbye" => Self::Goodbye,
            "flushing" => Self::Flushing { grace_ms: next()?, used_bytes: next()? },
            "flush" => Self::Flush,
            "flushed" => {
                Self::Flushed { dirty_bytes: next()?, device_bytes: next()?, elapsed_ns: next()? }
            }
            "failed" => Self::Failed { why: rest.to_owned() },
            "ready" => Self::Ready,
            _ => return None,
        })
    }
}

/// Sends a message in one piece, because the sockets keep message boundaries.
pub(super) fn send(socket: impl AsFd, message: &Message, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let text = message.encode();
    let bytes = &text.as_bytes()[..text.len().min(MESSAGE_MAX_BYTES)];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(
            control.push(SendAncillaryMessage::ScmRights(fds)),
            "too many descriptors in a message"
        );
    }
    loop {
        match sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::INTR) => {}
            outcome => return outcome.map(drop).map_err(io::Error::from),
        }
    }
}

/// Receives a message; `None` means that the other side is gone.
pub(super) fn receive(socket: impl AsFd) -> io::Result<Option<(Message, Vec<OwnedFd>)>> {
    let mut bytes = [0; MESSAGE_MAX_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut slices = [IoSliceMut::new(&mut bytes)];
        match recvmsg(&socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            outcome => break outcome?.bytes,
        }
    };
    let fds = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        })
        .flatten()
        .collect();
    if received == 0 {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&bytes[..received]);
    match Message::decode(&text) {
        Some(message) => Ok(Some((message, fds))),
        None => {
            Err(io::Error::new(io::ErrorKind::InvalidData, format!("unknown message {text:?}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::socket::socket_pair;
    use super::*;

    #[test]
    fn every_message_survives_the_wire() {
        let (a, b) = socket_pair().unwrap();
        let seconds = std::time::Duration::from_secs;
        let messages = [
            Message::Hold {
                times: Times { grace: seconds(30), wait: Some(seconds(600)) },
                unix_ms: 5,
            },
            Message::TakeOver { times: Times { grace: seconds(7), wait: None } },
            Message::Flushing { grace_ms: 7_000, used_bytes: 4_096 },
            Message::Held { used_bytes: 2 },
            Message::Busy { pid: 77 },
            Message::Goodbye,
            Message::Flush,
            Message::Flushed { dirty_bytes: 1, device_bytes: 2, elapsed_ns: 3 },
            Message::Failed { why: "no space left: write".into() },
            Message::Ready,
        ];
        for message in messages {
            let fd = a.as_fd();
            send(&a, &message, &[fd]).unwrap();
            let (back, fds) = receive(&b).unwrap().unwrap();
            assert_eq!(back, message);
            assert_eq!(fds.len(), 1);
        }
        drop(a);
        assert!(receive(&b).unwrap().is_none());
    }
}
