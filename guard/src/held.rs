//! One region whose memory is held, and the state that it is in.
//!
//! ```text
//! Linked --link breaks--> Alone --warning, wait over, request--> Flushing --done--> let go
//!   ^                       |  ^                                     |
//!   +--- a server takes over +  +------------- the flush failed -----+
//! ```

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use perdura_media::Clock;
use perdura_region::Attachment;
use perdura_region::holder::Times;
use perdura_region::holder::wire::{ImageFile, Message};

use crate::cores::forbid_cores;
use crate::error::{HoldError, failed};
use crate::foreign::Foreign;
use crate::sys::{Process, check_handed_over, drop_beside};

/// Shortest time in which a server that is to flush may stand still.
const PATIENCE_MIN: Duration = Duration::from_millis(200);

/// Flushes in a row that could not but fail, after which nobody holds on at the end.
pub(crate) const HOPELESS_MAX: u32 = 3;

/// The memory, ledger and image of one region.
pub(crate) struct Held {
    /// The image's file, by which the region is known.
    pub name: ImageFile,
    /// User id of the owner.
    pub owner: u32,
    /// The times that the last server brought.
    pub times: Times,
    /// Proven flush rate that the last server brought, bytes per second.
    pub rate_bytes_per_s: u64,
    /// The linked server, or the last one.
    pub server: Process,
    /// Whether the linked server has opened the region. The budget in the ledger is that of the
    /// server before until then.
    pub is_open: bool,
    /// Whether the guard's parent has the descriptors.
    pub is_kept: bool,
    /// Whether the server has said what it should not.
    pub is_odd: bool,
    /// Why the last flush failed, and how many in a row [could not but
    /// fail](HoldError::is_hopeless) at the end of the power.
    pub failure: Option<String>,
    pub hopeless: u32,
    /// What is known of the server.
    pub state: State,
    /// What a flush needs.
    pub attachment: Arc<Attachment>,
    memory: Foreign,
    ledger: Foreign,
    pub image: Arc<Foreign>,
}

/// What is known of a held region's server.
pub(crate) enum State {
    /// A server uses the memory.
    Linked {
        link: OwnedFd,
        /// Set at the end of the power: how long the server may take.
        ending: Option<Patience>,
    },
    /// The server is gone; another one may come.
    Alone { since_ns: u64 },
    /// The memory is being flushed, on a thread of its own.
    Flushing {
        /// The visitor that waits for the outcome, if one asked.
        asked_by: Option<OwnedFd>,
    },
}

/// The patience with a server that is to flush and to say goodbye.
///
/// A server in which nothing moves for a tenth of the grace is ended. A server that waits for the
/// device is not, as long as the grace lasts: where a file system keeps writes in memory until
/// then, writing all of them again would take longer.
pub(crate) struct Patience {
    began_ns: u64,
    moved: (u64, u64),
}

impl Held {
    /// Maps what a server has handed over, after checking it.
    pub(crate) fn new(
        fds: Vec<Foreign>,
        owner: u32,
        terms: (Times, u64),
        server: Process,
        state: State,
    ) -> Result<Self, HoldError> {
        let (times, rate_bytes_per_s) = terms;
        let [memory, ledger, image] = <[Foreign; 3]>::try_from(fds).map_err(|fds| {
            HoldError::NothingToHold(format!("{} descriptors, expected 3", fds.len()))
        })?;
        check_handed_over(&memory, &ledger, &image, owner)?;
        let name = ImageFile::of(&image).map_err(failed("the image"))?;
        let copy =
            |fd: &Foreign| fd.as_fd().try_clone_to_owned().map_err(failed("copy a descriptor"));
        let attachment = Arc::new(Attachment::new(copy(&memory)?, copy(&ledger)?)?);
        if attachment.has_key() {
            forbid_cores();
        }
        Ok(Self {
            name,
            owner,
            times,
            rate_bytes_per_s,
            server,
            is_open: true,
            is_kept: false,
            is_odd: false,
            failure: None,
            hopeless: 0,
            state,
            attachment,
            memory,
            ledger,
            image: Arc::new(image),
        })
    }

    /// The descriptors of memory, ledger and image.
    pub(crate) fn fds(&self) -> [BorrowedFd<'_>; 3] {
        [self.memory.as_fd(), self.ledger.as_fd(), self.image.as_fd()]
    }

    /// Whether `memory` is the file of this region's memory.
    pub(crate) fn has_memory(&self, memory: impl AsFd) -> bool {
        let file = |fd: BorrowedFd<'_>| ImageFile::of(fd).ok();
        file(memory.as_fd()).is_some_and(|theirs| file(self.memory.as_fd()) == Some(theirs))
    }

    pub(crate) fn link(&self) -> Option<&OwnedFd> {
        match &self.state {
            State::Linked { link, .. } => Some(link),
            State::Alone { .. } | State::Flushing { .. } => None,
        }
    }

    pub(crate) fn is_linked(&self) -> bool {
        self.link().is_some()
    }

    pub(crate) fn is_alone(&self) -> bool {
        matches!(self.state, State::Alone { .. })
    }

    pub(crate) fn is_ending(&self) -> bool {
        matches!(self.state, State::Linked { ending: Some(_), .. })
    }

    /// What a visitor is told while the memory is being flushed.
    pub(crate) fn wait_message(&self) -> Message {
        Message::Flushing {
            grace_ms: self.times.grace.as_millis() as u64,
            used_bytes: self.attachment.used_bytes(),
        }
    }

