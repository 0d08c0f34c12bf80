//! The tables of a comparison, for the terminal and the page.

use super::choice::Choice;
use super::outcome::Outcome;
use super::result::EnergyResult;
use super::schemes::RECORD_BYTES;

/// The columns of [`EnergyResult::table`].
pub const COLUMNS: [&str; 12] = [
    "workload",
    "configuration",
    "primaries",
    "reads/s",
    "updates/s",
    "idle reads",
    "idle time",
    "saved at 2.8 W",
    "saved at 3.3 W",
    "equal time",
    "by interval",
    "energy x delay",
];

/// The columns of [`EnergyResult::dram_table`].
pub const DRAM_COLUMNS: [&str; 8] = [
    "workload",
    "DRAM (MiB)",
    "of the data",
    "reads served",
    "writes/update",
    "saved at 2.8 W",
    "primary awake",
    "with a DRAM module",
];

/// The columns of [`EnergyResult::choice_table`].
pub const CHOICE_COLUMNS: [&str; 9] = [
    "workload",
    "product with 1",
    "with 2",
    "with 3",
    "best",
    "trials find",
    "trials",
    "find after a change",
    "trials then, at most",
];

impl EnergyResult {
    /// A row for each run.
    pub fn table(&self) -> Vec<[String; 12]> {
        let row = |it: &Outcome| {
            let standard = self.standard_of(it).unwrap_or(it);
            [
                it.workload.clone(),
                it.scheme.name().to_owned(),
                it.primaries.to_string(),
                change(it.reads_per_s, standard.reads_per_s),
                change(it.writes_per_s, standard.writes_per_s),
                change(it.reads_of_last as f64, standard.reads_of_last as f64),
                change(it.last_accessed_s, standard.last_accessed_s),
                percent(self.saved(it, 0)),
                percent(self.saved(it, 1)),
                percent(self.saved_equal_time(it)),
                percent(self.saved_by_interval(it)),
                self.product(it).map_or("-".into(), |product| change(product, 1.0)),
            ]
        };
        self.outcomes.iter().map(row).collect()
    }

    /// A row for each run with a DRAM before all modules. Its last two columns are what is saved if
    /// the primary never sleeps, and if one whole module of DRAM is charged.
    pub fn dram_table(&self) -> Vec<[String; 8]> {
        let row = |it: &Outcome| {
            let (dram, standard) = (it.dram.as_ref()?, self.standard_of(it)?);
            let saved = |joules: f64| percent(Some(1.0 - joules / standard.joules[0]));
            let data_bytes = (it.records * u64::from(RECORD_BYTES)) as f64;
            Some([
                it.workload.clone(),
                format!("{:.1}", dram.bytes as f64 / f64::from(1 << 20)),
                percent(Some(dram.bytes as f64 / data_bytes)),
                percent(Some(dram.read_share)),
                format!("{:.2}", dram.writes_per_update),
                saved(it.joules[0]),
                saved(it.awake_joules[0]),
                saved(it.joules[0] + dram.module_joules),
            ])
        };
        self.outcomes.iter().filter_map(row).collect()
    }

    /// A row for each workload: products of energy and delay beside all primaries, the number with
    /// the least, and what trials find.
    pub fn choice_table(&self) -> Vec<[String; 9]> {
        let choice = |it: &Choice| {
            let product = |at: usize| it.products.get(at).map_or("-".into(), |it| change(*it, 1.0));
            [
                it.workload.clone(),
                product(0),
                product(1),
                product(2),
                it.best.to_string(),
                it.found.to_string(),
                it.trials.to_string(),
                it.found_after_change.iter().map(u16::to_string).collect::<Vec<_>>().join(", "),
                it.trials_after_change_max.to_string(),
            ]
        };
        self.choices.iter().map(choice).collect()
    }

    /// How often trials find what the sweep finds best, of how many workloads.
    pub fn agreeing(&self) -> (usize, usize) {
        let agrees = |it: &&Choice| it.found == it.best;
        (self.choices.iter().filter(agrees).count(), self.choices.len())
    }
}

fn change(now: f64, base: f64) -> String {
    format!("{:+.1} %", (now / base - 1.0) * 100.0)
}

fn percent(part: Option<f64>) -> String {
    part.map_or("-".into(), |part| format!("{:.1} %", part * 100.0))
}
