//! A region in a directory: its image, its proven rate, its holder. What a program opens.
//!
//! ```text
//! DIR/image.perdura   the image, locked while somebody uses or holds it
//! DIR/rate.toml       the proven flush rate, and how it was measured
//! DIR/holder.sock     the holder, while there is one
//! ```

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use perdura_media::file::{Direct, Engine, OpenMode};
use perdura_media::{BLOCK_BYTES, Clock, Device, DeviceError, FileDevice};
use serde::{Deserialize, Serialize};

use crate::holder::{Held, HolderProgram, Link, LinkError, Supervisor, TakeOver, Times, take_over};
use crate::prove::Proof;
use crate::region::{Config, Region};
use crate::room;
use perdura_dirty::RegionError;
use perdura_dirty::geometry::BUDGET_MIN_BYTES;
use perdura_dirty::promise::{BudgetWish, Promise, PromiseError, Terms, default_reserve, promise};
use perdura_image::OpenError;

/// Name of the image in its directory.
pub const IMAGE_NAME: &str = "image.perdura";
const RATE_NAME: &str = "rate.toml";
/// Bytes of the first proof when the budget is not known before the rate is.
const FIRST_PROOF_BYTES: u64 = 256 << 20;
/// How long a lock without a holder that answers is waited for, nanoseconds; a holder that flushes
/// has its grace in addition.
const HOLDER_CHANGES_WITHIN_NS: u64 = 3_000_000_000;
const HOLDER_LOOK_AGAIN_NS: u64 = 20_000_000;

/// How long a holder waits for a server unless it is told otherwise: longer than a restart, an
/// upgrade or a reboot of a container takes, and no longer than somebody would wonder where the
/// memory of a machine has gone. Nothing is lost when it is over: the next start reads the image.
pub const HOLDER_WAIT: Duration = Duration::from_secs(10 * 60);

/// What to open and what to promise.
#[derive(Debug)]
pub struct Settings {
    /// The directory; created if missing.
    pub dir: PathBuf,
    /// Region, log and tracking; its budget is set here.
    pub config: Config,
    /// Where the budget comes from.
    pub wish: BudgetWish,
    /// Time between warning and cut.
    pub warning: Duration,
    /// Part of the warning kept back; `None`: [`default_reserve`].
    pub reserve: Option<Duration>,
    /// How the image is written.
    pub engine: Engine,
    /// Whether the page cache is bypassed.
    pub direct: Direct,
    /// Threads of a flush.
    pub threads: usize,
    /// The program to run as a holder. `None`: memory dies with this process.
    pub holder: Option<HolderProgram>,
    /// Time that a holder whose server is gone waits for another before it flushes and lets the
    /// memory go; `None`: without end.
    pub holder_wait: Option<Duration>,
    /// Measure the rate again even if one is on record.
    pub prove_again: bool,
}

/// Why the directory could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// Somebody else uses it.
    #[error(
        "{} is in use{}: end the process that uses it, or use another directory",
        dir.display(),
        pid.map(|pid| format!(" by process {pid}")).unwrap_or_default()
    )]
    InUse {
        /// The directory.
        dir: PathBuf,
        /// Who, if known.
        pid: Option<i32>,
    },
    /// The holder of an earlier run was found flushing, and did not end within its grace.
    #[error(
        "{}: the holder of an earlier run still flushes {used_bytes} bytes; gave up after {waited:?}",
        dir.display()
    )]
    StillFlushing {
        /// The directory.
        dir: PathBuf,
        /// How long it was waited for.
        waited: Duration,
        /// Bytes dirty when the flush began.
        used_bytes: u64,
    },
    /// A file or folder could not be used.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The image could not be used.
    #[error("{}: {source}", path.display())]
    Image {
        /// The image.
        path: PathBuf,
        /// Why.
        #[source]
        source: OpenError,
    },
    /// The rate on record is not readable.
    #[error("{}: {why}; delete it to measure again", path.display())]
    Rate {
        /// The record.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The holder could not be started or asked.
    #[error(transparent)]
    Holder(#[from] LinkError),
    /// The promise asked for cannot be kept.
    #[error(transparent)]
    Promise(#[from] PromiseError),
    /// The budget asked for does not fit the disk.
    #[error(
        "{}: a budget of {budget_bytes} bytes needs more room for the log than there is: at most \
         {largest_bytes} bytes may be dirty with the {free_bytes} bytes that are free there",
        dir.display()
    )]
    Room {
        /// The directory.
        dir: PathBuf,
        /// Asked for.
        budget_bytes: u64,
        /// What fits.
        largest_bytes: u64,
        /// What the image may grow by.
        free_bytes: u64,
    },
    /// The region refused while it was being set up.
    #[error(transparent)]
    Region(#[from] RegionError),
}

/// What is on record about the rate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateRecord {
    /// Conservative rate, bytes per second.
    pub rate_bytes_per_s: u64,
    /// Rate of the whole pass, bytes per second.
    pub mean_bytes_per_s: u64,
    /// Bytes written to measure it.
    pub bytes: u64,
    /// When, milliseconds since 1970.
    pub unix_ms: u64,
    /// How the device was driven.
    pub device: String,
    /// Threads.
    pub threads: usize,
}

