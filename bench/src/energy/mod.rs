//! Energy: what modules of memory draw, and what is saved when some of them sleep (Sprint-AEP). All
//! of it is modelled.
//!
//! `motivation` has the paper's section II, one module under compact and disperse requests.
//! `schemes` are the configurations and workloads of its section IV, and a DRAM before all modules,
//! `simulate` runs one over the room *tier*, `meter` has the energy, `outcome` what came of a run,
//! `result` all runs, `choice` the best number of primaries; `tables` and `page` show.

mod choice;
mod meter;
mod motivation;
mod outcome;
mod page;
mod result;
mod schemes;
mod simulate;
mod tables;

pub use choice::Choice;
pub use meter::{Meters, Powers};
pub use motivation::{Interval, Mode, Moment, Motivation, Threads};
pub use outcome::{DramOutcome, Outcome};
pub use page::{motivation_page, page};
pub use result::EnergyResult;
pub use schemes::{READINGS, Scale, Scheme, Setup, Workload, run};
pub use simulate::{CLIENTS, Happened, Load, Pace, Run, SOFTWARE_PS, Systems};
pub use tables::{CHOICE_COLUMNS, COLUMNS, DRAM_COLUMNS};

#[cfg(test)]
mod tests {
    use perdura_media::profile::System;

    use super::*;
    use crate::dist::Distribution;

    fn aep() -> Motivation {
        Motivation::of("aep", &System::find("aep").unwrap())
    }

    fn close(found: f64, expected: f64, part: f64) -> bool {
        (found / expected - 1.0).abs() < part
    }

    #[test]
    fn the_figures_have_what_the_paper_measured() {
        let found = aep();
        let writes: Vec<_> = found.of_mode(Mode::RandomWrite).collect();
        // Figure 2.
        assert!(close(writes[0].requests_per_s, 254_131.0, 0.01), "{:?}", writes[0]);
        assert!(close(writes[0].watts, 3.64, 0.01), "{:?}", writes[0]);
        for run in &writes[1..=8] {
            assert!(close(run.watts, 3.3, 0.01), "{run:?}");
        }
        assert!(close(writes[16].watts, 1.96, 0.01), "{:?}", writes[16]);
        // Figure 3: the value of no interval, and a quick fall.
        assert!(close(writes[0].requests_per_joule, 69_700.0, 0.01), "{:?}", writes[0]);
        assert!(writes[1].requests_per_joule < writes[0].requests_per_joule / 20.0);
    }

    #[test]
    fn compact_requests_have_the_best_product_of_energy_and_delay_in_every_mode() {
        let found = aep();
        for mode in Mode::ALL {
            let runs: Vec<_> = found.of_mode(mode).collect();
            assert_eq!(runs.len(), 17);
            for run in &runs[1..] {
                let worse = |of: fn(&Interval) -> f64| of(run) > of(runs[0]);
                assert!(worse(|it| it.execution_joules * it.response_us), "{run:?}");
                assert!(worse(|it| it.equal_time_joules * it.response_us), "{run:?}");
            }
        }
    }

    #[test]
    fn a_compact_run_is_idle_at_the_end_and_the_disperse_one_has_drawn_more() {
        let found = aep();
        let (first, last) = (&found.moments[0], found.moments.last().unwrap());
        assert!(first.compact.0 > first.disperse.0, "{first:?}");
        assert!(close(last.compact.0, 1.91, 0.01), "{last:?}");
        assert!(last.disperse.1 > 1.5 * last.compact.1, "{last:?}");
        for pair in found.moments.windows(2) {
            assert!(pair[1].compact.1 > pair[0].compact.1, "energy only grows: {pair:?}");
        }
        // The same energy as the whole run's, computed another way: the sum of power by time.
        let each_s = first.at_ms / 1e3;
        let summed: f64 = found.moments.iter().map(|it| it.disperse.0 * each_s).sum();
        assert!(close(summed, last.disperse.1, 1e-6), "{summed}");
        let whole = found.of_mode(Mode::RandomWrite).nth(1).unwrap();
        assert!(close(last.disperse.1, whole.execution_joules, 0.01), "{last:?}");
    }

    #[test]
    fn reads_gain_by_threads_and_writes_drop_at_eight() {
        let found = aep();
        let of = |mode, threads| {
            let is_it = |run: &&Threads| run.mode == mode && run.threads == threads;
            found.threads.iter().find(is_it).unwrap().bytes_per_s
        };
        assert!(of(Mode::RandomRead, 4) > 1.35 * of(Mode::RandomRead, 1));
        assert!(of(Mode::RandomWrite, 4) < 1.35 * of(Mode::RandomWrite, 1));
        assert!(of(Mode::RandomWrite, 8) < 0.95 * of(Mode::RandomWrite, 4));
    }

    /// A scale at which cache and records are in proportion, and a run takes a moment.
    const TINY: Scale = Scale {
        records: 5_000,
        warm_requests: 60_000,
        requests: 10_000,
        cache_bytes: 4 << 20,
        buffer_bytes: 400 << 10,
    };

