//! All sources of one process, and one wait for all of them.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::error::WarningError;
use crate::reading::{Confidence, Reading, State};
use crate::signals::Signals;
use crate::source::WarningSource;

/// The sources of warnings that a process heeds. The most pessimistic of them counts.
pub struct Warnings {
    sources: Vec<Heeded>,
    /// What all of them say together.
    worst: Reading,
}

impl Default for Warnings {
    fn default() -> Self {
        Self { sources: Vec::new(), worst: NO_SOURCE.clone() }
    }
}

/// A source, and what it said last.
struct Heeded {
    /// `None`: it broke, and is not asked any more.
    source: Option<Box<dyn WarningSource>>,
    last: Reading,
}

impl std::fmt::Debug for Warnings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.sources.iter().map(|heeded| &heeded.last)).finish()
    }
}

impl Warnings {
    /// Heeds SIGTERM, SIGINT and SIGPWR. Call it first in `main`: see [`Signals::block`].
    ///
    /// # Errors
    /// The system gives no descriptor.
    pub fn by_signals() -> Result<Self, WarningError> {
        Ok(Self::from(Box::new(Signals::block()?) as Box<dyn WarningSource>))
    }

    /// Heeds one more source.
    pub fn add(&mut self, source: Box<dyn WarningSource>) {
        let last = Reading::new(State::Steady, "no warning");
        self.sources.push(Heeded { source: Some(source), last });
    }

    /// The descriptors of all sources. One of them becomes readable when a source may say something
    /// new.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sources.iter().filter_map(|heeded| Some(heeded.source.as_ref()?.descriptor()))
    }

    /// What the most pessimistic source says now, without waiting.
    ///
    /// A source that breaks counts as [`State::Ending`] for good: it would show no later warning,
    /// so to flush now is the safe answer.
    pub fn look(&mut self) -> &Reading {
        let _ = self.ask();
        &self.worst
    }

    /// The same, if a source says another state than before, or says again that the end is near, as
    /// a second signal does.
    pub fn news(&mut self) -> Option<&Reading> {
        self.ask().then_some(&self.worst)
    }

    /// Asks all sources, and returns whether one has news.
    fn ask(&mut self) -> bool {
        let mut has_news = false;
        for Heeded { source, last } in &mut self.sources {
            let said = match source.as_mut().map(|source| source.take()) {
                None | Some(Ok(None)) => continue,
                Some(Ok(Some(reading))) => reading.after(last),
                Some(Err(error)) => {
                    *source = None;
                    Reading::new(State::Ending, format!("a source that broke: {error}"))
                }
            };
            has_news |= said.state != last.state || said.state == State::Ending;
            *last = said;
        }
        let readings = self.sources.iter().map(|heeded| heeded.last.clone());
        self.worst =
            readings.reduce(|worst, next| worst.joined(&next)).unwrap_or_else(|| NO_SOURCE.clone());
        has_news
    }

    /// Waits until a source may say something new, or for `at_most`.
    pub fn wait(&mut self, at_most: Option<Duration>) {
        let timeout = at_most.map(|time| Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(time.subsec_nanos()),
        });
        let mut ready: Vec<PollFd<'_>> = self
            .descriptors()
            .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
            .collect();
        match poll(&mut ready, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            // As with a source that breaks: nothing will be seen any more.
            Err(errno) => {
                let why = format!("no warning can be waited for: {errno}");
                let last = Reading::new(State::Ending, why);
                self.sources.push(Heeded { source: None, last });
            }
        }
    }

    /// Waits until a source says `state` or worse, and returns its reading.
    pub fn wait_for(&mut self, state: State) -> Reading {
        loop {
            let reading = self.look();
            if reading.state >= state {
                return reading.clone();
            }
            self.wait(None);
        }
    }
}

/// What is said where there is no source.
static NO_SOURCE: Reading = Reading {
    state: State::Steady,
    left: None,
    confidence: Confidence::Fresh,
    told_by: String::new(),
};

impl From<Box<dyn WarningSource>> for Warnings {
    fn from(source: Box<dyn WarningSource>) -> Self {
        let mut warnings = Self::default();
        warnings.add(source);
        warnings
    }
}
