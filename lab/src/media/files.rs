//! The kernel's I/O paths to a file, on the disk and in memory: random reads of 4 KiB, each
//! verified.
//!
//! The disk does not say when it was done with a request, so its software time is the processor
//! time of the request; in memory all the time except that of copying is software.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use perdura_block::path::{FilePath, FilePathError, FileWay};
use perdura_media::BlockBuf;
use perdura_media::emulator::Tsc;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

use super::blocks::{self, BLOCK_BYTES};
use super::result::PathResult;
use super::{MediaBenchError, MediaSettings, Progress, ns, quantile, sorted, stamp_ns};
use perdura_bench::machine::{process_cpu_ns, thread_cpu_ns};
use perdura_bench::pairs::PAIRS_MIN;

pub(super) struct Files {
    pub(super) results: Vec<PathResult>,
    pub(super) refused: Vec<String>,
}

/// A file that is read, and the medium that it lies on.
pub(super) struct Place {
    name: &'static str,
    /// Whether the file is dropped from the page cache before each slice of mapped reads.
    is_cold: bool,
    /// A file without a name, which goes however this process ends.
    file: File,
    /// The name by which this process opens it.
    path: PathBuf,
}

#[derive(Default)]
struct Gathered {
    how: String,
    slices_ns: Vec<f64>,
    cpu_slices_ns: Vec<f64>,
    times_ns: Vec<f64>,
}

const CHUNK_BYTES: usize = 1 << 20;
const SLICE_MAX: usize = 50_000;

/// Makes and fills a file in each place.
pub(super) fn places(
    settings: &MediaSettings,
    progress: Progress<'_>,
) -> Result<[Place; 2], MediaBenchError> {
    progress("filling files", 0, 1);
    Ok([
        place("ssd", true, &settings.dir, settings.file_bytes)?,
        place("tmpfs", false, &settings.tmpfs_dir, settings.file_bytes)?,
    ])
}

