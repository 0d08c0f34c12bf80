//! The proven flush rate of a directory's device: read from its record, or measured.

use std::io::ErrorKind::{NotFound, QuotaExceeded, StorageFull};
use std::path::Path;

use perdura_media::file::{Kernel, replace};
use perdura_media::{Clock, Device, FileDevice};
use serde::{Deserialize, Serialize};

use super::error::DirectoryError;
use super::promise::{Room, make_promise};
use super::settings::Settings;
use crate::prove::Proof;
use crate::region::Region;

/// The record of a measured flush rate, and how it was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateRecord {
    /// The rate that promises rest on, bytes per second: the slower of the whole pass and its
    /// slowest part.
    pub rate_bytes_per_s: u64,
    /// Mean rate of the whole pass, bytes per second.
    pub mean_bytes_per_s: u64,
    /// Bytes written to measure it.
    pub bytes: u64,
    /// When it was measured, milliseconds since 1970.
    pub unix_ms: u64,
    /// The device and the system interface by which it was driven, as text. Another text means
    /// measuring again.
    pub device: String,
    /// Threads that wrote.
    pub threads: usize,
}

/// Name of the record in its directory.
pub(super) const RATE_NAME: &str = "rate.toml";
/// Most bytes of a first measurement, which is made before the budget is known: 256 MiB.
const FIRST_PROOF_BYTES: u64 = 256 << 20;

/// The rate on record if it was measured in the same way; otherwise a measured one, which is put
/// on record.
pub(super) fn proven_rate(
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
    // The budget follows from the rate, and the rate must be measured with at least the budget's
    // bytes. If the budget is larger than the first measurement, measure again.
    let (_, wanted) = make_promise(settings, region, record.rate_bytes_per_s, room)?;
    if wanted.budget_bytes > record.bytes {
        let larger = prove(settings, region, &device, wanted.budget_bytes, clock, progress)?;
        let slower = larger.rate_bytes_per_s.min(record.rate_bytes_per_s);
        record = RateRecord { rate_bytes_per_s: slower, ..larger };
    }
    // Written only if it changed: an image on a file system without room must still open.
    if on_record.as_ref() != Some(&record) {
        match write_record(&path, &record) {
            Err(DirectoryError::File { source, .. })
                if matches!(source.kind(), StorageFull | QuotaExceeded) =>
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

/// Reads the record; `None`: there is none.
pub(super) fn read_record(path: &Path) -> Result<Option<RateRecord>, DirectoryError> {
    match std::fs::read_to_string(path) {
        Ok(text) => toml::from_str(&text).map(Some).map_err(|error| DirectoryError::Rate {
            path: path.to_owned(),
            why: error.message().to_owned(),
        }),
        Err(error) if error.kind() == NotFound => Ok(None),
        Err(source) => Err(DirectoryError::File { path: path.to_owned(), source }),
    }
}

fn write_record(path: &Path, record: &RateRecord) -> Result<(), DirectoryError> {
    let file = |source| DirectoryError::File { path: path.to_owned(), source };
    let text = toml::to_string(record)
        .map_err(|error| DirectoryError::Rate { path: path.to_owned(), why: error.to_string() })?;
    // The new name may be lost: that only means measuring again.
    replace(&Kernel, path, text.as_bytes()).map_err(|errno| file(errno.into()))
}