    /// The message by which a guard's parent is told to keep this region, with the share that it
    /// may have in force.
    pub(crate) fn keep_message(&self, granted_us: u64, is_trusted: bool) -> Message {
        Message::Keep {
            image: self.name,
            is_trusted,
            owner: self.owner,
            times: self.times,
            pid: self.server.pid.max(0),
            started: self.server.started,
            rate_bytes_per_s: self.rate_bytes_per_s,
            granted_us,
        }
    }

    /// What an operator is told of this region.
    pub(crate) fn describe(&self, share_us: u64) -> Message {
        Message::Region {
            owner: self.owner,
            pid: self.link().map_or(0, |_| self.server.pid),
            is_flushing: matches!(self.state, State::Flushing { .. }),
            used_bytes: self.attachment.used_bytes(),
            budget_bytes: self.attachment.budget_bytes(),
            times: self.times,
            rate_bytes_per_s: self.rate_bytes_per_s,
            share_us,
            image: self.path(),
        }
    }

    /// Whether the memory has been without a server for `time`.
    pub(crate) fn is_alone_for(&self, time: Duration, now_ns: u64) -> bool {
        let State::Alone { since_ns } = self.state else { return false };
        Duration::from_nanos(now_ns.saturating_sub(since_ns)) >= time
    }

    /// Whether the wait for a server is over. The next wait begins then, in case the flush fails.
    pub(crate) fn has_waited(&mut self, now_ns: u64) -> bool {
        let State::Alone { since_ns } = &mut self.state else { return false };
        let alone = Duration::from_nanos(now_ns.saturating_sub(*since_ns));
        if self.times.wait.is_none_or(|wait| alone < wait) {
            return false;
        }
        *since_ns = now_ns;
        tracing::warn!(
            image = %self.path(),
            waited = ?alone,
            "no server came back; flushing, then letting the memory go"
        );
        true
    }

    /// Whether the image's file was removed. Nobody can ever open it then, so a flush would keep
    /// nothing.
    pub(crate) fn is_removed(&self) -> bool {
        let removed = self.image.look().is_ok_and(|(_, names)| names == 0);
        if removed {
            tracing::warn!(
                image = %self.path(),
                dirty_bytes = self.attachment.used_bytes(),
                "the image was removed, so nothing can be kept; letting the memory go"
            );
        }
        removed
    }

    /// Ends the holding. Freeing memory takes a second for each 7 GiB, so a thread does it.
    pub(crate) fn end(self) {
        let Self { attachment, memory, ledger, .. } = self;
        drop_beside((attachment, memory, ledger));
    }

    /// Notes that a flush failed. Returns whether it is to be given up: at the end none of several
    /// could but fail, so that a process which holds on would hold for ever.
    pub(crate) fn note_failure(&mut self, error: &HoldError, is_end: bool, now_ns: u64) -> bool {
        self.state = State::Alone { since_ns: now_ns };
        let why = error.to_string();
        // It is tried again each second.
        if self.failure.as_ref() != Some(&why) {
            tracing::error!(image = %self.path(), %error, "still holding");
            self.failure = Some(why);
        }
        let counts = is_end && error.is_hopeless();
        self.hopeless = if counts { self.hopeless + 1 } else { 0 };
        self.hopeless >= HOPELESS_MAX
    }

    /// Notes that the server is gone.
    pub(crate) fn note_alone(&mut self, now_ns: u64) {
        self.state = State::Alone { since_ns: now_ns };
        tracing::warn!(
            image = %self.path(),
            pid = self.server.pid,
            dirty_bytes = self.attachment.used_bytes(),
            wait = %self.times.wait.map_or("without end".into(), |wait| format!("{wait:?}")),
            "the server is gone; holding its memory until a server comes back or the wait is over"
        );
    }

    /// Begins to wait for the server's goodbye, unless that has begun.
    pub(crate) fn expect_goodbye(&mut self, clock: &dyn Clock) {
        let progress = self.attachment.progress();
        if let State::Linked { ending, .. } = &mut self.state {
            let began_ns = clock.now_ns();
            ending.get_or_insert(Patience { began_ns, moved: (progress, began_ns) });
        }
    }

    /// Ends a server that was to flush and stands still for too long, or takes twice its grace.
    /// No grace is longer than `longest`.
    pub(crate) fn lose_patience(&mut self, longest: Duration, clock: &dyn Clock) {
        let (progress, awaits) = (self.attachment.progress(), self.attachment.awaits_device());
        let (grace, server) = (self.times.grace.min(longest), self.server);
        let State::Linked { ending: Some(patience), .. } = &mut self.state else { return };
        let now_ns = clock.now_ns();
        let patience_ns = (grace / 10).max(PATIENCE_MIN).as_nanos();
        let waited_ns = u128::from(now_ns - patience.began_ns);
        let is_late = waited_ns >= 2 * grace.as_nanos();
        let moves = progress != patience.moved.0 || (waited_ns < grace.as_nanos() && awaits);
        if moves && !is_late {
            patience.moved = (progress, now_ns);
        } else if u128::from(now_ns - patience.moved.1) > patience_ns && !server.end() {
            patience.moved.1 = now_ns;
            if !server.is_there() {
                // A child of it has its link still.
                self.note_alone(now_ns);
            }
        }
    }

    /// Path of the image, for the log.
    pub(crate) fn path(&self) -> String {
        use std::os::fd::AsRawFd;
        let link = format!("/proc/self/fd/{}", self.image.as_fd().as_raw_fd());
        std::fs::read_link(link).map_or("an image".into(), |path| path.display().to_string())
    }
}
