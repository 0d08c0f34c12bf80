//! Limits on the sizes that workload files ask for, so that a file written for a large machine runs
//! on a small one. The result lists what was limited.

use perdura_media::Bytes;

use super::workload::{Config, Memory};

/// Limits on a benchmark's settings; none: no limit.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bounds {
    /// Most bytes of a range.
    pub range_max: Option<u64>,
    /// Most operations of a cell.
    pub operations_max: Option<u64>,
    /// Most seconds of a cell that runs for a time.
    pub run_time_max: Option<u64>,
    /// Most threads of a part.
    pub threads_max: Option<u64>,
}

impl Bounds {
    /// Limits a configuration and returns what was changed.
    ///
    /// # Panics
    /// If the limited configuration breaks a rule of workloads: memory is accessed on the strength
    /// of those rules.
    pub fn apply(&self, config: &mut Config) -> Vec<String> {
        let mut changed = Changed(Vec::new());
        changed.bound("number_threads", &mut config.number_threads, self.threads_max, &count);
        if !config.number_threads.is_multiple_of(config.number_partitions.max(1)) {
            changed.bound("number_partitions", &mut config.number_partitions, Some(1), &count);
        }
        let (memory_whole, memory_least) = steps(config, Memory::Persistent);
        let (dram_whole, dram_least) = steps(config, Memory::Dram);
        let range_max = self.range_max.unwrap_or(u64::MAX);
        // Fewer threads may change the sizes of their parts, so ranges are adjusted even without a
        // limit.
        let fitting = |asked: u64, whole: u64, least: u64| {
            Some((asked.min(range_max) / whole * whole).max(least))
        };
        let memory_max = fitting(config.memory_range, memory_whole, memory_least);
        let dram_max = fitting(config.dram_memory_range, dram_whole, dram_least);
        changed.bound("memory_range", &mut config.memory_range, memory_max, &size);
        changed.bound("dram_memory_range", &mut config.dram_memory_range, dram_max, &size);
        if config.exec_mode.counts_operations() {
            let max = self.operations_max.map(|max| max.max(config.number_threads));
            changed.bound("number_operations", &mut config.number_operations, max, &count);
        }
        // A time of 0 means that the work decides, so it is not limited.
        if config.run_time > 0 {
            let max = self.run_time_max.map(|max| max.max(1));
            changed.bound("run_time", &mut config.run_time, max, &count);
        }
        assert!(config.is_sound(), "bounded against the rules: {config:?}");
        changed.0
    }
}

/// For one memory: the number of bytes of which its size must be a multiple (whole accesses in
/// whole parts), and its least size.
fn steps(config: &Config, memory: Memory) -> (u64, u64) {
    let whole = config.access_size * config.partitions();
    let chain = config.custom_operations.as_ref();
    let reach = chain.map_or(0, |chain| {
        let (before, behind) = chain.reach(memory);
        before + behind
    });
    (
        whole,
        reach.next_multiple_of(config.access_size).max(config.access_size) * config.partitions(),
    )
}

/// The changes, in words.
struct Changed(Vec<String>);

impl Changed {
    fn bound(
        &mut self,
        key: &str,
        value: &mut u64,
        max: Option<u64>,
        shown: &dyn Fn(u64) -> String,
    ) {
        if let Some(max) = max.filter(|max| *value > *max) {
            self.0.push(format!("{key}: {} for {}", shown(max), shown(*value)));
            *value = max;
        }
    }
}

fn count(value: u64) -> String {
    value.to_string()
}

fn size(value: u64) -> String {
    Bytes(value).to_string()
}

#[cfg(test)]
mod tests {
    use super::super::workload::parse;
    use super::*;

    fn config(args: &str) -> Config {
        let args: String =
            args.split(' ').map(|arg| format!("    {}\n", arg.replace(':', ": "))).collect();
        parse("w.yaml", &format!("b:\n  args:\n{args}"))
            .unwrap()
            .remove(0)
            .parts
            .remove(0)
            .cells
            .remove(0)
            .config
    }

    #[test]
    fn what_is_asked_for_is_bounded_and_said() {
        let mut one = config("memory_range:1G number_threads:8 exec_mode:random run_time:9");
        let bounds = Bounds {
            range_max: Some((1 << 20) + 77),
            operations_max: Some(5),
            run_time_max: Some(0),
            threads_max: Some(2),
        };
        assert_eq!(
            bounds.apply(&mut one),
            [
                "number_threads: 2 for 8",
                "memory_range: 1 MiB for 1 GiB",
                "number_operations: 5 for 100000000",
                "run_time: 1 for 9"
            ]
        );
        assert!(Bounds::default().apply(&mut one).is_empty());
    }

    #[test]
    fn ranges_stay_whole_in_each_part_and_hold_a_chain() {
        let least = Bounds { range_max: Some(1), ..Bounds::default() };
        let mut chain = config(
            "exec_mode:custom custom_operations:r_4096,w_64_none_8192 number_threads:4 \
             number_partitions:0",
        );
        least.apply(&mut chain);
        assert_eq!(chain.memory_range, 4 * (8192 + 256));
        let mut parts = config("memory_range:1G number_threads:8 number_partitions:0");
        let three = Bounds { threads_max: Some(3), ..Bounds::default() };
        assert_eq!(three.apply(&mut parts).len(), 2);
        assert_eq!((parts.partitions(), parts.memory_range % (3 * 256)), (3, 0));
        let mut fixed = config("memory_range:1G number_threads:8 number_partitions:4");
        assert_eq!(
            three.apply(&mut fixed),
            ["number_threads: 3 for 8", "number_partitions: 1 for 4"]
        );
    }
}
