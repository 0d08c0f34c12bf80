//! Messages between a server and whoever holds its memory, a holder or a guard: one line of text,
//! sometimes with descriptors.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, StatxFlags, makedev, statx};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::times::Times;

/// Longest message, bytes; a longer one is cut off.
const MESSAGE_MAX_BYTES: usize = 4608;
/// Characters that are kept of what is no message.
const UNKNOWN_MAX_CHARS: usize = 100;
/// Most descriptors that a message carries: of memory, ledger, image and link.
pub const FDS_MAX: usize = 4;

/// The file of an image, by which its directory is known to one who holds the memory of many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ImageFile {
    /// Number of the device that the file lies on.
    pub dev: u64,
    /// Number of the file on its device.
    pub ino: u64,
}

impl ImageFile {
    /// The file of an open descriptor.
    ///
    /// Asks no file system that is far away, or in user space: who holds the memory of many waits
    /// for nobody's.
    pub fn of(image: impl AsFd) -> io::Result<Self> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let found = statx(image, "", flags, StatxFlags::INO)?;
        Ok(Self { dev: makedev(found.stx_dev_major, found.stx_dev_minor), ino: found.stx_ino })
    }

    /// The file at a path; `None` if there is none.
    pub fn at(path: &Path) -> io::Result<Option<Self>> {
        match rustix::fs::stat(path) {
            Ok(stat) => Ok(Some(Self { dev: stat.st_dev, ino: stat.st_ino })),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// A message between a server and whoever holds its memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// From a server, with descriptors of memory, ledger and image: keep these.
    Hold {
        /// The times to keep to.
        times: Times,
        /// Proven flush rate of the region, bytes per second.
        rate_bytes_per_s: u64,
    },
    /// From a starting server: hand over what you hold.
    TakeOver {
        /// The times to keep to from now on.
        times: Times,
        /// The image of the directory that is being opened.
        image: ImageFile,
        /// Version of live memory's layout that the server uses. Memory of another is flushed
        /// instead: the image is read by every later version.
        layout: u64,
    },
    /// Answer with descriptors of memory, ledger and image: this connection is the link from now
    /// on.
    Held {
        /// Dirty bytes.
        used_bytes: u64,
    },
    /// Answer: no memory of that image is held here.
    NotHeld,
    /// Answer: another server is linked.
    Busy {
        /// Process id of the other server.
        pid: i32,
    },
    /// Answer: a flush is under way, and takes no longer than the grace.
    Flushing {
        /// The grace, milliseconds.
        grace_ms: u64,
        /// Dirty bytes when the flush began.
        used_bytes: u64,
    },
    /// From the server: everything is on the SSD, so the memory may go.
    Goodbye,
    /// From an operator: flush now.
    Flush {
        /// The image of the directory to flush.
        image: ImageFile,
    },
    /// Answer: everything is on the SSD.
    Flushed {
        /// Bytes that were dirty.
        dirty_bytes: u64,
        /// Bytes written to the device.
        device_bytes: u64,
        /// Time of the flush, nanoseconds.
        elapsed_ns: u64,
    },
    /// From a server on the link, once it has opened the region that it took over: this is its
    /// flush rate, so tell its share of the battery.
    Claim {
        /// Proven flush rate of the region, bytes per second.
        rate_bytes_per_s: u64,
    },
    /// From a guard on the link: flush time that the region may have dirty from now on.
    Share {
        /// Number of the order, which the answer repeats.
        serial: u64,
        /// The share, microseconds; `u64::MAX`: no battery is shared.
        share_us: u64,
    },
    /// From a server on the link: what is dirty fits the share of this order.
    Kept {
        /// Number of the order.
        serial: u64,
    },
    /// From an operator to a guard, and from the guard to every server: flush for real, now, and go
    /// on.
    Drill {
        /// Whether to fill the budget first.
        fills: bool,
    },
    /// From a server: the outcome of a drill. The guard passes it on to the operator.
    Drilled {
        /// Bytes that were dirty.
        used_bytes: u64,
        /// Budget in force, bytes.
        budget_bytes: u64,
        /// Bytes written to the device.
        device_bytes: u64,
        /// Time of the flush, nanoseconds.
        elapsed_ns: u64,
        /// Path of the image, for people; a server need not fill it in.
        image: String,
    },
    /// From a guard to the operator: a server has not drilled.
    NotDrilled {
        /// The server and the reason, for people.
        why: String,
    },
    /// Answer: the time that a new region needs is lent to others and being taken back. Ask again.
    Later {
        /// The reason, for people.
        why: String,
    },
    /// Answer: the request failed.
    Failed {
        /// The reason, for people.
        why: String,
    },
    /// The memory is held; or, from a guard's parent, everything that was kept has been said.
    Ready,
    /// From a guard on the link: what its sources of warnings say now.
    Warning {
        /// The reading, in the form in which guard and server exchange readings.
        reading: String,
    },
    /// From a server to the process that starts holders for it, with the holder's end of a link.
    Start,
    /// From an operator to a guard: what do you hold?
    Look,
    /// Answer to [`Message::Look`], one for each region.
    Region {
        /// User id of the owner.
        owner: u32,
        /// Process id of the linked server; 0: it is gone.
        pid: i32,
        /// Whether the memory is being flushed.
        is_flushing: bool,
        /// Dirty bytes.
        used_bytes: u64,
        /// Bytes that may be dirty.
        budget_bytes: u64,
        /// The owner's times.
        times: Times,
        /// Proven flush rate, bytes per second; 0: not known.
        rate_bytes_per_s: u64,
        /// Its share of the battery, microseconds; `u64::MAX`: no battery is shared.
        share_us: u64,
        /// Path of the image, for people.
        image: String,
    },
    /// Answer to [`Message::Look`] of a guard whose servers share a battery.
    Battery {
        /// Flush time of the battery, microseconds.
        total_us: u64,
        /// By how much the shares in force are longer than that, microseconds.
        debt_us: u64,
        /// Flush time of everything that is dirty, microseconds.
        dirty_us: u64,
        /// The longest that was, since the guard began, microseconds.
        worst_us: u64,
    },
    /// Between a guard and its parent, with descriptors of memory, ledger and image, unless they
    /// are kept already, and of the link if there is one: keep these for the guard, in the place
    /// of what was said of this image before.
    Keep {
        /// The image.
        image: ImageFile,
        /// Whether its tenant's programs are trusted.
        is_trusted: bool,
        /// User id of the region's owner.
        owner: u32,
        /// The owner's times.
        times: Times,
        /// Process id of the linked server, or of the last one.
        pid: i32,
        /// When that process started, in clock ticks since the boot; 0: not known.
        started: u64,
        /// Proven flush rate, bytes per second; 0: not known.
        rate_bytes_per_s: u64,
        /// What the server may have dirty, as flush time in microseconds.
        granted_us: u64,
    },
    /// From a guard to its parent: the memory of this image is let go.
    Forget {
        /// The image.
        image: ImageFile,
    },
    /// What arrived is no message that this version knows, or descriptors are missing. The other
    /// side is there all the same.
    Unknown {
        /// What arrived.
        text: String,
    },
}

impl Message {
    fn encode(&self) -> String {
        match self {
            Self::Hold { times, rate_bytes_per_s } => {
                format!("hold {} {rate_bytes_per_s}", times.encode())
            }
            Self::TakeOver { times, image, layout } => {
                format!("take-over {} {} {layout}", times.encode(), image.encode())
            }
            Self::Held { used_bytes } => format!("held {used_bytes}"),
            Self::NotHeld => "not-held".into(),
            Self::Busy { pid } => format!("busy {pid}"),
            Self::Flushing { grace_ms, used_bytes } => format!("flushing {grace_ms} {used_bytes}"),
            Self::Goodbye => "goodbye".into(),
            Self::Flush { image } => format!("flush {}", image.encode()),
            Self::Flushed { dirty_bytes, device_bytes, elapsed_ns } => {
                format!("flushed {dirty_bytes} {device_bytes} {elapsed_ns}")
            }
            Self::Claim { rate_bytes_per_s } => format!("claim {rate_bytes_per_s}"),
            Self::Share { serial, share_us } => format!("share {serial} {share_us}"),
            Self::Kept { serial } => format!("kept {serial}"),
            Self::Drill { fills } => format!("drill {}", u8::from(*fills)),
            Self::Drilled { used_bytes, budget_bytes, device_bytes, elapsed_ns, image } => {
                let image = image.replace('\n', " ");
                format!("drilled {used_bytes} {budget_bytes} {device_bytes} {elapsed_ns} {image}")
            }
            Self::NotDrilled { why } => format!("not-drilled {}", why.replace('\n', " ")),
            Self::Later { why } => format!("later {}", why.replace('\n', " ")),
            Self::Battery { total_us, debt_us, dirty_us, worst_us } => {
                format!("battery {total_us} {debt_us} {dirty_us} {worst_us}")
            }
            Self::Failed { why } => format!("failed {}", why.replace('\n', " ")),
            Self::Ready => "ready".into(),
            Self::Warning { reading } => format!("warning {}", reading.replace('\n', " ")),
            Self::Start => "start".into(),
            Self::Look => "look".into(),
            Self::Region {
                owner,
                pid,
                is_flushing,
                used_bytes,
                budget_bytes,
                times,
                rate_bytes_per_s,
                share_us,
                image,
            } => {
                let (flushing, times) = (u8::from(*is_flushing), times.encode());
                let image = image.replace('\n', " ");
                format!(
                    "region {owner} {pid} {flushing} {used_bytes} {budget_bytes} {times} \
                     {rate_bytes_per_s} {share_us} {image}"
                )
            }
            Self::Keep {
                image,
                is_trusted,
                owner,
                times,
                pid,
                started,
                rate_bytes_per_s,
                granted_us,
            } => {
                let (image, trusted, times) =
                    (image.encode(), u8::from(*is_trusted), times.encode());
                format!(
                    "keep {image} {trusted} {owner} {times} {pid} {started} {rate_bytes_per_s} \
                     {granted_us}"
                )
            }
            Self::Forget { image } => format!("forget {}", image.encode()),
            Self::Unknown { text } => text.clone(),
        }
    }

    fn decode(text: &str) -> Option<Self> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let mut numbers = rest.split(' ').map(str::parse::<u64>);
        let mut next = || numbers.next().and_then(Result::ok);
        Some(match word {
            "hold" => {
                Self::Hold { times: Times::decode(next()?, next()?), rate_bytes_per_s: next()? }
            }
            "take-over" => Self::TakeOver {
                times: Times::decode(next()?, next()?),
                image: ImageFile { dev: next()?, ino: next()? },
                layout: next()?,
            },
            "held" => Self::Held { used_bytes: next()? },
            "not-held" => Self::NotHeld,
            "busy" => Self::Busy { pid: rest.parse().ok()? },
            "goodbye" => Self::Goodbye,
            "flushing" => Self::Flushing { grace_ms: next()?, used_bytes: next()? },
            "flush" => Self::Flush { image: ImageFile { dev: next()?, ino: next()? } },
            "flushed" => {
                Self::Flushed { dirty_bytes: next()?, device_bytes: next()?, elapsed_ns: next()? }
            }
            "claim" => Self::Claim { rate_bytes_per_s: next()? },
            "share" => Self::Share { serial: next()?, share_us: next()? },
            "kept" => Self::Kept { serial: next()? },
            "drill" => Self::Drill { fills: next()? != 0 },
            "drilled" => Self::Drilled {
                used_bytes: next()?,
                budget_bytes: next()?,
                device_bytes: next()?,
                elapsed_ns: next()?,
                image: rest.splitn(5, ' ').nth(4)?.to_owned(),
            },
            "not-drilled" => Self::NotDrilled { why: rest.to_owned() },
            "later" => Self::Later { why: rest.to_owned() },
            "battery" => Self::Battery {
                total_us: next()?,
                debt_us: next()?,
                dirty_us: next()?,
                worst_us: next()?,
            },
            "failed" => Self::Failed { why: rest.to_owned() },
            "ready" => Self::Ready,
            "warning" => Self::Warning { reading: rest.to_owned() },
            "start" => Self::Start,
            "look" => Self::Look,
            "region" => Self::Region {
                owner: u32::try_from(next()?).ok()?,
                pid: i32::try_from(next()?).ok()?,
                is_flushing: next()? != 0,
                used_bytes: next()?,
                budget_bytes: next()?,
                times: Times::decode(next()?, next()?),
                rate_bytes_per_s: next()?,
                share_us: next()?,
                image: rest.splitn(10, ' ').nth(9)?.to_owned(),
            },
            "keep" => Self::Keep {
                image: ImageFile { dev: next()?, ino: next()? },
                is_trusted: next()? != 0,
                owner: u32::try_from(next()?).ok()?,
                times: Times::decode(next()?, next()?),
                pid: i32::try_from(next()?).ok()?,
                started: next()?,
                rate_bytes_per_s: next()?,
                granted_us: next()?,
            },
            "forget" => Self::Forget { image: ImageFile { dev: next()?, ino: next()? } },
            _ => return None,
        })
    }
}

