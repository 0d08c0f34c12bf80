//! An hour of figures in bounded memory: a sample for each second, in a ring.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

/// Samples that are kept: an hour.
const SAMPLES: usize = 3600;
/// Seconds that become one point of a curve. Its value is the largest: a curve that hides a peak
/// would hide the moment that an operator looks for.
const POINT_S: u64 = 5;

/// What each sample has, by the names of the JSON.
pub const COLUMNS: [&str; 14] = [
    "time_to_safe_s",
    "warning_s",
    "dirty_bytes",
    "budget_bytes",
    "budget_now_bytes",
    "dirtied_bytes_per_s",
    "flushed_bytes_per_s",
    "stalls_per_s",
    "stalled_share",
    "commands_per_s",
    "p50_us",
    "p99_us",
    "memory_used_bytes",
    "checkpoint_age_s",
];

/// One sample; what is not known is no number.
pub type Sample = [f32; COLUMNS.len()];

/// The samples of the last hour.
#[derive(Debug, Default)]
pub struct History {
    samples: Vec<(u64, Sample)>,
    /// Place of the oldest, once the ring is full.
    oldest: usize,
}

impl History {
    /// Adds the sample of a second of Unix time.
    pub fn add(&mut self, unix_s: u64, sample: Sample) {
        if self.samples.len() < SAMPLES {
            self.samples.push((unix_s, sample));
        } else {
            self.samples[self.oldest] = (unix_s, sample);
            self.oldest = (self.oldest + 1) % SAMPLES;
        }
    }

    /// The points of the last hour that are whole and that begin after a second of Unix time.
    pub fn points(&self, after_s: u64) -> Points {
        let (newer, older) = self.samples.split_at(self.oldest);
        let mut points = Points { begins_s: Vec::new(), values: Vec::new() };
        let mut newest_s = 0;
        for (unix_s, sample) in older.iter().chain(newer) {
            let begin_s = unix_s / POINT_S * POINT_S;
            newest_s = newest_s.max(begin_s);
            // A clock that was set back makes no second point of one time.
            let last_s = points.begins_s.last().copied();
            if begin_s <= after_s || last_s.is_some_and(|last_s| begin_s < last_s) {
                continue;
            }
            match points.values.last_mut().filter(|_| last_s == Some(begin_s)) {
                None => {
                    points.begins_s.push(begin_s);
                    points.values.push(*sample);
                }
                // The largest: a number wins over what is none.
                Some(point) => point.iter_mut().zip(sample).for_each(|(a, b)| *a = a.max(*b)),
            }
        }
        // The newest point may still grow.
        if points.begins_s.last() == Some(&newest_s) {
            points.begins_s.pop();
            points.values.pop();
        }
        points
    }
}

/// Points of curves, column by column.
#[derive(Debug, PartialEq)]
pub struct Points {
    /// When each begins, Unix seconds.
    begins_s: Vec<u64>,
    values: Vec<Sample>,
}

impl Serialize for Points {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(2 + COLUMNS.len()))?;
        map.serialize_entry("point_s", &POINT_S)?;
        map.serialize_entry("unix_s", &self.begins_s)?;
        for (at, name) in COLUMNS.iter().enumerate() {
            let column: Vec<f32> = self.values.iter().map(|values| values[at]).collect();
            map.serialize_entry(name, &column)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(value: f32) -> Sample {
        let mut sample = [f32::NAN; COLUMNS.len()];
        sample[0] = value;
        sample
    }

    #[test]
    fn the_ring_keeps_an_hour_and_a_point_its_largest_value() {
        let mut history = History::default();
        (0..10_000).for_each(|s| history.add(s, sample(s as f32)));
        let points = history.points(0);
        assert_eq!(points.begins_s.len(), SAMPLES / POINT_S as usize - 1, "one may still grow");
        assert_eq!((points.begins_s[0], points.values[0][0]), (6400, 6404.0));
        assert!(points.values[0][1].is_nan());
        assert_eq!(history.points(9985).begins_s, [9990]);
        assert!(history.points(9990).begins_s.is_empty());
    }

    #[test]
    fn gaps_and_a_clock_that_is_set_back_do_no_harm() {
        let mut history = History::default();
        for s in [100, 101, 200, 50, 60, 201, 210] {
            history.add(s, sample(s as f32));
        }
        let points = history.points(0);
        assert_eq!(points.begins_s, [100, 200]);
        assert_eq!(points.values.iter().map(|v| v[0]).collect::<Vec<_>>(), [101.0, 201.0]);
        let text = serde_json::to_string(&points).unwrap();
        assert!(text.starts_with(r#"{"point_s":5,"unix_s":[100,200],"time_to_safe_s":[101.0,201"#));
        assert!(text.contains(r#""warning_s":[null,null]"#), "{text}");
    }
}
