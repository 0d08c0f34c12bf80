//! The numbers of a Kubernetes pod that serves a memory: what the cluster must give so that the
//! promise holds when the pod is deleted. Every figure is computed from the flush rate that is
//! given.

use std::time::Duration;

use perdura_dirty::promise::PromiseError;
use perdura_region::room::{self, LOG_PERCENTS};
use perdura_region::{BudgetWish, Config, OpenError, Terms, default_reserve, promise};
use serde::Serialize;

/// Time that the cluster's own work takes between the deletion and SIGTERM, and between the last
/// write and the kill. Assumed.
pub const MARGIN: Duration = Duration::from_secs(1);
/// The longest time of a pod's end that is planned for: a day.
const LONGEST_S: u64 = 86_400;

/// What a pod is planned for.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// The memory that is served, bytes.
    pub memory_bytes: u64,
    /// The rate at which dirty bytes reach the volume in an emergency, bytes a second.
    pub flush_bytes_per_s: u64,
    /// Time that the pod waits before SIGTERM, so that clients are sent elsewhere.
    pub pre_stop: Duration,
    /// What limits what may be dirty.
    pub limit: PodLimit,
}

/// What limits what may be dirty in a pod.
#[derive(Debug, Clone, Copy)]
pub enum PodLimit {
    /// The time from the deletion to the kill (`terminationGracePeriodSeconds`).
    Termination(Duration),
    /// What is to be dirty at most, bytes; the time follows.
    Budget(u64),
}

/// A pod's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Pod {
    /// The time from the deletion to the kill, whole seconds.
    pub termination_s: u64,
    /// Time before SIGTERM, whole seconds.
    pub pre_stop_s: u64,
    /// The warning that the server is told (`--grace`), whole seconds.
    pub warning_s: u64,
    /// The part of the warning that is kept back for all but the writing, seconds.
    pub reserve_s: f64,
    /// Most that may be dirty, bytes.
    pub budget_bytes: u64,
    /// Time to write a full budget, seconds.
    pub flush_s: f64,
    /// The memory limit of the container, bytes.
    pub memory_limit_bytes: u64,
    /// The size of the volume, bytes.
    pub volume_bytes: u64,
}

/// Why there is no such pod.
#[derive(Debug, thiserror::Error)]
pub enum PodError {
    /// The time is used up before the server has any.
    #[error(
        "of {termination:?} nothing is left for the server after {pre_stop:?} before SIGTERM and \
         {MARGIN:?} for the cluster: give a longer time"
    )]
    NoTime {
        /// The time from the deletion to the kill.
        termination: Duration,
        /// The part before SIGTERM.
        pre_stop: Duration,
    },
    /// The budget does not fit, or is none.
    #[error(transparent)]
    Promise(#[from] PromiseError),
    /// No image can have such a memory.
    #[error(transparent)]
    Image(#[from] OpenError),
}

/// Plans a pod.
///
/// # Errors
/// Time, rate and budget do not fit together.
pub fn pod(wanted: &Wanted) -> Result<Pod, PodError> {
    let memory_bytes = wanted.memory_bytes;
    let config = Config::new(memory_bytes, 0);
    let geometry = config.geometry()?;
    let promised = |warning_s, wish| {
        let warning = Duration::from_secs(warning_s);
        let terms = Terms {
            warning,
            reserve: default_reserve(warning),
            rate_bytes_per_s: wanted.flush_bytes_per_s,
            region_bytes: memory_bytes,
        };
        promise(&geometry, &terms, wish).map(|made| (made, terms))
    };
    let pre_stop_s = whole_seconds(wanted.pre_stop);
    let beside_s = pre_stop_s + MARGIN.as_secs();
    let (warning_s, (made, terms)) = match wanted.limit {
        PodLimit::Termination(termination) => {
            // A time that is not whole is not rounded up: the cluster would kill too early.
            let warning_s = termination.as_secs().checked_sub(beside_s).filter(|left| *left > 0);
            let no_time = PodError::NoTime { termination, pre_stop: wanted.pre_stop };
            let warning_s = warning_s.ok_or(no_time)?;
            (warning_s, promised(warning_s, BudgetWish::Derived)?)
        }
        PodLimit::Budget(bytes) => {
            let wish = BudgetWish::Bytes(bytes);
            let fits = |warning_s: &u64| promised(*warning_s, wish).is_ok();
            let warning_s = (1..LONGEST_S).find(fits).unwrap_or(LONGEST_S);
            (warning_s, promised(warning_s, wish)?)
        }
    };
    let plenty = room::fit(&config, room::UNTOLD_BYTES, &LOG_PERCENTS)?;
    let image_bytes = plenty.map_or_else(|needed_bytes| needed_bytes, |fit| fit.image_bytes);
    Ok(Pod {
        termination_s: warning_s + beside_s,
        pre_stop_s,
        warning_s,
        reserve_s: terms.reserve.as_secs_f64(),
        budget_bytes: made.budget_bytes,
        flush_s: made.flush_time.saturating_sub(terms.reserve).as_secs_f64(),
        memory_limit_bytes: room::process_bytes(memory_bytes),
        volume_bytes: room::disk_bytes(image_bytes),
    })
}

fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test's own failure
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn wanted(limit: PodLimit) -> Wanted {
        Wanted {
            memory_bytes: 4 * GIB,
            flush_bytes_per_s: 125 << 20,
            pre_stop: Duration::from_millis(4_500),
            limit,
        }
    }

    #[test]
    fn a_longer_end_allows_more_dirty_data_and_the_way_back_gives_the_same_time() {
        let mut before = 0;
        for termination_s in [8, 10, 30, 40] {
            let time = Duration::from_secs(termination_s);
            let pod = super::pod(&wanted(PodLimit::Termination(time))).unwrap();
            assert_eq!(pod.termination_s, termination_s);
            assert_eq!(pod.pre_stop_s + pod.warning_s + 1, termination_s);
            assert!(pod.flush_s + pod.reserve_s <= pod.warning_s as f64 + 1e-9, "{pod:?}");
            assert!(pod.budget_bytes > before && pod.budget_bytes <= 4 * GIB, "{pod:?}");
            before = pod.budget_bytes;
            if pod.budget_bytes < 4 * GIB {
                let back = super::pod(&wanted(PodLimit::Budget(pod.budget_bytes))).unwrap();
                assert_eq!(back, pod);
            }
        }
    }

    #[test]
    fn the_container_and_the_volume_hold_what_the_server_needs() {
        let thirty = PodLimit::Termination(Duration::from_secs(30));
        let pod = super::pod(&wanted(thirty)).unwrap();
        assert!(pod.memory_limit_bytes > 4 * GIB / 20 * 21);
        let config = Config::new(4 * GIB, 0);
        let fit = room::fit(&config, pod.volume_bytes, &LOG_PERCENTS).unwrap().unwrap();
        assert_eq!((fit.log_percent, fit.budget_bytes_max), (200, 4 * GIB));
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let short = PodLimit::Termination(Duration::from_secs(6));
        assert!(super::pod(&wanted(short)).unwrap_err().to_string().contains("nothing is left"));
        let slow = Wanted { flush_bytes_per_s: 1_000, ..wanted(PodLimit::Budget(GIB)) };
        assert!(super::pod(&slow).unwrap_err().to_string().contains("takes"), "a day is too short");
    }
}
