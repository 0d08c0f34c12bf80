//! Names after power cuts: the real code that makes them durable, and the simulation's own rules.

use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use crate::file::{parent, replace, sync_parent};
use crate::sim::SimFiles;
use crate::sys::{FileSystem, OpenFile};

const OUTCOMES: u64 = 8;

#[test]
fn a_replaced_file_is_old_or_new_after_every_power_cut() {
    let (path, old, new) = (Path::new("/record"), b"the old record", b"a new record, longer");
    for cut in 0.. {
        let files = SimFiles::new(cut);
        replace(&files, path, old).unwrap();
        sync_parent(&files, path).unwrap();
        files.cut_after(files.ops() + cut);
        let replaced = replace(&files, path, new);
        for outcome in 0..OUTCOMES {
            let found = read(&files.power_cycle(outcome), path).unwrap();
            assert!(found == old || found == new, "cut {cut}, outcome {outcome}: {found:?}");
        }
        if replaced.is_ok() {
            assert_eq!(cut, 4, "operations: create, write, sync and rename");
            return;
        }
    }
}

#[test]
fn a_failure_while_a_file_is_replaced_is_reported_and_harmless() {
    let path = Path::new("/record");
    for op in 0..4 {
        let files = SimFiles::new(op);
        replace(&files, path, b"old").unwrap();
        files.fail_at(files.ops() + op);
        assert_eq!(replace(&files, path, b"new"), Err(Errno::IO), "operation {op}");
        assert_eq!(read(&files, path).unwrap(), b"old");
        replace(&files, path, b"newer").unwrap();
        assert_eq!(read(&files, path).unwrap(), b"newer");
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

fn read(files: &SimFiles, path: &Path) -> Result<Vec<u8>, Errno> {
    let file = files.open(path, OFlags::RDONLY, Mode::empty())?;
    let mut bytes = vec![0; file.end_bytes()? as usize];
    while file.pread(&mut bytes, 0) == Err(Errno::INTR) {}
    Ok(bytes)
}
