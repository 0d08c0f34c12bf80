//! Measures how contiguous pages of two kinds are that come from one range, taken by one thread in
//! turn or by a thread for each kind: on demand, and in buckets that are filled in different ways.
//!
//! On demand each kind has half of the range, and pages come at the first touch: this is the case
//! without buckets. In buckets a kind takes the next bucket of the range when it needs one, so
//! neighbouring buckets may belong to different kinds.

use std::sync::Barrier;
use std::time::Instant;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::frames::{Contiguity, FrameError, FrameReader};
use super::sys::{Backing, HUGE_PAGE_BYTES, PAGE_BYTES, Pages};

/// How the pages of a bucket are put in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Filling {
    /// No buckets: each page comes at its first touch.
    OnDemand,
    /// All pages of a bucket at once, each by itself.
    Populated,
    /// One page of the bucket's huge page, around which the rest is gathered (`MADV_COLLAPSE`),
    /// when the first bucket of the huge page is taken.
    Gathered,
}

impl Filling {
    /// The way in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::OnDemand => "on demand",
            Self::Populated => "bucket populated",
            Self::Gathered => "bucket gathered",
        }
    }
}

/// Settings of the placement.
#[derive(Debug, Clone)]
pub struct PlacementSettings {
    /// Bytes of each kind.
    pub kind_bytes: usize,
    /// Sizes of a bucket to compare.
    pub buckets_bytes: Vec<usize>,
    /// Numbers of threads: 1 takes both kinds in turn, 2 take one kind each.
    pub threads: Vec<usize>,
}

/// The result of one way of placing pages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Placement {
    /// Whether the pages belong to a file in memory, like those of a region; otherwise they have no
    /// file.
    pub is_memory_file: bool,
    /// Number of threads.
    pub threads: usize,
    /// How pages were put in place.
    pub filling: Filling,
    /// Size of a bucket; none: no buckets.
    pub bucket_bytes: Option<usize>,
    /// Contiguity of the persistent kind; none: frames are not shown.
    pub persistent: Option<Contiguity>,
    /// Contiguity of the capacity kind; none: frames are not shown.
    pub capacity: Option<Contiguity>,
    /// Percent of breaks saved against on demand, both kinds together; none: nothing to compare
    /// with.
    pub breaks_fewer_percent: Option<f64>,
    /// Time of a page with its first touch, nanoseconds.
    pub page_ns: f64,
    /// Time of the slowest bucket, nanoseconds: a thread that needed the bucket waited this long.
    pub bucket_ns_max: u64,
    /// Buckets that could not be gathered and were populated instead.
    pub gather_failures: u64,
}

/// Pages cannot be placed or examined.
#[derive(Debug, thiserror::Error)]
pub enum PlacementError {
    /// Mapping or populating pages failed.
    #[error("{bytes} bytes of pages: {source}")]
    Pages {
        /// Size of the pages.
        bytes: usize,
        /// The system's reason.
        source: rustix::io::Errno,
    },
    /// A range cannot be divided into buckets of this size.
    #[error(
        "a bucket of {bucket_bytes} bytes: expected a power of two from {PAGE_BYTES} to \
         {kind_bytes} bytes"
    )]
    Bucket {
        /// Size of the bucket.
        bucket_bytes: usize,
        /// Bytes of each kind.
        kind_bytes: usize,
    },
    /// Frame numbers cannot be read.
    #[error(transparent)]
    Frames(#[from] FrameError),
}

/// Places pages in each way.
///
/// # Errors
/// A bucket size is impossible, memory is short, or frames cannot be read.
pub fn place(
    settings: &PlacementSettings,
    reader: &FrameReader,
) -> Result<Vec<Placement>, PlacementError> {
    let mut all = Vec::new();
    for backing in [Backing::Anonymous, Backing::MemoryFile] {
        for threads in &settings.threads {
            let on_demand = one(settings, reader, backing, *threads, None)?;
            let base = both_breaks(&on_demand);
            all.push(on_demand);
            for bucket_bytes in &settings.buckets_bytes {
                for filling in [Filling::Populated, Filling::Gathered] {
                    let bucket = Some((*bucket_bytes, filling));
                    let mut placed = one(settings, reader, backing, *threads, bucket)?;
                    placed.breaks_fewer_percent = fewer_percent(base, both_breaks(&placed));
                    all.push(placed);
                }
            }
        }
    }
    Ok(all)
}

