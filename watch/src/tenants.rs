//! The servers of a guard, asked for by a thread of their own: a guard that hangs delays nobody.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use perdura_guard::{Looked, look};
use serde::Serialize;

/// Time between two questions.
const EVERY: Duration = Duration::from_secs(1);

/// What a guard says of its servers.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Tenants {
    /// Why it says nothing now; the rest is what it said before.
    pub error: Option<String>,
    /// The battery that the servers share, if they share one.
    pub battery: Option<SharedBattery>,
    /// The servers that this user may see.
    pub regions: Vec<Tenant>,
}

/// The battery that a guard divides.
#[derive(Debug, Clone, Serialize)]
pub struct SharedBattery {
    /// Flush time of the battery, seconds.
    pub flush_s: f64,
    /// Flush time of everything that is dirty, seconds.
    pub dirty_s: f64,
    /// The longest that was, seconds.
    pub dirty_max_s: f64,
    /// By how much the shares are longer than the battery lasts, seconds.
    pub overcommitted_s: f64,
}

/// One server.
#[derive(Debug, Clone, Serialize)]
pub struct Tenant {
    /// The directory of its data.
    pub name: String,
    /// Its process; none if the guard keeps the memory alone.
    pub pid: Option<i32>,
    /// Whether the guard flushes it.
    pub is_flushing: bool,
    /// Bytes that are not on the SSD yet.
    pub dirty_bytes: u64,
    /// Bytes that may be dirty.
    pub budget_bytes: u64,
    /// Time that a flush of the dirty bytes takes, seconds.
    pub time_to_safe_s: f64,
    /// The warning that it counts on, seconds.
    pub warning_s: f64,
    /// Flush time that may be dirty, where a battery is shared, seconds.
    pub share_s: Option<f64>,
}

/// What was said last, for several threads.
#[derive(Debug, Default)]
pub struct Told(Mutex<Tenants>);

impl Told {
    /// What was said last.
    pub fn get(&self) -> Tenants {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Asks the guard from now on, until nobody has the result any more.
///
/// # Errors
/// No thread can be started.
pub fn ask(socket: PathBuf) -> std::io::Result<Arc<Told>> {
    let told = Arc::new(Told::default());
    let to = Arc::downgrade(&told);
    let ask = move || while note(&to, look(&socket).map_err(|error| error.to_string())) {};
    std::thread::Builder::new().name("perdura-tenants".into()).spawn(ask)?;
    Ok(told)
}

/// Notes an answer; returns whether to ask again, after a while.
fn note(to: &Weak<Told>, answer: Result<Looked, String>) -> bool {
    let Some(told) = to.upgrade() else { return false };
    let mut tenants = told.0.lock().unwrap_or_else(PoisonError::into_inner);
    match answer {
        Ok(looked) => *tenants = Tenants::of(&looked),
        Err(error) => tenants.error = Some(error),
    }
    drop(tenants);
    drop(told);
    std::thread::sleep(EVERY);
    true
}

impl Tenants {
    fn of(looked: &Looked) -> Self {
        let battery = looked.battery.map(|battery| SharedBattery {
            flush_s: battery.total.as_secs_f64(),
            dirty_s: battery.dirty.as_secs_f64(),
            dirty_max_s: battery.worst.as_secs_f64(),
            overcommitted_s: battery.debt.as_secs_f64(),
        });
        let regions = looked.regions.iter().map(|region| Tenant {
            name: region.image.strip_suffix("/image.perdura").unwrap_or(&region.image).to_owned(),
            pid: region.pid,
            is_flushing: region.is_flushing,
            dirty_bytes: region.dirty_bytes,
            budget_bytes: region.budget_bytes,
            time_to_safe_s: region.dirty_bytes as f64 / region.rate_bytes_per_s.max(1) as f64,
            warning_s: region.grace.as_secs_f64(),
            share_s: region.share.map(|share| share.as_secs_f64()),
        });
        Self { error: None, battery, regions: regions.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_last_stays_while_the_guard_says_nothing() {
        let told = Arc::new(Told::default());
        *told.0.lock().unwrap() = Tenants { battery: None, error: None, regions: Vec::new() };
        assert!(note(&Arc::downgrade(&told), Err("nobody listens".into())));
        assert_eq!(told.get().error.as_deref(), Some("nobody listens"));
        let weak = Arc::downgrade(&told);
        drop(told);
        assert!(!note(&weak, Err(String::new())), "nobody wants an answer");
    }
}
