//! The thread that ships each new commit, and what it tells others of its progress.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use perdura_image::Key;
use perdura_media::{Clock, Device};

use crate::error::BackupError;
use crate::object::Seal;
use crate::retention::Retention;
use crate::ship::{Newest, Pass, Planted, Shipper, Source};
use crate::vault::Vault;
use crate::writer::{Owner, Writer};

/// Longest wait after a failure; the first is as long as the time between two passes.
const RETRY_MAX: Duration = Duration::from_secs(60);
/// Time between two looks for what need not be kept.
const TIDY_EVERY: Duration = Duration::from_secs(600);

/// Settings of a follower.
#[derive(Debug, Clone)]
pub struct Options {
    /// Time between two looks for a newer commit.
    pub every: Duration,
    /// How long points are kept; `None`: nothing is deleted.
    pub keep: Option<Duration>,
    /// The user's key, if the image is encrypted.
    pub key: Option<Key>,
    /// The image's directory.
    pub dir: PathBuf,
    /// Whether to ship although another program may do so.
    pub is_taking_over: bool,
}

/// The figures of a follower: its restore points, what it has shipped, and its last failure.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Figures {
    /// The newest restore point.
    pub newest: Option<Newest>,
    /// When it became the newest, by the clock that is never set, in nanoseconds.
    pub newest_at_ns: u64,
    /// Restore points that were put.
    pub points: u64,
    /// Objects that were put.
    pub objects: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Passes that failed.
    pub failures: u64,
    /// Times that old points and packs could not be deleted.
    pub delete_failures: u64,
    /// The error of the last pass, if it failed.
    pub error: Option<String>,
    /// Whether nothing is shipped because another program ships this image.
    pub is_stopped: bool,
    /// How long the last pass took that made a point.
    pub pass: Duration,
}

/// The figures of a follower, for other threads.
#[derive(Debug, Default)]
pub struct Progress(Mutex<Figures>);

impl Progress {
    /// The figures now.
    pub fn figures(&self) -> Figures {
        self.0.lock().clone()
    }
}

/// A thread that ships an image.
pub struct Follower {
    stop: Sender<()>,
    thread: JoinHandle<()>,
    ended: Receiver<()>,
}

/// The parts that a follower's thread works with.
struct Work {
    device: Arc<dyn Device>,
    vault: Box<dyn Vault>,
    seal: Seal,
    options: Options,
    clock: Arc<dyn Clock>,
    progress: Arc<Progress>,
    hold: Box<dyn Fn(bool) + Send>,
}

impl Follower {
    /// Starts a thread. `hold` is called with true before a pass and with false after it: the image
    /// may then keep what it would free.
    ///
    /// # Errors
    /// The system starts no thread.
    pub fn start(
        device: Arc<dyn Device>,
        vault: Box<dyn Vault>,
        seal: Seal,
        options: Options,
        clock: Arc<dyn Clock>,
        progress: Arc<Progress>,
        hold: Box<dyn Fn(bool) + Send>,
    ) -> std::io::Result<Self> {
        let (stop, stopped) = channel();
        let (ends, ended) = channel();
        let work = Work { device, vault, seal, options, clock, progress, hold };
        let run = move || {
            work.run(&stopped);
            drop(ends);
        };
        let thread = std::thread::Builder::new().name("perdura-backup".into()).spawn(run)?;
        Ok(Self { stop, thread, ended })
    }

    /// Lets the thread make a last pass, and waits for its end for a time at most. Returns whether
    /// it has ended.
    pub fn finish(self, within: Duration) -> bool {
        drop(self.stop);
        let has_ended = self.ended.recv_timeout(within) == Err(RecvTimeoutError::Disconnected);
        has_ended && self.thread.join().is_ok()
    }
}

