//! Sources that are opened beside everything else, for a process that must go on meanwhile, and
//! whatever comes of it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::io::Errno;

use crate::error::WarningError;
use crate::named;
use crate::reading::{Reading, State};
use crate::source::WarningSource;

/// Opens the sources that `texts` name, each on a thread of its own, and waits for them until
/// `within` is over.
///
/// None of them is refused. One that is not open by then is [lost](Reading::lost) until it is; one
/// that cannot be opened is lost for good, and if it cannot because the end is near, that is what
/// it says.
///
/// # Errors
/// The system gives no descriptor or thread.
pub fn open_within(
    texts: &[String],
    within: Duration,
) -> Result<Vec<Box<dyn WarningSource>>, WarningError> {
    let open = |text: &String| {
        let name = text.clone();
        Later::start(text.clone(), move || named::open(&name))
    };
    let opened: Result<Vec<_>, _> = texts.iter().map(open).collect();
    let began = Instant::now();
    let waited = opened?.into_iter().map(|later| -> Box<dyn WarningSource> {
        later.wait(within.saturating_sub(began.elapsed()));
        Box::new(later)
    });
    Ok(waited.collect())
}

type Opened = Result<Box<dyn WarningSource>, WarningError>;

/// A source that a thread opens.
struct Later {
    name: String,
    source: Source,
    /// Whether it has been said that the source is not open.
    is_missed: bool,
    /// Readable when the source is open, or refused, or has something to say.
    ready: OwnedFd,
    /// Readable when the thread is at its end.
    ended: Arc<OwnedFd>,
}

enum Source {
    /// A thread opens it, or has, and nobody has looked since.
    Opening(JoinHandle<Opened>),
    Open(Box<dyn WarningSource>),
    Refused,
}

impl Later {
    fn start(
        name: String,
        open: impl FnOnce() -> Opened + Send + 'static,
    ) -> Result<Self, WarningError> {
        let refused = |errno: Errno| WarningError::system(format!("watch {name}"), errno);
        let ended = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(refused)?;
        let ready = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(refused)?;
        epoll::add(&ready, &ended, epoll::EventData::new_u64(0), epoll::EventFlags::IN)
            .map_err(refused)?;
        let ended = Arc::new(ended);
        let last = AtLast(Arc::clone(&ended));
        let work = move || {
            let _last = last;
            open()
        };
        let thread = std::thread::Builder::new()
            .name("perdura-opens".into())
            .spawn(work)
            .map_err(|error| WarningError::system("start a thread", error))?;
        Ok(Self { name, source: Source::Opening(thread), is_missed: false, ready, ended })
    }