/// An opened directory.
pub struct Directory {
    /// The region.
    pub region: Region,
    /// What is promised.
    pub promise: Promise,
    /// The disk, not the warning, decides how much may be dirty.
    pub is_short_of_room: bool,
    /// The terms that the promise rests on.
    pub terms: Terms,
    /// The rate on record.
    pub rate: RateRecord,
    /// Starts and replaces the holder, if one was asked for.
    pub supervisor: Option<Supervisor>,
    /// A holder that was found though none is wanted. It believes in a server as long as this
    /// lives: keep it as long as the region, and say goodbye after the final flush.
    pub link: Option<Link>,
}

impl Directory {
    /// Opens or creates; measures the rate if none is on record. `progress` is told (done, of)
    /// bytes of a measurement.
    pub fn open(
        settings: Settings,
        clock: Arc<dyn Clock>,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Self, DirectoryError> {
        let mut made = Made::default();
        let opened = Self::open_noting(settings, clock, progress, &mut made);
        if opened.is_err() {
            made.remove();
        }
        opened
    }

    fn open_noting(
        settings: Settings,
        clock: Arc<dyn Clock>,
        progress: &(dyn Fn(u64, u64) + Sync),
        made: &mut Made,
    ) -> Result<Self, DirectoryError> {
        let dir = &settings.dir;
        create_dir(dir, made)?;
        let path = dir.join(IMAGE_NAME);
        let wrong = |source: OpenError| DirectoryError::Image { path: path.clone(), source };
        let mut config = settings.config.clone();
        config.budget_bytes = BUDGET_MIN_BYTES;
        let found = find(&settings, &path, &*clock, made)?;
        let (holder, image, region) = match found {
            Found::Held(held) => {
                let image = FileDevice::from_fd(held.image, settings.engine)
                    .map_err(|e| wrong(e.into()))?;
                config.budget_bytes = held.used_bytes.max(BUDGET_MIN_BYTES);
                let device = Arc::new(image.clone());
                let region =
                    Region::attach(held.memory, held.ledger, device, clock.clone(), config);
                (Some(held.link), image, region.map_err(wrong)?)
            }
            Found::Image(image) => {
                let region = Region::open(Arc::new(image.clone()), clock.clone(), config);
                (None, image, region.map_err(wrong)?)
            }
        };
        if made.image.is_some() && !dir.join(RATE_NAME).exists() {
            made.files.push(dir.join(RATE_NAME));
        }
        let room = Room::of(&settings, &region, &image)?;
        let rate = proven_rate(&settings, &region, &image, room, &*clock, progress)?;
        let (terms, promise) = make_promise(&settings, &region, &rate, room)?;
        let is_short_of_room = promise.budget_bytes == room.budget_bytes_max
            && room.budget_bytes_max < region.len_bytes();
        region.set_budget(promise.budget_bytes)?;
        region.watch_rate(&terms)?;
        let (supervisor, link) = match settings.holder.clone() {
            Some(program) => {
                (Some(keep(&region, &image, &settings, program, holder, &*clock)?), None)
            }
            None => (None, holder),
        };
        Ok(Self { region, promise, is_short_of_room, terms, rate, supervisor, link })
    }
}

fn times(settings: &Settings) -> Times {
    Times { grace: settings.warning, wait: settings.holder_wait }
}

fn keep(
    region: &Region,
    image: &FileDevice,
    settings: &Settings,
    program: HolderProgram,
    link: Option<Link>,
    clock: &dyn Clock,
) -> Result<Supervisor, LinkError> {
    let copied = |source| LinkError::Io { what: "copy a descriptor".into(), source };
    let (memory, ledger) = region.fds();
    let mut supervisor = Supervisor {
        memory: memory.try_clone_to_owned().map_err(copied)?,
        ledger: ledger.try_clone_to_owned().map_err(copied)?,
        image: image.as_fd().try_clone_to_owned().map_err(copied)?,
        program,
        dir: settings.dir.clone(),
        threads: settings.threads,
        times: times(settings),
        link,
    };
    supervisor.start(clock)?;
    Ok(supervisor)
}

/// Whether the directory holds an image.
pub fn has_image(dir: &Path) -> bool {
    dir.join(IMAGE_NAME).exists()
}

/// What a call has made that was not there before. A call that fails leaves things as they were:
/// nothing can have been stored in what it made.
#[derive(Default)]
struct Made {
    /// The innermost last.
    dirs: Vec<PathBuf>,
    files: Vec<PathBuf>,
    /// Keeps the image's lock until its name is gone: whoever waits for the lock looks for the name
    /// then.
    image: Option<FileDevice>,
}

impl Made {
    /// Best effort: the error that is returned matters more than what is left over.
    fn remove(self) {
        for file in &self.files {
            let _ = std::fs::remove_file(file);
        }
        for dir in self.dirs.iter().rev() {
            let _ = std::fs::remove_dir(dir);
        }
    }
}

/// Creates it with the folders above it, each named durably: the image makes durable its own name
/// only.
fn create_dir(dir: &Path, made: &mut Made) -> Result<(), DirectoryError> {
    use std::os::unix::fs::DirBuilderExt;
    if dir.is_dir() {
        return Ok(());
    }
    let above = match dir.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    create_dir(above, made)?;
    match std::fs::DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => made.dirs.push(dir.to_owned()),
        // Somebody else was first.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
        Err(source) => return Err(DirectoryError::File { path: dir.to_owned(), source }),
    }
    File::open(above)
        .and_then(|above| above.sync_all())
        .map_err(|source| DirectoryError::File { path: dir.to_owned(), source })
}

