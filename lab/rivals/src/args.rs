//! The command line: the options of `perdura bench ycsb` that make sense here.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;
use perdura_bench::dist::Distribution;
use perdura_bench::drive::Quota;
use perdura_bench::pairs::PAIRS_MIN;
use perdura_bench::workload::{Layout, RecordKind, Workload};
use perdura_bench::settings::{BudgetShare, Place, Setup, SideSettings, YcsbSettings};
use perdura_media::file::{Direct, Engine};
use perdura_media::{Bytes, Percent, parse_duration};
use perdura_region::{Compression, PolicyKind, TrackingKind};

use crate::contest::ContestSettings;
use crate::engines::{RIVALS, Rival};

/// Perdura's embedded store beside other engines, each in turn with it: throughput, tails, losses
/// survived, bytes to the SSD.
#[derive(Debug, Parser)]
#[command(name = "perdura-rivals", version, max_term_width = 100, args_override_self = true)]
pub struct Args {
    /// Engines: map, lmdb, rocksdb, redb, fjall; each in all its modes [default: all].
    #[arg(long, value_name = "NAME,...")]
    pub rivals: Option<String>,
    /// Workloads, a to f, as of `perdura bench ycsb`.
    #[arg(long, value_name = "LETTER,...", default_value = "a,c")]
    pub workload: String,
    /// Records to load first.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub records: u64,
    /// Operations of each side of each pairing [default: as many as records].
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    pub operations: Option<u64>,
    /// Time of each side of each pairing, instead of a number of operations.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Length of a value; keys have 16 bytes.
    #[arg(long, value_name = "SIZE", default_value = "1KiB")]
    pub value: Bytes,
    /// Form of a record. Engines other than Perdura know only strings.
    #[arg(long, value_name = "KIND", default_value = "string", value_parser = ["string"])]
    pub record: String,
    /// Fields of a record; together they have the value's length. An update writes one of them.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub fields: usize,
    /// Distribution of accesses: zipfian (YCSB's, hashed), plain-zipfian, latest, uniform, hotspot,
    /// exponential [default: the workload's].
    #[arg(long, value_name = "NAME")]
    pub distribution: Option<String>,
    /// Longest scan of workload e.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub scan_max: usize,
    /// Seed of all streams.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Threads.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: usize,
    /// Operations a second of all threads; latencies then run from the intended start.
    #[arg(long, value_name = "OPS")]
    pub rate: Option<f64>,
    /// Slices of each side, at least 10.
    #[arg(long, value_name = "N", default_value_t = PAIRS_MIN)]
    pub pairs: usize,
    /// Most dirty bytes in Perdura: a size, or a share of the loaded records' bytes.
    #[arg(long, value_name = "SIZE|PERCENT", default_value = "11%")]
    pub budget: String,
    /// When a write to Perdura is acknowledged: `warned` (in memory, covered by the warning) or
    /// `fsync` (on the SSD).
    #[arg(long, value_name = "MODE", default_value = "warned", value_parser = ["warned", "fsync"])]
    pub durability: String,
    /// Perdura's time between checkpoints, or `off`.
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub checkpoint: String,
    /// Memory of Perdura's store [default: what the records need].
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Bytes>,
    /// Folder for all files, on the file system to be measured; the files are removed at the end.
    #[arg(long, value_name = "DIR", default_value = "perdura-bench")]
    pub dir: PathBuf,
    /// Also write all results to this file.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// The settings that the command line means.
#[derive(Debug)]
pub struct Resolved {
    /// One contest for each workload.
    pub contests: Vec<ContestSettings>,
    /// The engines, in the order of the table.
    pub rivals: Vec<&'static Rival>,
}

impl Args {
    /// Checks every value and fills in what follows from others.
    ///
    /// # Errors
    /// A value is wrong; the error names it.
    pub fn resolve(&self) -> Result<Resolved> {
        let counts = [
            ("records", self.records),
            ("threads", self.threads as u64),
            ("fields", self.fields as u64),
            ("scan-max", self.scan_max as u64),
            ("operations", self.operations.unwrap_or(1)),
        ];
        if let Some((name, _)) = counts.iter().find(|(_, count)| *count == 0) {
            bail!("--{name} 0: expected at least 1");
        }
        if self.pairs < PAIRS_MIN {
            bail!("--pairs {}: expected at least {PAIRS_MIN}", self.pairs);
        }
        if self.duration.is_some_and(|time| time.is_zero()) {
            bail!("--duration 0s: expected more");
        }
        if let Some(rate) = self.rate.filter(|rate| rate.is_nan() || *rate <= 0.0) {
            bail!("--rate {rate}: expected operations a second, such as 50000");
        }
        if self.value.0 < self.fields as u64 || self.value.0 > VALUE_BYTES_MAX {
            bail!("--value {}: expected at least a byte a field, at most 16 MiB", self.value);
        }
        let letters = self.workload.split(',').map(str::trim);
        Ok(Resolved {
            contests: letters.map(|letter| self.contest(letter)).collect::<Result<_>>()?,
            rivals: self.rivals()?,
        })
    }

