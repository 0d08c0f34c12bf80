//! A scenario: sizes, promise and steps, a pure function of a seed.

use std::fmt;
use std::rc::Rc;

use perdura_region::{BUDGET_MIN_BYTES, Compression, Config, Planted, PolicyKind};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

use super::name::Name;
use super::step::{Change, Step, Term};

/// The aim of a scenario.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    /// So few durable operations that a cut is made at every one.
    Small,
    /// Everything that a store does.
    Mixed,
    /// Large values in a small region with a short log, so that segments must be freed and
    /// compacted.
    Churn,
    /// So much dirty data that the frame buffers hold a part of it only: a process that dies in a
    /// checkpoint leaves an epoch that is not written.
    Large,
}

/// When an operation counts as acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Durability {
    /// At once, when the operation is in memory: a warning covers it.
    Warned,
    /// When the next group commit has returned; a group commit is made after every so many steps.
    Fsync { every: usize },
}

/// A run to be cut.
pub(crate) struct Scenario {
    pub seed: u64,
    pub shape: Shape,
    pub durability: Durability,
    pub region_bytes: u64,
    pub reserved_bytes: u64,
    /// Dirty bytes for which the battery was bought: about the budget.
    pub dirty_bytes: u64,
    pub segment_bytes: u64,
    pub log_percent: u64,
    pub lanes: u16,
    pub policy: PolicyKind,
    pub compression: Compression,
    /// Whether repeated writes are noted.
    pub recency: bool,
    /// Steps between two checkpoints besides those among the steps; `None` for no more.
    pub checkpoint_steps: Option<usize>,
    pub steps: Vec<Step>,
}

/// Sizes of regions are multiples of this.
const QUARTER_BYTES: u64 = 256 << 10;
/// Bytes of the smallest segment that a log can have.
const SEGMENT_BYTES_MIN: u64 = 64 << 10;

impl Scenario {
    /// The scenario of a seed, with much dirty data or with any other aim.
    pub fn draw(seed: u64, is_large: bool) -> Self {
        let mut random = Random::seed_from_u64(seed);
        let random = &mut random;
        let shape = match random.random_range(0..10) {
            _ if is_large => Shape::Large,
            0..3 => Shape::Small,
            3..7 => Shape::Mixed,
            _ => Shape::Churn,
        };
        let quarters = match shape {
            Shape::Small => 4..=16,
            Shape::Mixed => 6..=32,
            Shape::Churn => 16..=22,
            Shape::Large => 16..=24,
        };
        let region_bytes = random.random_range(quarters) * QUARTER_BYTES;
        let percent = match shape {
            Shape::Churn => random.random_range(2..=8),
            Shape::Large => random.random_range(40..=60),
            _ => [2, 5, 11, 23, 46][random.random_range(0..5)],
        };
        let mut scenario = Self {
            seed,
            shape,
            durability: match random.random_range(0..10) {
                // Group commits would keep the dirty data few.
                _ if is_large => Durability::Warned,
                0..6 => Durability::Warned,
                6..9 => Durability::Fsync { every: 1 },
                _ => Durability::Fsync { every: random.random_range(2..6) },
            },
            region_bytes,
            reserved_bytes: region_bytes + random.random_range(0..=8) * QUARTER_BYTES,
            dirty_bytes: share(region_bytes, percent),
            // Longer frames only make it harder to fill all buffers.
            segment_bytes: match shape {
                Shape::Large => SEGMENT_BYTES_MIN,
                _ => SEGMENT_BYTES_MIN << [0, 0, 0, 1, 1, 2][random.random_range(0..6)],
            },
            log_percent: match shape {
                Shape::Churn => 125,
                _ => random.random_range(125..=300),
            },
            lanes: random.random_range(2..=5),
            policy: PolicyKind::ALL[random.random_range(0..PolicyKind::ALL.len())],
            compression: compression(seed),
            recency: is_large || settings(seed).0,
            // More checkpoints would keep the dirty data few.
            checkpoint_steps: if is_large { None } else { settings(seed).1 },
            steps: Vec::new(),
        };
        let steps = match shape {
            Shape::Small => random.random_range(6..16),
            Shape::Mixed => random.random_range(40..130),
            Shape::Churn => random.random_range(300..600),
            Shape::Large => random.random_range(130..220),
        };
        scenario.steps = (0..steps).map(|_| Steps { of: &scenario, random }.draw()).collect();
        if is_large {
            // An epoch with more dirty data than the frame buffers hold.
            let at = random.random_range(steps * 6 / 10..steps * 95 / 100);
            scenario.steps[at] = Step::Checkpoint;
        }
        scenario
    }

