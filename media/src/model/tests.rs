//! The rule compared with a naive one that keeps a calendar, with published systems, and with
//! itself.

use proptest::prelude::*;

use super::*;

const NS: u64 = 1_000;
const US: u64 = 1_000_000;

fn system(name: &str) -> System {
    System::find(name).unwrap()
}

fn close(found: f64, expected: f64, share: f64) -> bool {
    (found / expected - 1.0).abs() <= share
}

/// An idle medium takes its latency for one access of its granule.
#[test]
fn a_lone_access_takes_its_latency() {
    for (name, read_ns, write_ns) in
        [("pcm", 65.0, 215.0), ("sttm", 29.5, 95.0), ("nand", 25e3, 200e3)]
    {
        let system = system(name);
        let granule = system.medium.granule.0;
        assert_eq!(Model::unloaded(&system, Access::Read, granule).ns(), read_ns, "{name}");
        assert_eq!(Model::unloaded(&system, Access::Write, granule).ns(), write_ns, "{name}");
    }
}

#[test]
fn the_card_takes_the_slides_hardware_time() {
    // HASTE slides, "Software is Critical": 8.2 us for 4 KiB.
    let card = system("pcie-pcm");
    let read = Model::unloaded(&card, Access::Read, 4096).ns();
    let write = Model::unloaded(&card, Access::Write, 4096).ns();
    assert!(close((read + write) / 2.0, 8_200.0, 0.01), "{read} and {write} ns");
}

#[test]
fn a_memory_bus_pays_for_each_line() {
    // HASTE slides, "DDR Performance Trend": 128 row access latencies in 8 KB.
    let ddr = system("ddr-pcm");
    let line = Model::unloaded(&ddr, Access::Read, 64).ns();
    let rows = Model::unloaded(&ddr, Access::Read, 8192).ns();
    assert!(close(rows, 128.0 * line, 0.01), "{rows} ns, a line {line} ns");
    assert!((65.0..68.0).contains(&line), "{line}");
    // Eight requesters use about a tenth of the bus, whatever the size of their requests ("DDR
    // Efficiency": 11 %).
    for len in [4_096u64, 65_536] {
        let each = len as f64 / Model::unloaded(&ddr, Access::Read, len).ns();
        let share = 8.0 * each / 63.9;
        assert!((0.09..0.13).contains(&share), "{share} of the bus at {len} B");
    }
}

#[test]
fn bandwidth_is_that_of_the_narrowest_part() {
    let card = Model::saturated(&system("pcie-pcm"), Access::Read, 1 << 16, false);
    assert!(close(card as f64, 2e9, 0.02), "{card}");
    let small = Model::saturated(&system("pcie-pcm"), Access::Read, 512, false);
    assert!(close(small as f64, 512.0 / 900e-9, 0.02), "commands limit: {small}");
    let disks = Model::saturated(&system("disk-raid0"), Access::Read, 1 << 20, true);
    assert!(close(disks as f64, 4.0 * 138e6, 0.05), "{disks}");
    let flash = Model::saturated(&system("nand"), Access::Write, 4096, false);
    assert!(close(flash as f64, 4096.0 / 200e-6, 0.02), "{flash}");
}

/// The model is fitted to one module, at the size of its granule and in sequence. Six modules and
/// single lines are predicted. Published: Izraelevitz et al. 2019, 39.4 and 13.9 GB/s; random lines
/// reach a quarter of lines in sequence.
#[test]
fn six_modules_and_single_lines_are_predicted_from_one_module() {
    let one = System { link: None, ..system("optane-100") };
    assert!(close(Model::saturated(&one, Access::Read, 4096, true) as f64, 6.6e9, 0.02));
    let six = System { modules: 6, ..system("optane-100").with_link("ddr4x6").unwrap() };
    let read = Model::saturated(&six, Access::Read, 4096, true) as f64;
    let write = Model::saturated(&six, Access::Write, 4096, true) as f64;
    assert!(close(read, 39.4e9, 0.03) && close(write, 13.9e9, 0.03), "{read}, {write}");
    let random = Model::saturated(&one, Access::Write, 64, false) as f64;
    let sequential = Model::saturated(&one, Access::Write, 64, true) as f64;
    assert!(close(sequential / random, 4.0, 0.05), "{sequential} / {random}");
}

