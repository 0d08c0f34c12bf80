//! How a directory is opened: sizes, promise, durability, holder.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use perdura_guard::Keeper;
use perdura_media::{Direct, Engine, RealClock};
use perdura_region::directory::{self, Directory, HOLDER_WAIT, Settings};
use perdura_region::holder::{HeldBy, Holders};
use perdura_region::{BudgetWish, Compression, Config, Key, PolicyKind, TrackingKind};

use perdura_warning::SETTLE;

use crate::closing::Closing;
use crate::error::OpenError;
use crate::guarded::{Following, Heard};
use crate::holder::Holder;

/// Memory of a new directory if no size is given.
const MEMORY_BYTES: u64 = 256 << 20;
/// Time from the warning to the loss if none is given.
const WARNING: Duration = Duration::from_secs(30);
const CHECKPOINT_EVERY: Duration = Duration::from_secs(1);
/// Most threads of a flush by default: more do not write faster to one SSD.
const FLUSH_THREADS_MAX: usize = 4;

type Progress = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// When a change is durable.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// use perdura::{Durability, Options, Store};
///
/// // Every change is on the SSD when its call returns, though a holder would keep it.
/// let options = Options::new().memory_bytes(16 << 20).durability(Durability::Fsync);
/// let store = Store::open_with(dir.path().join("data"), &options)?;
/// store.set("key", "value")?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// A call returns when the change is in memory. The change survives a killed process if a
    /// [`Holder`] keeps the memory, and a warned loss of power if the directory is closed within
    /// the warning. After any other loss the directory is back at its last checkpoint.
    Warned,
    /// A call returns when the change is on the SSD. Calls that run at the same time share a flush
    /// of the device.
    Fsync,
}

/// How a directory is opened: sizes, promise, durability, holder.
///
/// ```
/// use perdura::{Budget, Options, Store};
///
/// # let dir = tempfile::tempdir()?;
/// # let dir = dir.path().join("data");
/// let options = Options::new().memory_bytes(64 << 20).budget(Budget::Percent(25.0));
/// let store = Store::open_with(&dir, &options)?;
/// assert!(store.promise().budget_bytes <= 16 << 20);
/// store.close()?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[must_use = "options do nothing until something is opened with them"]
pub struct Options {
    memory_bytes: Option<u64>,
    memory_bytes_max: Option<u64>,
    budget: BudgetWish,
    warning: Duration,
    reserve: Option<Duration>,
    durability: Option<Durability>,
    checkpoint_every: Option<Duration>,
    policy: PolicyKind,
    compression: Compression,
    key: Option<Key>,
    holder: Option<Holder>,
    guard: Option<PathBuf>,
    power_settle: Duration,
    holder_wait: Duration,
    memory_dir: Option<PathBuf>,
    flush_threads: usize,
    prove_again: bool,
    progress: Option<Progress>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            memory_bytes: None,
            memory_bytes_max: None,
            budget: BudgetWish::Derived,
            warning: WARNING,
            reserve: None,
            durability: None,
            checkpoint_every: Some(CHECKPOINT_EVERY),
            policy: PolicyKind::default(),
            compression: Compression::Off,
            key: None,
            holder: None,
            guard: None,
            power_settle: SETTLE,
            holder_wait: HOLDER_WAIT,
            memory_dir: None,
            flush_threads: std::thread::available_parallelism()
                .map_or(2, usize::from)
                .min(FLUSH_THREADS_MAX),
            prove_again: false,
            progress: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("memory_bytes", &self.memory_bytes)
            .field("memory_bytes_max", &self.memory_bytes_max)
            .field("budget", &self.budget)
            .field("warning", &self.warning)
            .field("reserve", &self.reserve)
            .field("durability", &self.durability)
            .field("checkpoint_every", &self.checkpoint_every)
            .field("policy", &self.policy)
            .field("compression", &self.compression)
            .field("key", &self.key.as_ref().map(|_| "kept secret"))
            .field("holder", &self.holder)
            .field("guard", &self.guard)
            .field("power_settle", &self.power_settle)
            .field("holder_wait", &self.holder_wait)
            .field("memory_dir", &self.memory_dir)
            .field("flush_threads", &self.flush_threads)
            .field("prove_again", &self.prove_again)
            .finish_non_exhaustive()
    }
}

impl Options {
    /// The defaults, which each method describes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Size of the memory, bytes. An existing image keeps its size or grows to this one; it never
    /// shrinks. Default: as large as it is, and 256 MiB for a new image.
    pub fn memory_bytes(mut self, bytes: u64) -> Self {
        self.memory_bytes = Some(bytes);
        self
    }