    /// Sizes and settings of a seed without steps, for a server.
    pub fn draw_for_server(seed: u64) -> Self {
        let mut random = Random::seed_from_u64(seed);
        let region_bytes = random.random_range(12..=20) * QUARTER_BYTES;
        Self {
            seed,
            shape: Shape::Small,
            durability: Durability::Warned,
            region_bytes,
            reserved_bytes: region_bytes + random.random_range(0..=8) * QUARTER_BYTES,
            dirty_bytes: share(region_bytes, [5, 8, 11, 23][random.random_range(0..4)]),
            segment_bytes: SEGMENT_BYTES_MIN << random.random_range(0..=1),
            log_percent: random.random_range(125..=300),
            lanes: random.random_range(2..=5),
            policy: PolicyKind::ALL[random.random_range(0..PolicyKind::ALL.len())],
            compression: compression(seed),
            recency: settings(seed).0,
            checkpoint_steps: None,
            steps: Vec::new(),
        }
    }

    /// Settings of the region.
    pub fn config(&self, region_bytes: u64, budget_bytes: u64, planted: Planted) -> Config {
        Config {
            reserved_bytes: Some(self.reserved_bytes),
            segment_bytes: Some(self.segment_bytes),
            log_percent: self.log_percent,
            lanes: Some(self.lanes),
            policy: self.policy,
            recency: self.recency,
            compression: self.compression,
            checkpoint_every: None,
            thread: false,
            defer_load: true,
            seed: self.seed,
            planted,
            ..Config::new(region_bytes, budget_bytes)
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape = match self.shape {
            Shape::Small => "small",
            Shape::Mixed => "mixed",
            Shape::Churn => "churn",
            Shape::Large => "large",
        };
        write!(f, "{shape}, {} steps, ", self.steps.len())?;
        match self.durability {
            Durability::Warned => f.write_str("warned")?,
            Durability::Fsync { every } => write!(f, "fsync every {every}")?,
        }
        write!(
            f,
            ", {} KiB region, battery for {} KiB, log {} % in segments of {} KiB, {} lanes, {}, \
             compression {}",
            self.region_bytes >> 10,
            self.dirty_bytes >> 10,
            self.log_percent,
            self.segment_bytes >> 10,
            self.lanes,
            self.policy.name(),
            self.compression.name(),
        )?;
        f.write_str(if self.recency { "" } else { ", first writes only" })?;
        let every = self.checkpoint_steps;
        every.map_or(Ok(()), |steps| write!(f, ", a checkpoint every {steps} steps"))
    }
}

fn share(region_bytes: u64, percent: u64) -> u64 {
    (region_bytes / 100 * percent).max(BUDGET_MIN_BYTES)
}

/// Two in five scenarios compress. The choice has a generator of its own, so that the seeds of
/// older failures still draw the same steps.
fn compression(seed: u64) -> Compression {
    let mut random = Random::seed_from_u64(seed ^ 0x6c7a_3463_7574_7321);
    if random.random_ratio(2, 5) { Compression::Lz4 } else { Compression::Off }
}

/// Whether repeated writes are noted, and the steps between two checkpoints, from a generator of
/// their own.
fn settings(seed: u64) -> (bool, Option<usize>) {
    let mut random = Random::seed_from_u64(seed ^ 0x7365_7474_696e_6773);
    let is_periodic = random.random_ratio(1, 4);
    (random.random_ratio(3, 4), is_periodic.then(|| random.random_range(2..40)))
}

/// Draws steps.
struct Steps<'a> {
    of: &'a Scenario,
    random: &'a mut Random,
}

