//! A region in a directory, as programs open it: with its image, its proven rate and its holder.
//!
//! ```text
//! DIR/image.perdura   the image, locked while somebody uses or holds it
//! DIR/heat.perdura    which blocks were hot when the last run ended
//! DIR/memory          link to memory and ledger, if they are files (Settings::memory_dir)
//! DIR/rate.toml       the proven flush rate, and how it was measured
//! DIR/holder.sock     the holder, while there is one
//! ```

mod error;
mod find;
mod heat;
mod kept;
mod made;
mod promise;
mod rate;
mod settings;

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use perdura_dirty::geometry::BUDGET_MIN_BYTES;
use perdura_dirty::promise::{Promise, Terms};
use perdura_image::OpenError;
use perdura_media::file::Kernel;
use perdura_media::{Clock, FileDevice};

use crate::holder::{HeldBy, Link, LinkError, Supervisor, Voice};
use crate::region::Region;
use find::{Found, Keeper, find};
use made::{Made, create_dir};
use promise::{Room, make_promise};
use rate::{RATE_NAME, proven_rate};

/// Time within which a guard must have taken back what a new region needs to begin, nanoseconds.
const TIME_IS_LENT_FOR_NS: u64 = 10_000_000_000;
/// Time between two such requests, nanoseconds.
const ASK_AGAIN_NS: u64 = 50_000_000;

pub use error::DirectoryError;
pub use find::{IMAGE_NAME, has_image};
pub use kept::{LeftInFiles, left_in_files, place_of as memory_files_of};
pub use rate::RateRecord;
pub use settings::{HOLDER_WAIT, Settings};

/// An opened directory.
pub struct Directory {
    /// The region, with the promise's budget in force.
    pub region: Region,
    /// Whether the memory that the last run left in files was used, and nothing was read.
    pub was_in_files: bool,
    /// The promise: how many bytes may be dirty, and how long a flush of them takes.
    pub promise: Promise,
    /// Whether the disk limits the budget, and not the warning.
    pub is_short_of_room: bool,
    /// The terms that the promise rests on.
    pub terms: Terms,
    /// The rate on record, and how it was measured.
    pub rate: RateRecord,
    /// The holder of this region and its restarts, or its guard, if [`Settings::holder`] asks for
    /// one.
    pub supervisor: Option<Supervisor>,
    /// The link to a holder of an earlier run, where [`Settings::holder`] asks for none. The holder
    /// takes an open link for a living server: keep it as long as the region, and say goodbye
    /// after the final flush.
    pub link: Option<Link>,
}

impl Directory {
    /// Opens the directory's region, or creates one. Measures the flush rate if none is on record;
    /// `progress` is then called with the bytes done and the bytes in all.
    ///
    /// # Errors
    /// A failed call removes the files and folders that it made.
    pub fn open(
        settings: Settings,
        clock: Arc<dyn Clock>,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Self, DirectoryError> {
        Claim::new(settings, clock)?.open(progress)
    }
}

/// Ends the use of a directory whose region was closed: everything is on the SSD, and no holder is
/// left. What fails is logged, because nothing can be lost by it.
pub fn end(region: &Region, dir: &Path) {
    heat::save(region, dir);
    if let Err(error) = kept::remove(dir) {
        tracing::error!(%error, "the files of the memory stay");
    }
}

/// A directory that no other process can open, because this one has its image or its memory, but
/// whose region is not opened yet. Dropping the claim removes the files and folders that it made.
pub struct Claim {
    settings: Settings,
    clock: Arc<dyn Clock>,
    found: Found,
    made: Made,
}

impl Claim {
    /// Claims the directory. A directory without an image gets an empty file for it, and a missing
    /// directory is made.
    ///
    /// # Errors
    /// Another process has the directory, or it cannot be used. A failed call removes the files and
    /// folders that it made.
    pub fn new(settings: Settings, clock: Arc<dyn Clock>) -> Result<Self, DirectoryError> {
        let mut made = Made::default();
        create_dir(&Kernel, &settings.dir, &mut made)?;
        let found = find(&settings, &settings.dir.join(IMAGE_NAME), &*clock, &mut made)?;
        Ok(Self { settings, clock, found, made })
    }

    /// Whether the directory has no image yet, so that [`Claim::open`] makes one.
    pub fn makes_image(&self) -> bool {
        self.made.image.is_some()
    }

