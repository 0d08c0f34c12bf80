//! Two programs that would ship one image to one vault.

use std::time::Duration;

use parking_lot::Mutex;
use perdura_backup::vault::Directory;
use perdura_backup::{
    BackupError, Owner, Planted, Retention, Seal, Shipper, Source, Vault, Writer, list,
};
use perdura_media::Clock;
use tempfile::TempDir;

use crate::machine::{Changing, Machine, Memory, claim, key};

const IMAGE: u64 = 7;

fn claim_as<'v>(vault: &'v dyn Vault, owner: &mut Owner) -> Result<Writer<'v>, BackupError> {
    Writer::claim(vault, IMAGE, owner, 1_000_000_000_123)
}

fn records(vault: &dyn Vault) -> usize {
    vault.list(&format!("image-{IMAGE:016x}/writers")).unwrap().objects.len()
}

fn files(dir: &TempDir) -> usize {
    std::fs::read_dir(dir.path()).unwrap().count()
}

#[test]
fn one_program_ships_an_image_and_others_are_told_who_it_is() {
    let (memory, folder) = (Memory::default(), TempDir::new().unwrap());
    let directory = Directory::new(folder.path().join("vault"));
    for vault in [&memory as &dyn Vault, &directory] {
        let (data, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let mut owner = Owner::new(data.path(), false);
        let writer = claim_as(vault, &mut owner).unwrap();
        writer.check().unwrap();
        let of_others = [other.path(), data.path()];
        for dir in of_others {
            let error = claim_as(vault, &mut Owner::new(dir, false)).err().unwrap();
            assert!(matches!(error, BackupError::Held { image_id: IMAGE, .. }), "{error}");
            let text = error.to_string();
            assert!(text.contains("since 2001-09-09T01:46:40.123Z"), "{text}");
            assert!(text.contains("--ship-take-over"), "{text}");
        }
        writer.check().unwrap();
        // Another image is another matter.
        let mut of_another = Owner::new(other.path(), false);
        let another = Writer::claim(vault, IMAGE + 1, &mut of_another, 1).unwrap();
        another.release(&mut of_another).unwrap();
        assert_eq!(files(&other), 0);
        // Killed: the next program of this directory goes on, and one of another may not.
        drop((writer, owner));
        assert!(claim_as(vault, &mut Owner::new(other.path(), false)).is_err());
        let mut owner = Owner::new(data.path(), false);
        let writer = claim_as(vault, &mut owner).unwrap();
        assert_eq!((records(vault), files(&data)), (1, 1));
        // Ended: anyone may go on.
        writer.release(&mut owner).unwrap();
        assert_eq!((records(vault), files(&data)), (0, 0));
        let mut taker = Owner::new(other.path(), false);
        let writer = claim_as(vault, &mut taker).unwrap();
        writer.release(&mut taker).unwrap();
    }
}

#[test]
fn a_program_that_is_taken_over_stops_and_does_not_come_back_by_itself() {
    let (machine, memory) = (Machine::new(1), Memory::default());
    let (data, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let source = Source::new(&*machine.device, Some(&key())).unwrap();
    let claim_as = |owner: &mut Owner| Writer::claim(&memory, source.image_id(), owner, 1);
    let ship =
        |writer| Shipper::new(&memory, Seal::default(), &source, writer, Planted::None).unwrap();
    let mut owner = Owner::new(data.path(), false);
    let mut shipper = ship(claim_as(&mut owner).unwrap());
    shipper.pass(&source, &*machine.clock).unwrap();
    let mut taker = Owner::new(other.path(), true);
    let mut taking = ship(claim_as(&mut taker).unwrap());
    machine.write(10);
    machine.checkpoint();
    let points = list(&memory, None).unwrap().len();
    let error = shipper.pass(&source, &*machine.clock).unwrap_err();
    assert!(matches!(error, BackupError::TakenOver { .. }), "{error}");
    let mut retention = Retention::new(Duration::ZERO, Planted::None);
    let now = machine.clock.unix_ms();
    let tidied = retention.tidy(&memory, &Seal::default(), source.image_id(), &shipper, now);
    assert!(matches!(tidied, Err(BackupError::TakenOver { .. })), "{tidied:?}");
    assert_eq!(list(&memory, None).unwrap().len(), points, "it has put or deleted a point");
    // What it gives up is not the other's claim.
    shipper.release(&mut owner).unwrap();
    assert!(matches!(claim_as(&mut owner), Err(BackupError::Held { .. })));
    taking.pass(&source, &*machine.clock).unwrap().unwrap();
    // Whoever has taken over once is not asked to do it again at each start.
    taking.release(&mut taker).unwrap();
    let _held = claim_as(&mut owner).unwrap();
    assert!(matches!(claim_as(&mut taker), Err(BackupError::Held { .. })));
}

#[test]
fn killed_at_any_operation_a_take_over_leaves_at_most_one_writer_and_can_be_repeated() {
    for kill in 0..4 {
        let memory = Memory::default();
        let (data, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let writer = claim_as(&memory, &mut Owner::new(data.path(), false)).unwrap();
        *memory.left.lock() = Some(kill);
        let killed = claim_as(&memory, &mut Owner::new(other.path(), true));
        *memory.left.lock() = None;
        match killed {
            Ok(taking) => {
                taking.check().unwrap();
                writer.check().unwrap_err();
            }
            // It was not killed too late: the one before goes on.
            Err(_) => writer.check().unwrap(),
        }
        let taking = claim_as(&memory, &mut Owner::new(other.path(), true)).unwrap();
        taking.check().unwrap();
        writer.check().unwrap_err();
        assert_eq!(records(&memory), 1);
    }
}

#[test]
fn a_claim_that_is_lost_to_another_at_the_last_moment_is_seen() {
    let memory = Memory::default();
    let first = Mutex::new(None);
    let at_put = || {
        let (mut first, mut owner) = (first.lock(), Owner::new("/nowhere".as_ref(), false));
        if first.is_none() {
            *first = Some(claim_as(&memory, &mut owner).unwrap());
        }
    };
    let vault = Changing { memory: &memory, at_put: Box::new(at_put) };
    let error = claim_as(&vault, &mut Owner::new("/nowhere".as_ref(), false)).err().unwrap();
    assert!(matches!(error, BackupError::Held { .. }), "{error}");
    first.lock().take().unwrap().check().unwrap();
}

#[test]
fn what_no_writer_has_written_is_replaced_only_if_asked() {
    let memory = Memory::default();
    let name = format!("image-{IMAGE:016x}/writers/{:016x}", 1);
    for text in ["", "perdura writer 2\nowner 0000000000000001\n", "perdura writer 1\n\u{1b}"] {
        memory.objects.lock().insert(name.clone(), text.as_bytes().to_vec());
        let error = claim_as(&memory, &mut Owner::new("/nowhere".as_ref(), false)).err().unwrap();
        assert!(matches!(error, BackupError::Held { .. }), "{error}");
        let writer = claim_as(&memory, &mut Owner::new("/nowhere".as_ref(), true)).unwrap();
        writer.check().unwrap();
        memory.objects.lock().clear();
    }
}

fn ship<'v>(vault: &'v dyn Vault, source: &Source<'_>) -> Shipper<'v> {
    let writer = claim(vault, source).unwrap();
    Shipper::new(vault, Seal::default(), source, writer, Planted::None).unwrap()
}

/// The point was on its way when another program took over.
#[test]
fn a_point_that_comes_late_stays_whole() {
    let (machine, memory) = (Machine::new(4), Memory::default());
    let source = Source::new(&*machine.device, Some(&key())).unwrap();
    let seal = Seal::default();
    let change_and_ship = |shipper: &mut Shipper<'_>| {
        machine.write(10);
        machine.checkpoint();
        shipper.pass(&source, &*machine.clock).unwrap().unwrap();
    };
    let tidy = |retention: &mut Retention, shipper: &Shipper<'_>| {
        retention.note(shipper);
        let now = machine.clock.unix_ms();
        retention.tidy(&memory, &seal, source.image_id(), shipper, now).unwrap();
    };
    let left = Mutex::new(u64::MAX);
    let taker = Mutex::new(None);
    let at_put = || {
        *left.lock() -= 1;
        if *left.lock() == 0 {
            let mut retention = Retention::new(Duration::from_secs(24 * 3600), Planted::None);
            let mut shipper = ship(&memory, &source);
            // Later by minutes, so that the point that comes late is the last of its minute.
            machine.clock.sleep_ns(120_000_000_000);
            change_and_ship(&mut shipper);
            tidy(&mut retention, &shipper);
            *taker.lock() = Some((shipper, retention));
        }
    };
    let vault = Changing { memory: &memory, at_put: Box::new(at_put) };
    let mut shipper = ship(&vault, &source);
    change_and_ship(&mut shipper);
    // A pack, then the point.
    *left.lock() = 2;
    change_and_ship(&mut shipper);
    assert_eq!(list(&memory, None).unwrap().len(), 3, "no point came late");
    let (mut shipper, mut retention) = taker.lock().take().unwrap();
    for _ in 0..3 {
        machine.clock.sleep_ns(4_000_000_000_000);
        change_and_ship(&mut shipper);
        tidy(&mut retention, &shipper);
    }
    let points = list(&memory, None).unwrap();
    assert_eq!(points.len(), 5, "all but the first, in whose minute the late one is");
    for name in &points {
        machine.compare(&memory, &seal, name).unwrap();
    }
}

/// Parts of the image's own packs and points: of another image, another program may be writing.
#[test]
fn the_next_writer_removes_what_a_killed_one_was_putting() {
    let (machine, folder) = (Machine::new(1), TempDir::new().unwrap());
    let vault = Directory::new(folder.path().to_owned());
    let source = Source::new(&*machine.device, Some(&key())).unwrap();
    let ship = || {
        machine.write(20);
        machine.checkpoint();
        let writer = claim(&vault, &source).unwrap();
        let shipper = Shipper::new(&vault, Seal::default(), &source, writer, Planted::None);
        shipper.unwrap().pass(&source, &*machine.clock).unwrap();
    };
    ship();
    let image = format!("image-{:016x}", source.image_id());
    let part = |image: &str, kind: &str| folder.path().join(image).join(kind).join(".unfinished-1");
    std::fs::create_dir_all(folder.path().join("image-1/packs")).unwrap();
    let (own, others) =
        (["packs", "points"].map(|kind| part(&image, kind)), part("image-1", "packs"));
    for path in own.iter().chain([&others]) {
        std::fs::write(path, b"half of an object").unwrap();
    }
    ship();
    assert!(!own.iter().any(|path| path.exists()) && others.exists());
    let points = list(&vault, Some(source.image_id())).unwrap();
    assert_eq!(points.len(), 2);
    machine.compare(&vault, &Seal::default(), &points[1]).unwrap();
}