/// What there is to go on with.
enum Found {
    /// A holder gave up what a server left.
    Held(Held),
    /// The image, ours alone.
    Image(FileDevice),
}

/// Asks for a holder, then for the image's lock. A lock without a holder that answers may be a
/// holder that is only starting, or ending: that is waited for.
fn find(
    settings: &Settings,
    path: &Path,
    clock: &dyn Clock,
    made: &mut Made,
) -> Result<Found, DirectoryError> {
    let dir = &settings.dir;
    let began_ns = clock.now_ns();
    let mut until_ns = began_ns + HOLDER_CHANGES_WITHIN_NS;
    let mut flushing_bytes = None;
    loop {
        match take_over(dir, times(settings)) {
            Ok(TakeOver::Held(held)) => return Ok(Found::Held(held)),
            Ok(TakeOver::Nobody | TakeOver::Unanswered) => {}
            Ok(TakeOver::Flushing { grace, used_bytes }) => {
                if flushing_bytes.replace(used_bytes).is_none() {
                    let within_ns = u64::try_from(grace.as_nanos()).unwrap_or(u64::MAX);
                    until_ns = until_ns.saturating_add(within_ns);
                    tracing::warn!(
                        used_bytes,
                        ?grace,
                        "the holder of an earlier run is flushing; waiting for it, its grace at most"
                    );
                }
                if clock.now_ns() <= until_ns {
                    clock.sleep_ns(HOLDER_LOOK_AGAIN_NS);
                    continue;
                }
            }
            Err(LinkError::Busy { pid }) => {
                return Err(DirectoryError::InUse { dir: dir.clone(), pid: Some(pid) });
            }
            Err(error) => return Err(error.into()),
        }
        if let Some(image) = open_image(path, settings, made)? {
            return Ok(Found::Image(image));
        }
        let now_ns = clock.now_ns();
        if now_ns > until_ns {
            let dir = dir.clone();
            let waited = Duration::from_nanos(now_ns - began_ns);
            return Err(match flushing_bytes {
                Some(used_bytes) => DirectoryError::StillFlushing { dir, waited, used_bytes },
                None => DirectoryError::InUse { dir, pid: None },
            });
        }
        clock.sleep_ns(HOLDER_LOOK_AGAIN_NS);
    }
}

