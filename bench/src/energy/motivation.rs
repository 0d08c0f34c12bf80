//! What one module does and draws under requests with and without time between them: the figures 1
//! to 8 of Sprint-AEP (section II), computed from the model of that module.

use perdura_media::Joules;
use perdura_media::model::{Access, Model};
use perdura_media::profile::System;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

/// Length of a request (Sprint-AEP, section II-B).
pub const LEN_BYTES: u64 = 4096;
/// Most time between two requests, in steps of 0.1 ms.
pub const STEPS: u64 = 16;
/// Threads of figures 7 and 8.
pub const THREADS: [u32; 6] = [1, 2, 4, 8, 12, 16];

const STEP_PS: u64 = 100_000_000;
/// Requests of a run. Their places are in the first [`FOOTPRINT_BYTES`].
const REQUESTS: u32 = 20_000;
const FOOTPRINT_BYTES: u64 = 1 << 32;
/// Points of figure 4's curves.
const MOMENTS: u64 = 40;
const PS_PER_S: f64 = 1e12;

/// The kind of the requests of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Writes anywhere.
    RandomWrite,
    /// Each write behind the one before.
    SequentialWrite,
    /// Reads anywhere.
    RandomRead,
    /// Each read behind the one before.
    SequentialRead,
}

impl Mode {
    /// All of them.
    pub const ALL: [Mode; 4] =
        [Self::RandomWrite, Self::SequentialWrite, Self::RandomRead, Self::SequentialRead];

    /// The mode's name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::RandomWrite => "random write",
            Self::SequentialWrite => "sequential write",
            Self::RandomRead => "random read",
            Self::SequentialRead => "sequential read",
        }
    }

    fn access(self) -> Access {
        match self {
            Self::RandomWrite | Self::SequentialWrite => Access::Write,
            Self::RandomRead | Self::SequentialRead => Access::Read,
        }
    }

    fn is_sequential(self) -> bool {
        matches!(self, Self::SequentialWrite | Self::SequentialRead)
    }
}

/// A run of one thread with a time between requests.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Interval {
    /// Kind of the requests.
    pub mode: Mode,
    /// Time from the end of a request to the start of the next, milliseconds.
    pub interval_ms: f64,
    /// Mean time of a request, microseconds. The model has no wake-up time, so this does not depend
    /// on the interval; the paper saw longer times from 0.9 ms on.
    pub response_us: f64,
    /// Requests a second.
    pub requests_per_s: f64,
    /// Mean power until the last request was done, watts.
    pub watts: f64,
    /// Requests for a joule.
    pub requests_per_joule: f64,
    /// Energy until the last request was done, joules.
    pub execution_joules: f64,
    /// Energy until the slowest run of this mode was done, joules.
    pub equal_time_joules: f64,
}

/// A run of several threads without pauses.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Threads {
    /// Kind of the requests.
    pub mode: Mode,
    /// Number of threads.
    pub threads: u32,
    /// Bytes a second.
    pub bytes_per_s: f64,
    /// Mean power, watts.
    pub watts: f64,
}

/// Power and energy over the time of two runs with the same data.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Moment {
    /// Time since the start, milliseconds.
    pub at_ms: f64,
    /// Power in watts, and energy so far in joules, of requests without time between them.
    pub compact: (f64, f64),
    /// Power in watts, and energy so far in joules, of requests with 0.1 ms between them.
    pub disperse: (f64, f64),
}

/// All figures.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Motivation {
    /// The kind of this result: `modelled-energy-motivation`.
    pub kind: String,
    /// Name of the modelled module's profile.
    pub profile: String,
    /// Figures 1 to 3, 5 and 6: every mode at every interval.
    pub intervals: Vec<Interval>,
    /// Figure 4: random writes.
    pub moments: Vec<Moment>,
    /// Figures 7 and 8.
    pub threads: Vec<Threads>,
}

impl Motivation {
    /// Computes all figures. The same profile always gives the same.
    pub fn of(profile: &str, system: &System) -> Self {
        let intervals = Mode::ALL.iter().flat_map(|mode| intervals(system, *mode)).collect();
        let modes = [Mode::RandomWrite, Mode::RandomRead];
        let threads = modes
            .iter()
            .flat_map(|mode| THREADS.iter().map(|threads| of_threads(system, *mode, *threads)));
        Self {
            kind: "modelled-energy-motivation".into(),
            profile: profile.into(),
            intervals,
            moments: moments(system),
            threads: threads.collect(),
        }
    }

    /// The runs of a mode, by their intervals.
    pub fn of_mode(&self, mode: Mode) -> impl Iterator<Item = &Interval> {
        self.intervals.iter().filter(move |run| run.mode == mode)
    }
}

/// The requests of one thread, on a module that nobody else uses.
struct Run {
    model: Model,
    /// Start and end of each request, picoseconds.
    spans: Vec<(u64, u64)>,
}

