//! Requests of one size, random and sequential, reading and writing, as XDD made them for the
//! slides.
//!
//! Software is measured for each step of the I/O path and each size, with one thread: the whole
//! time less the modelled time of the medium. Bandwidth on a system is modelled: a closed loop of
//! [`REQUESTERS`] with that software on [`CORES`] cores.

use perdura_block::path::{IoPath, PathSettings, Step};
use perdura_media::emulator::{Emulator, Pace, Tsc};
use perdura_media::model::{Access, ClosedLoop, Model};
use perdura_media::profile::{Pays, System};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::result::{FileSystemResult, PaceCheck, RawPoint, SoftwarePoint};
use super::{HasteError, HasteSettings};

/// Sizes of a request, bytes: the slides' range, 0.5 KB to 256 KB.
pub const SIZES: [u64; 10] =
    [512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10];
/// The slides' footprint, bytes. On a virtual clock it needs no memory.
const FOOTPRINT_BYTES: u64 = 64_000_000_000;
const REQUESTERS: u32 = 8;
const CORES: u32 = 8;
/// The largest request, bytes, for which the leanest path does not sleep.
const SPUN_BYTES: u64 = 4096;
/// Size of the emulated medium on which software is measured, bytes.
const MEASURED_BYTES: u64 = 256 << 20;
const ROUNDS: u64 = 3;
const ROUND_NS: f64 = 30e6;
/// Most requests of a round: more would not change the median.
const ROUND_REQUESTS_MAX: usize = 4_000;

/// Measures the software time by step and size, on the paced medium.
pub(super) fn software(settings: &HasteSettings) -> Result<Vec<SoftwarePoint>, HasteError> {
    let emulator = filled(&settings.paced)?;
    let mut points = Vec::new();
    for request_bytes in SIZES {
        let mut totals: Vec<Vec<f64>> = vec![Vec::new(); Step::ALL.len()];
        for round in 0..ROUNDS {
            for (totals, step) in totals.iter_mut().zip(Step::ALL) {
                let path = IoPath::new(&emulator, step, &PathSettings::default())?;
                totals.extend(round_ns(&path, request_bytes, settings.seed + round)?);
            }
        }
        let medium_ns = Model::unloaded(&settings.paced, Access::Read, request_bytes).ns();
        for (mut totals, step) in totals.into_iter().zip(Step::ALL) {
            totals.sort_by(f64::total_cmp);
            let software_ns = (totals[totals.len() / 2] - medium_ns).max(0.0);
            points.push(SoftwarePoint { step: step.name().into(), request_bytes, software_ns });
        }
    }
    Ok(points)
}

/// A medium whose pages have all been touched: first touches must not be measured.
fn filled(system: &System) -> Result<Emulator, HasteError> {
    let emulator = Emulator::anonymous(system, MEASURED_BYTES, Pace::Real)?;
    let piece = vec![0x5a; 1 << 20];
    for offset in (0..MEASURED_BYTES).step_by(piece.len()) {
        emulator.write(offset, &piece)?;
    }
    emulator.wait(emulator.flush());
    Ok(emulator)
}

fn round_ns(
    path: &IoPath<&Emulator>,
    request_bytes: u64,
    seed: u64,
) -> Result<Vec<f64>, HasteError> {
    let (tsc, mut random) = (Tsc::calibrated(), Xoshiro256PlusPlus::seed_from_u64(seed));
    let mut buf = vec![0; request_bytes as usize];
    let places = MEASURED_BYTES / request_bytes;
    let (begun, mut totals) = (tsc.ticks(), Vec::new());
    loop {
        let from = tsc.ticks();
        path.read(random.random_range(0..places) * request_bytes, &mut buf)?;
        let now = tsc.ticks();
        totals.push(tsc.ps(now - from) as f64 / 1e3);
        if totals.len() >= ROUND_REQUESTS_MAX || tsc.ps(now - begun) as f64 / 1e3 > ROUND_NS {
            return Ok(totals);
        }
    }
}