impl Steps<'_> {
    fn draw(&mut self) -> Step {
        // A churn mostly writes, with few commits. A small run has a commit in every few steps.
        let kind = match self.of.shape {
            Shape::Small => self.random.random_range(300..1000),
            Shape::Mixed => self.random.random_range(0..1000),
            Shape::Large if self.random.random_bool(0.996) => 0,
            Shape::Large => self.random.random_range(845..915),
            Shape::Churn if self.random.random_bool(0.97) => self.random.random_range(0..845),
            Shape::Churn => self.random.random_range(845..1000),
        };
        match kind {
            0..640 => Step::Change(vec![self.change()]),
            640..730 => Step::Change(self.changes()),
            730..750 => Step::Abort(self.changes()),
            750..754 => Step::Empty(None),
            754..760 => Step::Empty(Some(self.random.random_range(0..2))),
            760..830 => Step::Tick(self.random.random_range(1..400)),
            830..845 => Step::Look,
            845..885 => Step::Checkpoint,
            885..915 => Step::Group,
            915..940 => {
                let most = if self.of.shape == Shape::Churn { 8 } else { 46 };
                let percent = self.random.random_range(2..=most);
                Step::SetBattery(share(self.of.region_bytes, percent))
            }
            940..948 => {
                let more = self.of.reserved_bytes - self.of.region_bytes;
                Step::Grow(self.of.region_bytes + self.random.random_range(0..=more))
            }
            948..960 => Step::Drill,
            960..980 => {
                // A process may be started with more memory than the one before it.
                let more = self.of.reserved_bytes - self.of.region_bytes;
                Step::Attach(self.of.region_bytes + self.random.random_range(0..=more))
            }
            _ => Step::Reopen,
        }
    }

    fn changes(&mut self) -> Vec<Change> {
        (0..self.random.random_range(2..6)).map(|_| self.change()).collect()
    }

    fn change(&mut self) -> Change {
        let name = self.name();
        if self.of.shape == Shape::Large && self.random.random_bool(0.8) {
            return Change::Put(name, self.value(), Term::Never);
        }
        if name.key.starts_with(b"hash") && self.random.random_bool(0.7) {
            return self.hash_change(name);
        }
        if name.key.starts_with(b"set") && self.random.random_bool(0.8) {
            return self.sorted_change(name);
        }
        match self.random.random_range(0..100) {
            0..55 => {
                let term = match self.random.random_range(0..10) {
                    0..7 => Term::Never,
                    7 => Term::Keep,
                    _ => Term::In(self.random.random_range(0..3_000)),
                };
                Change::Put(name, self.value(), term)
            }
            55..67 => Change::Delete(name),
            67..73 => Change::Expire(name, Term::In(self.random.random_range(0..3_000))),
            73..75 => Change::Expire(name, Term::Never),
            75..84 => Change::Append(name, self.value()),
            84..92 => {
                let offset = self.random.random_range(0..6_000);
                Change::Patch(name, offset, self.value())
            }
            92..96 => Change::Move { from: name, to: self.name(), is_copy: false },
            _ => Change::Move { from: name, to: self.name(), is_copy: true },
        }
    }

    /// A change of a hash, now and then of so many fields that the hash outgrows its record.
    fn hash_change(&mut self, name: Name) -> Change {
        let few = self.random.random_range(1..5);
        let count = if self.random.random_bool(0.85) { few } else { 40 };
        if self.random.random_bool(0.7) {
            let fields = (0..count).map(|_| (self.field(), self.short())).collect();
            Change::HashSet(name, fields)
        } else {
            Change::HashDelete(name, (0..count).map(|_| self.field()).collect())
        }
    }

    /// A change of a sorted set, now and then of so many members that the set outgrows its record,
    /// or the tree its leaves.
    fn sorted_change(&mut self, name: Name) -> Change {
        let count = if self.random.random_bool(0.8) { 3 } else { 90 };
        let member =
            |this: &mut Self| format!("member:{}", this.random.random_range(0..400)).into_bytes();
        if self.random.random_bool(0.65) {
            let members =
                (0..count).map(|_| (member(self), self.random.random_range(-50..50))).collect();
            Change::SortedAdd(name, members)
        } else {
            Change::SortedRemove(name, (0..count).map(|_| member(self)).collect())
        }
    }

    fn name(&mut self) -> Name {
        let db = u8::from(self.random.random_bool(0.15));
        let key = match (self.of.shape, self.random.random_range(0..10)) {
            (_, 0) => format!("hash:{}", self.random.random_range(0..6)),
            (_, 1) => format!("set:{}", self.random.random_range(0..4)),
            (Shape::Small, _) => format!("key:{}", self.random.random_range(0..6)),
            (Shape::Large, _) => format!("key:{}", self.random.random_range(0..160)),
            (_, 2..6) => format!("key:{}", self.random.random_range(0..12)),
            (Shape::Churn, _) => format!("key:{}", self.random.random_range(0..50)),
            (Shape::Mixed, _) => format!("key:{}", self.random.random_range(0..250)),
        };
        Name { db, key: Rc::from(key.into_bytes()) }
    }

    fn field(&mut self) -> Vec<u8> {
        format!("field:{}", self.random.random_range(0..120)).into_bytes()
    }

    fn short(&mut self) -> Rc<[u8]> {
        let len = self.random.random_range(1..600);
        self.bytes(len)
    }

    fn value(&mut self) -> Rc<[u8]> {
        let len = match (self.of.shape, self.random.random_range(0..100)) {
            (Shape::Churn, 0..85) => self.random.random_range(12_000..60_000),
            (Shape::Large, 0..90) => self.random.random_range(8_192..=24_576),
            (_, 0..30) => self.random.random_range(1..64),
            (_, 30..70) => self.random.random_range(64..1_024),
            (_, 70..93) => self.random.random_range(1_024..8_192),
            _ => self.random.random_range(8_192..=65_536),
        };
        self.bytes(len)
    }

    /// Makes all but the first eight of each 32 bytes alike: in half of the values, and in one half
    /// of some others.
    fn make_compressible(&mut self, bytes: &mut [u8]) {
        let end = match self.random.random_range(0..10) {
            0..4 => 0,
            4..9 => bytes.len(),
            _ => bytes.len() / 2,
        };
        for piece in bytes[..end].chunks_mut(32) {
            let (_, rest) = piece.split_at_mut(piece.len().min(8));
            rest.fill(0x5a);
        }
    }

    /// Bytes of which no two grains are alike.
    fn bytes(&mut self, len: usize) -> Rc<[u8]> {
        let mut bytes = vec![0; len];
        self.random.fill(&mut bytes[..]);
        if self.of.compression != Compression::Off {
            self.make_compressible(&mut bytes);
        }
        Rc::from(bytes)
    }
}