/// All servers, through threads and workload files: `lab/src/access/reference/tests.rs`.
#[test]
fn a_server_of_the_poster_has_its_sequential_bandwidths() {
    const GIB: f64 = (1u64 << 30) as f64;
    let six = system("apache-512");
    for (access, expected) in [(Access::Read, 29.5), (Access::Write, 10.9)] {
        let found = Model::saturated(&six, access, 4096, true) as f64 / GIB;
        assert!(close(found, expected, 0.03), "{access:?}: {found}, published {expected}");
    }
}

/// The published peaks of random reads are those of 256 B, a granule.
#[test]
fn published_servers_have_their_random_reads() {
    for (name, peak_gib) in
        [("apache-128", 31.9), ("apache-256", 35.6), ("apache-512", 28.0), ("barlow-256", 46.2)]
    {
        let found = Model::saturated(&system(name), Access::Read, 256, false) as f64;
        let published = peak_gib * f64::from(1 << 30);
        assert!(close(found, published, 0.01), "{name}: {found}, published {published}");
    }
}

/// The published latencies are means of dependent reads of a line.
#[test]
fn published_servers_have_the_latency_of_a_dependent_read() {
    for (name, read_ns) in [("apache-256", 429.0), ("barlow-256", 438.0), ("b-dram", 121.0)] {
        let found = Model::unloaded(&system(name), Access::Read, 64).ns();
        assert!(close(found, read_ns, 0.01), "{name}: {found} ns, published {read_ns} ns");
    }
}

/// Requests a second of accesses of 4 KiB by `threads`, each with the next when its last one is
/// done.
fn closed_loop(model: &Model, access: Access, threads: u64, pause_ps: u64) -> f64 {
    let requests = 20_000;
    let mut ready: Vec<u64> = vec![0; threads as usize];
    for number in 0..requests {
        let next = (0..ready.len()).min_by_key(|thread| ready[*thread]).unwrap();
        let place = (number * 7_919) % 100_000;
        ready[next] = model.book(ready[next], access, place * 4096, 4096) + pause_ps;
    }
    requests as f64 / (*ready.iter().max().unwrap() as f64 / 1e12)
}

#[test]
fn the_module_of_sprint_aep_writes_and_draws_what_was_measured() {
    let aep = system("aep");
    let rate = |access, threads| closed_loop(&Model::new(&aep, 1 << 32), access, threads, 0);
    assert!(close(rate(Access::Write, 1), 254_131.0, 0.01), "{}", rate(Access::Write, 1));
    let four = rate(Access::Write, 4);
    assert!(rate(Access::Write, 8) < 0.95 * four, "writes drop at eight threads");
    assert!(rate(Access::Read, 4) > 1.35 * rate(Access::Read, 1), "reads scale");

    for (pause_ps, watts) in
        [(0, 3.64), (100 * US, 3.3), (800 * US, 3.3), (1_600 * US, 1.96), (5_000 * US, 1.91)]
    {
        let model = Model::new(&aep, 1 << 32);
        let rate = closed_loop(&model, Access::Write, 1, pause_ps);
        let seconds = 20_000.0 / rate;
        let drawn = model.energy(0).execution.0 / seconds;
        assert!(
            close(drawn, watts, 0.01),
            "{drawn} W at an interval of {pause_ps} ps, measured {watts} W"
        );
    }
}

#[test]
fn energy_to_a_later_instant_adds_what_an_idle_module_draws() {
    let aep = system("aep");
    let model = Model::new(&aep, 1 << 32);
    let done_ps = model.book(0, Access::Write, 0, 4096);
    let used = model.energy(done_ps + 1_000_000_000_000);
    assert!(close(used.equal_time.0 - used.execution.0, 1.91, 0.001), "{used:?}");
    let idle = Model::new(&system("disk-raid0"), 1 << 40).energy(1_000_000_000_000);
    assert!(close(idle.equal_time.0, 4.0 * 8.0, 0.001), "{idle:?}");
}

