//! The flush rate of a directory, measured as `perdura serve` measures it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use perdura_media::{BytesPerSecond, Direct, Engine, RealClock};
use perdura_region::directory::{Directory, Settings};
use perdura_region::{BudgetWish, Config};

use perdura_terminal::LateBar;
use perdura_terminal::region::flush_threads;

/// Memory of the image that is made for the measurement and removed again.
const MEMORY_BYTES: u64 = 1 << 30;

/// Measures the rate in `dir`, which must exist.
pub fn measure(dir: &Path) -> Result<BytesPerSecond> {
    let place = tempfile::Builder::new().prefix(".perdura-rate-").tempdir_in(dir);
    let place = place.with_context(|| format!("--measure {}", dir.display()))?;
    let threads = flush_threads("flush-threads", None)?;
    let settings = Settings {
        dir: place.path().to_owned(),
        config: Config::new(MEMORY_BYTES, 0),
        wish: BudgetWish::Bytes(MEMORY_BYTES),
        // So long that no rate is too low for it.
        warning: Duration::from_secs(86_400),
        reserve: None,
        engine: Engine::Auto,
        direct: Direct::Auto,
        threads,
        holder: None,
        holder_wait: None,
        memory_dir: None,
        prove_again: false,
    };
    let bar = LateBar::new("proving the flush rate");
    let opened = Directory::open(settings, Arc::new(RealClock), &|done, of| bar.bytes(done, of));
    bar.finish();
    let opened = opened.with_context(|| format!("--measure {}", dir.display()))?;
    Ok(BytesPerSecond(opened.rate.rate_bytes_per_s))
}
