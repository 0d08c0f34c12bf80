//! A MODELLED last-level cache: physically indexed, set-associative, least recently used, filled by
//! loads and stores alike, written back. It is the only cache: accesses that a cache before it
//! would answer hit here.
//!
//! Each line remembers the owner of its last store, who is charged for writing the line back.

use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};

/// The owner of the memory that is accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// Data of the persistent kind.
    PersistentData,
    /// Data of the capacity kind.
    CapacityData,
    /// The allocator's own words in persistent memory, which say what is allocated.
    Metadata,
    /// Records of transactions.
    Log,
}

impl Owner {
    /// All owners.
    pub const ALL: [Self; 4] =
        [Self::PersistentData, Self::CapacityData, Self::Metadata, Self::Log];

    /// Name of the owner in pages and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::PersistentData => "persistent data",
            Self::CapacityData => "capacity data",
            Self::Metadata => "allocator metadata",
            Self::Log => "log",
        }
    }
}

/// Effect of a flush on a line in the cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlushKind {
    /// The line leaves the cache (clflush, clflushopt), as on the paper's machine.
    #[default]
    Drops,
    /// The line stays in the cache, clean (clwb).
    Keeps,
}

/// Size and shape of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheShape {
    /// Size of the cache.
    pub size_bytes: u64,
    /// Lines of a set.
    pub ways: u64,
    /// Size of a line.
    pub line_bytes: u64,
}

/// The cache of the paper's machine, an Atom with 1 MB. The paper does not give the ways: 8 is from
/// Intel's Atoms of that time with 1 MB for two cores.
impl Default for CacheShape {
    fn default() -> Self {
        Self { size_bytes: 1 << 20, ways: 8, line_bytes: 64 }
    }
}

/// A shape that no cache can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a cache of {} bytes, {} ways and lines of {} bytes: expected lines of a power of two from 8 \
     to 4096 bytes, 1 to 64 ways, and a size that is a multiple of both",
    .0.size_bytes, .0.ways, .0.line_bytes
)]
pub struct ShapeError(pub CacheShape);

impl CacheShape {
    /// Number of sets.
    ///
    /// # Errors
    /// The shape is impossible.
    pub fn sets(self) -> Result<NonZeroU64, ShapeError> {
        let is_line = self.line_bytes.is_power_of_two() && (8..=4096).contains(&self.line_bytes);
        let set_bytes = self.ways.checked_mul(self.line_bytes).unwrap_or(0);
        if !is_line || !(1..=64).contains(&self.ways) || !self.size_bytes.is_multiple_of(set_bytes)
        {
            return Err(ShapeError(self));
        }
        NonZeroU64::new(self.size_bytes / set_bytes).ok_or(ShapeError(self))
    }
}

/// Counts of one owner's accesses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Lines loaded or stored to.
    pub accesses: u64,
    /// Accesses whose line was not in the cache.
    pub misses: u64,
    /// Lines flushed by an instruction.
    pub flushes: u64,
    /// Lines written to memory, flushed or evicted.
    pub writebacks: u64,
}

impl Counts {
    /// The sum of two counts.
    pub fn plus(self, other: Self) -> Self {
        Self {
            accesses: self.accesses + other.accesses,
            misses: self.misses + other.misses,
            flushes: self.flushes + other.flushes,
            writebacks: self.writebacks + other.writebacks,
        }
    }
}

/// Counts by owner.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountsByOwner {
    /// Data of the persistent kind.
    pub persistent_data: Counts,
    /// Data of the capacity kind.
    pub capacity_data: Counts,
    /// The allocator's own words in persistent memory.
    pub metadata: Counts,
    /// Records of transactions.
    pub log: Counts,
}

impl CountsByOwner {
    /// The counts of one owner.
    pub fn of(&self, owner: Owner) -> Counts {
        match owner {
            Owner::PersistentData => self.persistent_data,
            Owner::CapacityData => self.capacity_data,
            Owner::Metadata => self.metadata,
            Owner::Log => self.log,
        }
    }