/// Sprint-AEP, figure 3: 69.7 thousand requests for a joule at no interval. No other number was
/// fitted to it.
#[test]
fn compact_requests_for_a_joule_are_predicted() {
    let aep = system("aep");
    let model = Model::new(&aep, 1 << 32);
    closed_loop(&model, Access::Write, 1, 0);
    let per_joule = 20_000.0 / model.energy(0).execution.0;
    assert!(close(per_joule, 69_700.0, 0.01), "{per_joule}");
}

#[test]
fn requests_that_overlap_on_a_unit_are_one_time_of_work() {
    let one = System { modules: 1, ..system("pcm") };
    let second_ps = 1_000_000_000_000;
    let model = Model::new(&one, 1 << 30);
    let done_ps = [0, 64, 128, 192].map(|at| model.book(0, Access::Read, at, 64))[3];
    // Four accesses that stream behind each other take less than four times 65 ns.
    assert!(done_ps < 2 * 65 * NS, "{done_ps}");
    let above_idle = model.energy(second_ps).equal_time.0 - one.power.idle.0;
    let expected = (one.power.active.0 - one.power.idle.0) * done_ps as f64 / 1e12;
    assert!(close(above_idle, expected, 0.01), "{above_idle} J, expected {expected} J");
}

#[test]
fn request_behind_request_draws_the_peak_and_now_and_then_the_active_power() {
    let one = System { link: None, ..system("optane-100") };
    for (pause_ps, expected) in [(0, one.power.peak.0), (1_000 * US, one.power.idle.0)] {
        let model = Model::new(&one, 1 << 32);
        let rate = closed_loop(&model, Access::Read, 4, pause_ps);
        let drawn = model.energy(0).execution.0 * rate / 20_000.0;
        assert!(close(drawn, expected, 0.02), "{drawn} W at {pause_ps} ps, not {expected} W");
    }
}

#[test]
fn a_memory_bus_is_no_faster_than_the_memory_behind_it() {
    // With more lines in flight than one module can stream, 1 MiB must not be there before the
    // module has read it.
    for access in [Access::Read, Access::Write] {
        let one = System { modules: 1, ..system("battery-dram") };
        let took_s = Model::unloaded(&one, access, 1 << 20).ns() / 1e9;
        let rate = match access {
            Access::Read => one.medium.read_bandwidth.0,
            Access::Write => one.medium.write_bandwidth.0,
        };
        assert!((1 << 20) as f64 / took_s <= 1.01 * rate as f64, "{access:?}: {took_s} s");
    }
}

#[test]
fn each_line_pays_for_its_way_over_the_link() {
    let near = system("cxl-dram");
    let far = {
        let mut far = near.clone();
        far.link.as_mut().unwrap().latency = crate::units::Picoseconds(140_000);
        far
    };
    let took = |of: &System, len| Model::unloaded(of, Access::Read, len).0;
    // Each way is a hundred nanoseconds longer: once for a line, and six times for 64 lines, twelve
    // at a time.
    assert_eq!(took(&far, 64) - took(&near, 64), 200 * NS);
    assert_eq!(took(&far, 4096) - took(&near, 4096), 6 * 200 * NS);
}

#[test]
fn a_write_is_done_when_it_is_in_the_buffer_until_that_is_full() {
    let one = System { link: None, ..system("optane-100") };
    let model = Model::new(&one, 1 << 30);
    let first_ps = model.book(0, Access::Write, 0, 256);
    let mut last_ps = first_ps;
    for number in 1..1_000 {
        last_ps = model.book(0, Access::Write, number * 1_000 * 256, 256);
    }
    let drained_ps = model.flush(0);
    assert!(first_ps <= 100 * NS, "{first_ps}");
    assert!(last_ps < drained_ps && drained_ps > 900 * 111 * NS, "{last_ps} {drained_ps}");
    let buffer_ps = 16_384.0 / 2.3e9 * 1e12;
    assert!(close((drained_ps - last_ps) as f64, buffer_ps, 0.05), "{}", drained_ps - last_ps);
}

