//! Measured latency and bandwidth of an emulated medium beside its model: one access at a time, and
//! as many as keep the medium busy.
//!
//! The target of a latency is the model's answer to the same accesses on a virtual clock; the
//! target of a bandwidth is the model's when there is always another request. Where the machine
//! itself (copying from a random place, booking) takes longer than a target, the result says so and
//! names the part.

use std::collections::VecDeque;

use perdura_media::Bytes;
use perdura_media::emulator::{Due, Emulator, Pace, Tsc};
use perdura_media::model::{Access, Model};
use perdura_media::profile::System;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

use super::result::{Latency, Stream};
use super::{MediaBenchError, MediaSettings, Progress, filled, ns, quantile, sorted, stamp_ns};

/// Accuracy of one medium: the measured figures beside their targets.
pub(super) struct Accuracy {
    pub(super) read: Latency,
    pub(super) write: Latency,
    pub(super) read_stream: Stream,
    pub(super) write_stream: Stream,
    pub(super) accesses: Vec<Latency>,
    pub(super) streams: Vec<Stream>,
    pub(super) modelled_requests_per_s: f64,
    pub(super) modelled_requests_per_s_of_a_granule: f64,
}

/// Lengths of an access that are measured besides the granule, bytes.
const LENGTHS: [u64; 3] = [512, 4096, 65536];
/// Links that the same medium is also put behind.
const LINKS: [&str; 2] = ["pcie1x8", "ddr3x6"];
/// Size of the media behind other links, bytes: they need no more, and are held at the same time.
const OTHER_BYTES_MAX: u64 = 256 << 20;
/// Request of the main stream, bytes: long enough that the latency of a request does not count.
const STREAM_BYTES: u64 = 64 << 10;
/// Requests under way at a time in a stream.
const OUTSTANDING: usize = 64;
/// Requests of a stream that are timed together.
const WINDOW: u64 = 128;
/// A range that fits into a processor's caches, bytes: accesses to it do not wait for DRAM.
const CACHED_BYTES: u64 = 512 << 10;
/// From this target on, nanoseconds, an error is judged relative to it; below, by its difference.
const RELATIVE_FROM_NS: f64 = 500.0;
const LATENCY_ERROR_MAX: f64 = 0.05;
const LATENCY_ERROR_MAX_NS: f64 = 30.0;
const BANDWIDTH_ERROR_MAX: f64 = 0.03;
/// Fewest accesses of a measurement, however long they take (a disk's take milliseconds).
const ACCESSES_MIN: usize = 20;
const ACCESSES_ENOUGH: usize = 2_000;
const ACCESSES_MAX: usize = 200_000;
const LONGER_AT_MOST: f64 = 4.0;

