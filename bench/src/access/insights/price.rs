//! Price and performance: euro per GB, and per GB for each GiB/s, of this machine beside the published systems.

use serde::{Deserialize, Serialize};

use super::super::reference::{PerPattern, References};

/// A line of the table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PriceRow {
    /// System.
    pub name: String,
    /// `measured` or `published`.
    pub label: String,
    /// Price of its memory; none: not given.
    pub euro_per_gb: Option<f64>,
    /// Highest bandwidths, GiB/s.
    pub gib_per_s: PerPattern<Option<f64>>,
    /// The price over them.
    pub euro_per_gb_per_s: PerPattern<Option<f64>>,
    /// The poster's own columns, where they can be read: their random accesses are of another size.
    pub poster: PerPattern<Option<f64>>,
}

/// All lines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prices {
    /// Price of the whole memory, as it was given.
    pub price_euro: Option<f64>,
    /// This machine first.
    pub rows: Vec<PriceRow>,
    /// What to know when reading it.
    pub note: String,
}

impl Prices {
    /// Of a machine with so much memory at a price, and of the published systems.
    pub fn of(
        price_euro: Option<f64>,
        memory_bytes: u64,
        here: PerPattern<Option<f64>>,
        references: &References,
    ) -> Self {
        let euro_per_gb = price_euro.map(|price| price / (memory_bytes.max(1) as f64 / 1e9));
        let mut rows = vec![PriceRow::new("this machine", "measured", euro_per_gb, here)];
        rows.extend(references.systems.iter().map(|system| {
            let peaks = system.peak_gib_per_s.map(|peaks| peaks.map(Some)).unwrap_or_default();
            let row = PriceRow::new(&system.name, "published", Some(system.euro_per_gb), peaks);
            PriceRow { poster: system.poster_euro_per_gb_per_s, ..row }
        }));
        let accesses = references.accesses;
        let missing = match euro_per_gb {
            Some(_) => "",
            None => "This machine's are not computed: give the whole memory's price with --price. ",
        };
        let note = format!(
            "{missing}Euro per GB over GiB/s, from the highest bandwidth over threads: sequential accesses of {} B, random reads of {} B, \
             random writes of {} B. The poster's own columns beside are of random accesses of another size.",
            accesses.sequential_bytes, accesses.random_read_bytes, accesses.random_write_bytes
        );
        Self { price_euro, rows, note }
    }
}

impl PriceRow {
    fn new(
        name: &str,
        label: &str,
        euro_per_gb: Option<f64>,
        gib_per_s: PerPattern<Option<f64>>,
    ) -> Self {
        let per = |bandwidth: Option<f64>| {
            Some(euro_per_gb? / bandwidth.filter(|bandwidth| *bandwidth > 0.0)?)
        };
        Self {
            name: name.into(),
            label: label.into(),
            euro_per_gb,
            gib_per_s,
            euro_per_gb_per_s: gib_per_s.map(per),
            poster: PerPattern::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> PerPattern<Option<f64>> {
        PerPattern { sequential_read: Some(10.0), random_read: Some(5.0), ..PerPattern::default() }
    }

    #[test]
    fn a_price_is_spread_over_the_memory_and_its_bandwidth() {
        let prices = Prices::of(Some(320.0), 32_000_000_000, here(), &References::built_in());
        let own = &prices.rows[0];
        assert_eq!((own.euro_per_gb, own.label.as_str()), (Some(10.0), "measured"));
        assert_eq!(own.euro_per_gb_per_s.sequential_read, Some(1.0));
        assert_eq!(own.euro_per_gb_per_s.random_read, Some(2.0));
        assert_eq!(own.euro_per_gb_per_s.random_write, None, "not measured");
        assert!(!prices.note.contains("--price"));
    }

    #[test]
    fn without_a_price_only_the_published_systems_have_one() {
        let prices = Prices::of(None, 32_000_000_000, here(), &References::built_in());
        assert_eq!(prices.rows[0].euro_per_gb_per_s, PerPattern::default());
        assert_eq!(prices.rows[0].gib_per_s.sequential_read, Some(10.0));
        assert!(prices.note.contains("--price"), "{}", prices.note);
        let published = &prices.rows[1];
        assert_eq!(
            (published.name.as_str(), published.label.as_str()),
            ("apache-128", "published")
        );
        let near = |value: Option<f64>, expected: f64| (value.unwrap() - expected).abs() < 0.005;
        assert!(near(published.euro_per_gb_per_s.sequential_read, 0.25));
        assert!(near(published.euro_per_gb_per_s.random_write, 0.885));
        assert!(near(published.poster.random_write, 3.43));
        let dram = prices.rows.iter().find(|row| row.name == "a-dram").unwrap();
        assert_eq!((dram.euro_per_gb, dram.gib_per_s.random_read), (Some(30.62), None));
    }
}
