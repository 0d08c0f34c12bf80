//! Price and performance: euro per GB, and per GB for each GiB/s, of this machine beside the
//! published systems.
//!
//! A published GB is a module's nominal GB: a module sold as 32 GB holds 32 GiB. So this machine's
//! price, too, is spread over the GiB of its modules.

use perdura_media::Bytes;
use serde::{Deserialize, Serialize};

use super::super::reference::{PerPattern, References};
use super::facts::{Facts, Told};
use super::figures::Highest;

/// A memory of this machine that has a price.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnMemory {
    /// Name of the memory.
    pub name: String,
    /// Price of the whole memory as given, euro.
    pub price_euro: Option<f64>,
    /// The command-line option that gives the price.
    pub price_option: &'static str,
    /// Size of the memory.
    pub capacity: Capacity,
    /// Highest bandwidths.
    pub highest: PerPattern<Option<Highest>>,
}

/// Size of the memory that a price is for, and how it is known.
#[derive(Debug, Clone, PartialEq)]
pub struct Capacity {
    /// Size, GiB; 0: unknown.
    pub gib: f64,
    /// How the size is known.
    pub how: &'static str,
}

const GIB: f64 = (1u64 << 30) as f64;

impl Capacity {
    /// Size of all modules: as the firmware says, or else the least that gives the kernel this much
    /// memory.
    pub fn installed(facts: &Facts, memory_bytes: u64) -> Self {
        if let Told::Known(modules) = &facts.modules {
            let bytes: u64 = modules.iter().map(|module| module.bytes).sum();
            return Self { gib: bytes as f64 / GIB, how: "the sum of its modules" };
        }
        let how = "the kernel's memory, rounded up to possible modules";
        Self { gib: rounded_up(memory_bytes) as f64 / GIB, how }
    }

    /// Size of the file system of a folder.
    pub fn of_file_system(bytes: u64) -> Self {
        Self { gib: bytes as f64 / GIB, how: "all of its file system" }
    }
}

/// The next size that a few modules add up to, an eighth of a power of two apart: firmware and
/// kernel keep some memory for themselves.
fn rounded_up(bytes: u64) -> u64 {
    let step = (bytes.next_power_of_two() / 8).max(1 << 30);
    bytes.next_multiple_of(step)
}

/// A row of the table of prices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PriceRow {
    /// Name of the system.
    pub name: String,
    /// Origin of the bandwidths: `measured` or `published`.
    pub label: String,
    /// Origin of the price: `given`, `not given` or `published`.
    pub price_label: String,
    /// Price of the memory; none: not given.
    pub euro_per_gb: Option<f64>,
    /// Highest bandwidths, GiB/s.
    pub gib_per_s: PerPattern<Option<f64>>,
    /// Numbers of threads of the highest bandwidths; unknown for published ones.
    pub threads: PerPattern<Option<u64>>,
    /// The price divided by each bandwidth.
    pub euro_per_gb_per_s: PerPattern<Option<f64>>,
    /// The poster's own columns, where they can be read: its random accesses have another size.
    pub poster: PerPattern<Option<f64>>,
}

/// The table of prices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prices {
    /// Rows; this machine's come first.
    pub rows: Vec<PriceRow>,
    /// A note for the reader.
    pub note: String,
}

impl Prices {
    /// The table for this machine's memories and the published systems.
    pub fn of(own: &[OwnMemory], references: &References) -> Self {
        let mut rows: Vec<PriceRow> = own.iter().map(PriceRow::own).collect();
        rows.extend(references.systems.iter().map(|system| {
            let peaks = system.peak_gib_per_s.map(|peaks| peaks.map(Some)).unwrap_or_default();
            let row = PriceRow::new(&system.name, "published", Some(system.euro_per_gb), peaks);
            PriceRow { poster: system.poster_euro_per_gb_per_s, ..row }
        }));
        let accesses = references.accesses;
        let told: Vec<String> = own.iter().map(told).collect();
        // A note is needed where the source says more than where a figure stands.
        let inferred = references.systems.iter().filter_map(|system| {
            let (_, how) = system.sources.get("poster_euro_per_gb_per_s")?.split_once("; ")?;
            Some(format!(" {}: {how}.", system.name))
        });
        let inferred: String = inferred.collect();
        let note = format!(
            "{} Euro per GB over GiB/s, from the highest bandwidth over threads: sequential \
             accesses of {} B, random reads of {} B, random writes of {} B. A GB is a module's \
             nominal GB, which holds a GiB. Published prices and peaks are the publication's; the \
             poster's own columns have random accesses of another size.{inferred}",
            told.join(" "),
            accesses.sequential_bytes,
            accesses.random_read_bytes,
            accesses.random_write_bytes
        );
        Self { rows, note }
    }
}

/// The price of a memory in words.
fn told(own: &OwnMemory) -> String {
    let OwnMemory { name, price_euro, price_option, capacity, .. } = own;
    match price_euro {
        Some(_) if capacity.gib <= 0.0 => {
            format!("{name} has a price, but its size is unknown.")
        }
        Some(euro) => {
            let holds = Bytes((capacity.gib * GIB) as u64);
            format!("{name}: {euro} EUR, given, for {holds}, {}.", capacity.how)
        }
        None => format!("{name} has no price: give the price of all of it with {price_option}."),
    }
}