    /// Size that the memory may ever grow to, bytes; fixed when the image is made. Default: four
    /// times its first size.
    pub fn memory_bytes_max(mut self, bytes: u64) -> Self {
        self.memory_bytes_max = Some(bytes);
        self
    }

    /// How much may be dirty: changed in memory and not yet on the SSD. Default: as much as can be
    /// flushed within the warning at the proven rate.
    pub fn budget(mut self, budget: BudgetWish) -> Self {
        self.budget = budget;
        self
    }

    /// Time from the warning (SIGTERM, a UPS, a notice) to the loss. The budget is refused if its
    /// flush takes longer. Default: 30 s.
    pub fn warning(mut self, warning: Duration) -> Self {
        self.warning = warning;
        self
    }

    /// Part of the warning that is kept back for all but the writing. Default: a tenth of the
    /// warning, at least 50 ms and at most 2 s.
    pub fn reserve(mut self, reserve: Duration) -> Self {
        self.reserve = Some(reserve);
        self
    }

    /// When a change is durable. Default: [`Durability::Warned`] with a holder or a guard, because
    /// it keeps what a killed process leaves; [`Durability::Fsync`] without one.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// Time between checkpoints, to which an unwarned loss goes back; `None`: only when the log
    /// needs the space, and when the program asks. Default: 1 s.
    pub fn checkpoint_every(mut self, every: Option<Duration>) -> Self {
        self.checkpoint_every = every;
        self
    }

    /// Which dirty data are written to the SSD first. Default: [`PolicyKind::ClockPro`].
    pub fn policy(mut self, policy: PolicyKind) -> Self {
        self.policy = policy;
        self
    }