    fn of_mut(&mut self, owner: Owner) -> &mut Counts {
        match owner {
            Owner::PersistentData => &mut self.persistent_data,
            Owner::CapacityData => &mut self.capacity_data,
            Owner::Metadata => &mut self.metadata,
            Owner::Log => &mut self.log,
        }
    }

    /// All owners together.
    pub fn total(&self) -> Counts {
        Owner::ALL.into_iter().fold(Counts::default(), |sum, owner| sum.plus(self.of(owner)))
    }
}

/// A line in the cache in one word: its number, the owner of the last store, and whether it must be
/// written back.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Line(u64);

const DIRTY: u64 = 1 << 2;
const NUMBER_SHIFT: u32 = 3;

impl Line {
    const EMPTY: Self = Self(u64::MAX);

    fn clean(number: u64, owner: Owner) -> Self {
        Self(number << NUMBER_SHIFT | owner as u64)
    }

    fn number(self) -> u64 {
        self.0 >> NUMBER_SHIFT
    }

    fn owner(self) -> Owner {
        Owner::ALL[(self.0 & 3) as usize]
    }

    fn is_dirty(self) -> bool {
        self != Self::EMPTY && self.0 & DIRTY != 0
    }

    fn stored(self, owner: Owner) -> Self {
        Self(self.0 & !(DIRTY - 1) | owner as u64 | DIRTY)
    }

    fn written_back(self) -> Self {
        Self(self.0 & !DIRTY)
    }
}

/// The cache. The lines of a set are in the order of their last use, newest first.
pub struct Cache {
    lines: Vec<Line>,
    ways: usize,
    sets: NonZeroU64,
    flush: FlushKind,
    counts: CountsByOwner,
}

impl Cache {
    /// An empty cache.
    ///
    /// # Errors
    /// The shape is impossible.
    pub fn new(shape: CacheShape, flush: FlushKind) -> Result<Self, ShapeError> {
        let sets = shape.sets()?;
        let lines = vec![Line::EMPTY; (sets.get() * shape.ways) as usize];
        let counts = CountsByOwner::default();
        Ok(Self { lines, ways: shape.ways as usize, sets, flush, counts })
    }

    /// Loads or stores the physical line with a number; returns whether the line was in the cache.
    pub fn access(&mut self, number: u64, owner: Owner, is_store: bool) -> bool {
        let set = self.set(number);
        let lines = &mut self.lines[set..set + self.ways];
        let found = lines.iter().position(|line| line.number() == number);
        let (place, line) = match found {
            Some(place) => (place, lines[place]),
            None => (lines.len() - 1, Line::clean(number, owner)),
        };
        let gone = found.is_none().then_some(lines[place]);
        lines.copy_within(..place, 1);
        lines[0] = if is_store { line.stored(owner) } else { line };
        if let Some(gone) = gone.filter(|gone| gone.is_dirty()) {
            self.counts.of_mut(gone.owner()).writebacks += 1;
        }
        let counts = self.counts.of_mut(owner);
        counts.accesses += 1;
        counts.misses += u64::from(found.is_none());
        found.is_some()
    }

    /// Flushes the physical line with a number, on behalf of an owner.
    pub fn flush(&mut self, number: u64, owner: Owner) {
        self.counts.of_mut(owner).flushes += 1;
        let set = self.set(number);
        let lines = &mut self.lines[set..set + self.ways];
        let Some(place) = lines.iter().position(|line| line.number() == number) else { return };
        let line = lines[place];
        match self.flush {
            FlushKind::Keeps => lines[place] = line.written_back(),
            FlushKind::Drops => {
                lines.copy_within(place + 1.., place);
                lines[self.ways - 1] = Line::EMPTY;
            }
        }
        if line.is_dirty() {
            self.counts.of_mut(line.owner()).writebacks += 1;
        }
    }

    /// The counts so far.
    pub fn counts(&self) -> CountsByOwner {
        self.counts
    }

    /// Sets the counts to zero; the lines stay.
    pub fn forget_counts(&mut self) {
        self.counts = CountsByOwner::default();
    }

