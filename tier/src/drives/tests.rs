//! A keeper over drives that are none.
#![allow(clippy::unwrap_used)] // a test's own failure

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use perdura_media::SimClock;
use perdura_media::drives::{
    Asleep, AtaMode, DriveError, DrivePower, PowerReading, PowerState, Requests, VIRTUAL,
};
use perdura_media::meters::Meters;

use super::{DriveKeeper, Keeper, Lookup, Observed, Rested, Sleep};

const S: u64 = 1_000_000_000;

/// What a drive counts, answers, and was told.
#[derive(Debug, Default)]
struct Facts {
    requests: u64,
    under_way: u64,
    /// The state that it sleeps in and goes back from, of an NVMe drive; else it speaks ATA.
    restores: Option<u8>,
    was: Option<u8>,
    refusal: Option<fn() -> DriveError>,
    told: Vec<String>,
    asked: u32,
}

type Shared = Arc<Mutex<Facts>>;

struct Fake {
    name: &'static str,
    facts: Shared,
}

fn reading() -> PowerReading {
    PowerReading { state: PowerState::Ata(AtaMode::Standby), nameplate: None }
}

impl DrivePower for Fake {
    fn name(&self) -> &str {
        self.name
    }
    fn bus(&self) -> String {
        if self.name.starts_with("zd") { VIRTUAL.into() } else { "ata".into() }
    }
    fn runtime(&self) -> Option<(String, String)> {
        None
    }
    fn owns(&self, device: &Path) -> bool {
        device == Path::new(self.name)
    }
    fn requests(&self) -> std::io::Result<Requests> {
        let facts = self.facts.lock();
        Ok(Requests { done: facts.requests, under_way: facts.under_way })
    }
    fn observe(&self) -> Result<PowerReading, DriveError> {
        let mut facts = self.facts.lock();
        facts.asked += 1;
        facts.refusal.map_or(Ok(reading()), |refusal| Err(refusal()))
    }
    fn sleep(&self) -> Result<Asleep, DriveError> {
        let mut facts = self.facts.lock();
        facts.told.push("sleep".into());
        let (restores, was) = (facts.restores, facts.was);
        match facts.refusal {
            Some(refusal) => Err(refusal()),
            None => Ok(Asleep { reading: reading(), restores, was }),
        }
    }
    fn restore(&self, number: u8) -> Result<(), DriveError> {
        self.facts.lock().told.push(format!("restore {number}"));
        Ok(())
    }
}

/// A machine with drives, and directories on these.
#[derive(Clone, Default)]
struct Machine {
    drives: BTreeMap<&'static str, Shared>,
    places: BTreeMap<&'static str, Vec<&'static str>>,
}

impl Machine {
    fn new(places: &[(&'static str, &[&'static str])]) -> Self {
        let mut machine = Self::default();
        for (place, drives) in places {
            machine.places.insert(place, drives.to_vec());
            for drive in *drives {
                machine.drives.entry(drive).or_default();
            }
        }
        machine
    }

    fn keeper(&self, never: &[&str]) -> Keeper {
        let after = Some(Duration::from_secs(10));
        self.keeper_with(Sleep { after, never: never.iter().map(|&dir| dir.into()).collect() })
    }

    fn keeper_with(&self, sleep: Sleep) -> Keeper {
        let machine = self.clone();
        Keeper::new(sleep, Meters::default(), move |place| match machine.places.get(place) {
            None if place == "/memory" => Lookup::NoDrive("tmpfs".into()),
            None => Lookup::Unknown("overlay".into()),
            Some(drives) => {
                let fake = |name: &&'static str| -> Box<dyn DrivePower> {
                    Box::new(Fake { name, facts: Arc::clone(&machine.drives[name]) })
                };
                Lookup::Drives(drives.iter().map(fake).collect())
            }
        })
    }

    fn told(&self, drive: &str) -> Vec<String> {
        self.drives[drive].lock().told.clone()
    }
}