impl Run {
    fn new(system: &System, mode: Mode, pause_ps: u64) -> Self {
        let model = Model::new(system, FOOTPRINT_BYTES);
        let mut places = Places::new(mode);
        let mut now_ps = 0;
        let request = |_| {
            let done_ps = model.book(now_ps, mode.access(), places.next(), LEN_BYTES);
            let span = (now_ps, done_ps);
            now_ps = done_ps + pause_ps;
            span
        };
        let spans = (0..REQUESTS).map(request).collect();
        Self { model, spans }
    }

    fn end_ps(&self) -> u64 {
        self.spans.last().map_or(0, |(_, done_ps)| *done_ps)
    }
}

/// The places of requests, the same in each run of a mode.
struct Places {
    is_sequential: bool,
    next: u64,
    random: Xoshiro256PlusPlus,
}

impl Places {
    fn new(mode: Mode) -> Self {
        let random = Xoshiro256PlusPlus::seed_from_u64(1);
        Self { is_sequential: mode.is_sequential(), next: 0, random }
    }

    fn next(&mut self) -> u64 {
        self.next += 1;
        let place = match self.is_sequential {
            true => self.next - 1,
            false => self.random.random_range(0..FOOTPRINT_BYTES / LEN_BYTES),
        };
        place % (FOOTPRINT_BYTES / LEN_BYTES) * LEN_BYTES
    }
}

fn intervals(system: &System, mode: Mode) -> Vec<Interval> {
    let pauses = (0..=STEPS).map(|step| step * STEP_PS);
    let runs: Vec<_> =
        pauses.map(|pause_ps| (pause_ps, Run::new(system, mode, pause_ps))).collect();
    let longest_ps = runs.iter().map(|(_, run)| run.end_ps()).max().unwrap_or(0);
    let interval = |(pause_ps, run): &(u64, Run)| {
        let used = run.model.energy(longest_ps);
        let (Joules(execution_joules), Joules(equal_time_joules)) =
            (used.execution, used.equal_time);
        let (requests, seconds) = (f64::from(REQUESTS), run.end_ps() as f64 / PS_PER_S);
        let busy_ps: u64 = run.spans.iter().map(|(start_ps, done_ps)| done_ps - start_ps).sum();
        Interval {
            mode,
            interval_ms: *pause_ps as f64 / 1e9,
            response_us: busy_ps as f64 / 1e6 / requests,
            requests_per_s: requests / seconds,
            watts: execution_joules / seconds,
            requests_per_joule: requests / execution_joules,
            execution_joules,
            equal_time_joules,
        }
    };
    runs.iter().map(interval).collect()
}

/// Figure 4: the same random writes compact and disperse, until the later end.
fn moments(system: &System) -> Vec<Moment> {
    let end_ps = Run::new(system, Mode::RandomWrite, STEP_PS).end_ps();
    let moments = (1..=MOMENTS).map(|moment| {
        let (from_ps, at_ps) = ((moment - 1) * end_ps / MOMENTS, moment * end_ps / MOMENTS);
        let of = |pause_ps: u64| {
            let [before, after] = [from_ps, at_ps].map(|ps| drawn_joules(system, pause_ps, ps));
            ((after - before) / ((at_ps - from_ps) as f64 / PS_PER_S), after)
        };
        Moment { at_ms: at_ps as f64 / 1e9, compact: of(0), disperse: of(STEP_PS) }
    });
    moments.collect()
}

/// Joules that a module has drawn until an instant, by the random writes that start before it and
/// by idleness.
fn drawn_joules(system: &System, pause_ps: u64, until_ps: u64) -> f64 {
    let model = Model::new(system, FOOTPRINT_BYTES);
    let mut places = Places::new(Mode::RandomWrite);
    let mut now_ps = 0;
    for _ in 0..REQUESTS {
        if now_ps >= until_ps {
            break;
        }
        now_ps = model.book(now_ps, Access::Write, places.next(), LEN_BYTES) + pause_ps;
    }
    model.energy(until_ps).equal_time.0
}

fn of_threads(system: &System, mode: Mode, threads: u32) -> Threads {
    let model = Model::new(system, FOOTPRINT_BYTES);
    let mut places = Places::new(mode);
    let mut ready_ps = vec![0u64; threads as usize];
    for _ in 0..REQUESTS {
        let Some(first) = ready_ps.iter_mut().min() else { break };
        *first = model.book(*first, mode.access(), places.next(), LEN_BYTES);
    }
    let end_ps = ready_ps.into_iter().max().unwrap_or(1);
    let seconds = end_ps as f64 / PS_PER_S;
    let watts = model.energy(0).execution.0 / seconds;
    let bytes_per_s = f64::from(REQUESTS) * LEN_BYTES as f64 / seconds;
    Threads { mode, threads, bytes_per_s, watts }
}
