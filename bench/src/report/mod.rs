//! Results of runs, as JSON and as a page.

mod machine;
mod page;
mod published;
mod result;

pub use machine::machine_paragraph;
pub use page::page;
pub use result::{Causes, Configuration, SideResult, SweepResult, YcsbResult};

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::workload::RecordKind;

    /// A result with these sides.
    pub(crate) fn result(side: SideResult, compare: Option<SideResult>) -> YcsbResult {
        YcsbResult {
            kind: "ycsb".into(),
            workload: "a".into(),
            machine: Machine::here(),
            configuration: Configuration {
                about: "a test".into(),
                distribution: "zipfian".into(),
                records: 1000,
                data_bytes: 1_000_000,
                record: RecordKind::Hash,
                fields: 10,
                field_bytes: 100,
                write_all_fields: false,
                values_repeating_percent: 0,
                operations: Some(1000),
                duration_ns: None,
                threads: 1,
                pipeline: 1,
                target_rate_ops_per_s: None,
                think_ns: 0,
                scan_max: 100,
                pairs: 10,
                seed: 1,
                policy: Some("clock-pro".into()),
                trap_mode: false,
            },
            ratio: None,
            ratio_ci95: None,
            ratio_per_pair: Vec::new(),
            side,
            compare,
            without_recency: None,
            causes: None,
        }
    }

    #[test]
    fn a_result_survives_its_json_with_the_names_that_are_promised() {
        let side = SideResult { budget_bytes: Some(5), ..SideResult::default() };
        let mut run = result(side, Some(SideResult::default()));
        run.set_ratio(crate::pairs::Ratio::of(&[1.0, 1.0], &[2.0, 2.0]));
        let text = serde_json::to_string(&run).unwrap();
        for name in [
            "ratio",
            "budget_bytes",
            "dirty_bytes_max",
            "ssd_bytes_written",
            "user_bytes_written",
            "throughput_ops_per_s",
            "latency_ns",
        ] {
            assert!(text.contains(&format!("\"{name}\":")), "{name} in {text}");
        }
        assert_eq!(serde_json::from_str::<YcsbResult>(&text).unwrap(), run);
    }
}