fn devices(places: &[&str]) -> Vec<(u16, String)> {
    places.iter().enumerate().map(|(n, place)| (n as u16, (*place).to_owned())).collect()
}

fn rested(keeper: &Keeper, drive: &str) -> Rested {
    let drives = keeper.status().drives;
    drives.into_iter().find(|one| one.name == drive).unwrap().rested
}

fn refusal() -> DriveError {
    DriveError::Unsupported { why: "the drive has one power state only".into() }
}

#[test]
fn a_drive_without_a_request_for_so_long_is_told_to_sleep_once() {
    let machine = Machine::new(&[("/a", &["sda"])]);
    let mut keeper = machine.keeper(&["/memory"]);
    keeper.follow(&devices(&["/a"]));
    (0..10).for_each(|second| keeper.look(second * S, false));
    assert_eq!((machine.told("sda").len(), rested(&keeper, "sda")), (0, Rested::Awake));
    (10..30).for_each(|second| keeper.look(second * S, false));
    assert_eq!(
        (machine.told("sda"), rested(&keeper, "sda")),
        (vec!["sleep".into()], Rested::Asleep)
    );
    // Whoever asks the drive for something wakes it; the time begins again.
    machine.drives["sda"].lock().requests += 1;
    (30..40).for_each(|second| keeper.look(second * S, false));
    assert_eq!((machine.told("sda").len(), rested(&keeper, "sda")), (1, Rested::Awake));
    keeper.look(40 * S, false);
    assert_eq!(machine.told("sda"), ["sleep", "sleep"], "it goes back by itself");
    assert_eq!(keeper.status().drives[0].sleeps, 2);
}

#[test]
fn a_drive_with_a_request_under_way_is_not_quiet() {
    let machine = Machine::new(&[("/a", &["sda"])]);
    let mut keeper = machine.keeper(&["/memory"]);
    keeper.follow(&devices(&["/a"]));
    machine.drives["sda"].lock().under_way = 1;
    (0..60).for_each(|second| keeper.look(second * S, false));
    machine.drives["sda"].lock().under_way = 0;
    (60..70).for_each(|second| keeper.look(second * S, false));
    assert_eq!(machine.told("sda").len(), 0);
    keeper.look(70 * S, false);
    assert_eq!(machine.told("sda"), ["sleep"]);
}

#[test]
fn no_drive_sleeps_below_an_image_on_a_virtual_one() {
    for (image, may_sleep) in [("sdb", true), ("zd0", false)] {
        let machine = Machine::new(&[("/a", &["sda"]), ("/image", &[image])]);
        let mut keeper = machine.keeper(&["/image"]);
        keeper.follow(&devices(&["/a"]));
        (0..60).for_each(|second| keeper.look(second * S, false));
        assert_eq!(machine.told("sda").len(), usize::from(may_sleep), "{image}");
    }
}

#[test]
fn drives_are_left_alone_unless_somebody_wants_them_to_sleep() {
    let machine = Machine::new(&[("/a", &["sda"])]);
    let mut keeper = machine.keeper_with(Sleep::default());
    keeper.follow(&devices(&["/a"]));
    (0..10_000).for_each(|second| keeper.look(second * S, true));
    assert_eq!((machine.told("sda").len(), rested(&keeper, "sda")), (0, Rested::Off));
}

#[test]
fn a_drive_of_the_image_is_left_alone_and_the_others_are_not() {
    let machine = Machine::new(&[("/image", &["sda"]), ("/a", &["sda", "sdb"]), ("/b", &["sdc"])]);
    let mut keeper = machine.keeper(&["/image"]);
    keeper.follow(&devices(&["/a", "/b"]));
    (0..60).for_each(|second| keeper.look(second * S, false));
    assert!(matches!(rested(&keeper, "sda"), Rested::LeftAlone(why) if why.contains("/image")));
    assert_eq!(machine.told("sda").len(), 0);
    assert_eq!(
        (machine.told("sdb"), machine.told("sdc")),
        (vec!["sleep".into()], vec!["sleep".into()])
    );
}

