//! Each mode accesses the bytes it should, on a small memory whose bytes show it.

use perdura_heap::{Durability, Memory};

use super::super::kernel::Isa;
use super::super::workload::{Persist, parse};
use super::*;

const PATTERN: [u8; 8] = 0x0123_4567_89ab_cdef_u64.to_le_bytes();

/// Runs the first cell of a benchmark with these arguments; returns its figures, and which lines of
/// its memories were written.
fn ran(args: &str) -> (PartRun, Vec<bool>, Vec<bool>) {
    let args: String = args
        .split_whitespace()
        .map(|arg| format!("    {}\n", arg.replacen(':', ": ", 1)))
        .collect();
    let benchmarks = parse("test", &format!("b:\n  args:\n{args}")).unwrap();
    let config = &benchmarks[0].parts[0].cells[0].config;
    let memory = |bytes| Memory::anonymous(bytes, Durability::Ordered).unwrap();
    let (main, dram) = (memory(config.memory_range), memory(config.dram_memory_range.max(64)));
    let span = |memory: &Memory, bytes| Span { base: memory.base(), bytes };
    let job = Job {
        config,
        kernel: Kernel::new(Isa::widest(), &[config.persist_instruction]).unwrap(),
        memory: span(&main, config.memory_range),
        device: None,
        replay: super::super::place::replay_of(config).unwrap(),
        dram: (config.dram_memory_range > 0).then(|| span(&dram, config.dram_memory_range)),
        processors: None,
    };
    // SAFETY: both memories live on, have the bytes that the configuration names, and nobody else
    // accesses them.
    let run = unsafe { run(std::slice::from_ref(&job)) }.unwrap().remove(0);
    let lines = |memory: &Memory, bytes: u64| {
        // SAFETY: these bytes belong to the memory, and no thread changes them any more.
        let bytes = unsafe { std::slice::from_raw_parts(memory.base(), bytes as usize) };
        bytes.chunks(64).map(|line| line.chunks(8).all(|word| word == PATTERN)).collect()
    };
    (run, lines(&main, config.memory_range), lines(&dram, config.dram_memory_range))
}

fn count(lines: &[bool]) -> usize {
    lines.iter().filter(|line| **line).count()
}

const NONE: &str = "persist_instruction:none operation:write min_io_chunk_size:4096";

#[test]
fn sequential_access_covers_all_of_its_memory_once() {
    for mode in ["sequential", "sequential_desc"] {
        for threads in [1, 3, 4] {
            let (run, lines, _) = ran(&format!(
                "{NONE} memory_range:192K access_size:256 exec_mode:{mode} number_threads:{threads}"
            ));
            assert_eq!((run.operations(), run.bytes()), (768, 192 << 10), "{mode}");
            assert!(lines.iter().all(|line| *line), "{mode}");
            assert_eq!(run.threads.len(), threads);
            assert!(run.threads.iter().all(|thread| thread.operations > 0) || threads > 1);
        }
    }
}

#[test]
fn partitions_are_covered_by_their_own_threads() {
    let (run, lines, _) =
        ran(&format!("{NONE} memory_range:64K number_threads:4 number_partitions:2"));
    assert_eq!(run.bytes(), 64 << 10);
    assert!(lines.iter().all(|line| *line));
    let (run, lines, _) =
        ran(&format!("{NONE} memory_range:64K number_threads:4 number_partitions:0"));
    assert!(run.threads.iter().all(|thread| thread.bytes == 16 << 10));
    assert!(lines.iter().all(|line| *line));
}

#[test]
fn random_access_does_as_many_operations_as_it_is_told() {
    let (run, lines, _) = ran(&format!(
        "{NONE} exec_mode:random memory_range:1M access_size:64 number_operations:5000 \
         number_threads:2"
    ));
    assert_eq!((run.operations(), run.bytes()), (5000, 320_000));
    // Of 16,384 lines, 5,000 draws meet the share 1 - e^-0.305.
    assert!(count(&lines).abs_diff(4309) < 200, "{}", count(&lines));
}