impl PriceRow {
    fn own(own: &OwnMemory) -> Self {
        let per_gb = |price: f64| (own.capacity.gib > 0.0).then(|| price / own.capacity.gib);
        let gib_per_s = own.highest.map(|highest| highest.map(|highest| highest.gib_per_s));
        let price_label = if own.price_euro.is_some() { "given" } else { "not given" };
        Self {
            price_label: price_label.into(),
            threads: own.highest.map(|highest| highest.map(|highest| highest.threads)),
            ..Self::new(&own.name, "measured", own.price_euro.and_then(per_gb), gib_per_s)
        }
    }

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
            price_label: label.into(),
            euro_per_gb,
            gib_per_s,
            threads: PerPattern::default(),
            euro_per_gb_per_s: gib_per_s.map(per),
            poster: PerPattern::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::insights::facts::Module;

    fn dram(price_euro: Option<f64>) -> OwnMemory {
        let highest = |gib_per_s| Some(Highest { gib_per_s, threads: 4 });
        OwnMemory {
            name: "this machine's DRAM".into(),
            price_euro,
            price_option: "--price",
            capacity: Capacity { gib: 32.0, how: "the sum of its modules" },
            highest: PerPattern {
                sequential_read: highest(10.0),
                random_read: highest(5.0),
                ..PerPattern::default()
            },
        }
    }

    #[test]
    fn a_price_is_spread_over_the_memory_and_its_bandwidth() {
        let prices = Prices::of(&[dram(Some(320.0))], &References::built_in());
        let own = &prices.rows[0];
        assert_eq!((own.euro_per_gb, own.label.as_str()), (Some(10.0), "measured"));
        assert_eq!(own.price_label, "given", "a price is not measured");
        assert_eq!(own.euro_per_gb_per_s.sequential_read, Some(1.0));
        assert_eq!(own.euro_per_gb_per_s.random_read, Some(2.0));
        assert_eq!(own.threads.random_read, Some(4));
        assert_eq!(own.euro_per_gb_per_s.random_write, None, "not measured");
        let told = "320 EUR, given, for 32 GiB, the sum of its modules.";
        assert!(prices.note.contains(told) && !prices.note.contains("--price"), "{}", prices.note);
    }

    #[test]
    fn a_folders_memory_has_a_row_and_a_price_of_its_own() {
        let folder = |price_euro| OwnMemory {
            name: "/mnt/pmem".into(),
            price_option: "--path-price",
            capacity: Capacity::of_file_system(256 << 30),
            ..dram(price_euro)
        };
        let prices = Prices::of(&[dram(None), folder(Some(2560.0))], &References::built_in());
        assert_eq!(prices.rows[0].euro_per_gb, None);
        let row = &prices.rows[1];
        assert_eq!((row.name.as_str(), row.euro_per_gb), ("/mnt/pmem", Some(10.0)));
        assert!(prices.note.contains("for 256 GiB, all of its file system"), "{}", prices.note);
        let prices = Prices::of(&[dram(Some(1.0)), folder(None)], &References::built_in());
        assert_eq!(prices.rows[1].euro_per_gb, None, "the DRAM's price is not the folder's");
        assert!(prices.note.contains("/mnt/pmem has no price"), "{}", prices.note);
        assert!(prices.note.contains("with --path-price."), "{}", prices.note);
        let unknown = OwnMemory { capacity: Capacity::of_file_system(0), ..folder(Some(1.0)) };
        let prices = Prices::of(&[unknown], &References::built_in());
        assert_eq!(prices.rows[0].euro_per_gb, None);
        assert!(prices.note.contains("its size is unknown"), "{}", prices.note);
    }

    #[test]
    fn modules_are_of_whole_gib_whatever_the_kernel_keeps() {
        const MIB: u64 = 1 << 20;
        for (mib, gib) in [
            (15_800, 16),
            (31_900, 32),
            (24_000, 24),
            (64_200, 64),
            (96_000, 96),
            (386_000, 384),
            (7_800, 8),
            (32 << 10, 32),
            (900, 1),
        ] {
            assert_eq!(rounded_up(mib * MIB), gib << 30, "{mib} MiB");
        }
        let facts = |modules| Facts {
            modules,
            memory_limit: Told::NotTold(String::new()),
            prefetch_switch: Told::NotTold(String::new()),
            cache_bytes: None,
        };
        let module = Module { bytes: 16 << 30, configured_mega_transfers_per_s: 0 };
        let known = Capacity::installed(&facts(Told::Known(vec![module; 2])), 1);
        assert_eq!((known.gib, known.how), (32.0, "the sum of its modules"));
        let rounded = Capacity::installed(&facts(Told::NotTold("no".into())), 15_800 * MIB);
        assert!(rounded.gib == 16.0 && rounded.how.contains("rounded up"));
    }

    #[test]
    fn without_a_price_only_the_published_systems_have_one() {
        let prices = Prices::of(&[dram(None)], &References::built_in());
        assert_eq!(prices.rows[0].euro_per_gb_per_s, PerPattern::default());
        assert_eq!(prices.rows[0].gib_per_s.sequential_read, Some(10.0));
        assert_eq!(prices.rows[0].price_label, "not given");
        assert!(prices.note.contains("--price"), "{}", prices.note);
        let published = &prices.rows[1];
        assert_eq!(
            (published.name.as_str(), published.label.as_str(), published.price_label.as_str()),
            ("apache-128", "published", "published")
        );
        let near = |value: Option<f64>, expected: f64| (value.unwrap() - expected).abs() < 0.005;
        assert!(near(published.euro_per_gb_per_s.sequential_read, 0.25));
        assert!(near(published.euro_per_gb_per_s.random_write, 0.885));
        assert!(near(published.poster.random_write, 3.43));
        let inferred = " barlow-256: its column inferred: the only other figure of the row";
        assert!(prices.note.contains(inferred), "{}", prices.note);
        let dram = prices.rows.iter().find(|row| row.name == "a-dram").unwrap();
        assert_eq!((dram.euro_per_gb, dram.gib_per_s.random_read), (Some(30.62), None));
    }
}