pub(super) fn measure(
    settings: &MediaSettings,
    seconds: f64,
    progress: Progress<'_>,
) -> Result<Accuracy, MediaBenchError> {
    let others = LINKS.iter().filter(|link| settings.link.as_deref() != Some(link));
    let others: Vec<System> =
        others.map(|link| settings.system.clone().with_link(link)).collect::<Result<_, _>>()?;
    let emulator = filled(&settings.system, settings.size_bytes, progress)?;
    // Each other link has two lengths and two streams; the medium itself has all of them.
    let each = seconds / (2 * (2 + LENGTHS.len()) + 6 + 4 * others.len() + 2) as f64;
    let range_bytes = settings.size_bytes;
    let bench = Bench {
        system: &settings.system,
        emulator: &emulator,
        range_bytes,
        each,
        seed: settings.seed,
    };
    let (mut done, figures) = (0, (2 * LENGTHS.len() + 8) as u64);
    let mut tell = || {
        progress("latency and bandwidth", done, figures);
        done += 1;
    };
    let granule_bytes = settings.system.medium.granule.0;
    let cached = Bench { range_bytes: CACHED_BYTES.min(range_bytes), ..bench };
    // No memory can be emulated that is faster than the machine's DRAM. A medium that may be faster
    // is measured in a range that fits into the caches, where the emulator's own time shows; the
    // whole range follows.
    let is_fast =
        Model::unloaded(&settings.system, Access::Read, granule_bytes).ns() < RELATIVE_FROM_NS;
    let (headline, beside) = if is_fast { (cached, bench) } else { (bench, cached) };
    let (read, write) = (
        headline.latency(Access::Read, granule_bytes)?,
        headline.latency(Access::Write, granule_bytes)?,
    );
    let mut accesses = Vec::new();
    for access in [Access::Read, Access::Write] {
        tell();
        accesses.push(beside.latency(access, granule_bytes)?);
    }
    for len_bytes in LENGTHS.into_iter().filter(|len_bytes| *len_bytes != granule_bytes) {
        tell();
        accesses.push(bench.latency(Access::Read, len_bytes)?);
        accesses.push(bench.latency(Access::Write, len_bytes)?);
    }
    tell();
    let read_stream = bench.stream(Access::Read, STREAM_BYTES, true)?;
    let write_stream = bench.stream(Access::Write, STREAM_BYTES, true)?;
    let mut streams = Vec::new();
    for access in [Access::Read, Access::Write] {
        tell();
        streams.push(bench.stream(access, 4096, false)?);
    }
    drop(emulator);
    for (done, system) in others.iter().enumerate() {
        progress("other links", done as u64, others.len() as u64);
        let emulator = filled(system, settings.size_bytes.min(OTHER_BYTES_MAX), progress)?;
        let range_bytes = emulator.capacity_bytes();
        let bench = Bench { system, emulator: &emulator, range_bytes, each, seed: settings.seed };
        for access in [Access::Read, Access::Write] {
            accesses.push(bench.latency(access, 4096)?);
            streams.push(bench.stream(access, 4096, false)?);
        }
    }
    progress("the virtual clock", 0, 1);
    let virtually = |len_bytes| modelled_requests_per_s(settings, len_bytes, each);
    Ok(Accuracy {
        read,
        write,
        read_stream,
        write_stream,
        accesses,
        streams,
        modelled_requests_per_s: virtually(4096)?,
        modelled_requests_per_s_of_a_granule: virtually(granule_bytes)?,
    })
}

/// Requests a second that one thread books on a virtual clock.
fn modelled_requests_per_s(
    settings: &MediaSettings,
    len_bytes: u64,
    seconds: f64,
) -> Result<f64, MediaBenchError> {
    const ROUND: usize = 10_000;
    // Untouched memory takes no space, and nothing is copied.
    let emulator = Emulator::anonymous(&settings.system, settings.size_bytes, Pace::Virtual)?;
    let tsc = Tsc::calibrated();
    let places = settings.size_bytes / len_bytes;
    let mut random = Random::seed_from_u64(settings.seed);
    let offsets: Vec<u64> =
        (0..ROUND).map(|_| random.random_range(0..places) * len_bytes).collect();
    let mut rates = Vec::new();
    let began = tsc.ticks();
    while rates.is_empty() || ns(tsc, began, tsc.ticks()) < seconds * 1e9 {
        let from = tsc.ticks();
        for offset_bytes in &offsets {
            let due = emulator.book(Access::Read, *offset_bytes, len_bytes);
            std::hint::black_box(emulator.wait(due));
        }
        rates.push(ROUND as f64 / ns(tsc, from, tsc.ticks()) * 1e9);
    }
    Ok(quantile(&sorted(rates), 0.5))
}

#[derive(Clone, Copy)]
struct Bench<'e> {
    system: &'e System,
    emulator: &'e Emulator,
    /// Length of the range that single accesses go to, bytes from the start.
    range_bytes: u64,
    /// Duration of each measurement, seconds.
    each: f64,
    seed: u64,
}