/// `None`: somebody has the lock, or took the file away.
fn open_image(
    path: &Path,
    settings: &Settings,
    made: &mut Made,
) -> Result<Option<FileDevice>, DirectoryError> {
    let file = |source| DirectoryError::File { path: path.to_owned(), source };
    let exists = path.try_exists().map_err(file)?;
    let mode = match exists {
        true => OpenMode::Existing,
        false => OpenMode::Create { capacity_bytes: 0 },
    };
    let image = FileDevice::open(path, mode, settings.engine, settings.direct)
        .map_err(|source| DirectoryError::Image { path: path.to_owned(), source: source.into() })?;
    if !own_image(path, &image)? {
        return Ok(None);
    }
    if !exists {
        made.files.push(path.to_owned());
        made.image = Some(image.clone());
    }
    Ok(Some(image))
}

/// Locks an opened image. False: somebody else has it, or had it between opening and locking.
fn own_image(path: &Path, image: &FileDevice) -> Result<bool, DirectoryError> {
    let wrong = |source: DeviceError| DirectoryError::Image {
        path: path.to_owned(),
        source: source.into(),
    };
    let file = |source| DirectoryError::File { path: path.to_owned(), source };
    if !image.try_lock().map_err(wrong)? {
        return Ok(false);
    }
    // A failed creation removes its file before it lets go of the lock: this may be that file.
    let ours = rustix::fs::fstat(image).map_err(|errno| file(errno.into()))?;
    let named = match rustix::fs::stat(path) {
        Ok(named) => named,
        Err(rustix::io::Errno::NOENT) => return Ok(false),
        Err(errno) => return Err(file(errno.into())),
    };
    // One that was empty when it was opened may hold an image by now, which must not be taken for a
    // new file, or a larger one. (What a block device holds does not show in its size.)
    let capacity_bytes = ours.st_size as u64 / BLOCK_BYTES * BLOCK_BYTES;
    Ok((ours.st_dev, ours.st_ino) == (named.st_dev, named.st_ino)
        && (capacity_bytes == 0 || capacity_bytes == image.capacity_bytes()))
}

/// What the disk lets an image grow to.
#[derive(Debug, Clone, Copy)]
struct Room {
    /// Most that may be dirty, by the log that there is room for.
    budget_bytes_max: u64,
    /// What the image may grow by.
    free_bytes: u64,
}

impl Room {
    fn of(
        settings: &Settings,
        region: &Region,
        image: &FileDevice,
    ) -> Result<Self, DirectoryError> {
        let free_bytes = room::growth_bytes(image).map_err(|source| DirectoryError::File {
            path: settings.dir.join(IMAGE_NAME),
            source,
        })?;
        let room_bytes = image.capacity_bytes().saturating_add(free_bytes);
        let log_percent = settings.config.log_percent;
        let found =
            room::largest_budget(region.geometry(), log_percent, region.len_bytes(), room_bytes);
        // The log is as it is, and small budgets need next to nothing of it.
        Ok(Self { budget_bytes_max: found.unwrap_or(BUDGET_MIN_BYTES), free_bytes })
    }
}

