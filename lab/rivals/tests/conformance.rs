//! Every engine does what the driver asks of it, and keeps what its mode promises to keep.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test's own failure

use std::path::Path;

use clap::Parser;
use perdura_bench::target::{Key, Outcome, Session, StoreTarget, Target, Write};
use perdura_bench::workload::Layout;
use perdura_rivals::args::Args;
use perdura_rivals::contest::{ContestSettings, duel};
use perdura_rivals::engine::{Engine, EngineTarget, Survives};
use perdura_rivals::engines::{RIVALS, Rival};

const DATA_BYTES: u64 = 16 << 20;
const RECORDS: u64 = 200;

fn key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

fn value(number: u64) -> Vec<u8> {
    vec![number as u8; 1024]
}

fn get(engine: &dyn Engine, number: u64) -> Option<Vec<u8>> {
    let mut found = None;
    engine.get(&key(number), &mut |record| found = Some(record.to_vec())).unwrap();
    found
}

fn open(rival: &Rival, dir: &Path) -> Box<dyn Engine> {
    (rival.open)(dir, DATA_BYTES).unwrap_or_else(|error| panic!("{}: {error}", rival.name()))
}

fn each(check: impl Fn(&Rival, &Path)) {
    for rival in &RIVALS {
        println!("{}", rival.name());
        check(rival, tempfile::tempdir().unwrap().path());
    }
}

/// Writes even records one by one and odd ones as a batch.
fn fill(engine: &dyn Engine) {
    for number in (0..RECORDS).step_by(2) {
        engine.put(&[(&key(number), &value(number))]).unwrap();
    }
    let batch: Vec<_> =
        (1..RECORDS).step_by(2).map(|number| (key(number), value(number))).collect();
    let batch: Vec<_> = batch.iter().map(|(key, value)| (&key[..], &value[..])).collect();
    engine.put(&batch).unwrap();
}

#[test]
fn records_are_what_was_last_written() {
    each(|rival, dir| {
        let engine = open(rival, dir);
        fill(&*engine);
        assert_eq!(get(&*engine, RECORDS), None);
        assert!(!engine.change(&key(RECORDS), &mut |_| ()).unwrap());
        engine.put(&[(&key(7), b"short")]).unwrap();
        assert!(engine.change(&key(8), &mut |record| record[3] = 0xff).unwrap());
        for number in 0..RECORDS {
            let mut expected = value(number);
            match number {
                7 => expected = b"short".to_vec(),
                8 => expected[3] = 0xff,
                _ => {}
            }
            assert_eq!(get(&*engine, number), Some(expected), "{} {number}", rival.name());
        }
    });
}

#[test]
fn scans_go_up_from_a_key_that_need_not_be_there() {
    each(|rival, dir| {
        if !rival.scans {
            return;
        }
        let engine = open(rival, dir);
        for number in [5, 1, 9, 3, 7] {
            engine.put(&[(&key(number), &value(number))]).unwrap();
        }
        let mut met = Vec::new();
        let seen = engine.scan(&key(2), 3, &mut |record| met.push(record[0])).unwrap();
        assert_eq!((seen, &met[..]), (3, &[3, 5, 7][..]), "{}", rival.name());
        assert_eq!(engine.scan(&key(9), 100, &mut |_| ()).unwrap(), 1, "{}", rival.name());
        assert_eq!(engine.scan(&key(10), 100, &mut |_| ()).unwrap(), 0, "{}", rival.name());
    });
}

#[test]
fn what_lasts_is_there_after_opening_again() {
    each(|rival, dir| {
        let engine = open(rival, dir);
        fill(&*engine);
        engine.put(&[(&key(3), b"changed")]).unwrap();
        drop(engine);
        let engine = open(rival, dir);
        let lasts = rival.survives != Survives::Nothing;
        for number in 0..RECORDS {
            let expected = if number == 3 { b"changed".to_vec() } else { value(number) };
            let expected = lasts.then_some(expected);
            assert_eq!(get(&*engine, number), expected, "{} {number}", rival.name());
        }
    });
}

fn contest(workload: &str, more: &[&str], dir: &Path) -> ContestSettings {
    let sized = ["perdura-rivals", "--records", "500", "--operations", "1000", "--threads", "2"];
    let which = ["--workload", workload, "--dir", dir.to_str().unwrap()];
    let args = Args::try_parse_from(sized.iter().chain(&which).chain(more)).unwrap();
    args.resolve().unwrap().contests.remove(0)
}