impl Bench<'_> {
    /// A random offset that is a multiple of the access's length.
    fn offset(&self, random: &mut Random, len_bytes: u64) -> u64 {
        random.random_range(0..self.range_bytes / len_bytes) * len_bytes
    }

    fn failed(&self, access: Access, source: perdura_media::DeviceError) -> MediaBenchError {
        let what = format!("{} of {}", name(access), self.system.name);
        MediaBenchError::Device { what, source }
    }

    /// Measures and models one access at a time.
    fn latency(&self, access: Access, len_bytes: u64) -> Result<Latency, MediaBenchError> {
        let access_at = |offset_bytes, buf: &mut [u8]| match access {
            Access::Read => self.emulator.read(offset_bytes, buf),
            Access::Write => self.emulator.write(offset_bytes, buf),
        };
        let measured = self.timed(access, len_bytes, |offset_bytes, buf| {
            access_at(offset_bytes, buf).map(|due| _ = self.emulator.wait(due))
        })?;
        let target_ns = self.modelled_ns(access, len_bytes, measured.len());
        let p50 = quantile(&measured, 0.5);
        let (relative_error, off_ns) = (p50 / target_ns - 1.0, (p50 - target_ns).abs());
        let is_within = match target_ns >= RELATIVE_FROM_NS {
            true => relative_error.abs() <= LATENCY_ERROR_MAX,
            false => off_ns <= LATENCY_ERROR_MAX_NS,
        };
        let limited_by = match is_within {
            true => None,
            false => Some(self.limit(access, len_bytes, target_ns)?),
        };
        Ok(Latency {
            medium: self.system.name.clone(),
            access: name(access).into(),
            len_bytes,
            range_bytes: self.range_bytes,
            target_ns,
            measured_ns_p50: p50,
            measured_ns_p99: quantile(&measured, 0.99),
            relative_error,
            is_within,
            limited_by,
            accesses: measured.len() as u64,
        })
    }

    /// Times of single calls in ascending order, nanoseconds. Written bytes are not verified.
    fn timed(
        &self,
        access: Access,
        len_bytes: u64,
        mut call: impl FnMut(u64, &mut [u8]) -> Result<(), perdura_media::DeviceError>,
    ) -> Result<Vec<f64>, MediaBenchError> {
        let tsc = Tsc::calibrated();
        let stamp_ns = stamp_ns(tsc);
        let mut random = Random::seed_from_u64(self.seed ^ len_bytes);
        let mut buf = vec![0; len_bytes as usize];
        let mut times = Vec::new();
        let (began, limit_ns) = (tsc.ticks(), self.each * 1e9);
        // At least `ACCESSES_MIN` accesses, so that one pause of the machine does not decide a
        // quantile.
        let is_over = |times: &Vec<f64>| match ns(tsc, began, tsc.ticks()) {
            _ if times.len() >= ACCESSES_MAX => true,
            elapsed_ns if elapsed_ns > LONGER_AT_MOST * limit_ns => times.len() >= ACCESSES_MIN,
            elapsed_ns => elapsed_ns > limit_ns && times.len() >= ACCESSES_ENOUGH,
        };
        while !is_over(&times) {
            let offset_bytes = self.offset(&mut random, len_bytes);
            let from = tsc.ticks();
            let done = call(offset_bytes, &mut buf);
            let to = tsc.ticks_behind();
            done.map_err(|source| self.failed(access, source))?;
            times.push((ns(tsc, from, to) - stamp_ns).max(0.0));
        }
        Ok(sorted(times))
    }

    /// Modelled median of the same accesses, each begun when the one before was done.
    fn modelled_ns(&self, access: Access, len_bytes: u64, accesses: usize) -> f64 {
        let model = Model::new(self.system, self.emulator.capacity_bytes());
        let mut random = Random::seed_from_u64(self.seed ^ len_bytes);
        let mut now_ps = 0;
        let one = |_| {
            let done_ps =
                model.book(now_ps, access, self.offset(&mut random, len_bytes), len_bytes);
            let took_ns = (done_ps - now_ps) as f64 / 1e3;
            now_ps = done_ps;
            took_ns
        };
        quantile(&sorted((0..accesses).map(one).collect()), 0.5)
    }

    /// Names the machine's part that makes a latency miss its target, if one does: copying or
    /// booking.
    fn limit(
        &self,
        access: Access,
        len_bytes: u64,
        target_ns: f64,
    ) -> Result<String, MediaBenchError> {
        let copied = self.timed(access, len_bytes, |offset_bytes, buf| match access {
            Access::Read => self.emulator.copy_out(offset_bytes, buf),
            Access::Write => self.emulator.copy_in(offset_bytes, buf),
        })?;
        let booked = self.timed(access, len_bytes, |offset_bytes, _| {
            std::hint::black_box(self.emulator.book(access, offset_bytes, len_bytes));
            Ok(())
        })?;
        let (copy_ns, book_ns) = (quantile(&copied, 0.5), quantile(&booked, 0.5));
        let verb = if access == Access::Read { "from" } else { "to" };
        let costs = format!(
            "copying {} {verb} a random place in {} takes {copy_ns:.0} ns here, booking \
             {book_ns:.0} ns",
            Bytes(len_bytes),
            Bytes(self.range_bytes),
        );
        Ok(match copy_ns + book_ns > target_ns {
            true => format!("the machine: {costs}"),
            false => {
                format!(
                    "neither copying nor booking ({costs}): probably other work on this \
                         machine"
                )
            }
        })
    }

    /// Measures and models as many accesses as keep the medium busy, all from this thread.
    fn stream(
        &self,
        access: Access,
        len_bytes: u64,
        is_sequential: bool,
    ) -> Result<Stream, MediaBenchError> {
        let target = Model::saturated(self.system, access, len_bytes, is_sequential) as f64;
        let mut buf = vec![0; len_bytes as usize];
        let measured =
            self.streamed(access, len_bytes, is_sequential, |offset_bytes| match access {
                Access::Read => self.emulator.read(offset_bytes, &mut buf),
                Access::Write => self.emulator.write(offset_bytes, &buf),
            })?;
        let booked = self.streamed(access, len_bytes, is_sequential, |offset_bytes| {
            Ok(self.emulator.book(access, offset_bytes, len_bytes))
        })?;
        let relative_error = measured / target - 1.0;
        let is_within = relative_error.abs() <= BANDWIDTH_ERROR_MAX;
        let limited_by = (!is_within).then(|| {
            let rate = |rate: f64| format!("{:.2} GB/s", rate / 1e9);
            if booked < target * (1.0 - BANDWIDTH_ERROR_MAX) {
                format!("booking: {} of one thread with no byte copied", rate(booked))
            } else if measured < target {
                format!("copying: with no byte copied it is {}", rate(booked))
            } else {
                "the model: more than it gives when saturated".to_owned()
            }
        });
        Ok(Stream {
            medium: self.system.name.clone(),
            access: name(access).into(),
            len_bytes,
            is_sequential,
            target_bytes_per_s: target,
            measured_bytes_per_s: measured,
            booked_bytes_per_s: booked,
            relative_error,
            is_within,
            limited_by,
        })
    }

    /// Bytes a second with [`OUTSTANDING`] requests under way. Only the middle half of the windows
    /// (by their length) counts, because a pause of the machine leaves the medium idle.
    fn streamed(
        &self,
        access: Access,
        len_bytes: u64,
        is_sequential: bool,
        mut call: impl FnMut(u64) -> Result<Due, perdura_media::DeviceError>,
    ) -> Result<f64, MediaBenchError> {
        let tsc = Tsc::calibrated();
        let places = self.emulator.capacity_bytes() / len_bytes;
        let mut random = Random::seed_from_u64(self.seed ^ len_bytes);
        let mut under_way = VecDeque::with_capacity(OUTSTANDING);
        let mut windows_ns = Vec::new();
        let (mut number, mut counted, mut began, mut from) = (0u64, 0u64, None, 0);
        let limit_ns = self.each * 1e9;
        let elapsed_ns =
            |began: Option<u64>| began.map_or(0.0, |began| ns(tsc, began, tsc.ticks()));
        while elapsed_ns(began) < limit_ns || windows_ns.is_empty() {
            if under_way.len() == OUTSTANDING {
                under_way.pop_front().map(|due| self.emulator.wait(due));
                counted += 1;
                if began.is_none() {
                    (from, counted) = (tsc.ticks(), 0);
                    began = Some(from);
                } else if counted == WINDOW {
                    let now = tsc.ticks();
                    windows_ns.push(ns(tsc, from, now));
                    (from, counted) = (now, 0);
                }
            }
            let place = if is_sequential { number } else { random.random::<u64>() };
            let due = call(place % places * len_bytes);
            under_way.push_back(due.map_err(|source| self.failed(access, source))?);
            number += 1;
        }
        let windows_ns = sorted(windows_ns);
        let quarter = windows_ns.len() / 4;
        let middle = &windows_ns[quarter..windows_ns.len() - quarter];
        let bytes = middle.len() as u64 * WINDOW * len_bytes;
        Ok(bytes as f64 / middle.iter().sum::<f64>() * 1e9)
    }
}

fn name(access: Access) -> &'static str {
    match access {
        Access::Read => "read",
        Access::Write => "write",
    }
}
