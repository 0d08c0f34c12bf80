//! Names after power cuts: the real code that makes them durable, and the simulation's own rules.

use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use crate::file::{parent, replace, sync_parent};
use crate::sim::SimFiles;
use crate::sys::{FileSystem, OpenFile};

const RECORD: &str = "/record";
const SEEDS: u64 = 12;

/// Files with a record of zeros, which survives a power cut.
fn with_record(seed: u64) -> SimFiles {
    let files = SimFiles::new(seed);
    replace(&files, Path::new(RECORD), &[0; 5_000]).unwrap();
    sync_parent(&files, Path::new(RECORD)).unwrap();
    files
}

/// Replaces the record by one that takes several writes when the first is cut short.
fn replace_record(files: &SimFiles) -> Result<(), Errno> {
    replace(files, Path::new(RECORD), &[1; 20_000])
}

/// Durable operations of replacing the record.
fn replacing_ops(seed: u64) -> u64 {
    let files = with_record(seed);
    let before = files.ops();
    replace_record(&files).unwrap();
    assert!(read(&files) == [1; 20_000]);
    files.ops() - before
}

#[test]
fn a_replaced_file_is_old_or_new_after_every_power_cut() {
    for seed in 0..SEEDS {
        let ops = replacing_ops(seed);
        for cut in 0..=ops {
            let files = with_record(seed);
            files.cut_after(files.ops() + cut);
            assert_eq!(replace_record(&files).is_ok(), cut == ops);
            for outcome in 0..SEEDS {
                let found = read(&files.power_cycle(outcome));
                let is_whole = found == [0; 5_000] || found == [1; 20_000];
                assert!(is_whole, "seed {seed}, cut {cut}, outcome {outcome}");
            }
        }
    }
}

#[test]
fn a_failure_while_a_file_is_replaced_is_reported_and_harmless() {
    for seed in 0..SEEDS {
        for op in 0..replacing_ops(seed) {
            let files = with_record(seed);
            files.fail_at(files.ops() + op);
            assert_eq!(replace_record(&files), Err(Errno::IO), "seed {seed}, operation {op}");
            assert!(read(&files) == [0; 5_000], "seed {seed}, operation {op}");
            replace_record(&files).unwrap();
            assert!(read(&files) == [1; 20_000], "seed {seed}, operation {op}");
        }
    }
}

#[test]
fn a_name_survives_for_certain_only_when_its_folder_was_synced() {
    let [folder, file] = ["/folder", "/folder/file"].map(Path::new);
    let steps: [&dyn Fn(&SimFiles); 5] = [
        &|files| files.mkdir(folder, Mode::RWXU).unwrap(),
        &|files| {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
            let opened = files.open(file, flags, Mode::RUSR).unwrap();
            retry_on_intr(|| opened.fsync()).unwrap();
        },
        &|files| sync_parent(files, file).unwrap(),
        &|files| sync_parent(files, folder).unwrap(),
        &|files| files.unlink(file).unwrap(),
    ];
    // The number of 100 power cuts after so many steps that leave the name.
    let left = |count, path| {
        let files = SimFiles::new(1);
        steps[..count].iter().for_each(|step| step(&files));
        let is_left =
            |seed: &u64| files.power_cycle(*seed).open(path, OFlags::RDONLY, Mode::empty()).is_ok();
        (0..100).filter(is_left).count()
    };
    assert!((1..100).contains(&left(2, folder)) && (1..100).contains(&left(2, file)));
    // The folder's own name may be lost, and what lies in it with it.
    assert!((1..100).contains(&left(3, folder)) && left(3, file) == left(3, folder));
    assert_eq!((left(4, folder), left(4, file)), (100, 100));
    assert!((1..100).contains(&left(5, file)) && left(5, folder) == 100);
}

#[test]
fn the_parent_of_a_bare_name_is_the_current_folder() {
    assert_eq!(parent(Path::new("image")), Path::new("."));
    assert_eq!(parent(Path::new("a/image")), Path::new("a"));
}

fn read(files: &SimFiles) -> Vec<u8> {
    let file = files.open(Path::new(RECORD), OFlags::RDONLY, Mode::empty()).unwrap();
    let mut bytes = vec![0; file.end_bytes().unwrap() as usize];
    let mut done = 0;
    while done < bytes.len() {
        done += retry_on_intr(|| file.pread(&mut bytes[done..], done as u64)).unwrap();
    }
    bytes
}
