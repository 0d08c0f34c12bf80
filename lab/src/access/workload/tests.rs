//! Published files, files with every feature, and each rule broken in turn.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

use super::super::stock::STOCK;
use super::*;

fn parsed(text: &str) -> Vec<Benchmark> {
    parse("w.yaml", text).unwrap()
}

fn refused(text: &str) -> String {
    parse("w.yaml", text).unwrap_err().to_string()
}

/// A benchmark with these arguments.
fn with(args: &str) -> String {
    let args: String = args.lines().map(|line| format!("    {}\n", line.trim())).collect();
    format!("b:\n  args:\n{args}")
}

#[test]
fn a_matrix_is_a_cross_product() {
    let benchmarks = parsed(
        "reads:\n  matrix:\n    number_threads: [ 1, 2, 4 ]\n    access_size: [ 256, 4K ]\n  \
         args:\n    memory_range: 512M\n",
    );
    let [part] = &benchmarks[0].parts[..] else { panic!("{benchmarks:?}") };
    assert_eq!(part.matrix, ["number_threads", "access_size"]);
    let cells: Vec<_> = part
        .cells
        .iter()
        .map(|cell| (cell.config.number_threads, cell.config.access_size))
        .collect();
    assert_eq!(cells, [(1, 256), (1, 4096), (2, 256), (2, 4096), (4, 256), (4, 4096)]);
    assert_eq!(part.cells[1].varied, ["1", "4K"]);
    assert!(part.cells.iter().all(|cell| cell.config.memory_range == 512 << 20));
    assert_eq!(benchmarks[0].runs().count(), 6);
}

#[test]
fn what_is_not_given_has_its_default() {
    let config = parsed("b:\n  args: {}\n").remove(0).parts.remove(0).cells.remove(0).config;
    assert_eq!(config, Config::default());
    assert_eq!((config.memory_range, config.access_size), (10 << 30, 256));
    assert_eq!((config.min_io_chunk_size, config.number_operations), (64 << 20, 100_000_000));
    assert_eq!(config.persist_instruction, Persist::NoCache);
}

#[test]
fn benchmarks_that_run_together_meet_in_every_pair_of_cells() {
    let benchmarks = parsed(
        "p:\n  parallel_benchmark:\n    log:\n      matrix:\n        access_size: [64, 256]\n      \
         args:\n        operation: write\n    \
         reads:\n      matrix:\n        number_threads: [8, 16]\n      args:\n        exec_mode: \
         random\n    third:\n      args: {}\n",
    );
    let runs: Vec<Vec<String>> = benchmarks[0]
        .runs()
        .map(|cells| cells.iter().flat_map(|cell| cell.varied.clone()).collect())
        .collect();
    assert_eq!(runs, [["64", "8"], ["64", "16"], ["256", "8"], ["256", "16"]]);
    assert_eq!(benchmarks[0].parts.len(), 3);
    assert!(benchmarks[0].is_parallel);
}

#[test]
fn every_key_is_understood() {
    let text = with(
        "memory_range: 1g\ndram_memory_range: 512m\ndram_operation_ratio: 0.5\naccess_size: \
         1k\nmin_io_chunk_size: 16384\n\
         number_operations: 1000000\nrun_time: 7\nnumber_threads: 4\nnumber_partitions: \
         0\noperation: write\nexec_mode: random\n\
         persist_instruction: cacheinv\nnuma_pattern: far\nrandom_distribution: \
         zipfian\nzipf_alpha: 1.2\nlatency_sample_frequency: 100\n\
         prefault_file: false\ndram_huge_pages: no\nmixed_operation_ratio: 0.25\nrate_limit: \
         1000\nwarm_up_time: 2\nrepetitions: 5\nseed: 42",
    );
    let config = parsed(&text).remove(0).parts.remove(0).cells.remove(0).config;
    let expected = Config {
        memory_range: 1 << 30,
        dram_memory_range: 512 << 20,
        dram_operation_ratio: 0.5,
        access_size: 1024,
        min_io_chunk_size: 16384,
        number_operations: 1_000_000,
        run_time: 7,
        number_threads: 4,
        number_partitions: 0,
        operation: Operation::Write,
        exec_mode: ExecMode::Random,
        persist_instruction: Persist::CacheInv,
        numa_pattern: NumaPattern::Far,
        random_distribution: RandomDistribution::Zipf,
        zipf_alpha: 1.2,
        custom_operations: None,
        trace_file: None,
        latency_sample_frequency: 100,
        prefault_file: false,
        dram_huge_pages: false,
        mixed_operation_ratio: 0.25,
        rate_limit: 1000,
        warm_up_time: 2,
        repetitions: 5,
        seed: 42,
    };
    assert_eq!(config, expected);
    assert_eq!(config.partitions(), 4);
}