pub(super) fn measure(
    places: &[Place],
    settings: &MediaSettings,
    seconds: f64,
    progress: Progress<'_>,
) -> Result<Files, MediaBenchError> {
    let mut files = Files { results: Vec::new(), refused: Vec::new() };
    let slice_ns = seconds * 1e9 / (PAIRS_MIN * places.len() * FileWay::ALL.len()) as f64;
    let mut ways: Vec<(usize, FileWay, Gathered)> = Vec::new();
    for (index, place) in places.iter().enumerate() {
        for way in FileWay::ALL {
            match FilePath::open(&place.path, way) {
                Ok(_) => ways.push((index, way, Gathered::default())),
                // A kernel may refuse a ring: that is a result, not a failure.
                Err(refused @ FilePathError::Ring { .. }) => {
                    files.refused.push(format!("{}_{}: {refused}", way.name(), place.name));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    let mut copied_ns = Vec::new();
    for round in 0..PAIRS_MIN {
        progress("today's paths", round as u64, PAIRS_MIN as u64);
        let seed = settings.seed.wrapping_add(round as u64);
        for (index, way, gathered) in &mut ways {
            let place = &places[*index];
            if place.is_cold && *way == FileWay::Mmap {
                forget(place)?;
            }
            let mut path = FilePath::open(&place.path, *way)?;
            slice(&mut path, gathered, slice_ns, seed)?;
            if !place.is_cold && *way == FileWay::Mmap {
                // Reading memory that is already mapped gives the time of copying alone.
                let mut again = Gathered::default();
                slice(&mut path, &mut again, slice_ns, seed)?;
                copied_ns.extend(again.slices_ns);
            }
        }
    }
    let copy_ns = quantile(&sorted(copied_ns), 0.5);
    let done = ways.into_iter();
    files.results.extend(done.map(|(index, way, all)| all.result(&places[index], way, copy_ns)));
    Ok(files)
}

fn place(
    name: &'static str,
    is_cold: bool,
    dir: &Path,
    bytes: u64,
) -> Result<Place, MediaBenchError> {
    let failed = |source| MediaBenchError::Make { dir: dir.to_owned(), bytes, source };
    let file = tempfile::tempfile_in(dir)
        .and_then(|file| file.set_len(bytes).map(|()| file))
        .map_err(failed)?;
    let opened_by = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let mut path = FilePath::open(&opened_by, FileWay::Pread)?;
    let mut chunk = BlockBuf::zeroed(CHUNK_BYTES);
    for start in (0..bytes).step_by(CHUNK_BYTES) {
        let len = (bytes - start).min(CHUNK_BYTES as u64) as usize;
        for (nth, block) in chunk[..len].chunks_exact_mut(BLOCK_BYTES).enumerate() {
            blocks::fill(start / BLOCK_BYTES as u64 + nth as u64, block);
        }
        let what = || format!("filling a file in {}", dir.display());
        path.write(start, &chunk[..len])
            .map_err(|source| MediaBenchError::Device { what: what(), source })?;
    }
    file.sync_all().map_err(failed)?;
    Ok(Place { name, is_cold, file, path: opened_by })
}

/// Drops the file from the page cache.
fn forget(place: &Place) -> Result<(), MediaBenchError> {
    let failed = |source: rustix::io::Errno| MediaBenchError::Make {
        dir: place.path.clone(),
        bytes: 0,
        source: source.into(),
    };
    rustix::fs::fadvise(&place.file, 0, None, rustix::fs::Advice::DontNeed).map_err(failed)
}

fn slice(
    path: &mut FilePath,
    gathered: &mut Gathered,
    slice_ns: f64,
    seed: u64,
) -> Result<(), MediaBenchError> {
    let tsc = Tsc::calibrated();
    let stamp_ns = stamp_ns(tsc);
    let mut random = Random::seed_from_u64(seed);
    let count = path.capacity_bytes() / BLOCK_BYTES as u64;
    let mut buf = BlockBuf::zeroed(BLOCK_BYTES);
    let what = path.way().name();
    let mut times = Vec::new();
    // Threads of the kernel work for a ring too, so the processor time of all of them counts.
    let (from, cpu_ns, mut verify_ns) = (tsc.ticks(), cpu_ns(path.way()), 0.0);
    while times.is_empty() || times.len() < SLICE_MAX && ns(tsc, from, tsc.ticks()) < slice_ns {
        let number = random.random_range(0..count);
        let before = tsc.ticks();
        let read = path.read(number * BLOCK_BYTES as u64, &mut buf);
        let after = tsc.ticks_behind();
        read.map_err(|source| MediaBenchError::Device { what: what.into(), source })?;
        times.push((ns(tsc, before, after) - stamp_ns).max(0.0));
        blocks::verify(what, number, &buf)?;
        verify_ns += ns(tsc, after, tsc.ticks());
    }
    let used_ns = (self::cpu_ns(path.way()) - cpu_ns) as f64 - verify_ns;
    gathered.cpu_slices_ns.push((used_ns / times.len() as f64).max(0.0));
    let times = sorted(times);
    gathered.slices_ns.push(quantile(&times, 0.5));
    gathered.times_ns.extend(times);
    gathered.how = path.how().to_owned();
    Ok(())
}

fn cpu_ns(way: FileWay) -> u64 {
    match way {
        FileWay::IoUring | FileWay::IoUringPolled => process_cpu_ns(),
        FileWay::Pread | FileWay::Mmap => thread_cpu_ns(),
    }
}

impl Gathered {
    fn result(self, place: &Place, way: FileWay, copy_ns: f64) -> PathResult {
        let (by_slice, cpu) = (sorted(self.slices_ns.clone()), sorted(self.cpu_slices_ns));
        let times = sorted(self.times_ns);
        let (median, cpu_ns) = (quantile(&by_slice, 0.5), quantile(&cpu, 0.5));
        let ends = |sorted: &[f64], less: f64| {
            [quantile(sorted, 0.0) - less, quantile(sorted, 1.0) - less]
        };
        let (software_ns, range, software_is) = match place.is_cold {
            true => (
                cpu_ns,
                ends(&cpu, 0.0),
                "processor time: the device does not say when it \
                                           was done",
            ),
            false => {
                (median - copy_ns, ends(&by_slice, copy_ns), "the whole less copying mapped memory")
            }
        };
        let cold = place.is_cold && way == FileWay::Mmap;
        PathResult {
            path: format!("{}_{}", way.name(), place.name),
            medium: place.name.into(),
            how: if cold { format!("{}, cold before each slice", self.how) } else { self.how },
            threads: 1,
            software_ns,
            software_is: software_is.into(),
            software_ns_range: range,
            hardware_ns: None,
            total_ns_p50: quantile(&times, 0.5),
            total_ns_p99: quantile(&times, 0.99),
            cpu_ns,
            requests_per_s: 1e9 / (times.iter().sum::<f64>() / times.len().max(1) as f64).max(1.0),
            parts_ns: [].into(),
            slices_ns: self.slices_ns,
            awake_slices_ns: Vec::new(),
            requests: times.len() as u64,
        }
    }
}