    fn rivals(&self) -> Result<Vec<&'static Rival>> {
        let Some(names) = &self.rivals else { return Ok(RIVALS.iter().collect()) };
        let mut chosen = Vec::new();
        for name in names.split(',').map(str::trim) {
            let before = chosen.len();
            chosen.extend(RIVALS.iter().filter(|rival| rival.engine == name));
            if chosen.len() == before {
                bail!("--rivals {name}: expected map, lmdb, rocksdb, redb or fjall");
            }
        }
        Ok(chosen)
    }

    fn contest(&self, letter: &str) -> Result<ContestSettings> {
        let workload = Workload::parse(letter)
            .with_context(|| format!("--workload {letter}: expected a, b, c, d, e or f"))?;
        let setup = self.setup();
        let checkpoint_every = match &*self.checkpoint {
            "off" => None,
            time => Some(parse_duration(time).with_context(|| format!("--checkpoint {time}"))?),
        };
        let field_bytes = self.value.0 as usize / self.fields;
        let layout = Layout::new(RecordKind::String, self.fields, field_bytes, false);
        let quota = match self.duration {
            Some(time) => Quota::Time(time),
            None => Quota::Operations(self.operations.unwrap_or(self.records)),
        };
        let ycsb = YcsbSettings {
            workload,
            distribution: self.distribution.as_deref().map(distribution).transpose()?,
            records: self.records,
            quota,
            layout: layout.with_short_keys(),
            threads: self.threads,
            pipeline: 1,
            rate: self.rate,
            think: Duration::ZERO,
            scan_max: self.scan_max,
            pairs: self.pairs,
            seed: self.seed,
            load: true,
            place: Place::Embedded(setup.clone()),
            side: SideSettings {
                budget: budget(&self.budget)?,
                recency: true,
                compression: Compression::Off,
                is_encrypted: false,
                checkpoint_every,
            },
            compare: None,
            ablate_recency: false,
            runs: 1,
        };
        Ok(ContestSettings { ycsb, setup, commit_each: self.durability == "fsync" })
    }

    fn setup(&self) -> Setup {
        Setup {
            dir: self.dir.clone(),
            memory_bytes: self.memory.map(|Bytes(bytes)| bytes),
            tracking: TrackingKind::Barrier,
            policy: PolicyKind::default(),
            engine: Engine::Auto,
            direct: Direct::Auto,
            flush_threads: 1,
        }
    }
}

const VALUE_BYTES_MAX: u64 = 16 << 20;

fn distribution(name: &str) -> Result<Distribution> {
    Distribution::parse(name).with_context(|| {
        let names: Vec<_> = Distribution::ALL.iter().map(|one| one.name()).collect();
        format!("--distribution {name}: expected one of {}", names.join(", "))
    })
}

fn budget(text: &str) -> Result<BudgetShare> {
    let named = || format!("--budget {text}");
    if text.trim_end().ends_with('%') {
        let Percent(percent) = text.parse().with_context(named)?;
        return Ok(BudgetShare::Percent(percent));
    }
    let Bytes(bytes) = text.parse().with_context(named)?;
    Ok(BudgetShare::Bytes(bytes))
}
