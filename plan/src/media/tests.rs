//! Plans against sums done by hand, and the slides' conclusions at the prices of their time.

use perdura_media::System;
use proptest::prelude::*;

use super::*;

fn question(year: u16) -> Question {
    let system = |name: &str| System::find(name).unwrap();
    let media = ["pcie-pcm", "pcie-sttm", "ddr-pcm", "pcie-flash", "flash-raid0", "disk-raid0"];
    Question {
        workload: Workload::default(),
        media: media.into_iter().map(system).collect(),
        disks: system("disk-raid0"),
        year,
    }
}

#[test]
fn the_slides_conclusions_hold_at_the_prices_of_their_time() {
    for conclusion in question(2010).answer().conclusions {
        assert_eq!(conclusion.holds, Some(true), "{conclusion:?}");
    }
}

#[test]
fn a_conclusion_says_first_by_how_much_flash_is_cheaper_or_that_it_is_a_tie() {
    let question = question(2010);
    for conclusion in question.answer().conclusions {
        let said = &conclusion.verdict;
        let named = said.contains("tie") || said.contains("cheaper") || said.contains("dearer");
        assert!(said.starts_with("holds") && named, "{conclusion:?}");
    }
    // With flash at a price at which the cache costs as much as with fast memory, it is a tie.
    let mut question = question;
    question.media.retain(|system| !system.name.contains("flash"));
    let mut twin = System::find("pcie-pcm").unwrap();
    twin.name = "slow-twin".into();
    twin.medium.read_latency = perdura_media::Picoseconds(2_000_000);
    question.media.push(twin);
    let cache = &question.answer().conclusions[1];
    assert!(cache.verdict.contains("it is a tie with flash: slow-twin in its place"), "{cache:?}");
}

#[test]
fn price_and_power_of_disks_are_those_of_as_many_as_are_needed() {
    let plan = question(2010).answer();
    let disks = plan
        .candidates
        .iter()
        .find(|one| one.medium == "disk-raid0" && one.role == Role::Primary)
        .unwrap();
    // Four arms that take 5 to 10 ms each; arrays of 4 TB at 0.08 EUR/GB.
    let device_rate = disks.rate_per_s / disks.devices;
    assert!((400.0..800.0).contains(&device_rate), "{device_rate}");
    assert_eq!(disks.devices, (20_000.0 / device_rate).ceil());
    assert!((disks.eur.unwrap() - disks.devices * 320.0).abs() < 1.0, "{disks:?}");
    assert!((disks.devices * 32.0..=disks.devices * 44.0).contains(&disks.watts), "{disks:?}");
}

#[test]
fn what_is_cheapest_changes_with_the_capacity_and_with_the_rate() {
    let plan = question(2010).answer();
    let last = |flips: &[Flip]| flips.last().unwrap().medium.clone();
    assert!(plan.flips_by_capacity.len() > 1 && plan.flips_by_rate.len() > 1, "{plan:?}");
    // Far more data than requests: disks, alone or behind a cache. Few requests: disks.
    let largest = plan.flips_by_capacity.last().unwrap();
    assert!(
        largest.role != Some(Role::Primary)
            || last(&plan.flips_by_capacity).unwrap() == "disk-raid0",
        "{largest:?}"
    );
    assert_eq!(plan.flips_by_rate[0].medium.as_deref(), Some("disk-raid0"));
    assert_eq!(
        last(&plan.flips_by_rate),
        None,
        "software is the limit: 1.6 million requests/s on eight cores"
    );
}

#[test]
fn a_conclusion_on_media_that_are_not_compared_is_left_open() {
    let mut question = question(2010);
    question.media.retain(|system| !system.name.contains("flash"));
    let conclusions = question.answer().conclusions;
    assert_eq!(conclusions[0].holds, None, "{:?}", conclusions[0]);
    assert_eq!(conclusions[1].holds, Some(true), "{:?}", conclusions[1]);
}

#[test]
fn what_a_medium_is_called_does_not_say_what_it_is() {
    let mut question = question(2010);
    for (at, system) in question.media.iter_mut().enumerate() {
        system.name = format!("/disks/of/flash/{at}.toml");
    }
    question.disks.name = "array".into();
    for conclusion in question.answer().conclusions {
        assert_eq!(conclusion.holds, Some(true), "{conclusion:?}");
    }
}

#[test]
fn of_media_that_are_too_slow_the_fastest_comes_first() {
    let mut question = question(2010);
    question.workload.rate_per_s = 1e9;
    let rates: Vec<f64> = question.answer().candidates.iter().map(|one| one.rate_per_s).collect();
    assert!(rates.is_sorted_by(|left, right| left >= right), "{rates:?}");
}

#[test]
fn the_map_agrees_with_plans_made_for_its_cells() {
    let question = question(2010);
    let map = question.answer().map;
    let fleet = Fleet::of(&question);
    for (row, column) in [(0, 0), (8, 20), (20, 10), (24, 36)] {
        let load = Workload {
            capacity_bytes: map.capacities_bytes[column],
            rate_per_s: map.rates_per_s[row],
            ..question.workload.clone()
        };
        let mut all = fleet.candidates(&load);
        all.retain(|one| one.meets && one.eur.is_some());
        let naive =
            all.iter().min_by(|left, right| left.eur.unwrap().total_cmp(&right.eur.unwrap()));
        let found = map.cells[row][column].map(|cell| &map.choices[cell]);
        assert_eq!(found.map(|(medium, _)| medium), naive.map(|one| &one.medium));
    }
}

#[test]
fn loads_that_cannot_be_are_named() {
    let bad = Workload { read_share: 1.5, ..Workload::default() };
    assert_eq!(
        bad.validate().unwrap_err().to_string(),
        "read share of 1.5: expected a share from 0 to 1"
    );
    let bad = Workload { rate_per_s: f64::NAN, ..Workload::default() };
    assert!(bad.validate().unwrap_err().to_string().starts_with("rate (1/s) of NaN"));
    assert_eq!(Workload::default().validate(), Ok(()));
}

#[test]
fn a_tenth_with_nine_tenths_is_so_at_every_scale() {
    let locality = Locality::of_shares(0.1, 0.9);
    assert!((locality.hit_share(0.1) - 0.9).abs() < 1e-9);
    assert!((locality.hit_share(0.01) - 0.81).abs() < 1e-9);
    assert_eq!((locality.hit_share(0.0), locality.hit_share(1.0)), (0.0, 1.0));
    assert!((Locality::none().hit_share(0.3) - 0.3).abs() < 1e-12);
}

proptest! {
    #[test]
    fn a_measured_locality_hits_what_the_hottest_pages_were_asked_for(
        counts in prop::collection::vec(0u64..1_000, 1..200),
        pages in 0u64..400,
        held in 1usize..200,
    ) {
        let all: u64 = counts.iter().sum();
        prop_assume!(all > 0);
        let pages = pages.max(counts.len() as u64);
        let held = held.min(counts.len());
        let mut sorted = counts.clone();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        let naive = sorted[..held].iter().sum::<u64>() as f64 / all as f64;
        let found = Locality::of_counts(counts, pages).hit_share(held as f64 / pages as f64);
        prop_assert!((found - naive).abs() < 1e-9, "{} {}", found, naive);
    }
}
