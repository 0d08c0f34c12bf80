//! What a first start is about to put on the disk: said, and fitted to what is free, before it is
//! done.

use std::path::Path;

use anyhow::{Context, Result, bail};
use perdura_media::Bytes;
use perdura_region::directory::{Settings, has_image};
use perdura_region::promise::BudgetWish;
use perdura_region::room::{self, Fit, LOG_PERCENTS};

/// Where there is no image yet, chooses a log that fits the disk, unless one was asked for, and
/// returns a sentence about what will be made. An image that is there is opened as it is.
pub fn prepare(place: &mut Settings, log_is_given: bool) -> Result<Option<String>> {
    if has_image(&place.dir) {
        return Ok(None);
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
             are free there; give --dir on a larger disk, or less --memory (about {} would fit)",
            Bytes(needed_bytes),
            Bytes(suggested_bytes(memory_bytes, free_bytes, needed_bytes)),
        ),
    };
    place.config.log_percent = fit.log_percent;
    let size = Bytes(fit.image_bytes);
    let multiple = fit.image_bytes as f64 / memory_bytes as f64;
    let whole = format!(
        "making an image in {dir}: up to {size} on disk for {memory} of memory ({multiple:.1} \
         times: a log that is written in sequence, and room for the flush kept free); {free} are \
         free there"
    );
    Ok(Some(match is_short(&fit, place) {
        false => whole,
        true => format!(
            "{whole}\nthat is a small disk: the log has {} % of the memory, and at most {} may be \
             dirty; --dir on a larger disk, or less --memory, lifts both",
            fit.log_percent,
            Bytes(fit.budget_bytes_max),
        ),
    }))
}

/// Says how much is free where a full disk is the cause.
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

/// Whole 16 MiB that an image surely has room for; the smallest image is in proportion to its
/// memory, but for a few segments.
fn suggested_bytes(memory_bytes: u64, free_bytes: u64, needed_bytes: u64) -> u64 {
    const STEP: u64 = 16 << 20;
    let share = free_bytes as f64 / needed_bytes as f64 * 0.8;
    ((memory_bytes as f64 * share) as u64 / STEP * STEP).max(STEP)
}