/// Models every system, size, direction and order with the leanest path, with and without a file
/// system; and random writes with the other steps on the paced system.
pub(super) fn points(
    settings: &HasteSettings,
    software: &[SoftwarePoint],
    filesystem: Option<&FileSystemResult>,
) -> Vec<RawPoint> {
    let mut points = Vec::new();
    let lean =
        |bytes| software.iter().find(|point| point.step == "spin" && point.request_bytes == bytes);
    for size in SIZES {
        for system in &settings.systems {
            let Some(point) = lean(size) else { continue };
            // On a memory bus the processor moves the lines itself, so it never sleeps, whatever
            // the size.
            let spun =
                lean(SPUN_BYTES).filter(|spun| pays_by_line(system) && size > spun.request_bytes);
            let point = &SoftwarePoint {
                software_ns: spun.map_or(point.software_ns, |spun| spun.software_ns),
                ..point.clone()
            };
            for (is_read, is_sequential) in
                [(true, false), (false, false), (true, true), (false, true)]
            {
                let load = Load { system, point, is_read, is_sequential, added_ns: None };
                points.push(load.reached(settings.seed));
                if let Some(added) = filesystem.and_then(|found| added(found, point.request_bytes))
                {
                    let added_ns = Some(if is_read { added.0 } else { added.1 });
                    points.push(Load { added_ns, ..load }.reached(settings.seed));
                }
            }
        }
    }
    for point in software.iter().filter(|point| point.step != "spin") {
        let load = Load {
            system: &settings.paced,
            point,
            is_read: false,
            is_sequential: false,
            added_ns: None,
        };
        points.push(load.reached(settings.seed));
    }
    points
}

fn pays_by_line(system: &System) -> bool {
    system.link.as_ref().is_some_and(|link| matches!(link.pays, Pays::Line { .. }))
}

fn added(filesystem: &FileSystemResult, request_bytes: u64) -> Option<(f64, f64)> {
    let found = filesystem.added_ns.iter().find(|(of, ..)| *of == request_bytes)?;
    Some((found.1, found.2))
}

#[derive(Clone, Copy)]
struct Load<'l> {
    system: &'l System,
    point: &'l SoftwarePoint,
    is_read: bool,
    is_sequential: bool,
    added_ns: Option<f64>,
}

impl Load<'_> {
    fn reached(&self, seed: u64) -> RawPoint {
        let Self { system, point, is_read, is_sequential, added_ns } = *self;
        let software_ns = point.software_ns + added_ns.unwrap_or(0.0);
        let load = ClosedLoop {
            footprint_bytes: FOOTPRINT_BYTES,
            len_bytes: point.request_bytes,
            read_share: if is_read { 1.0 } else { 0.0 },
            is_sequential,
            outstanding: REQUESTERS,
            software_ps: (software_ns * 1e3) as u64,
            cores: CORES,
            requests: 4_000,
            seed,
        };
        let reached = load.run(system);
        let link = system
            .link
            .as_ref()
            .map(|link| if is_read { link.from_device } else { link.to_device });
        RawPoint {
            system: system.name.clone(),
            step: point.step.clone(),
            with_filesystem: added_ns.is_some(),
            is_read,
            is_sequential,
            request_bytes: point.request_bytes,
            bytes_per_s: reached.bytes_per_s,
            requests_per_s: reached.rate_per_s,
            request_ns: reached.request_ns,
            on_memory_bus: pays_by_line(system),
            link_share: link.map(|rate| reached.bytes_per_s / rate.0 as f64),
        }
    }
}

/// Random reads of 4 KiB by one thread at real pace, beside a closed loop of one requester.
pub(super) fn at_real_pace(settings: &HasteSettings) -> Result<PaceCheck, HasteError> {
    const REQUESTS: u32 = 20_000;
    let emulator = filled(&settings.paced)?;
    let (tsc, mut random) = (Tsc::calibrated(), Xoshiro256PlusPlus::seed_from_u64(settings.seed));
    let mut buf = vec![0; 4096];
    let begun = tsc.ticks();
    for _ in 0..REQUESTS {
        let due = emulator.read(random.random_range(0..MEASURED_BYTES / 4096) * 4096, &mut buf)?;
        emulator.wait(due);
    }
    let measured_s = tsc.ps(tsc.ticks() - begun) as f64 / 1e12;
    let load = ClosedLoop {
        footprint_bytes: MEASURED_BYTES,
        len_bytes: 4096,
        read_share: 1.0,
        is_sequential: false,
        outstanding: 1,
        software_ps: 0,
        cores: 1,
        requests: REQUESTS,
        seed: settings.seed,
    };
    let modelled_s = load.run(&settings.paced).elapsed_ps as f64 / 1e12;
    let what = "random reads of 4 KiB, one thread, direct calls".to_owned();
    Ok(PaceCheck { what, system: settings.paced.name.clone(), modelled_s, measured_s })
}