    /// Whether cleaning and checkpoints compress what they write. Default: [`Compression::Off`].
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// Encrypts the image on the SSD (AES-256-GCM), as `perdura serve --key-file` does. The key is
    /// chosen when the image is made, and needed at every opening: without it nobody has the data,
    /// so keep a copy where the SSD is not. Memory itself is not encrypted, so
    /// [`Options::memory_dir`] is refused beside a key. Default: no encryption.
    ///
    /// ```
    /// use perdura::{Key, Options, Store};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let dir = dir.path().join("data");
    /// # let bytes_of_my_vault = [7; 32];
    /// let options = Options::new().memory_bytes(16 << 20).key(Key::new(bytes_of_my_vault));
    /// let store = Store::open_with(&dir, &options)?;
    /// store.set("card", "4000 1234 5678 9010")?;
    /// store.close()?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn key(mut self, key: Key) -> Self {
        self.key = Some(key);
        self
    }

    /// A second process that keeps the memory when this one is killed. Default: none.
    pub fn holder(mut self, holder: Holder) -> Self {
        self.holder = Some(holder);
        self
    }

    /// The socket of a guard (`perdura guard`), which keeps the memory in the place of a holder.
    /// Two threads of this library do what it says: they keep to this program's share of a battery,
    /// let changes wait while the power is low or the guard is gone, and at the end of the power
    /// close what is open; every later change is refused. Default: none.
    ///
    /// ```no_run
    /// use perdura::{Options, Store};
    ///
    /// let options = Options::new().guard("/run/perdura-guard/guard.sock");
    /// let store = Store::open_with("data", &options)?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn guard(mut self, socket: impl Into<PathBuf>) -> Self {
        self.guard = Some(socket.into());
        self
    }

    /// With a guard: time for which the power must be back before changes go on and the whole
    /// budget may be used. Default: 10 s.
    pub fn power_settle(mut self, settle: Duration) -> Self {
        self.power_settle = settle;
        self
    }

    /// Time that a holder or guard whose program is gone waits for another before it flushes and
    /// lets the memory go. Nothing is lost when it is over. Default: 10 minutes.
    pub fn holder_wait(mut self, wait: Duration) -> Self {
        self.holder_wait = wait;
        self
    }

    /// Directory of a file system for the memory, which then outlives every process: in `/dev/shm`,
    /// or on persistent memory (DAX), where it may outlive the kernel, too. Default: the memory is
    /// gone with the last process that has it.
    pub fn memory_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.memory_dir = Some(dir.into());
        self
    }

    /// Threads of a flush, at least 1. The flush rate is proven with as many. Default: the
    /// machine's processors, at most 4.
    pub fn flush_threads(mut self, threads: usize) -> Self {
        self.flush_threads = threads;
        self
    }

    /// Measures the flush rate again although a rate is on record. Default: no.
    pub fn prove_again(mut self, again: bool) -> Self {
        self.prove_again = again;
        self
    }

    /// Called with (bytes done, bytes in all) while the flush rate is measured: by the first
    /// opening of a directory, and by later ones that need a larger budget. Default: nobody is
    /// told.
    ///
    /// ```
    /// use perdura::Options;
    ///
    /// let options = Options::new().on_progress(|done, of| eprintln!("{done} of {of} bytes"));
    /// # drop(options);
    /// ```
    pub fn on_progress(mut self, progress: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(progress));
        self
    }

    /// The size asked for, if one was.
    pub(crate) fn asked_bytes(&self) -> Option<u64> {
        self.memory_bytes
    }

    /// The durability that was chosen, or the default.
    pub(crate) fn chosen_durability(&self) -> Durability {
        let is_held = self.holder.is_some() || self.guard.is_some();
        self.durability.unwrap_or(if is_held { Durability::Warned } else { Durability::Fsync })
    }

    /// Refuses [`Durability::Fsync`] for plain stores, because nobody sees when a plain store is
    /// done.
    pub(crate) fn check_plain_stores(&self) -> Result<(), OpenError> {
        match self.durability {
            Some(Durability::Fsync) => Err(OpenError::Setting {
                name: "durability",
                value: "Durability::Fsync".into(),
                expected: "Durability::Warned where memory is changed by plain stores; commit() \
                           makes them durable",
            }),
            _ => Ok(()),
        }
    }

    /// Opens the directory, or makes it.
    pub(crate) fn open(&self, dir: &Path, tracking: TrackingKind) -> Result<Opened, OpenError> {
        if self.flush_threads == 0 {
            return Err(OpenError::Setting {
                name: "flush_threads",
                value: "0".into(),
                expected: "at least 1",
            });
        }
        if let (Some(_), Some(memory_dir)) = (&self.key, &self.memory_dir) {
            return Err(OpenError::Setting {
                name: "memory_dir",
                value: memory_dir.display().to_string(),
                expected: "none beside a key, because memory in files is not encrypted",
            });
        }
        let by = match (&self.holder, &self.guard) {
            (Some(_), Some(socket)) => {
                return Err(OpenError::Setting {
                    name: "guard",
                    value: socket.display().to_string(),
                    expected: "no holder beside a guard, which keeps the memory itself",
                });
            }
            (Some(holder), None) => Some(HeldBy::Holder(holder.program_to_start())),
            (None, Some(socket)) => Some(HeldBy::Guard(socket.clone())),
            (None, None) => None,
        };
        let heard = self.guard.clone().map(Heard::new).transpose()?;
        let memory_bytes = self.memory_bytes.unwrap_or(match directory::has_image(dir) {
            // The smallest request never shrinks an image that is there.
            true => perdura_region::REGION_MIN_BYTES,
            false => MEMORY_BYTES,
        });
        let mut config = Config::new(memory_bytes, 0);
        config.reserved_bytes = self.memory_bytes_max;
        config.checkpoint_every = self.checkpoint_every;
        config.policy = self.policy;
        config.compression = self.compression;
        config.key = self.key.clone();
        config.tracking = tracking;
        let settings = Settings {
            dir: dir.to_owned(),
            config,
            wish: self.budget,
            warning: self.warning,
            reserve: self.reserve,
            engine: Engine::Auto,
            direct: Direct::Auto,
            threads: self.flush_threads,
            holder: by,
            holder_wait: Some(self.holder_wait),
            memory_dir: self.memory_dir.clone(),
            prove_again: self.prove_again,
        };
        let clock = Arc::new(RealClock);
        let progress = |done, of| {
            if let Some(progress) = &self.progress {
                progress(done, of);
            }
        };
        let mut opened = Directory::open(settings, clock, &progress)?;
        let following = heard.zip(opened.supervisor.as_mut()).map(|(heard, supervisor)| {
            let keeper = Keeper::new(opened.terms, opened.promise.budget_bytes);
            heard.listen(supervisor, keeper, self.power_settle)
        });
        let holders = Holders::watch(opened.supervisor, opened.link)?;
        let closing =
            Arc::new(Closing::new(dir.to_owned(), holders, self.flush_threads, self.warning));
        let region = opened.region;
        Ok(Opened { region, promise: opened.promise, closing, following })
    }
}

/// An open directory, from which a [`Store`](crate::Store) or another public type is made.
pub(crate) struct Opened {
    pub region: perdura_region::Region,
    pub promise: perdura_region::Promise,
    pub closing: Arc<Closing>,
    /// The words of the directory's guard, if it has one;
    /// [`guarded::follow`](crate::guarded::follow) begins to do it.
    pub following: Option<Following>,
}