    fn set(&self, number: u64) -> usize {
        (number % self.sets) as usize * self.ways
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus as Random;

    use super::*;

    /// The oracle: every line with the time of its last use, searched without any index.
    #[derive(Default)]
    struct Naive {
        lines: Vec<(u64, u64, bool, Owner)>,
        now: u64,
        counts: CountsByOwner,
    }

    impl Naive {
        fn access(&mut self, shape: CacheShape, number: u64, owner: Owner, is_store: bool) {
            self.now += 1;
            let sets = shape.sets().unwrap().get();
            self.counts.of_mut(owner).accesses += 1;
            if let Some(line) = self.lines.iter_mut().find(|line| line.0 == number) {
                line.1 = self.now;
                if is_store {
                    (line.2, line.3) = (true, owner);
                }
                return;
            }
            self.counts.of_mut(owner).misses += 1;
            let of_set = |line: &&(u64, u64, bool, Owner)| line.0 % sets == number % sets;
            if self.lines.iter().filter(of_set).count() as u64 == shape.ways {
                let oldest = *self.lines.iter().filter(of_set).min_by_key(|line| line.1).unwrap();
                self.drop_line(oldest.0);
            }
            self.lines.push((number, self.now, is_store, owner));
        }

        fn drop_line(&mut self, number: u64) {
            let at = self.lines.iter().position(|line| line.0 == number);
            let Some(at) = at else { return };
            let (_, _, is_dirty, owner) = self.lines.swap_remove(at);
            self.counts.of_mut(owner).writebacks += u64::from(is_dirty);
        }

        fn flush(&mut self, kind: FlushKind, number: u64, owner: Owner) {
            self.counts.of_mut(owner).flushes += 1;
            if kind == FlushKind::Drops {
                return self.drop_line(number);
            }
            if let Some(line) = self.lines.iter_mut().find(|line| line.0 == number && line.2) {
                line.2 = false;
                self.counts.of_mut(line.3).writebacks += 1;
            }
        }
    }

    #[test]
    fn the_model_counts_what_a_naive_one_counts() {
        for seed in 0..40 {
            let mut random = Random::seed_from_u64(seed);
            let (ways, sets) = (random.random_range(1..=8), random.random_range(1..=7));
            let shape = CacheShape { size_bytes: ways * sets * 64, ways, line_bytes: 64 };
            let kind = if random.random() { FlushKind::Drops } else { FlushKind::Keeps };
            let mut cache = Cache::new(shape, kind).unwrap();
            let mut naive = Naive::default();
            for step in 0..4000 {
                let number = random.random_range(0..3 * ways * sets);
                let owner = Owner::ALL[random.random_range(0..4)];
                if random.random_range(0..5) == 0 {
                    cache.flush(number, owner);
                    naive.flush(kind, number, owner);
                } else {
                    let is_store = random.random();
                    cache.access(number, owner, is_store);
                    naive.access(shape, number, owner, is_store);
                }
                assert_eq!(cache.counts(), naive.counts, "seed {seed}, step {step}, {shape:?}");
            }
        }
    }

    #[test]
    fn the_default_is_the_papers_size_and_strange_shapes_are_refused() {
        assert_eq!(CacheShape::default().sets().unwrap().get(), 2048);
        let shape = CacheShape::default();
        for wrong in [
            CacheShape { ways: 0, ..shape },
            CacheShape { ways: 65, ..shape },
            CacheShape { line_bytes: 48, ..shape },
            CacheShape { size_bytes: 0, ..shape },
            CacheShape { size_bytes: 1000, ..shape },
        ] {
            assert_eq!(wrong.sets(), Err(ShapeError(wrong)));
        }
    }

    #[test]
    fn a_flushed_line_misses_again_only_where_the_flush_drops_it() {
        for (kind, misses) in [(FlushKind::Drops, 2), (FlushKind::Keeps, 1)] {
            let mut cache = Cache::new(CacheShape::default(), kind).unwrap();
            cache.access(7, Owner::Log, true);
            cache.flush(7, Owner::Log);
            cache.access(7, Owner::Log, true);
            assert_eq!(cache.counts().log.misses, misses, "{kind:?}");
            assert_eq!(cache.counts().log.writebacks, 1);
        }
    }
}
