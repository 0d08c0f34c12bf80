//! The image that a first start makes: fitted to the free disk space, and announced before it is
//! made.

use std::path::Path;

use anyhow::{Context, Result, bail};
use perdura_media::Bytes;
use perdura_region::BudgetWish;
use perdura_region::directory::{Settings, has_image};
use perdura_region::room::{self, Fit, LOG_PERCENTS, UNTOLD_BYTES};

/// Chooses a log that fits the disk, unless its size was given, and returns a sentence about the
/// image that will be made. `None`: there is an image already, which is opened as it is.
/// `memory_option` is the option that says the size of the memory.
pub fn prepare(
    place: &mut Settings,
    log_is_given: bool,
    memory_option: &str,
) -> Result<Option<String>> {
    if has_image(&place.dir) {
        return Ok(None);
    }
    if place.dir.exists() && !place.dir.is_dir() {
        bail!("--dir {}: this is a file; give a directory", place.dir.display());
    }
    let given = [place.config.log_percent];
    let log_percents = if log_is_given { &given[..] } else { &LOG_PERCENTS };
    let dir = place.dir.display();
    let free_bytes = room::free_bytes(&place.dir).with_context(|| dir.to_string())?;
    let memory_bytes = place.config.region_bytes;
    let memory = Bytes(memory_bytes);
    let free = Bytes(free_bytes);
    let fit = match room::fit(&place.config, free_bytes, log_percents)? {
        Ok(fit) => fit,
        Err(needed_bytes) => bail!(
            "{dir}: no room for an image of {memory} of memory: it needs at least {}, and {free} \
             are free there; give --dir on a larger disk{}",
            Bytes(needed_bytes),
            suggestion(memory_option, memory_bytes, free_bytes, needed_bytes),
        ),
    };
    place.config.log_percent = fit.log_percent;
    let size = Bytes(fit.image_bytes);
    let multiple = fit.image_bytes as f64 / memory_bytes as f64;
    let free = match free_bytes {
        UNTOLD_BYTES => "the file system does not tell how much is free".into(),
        _ => format!("{free} are free there"),
    };
    let whole = format!(
        "making an image in {dir}: up to {size} on disk for {memory} of memory ({multiple:.1} \
         times: a log that is written in sequence, and room for the flush kept free); {free}"
    );
    Ok(Some(match is_short(&fit, place) {
        false => whole,
        true => format!(
            "{whole}\nthat is a small disk: the log has {} % of the memory, and about {} may be \
             dirty; --dir on a larger disk, or less {memory_option}, lifts both",
            fit.log_percent,
            Bytes(fit.budget_bytes_max),
        ),
    }))
}

/// Adds how much is free to an error that a full disk has caused.
pub fn name_free(error: anyhow::Error, dir: &Path) -> anyhow::Error {
    let is_full = error.chain().any(|cause| cause.to_string().contains("No space left on device"));
    match room::free_bytes(dir) {
        Ok(free_bytes) if is_full => error.context(format!(
            "{}: the disk is full ({} are free); make room, or give --dir on a larger one",
            dir.display(),
            Bytes(free_bytes)
        )),
        _ => error,
    }
}

fn is_short(fit: &Fit, place: &Settings) -> bool {
    let wanted_bytes = match place.wish {
        BudgetWish::Bytes(bytes) => bytes,
        BudgetWish::Percent(percent) => (place.config.region_bytes as f64 * percent / 100.0) as u64,
        BudgetWish::Derived => place.config.region_bytes,
    };
    fit.log_percent != LOG_PERCENTS[0] || fit.budget_bytes_max < wanted_bytes
}

/// Advice to take less memory, if an image of some size would fit. The size is in whole 16 MiB, and
/// its image surely fits: the smallest image is in proportion to its memory, but for a few
/// segments.
fn suggestion(option: &str, memory_bytes: u64, free_bytes: u64, needed_bytes: u64) -> String {
    const STEP: u64 = 16 << 20;
    let share = free_bytes as f64 / needed_bytes as f64 * 0.8;
    match (memory_bytes as f64 * share) as u64 / STEP * STEP {
        0 => String::new(),
        bytes => format!(", or less {option} (about {} would fit)", Bytes(bytes)),
    }
}