#[test]
fn no_drive_sleeps_if_nobody_knows_which_ones_the_image_lies_on() {
    let machine = Machine::new(&[("/a", &["sda"])]);
    let mut keeper = machine.keeper(&["/union"]);
    keeper.follow(&devices(&["/a"]));
    (0..60).for_each(|second| keeper.look(second * S, false));
    assert!(matches!(rested(&keeper, "sda"), Rested::LeftAlone(why) if why.contains("overlay")));
    assert_eq!(machine.told("sda").len(), 0);
}

#[test]
fn devices_of_one_drive_let_it_sleep_only_if_none_of_them_wants_it() {
    let machine = Machine::new(&[("/a", &["sda"]), ("/b", &["sda", "sdb"])]);
    let mut keeper = machine.keeper(&["/memory"]);
    keeper.follow(&devices(&["/a", "/b", "/memory", "/union"]));
    let status = keeper.status();
    let of: Vec<_> =
        status.devices.iter().map(|one| (one.words.as_str(), one.drives.len())).collect();
    assert_eq!(of, [("sda", 1), ("sda+sdb", 2), ("none (tmpfs)", 0), ("unknown (overlay)", 0)]);
    assert_eq!((status.drives.len(), &status.devices[1].drives), (2, &vec![0, 1]));
    for second in 0..60 {
        machine.drives["sda"].lock().requests += 1;
        keeper.look(second * S, false);
    }
    assert_eq!((machine.told("sda").len(), machine.told("sdb").len()), (0, 1));
}

#[test]
fn a_state_that_does_requests_slowly_is_left_when_they_come_and_at_the_end() {
    let machine = Machine::new(&[("/a", &["nvme0n1"])]);
    {
        let mut facts = machine.drives["nvme0n1"].lock();
        (facts.restores, facts.was) = (Some(1), Some(1));
    }
    let mut keeper = machine.keeper(&["/memory"]);
    keeper.follow(&devices(&["/a"]));
    (0..=10).for_each(|second| keeper.look(second * S, false));
    assert!(keeper.has_slow_drive());
    machine.drives["nvme0n1"].lock().requests += 1;
    keeper.look(11 * S, false);
    assert!(!keeper.has_slow_drive());
    assert_eq!(machine.told("nvme0n1"), ["sleep", "restore 1"]);
    (12..=21).for_each(|second| keeper.look(second * S, false));
    keeper.end();
    keeper.end();
    assert_eq!(machine.told("nvme0n1"), ["sleep", "restore 1", "sleep", "restore 1"]);
}

#[test]
fn a_state_that_a_drive_leaves_by_itself_is_left_to_it_but_at_the_end() {
    let machine = Machine::new(&[("/a", &["nvme0n1"])]);
    machine.drives["nvme0n1"].lock().was = Some(0);
    let mut keeper = machine.keeper(&["/memory"]);
    keeper.follow(&devices(&["/a"]));
    (0..=10).for_each(|second| keeper.look(second * S, false));
    assert!(!keeper.has_slow_drive());
    machine.drives["nvme0n1"].lock().requests += 1;
    (11..=21).for_each(|second| keeper.look(second * S, false));
    // Its device is taken away while the drive sleeps.
    keeper.follow(&[]);
    assert_eq!(machine.told("nvme0n1"), ["sleep", "sleep", "restore 0"]);
    assert_eq!(keeper.status().drives, []);
}

#[test]
fn a_drive_that_refuses_is_tried_again_only_after_it_was_busy() {
    let machine = Machine::new(&[("/a", &["sda"])]);
    machine.drives["sda"].lock().refusal = Some(refusal);
    let mut keeper = machine.keeper(&["/memory"]);
    keeper.follow(&devices(&["/a"]));
    (0..100).for_each(|second| keeper.look(second * S, false));
    assert_eq!(machine.told("sda").len(), 1);
    let why = "the drive has one power state only";
    assert_eq!(rested(&keeper, "sda"), Rested::Refused(why.into()));
    machine.drives["sda"].lock().requests += 1;
    machine.drives["sda"].lock().refusal = None;
    (100..=110).for_each(|second| keeper.look(second * S, false));
    assert_eq!((machine.told("sda").len(), rested(&keeper, "sda")), (2, Rested::Asleep));
}