    /// Waits until the source is open or refused, for `at_most`.
    fn wait(&self, at_most: Duration) {
        let timeout = Timespec {
            tv_sec: i64::try_from(at_most.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(at_most.subsec_nanos()),
        };
        // A signal shortens the wait, and the source is lost for a moment: the safe side.
        let _ = poll(&mut [PollFd::new(&self.ended, PollFlags::IN)], Some(&timeout));
    }

    /// What is to be said of a source that was opened just now.
    fn begin(&mut self, mut source: Box<dyn WarningSource>) -> Result<Reading, WarningError> {
        let refused = |errno: Errno| WarningError::system(format!("watch {}", self.name), errno);
        let data = epoll::EventData::new_u64(0);
        epoll::add(&self.ready, source.descriptor(), data, epoll::EventFlags::IN)
            .map_err(refused)?;
        let said = source.take()?;
        self.source = Source::Open(source);
        Ok(said.unwrap_or_else(|| Reading::new(State::Steady, self.name.clone())))
    }

    /// What is to be said of a source that cannot be opened.
    fn refused(&self, error: &WarningError) -> Reading {
        let told_by = format!("{}: {error}", self.name);
        match error {
            WarningError::EndsAlready { .. } => Reading::new(State::Ending, told_by),
            _ => Reading::lost(told_by),
        }
    }
}

impl WarningSource for Later {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    fn take(&mut self) -> Result<Option<Reading>, WarningError> {
        let has_ended = rustix::io::read(&*self.ended, &mut [0; 8]).is_ok();
        match std::mem::replace(&mut self.source, Source::Refused) {
            Source::Open(mut source) => {
                let said = source.take();
                self.source = Source::Open(source);
                said
            }
            Source::Opening(thread) if has_ended => match thread.join() {
                Ok(Ok(source)) => self.begin(source).map(Some),
                Ok(Err(error)) => Ok(Some(self.refused(&error))),
                Err(_) => {
                    let panicked = std::io::Error::other("the thread panicked");
                    Ok(Some(self.refused(&WarningError::system("open it", panicked))))
                }
            },
            Source::Refused => Ok(None),
            Source::Opening(thread) => {
                self.source = Source::Opening(thread);
                let is_first = !std::mem::replace(&mut self.is_missed, true);
                let why = || format!("{}: not open yet", self.name);
                Ok(is_first.then(|| Reading::lost(why())))
            }
        }
    }
}

/// Shows at the end of the thread that it has ended, however it ends.
struct AtLast(Arc<OwnedFd>);

impl Drop for AtLast {
    fn drop(&mut self) {
        // The counter is never full: nobody else adds to it.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test's own failure
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;
    use crate::file::StatusFile;
    use crate::reading::Confidence;
    use crate::warnings::Warnings;

    fn later() -> (Sender<Opened>, Warnings) {
        let (tell, told) = channel();
        let later = Later::start("the test".into(), move || told.recv().unwrap()).unwrap();
        later.wait(Duration::ZERO);
        (tell, Warnings::from(Box::new(later) as Box<dyn WarningSource>))
    }

    fn lost(why: &str) -> Reading {
        Reading::lost(format!("the test: {why}"))
    }

    #[test]
    fn a_source_is_lost_until_it_is_open_and_says_then_what_it_sees() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("power");
        let (tell, mut warnings) = later();
        assert_eq!(*warnings.look(), lost("not open yet"));
        warnings.wait(Some(Duration::ZERO));
        assert_eq!(*warnings.look(), lost("not open yet"));
        tell.send(StatusFile::open(&file)).unwrap();
        // Nothing but the source's being open wakes it.
        warnings.wait(None);
        assert_eq!(
            *warnings.look(),
            Reading::new(State::Steady, format!("{} is not there", file.display()))
        );
        std::fs::write(&file, "low").unwrap();
        warnings.wait(None);
        assert_eq!(warnings.look().state, State::Low);
    }

    #[test]
    fn one_that_is_refused_is_lost_and_one_that_ends_already_is_the_end() {
        let gone = WarningError::PlaceGone { path: "/there".into() };
        let ends = WarningError::EndsAlready { path: "/power".into() };
        for (error, state, confidence) in
            [(gone, State::OnBattery, Confidence::Lost), (ends, State::Ending, Confidence::Fresh)]
        {
            let said = error.to_string();
            let (tell, mut warnings) = later();
            tell.send(Err(error)).unwrap();
            warnings.wait(None);
            let reading = warnings.look().clone();
            assert_eq!((reading.state, reading.confidence), (state, confidence));
            assert!(reading.told_by.ends_with(&said), "{reading}");
            // It wakes nobody again.
            let began = Instant::now();
            warnings.wait(Some(Duration::from_millis(20)));
            assert!(began.elapsed() >= Duration::from_millis(20));
        }
        let (tell, mut warnings) = later();
        // The thread panics.
        drop(tell);
        warnings.wait(None);
        assert_eq!(*warnings.look(), lost("open it: the thread panicked"));
    }

    #[test]
    fn sources_are_opened_beside_each_other_and_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let texts = ["a", "b"].map(|name| format!("file:{}", dir.path().join(name).display()));
        let mut warnings = Warnings::default();
        let within = Duration::from_secs(60);
        for source in open_within(&texts, within).unwrap() {
            warnings.add(source);
        }
        assert_eq!(warnings.look().state, State::Steady);
        std::fs::write(dir.path().join("b"), "low").unwrap();
        warnings.wait(None);
        assert_eq!(warnings.look().state, State::Low);
    }
}