#[test]
fn each_broken_rule_names_file_line_key_value_and_rule() {
    let cases: [(&str, &str); 26] = [
        ("access_size: 32", "line 3: access_size: 32: a power of two, 64 or more"),
        ("access_size: 100", "line 3: access_size: 100: a power of two, 64 or more"),
        ("memory_range: 1000", "line 3: memory_range: 1000: a multiple of access_size, 256 B"),
        ("memory_range: 1T", "line 3: memory_range: 1T: bytes, as 4096"),
        ("memory_range: 99999999999G", "below 2^63"),
        ("memory_range: -1", "line 3: memory_range: -1: bytes"),
        ("min_io_chunk_size: 100", "min_io_chunk_size: 100: a power of two"),
        ("number_threads: 0", "number_threads: 0: 1 to 1024"),
        ("number_threads: 1.5", "number_threads: 1.5: a whole number"),
        (
            "number_threads: 4\nnumber_partitions: 3",
            "line 4: number_partitions: 3: divides number_threads, 4",
        ),
        (
            "number_threads: 3\nnumber_partitions: 0\nmemory_range: 1M",
            "line 5: memory_range: 1M: 3 equal parts",
        ),
        ("dram_operation_ratio: 1.5", "dram_operation_ratio: 1.5: 0 to 1"),
        ("dram_operation_ratio: .nan", "dram_operation_ratio: .nan: a number"),
        (
            "dram_operation_ratio: 0.5\ndram_memory_range: 1G",
            "line 3: dram_operation_ratio: 0.5: more than 0 with exec_mode random only",
        ),
        (
            "dram_operation_ratio: 0.5\nexec_mode: random",
            "line 1: dram_memory_range: 0 (not given; the default): more than 0",
        ),
        ("number_operations: 5", "number_operations: 5: with exec_mode random or custom only"),
        ("exec_mode: custom", "line 1: custom_operations: not given: given with exec_mode custom"),
        ("custom_operations: r_64", "custom_operations: r_64: with exec_mode custom only"),
        (
            "exec_mode: custom\ncustom_operations: w_64_none",
            "line 4: custom_operations: w_64_none: the first access is a read",
        ),
        (
            "exec_mode: custom\ncustom_operations: rd_64",
            "dram_memory_range: 0 (not given; the default): more than 0",
        ),
        (
            "exec_mode: sideways",
            "exec_mode: sideways: one of sequential, sequential_desc, random, custom",
        ),
        ("exec_mode: trace", "line 1: trace_file: not given: given with exec_mode trace"),
        ("trace_file: t.csv", "trace_file: t.csv: with exec_mode trace only"),
        ("prefault_file: maybe", "prefault_file: maybe: true or false"),
        ("exec_mode: random\nzipf_alpha: 0", "zipf_alpha: 0: more than 0"),
        ("repetitions: 0", "repetitions: 0: 1 to 1000"),
    ];
    for (args, expected) in cases {
        let said = refused(&with(args));
        assert!(said.starts_with("w.yaml, line ") && said.contains(expected), "{args}: {said}");
    }
}

#[test]
fn keys_are_known_and_stand_once() {
    assert!(
        refused(&with("acess_size: 64"))
            .contains("line 3: acess_size: no such key; did you mean access_size?")
    );
    assert!(refused(&with("zzz: 64")).ends_with("zzz: no such key"));
    assert!(
        refused(&with("access_size: 64\naccess_size: 64"))
            .contains("line 4: access_size: given on line 3 already")
    );
    let both = "b:\n  matrix:\n    access_size: [64]\n  args:\n    access_size: 64\n";
    assert!(refused(both).contains("line 5: access_size: given on line 3 already"));
    assert!(refused("b:\n  args: {}\nb:\n  args: {}\n").contains("line 3: b: given on line 1"));
    assert!(
        refused("b:\n  matrix:\n    access_size: [64]\n").contains("line 1: b: args is missing")
    );
    assert!(refused("b:\n  args: {}\n  more: 1\n").contains("line 3: more: no such key"));
}