#[test]
fn a_disk_moves_farther_for_longer_and_not_at_all_in_sequence() {
    let disk = system("disk");
    let model = Model::new(&disk, 1 << 40);
    let far_ps = model.book(0, Access::Read, 1 << 39, 4096);
    assert!((5_000 * US..10_000 * US).contains(&far_ps), "{far_ps}");
    let next_ps = model.book(far_ps, Access::Read, (1 << 39) + 4096, 4096);
    assert!(next_ps - far_ps < 31 * US, "{}", next_ps - far_ps);
    let near_ps = model.book(next_ps, Access::Read, (1 << 39) + (1 << 20), 4096) - next_ps;
    assert!(near_ps < far_ps && near_ps > 5_000 * US, "{near_ps}");
}

/// The same rule without arithmetic: granule by granule, with each unit's calendar as a list.
struct Naive {
    units: Vec<(u64, u64)>,
}

impl Naive {
    fn book(
        &mut self,
        medium: &crate::profile::Medium,
        now_ps: u64,
        access: Access,
        offset: u64,
        len: u64,
    ) -> u64 {
        let (latency, rate) = match access {
            Access::Read => (medium.read_latency.0, medium.read_bandwidth.0),
            Access::Write => (medium.write_latency.0, medium.write_bandwidth.0),
        };
        let cycle = (medium.granule.0 as f64 * 1e12 / rate as f64) as u64;
        let stripe = medium.interleave.0;
        let count = self.units.len() as u64;
        // Finds, byte by byte, the granules of each unit, and where the run begins and ends there.
        let mut runs: Vec<Option<(u64, u64, std::collections::BTreeSet<u64>)>> =
            vec![None; self.units.len()];
        for byte in offset..offset + len {
            let chunk = byte / stripe;
            let at = chunk / count * stripe + byte % stripe;
            let run = runs[(chunk % count) as usize].get_or_insert((at, at, Default::default()));
            run.1 = at;
            run.2.insert(at / medium.granule.0);
        }
        let mut done = now_ps;
        for (unit, run) in self.units.iter_mut().zip(runs) {
            let Some((from, to, granules)) = run else { continue };
            let shared = unit.1 == from && from % medium.granule.0 != 0;
            let granules = granules.len() as u64 - u64::from(shared);
            let start = unit.0.max(now_ps);
            if granules > 0 {
                unit.0 = start + granules * cycle;
            }
            let start = if granules > 0 { start } else { now_ps };
            unit.1 = to + 1;
            done = done.max(start + latency + (granules * cycle).saturating_sub(cycle));
        }
        done
    }
}

proptest! {
    #[test]
    fn booking_agrees_with_a_calendar_kept_byte_by_byte(
        units in 1u32..5,
        granule in prop::sample::select(vec![64u64, 100, 256]),
        stripes in 1u64..4,
        requests in prop::collection::vec(
            (any::<bool>(), 0u64..3_000, 1u64..2_000, 0u64..2_000_000),
            1..60,
        ),
    ) {
        let mut system = system("pcm");
        system.modules = units;
        system.medium.granule = crate::units::Bytes(granule);
        system.medium.interleave = crate::units::Bytes(granule * stripes);
        let model = Model::new(&system, 1 << 20);
        let mut naive = Naive { units: vec![(0, 0); units as usize] };
        let mut now_ps = 0;
        for (is_write, offset, len, think_ps) in requests {
            let access = if is_write { Access::Write } else { Access::Read };
            now_ps += think_ps;
            prop_assert_eq!(
                model.book(now_ps, access, offset, len),
                naive.book(&system.medium, now_ps, access, offset, len)
            );
        }
    }

    #[test]
    fn no_request_ends_before_it_begins_or_upsets_the_arithmetic(
        name in prop::sample::select(crate::profile::names()),
        requests in prop::collection::vec(
            (any::<bool>(), any::<u64>(), any::<u64>(), any::<u64>()),
            1..40,
        ),
    ) {
        let system = System::find(name).unwrap();
        let model = Model::new(&system, 1 << 30);
        for (is_write, now_ps, offset, len) in requests {
            let (now_ps, offset, len) = (now_ps / 4, offset % (1 << 30), len % (1 << 22));
            let access = if is_write { Access::Write } else { Access::Read };
            prop_assert!(model.book(now_ps, access, offset, len) >= now_ps);
        }
    }
}
