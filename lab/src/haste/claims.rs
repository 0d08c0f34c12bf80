//! Compares the published figures of the slides with the results here.

use super::result::{Claim, HasteResult, RawPoint};

pub(super) fn of(result: &HasteResult) -> Vec<Claim> {
    [raw_gain(result), application_gain(result), software(result), memory_bus(result)]
        .into_iter()
        .flatten()
        .collect()
}

fn plain(result: &HasteResult) -> impl Iterator<Item = &RawPoint> {
    result.raw.iter().filter(|point| point.step == "spin" && !point.with_filesystem)
}

/// The largest gain of a modelled memory over the disks among raw requests, with this machine's
/// software and with the slides'.
fn raw_gain(result: &HasteResult) -> Option<Claim> {
    let on_disks = |other: &RawPoint| {
        plain(result).find(|point| {
            point.system == result.disks
                && (point.is_read, point.is_sequential, point.request_bytes)
                    == (other.is_read, other.is_sequential, other.request_bytes)
        })
    };
    let pairs = plain(result).filter_map(|point| Some((point, on_disks(point)?)));
    let gain = |(fast, disks): &(&RawPoint, &RawPoint)| fast.requests_per_s / disks.requests_per_s;
    let best = pairs.max_by(|left, right| gain(left).total_cmp(&gain(right)))?;
    let (point, disks) = best;
    // Eight cores that spend 5 us on each request limit the rate to this.
    let with_slides_software = point.requests_per_s.min(8.0 / 5e-6) / disks.requests_per_s;
    Some(Claim {
        published: "7,500 times the disks in raw requests".into(),
        here: format!(
            "modelled: {:.0} times, {} at {} B, {} {}; with the slides' 5 us of software on eight \
             cores {:.0} times",
            gain(&best),
            point.system,
            point.request_bytes,
            if point.is_sequential { "sequential" } else { "random" },
            if point.is_read { "reads" } else { "writes" },
            with_slides_software
        ),
        holds: with_slides_software >= 750.0,
    })
}

/// The gains of the fastest system over the disks among applications: geometric mean and largest.
fn application_gain(result: &HasteResult) -> Option<Claim> {
    let programs = result.programs.iter().map(|program| (&program.name, &program.times));
    let all = programs.chain(result.kernels.iter().map(|kernel| (&kernel.name, &kernel.times)));
    let gains: Vec<(&String, f64)> = all
        .filter_map(|(name, times)| {
            let disks = times.iter().find(|time| time.system == result.disks)?.total_s();
            let best = times.iter().map(|time| time.total_s()).fold(f64::INFINITY, f64::min);
            Some((name, disks / best))
        })
        .collect();
    let (name, most) = gains.iter().max_by(|left, right| left.1.total_cmp(&right.1))?;
    let mean = (gains.iter().map(|(_, gain)| gain.ln()).sum::<f64>() / gains.len() as f64).exp();
    Some(Claim {
        published: "100 times the disks in applications".into(),
        here: format!(
            "media modelled, computing measured: up to {most:.0} times ({name}), {mean:.0} in the \
             geometric mean"
        ),
        holds: *most >= 10.0,
    })
}

/// Software time of each step for a request of 4 KiB.
fn software(result: &HasteResult) -> Option<Claim> {
    let of = |step: &str| {
        let found =
            result.software.iter().find(|one| one.step == step && one.request_bytes == 4096);
        found.map(|one| one.software_ns / 1e3)
    };
    let (base, spin) = (of("base")?, of("spin")?);
    let (unscheduled, atomic) = (of("unscheduled")?, of("atomic")?);
    let steps = [("base", base), ("unscheduled", unscheduled), ("atomic", atomic), ("spin", spin)];
    let slower: Vec<&str> =
        steps.windows(2).filter(|pair| pair[1].1 >= pair[0].1).map(|pair| pair[1].0).collect();
    let exception = match slower.as_slice() {
        [] => String::new(),
        names => format!(
            "; {} not faster than the step before: `perdura-lab media` says why",
            names.join(", ")
        ),
    };
    Some(Claim {
        published:
            "software of a 4 KB request from 13.4 us to 5 us: -10 %, -10 %, -54 %, -62 % in all"
                .into(),
        here: format!(
            "measured: {base:.2} us, without a scheduler {:+.0} %, without locks {:+.0} %, \
             spinning {:+.0} %: {spin:.2} us, {:+.0} % in all{exception}",
            100.0 * (unscheduled / base - 1.0),
            100.0 * (atomic / unscheduled - 1.0),
            100.0 * (spin / atomic - 1.0),
            100.0 * (spin / base - 1.0)
        ),
        holds: spin < 0.5 * base && slower.is_empty(),
    })
}

/// The share of a memory bus that requests use when each line is paid for, for small and large
/// requests.
fn memory_bus(result: &HasteResult) -> Option<Claim> {
    let share = |bytes: u64| {
        let found = plain(result).find(|point| {
            point.on_memory_bus
                && point.is_read
                && !point.is_sequential
                && point.request_bytes == bytes
        });
        found.and_then(|point| point.link_share)
    };
    let (small, large) = (share(4 << 10)?, share(256 << 10)?);
    Some(Claim {
        published:
            "memory on the DDR bus gets 11 % of its bandwidth, and no more with larger requests"
                .into(),
        here: format!(
            "modelled: {:.1} % at 4 KiB, {:.1} % at 256 KiB, eight requesters",
            100.0 * small,
            100.0 * large
        ),
        holds: large < 0.2 && large < 2.0 * small.max(0.05),
    })
}

#[cfg(test)]
mod tests {
    use super::super::result::SoftwarePoint;
    use super::*;
    use crate::haste::{HasteSettings, Scale};
    use perdura_bench::machine::Machine;

    fn with_steps(ns: [f64; 4]) -> Claim {
        let settings = HasteSettings {
            scale: Scale::Tiny,
            systems: Vec::new(),
            disks: String::new(),
            paced: perdura_media::System::find("pcm").unwrap(),
            parts: Vec::new(),
            dir: "/".into(),
            program: "/".into(),
            seed: 1,
        };
        let mut result = HasteResult::new(Machine::here(), &settings);
        let names = ["base", "unscheduled", "atomic", "spin"];
        result.software = names
            .into_iter()
            .zip(ns)
            .map(|(step, software_ns)| SoftwarePoint {
                step: step.into(),
                request_bytes: 4096,
                software_ns,
            })
            .collect();
        software(&result).unwrap()
    }

    #[test]
    fn a_step_that_is_no_faster_is_named_and_the_claim_does_not_hold() {
        let slides = with_steps([13_400.0, 12_060.0, 10_854.0, 5_000.0]);
        assert!(slides.holds && !slides.here.contains("not faster"), "{slides:?}");
        let slower = with_steps([13_400.0, 12_060.0, 12_100.0, 5_000.0]);
        assert!(!slower.holds && slower.here.contains("; atomic not faster"), "{slower:?}");
    }
}
