//! The shares of a guard's servers in one battery: what the guard sees of them, and what it tells
//! them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use perdura_media::battery::BatteryFile;
use perdura_media::{Clock, format_duration};
use perdura_region::holder::wire::{ImageFile, Message};
use perdura_region::{BUDGET_MIN_BYTES, default_reserve};
use perdura_warning::{Demand, Reading, Response};

use crate::battery::BatteryWatch;
use crate::held::Held;
use crate::shares::{Needs, Order, Refused, Shares, Use};

/// Time between two divisions while somebody writes, and so until a need is seen. Flush time that
/// is lent comes back one flush of it later, which is some 100 ms; the look must not be long beside
/// that.
const DIVIDE_EVERY: Duration = Duration::from_millis(10);
/// The same while nobody does: looks cost the processor 0.7 % at the pace above.
const DIVIDE_EVERY_IDLE: Duration = Duration::from_millis(50);
/// Time for which the guard's loop waits for a path to be found.
const FOUND_WITHIN: Duration = Duration::from_millis(100);
/// Most looks at paths that may be without an answer.
const FINDERS_MAX: usize = 8;
/// The least share: with less, writers of a slow device would wait for most of their time.
const LEAST: Duration = Duration::from_millis(10);

/// A battery, and who may have how much of it.
#[derive(Debug, Clone)]
pub struct Battery {
    /// Time between a warning and the loss of power. All regions together are flushed within it.
    pub grace: Duration,
    /// The battery whose state may shorten that time.
    pub file: Option<BatteryFile>,
    /// Turns what the sources of warnings say into the time that can be counted on.
    pub response: Response,
    /// What tenants are entitled to; the first that fits a region counts.
    pub tenants: Vec<Tenant>,
}

/// What the regions of a user, or below a directory, are entitled to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// Whose regions these are.
    pub whose: Whose,
    /// The flush time that a region gets whenever it uses it.
    pub reservation: Duration,
    /// The most flush time that a region gets; `None`: as much as its own warning.
    pub limit: Option<Duration>,
    /// Its part of what is beyond all reservations, relative to others; at least 1.
    pub weight: u32,
    /// Whether its programs are trusted to track their writes. Memory and ledger of one that is not
    /// may be changed behind the tracking, so all that its region may grow to counts as dirty at
    /// all times, until it is let go.
    pub is_trusted: bool,
}

/// Whose regions a [`Tenant`] is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whose {
    /// Those of a user.
    User(u32),
    /// Those whose image lies in this directory or below it.
    Directory(PathBuf),
    /// All.
    Anybody,
}

impl Whose {
    fn includes(&self, user: u32, image: &Path) -> bool {
        match self {
            Self::User(id) => *id == user,
            Self::Directory(dir) => image.starts_with(dir),
            Self::Anybody => true,
        }
    }
}

impl Tenant {
    /// Whether this is about a region; `None`: it is not known now. The path of its image is that
    /// of its server's mount namespace, in which any name may be had: it is proof for whoever is to
    /// get less by it, and for others only if the image is found there.
    fn includes(&self, held: &Held, image: &Path, finder: &Finder) -> Option<bool> {
        let by_path = matches!(self.whose, Whose::Directory(_));
        match self.whose.includes(held.owner, image) {
            true if by_path && self.is_trusted => finder.is_at(image, held.name),
            includes => Some(includes),
        }
    }
}

/// Looks for images at paths, each on a thread of its own: a guard waits for nobody's file system.
#[derive(Debug, Default)]
struct Finder {
    /// One for each thread, and this.
    threads: Arc<()>,
}

impl Finder {
    /// Whether an image is found at a path; `None`: there is no answer in time, or too many looks
    /// have none.
    fn is_at(&self, path: &Path, name: ImageFile) -> Option<bool> {
        if Arc::strong_count(&self.threads) > FINDERS_MAX {
            return None;
        }
        let (path, (tell, told)) = (path.to_owned(), channel());
        let thread = Arc::clone(&self.threads);
        let look = move || {
            let found = ImageFile::at(&path);
            drop(thread);
            // Nobody waits any more.
            let _ = tell.send(found);
        };
        std::thread::Builder::new().name("perdura-finds".into()).spawn(look).ok()?;
        let found = told.recv_timeout(FOUND_WITHIN).ok()?;
        Some(found.is_ok_and(|found| found == Some(name)))
    }
}

/// Entitles a region that nothing is said of.
const UNKNOWN: Tenant = Tenant {
    whose: Whose::Anybody,
    reservation: Duration::ZERO,
    limit: None,
    weight: 1,
    is_trusted: true,
};