#[test]
fn what_is_no_workload_says_what_was_expected() {
    for (text, expected) in [
        ("", "at least one benchmark"),
        ("# nothing\n", "at least one benchmark"),
        ("- a\n", "the file: expected benchmarks by their names"),
        ("b: 1\n", "b: expected matrix and args"),
        ("b:\n  args: [1]\n", "args: expected keys, each with a value"),
        ("b:\n  args:\n    access_size: [64]\n", "access_size: expected one value"),
        (
            "b:\n  matrix:\n    access_size: 64\n  args: {}\n",
            "access_size: expected a list of values",
        ),
        (
            "b:\n  matrix:\n    access_size: []\n  args: {}\n",
            "access_size: expected at least one value",
        ),
        ("b:\n  parallel_benchmark: {}\n", "expected at least one benchmark"),
        (
            "b:\n  parallel_benchmark:\n    c:\n      args: {}\n  args: {}\n",
            "line 5: args: no such key",
        ),
        ("b: [\n", "no YAML"),
    ] {
        let said = refused(text);
        assert!(said.contains(expected), "{text:?}: {said}");
    }
}

#[test]
fn a_matrix_is_bounded() {
    let axis = |key: &str| format!("    {key}: [{}]\n", "64,".repeat(101).trim_end_matches(','));
    let text = format!("b:\n  matrix:\n{}{}  args: {{}}\n", axis("access_size"), axis("seed"));
    assert!(refused(&text).contains("more than 10000 cells"));
}

#[test]
fn the_cells_of_all_benchmarks_of_a_file_are_bounded() {
    let axis = format!("    seed: [{}]\n", "64,".repeat(4000).trim_end_matches(','));
    let one = |name: &str| format!("{name}:\n  matrix:\n{axis}  args: {{}}\n");
    assert_eq!(parsed(&format!("{}{}", one("a"), one("b"))).len(), 2);
    let said = refused(&format!("{}{}{}", one("a"), one("b"), one("c")));
    assert!(said.starts_with("w.yaml, line 9: c: more than 10000 cells"), "{said}");
    let parts: String =
        (0..3).map(|n| one(&format!("    p{n}")).replace("\n  ", "\n      ")).collect();
    let said = refused(&format!("b:\n  parallel_benchmark:\n{parts}"));
    assert!(said.contains("more than 10000 cells"), "{said}");
}

#[test]
fn the_stock_suite_is_sound() {
    let mut names = Vec::new();
    for stock in STOCK {
        let benchmarks = stock.load().unwrap();
        assert_eq!(parse_soundly(stock.text).unwrap(), benchmarks, "{}", stock.name);
        assert!(stock.text.starts_with("# "), "{}: says what it is for", stock.name);
        names.extend(benchmarks.into_iter().map(|benchmark| benchmark.name));
    }
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count, "each has a name of its own: {names:?}");
}

/// A text with a few bytes or pieces changed.
fn changed(text: &str, random: &mut Random) -> String {
    const LETTERS: &[u8] = b"\n :-[]{},#&*!|>'\"%@`~?0169kG_ \t\xc3\xa9\0arw";
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..random.random_range(1..=2) {
        let at = random.random_range(0..bytes.len());
        let end = (at + random.random_range(0..40)).min(bytes.len());
        match random.random_range(0..6) {
            0 => bytes[at] = LETTERS[random.random_range(0..LETTERS.len())],
            1 => bytes.insert(at, LETTERS[random.random_range(0..LETTERS.len())]),
            2 => drop(bytes.drain(at..end)),
            3 => {
                let piece = bytes[at..end].to_vec();
                let to = random.random_range(0..bytes.len());
                bytes.splice(to..to, piece);
            }
            4 => bytes.truncate(at),
            _ => bytes[at..end].reverse(),
        }
        if bytes.is_empty() {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn a_file_that_was_changed_anywhere_is_taken_or_refused_but_breaks_no_promise() {
    const CHANGES: u64 = 3000;
    let (mut taken, mut refused) = (0, 0);
    for seed in 0..CHANGES {
        let mut random = Random::seed_from_u64(seed);
        let text = STOCK[seed as usize % STOCK.len()].text;
        // Comments are most of a file, and nothing can be wrong with them.
        let bare: String = text
            .lines()
            .filter(|line| !line.trim_start().starts_with('#'))
            .flat_map(|line| [line, "\n"])
            .collect();
        match parse_soundly(&changed(&bare, &mut random)) {
            Ok(_) => taken += 1,
            Err(_) => refused += 1,
        }
    }
    assert!(taken > 50 && refused > 1000, "{taken} taken, {refused} refused");
}
