//! Every workload gives its figures, limited and without the instructions that the processor lacks.

use super::*;

fn small() -> Measuring {
    Measuring {
        place: Place::Dram,
        rounds: 2,
        threads_max: 2,
        peak_threads_max: 4,
        range_max: 256 << 10,
        operations_max: Some(2000),
        cache_bytes: Some(1 << 20),
        lacks: lacks_here,
    }
}

#[test]
fn all_workloads_are_of_the_format_and_give_their_figures() {
    let told = std::cell::Cell::new(0);
    let figures = small().figures(&|_| told.set(told.get() + 1)).unwrap();
    assert_eq!(told.get(), small().steps().unwrap());
    assert_eq!(figures.peaks.len(), 4 * 3, "1, 2 and 4 threads");
    assert_eq!(figures.reads.len(), 4 * 4);
    assert!(figures.reads.iter().all(|read| read.per_s.len() == 2));
    for one in &figures.structures {
        assert!(one.cpu_ns > 0.0 && one.per_s.len() == 2 && one.threads <= 2, "{one:?}");
        assert!(one.gib_per_s.iter().all(|gib| *gib > 0.0) && one.cpu_share > 0.0, "{one:?}");
    }
    assert!(figures.updates.iter().all(|one| one.write_bytes >= 64 && !one.persist.is_empty()));
    if figures.lacking.is_empty() {
        assert_eq!((figures.writes.len(), figures.updates.len()), (2 * 5 * 4, 9));
        assert_eq!(figures.best_persists().len(), 10);
        let without = figures.without_flush(&[64, 128, 256]);
        assert!(without.iter().all(|one| one.write.is_some() && one.update.is_some()));
        assert!(figures.highest().all().iter().all(|one| one.is_some_and(|p| p.gib_per_s > 0.0)));
    }
    for order in [Order::Descending, Order::EveryFourth, Order::Random] {
        assert!(figures.order_versus(256, Order::Ascending, order).is_some(), "{order:?}");
    }
    assert_eq!(figures.random_written_bytes_min, 2000 * 64);
    for bounded in ["number_threads: no more than 2", "memory_range: 256 KiB for 2 GiB"] {
        assert!(figures.bounded.iter().any(|note| note == bounded), "{:?}", figures.bounded);
    }
}

#[test]
fn what_the_processor_lacks_is_left_out_and_named() {
    fn without_clwb(persist: Persist) -> Option<Lacking> {
        (persist == Persist::Cache).then_some(Lacking::Persist { persist, instruction: "clwb" })
    }
    fn without_any(persist: Persist) -> Option<Lacking> {
        (persist != Persist::None).then_some(Lacking::Portable(persist))
    }
    let figures = Measuring { lacks: without_clwb, rounds: 1, ..small() }.figures(&|_| ()).unwrap();
    assert!(figures.lacking[0].contains("clwb") && figures.lacking.len() == 1);
    assert!(figures.writes.iter().chain(&figures.updates).all(|one| one.persist != "cache"));
    assert_eq!(figures.writes.len(), 2 * 5 * 3);
    // Updates of structures flush, lookups do not.
    assert!(figures.structures.iter().any(|one| one.name == "hash lookup"));
    assert!(figures.structures.iter().all(|one| one.name != "hash update"));
    let figures = Measuring { lacks: without_any, rounds: 1, ..small() }.figures(&|_| ()).unwrap();
    assert_eq!(figures.lacking.len(), 3, "{:?}", figures.lacking);
    assert!(figures.best_persists().is_empty() && figures.highest().sequential_write.is_none());
}

#[test]
fn writes_outgrow_the_cache_as_far_as_that_is_affordable() {
    let operations = |cache_bytes, exec_mode| {
        let measuring = Measuring { cache_bytes, ..small() };
        let mut config = Config {
            exec_mode,
            access_size: 64,
            operation: Operation::Write,
            number_operations: 1000,
            ..Config::default()
        };
        measuring.outgrow_the_cache(&mut config);
        config.number_operations
    };
    assert_eq!(operations(None, ExecMode::Random), 1000);
    assert_eq!(operations(Some(16 << 20), ExecMode::Random), (64 << 20) / 64);
    assert_eq!(operations(Some(480 << 20), ExecMode::Random), 2_000_000);
    assert_eq!(operations(Some(480 << 20), ExecMode::Sequential), 1000);
}

#[test]
fn all_reads_are_over_the_same_range() {
    let large = Measuring { range_max: u64::MAX, ..small() };
    let ranges = large.planned(&READS, u64::MAX).unwrap().cells;
    let ranges: Vec<u64> = ranges.iter().map(|cell| cell.config.memory_range).collect();
    assert!(ranges.iter().all(|range| *range == ranges[0]), "{ranges:?}");
}

#[test]
fn what_is_left_without_memory_flushes_nothing() {
    let chain = "r_64,w_64_cache_128,wp_256_nocache,rd_64,wd_64_cacheinv_-64";
    let mut config =
        Config { custom_operations: Some(chain.parse().unwrap()), ..Config::default() };
    unflushed(&mut config);
    let left = config.custom_operations.unwrap().to_string();
    assert_eq!(left, "rp_64,wp_64_none_128,wp_256_none,rd_64,wd_64_none_-64");
}

#[test]
fn a_folder_is_measured_as_well_as_memory_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let place = Place::Folder { path: dir.path().to_owned(), dax_only: false };
    let figures = Measuring { place, rounds: 1, ..small() }.figures(&|_| ()).unwrap();
    let name = dir.path().to_str().unwrap();
    assert!(figures.place.starts_with(name) && figures.place.contains("file"), "{}", figures.place);
    assert!(!figures.structures.is_empty());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
}