impl Default for Tenant {
    fn default() -> Self {
        UNKNOWN
    }
}

/// The division of a battery among the regions that are held.
pub(crate) struct Tenancy {
    battery: Battery,
    shares: Shares<ImageFile>,
    seen: BTreeMap<ImageFile, Seen>,
    /// What each region is entitled to as long as it is held, wherever its image is moved.
    entitled: BTreeMap<ImageFile, Tenant>,
    finder: Finder,
    followed: Option<BatteryWatch>,
    /// The time that the sources of warnings leave.
    within: Duration,
    divided_ns: u64,
    /// Whether somebody had written at the last division.
    is_busy: bool,
    /// Whether to divide before the time, because some has come back.
    is_time: bool,
    worst_us: u64,
}

/// What was seen of a region the last time.
#[derive(Debug, Clone, Copy)]
struct Seen {
    progress: u64,
    used_bytes: u64,
    is_overdrawn: bool,
}

fn us(time: Duration) -> u64 {
    // Sums of a thousand of them are within the numbers.
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX).min(1 << 50)
}

/// The flush time of `bytes` of a region, microseconds.
fn flush_us(held: &Held, bytes: u64) -> u64 {
    us(held.attachment.flush_time(held.rate_bytes_per_s, bytes))
}

/// What a region may have dirty before the guard says more, microseconds: as much as its ledger
/// says, or, before a new server has opened it, the smallest budget that what is dirty allows.
fn allowed_us(held: &Held) -> u64 {
    let budget_bytes = match held.is_linked() && held.is_open {
        true => held.attachment.budget_bytes(),
        false => BUDGET_MIN_BYTES,
    };
    flush_us(held, held.attachment.used_bytes().max(budget_bytes))
}

impl Tenancy {
    pub(crate) fn new(battery: Battery, clock: &dyn Clock) -> Self {
        let file = battery.file.clone();
        let followed = file.map(|file| BatteryWatch::new(file, battery.grace, clock));
        let mut tenancy = Self {
            shares: Shares::new(0, us(LEAST)),
            followed,
            within: battery.grace,
            battery,
            seen: BTreeMap::new(),
            entitled: BTreeMap::new(),
            finder: Finder::default(),
            divided_ns: 0,
            is_busy: true,
            is_time: false,
            worst_us: 0,
        };
        tenancy.set_total();
        tenancy
    }

    /// Time between a warning and the loss of power, as it was at the start.
    pub(crate) fn grace(&self) -> Duration {
        self.battery.grace
    }

    /// Lets the shares be what the sources of warnings and the battery allow.
    fn set_total(&mut self) {
        let full = self.battery.grace;
        let lasts = self.followed.as_ref().map_or(full, BatteryWatch::time);
        let time = self.within.min(lasts).min(full);
        let reserve = default_reserve(time).min(default_reserve(full));
        self.shares.set_total(us(time.saturating_sub(reserve)));
    }

    /// Looks at the battery again, if there is one and it is time.
    pub(crate) fn follow(&mut self, clock: &dyn Clock) {
        let Some(time) = self.followed.as_mut().and_then(|battery| battery.look(clock)) else {
            return;
        };
        tracing::info!(time = %format_duration(time), "the battery lasts for another time");
        self.set_total();
    }

    /// What a region may have dirty, microseconds, before the guard says more, or for good if its
    /// server is gone.
    ///
    /// One that is not trusted has its whole region dirty after the death of its server, too. The
    /// guard cannot know that nobody writes any more: a child of the server, or whoever was sent
    /// its descriptors, may have memory and ledger mapped, and the kernel names no such process for
    /// certain. So neither what the ledger says is dirty nor what it says of the region's size is
    /// proof of anything, and a flush obeys both. Only when the region is flushed and let go, and
    /// nothing in it is flushed any more, does its time come back.
    fn charged_us(&self, held: &Held) -> u64 {
        match self.tenant(held).is_trusted {
            true => allowed_us(held),
            false => allowed_us(held).max(self.needs(held).minimum_us),
        }
    }

    /// Finds out what a region is entitled to, unless that is known.
    fn entitle(&mut self, held: &Held) {
        if !self.entitled.contains_key(&held.name) {
            let image = PathBuf::from(held.path());
            for tenant in &self.battery.tenants {
                match tenant.includes(held, &image, &self.finder) {
                    Some(false) => {}
                    Some(true) => {
                        self.entitled.insert(held.name, tenant.clone());
                        return;
                    }
                    // Asked again at the next occasion; nothing is said of it until then.
                    None => return,
                }
            }
            self.entitled.insert(held.name, UNKNOWN);
        }
    }

