//! Named figures of a target: counts that grow, and readings.

use std::collections::BTreeMap;

use perdura_region::Region;

/// Named figures. A region's figures have the names of its counters; `budget_bytes`, `dirty_bytes`
/// and `dirty_bytes_max` are its account, and `used_bytes` is the memory in use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Figures(BTreeMap<String, u64>);

impl Figures {
    /// Reads the figures of a region.
    pub fn of_region(region: &Region) -> Self {
        let mut figures: Self =
            region.stats().fields().into_iter().map(|(name, value)| (name.into(), value)).collect();
        figures.set("budget_bytes", region.budget_bytes());
        figures.set("dirty_bytes", region.used_bytes());
        figures.set("dirty_bytes_max", region.used_bytes_max());
        figures.set("log_bytes", region.log_bytes());
        figures
    }

    /// Adds a figure.
    pub fn set(&mut self, name: &str, value: u64) {
        self.0.insert(name.into(), value);
    }

    /// A figure, if it is known.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// The figures since `before`: counts as differences, readings as they are now. The largest
    /// value of a whole run (`_max`) is left out if it is older than `before`, except that of the
    /// dirty bytes, which begins anew when a budget is set.
    pub fn since(&self, before: &Self) -> Self {
        let change = |(name, now): (&String, &u64)| {
            let then = before.get(name).unwrap_or(0);
            let value = match Nature::of(name) {
                Nature::Reading => *now,
                Nature::Largest if *now == then => return None,
                Nature::Largest => *now,
                Nature::Count => now.saturating_sub(then),
            };
            Some((name.clone(), value))
        };
        self.0.iter().filter_map(change).collect()
    }

    /// All figures, by name.
    pub fn into_map(self) -> BTreeMap<String, u64> {
        self.0
    }
}

impl FromIterator<(String, u64)> for Figures {
    fn from_iter<T: IntoIterator<Item = (String, u64)>>(figures: T) -> Self {
        Self(figures.into_iter().collect())
    }
}

enum Nature {
    Count,
    Reading,
    Largest,
}

impl Nature {
    fn of(name: &str) -> Self {
        const READINGS: [&str; 10] = [
            "budget_bytes",
            "budget_now_bytes",
            "dirty_bytes",
            "dirty_bytes_max",
            "log_bytes",
            "used_bytes",
            "used_memory",
            "latched",
            "observed_rate_bytes_per_s",
            "epoch_ns_last",
        ];
        match name {
            _ if READINGS.contains(&name) => Self::Reading,
            _ if name.ends_with("_max") => Self::Largest,
            _ => Self::Count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(pairs: &[(&str, u64)]) -> Figures {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    #[test]
    fn counts_are_differences_and_readings_are_not() {
        let before = figures(&[("device_bytes", 10), ("budget_bytes", 5), ("stall_ns_max", 7)]);
        let after = figures(&[
            ("device_bytes", 25),
            ("budget_bytes", 5),
            ("dirty_bytes_max", 4),
            ("stall_ns_max", 7),
        ]);
        let since = after.since(&before);
        assert_eq!(
            since,
            figures(&[("device_bytes", 15), ("budget_bytes", 5), ("dirty_bytes_max", 4)])
        );
        let longer = figures(&[("stall_ns_max", 9)]);
        assert_eq!(longer.since(&before).get("stall_ns_max"), Some(9));
    }
}