/// The driver's operations on Perdura and on each rival must mean the same.
#[test]
fn sessions_agree_with_perduras() {
    let images = tempfile::tempdir().unwrap();
    let ContestSettings { ycsb, setup, .. } = contest("a", &["--fields", "4"], images.path());
    let options = ycsb.store_options(&setup, &ycsb.side);
    agrees(&StoreTarget::create(&options, ycsb.layout.clone()).unwrap(), &ycsb.layout, true);
    each(|rival, dir| {
        let target = EngineTarget::new(open(rival, dir), rival.name(), ycsb.layout.clone());
        agrees(&target, &ycsb.layout, rival.scans);
    });
}

fn agrees(target: &dyn Target, layout: &Layout, scans: bool) {
    let bytes: Vec<_> = (0..8).map(key).collect();
    let key = |number: u64| Key { number, bytes: &bytes[number as usize] };
    let part = vec![1; layout.field_bytes];
    let values = vec![&part[..]; layout.fields];
    let mut session = target.session(1).unwrap();
    let session = &mut *session;
    assert_eq!(session.read(key(1)).unwrap(), Outcome::Missing);
    assert_eq!(session.insert(key(1), &values).unwrap(), Outcome::Done);
    let mut batched = target.session(32).unwrap();
    let outcomes: Vec<_> =
        (2..5).map(|number| batched.insert(key(number), &values).unwrap()).collect();
    let mut completed = 0;
    batched.complete(&mut |outcome| completed += usize::from(outcome.is_ok())).unwrap();
    let queued = outcomes.iter().filter(|outcome| **outcome == Outcome::Queued).count();
    assert_eq!(completed, queued);
    (1..5).for_each(|number| assert_eq!(session.read(key(number)).unwrap(), Outcome::Done));
    let one = Write { first_field: 1, values: &values[..1] };
    assert_eq!(session.update(key(1), one).unwrap(), Outcome::Done);
    assert_eq!(session.update(key(6), one).unwrap(), Outcome::Missing);
    assert_eq!(session.read_modify_write(key(7), one).unwrap(), Outcome::Missing);
    let all = Write { first_field: 0, values: &values };
    assert_eq!(session.update(key(1), all).unwrap(), Outcome::Done);
    if scans {
        scan(session, key(1), key(7));
    }
}

fn scan(session: &mut dyn Session, there: Key<'_>, beyond: Key<'_>) {
    assert_eq!(session.scan(there, 3).unwrap(), Outcome::Done);
    assert_eq!(session.scan(beyond, 3).unwrap(), Outcome::Missing);
}

#[test]
fn every_workload_runs_against_every_rival_without_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    for (workload, more) in
        [("a", &["--durability", "fsync"][..]), ("d", &[]), ("e", &[]), ("f", &["--fields", "4"])]
    {
        let settings = contest(workload, more, dir.path());
        for rival in RIVALS.iter().filter(|rival| rival.scans || workload != "e") {
            let duel = duel(&settings, rival).unwrap();
            let errors = (&duel.perdura.first_error, &duel.rival.first_error);
            assert_eq!(duel.failures(), 0, "{workload} {}: {errors:?}", rival.name());
            assert_eq!(duel.ratio_per_pair.len(), 10);
            assert_eq!((duel.perdura.operations, duel.rival.operations), (1000, 1000));
        }
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "files were left");
}

#[test]
fn what_makes_no_sense_is_refused_with_its_place() {
    for (words, expected) in [
        (["--rivals", "oracle"], "--rivals oracle"),
        (["--workload", "a,g"], "--workload g"),
        (["--pairs", "3"], "--pairs 3"),
        (["--budget", "many"], "--budget many"),
        (["--records", "0"], "--records 0"),
        (["--value", "0"], "--value"),
        (["--checkpoint", "often"], "--checkpoint often"),
        (["--distribution", "normal"], "--distribution normal"),
    ] {
        let refused = Args::try_parse_from(["perdura-rivals", words[0], words[1]])
            .map_err(|error| error.to_string())
            .and_then(|args| args.resolve().map_err(|error| format!("{error:#}")));
        let said = refused.expect_err(words[0]);
        assert!(said.contains(expected), "{expected:?} in {said:?}");
    }
}
