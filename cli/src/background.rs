//! Work that goes on while the server answers already: loading memory, counting keys, finding free
//! memory.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use perdura_media::{Bytes, BytesPerSecond, format_duration};
use perdura_region::LoadProgress;
use perdura_store::Store;

use crate::surroundings;

/// Threads that load: while one reads, others verify and copy.
const THREADS: usize = 3;
const TELL_EVERY: Duration = Duration::from_secs(2);

/// Starts the threads. They end when the work is done, or with the store.
pub fn start(store: &Arc<Store>, has_holder: bool) -> Result<()> {
    let loads = store.region().load_progress().is_some();
    for number in 0..if loads { THREADS } else { 1 } {
        let store = Arc::downgrade(store);
        let work = move || {
            load(&store, number == 0);
            if number == 0 {
                rebuild(&store);
                warn(&store, has_holder);
            }
        };
        std::thread::Builder::new()
            .name("perdura-load".into())
            .spawn(work)
            .context("start a thread")?;
    }
    Ok(())
}

/// Warns of what would end server and holder together. By now the memory is locked, or could not
/// be.
fn warn(store: &Weak<Store>, has_holder: bool) {
    let Some(store) = store.upgrade() else { return };
    let region = store.region();
    surroundings::warn(region.len_bytes(), region.is_locked() != Some(false), has_holder);
}

fn load(store: &Weak<Store>, tells: bool) {
    let began = Instant::now();
    let mut told = began;
    let mut total_bytes = 0;
    while let Some(store) = store.upgrade() {
        let progress = store.region().load_progress();
        if let Some(LoadProgress { loaded_bytes, total_bytes: total, .. }) = progress {
            total_bytes = total;
            if tells && told.elapsed() > TELL_EVERY {
                told = Instant::now();
                tracing::info!("{} of {} in memory", Bytes(loaded_bytes), Bytes(total));
            }
        }
        // The region has logged and latched an error. The rest may be readable.
        if let Ok(false) = store.region().load_next() {
            break;
        }
    }
    let took = began.elapsed();
    if tells && total_bytes > 0 {
        let rate = BytesPerSecond((total_bytes as f64 / took.as_secs_f64().max(1e-9)) as u64);
        tracing::info!("{} loaded in {}: {rate}", Bytes(total_bytes), format_duration(took));
    }
}

/// Counts keys, as far as their number was not saved, and finds free memory, shard by shard.
fn rebuild(store: &Weak<Store>) {
    let began = Instant::now();
    let Some(counted) = store.upgrade() else { return };
    counted.count_keys();
    let keys = counted.stats().keys;
    tracing::info!("{keys} keys counted in {}", format_duration(began.elapsed()));
    drop(counted);
    while let Some(store) = store.upgrade() {
        match store.rebuild_next() {
            Ok(true) => {}
            Ok(false) => {
                let took = format_duration(began.elapsed());
                tracing::info!("free memory found in {took}");
                return;
            }
            // The final flush has begun.
            Err(_) if store.region().check_open().is_err() => return,
            Err(error) => tracing::error!(
                %error,
                "a shard is damaged: its memory is not used again, nor is that of keys that expire"
            ),
        }
    }
}