impl ImageFile {
    fn encode(self) -> String {
        format!("{} {}", self.dev, self.ino)
    }
}

/// Sends a message in one piece, because the sockets keep message boundaries. Waits until the other
/// side has room for it.
///
/// # Errors
/// The other side is gone, or the system refuses.
pub fn send(socket: impl AsFd, message: &Message, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    send_by(socket, message, fds, SendFlags::NOSIGNAL)
}

/// Sends a message as [`send`] does, or fails if the other side has no room for it now.
///
/// # Errors
/// The other side has no room or is gone, or the system refuses.
pub fn send_now(socket: impl AsFd, message: &Message, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    send_by(socket, message, fds, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
}

fn send_by(
    socket: impl AsFd,
    message: &Message,
    fds: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> io::Result<()> {
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
        match sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, flags) {
            Err(rustix::io::Errno::INTR) => {}
            outcome => return outcome.map(drop).map_err(io::Error::from),
        }
    }
}

/// Receives a message and its descriptors; `None` means that the other side is gone.
///
/// # Errors
/// The system refuses.
pub fn receive(socket: impl AsFd) -> io::Result<Option<(Message, Vec<OwnedFd>)>> {
    let mut bytes = [0; MESSAGE_MAX_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut slices = [IoSliceMut::new(&mut bytes)];
        match recvmsg(&socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            outcome => break outcome?,
        }
    };
    let fds: Vec<_> = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        })
        .flatten()
        .collect();
    // An end brings no descriptors; an empty message may.
    if received.bytes == 0 && fds.is_empty() {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&bytes[..received.bytes]);
    if received.flags.contains(ReturnFlags::CTRUNC) {
        let text = format!(
            "{} (only {} descriptors arrived: more came than a message has, or more than this \
             process may open; see its limit of open files)",
            text.chars().take(UNKNOWN_MAX_CHARS).collect::<String>(),
            fds.len()
        );
        return Ok(Some((Message::Unknown { text }, fds)));
    }
    let unknown = || Message::Unknown { text: text.chars().take(UNKNOWN_MAX_CHARS).collect() };
    let message = Message::decode(&text).unwrap_or_else(unknown);
    Ok(Some((message, fds)))
}

