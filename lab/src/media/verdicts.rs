//! What the measured steps of HASTE show: each beside the step before, and the sentences that come
//! first.
//!
//! A step changes only the driver's own work: elevator, locks, bookkeeping. On a medium that takes
//! no time nobody sleeps, and own work is all software but copying; behind a real medium's time it
//! is hidden by the wake-up of the sleeping thread, which varies by more than a step saves.

use perdura_block::path::{Part, Step};

use super::result::{PathResult, Verdict};
use super::steps::{Paths, THREADS};
use perdura_bench::pairs::Ratio;

/// Published software time of the base, and with spin-waits, microseconds (the HASTE slides,
/// "Software is Critical", "Add Spin-Waits").
pub(super) const SLIDES_BASE_US: f64 = 13.4;
pub(super) const SLIDES_SPIN_US: f64 = 5.0;
/// Published share of the software that each of the two steps between leaves.
pub(super) const SLIDES_STEP: f64 = 0.9;

/// The sentences to read first: what the steps save of the driver's own work, what hides that in a
/// whole request, and which conditions of the slides do not hold here. Empty unless the base and
/// one of the next two steps were run.
pub(super) fn findings(paths: &Paths, alone: &Paths, alone_verdicts: &[Verdict]) -> Vec<String> {
    let base = |paths, sentence: &dyn Fn(&PathResult) -> String| -> Vec<String> {
        let base = THREADS.iter().filter_map(|threads| of(paths, Step::Base, *threads));
        base.map(|path| format!("{}, {}", sentence(path), told(path.threads))).collect()
    };
    let left: Vec<String> = alone_verdicts
        .iter()
        .filter(|verdict| verdict.step != Step::Spin.name())
        .map(|Verdict { step, before, threads, awake_ratio, .. }| {
            format!("{step} {} of {before}, {}", figures(awake_ratio.as_ref()), told(*threads))
        })
        .collect();
    let own = base(alone, &|path| format!("{:.0} ns", own_ns(path)));
    let hidden = base(paths, &|path| {
        let [low, high] = path.software_ns_range;
        let wakeup_ns = part_ns(path, Part::Wakeup);
        format!("{wakeup_ns:.0} of {:.0} ns, slices {low:.0} to {high:.0}", path.software_ns)
    });
    if own.is_empty() || left.is_empty() {
        return Vec::new();
    }
    let slides_sleep_us = SLIDES_BASE_US * SLIDES_STEP * SLIDES_STEP - SLIDES_SPIN_US;
    vec![
        format!(
            "Found: the slides' first two steps save 10 % of all software each. Here they save of \
             the driver's own work alone, which in the base and on a medium that takes no time is \
             {}; of that they leave: {}.",
            own.join("; "),
            left.join("; "),
        ),
        format!(
            "A whole request hides these savings: of the base's software, waking up a sleeping \
             thread is {}; no step but the last changes that.",
            hidden.join("; "),
        ),
        format!(
            "Two conditions of the slides do not hold here: their driver is a kernel's of 2010, \
             with system calls and a scheduler that cost microseconds, this one runs in user \
             space; and sleeping cost their request {slides_sleep_us:.1} us, the saving of their \
             last step."
        ),
    ]
}

/// Compares each step with the step chosen before it, for each number of threads.
pub(super) fn verdicts(paths: &Paths, steps: &[Step]) -> Vec<Verdict> {
    pairs(paths, steps, verdict)
}

/// Compares the steps' own work, from paths on a medium that takes no time.
pub(super) fn verdicts_alone(alone: &Paths, steps: &[Step]) -> Vec<Verdict> {
    pairs(alone, steps, verdict_alone)
}

fn pairs(
    paths: &Paths,
    steps: &[Step],
    compare: impl Fn(&PathResult, &PathResult) -> Verdict,
) -> Vec<Verdict> {
    let pairs = THREADS
        .into_iter()
        .flat_map(|threads| steps.windows(2).map(move |pair| (pair[0], pair[1], threads)));
    pairs
        .filter_map(|(before, step, threads)| {
            Some(compare(of(paths, before, threads)?, of(paths, step, threads)?))
        })
        .collect()
}

fn of(paths: &Paths, step: Step, threads: usize) -> Option<&PathResult> {
    paths.results.iter().find(|path| path.path == step.name() && path.threads == threads)
}

fn part_ns(path: &PathResult, part: Part) -> f64 {
    path.parts_ns.get(part.name()).copied().unwrap_or(0.0)
}

/// Software time without waking up and copying, nanoseconds.
fn own_ns(path: &PathResult) -> f64 {
    path.software_ns - part_ns(path, Part::Wakeup) - part_ns(path, Part::Copy)
}

fn verdict(before: &PathResult, after: &PathResult) -> Verdict {
    let ratio = Ratio::of(&after.slices_ns, &before.slices_ns);
    let awake_ratio = Ratio::of(&after.awake_slices_ns, &before.awake_slices_ns);
    let is_faster = is_below_one(ratio.as_ref());
    let why = match is_faster {
        Some(true) => String::new(),
        _ => format!(
            "; waking up is {:.0} of {:.0} ns, and slices range over {:.0} ns",
            part_ns(before, Part::Wakeup),
            before.software_ns,
            before.software_ns_range[1] - before.software_ns_range[0],
        ),
    };
    let sentence = format!(
        "{}, {}: {}, {} of the software of {}; without waking up {}, {}{why}",
        after.path,
        told(after.threads),
        what(is_faster),
        figures(ratio.as_ref()),
        before.path,
        what(is_below_one(awake_ratio.as_ref())),
        figures(awake_ratio.as_ref()),
    );
    Verdict {
        step: after.path.clone(),
        before: before.path.clone(),
        threads: after.threads,
        ratio,
        awake_ratio,
        is_faster,
        sentence,
    }
}

fn verdict_alone(before: &PathResult, after: &PathResult) -> Verdict {
    let ratio = Ratio::of(&after.awake_slices_ns, &before.awake_slices_ns);
    let is_faster = is_below_one(ratio.as_ref());
    let sentence = format!(
        "{}, {}, on a medium that takes no time: {}, {} of the own work of {} ({:.0} of {:.0} ns)",
        after.path,
        told(after.threads),
        what(is_faster),
        figures(ratio.as_ref()),
        before.path,
        own_ns(after),
        own_ns(before),
    );
    Verdict {
        step: after.path.clone(),
        before: before.path.clone(),
        threads: after.threads,
        awake_ratio: ratio.clone(),
        ratio,
        is_faster,
        sentence,
    }
}

fn told(threads: usize) -> String {
    if threads == 1 { "1 thread".into() } else { format!("{threads} threads") }
}

fn figures(ratio: Option<&Ratio>) -> String {
    match ratio {
        None => "not enough pairs".to_owned(),
        Some(Ratio { ratio, ci95: [low, high], .. }) => {
            format!("{ratio:.3} ({low:.3} to {high:.3})")
        }
    }
}

fn what(is_faster: Option<bool>) -> &'static str {
    match is_faster {
        Some(true) => "faster",
        Some(false) => "NOT faster",
        None => "no difference shown",
    }
}

/// Whether the whole interval is below 1 or above it; `None` if it contains 1.
fn is_below_one(ratio: Option<&Ratio>) -> Option<bool> {
    match ratio?.ci95 {
        [_, high] if high < 1.0 => Some(true),
        [low, _] if low > 1.0 => Some(false),
        _ => None,
    }
}