/// Percent by which `now` is less than `base`; none if `base` is zero or one of them is unknown.
pub(super) fn fewer_percent(base: Option<u64>, now: Option<u64>) -> Option<f64> {
    let (base, now) = (base.filter(|base| *base > 0)?, now?);
    Some(100.0 * (1.0 - now as f64 / base as f64))
}

fn both_breaks(placed: &Placement) -> Option<u64> {
    Some(placed.persistent?.breaks + placed.capacity?.breaks)
}

/// The range, and the buckets that each kind has taken of it.
struct Range {
    pages: Pages,
    bucket_bytes: usize,
    filling: Filling,
    taken: Mutex<Taken>,
}

struct Taken {
    /// First byte of each bucket, by kind.
    buckets: [Vec<usize>; 2],
    /// Next bucket to take; on demand each kind has its own.
    next: [usize; 2],
    bucket_ns_max: u64,
    gather_failures: u64,
}

fn one(
    settings: &PlacementSettings,
    reader: &FrameReader,
    backing: Backing,
    threads: usize,
    bucket: Option<(usize, Filling)>,
) -> Result<Placement, PlacementError> {
    let kind_bytes = settings.kind_bytes.next_multiple_of(HUGE_PAGE_BYTES);
    let (bucket_bytes, filling) = bucket.unwrap_or((kind_bytes, Filling::OnDemand));
    let is_bucket =
        bucket_bytes.is_power_of_two() && (PAGE_BYTES..=kind_bytes).contains(&bucket_bytes);
    if !is_bucket && bucket.is_some() {
        return Err(PlacementError::Bucket { bucket_bytes, kind_bytes });
    }
    // Each kind may leave its last bucket half used.
    let bytes = 2 * kind_bytes.next_multiple_of(bucket_bytes);
    let range = Range {
        pages: Pages::map(backing, bytes)
            .map_err(|source| PlacementError::Pages { bytes, source })?,
        bucket_bytes,
        filling,
        taken: Mutex::new(Taken {
            buckets: [Vec::new(), Vec::new()],
            next: [0, 1],
            bucket_ns_max: 0,
            gather_failures: 0,
        }),
    };
    let pages = kind_bytes / PAGE_BYTES;
    let busy_ns = match threads {
        1 => range.fill_in_turn(pages)?,
        _ => range.fill_apart(pages)?,
    };
    let taken = range.taken.into_inner();
    let contiguity = |kind: usize| {
        let mut buckets = taken.buckets[kind].clone();
        buckets.sort_unstable();
        let mut frames = Vec::with_capacity(pages);
        for at in buckets {
            let address = range.pages.address() + at as u64;
            frames.extend(reader.frames(address, bucket_bytes / PAGE_BYTES)?);
        }
        let found = Contiguity::of(&frames);
        Ok::<_, FrameError>((found.pages > 0).then_some(found))
    };
    Ok(Placement {
        is_memory_file: backing == Backing::MemoryFile,
        threads,
        filling,
        bucket_bytes: bucket.map(|(bytes, _)| bytes),
        persistent: contiguity(0)?,
        capacity: contiguity(1)?,
        breaks_fewer_percent: None,
        page_ns: busy_ns as f64 / (2 * pages) as f64,
        bucket_ns_max: taken.bucket_ns_max,
        gather_failures: taken.gather_failures,
    })
}

impl Range {
    /// One thread takes pages of both kinds in turn.
    fn fill_in_turn(&self, pages: usize) -> Result<u64, PlacementError> {
        let began = Instant::now();
        let mut at = [0; 2];
        for page in 0..pages {
            for (kind, at) in at.iter_mut().enumerate() {
                self.step(kind, page, at)?;
            }
        }
        Ok(began.elapsed().as_nanos() as u64)
    }

