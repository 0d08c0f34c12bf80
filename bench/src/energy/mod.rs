//! Energy: what modules of memory draw, and what is saved when some of them sleep (Sprint-AEP). All
//! of it is modelled.
//!
//! `motivation` has the paper's section II, one module under compact and disperse requests.
//! `schemes` are the configurations and workloads of its section IV, `simulate` runs one on a
//! virtual clock over the room *tier*, `meter` has the energy, `result` all runs, and `page` draws.

mod meter;
mod motivation;
mod page;
mod result;
mod schemes;
mod simulate;

pub use meter::{Meters, Powers};
pub use motivation::{Interval, Mode, Moment, Motivation, Threads};
pub use page::{motivation_page, page};
pub use result::{COLUMNS, EnergyResult};
pub use schemes::{Outcome, READINGS, Scale, Scheme, Workload, run};
pub use simulate::{CLIENTS, Happened, Load, Run, SOFTWARE_PS};

#[cfg(test)]
mod tests {
    use perdura_media::profile::System;

    use super::*;

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

    /// The runs of a workload.
    fn outcomes(workload: Workload) -> [Outcome; 3] {
        let (system, scale) = (System::find("aep").unwrap(), TINY);
        let of = |scheme, primaries| run(scheme, workload, primaries, &scale, false, &system);
        [of(Scheme::Standard, 4), of(Scheme::Sprint, 1), of(Scheme::WithoutParallel, 1)]
    }

    #[test]
    fn with_time_between_requests_one_primary_saves_a_fifth_and_is_no_slower() {
        let [standard, sprint, serial] = outcomes(Workload::ALL[4]);
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
    fn the_same_settings_give_the_same_outcome() {
        let texts = [0, 1].map(|_| serde_json::to_string(&outcomes(Workload::ALL[3])).unwrap());
        assert_eq!(texts[0], texts[1]);
    }

    #[test]
    fn the_comparison_s_page_has_every_run_and_says_that_it_is_modelled() {
        let system = System::find("aep").unwrap();
        let scale = Scale { records: 1_000, warm_requests: 500, requests: 500, ..TINY };
        let result = EnergyResult::of("aep", &system, scale, true, &|_, _, _| (), &|| false);
        assert_eq!((result.outcomes.len(), result.table().len()), (36, 36));
        assert!(result.outcomes.iter().all(|it| it.reads_per_s > 0.0 && it.joules[0] > 0.0));
        for workload in Workload::ALL {
            let (primaries, trials) = result.found_by_trials(&workload.name()).unwrap();
            assert!((1..=4).contains(&primaries) && trials <= 3, "{workload:?}: {primaries}");
        }
        assert_eq!(result.found_by_trials("A-T").unwrap().0, 1);
        let page = page(&result);
        assert!(page.contains("Modelled, not measured") && page.matches("<svg").count() == 4);
        let cut = EnergyResult::of("aep", &system, scale, true, &|_, _, _| (), &|| true);
        assert!(cut.outcomes.is_empty());
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
