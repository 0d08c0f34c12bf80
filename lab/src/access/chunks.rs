//! Chunks of work, which the threads of a partition take until none is left.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::workload::{Config, ExecMode};

/// The chunks of one part of a benchmark.
#[derive(Debug)]
pub struct Chunks {
    /// Next chunk of each partition; random and custom access and traces have a single count.
    next: Vec<AtomicU64>,
    /// Number of chunks of a partition, or of the whole.
    chunks: u64,
    /// Operations of a chunk; the last chunk may have fewer.
    chunk_operations: u64,
    /// Number of operations of a partition, or of the whole.
    operations: u64,
    threads_each: u64,
    goes_by_time: bool,
}

impl Chunks {
    /// Chunks of a configuration; a trace has `trace_accesses` operations.
    pub fn new(config: &Config, trace_accesses: u64) -> Self {
        let partitions = config.partitions();
        let (counts, operations) = match config.exec_mode {
            ExecMode::Sequential | ExecMode::SequentialDesc => {
                (partitions, config.memory_range / partitions / config.access_size)
            }
            ExecMode::Random | ExecMode::Custom => (1, config.number_operations),
            ExecMode::Trace => (1, trace_accesses),
        };
        let threads_each = config.number_threads / counts;
        let asked = (config.min_io_chunk_size / config.access_size).max(1);
        // Chunks are small enough that each thread gets one, whatever the sizes.
        let chunk_operations = asked.min(operations.div_ceil(threads_each)).max(1);
        Self {
            next: (0..counts).map(|_| AtomicU64::new(0)).collect(),
            chunks: operations.div_ceil(chunk_operations),
            chunk_operations,
            operations,
            threads_each,
            goes_by_time: config.run_time > 0,
        }
    }

    /// The thread's next chunk: its first operation, and the number of its operations. None: all is
    /// done.
    pub fn take(&self, thread: u64) -> Option<(u64, u64)> {
        let mut chunk = self.next[(thread / self.threads_each) as usize].fetch_add(1, Relaxed);
        if chunk >= self.chunks {
            if !self.goes_by_time {
                return None;
            }
            // The time decides when it ends, so the work begins again.
            chunk %= self.chunks;
        }
        let first = chunk * self.chunk_operations;
        Some((first, self.chunk_operations.min(self.operations - first)))
    }

    /// Number of operations of a partition, or of the whole.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Number of all operations; none if the time decides.
    pub fn all_operations(&self) -> Option<u64> {
        (!self.goes_by_time).then(|| self.operations * self.next.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_meet_each_operation_once_and_there_is_one_for_each_thread() {
        for (number_threads, number_partitions) in [(1, 1), (4, 1), (4, 2), (6, 0)] {
            let memory_range = 6 << 20;
            let config =
                Config { number_threads, number_partitions, memory_range, ..Config::default() };
            let chunks = Chunks::new(&config, 0);
            let each = number_threads / config.partitions();
            for partition in 0..config.partitions() {
                let taken: Vec<_> = std::iter::from_fn(|| chunks.take(partition * each)).collect();
                assert!(taken.len() as u64 >= each);
                let mut end = 0;
                for (first, count) in taken {
                    assert_eq!(first, end);
                    end += count;
                }
                assert_eq!(end, chunks.operations());
            }
            assert_eq!(chunks.all_operations(), Some((6 << 20) / 256));
        }
    }
}
