//! Runs small enough to be reckoned by hand.

use perdura_media::model::Access;
use perdura_tier::{Capacity, Prefetch};

use super::*;

const RECORD_BYTES: u32 = 1024;

/// One request after the other, on so many devices of which the first is the primary.
fn run(devices: u16, update_share: f64, dram_records: Option<u64>) -> Run {
    let bytes = |records: u64| records * u64::from(RECORD_BYTES);
    let dram = dram_records.map(bytes).map(|bytes| DramCapacity { bytes, dirty_max_bytes: bytes });
    Run {
        shape: Shape {
            devices,
            primaries: 1,
            behind_max: 3,
            capacity: Capacity { cache_bytes: bytes(1_000), buffer_bytes: bytes(100) },
            prefetch: Prefetch::All,
        },
        is_parallel: true,
        records: 1_000,
        record_bytes: RECORD_BYTES,
        load: Load {
            update_share,
            pause_ps: 50_000_000,
            is_global: true,
            distribution: Distribution::PlainZipfian,
            warm_requests: 3_000,
            requests: 3_000,
        },
        dram,
        seed: 1,
    }
}

fn happened(run: &Run) -> (Happened, Systems) {
    let systems = Systems::find("aep").unwrap();
    (run.run(&systems, &Pace::Virtual), systems)
}

/// Time of a read or write on an idle module, picoseconds.
fn alone(system: &System, access: Access, len_bytes: u64) -> f64 {
    Model::unloaded(system, access, len_bytes).0 as f64
}

fn close(found: f64, expected: f64, part: f64) -> bool {
    (found / expected - 1.0).abs() < part
}

#[test]
fn a_read_takes_the_time_of_its_leaf_and_its_value_and_a_miss_that_of_asking_the_dram_first() {
    let (plain, systems) = happened(&run(1, 0.0, None));
    let of = |system, len_bytes| alone(system, Access::Read, len_bytes);
    let device_ps = of(&systems.modules, LEAF_BYTES) + of(&systems.modules, 1024);
    assert_eq!((plain.updates, plain.reads_of[0]), (0, plain.reads));
    assert!(close(plain.read_ps as f64 / plain.reads as f64, device_ps, 0.02), "{plain:?}");
    // Room for one: some are hits, and each other one asks in vain.
    let (missing, _) = happened(&run(1, 0.0, Some(1)));
    let hits = missing.dram_reads as f64;
    let leaf_ps = of(&systems.dram, LEAF_BYTES);
    let misses = missing.reads as f64 - hits;
    let expected_ps = hits * (leaf_ps + of(&systems.dram, 1024)) + misses * (leaf_ps + device_ps);
    assert!(close(missing.read_ps as f64, expected_ps, 0.02), "{expected_ps}");
    assert_eq!(missing.reads_of[0] + missing.dram_reads, missing.reads);
}

#[test]
fn an_update_takes_the_time_of_its_leaf_its_value_and_the_metadata() {
    let (updated, systems) = happened(&run(1, 1.0, None));
    let write_ps = |len_bytes| alone(&systems.modules, Access::Write, len_bytes);
    let expected_ps = alone(&systems.modules, Access::Read, LEAF_BYTES)
        + write_ps(1024)
        + write_ps(METADATA_BYTES);
    assert!(close(updated.update_ps as f64 / updated.updates as f64, expected_ps, 0.02));
}

#[test]
fn what_is_read_alone_comes_to_the_dram() {
    let (happened, _) = happened(&run(1, 0.0, Some(100)));
    // Zipf's law: a tenth of a thousand records has about two thirds of the requests.
    assert!((1_800..2_200).contains(&happened.dram_reads), "{}", happened.dram_reads);
    assert_eq!((happened.destaged, happened.meters.copied_ps()), (0, 0));
}

#[test]
fn syncs_and_bursts_are_metered_on_the_devices_that_take_part() {
    // Only syncs reach the second device.
    let (synced, systems) = happened(&run(2, 1.0, None));
    let write_ps = alone(&systems.modules, Access::Write, 1024) as u64;
    assert!(synced.meters.accessed_ps(1) > 100 * write_ps, "{synced:?}");
    // One device has no syncs: what is copied comes from the DRAM.
    let (burst, _) = happened(&run(1, 1.0, Some(100)));
    assert!((500..1_500).contains(&burst.destaged), "{}", burst.destaged);
    let copied_ps = burst.meters.copied_ps();
    // Each is written by itself, after four threads have looked for its place.
    assert!((write_ps..4 * write_ps).contains(&(copied_ps / burst.destaged)), "{copied_ps}");
    assert_eq!(burst.meters.accessed_ps(0) / copied_ps, 0, "nothing but bursts reaches it");
}