    /// Distrusts a region as a guard before this one has, wherever its image lies by now.
    pub(crate) fn distrust(&mut self, held: &Held) {
        self.entitle(held);
        self.entitled.entry(held.name).or_insert(UNKNOWN).is_trusted = false;
    }

    /// Whether the programs of a region's tenant are trusted.
    pub(crate) fn is_trusted(&self, name: ImageFile) -> bool {
        self.entitled.get(&name).is_none_or(|tenant| tenant.is_trusted)
    }

    fn tenant(&self, held: &Held) -> &Tenant {
        self.entitled.get(&held.name).unwrap_or(&UNKNOWN)
    }

    fn needs(&self, held: &Held) -> Needs {
        let tenant = self.tenant(held);
        let minimum_us = flush_us(held, BUDGET_MIN_BYTES).max(us(LEAST));
        if !tenant.is_trusted {
            let whole_us = flush_us(held, held.attachment.reserved_bytes()).max(minimum_us);
            return Needs {
                minimum_us: whole_us,
                reservation_us: whole_us,
                limit_us: whole_us,
                weight: tenant.weight,
            };
        }
        Needs {
            minimum_us,
            reservation_us: us(tenant.reservation),
            limit_us: us(tenant.limit.unwrap_or(held.times.grace).min(held.times.grace)),
            weight: tenant.weight,
        }
    }

    /// Admits a region that comes with a server.
    pub(crate) fn admit(&mut self, held: &Held) -> Result<(), Message> {
        self.entitle(held);
        let admitted = self.admit_entitled(held);
        if admitted.is_err() {
            self.entitled.remove(&held.name);
        }
        admitted
    }

    fn admit_entitled(&mut self, held: &Held) -> Result<(), Message> {
        let needs = self.needs(held);
        let had_us = self.charged_us(held).max(needs.minimum_us);
        let failed = |why| Message::Failed { why };
        match self.shares.admit(held.name, needs, had_us) {
            Ok(()) => {}
            // It was held before this guard, and its data are there.
            Err(_) if self.shares.granted_us(held.name).is_some() => {
                self.shares.settle(held.name, needs, had_us);
            }
            Err(Refused::TooMuch { asked_us, left_us }) => {
                return Err(failed(format!(
                    "it is entitled to {} of the battery's flush time, and {} are left beside what \
                     the others are entitled to",
                    ms(asked_us),
                    ms(left_us)
                )));
            }
            Err(Refused::Lent { asked_us, free_us }) => {
                return Err(Message::Later {
                    why: format!("{} are needed, and {} are free", ms(asked_us), ms(free_us)),
                });
            }
        }
        self.see(held);
        Ok(())
    }

    /// Whether a region with its present rate fits beside what the others are entitled to.
    pub(crate) fn fits(&self, held: &Held) -> bool {
        self.shares.check_entitled(held.name, self.needs(held)).is_ok()
    }

    /// Reckons with a region that is there, whatever it is entitled to: one that a guard before
    /// this one held, or one that a new server has opened.
    pub(crate) fn settle(&mut self, held: &Held, granted_us: u64) {
        self.entitle(held);
        let had_us = granted_us.max(self.charged_us(held));
        self.shares.settle(held.name, self.needs(held), had_us);
        self.see(held);
        if !held.is_linked() {
            self.lose(held);
        }
    }

    /// Notes that a region's server is gone.
    pub(crate) fn lose(&mut self, held: &Held) {
        self.shares.lose(held.name, self.charged_us(held));
    }

    /// Notes that a region is let go.
    pub(crate) fn leave(&mut self, name: ImageFile) {
        self.shares.leave(name);
        self.seen.remove(&name);
        self.entitled.remove(&name);
    }

    /// Notes that a server keeps to an order. Whoever waits for that time gets it at once.
    pub(crate) fn confirm(&mut self, name: ImageFile, serial: u64) {
        self.shares.confirm(name, serial);
        self.is_time = true;
    }

    /// What a region may have in force, microseconds.
    pub(crate) fn granted_us(&self, name: ImageFile) -> u64 {
        self.shares.granted_us(name).unwrap_or(0)
    }