fn proven_rate(
    settings: &Settings,
    region: &Region,
    image: &FileDevice,
    room: Room,
    clock: &dyn Clock,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<RateRecord, DirectoryError> {
    let path = settings.dir.join(RATE_NAME);
    let device = image.describe();
    let on_record = read_record(&path)?;
    let mut record = match (settings.prove_again, &on_record) {
        (false, Some(record)) if record.device == device && record.threads == settings.threads => {
            record.clone()
        }
        _ => prove(
            settings,
            region,
            &device,
            FIRST_PROOF_BYTES.min(region.len_bytes()).min(room.budget_bytes_max),
            clock,
            progress,
        )?,
    };
    // The budget follows from the rate, and the rate must have been measured with the budget's
    // bytes: once more with those, if they are more than the first measurement took.
    let (_, wanted) = make_promise(settings, region, &record, room)?;
    if wanted.budget_bytes > record.bytes {
        let larger = prove(settings, region, &device, wanted.budget_bytes, clock, progress)?;
        let slower = larger.rate_bytes_per_s.min(record.rate_bytes_per_s);
        record = RateRecord { rate_bytes_per_s: slower, ..larger };
    }
    // Not for nothing: a file system that is full by now must not keep an image from being opened.
    if on_record.as_ref() != Some(&record) {
        match write_record(&path, &record) {
            Err(DirectoryError::File { source, .. })
                if source.kind() == io::ErrorKind::StorageFull =>
            {
                tracing::warn!(%source, "the proven rate is not on record; it is measured again");
            }
            written => written?,
        }
    }
    Ok(record)
}

fn prove(
    settings: &Settings,
    region: &Region,
    device: &str,
    bytes: u64,
    clock: &dyn Clock,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<RateRecord, DirectoryError> {
    region.fit_log_for(bytes)?;
    let Proof { rate_bytes_per_s, mean_bytes_per_s, bytes, .. } =
        region.prove(bytes, settings.threads, &|done| progress(done, 2 * bytes))?;
    Ok(RateRecord {
        rate_bytes_per_s,
        mean_bytes_per_s,
        bytes,
        unix_ms: clock.unix_ms(),
        device: device.to_owned(),
        threads: settings.threads,
    })
}

fn make_promise(
    settings: &Settings,
    region: &Region,
    rate: &RateRecord,
    room: Room,
) -> Result<(Terms, Promise), DirectoryError> {
    let terms = Terms {
        warning: settings.warning,
        reserve: settings.reserve.unwrap_or_else(|| default_reserve(settings.warning)),
        rate_bytes_per_s: rate.rate_bytes_per_s,
        region_bytes: region.len_bytes(),
    };
    let made = promise(region.geometry(), &terms, settings.wish)?;
    if made.budget_bytes <= room.budget_bytes_max {
        return Ok((terms, made));
    }
    if settings.wish != BudgetWish::Derived {
        return Err(DirectoryError::Room {
            dir: settings.dir.clone(),
            budget_bytes: made.budget_bytes,
            largest_bytes: room.budget_bytes_max,
            free_bytes: room.free_bytes,
        });
    }
    let fits = BudgetWish::Bytes(room.budget_bytes_max);
    Ok((terms, promise(region.geometry(), &terms, fits)?))
}

fn read_record(path: &Path) -> Result<Option<RateRecord>, DirectoryError> {
    match std::fs::read_to_string(path) {
        Ok(text) => toml::from_str(&text).map(Some).map_err(|error| DirectoryError::Rate {
            path: path.to_owned(),
            why: error.message().to_owned(),
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(DirectoryError::File { path: path.to_owned(), source }),
    }
}

fn write_record(path: &Path, record: &RateRecord) -> Result<(), DirectoryError> {
    let file = |source| DirectoryError::File { path: path.to_owned(), source };
    let text = toml::to_string(record)
        .map_err(|error| DirectoryError::Rate { path: path.to_owned(), why: error.to_string() })?;
    // A lost record is measured again, so the rename may be lost; a record that is there must be
    // whole. Without the sync a machine lost just afterwards comes back with the name and no bytes.
    let new = path.with_extension("toml.new");
    let mut unnamed = File::create(&new).map_err(file)?;
    unnamed.write_all(text.as_bytes()).and_then(|()| unnamed.sync_all()).map_err(file)?;
    std::fs::rename(&new, path).map_err(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_that_somebody_made_between_opening_and_locking_is_opened_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(IMAGE_NAME);
        let open = |mode| FileDevice::open(&path, mode, Engine::Auto, Direct::Auto).unwrap();
        let ours = open(OpenMode::Create { capacity_bytes: 0 });
        let theirs = open(OpenMode::Existing);
        assert!(own_image(&path, &theirs).unwrap());
        assert!(!own_image(&path, &ours).unwrap());
        theirs.grow(1 << 20).unwrap();
        drop(theirs);
        assert!(!own_image(&path, &ours).unwrap());
        drop(ours);
        assert!(own_image(&path, &open(OpenMode::Existing)).unwrap());
    }
}
