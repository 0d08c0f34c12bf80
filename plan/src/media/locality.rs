//! How unevenly requests fall on the data, and so which share of them a cache of a given size hits.

use serde::Serialize;

/// Points of a curve from (0, 0) to (1, 1): share of the data, hottest first, and share of the
/// requests on it. What a cache hits that holds the hottest; an LRU cache hits somewhat less.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Locality {
    points: Vec<(f64, f64)>,
}

impl Locality {
    /// No locality: every page is asked for as often as any other.
    #[must_use]
    pub fn none() -> Self {
        Self { points: vec![(0.0, 0.0), (1.0, 1.0)] }
    }

    /// `hot_data` of the data take `hot_requests` of the requests, and so on within: 10 % of the 10
    /// % take 90 % of the 90 %. Shares are clamped to 0..1; less on more is turned round to no
    /// locality.
    #[must_use]
    pub fn of_shares(hot_data: f64, hot_requests: f64) -> Self {
        let data = hot_data.clamp(1e-9, 1.0 - 1e-9);
        let requests = hot_requests.clamp(1e-9, 1.0 - 1e-9);
        let exponent = (requests.ln() / data.ln()).min(1.0);
        let share = |step: u32| 10f64.powf(f64::from(step) / STEPS_PER_DECADE - DECADES);
        let steps = (0..=(DECADES * STEPS_PER_DECADE) as u32).map(share);
        let mut points = vec![(0.0, 0.0)];
        points.extend(steps.map(|data| (data, data.powf(exponent))));
        Self { points }
    }

    /// The locality of a program that asked for each page so often, in any order, of `pages` in all
    /// (those never asked for included).
    #[must_use]
    pub fn of_counts(counts: impl IntoIterator<Item = u64>, pages: u64) -> Self {
        let mut counts: Vec<u64> = counts.into_iter().filter(|count| *count > 0).collect();
        counts.sort_unstable_by(|left, right| right.cmp(left));
        let all: u64 = counts.iter().sum();
        if all == 0 {
            return Self::none();
        }
        let pages = pages.max(counts.len() as u64) as f64;
        let step = counts.len().div_ceil(POINTS_MAX);
        let (mut points, mut sum) = (vec![(0.0, 0.0)], 0);
        for (index, count) in counts.iter().enumerate() {
            sum += count;
            if (index + 1) % step == 0 || index + 1 == counts.len() {
                points.push(((index + 1) as f64 / pages, sum as f64 / all as f64));
            }
        }
        if points.last().is_some_and(|(data, _)| *data < 1.0) {
            points.push((1.0, 1.0));
        }
        Self { points }
    }

    /// The share of requests on the hottest `data` share of the data.
    #[must_use]
    pub fn hit_share(&self, data: f64) -> f64 {
        let data = data.clamp(0.0, 1.0);
        let after = self.points.partition_point(|(share, _)| *share < data);
        let Some((to, to_hits)) = self.points.get(after).copied() else { return 1.0 };
        let Some((from, from_hits)) = after.checked_sub(1).map(|before| self.points[before]) else {
            return to_hits;
        };
        from_hits + (to_hits - from_hits) * (data - from) / (to - from)
    }
}

const DECADES: f64 = 6.0;
const STEPS_PER_DECADE: f64 = 16.0;
const POINTS_MAX: usize = 1024;