#[test]
fn a_drive_that_the_kernel_has_suspended_has_not_refused() {
    let machine = Machine::new(&[("/a", &["sda"])]);
    machine.drives["sda"].lock().refusal = Some(|| DriveError::Suspended);
    let mut keeper = machine.keeper(&["/memory"]);
    keeper.follow(&devices(&["/a"]));
    (0..=10).for_each(|second| keeper.look(second * S, false));
    assert_eq!(rested(&keeper, "sda"), Rested::Awake);
    machine.drives["sda"].lock().refusal = None;
    keeper.look(11 * S, false);
    assert_eq!(rested(&keeper, "sda"), Rested::Asleep);
}

#[test]
fn a_drive_is_asked_once_a_second_if_somebody_wants_to_know_and_not_while_it_sleeps() {
    let machine = Machine::new(&[("/a", &["sda"])]);
    let mut keeper = machine.keeper(&["/memory"]);
    keeper.follow(&devices(&["/a"]));
    let asked = || machine.drives["sda"].lock().asked;
    keeper.look(0, false);
    assert_eq!((asked(), &keeper.status().drives[0].observed), (0, &Observed::NotYet));
    (0..5).for_each(|_| keeper.look(S, true));
    assert_eq!(asked(), 1);
    let expected = Observed::Answer { reading: reading(), at_ns: S };
    assert_eq!(keeper.status().drives[0].observed, expected);
    (2..=10).for_each(|second| keeper.look(second * S, true));
    assert_eq!((asked(), rested(&keeper, "sda")), (9, Rested::Asleep));
    (11..20).for_each(|second| keeper.look(second * S, true));
    assert_eq!(asked(), 9, "a drive that sleeps is asked");
    let expected = Observed::Answer { reading: reading(), at_ns: 10 * S };
    assert_eq!(keeper.status().drives[0].observed, expected);
    machine.drives["sda"].lock().requests += 1;
    machine.drives["sda"].lock().refusal = Some(refusal);
    keeper.look(20 * S, true);
    let expected = Observed::No(refusal().to_string());
    assert_eq!(keeper.status().drives[0].observed, expected);
}

#[test]
fn what_is_known_of_a_drive_stays_when_another_device_comes() {
    let machine = Machine::new(&[("/a", &["sdb"]), ("/b", &["sda"])]);
    let mut keeper = machine.keeper(&["/memory"]);
    keeper.follow(&devices(&["/a"]));
    (0..=10).for_each(|second| keeper.look(second * S, false));
    keeper.follow(&devices(&["/a", "/b"]));
    keeper.look(11 * S, false);
    assert_eq!((rested(&keeper, "sdb"), rested(&keeper, "sda")), (Rested::Asleep, Rested::Awake));
    assert_eq!(machine.told("sdb"), ["sleep"]);
    assert_eq!(keeper.status().devices[0].drives, [1], "drives are sorted");
}

#[test]
fn the_end_of_the_keepers_thread_puts_drives_back() {
    let machine = Machine::new(&[("/a", &["nvme0n1"])]);
    machine.drives["nvme0n1"].lock().was = Some(0);
    let after = Some(Duration::ZERO);
    let keeper = machine.keeper_with(Sleep { after, never: Vec::new() });
    let clock = Arc::new(SimClock::default());
    let thread = DriveKeeper::start(keeper, clock, || devices(&["/a"])).unwrap();
    while thread.status().drives.first().is_none_or(|one| one.rested != Rested::Asleep) {
        std::thread::yield_now();
    }
    drop(thread);
    assert_eq!(machine.told("nvme0n1"), ["sleep", "restore 0"]);
}