    /// Opens the region, or creates it, as [`Directory::open`] does.
    ///
    /// # Errors
    /// A failed call removes the files and folders that it and the claim made.
    pub fn open(self, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<Directory, DirectoryError> {
        let Self { settings, clock, found, mut made } = self;
        let opened = open_found(&settings, &clock, found, progress, &mut made)?;
        made.keep();
        Ok(opened)
    }
}

fn open_found(
    settings: &Settings,
    clock: &Arc<dyn Clock>,
    found: Found,
    progress: &(dyn Fn(u64, u64) + Sync),
    made: &mut Made,
) -> Result<Directory, DirectoryError> {
    let dir = &settings.dir;
    let path = dir.join(IMAGE_NAME);
    let wrong = |source: OpenError| DirectoryError::Image { path: path.clone(), source };
    let mut config = settings.config.clone();
    config.budget_bytes = BUDGET_MIN_BYTES;
    config.heat = heat::read(dir);
    // Processes that make images in the same millisecond give them different identities.
    config.seed ^= u64::from(std::process::id());
    let (mut new_files, mut was_in_files) = (None, false);
    let (held, image, region) = match found {
        Found::Held(held, keeper) => {
            let image =
                FileDevice::from_fd(held.image, settings.engine).map_err(|e| wrong(e.into()))?;
            config.budget_bytes = held.used_bytes.max(BUDGET_MIN_BYTES);
            let device = Arc::new(image.clone());
            let region = Region::attach(held.memory, held.ledger, device, clock.clone(), config);
            (Some((held.link, keeper)), image, region.map_err(wrong)?)
        }
        Found::Image(image) => {
            let device = Arc::new(image.clone());
            let region = match kept::find(dir, &image)? {
                Some(kept) => {
                    was_in_files = true;
                    config.budget_bytes = kept.used_bytes.max(BUDGET_MIN_BYTES);
                    Region::attach(kept.memory, kept.ledger, device, clock.clone(), config)
                        .map_err(wrong)?
                }
                None => {
                    new_files = settings.memory_dir.as_deref();
                    config.memory_dir = settings.memory_dir.clone();
                    Region::open(device, clock.clone(), config).map_err(wrong)?
                }
            };
            (None, image, region)
        }
    };
    if made.image.is_some() && !dir.join(RATE_NAME).exists() {
        made.files.push(dir.join(RATE_NAME));
    }
    let room = Room::of(settings, &region, &image)?;
    let rate = proven_rate(settings, &region, &image, room, &**clock, progress)?;
    let (terms, promise) = make_promise(settings, &region, rate.rate_bytes_per_s, room)?;
    let is_short_of_room = room.limits(&promise);
    // A guard tells each of its servers how much of the promise may be used.
    if !matches!(settings.holder, Some(HeldBy::Guard(_))) {
        region.set_budget(promise.budget_bytes)?;
    }
    region.watch_rate(&terms)?;
    if let Some(memory_dir) = new_files {
        kept::publish(memory_dir, dir, &region, made)?;
    }
    let (supervisor, link) = match settings.holder.clone() {
        Some(by) => (
            Some(keep(&region, &image, settings, by, held, rate.rate_bytes_per_s, &**clock)?),
            None,
        ),
        None => (None, held.map(|(link, _)| link)),
    };
    Ok(Directory { region, was_in_files, promise, is_short_of_room, terms, rate, supervisor, link })
}

/// Lets the memory be held by `by`. One of the other kind that held it until now lets it go.
fn keep(
    region: &Region,
    image: &FileDevice,
    settings: &Settings,
    by: HeldBy,
    held: Option<(Link, Keeper)>,
    rate_bytes_per_s: u64,
    clock: &dyn Clock,
) -> Result<Supervisor, LinkError> {
    let copied = |source| LinkError::Io { what: "copy a descriptor".into(), source };
    let (memory, ledger) = region.fds();
    let (link, other) = match (held, &by) {
        (Some((link, Keeper::Holder)), HeldBy::Holder(_))
        | (Some((link, Keeper::Guard)), HeldBy::Guard(_)) => (Some(link), None),
        (other, _) => (None, other.map(|(link, _)| link)),
    };
    let mut supervisor = Supervisor {
        memory: memory.try_clone_to_owned().map_err(copied)?,
        ledger: ledger.try_clone_to_owned().map_err(copied)?,
        image: image.as_fd().try_clone_to_owned().map_err(copied)?,
        by,
        dir: settings.dir.clone(),
        threads: settings.threads,
        times: settings.times(),
        starter: None,
        link,
        listener: None,
        rate_bytes_per_s,
        voice: Voice::default(),
    };
    let until_ns = clock.now_ns() + TIME_IS_LENT_FOR_NS;
    loop {
        match supervisor.start() {
            Err(LinkError::Later { .. }) if clock.now_ns() < until_ns => {
                clock.sleep_ns(ASK_AGAIN_NS);
            }
            outcome => break outcome?,
        }
    }
    // The other one is told last, so that the memory is held at every instant.
    other.map_or(Ok(()), Link::goodbye)?;
    Ok(supervisor)
}
