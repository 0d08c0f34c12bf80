//! Whole histories: an image that changes while it is shipped, vaults that fail, kills at every
//! operation, planted bugs. Each point that is found must restore exactly the state of its commit.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test's own failure

mod copies;
mod machine;
mod points;
mod writers;

use std::time::Duration;

use parking_lot::Mutex;
use perdura_backup::{
    BackupError, Deleted, Planted, Retention, Seal, Shipper, Source, Vault, list, verify,
};
use perdura_media::Clock;
use perdura_region::Key;

use machine::{Changing, Machine, Memory, claim, key};

/// Ships a changing image, begins anew in between, and deletes what is old. An error is the kill.
fn history(machine: &Machine, vault: &dyn Vault, planted: Planted) -> Result<Deleted, BackupError> {
    let source = Source::new(&*machine.device, Some(&key()))?;
    let mut deleted = Deleted::default();
    let image_id = source.image_id();
    for run in 0..3 {
        let writer = claim(vault, &source)?;
        let mut shipper = Shipper::new(vault, Seal::default(), &source, writer, planted)?;
        shipper.set_pack_bytes(256 << 10);
        let mut retention = Retention::new(Duration::from_secs(7200), planted);
        for _ in 0..4 {
            machine.write(300);
            machine.checkpoint();
            shipper.pass(&source, &*machine.clock)?;
            retention.note(&shipper);
            // From time to time so long passes that points are too old.
            machine.clock.sleep_ns(1_500_000_000_000 * (1 + run));
            let now = machine.clock.unix_ms();
            let more = retention.tidy(vault, &Seal::default(), image_id, &shipper, now)?;
            deleted.points += more.points;
            deleted.packs += more.packs;
        }
    }
    Ok(deleted)
}

#[test]
fn every_point_restores_the_state_of_its_commit_and_is_sent_but_once() {
    let (machine, memory) = (Machine::new(1), Memory::default());
    let source = Source::new(&*machine.device, Some(&key())).unwrap();
    let seal = Seal::with_key(Key::new([7; 32]));
    let writer = claim(&memory, &source).unwrap();
    let mut shipper = Shipper::new(&memory, seal.clone(), &source, writer, Planted::None).unwrap();
    machine.write(400);
    machine.checkpoint();
    let first = shipper.pass(&source, &*machine.clock).unwrap().unwrap();
    machine.write(1);
    machine.checkpoint();
    let second = shipper.pass(&source, &*machine.clock).unwrap().unwrap();
    assert!(second.bytes * 10 < first.bytes, "{second:?} after {first:?}");
    assert_eq!(shipper.pass(&source, &*machine.clock).unwrap(), None, "nothing has changed");
    // A shipper that begins anew knows what is there.
    let writer = claim(&memory, &source).unwrap();
    let mut shipper = Shipper::new(&memory, seal.clone(), &source, writer, Planted::None).unwrap();
    assert_eq!(shipper.pass(&source, &*machine.clock).unwrap(), None);
    machine.write(1);
    machine.checkpoint();
    let third = shipper.pass(&source, &*machine.clock).unwrap().unwrap();
    assert!(third.bytes * 10 < first.bytes, "{third:?} after {first:?}");
    let points = list(&memory, None).unwrap();
    assert_eq!(points.len(), 3);
    for name in &points {
        machine.compare(&memory, &seal, name).unwrap();
        verify(&memory, &seal, name, &mut |_, _| {}).unwrap();
    }
}

#[test]
fn segments_are_used_anew_in_the_middle_of_a_pass_and_it_ends_at_a_newer_commit() {
    let mut rounds = 0;
    for seed in 0..5 {
        let (machine, memory) = (Machine::new(seed), Memory::default());
        machine.write(300);
        machine.checkpoint();
        // Less and less changes at each put, or the pass could not end.
        let writes = Mutex::new(900);
        let at_put = || {
            let mut writes = writes.lock();
            machine.write(*writes);
            machine.checkpoint();
            machine.write(*writes);
            machine.checkpoint();
            *writes = *writes * 2 / 3;
        };
        let vault = Changing { memory: &memory, at_put: Box::new(at_put) };
        let source = Source::new(&*machine.device, Some(&key())).unwrap();
        let writer = claim(&vault, &source).unwrap();
        let mut shipper =
            Shipper::new(&vault, Seal::default(), &source, writer, Planted::None).unwrap();
        shipper.set_pack_bytes(64 << 10);
        for _ in 0..3 {
            *writes.lock() = 900;
            machine.write(10);
            machine.checkpoint();
            let pass = shipper.pass(&source, &*machine.clock).unwrap();
            rounds += pass.map_or(0, |pass| pass.rounds - 1);
        }
        for name in list(&memory, None).unwrap() {
            machine.compare(&memory, &Seal::default(), &name).unwrap();
        }
    }
    assert!(rounds > 3, "only {rounds} passes met a segment that was used anew");
}