impl Work {
    fn run(&self, stopped: &Receiver<()>) {
        // Clients come first. A system that refuses leaves the thread as it is.
        let _refused = rustix::process::nice(10);
        let mut owner = Owner::new(&self.options.dir, self.options.is_taking_over);
        let mut shipper = None;
        let mut retention = self.options.keep.map(|keep| Retention::new(keep, Planted::None));
        let (mut wait, mut tidied) = (self.options.every, None::<Instant>);
        let mut is_last = false;
        loop {
            let began = Instant::now();
            (self.hold)(true);
            let outcome = self.pass(&mut shipper, &mut owner);
            (self.hold)(false);
            let is_over = matches!(outcome, Err(BackupError::TakenOver { .. }));
            wait = match self.note(outcome, began.elapsed()) {
                true => self.options.every,
                false => (wait * 2).min(RETRY_MAX.max(self.options.every)),
            };
            if is_last || is_over {
                break;
            }
            if let (Some(retention), Some((source, shipper))) = (&mut retention, &shipper) {
                retention.note(shipper);
                if tidied.is_none_or(|tidied| tidied.elapsed() >= TIDY_EVERY) {
                    tidied = Some(Instant::now());
                    let now = self.clock.unix_ms();
                    let vault = &*self.vault;
                    let image_id = source.image_id();
                    let done = retention.tidy(vault, &self.seal, image_id, shipper, now);
                    if let Err(error) = done {
                        self.progress.0.lock().delete_failures += 1;
                        tracing::warn!(%error, "old backups were not deleted");
                    }
                }
            }
            is_last = stopped.recv_timeout(wait) == Err(RecvTimeoutError::Disconnected);
        }
        if let Some((_, shipper)) = shipper
            && let Err(error) = shipper.release(&mut owner)
        {
            tracing::warn!(%error, "the vault still says that this program ships to it");
        }
    }

    /// Makes a pass, and what it needs if there is none yet.
    fn pass<'w>(
        &'w self,
        shipper: &mut Option<(Source<'w>, Shipper<'w>)>,
        owner: &mut Owner,
    ) -> Result<(Option<Pass>, Option<Newest>), BackupError> {
        let (source, shipper) = match shipper {
            Some(made) => made,
            None => {
                let source = Source::new(&*self.device, self.options.key.as_ref())?;
                let (vault, seal) = (&*self.vault, self.seal.clone());
                let now = self.clock.unix_ms();
                let writer = Writer::claim(vault, source.image_id(), owner, now)?;
                let made = Shipper::new(vault, seal, &source, writer, Planted::None)?;
                shipper.insert((source, made))
            }
        };
        let pass = shipper.pass(source, &*self.clock)?;
        Ok((pass, shipper.newest()))
    }

    /// Notes and logs the outcome of a pass. Returns whether it succeeded.
    fn note(
        &self,
        outcome: Result<(Option<Pass>, Option<Newest>), BackupError>,
        took: Duration,
    ) -> bool {
        let mut figures = self.progress.0.lock();
        match outcome {
            Ok((pass, newest)) => {
                if figures.newest != newest {
                    (figures.newest, figures.newest_at_ns) = (newest, self.clock.now_ns());
                }
                figures.is_stopped = false;
                if let Some(error) = figures.error.take() {
                    tracing::info!(vault = self.vault.describe(), "backups succeed again: {error}");
                }
                if let Some(pass) = pass {
                    figures.points += 1;
                    figures.objects += pass.objects;
                    figures.bytes += pass.bytes;
                    figures.pass = took;
                }
                true
            }
            Err(error) => {
                let is_over = matches!(error, BackupError::TakenOver { .. });
                figures.is_stopped = is_over || matches!(error, BackupError::Held { .. });
                let error = error.to_string();
                figures.failures += 1;
                match is_over {
                    true => tracing::error!(error, "the backup has ended"),
                    false if figures.error.as_ref() == Some(&error) => {}
                    false => tracing::error!(error, "the backup fails, and is tried again"),
                }
                figures.error = Some(error);
                false
            }
        }
    }
}