    /// Follows what the sources of warnings say: a battery that lasts for less time has less to
    /// share.
    pub(crate) fn heed(&mut self, reading: &Reading, now_ns: u64) {
        self.within = match self.battery.response.heed(reading, now_ns) {
            None => return,
            Some(Demand::Promise) => self.battery.grace,
            Some(Demand::Within(time)) => time.0,
            // Every server saves all, by itself.
            Some(Demand::Clean | Demand::End) => return,
        };
        self.set_total();
    }

    /// Time between two divisions.
    pub(crate) fn divide_every(&self) -> Duration {
        if self.is_busy { DIVIDE_EVERY } else { DIVIDE_EVERY_IDLE }
    }

    /// Looks at all regions, and divides the battery anew if it is time. Returns the orders to
    /// give.
    pub(crate) fn divide(&mut self, held: &[Held], clock: &dyn Clock) -> Vec<(ImageFile, Order)> {
        let now_ns = clock.now_ns();
        let since_ns = u128::from(now_ns.saturating_sub(self.divided_ns));
        if !std::mem::take(&mut self.is_time) && since_ns < self.divide_every().as_nanos() {
            return Vec::new();
        }
        self.divided_ns = now_ns;
        self.is_busy = false;
        for held in held {
            let seen = self.see(held);
            self.is_busy |= seen.is_active;
            self.shares.observe(held.name, seen, now_ns);
        }
        self.worst_us = self.worst_us.max(self.dirty_us(held));
        self.shares.divide(now_ns)
    }

    /// What is seen of a region now, compared with the last time.
    fn see(&mut self, held: &Held) -> Use {
        let attachment = &held.attachment;
        let (used_bytes, budget_bytes) = (attachment.used_bytes(), attachment.budget_bytes());
        let progress = attachment.progress();
        let before = self.seen.get(&held.name).copied();
        let is_cleaning = before.is_some_and(|before| before.progress != progress);
        let has_written = before.is_some_and(|before| before.used_bytes < used_bytes);
        let granted_us = self.granted_us(held.name);
        let is_overdrawn = held.is_linked() && allowed_us(held) > granted_us + us(LEAST);
        if is_overdrawn && !before.is_some_and(|before| before.is_overdrawn) {
            tracing::error!(
                image = %held.path(),
                pid = held.server.pid,
                allows = %ms(allowed_us(held)),
                share = %ms(granted_us),
                "a server allows more to be dirty than its share; it is reckoned with, and others \
                 get less"
            );
        }
        if is_overdrawn {
            self.shares.overdraw(held.name, allowed_us(held));
        }
        self.seen.insert(held.name, Seen { progress, used_bytes, is_overdrawn });
        Use {
            used_us: flush_us(held, used_bytes),
            is_pressed: is_cleaning && used_bytes >= budget_bytes / 4 * 3,
            is_active: is_cleaning || has_written,
        }
    }

    /// The flush time of everything that counts as dirty, microseconds.
    fn dirty_us(&self, held: &[Held]) -> u64 {
        let of_one = |held: &Held| match self.tenant(held).is_trusted {
            true => flush_us(held, held.attachment.used_bytes()),
            false => self.needs(held).minimum_us,
        };
        held.iter().map(of_one).sum()
    }

    /// What an operator is told of the battery.
    pub(crate) fn describe(&self, held: &[Held]) -> Message {
        Message::Battery {
            total_us: self.shares.total_us(),
            debt_us: self.shares.debt_us(),
            dirty_us: self.dirty_us(held),
            worst_us: self.worst_us.max(self.dirty_us(held)),
        }
    }
}

/// Flush time for people.
fn ms(us: u64) -> String {
    format!("{:.1} ms", us as f64 / 1e3)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test's own failure
mod tests {
    use super::*;

    #[test]
    fn an_image_is_found_where_it_is_and_looks_without_an_answer_are_few() {
        let dir = tempfile::tempdir().unwrap();
        let (image, other) = (dir.path().join("image"), dir.path().join("other"));
        let names = [&image, &other].map(|path| {
            std::fs::write(path, "").unwrap();
            ImageFile::at(path).unwrap().unwrap()
        });
        let finder = Finder::default();
        let find = |path: &Path, name| loop {
            // A busy machine may not answer in time.
            if let Some(found) = finder.is_at(path, name) {
                break found;
            }
        };
        assert!(find(&image, names[0]) && !find(&image, names[1]));
        assert!(!find(&dir.path().join("none"), names[0]));
        // As if their file system did not answer.
        let _looks = [(); FINDERS_MAX].map(|()| Arc::clone(&finder.threads));
        assert_eq!(finder.is_at(&image, names[0]), None);
    }
}