#[cfg(test)]
mod tests {
    use super::super::socket::socket_pair;
    use super::*;

    #[test]
    fn every_message_survives_the_wire() {
        let (a, b) = socket_pair().unwrap();
        let seconds = std::time::Duration::from_secs;
        let times = Times { grace: seconds(30), wait: Some(seconds(600)) };
        let image = ImageFile { dev: 3, ino: 1 << 40 };
        let messages = [
            Message::Hold { times, rate_bytes_per_s: 1 << 28 },
            Message::Claim { rate_bytes_per_s: 9 },
            Message::Share { serial: 8, share_us: u64::MAX },
            Message::Kept { serial: 8 },
            Message::Drill { fills: true },
            Message::NotDrilled { why: "/data/a: gone".into() },
            Message::Drilled {
                used_bytes: 1,
                budget_bytes: 2,
                device_bytes: 3,
                elapsed_ns: 4,
                image: "/data/a b".into(),
            },
            Message::Later { why: "lent".into() },
            Message::Battery { total_us: 4, debt_us: 3, dirty_us: 2, worst_us: 1 },
            Message::TakeOver { times: Times { grace: seconds(7), wait: None }, image, layout: 3 },
            Message::Flushing { grace_ms: 7_000, used_bytes: 4_096 },
            Message::Held { used_bytes: 2 },
            Message::NotHeld,
            Message::Busy { pid: 77 },
            Message::Goodbye,
            Message::Flush { image },
            Message::Flushed { dirty_bytes: 1, device_bytes: 2, elapsed_ns: 3 },
            Message::Failed { why: "no space left: write".into() },
            Message::Ready,
            Message::Warning { reading: "fresh low 5s the file: low".into() },
            Message::Start,
            Message::Look,
            Message::Region {
                owner: 1000,
                pid: 5,
                is_flushing: true,
                used_bytes: 3,
                budget_bytes: 4,
                times,
                rate_bytes_per_s: 5,
                share_us: 6,
                image: "/data/with a blank/image.perdura".into(),
            },
            Message::Keep {
                image,
                is_trusted: true,
                owner: 1000,
                times,
                pid: 5,
                started: 9,
                rate_bytes_per_s: 7,
                granted_us: 6,
            },
            Message::Forget { image },
        ];
        for message in messages {
            let fd = a.as_fd();
            send(&a, &message, &[fd; FDS_MAX]).unwrap();
            let (back, fds) = receive(&b).unwrap().unwrap();
            assert_eq!(back, message);
            assert_eq!(fds.len(), FDS_MAX);
        }
        drop(a);
        assert!(receive(&b).unwrap().is_none());
    }