#[test]
fn killed_at_any_operation_every_point_is_whole_and_the_next_run_goes_on() {
    let all = {
        let (machine, memory) = (Machine::new(3), Memory::default());
        history(&machine, &memory, Planted::None).unwrap();
        memory.operations.into_inner()
    };
    assert!(all > 24, "{all}");
    for kill in 0..all {
        let (machine, memory) = (Machine::new(3), Memory::default());
        *memory.left.lock() = Some(kill);
        history(&machine, &memory, Planted::None).unwrap_err();
        *memory.left.lock() = None;
        for name in list(&memory, None).unwrap() {
            machine.compare(&memory, &Seal::default(), &name).unwrap();
        }
        if kill % 5 == 0 {
            history(&machine, &memory, Planted::None).unwrap();
            for name in list(&memory, None).unwrap() {
                machine.compare(&memory, &Seal::default(), &name).unwrap();
            }
        }
    }
}

#[test]
fn retention_deletes_points_and_packs_and_none_that_is_needed() {
    let (machine, memory) = (Machine::new(5), Memory::default());
    let deleted = history(&machine, &memory, Planted::None).unwrap();
    let points = list(&memory, None).unwrap();
    assert_eq!(points.len() as u64 + deleted.points, 12);
    assert!(deleted.points > 3 && deleted.packs > 3, "{deleted:?}");
    for name in points {
        machine.compare(&memory, &Seal::default(), &name).unwrap();
    }
}

#[test]
fn planted_bugs_are_caught() {
    // The point before its packs: a kill in between leaves a point that cannot be restored.
    let caught = (0..30).any(|kill| {
        let (machine, memory) = (Machine::new(3), Memory::default());
        *memory.left.lock() = Some(kill);
        let _killed = history(&machine, &memory, Planted::PointFirst);
        let points = list(&memory, None).unwrap();
        points.iter().any(|name| machine.compare(&memory, &Seal::default(), name).is_err())
    });
    assert!(caught, "a point before its packs is not caught");
    let (machine, memory) = (Machine::new(5), Memory::default());
    let ended = history(&machine, &memory, Planted::DeleteNeeded);
    let points = list(&memory, None).unwrap();
    let caught = ended.is_err()
        || points.iter().any(|name| machine.compare(&memory, &Seal::default(), name).is_err());
    assert!(caught, "a retention that deletes what is needed is not caught");
    let caught = (0..60).any(|seed| {
        let (machine, memory) = (Machine::new(seed), Memory::default());
        machine.write(600);
        machine.checkpoint();
        let at_put = || {
            machine.write(900);
            machine.checkpoint();
        };
        let vault = Changing { memory: &memory, at_put: Box::new(at_put) };
        let source = Source::new(&*machine.device, Some(&key())).unwrap();
        let planted = Planted::TakeAnyFrame;
        let writer = claim(&vault, &source).unwrap();
        let mut shipper = Shipper::new(&vault, Seal::default(), &source, writer, planted).unwrap();
        shipper.set_pack_bytes(16 << 10);
        let _ended = shipper.pass(&source, &*machine.clock);
        let points = list(&memory, None).unwrap();
        points.iter().any(|name| machine.compare(&memory, &Seal::default(), name).is_err())
    });
    assert!(caught, "frames of another commit are not caught");
}

#[test]
fn damaged_objects_are_named_and_never_restored() {
    let (machine, memory) = (Machine::new(9), Memory::default());
    let source = Source::new(&*machine.device, Some(&key())).unwrap();
    let writer = claim(&memory, &source).unwrap();
    let mut shipper =
        Shipper::new(&memory, Seal::default(), &source, writer, Planted::None).unwrap();
    for _ in 0..3 {
        machine.write(100);
        machine.checkpoint();
        shipper.pass(&source, &*machine.clock).unwrap();
    }
    let points = list(&memory, None).unwrap();
    let newest = points.last().unwrap();
    for name in memory.names() {
        let whole = memory.get(&name).unwrap();
        for fault in 0..12 {
            memory.change(&name, |bytes| match fault {
                0 => bytes.truncate(bytes.len() / 2),
                1 => bytes.clear(),
                2 => bytes.truncate(bytes.len() - 1),
                _ => {
                    let at = machine.below(bytes.len() as u64) as usize;
                    bytes[at] ^= 1 << machine.below(8);
                }
            });
            match machine.compare(&memory, &Seal::default(), newest) {
                // This point does not need the object.
                Ok(()) => {}
                Err(BackupError::Object { name: named, .. }) => assert_eq!(named, name),
                Err(other) => panic!("{name}: {other}"),
            }
            memory.change(&name, |bytes| bytes.clone_from(&whole));
        }
        // As if it were deleted, or found late.
        let gone = memory.objects.lock().remove(&name).unwrap();
        match machine.compare(&memory, &Seal::default(), newest) {
            Ok(()) => {}
            Err(error) => assert!(error.to_string().contains(&name), "{error}"),
        }
        memory.objects.lock().insert(name, gone);
    }
    // Two objects that are exchanged are both whole, and both wrong.
    let packs: Vec<_> = memory.names().into_iter().filter(|name| name.contains("packs")).collect();
    let [one, two] = [&packs[0], &packs[1]].map(|name| memory.get(name).unwrap());
    memory.change(&packs[0], |bytes| *bytes = two);
    memory.change(&packs[1], |bytes| *bytes = one);
    verify(&memory, &Seal::default(), newest, &mut |_, _| {}).unwrap_err();
}