    fn setup(systems: &Systems, scale: Scale) -> Setup<'_> {
        let distribution = Distribution::PlainZipfian;
        Setup {
            systems,
            scale,
            is_global: false,
            distribution,
            dram_percent: 10,
            pace: Pace::Virtual,
        }
    }

    /// The runs of a workload.
    fn outcomes(workload: Workload) -> [Outcome; 4] {
        let systems = Systems::find("aep").unwrap();
        let setup = setup(&systems, TINY);
        let of = |scheme, primaries| run(scheme, workload, primaries, &setup);
        [
            of(Scheme::Standard, 4),
            of(Scheme::Sprint, 1),
            of(Scheme::WithoutParallel, 1),
            of(Scheme::Dram, 1),
        ]
    }

    #[test]
    fn with_time_between_requests_one_primary_saves_a_fifth_and_is_no_slower() {
        let [standard, sprint, serial, _] = outcomes(Workload::ALL[4]);
        let rate = |it: &Outcome| it.reads_per_s + it.writes_per_s;
        assert!(close(rate(&sprint), rate(&standard), 0.01), "{sprint:?}, {standard:?}");
        for (reading, least) in [(0, 0.2), (1, 0.28)] {
            let saved = 1.0 - sprint.joules[reading] / standard.joules[reading];
            assert!(saved > least, "{saved} at reading {reading}");
        }
        assert!(sprint.reads_of_last * 20 < standard.reads_of_last, "{sprint:?}");
        assert!(sprint.last_accessed_s * 4.0 < standard.last_accessed_s, "{sprint:?}");
        assert!(serial.joules[0] > sprint.joules[0], "{serial:?}");
        // One thread that copies does not wait for clients whose software still runs.
        assert!(serial.joules[0] < sprint.joules[0] * 1.03, "{serial:?}, {sprint:?}");
    }

    #[test]
    fn behind_a_dram_of_a_tenth_of_the_data_all_sleep_and_nothing_is_slower() {
        for workload in [Workload::ALL[0], Workload::ALL[3], Workload::ALL[4]] {
            let [standard, _, _, with_dram] = outcomes(workload);
            let dram = with_dram.dram.as_ref().unwrap();
            assert_eq!(dram.bytes * 10, TINY.records * 1024);
            // Zipf's law: a tenth of the records has most of the requests.
            assert!((0.6..0.85).contains(&dram.read_share), "{with_dram:?}");
            assert!((0.15..0.5).contains(&dram.writes_per_update), "{with_dram:?}");
            assert!(with_dram.reads_per_s > standard.reads_per_s, "{with_dram:?}");
            assert!(with_dram.writes_per_s > standard.writes_per_s, "{with_dram:?}");
            let [asleep, awake] = [&with_dram.joules, &with_dram.awake_joules]
                .map(|joules| 1.0 - joules[0] / standard.joules[0]);
            assert!(asleep > 0.28, "{asleep}: {with_dram:?}");
            // It sleeps only where there is time to.
            assert_eq!(awake < asleep, workload.is_disperse, "{with_dram:?}");
            assert_eq!(with_dram.reads_of_last, 0, "the cache has room for everything");
            // At the least the power of an idle module of DRAM, at most that of a busy one.
            let watts = dram.module_joules / with_dram.elapsed_s;
            assert!((1.6..4.1).contains(&watts), "{watts} W: {with_dram:?}");
        }
    }

    #[test]
    fn the_same_settings_give_the_same_outcome() {
        let texts = [0, 1].map(|_| serde_json::to_string(&outcomes(Workload::ALL[3])).unwrap());
        assert_eq!(texts[0], texts[1]);
    }

    #[test]
    fn the_comparison_s_page_has_every_run_and_says_that_it_is_modelled() {
        let systems = Systems::find("aep").unwrap();
        let scale = Scale { records: 1_000, warm_requests: 500, requests: 500, ..TINY };
        let setup = Setup { is_global: true, ..setup(&systems, scale) };
        let result = EnergyResult::of("aep", &setup, &|_, _, _| (), &|| false);
        assert_eq!((result.outcomes.len(), result.table().len()), (66, 66));
        assert_eq!((result.sizes.len(), result.dram_table().len()), (16, 6));
        assert!(result.outcomes.iter().all(|it| it.reads_per_s > 0.0 && it.joules[0] > 0.0));
        assert_eq!((result.choices.len(), result.choice_table().len()), (6, 6));
        let page = page(&result);
        assert!(page.contains("Modelled, not measured"));
        for number in 13..=25 {
            assert!(page.contains(&format!("<h2>Figure {number}</h2>")), "{number}");
        }
        assert_eq!(page.matches("The paper: ").count(), 13);
        assert_eq!(page.matches("<svg").count(), 18);
        let cut = EnergyResult::of("aep", &setup, &|_, _, _| (), &|| true);
        assert!(cut.outcomes.is_empty() && cut.choices.is_empty());
    }

    #[test]
    fn the_page_has_every_figure_and_every_statement() {
        let page = motivation_page(&aep());
        for number in 1..=8 {
            assert!(page.contains(&format!("<h2>Figure {number}</h2>")), "{number}");
        }
        assert_eq!(page.matches("<svg").count(), 10);
        assert!(page.contains("Modelled, not measured") && page.contains("254,131"));
    }
}