#[test]
fn shares_go_to_dram_and_to_the_other_operation() {
    let (run, main, dram) = ran(&format!(
        "{NONE} exec_mode:random memory_range:1M dram_memory_range:1M access_size:64 \
         number_operations:6000 dram_operation_ratio:0.25"
    ));
    assert_eq!(run.operations(), 6000);
    let expected = |draws: f64| (16384.0 * (1.0 - (-draws / 16384.0).exp())) as usize;
    assert!(
        count(&main).abs_diff(expected(4500.0)) < 200
            && count(&dram).abs_diff(expected(1500.0)) < 150
    );
    let (run, main, _) = ran(&format!(
        "{NONE} exec_mode:random memory_range:1M access_size:64 number_operations:6000 \
         mixed_operation_ratio:0.5"
    ));
    assert_eq!(run.bytes(), 6000 * 64);
    assert!(count(&main).abs_diff(expected(3000.0)) < 200, "{}", count(&main));
}

#[test]
fn chains_write_where_they_have_read() {
    let (run, main, dram) =
        ran("exec_mode:custom memory_range:64K dram_memory_range:64K number_operations:3000 \
         custom_operations:r_256,w_64_none_128,w_64_none_-64,rd_64,wd_64_none number_threads:2 \
         min_io_chunk_size:4096");
    assert_eq!((run.operations(), run.bytes()), (3000, 3000 * 512));
    // Lines 2 and 1 of each 256 B were written, and no other.
    assert!(main.chunks(4).all(|read| !read[0] && !read[3]));
    assert!(count(&main) > 500 && count(&dram) > 900, "{} {}", count(&main), count(&dram));
}

#[test]
fn a_time_ends_what_operations_would_not() {
    let began = Instant::now();
    let (run, ..) = ran("exec_mode:random memory_range:64K number_operations:2 run_time:1");
    assert!(
        began.elapsed().as_secs_f64() < 30.0 && run.ns >= 1_000_000_000 && run.operations() > 2
    );
    let (run, ..) = ran("memory_range:64K min_io_chunk_size:4096 run_time:1");
    assert!(run.bytes() > 64 << 10, "it goes round");
}

#[test]
fn every_so_many_operations_one_is_timed_in_every_mode() {
    for mode in [
        "sequential",
        "random number_operations:4096",
        "custom number_operations:4096 custom_operations:r_64",
    ] {
        let (run, ..) = ran(&format!(
            "memory_range:256K access_size:64 latency_sample_frequency:100 exec_mode:{mode}"
        ));
        assert_eq!(run.operations(), 4096, "{mode}");
        assert_eq!(run.latency_ns.len(), 40, "{mode}");
        let (all, ..) = ran(&format!(
            "memory_range:256K access_size:64 latency_sample_frequency:1 exec_mode:{mode}"
        ));
        assert_eq!(all.latency_ns.len(), 4096, "{mode}");
    }
}

#[test]
fn a_rate_is_kept_to() {
    let (run, ..) = ran(
        "exec_mode:random memory_range:64K access_size:64 number_operations:2000 rate_limit:10000 \
         number_threads:2",
    );
    assert!(run.ns >= 190_000_000, "{} ns for a fifth of a second's operations", run.ns);
}

#[test]
fn a_trace_is_done_again_at_its_places() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.csv");
    let line = |at: u64, op: &str, offset: u64, bytes: u64| {
        format!("{},h,0,{op},{offset},{bytes},9\n", 128_166_372_000_000_000 + at)
    };
    let text =
        [line(0, "Write", 4096, 256), line(1, "Read", 0, 64), line(2, "Write", 65536 + 64, 64)];
    std::fs::write(&path, text.concat()).unwrap();
    let (run, lines, _) = ran(&format!(
        "exec_mode:trace trace_file:{} memory_range:64K persist_instruction:none \
         min_io_chunk_size:4096",
        path.display()
    ));
    assert_eq!((run.operations(), run.bytes()), (3, 384));
    let written: Vec<usize> = (0..lines.len()).filter(|line| lines[*line]).collect();
    assert_eq!(written, [1, 64, 65, 66, 67]);
}

#[test]
fn whatever_makes_stores_durable_stores_the_same() {
    for persist in
        Persist::ALL.into_iter().filter(|persist| Kernel::new(Isa::widest(), &[*persist]).is_ok())
    {
        let (_, lines, _) = ran(&format!(
            "operation:write persist_instruction:{} memory_range:64K access_size:1024 \
             min_io_chunk_size:4096",
            persist.name()
        ));
        assert!(lines.iter().all(|line| *line), "{persist:?}");
    }
}