    /// A thread for each kind takes that kind's pages.
    fn fill_apart(&self, pages: usize) -> Result<u64, PlacementError> {
        let start = Barrier::new(2);
        let fill = |kind: usize| {
            start.wait();
            let (began, mut at) = (Instant::now(), 0);
            for page in 0..pages {
                self.step(kind, page, &mut at)?;
            }
            Ok::<_, PlacementError>(began.elapsed().as_nanos() as u64)
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(|| fill(1));
            let own = fill(0);
            let other = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Ok(own? + other?)
        })
    }

    /// Takes the next page of a kind, in a new bucket if the last one is full.
    fn step(&self, kind: usize, page: usize, at: &mut usize) -> Result<(), PlacementError> {
        let inside = page * PAGE_BYTES % self.bucket_bytes;
        if inside == 0 {
            *at = self.take(kind)?;
        }
        self.pages.touch((*at + inside) / PAGE_BYTES);
        Ok(())
    }

    fn take(&self, kind: usize) -> Result<usize, PlacementError> {
        let mut taken = self.taken.lock();
        // In buckets both kinds take from one row; on demand each kind has its own.
        let row = if self.filling == Filling::OnDemand { kind } else { 0 };
        let at = taken.next[row] * self.bucket_bytes;
        taken.next[row] += 1;
        taken.buckets[kind].push(at);
        let began = Instant::now();
        match self.filling {
            Filling::OnDemand => {}
            Filling::Populated => self.populate(at, self.bucket_bytes)?,
            Filling::Gathered => {
                if !self.gather(at)? {
                    taken.gather_failures += 1;
                    self.populate(at, self.bucket_bytes)?;
                }
            }
        }
        taken.bucket_ns_max = taken.bucket_ns_max.max(began.elapsed().as_nanos() as u64);
        Ok(at)
    }

    /// Gathers the huge pages of which this bucket is the first to be used; false if that failed.
    fn gather(&self, at: usize) -> Result<bool, PlacementError> {
        if !at.is_multiple_of(HUGE_PAGE_BYTES) {
            return Ok(true);
        }
        let len = self.bucket_bytes.max(HUGE_PAGE_BYTES);
        for huge in (at..at + len).step_by(HUGE_PAGE_BYTES) {
            self.populate(huge, PAGE_BYTES)?;
            if self.pages.gather(huge, HUGE_PAGE_BYTES).is_err() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn populate(&self, at: usize, bytes: usize) -> Result<(), PlacementError> {
        self.pages.populate(at, bytes).map_err(|source| PlacementError::Pages { bytes, source })
    }
}

#[cfg(test)]
mod tests {
    use super::super::frames::FrameSource;
    use super::*;

    #[test]
    fn gathered_buckets_break_at_their_ends_only() {
        let reader = FrameReader::open();
        let settings = PlacementSettings {
            kind_bytes: 8 << 20,
            buckets_bytes: vec![64 << 10, 2 << 20],
            threads: vec![1, 2],
        };
        let placed = place(&settings, &reader).unwrap();
        assert_eq!(placed.len(), 2 * 2 * 5);
        for placement in &placed {
            let known = placement.persistent.zip(placement.capacity);
            assert_eq!(known.is_some(), reader.source() != FrameSource::Hidden);
            let Some((persistent, capacity)) = known else { continue };
            for kind in [persistent, capacity] {
                assert_eq!((kind.pages, kind.pages_absent), (2048, 0), "{placement:?}");
                let gathered = placement.filling == Filling::Gathered;
                if let (true, 0, Some(bytes)) =
                    (gathered, placement.gather_failures, placement.bucket_bytes)
                {
                    assert!(kind.breaks < (8 << 20) / bytes as u64, "{placement:?}");
                }
            }
        }
    }

    #[test]
    fn a_bucket_that_does_not_fit_is_refused_with_its_size() {
        let settings = PlacementSettings {
            kind_bytes: 2 << 20,
            buckets_bytes: vec![12_000],
            threads: vec![1],
        };
        let error = place(&settings, &FrameReader::hidden()).unwrap_err();
        assert!(error.to_string().contains("12000"), "{error}");
    }
}
