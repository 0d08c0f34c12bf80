//! Which restore points are kept, and for how long the packs that they name.
//!
//! All points of the last hour are kept, of the last day the last point of each minute, then the
//! last of each hour, until their time is over. The newest is always kept. A pack goes when no kept
//! point can name it: it was named by the points from one time to another, and none of these is
//! left. Points that others have put are read before any pack is deleted.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::error::BackupError;
use crate::names::{self, PackId};
use crate::object::Seal;
use crate::point;
use crate::points::{PointName, list};
use crate::ship::{Planted, Shipper};
use crate::vault::Vault;

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;
/// Age below which no pack is deleted: a point that is being made may name it.
const PACK_MS_MIN: u64 = HOUR_MS;

/// Deletes what a backup need not keep.
pub struct Retention {
    keep_ms: u64,
    planted: Planted,
    /// Times of the first and of the last point that named a pack.
    named: HashMap<PackId, (u64, u64)>,
    /// Names of the points of which `named` knows.
    known: HashSet<String>,
}

/// The numbers of points and packs that were deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Deleted {
    /// Restore points.
    pub points: u64,
    /// Packs.
    pub packs: u64,
}

impl Retention {
    /// Points are kept for this time.
    pub fn new(keep: Duration, planted: Planted) -> Self {
        let keep_ms = u64::try_from(keep.as_millis()).unwrap_or(u64::MAX);
        Self { keep_ms, planted, named: HashMap::new(), known: HashSet::new() }
    }

    /// Notes what the newest point names. To be called after every point.
    pub fn note(&mut self, shipper: &Shipper<'_>) {
        if let (Some(newest), Some(name)) = (shipper.newest(), shipper.newest_name())
            && self.known.insert(name.to_owned())
        {
            note(&mut self.named, newest.unix_ms, shipper.packs().keys().copied());
        }
    }

    /// Deletes points whose time is over, then packs that no kept point names.
    ///
    /// # Errors
    /// The vault fails, or another program has taken over, or a kept point cannot be read: then no
    /// pack is deleted.
    pub fn tidy(
        &mut self,
        vault: &dyn Vault,
        seal: &Seal,
        image_id: u64,
        shipper: &Shipper<'_>,
        now_unix_ms: u64,
    ) -> Result<Deleted, BackupError> {
        shipper.check_writer()?;
        let points = list(vault, Some(image_id))?;
        let kept = kept(&points, now_unix_ms, self.keep_ms);
        let mut deleted = Deleted::default();
        for point in points.iter().filter(|point| !kept.contains(point.as_str())) {
            vault.delete(point.as_str())?;
            deleted.points += 1;
        }
        self.known.retain(|name| kept.contains(name));
        for name in &kept {
            if !self.known.contains(name) {
                let point = point::get(vault, seal, name)?;
                note(&mut self.named, point.commit.unix_ms, point.packs.keys().copied());
                self.known.insert(name.clone());
            }
        }
        let mut times: Vec<u64> =
            points.iter().filter(|p| kept.contains(p.as_str())).map(|p| p.unix_ms).collect();
        times.sort_unstable();
        let is_needed = |first: u64, last: u64| {
            let after = times.partition_point(|time| *time < first);
            times.get(after).is_some_and(|time| *time <= last)
        };
        for listed in vault.list(&names::packs_folder(image_id))?.objects {
            let Some(id) = PackId::parse(&listed.name) else { continue };
            let is_young = id.unix_ms.saturating_add(PACK_MS_MIN) > now_unix_ms;
            let is_named =
                self.named.get(&id).is_some_and(|(first, last)| is_needed(*first, *last));
            let is_kept = shipper.packs().contains_key(&id) || is_named;
            if is_young || is_kept && self.planted != Planted::DeleteNeeded {
                continue;
            }
            vault.delete(&listed.name)?;
            self.named.remove(&id);
            deleted.packs += 1;
        }
        Ok(deleted)
    }
}

fn note(
    named: &mut HashMap<PackId, (u64, u64)>,
    unix_ms: u64,
    packs: impl Iterator<Item = PackId>,
) {
    for pack in packs {
        let (first, last) = named.entry(pack).or_insert((unix_ms, unix_ms));
        (*first, *last) = ((*first).min(unix_ms), (*last).max(unix_ms));
    }
}

/// The names of the points that are kept, of all, which are sorted by time.
fn kept(points: &[PointName], now_unix_ms: u64, keep_ms: u64) -> HashSet<String> {
    let mut kept = HashSet::new();
    let mut slot_before = None;
    // From the newest on, so that of each minute or hour the last is kept.
    for point in points.iter().rev() {
        let age_ms = now_unix_ms.saturating_sub(point.unix_ms);
        let slot_ms = match age_ms {
            0..HOUR_MS => 1,
            HOUR_MS..DAY_MS => MINUTE_MS,
            _ => HOUR_MS,
        };
        let slot = (slot_ms, point.unix_ms / slot_ms);
        let is_first = slot_before.replace(slot) != Some(slot) || slot_ms == 1;
        if kept.is_empty() || is_first && age_ms <= keep_ms {
            kept.insert(point.as_str().to_owned());
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_thin_out_with_age_and_the_newest_stays() {
        let now = 100 * DAY_MS;
        let name = |unix_ms| PointName::of(&names::new_point(7, unix_ms, 1)).unwrap();
        let count = |ages: &mut dyn Iterator<Item = u64>, keep| {
            let mut points: Vec<_> = ages.map(|age| name(now - age)).collect();
            points.sort_unstable();
            kept(&points, now, keep).len() as u64
        };
        let second = 1000;
        assert_eq!(count(&mut (0..3600).map(|n| n * second), DAY_MS), 3600);
        let of_an_hour = count(&mut (3600..7200).map(|n| n * second), DAY_MS);
        assert!((60..=62).contains(&of_an_hour), "{of_an_hour}");
        let of_two_days = count(&mut (1440..4320).map(|n| n * MINUTE_MS), 7 * DAY_MS);
        assert!((48..=50).contains(&of_two_days), "{of_two_days}");
        assert_eq!(count(&mut [8 * DAY_MS, 9 * DAY_MS].into_iter(), 7 * DAY_MS), 1);
        assert_eq!(count(&mut [0, 8 * DAY_MS].into_iter(), 7 * DAY_MS), 1);
    }
}