    #[test]
    fn what_is_no_message_is_unknown_with_its_words() {
        let (a, b) = socket_pair().unwrap();
        for text in ["", "hold", "hold 1 x", "take-over 1 2 3", "keep 1 2 3 -4", "Ready", "\u{0}"] {
            rustix::io::write(&a, text.as_bytes()).unwrap();
            let said = receive(&b).unwrap().map(|(said, _)| said);
            let unknown = Message::Unknown { text: text.into() };
            assert_eq!(said, (!text.is_empty()).then_some(unknown));
        }
    }

    #[test]
    fn a_message_whose_descriptors_are_not_all_there_is_unknown() {
        let (a, b) = socket_pair().unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX + 4))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [a.as_fd(); FDS_MAX + 4];
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        sendmsg(&a, &[IoSlice::new(b"ready")], &mut control, SendFlags::NOSIGNAL).unwrap();
        let (said, fds) = receive(&b).unwrap().unwrap();
        assert!(matches!(&said, Message::Unknown { text } if text.starts_with("ready (only")));
        assert!(fds.len() >= FDS_MAX);
        // Whoever receives an empty one is given its descriptors, too.
        send(&a, &Message::Unknown { text: String::new() }, &[a.as_fd()]).unwrap();
        assert_eq!(receive(&b).unwrap().unwrap().1.len(), 1);
    }

    #[test]
    fn a_message_for_one_that_reads_nothing_is_refused_and_not_waited_for() {
        let (a, _b) = socket_pair().unwrap();
        let refused = (0..100_000).find_map(|_| send_now(&a, &Message::Ready, &[]).err());
        assert_eq!(refused.unwrap().kind(), io::ErrorKind::WouldBlock);
    }
}
