//! Memory and ledger as files: they outlive a process that is killed, and are not used where they
//! could be old.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use perdura_media::RealClock;
use perdura_region::directory::{self, Directory, DirectoryError, IMAGE_NAME, Settings};
use perdura_region::{Config, LaneId, Origin, Region, RegionError};

use crate::directory::settings;

const MEMORY_BYTES: u64 = 4 << 20;

/// A directory, and one beside it for the memory.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        fs::create_dir(place.memory_dir()).unwrap();
        place
    }

    fn dir(&self) -> PathBuf {
        self.0.path().join("data")
    }

    fn memory_dir(&self) -> PathBuf {
        self.0.path().join("memory")
    }

    /// Where the files are.
    fn files(&self) -> PathBuf {
        fs::read_link(self.dir().join("memory")).unwrap()
    }

    fn open(&self) -> Directory {
        open(&self.dir(), Some(&self.memory_dir())).unwrap()
    }

    fn is_empty(&self) -> bool {
        fs::read_dir(self.memory_dir()).unwrap().next().is_none()
            && !self.dir().join("memory").is_symlink()
    }
}

fn open(dir: &Path, memory_dir: Option<&Path>) -> Result<Directory, DirectoryError> {
    let config = Config {
        reserved_bytes: Some(2 * MEMORY_BYTES),
        checkpoint_every: None,
        ..Config::new(MEMORY_BYTES, 1 << 20)
    };
    let memory_dir = memory_dir.map(Path::to_owned);
    let settings = Settings { config, memory_dir, ..settings(dir) };
    Directory::open(settings, Arc::new(RealClock), &|_, _| {})
}

fn write(region: &Region, offset: u64, bytes: &[u8]) -> Result<(), RegionError> {
    let mut credit = 0;
    loop {
        let written = region.lock_with(LaneId(0), credit).write(offset, bytes);
        match written {
            Ok(()) => return Ok(()),
            Err(need) => credit = region.satisfy(need)?,
        }
    }
}

fn read(region: &Region, offset: u64, len: usize) -> Vec<u8> {
    region.lock(LaneId(0)).bytes(offset, len).to_vec()
}

/// Ends the process, as far as the region sees: what is dirty stays so.
fn kill(directory: Directory) {
    drop(directory);
}

fn stop(directory: Directory, dir: &Path) {
    directory.region.close(1).unwrap();
    directory::end(&directory.region, dir);
}

#[test]
fn what_a_killed_process_had_dirty_is_there_and_a_stop_removes_the_files() {
    let place = Place::new();
    let mut directory = place.open();
    assert_eq!(directory.region.origin(), Origin::Created);
    for round in 1..4u8 {
        let offset = u64::from(round) * 100_000;
        write(&directory.region, offset, &[round; 50_000]).unwrap();
        assert!(directory.region.used_bytes() > 0, "nothing is dirty");
        kill(directory);
        directory = place.open();
        assert_eq!(directory.region.origin(), Origin::Attached);
        for earlier in 1..=round {
            let found = read(&directory.region, u64::from(earlier) * 100_000, 50_000);
            assert_eq!(found, [earlier; 50_000], "round {earlier} after {round}");
        }
    }
    stop(directory, &place.dir());
    assert!(place.is_empty());
    let directory = place.open();
    assert!(matches!(directory.region.origin(), Origin::Recovered { was_final: true, .. }));
    assert_eq!(read(&directory.region, 300_000, 50_000), [3; 50_000]);
}

#[test]
fn the_files_are_found_without_the_option_and_a_grown_region_has_its_space() {
    let place = Place::new();
    let directory = place.open();
    directory.region.grow(2 * MEMORY_BYTES).unwrap();
    let blocks = std::os::unix::fs::MetadataExt::blocks;
    let memory = fs::metadata(place.files().join("memory")).unwrap();
    assert!(blocks(&memory) * 512 >= 2 * MEMORY_BYTES, "space for {} bytes", blocks(&memory) * 512);
    write(&directory.region, 2 * MEMORY_BYTES - 64, &[9; 64]).unwrap();
    kill(directory);
    let directory = open(&place.dir(), None).unwrap();
    assert_eq!(directory.region.origin(), Origin::Attached);
    assert_eq!(directory.region.len_bytes(), 2 * MEMORY_BYTES);
    assert_eq!(read(&directory.region, 2 * MEMORY_BYTES - 64, 64), [9; 64]);
}

/// The image has 1 at its start, and memory that was left has 2.
fn left_with_two() -> Place {
    let place = Place::new();
    let directory = place.open();
    write(&directory.region, 0, &[1; 64]).unwrap();
    directory.region.checkpoint().unwrap();
    write(&directory.region, 0, &[2; 64]).unwrap();
    kill(directory);
    place
}

fn assert_is_of_the_image(place: &Place, why: &str) {
    let directory = place.open();
    assert!(matches!(directory.region.origin(), Origin::Recovered { .. }), "{why}");
    assert_eq!(read(&directory.region, 0, 64), [1; 64], "{why}");
    // The new files serve as well as the first ones.
    write(&directory.region, 0, &[3; 64]).unwrap();
    kill(directory);
    assert_eq!(read(&place.open().region, 0, 64), [3; 64], "{why}");
}

#[test]
fn memory_that_another_kernel_used_last_is_not_trusted() {
    let place = left_with_two();
    fs::write(place.files().join("boot"), "another\n").unwrap();
    assert_is_of_the_image(&place, "another boot");
    let place = left_with_two();
    fs::remove_file(place.files().join("boot")).unwrap();
    assert_is_of_the_image(&place, "no boot");
}

#[test]
fn memory_that_is_older_than_the_image_is_not_used() {
    let place = left_with_two();
    let link = place.dir().join("memory");
    let files = place.files();
    // A run that does not see the files.
    fs::remove_file(&link).unwrap();
    let directory = open(&place.dir(), None).unwrap();
    assert_eq!(read(&directory.region, 0, 64), [1; 64]);
    kill(directory);
    symlink(&files, &link).unwrap();
    assert_is_of_the_image(&place, "an older run");
}

#[test]
fn files_that_are_gone_cut_off_or_foreign_are_not_used() {
    for name in ["memory", "ledger"] {
        let place = left_with_two();
        fs::remove_file(place.files().join(name)).unwrap();
        assert_is_of_the_image(&place, name);
        let place = left_with_two();
        let file = fs::File::options().write(true).open(place.files().join(name)).unwrap();
        file.set_len(4096).unwrap();
        assert_is_of_the_image(&place, name);
    }
    let place = left_with_two();
    fs::remove_dir_all(place.memory_dir()).unwrap();
    fs::create_dir(place.memory_dir()).unwrap();
    assert_is_of_the_image(&place, "all are gone");
    let (place, other) = (left_with_two(), left_with_two());
    for name in ["memory", "ledger"] {
        fs::copy(other.files().join(name), place.files().join(name)).unwrap();
    }
    assert_is_of_the_image(&place, "of another image");
}

/// Each state in which a kill can leave a start before its last step.
#[test]
fn a_start_that_was_cut_off_leaves_nothing_that_is_used_or_stays() {
    let names = ["region", "boot", "memory", "ledger"];
    for made in 0..=names.len() {
        let place = Place::new();
        let directory = place.open();
        write(&directory.region, 0, &[1; 64]).unwrap();
        directory.region.checkpoint().unwrap();
        kill(directory);
        let files = place.files();
        fs::remove_file(place.dir().join("memory")).unwrap();
        for name in &names[made..] {
            fs::remove_file(files.join(name)).unwrap();
        }
        assert_is_of_the_image(&place, &format!("{made} steps were made"));
    }
}

/// Each state in which a kill can leave the removal at a stop.
#[test]
fn a_stop_that_was_cut_off_loses_nothing() {
    for removed in 0..5 {
        let place = Place::new();
        let directory = place.open();
        write(&directory.region, 0, &[1; 64]).unwrap();
        directory.region.close(1).unwrap();
        kill(directory);
        let files = place.files();
        for name in ["ledger", "memory", "boot", "region"].iter().take(removed) {
            fs::remove_file(files.join(name)).unwrap();
        }
        if removed == 4 {
            fs::remove_dir(&files).unwrap();
        }
        let directory = place.open();
        assert_eq!(read(&directory.region, 0, 64), [1; 64], "{removed} were removed");
        stop(directory, &place.dir());
        assert!(place.is_empty(), "{removed} were removed");
    }
}

#[test]
fn a_copy_of_a_directory_does_not_take_the_memory_of_the_first_one() {
    let place = left_with_two();
    let copy = place.0.path().join("copy");
    fs::create_dir(&copy).unwrap();
    fs::copy(place.dir().join(IMAGE_NAME), copy.join(IMAGE_NAME)).unwrap();
    let error = open(&copy, Some(&place.memory_dir())).err().unwrap().to_string();
    assert!(error.contains("is a copy of this one") && error.contains("delete"), "{error}");
    assert!(!copy.join("memory").is_symlink());
    let directory = place.open();
    assert_eq!(read(&directory.region, 0, 64), [2; 64]);
}

#[test]
fn a_link_to_something_else_is_refused_and_what_is_there_stays() {
    let place = left_with_two();
    let other = place.0.path().join("mine");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("memory"), "mine").unwrap();
    let link = place.dir().join("memory");
    fs::remove_file(&link).unwrap();
    symlink(&other, &link).unwrap();
    let error = open(&place.dir(), None).err().unwrap().to_string();
    assert!(error.contains("is not what this program links to"), "{error}");
    assert_eq!(fs::read_to_string(other.join("memory")).unwrap(), "mine");
}

#[test]
fn too_little_space_for_the_memory_is_told_and_leaves_nothing() {
    let place = Place::new();
    let run = |command: &mut Command| command.status().is_ok_and(|status| status.success());
    let mut tmpfs = Command::new("mount");
    tmpfs.args(["-t", "tmpfs", "-o", "size=2m", "perdura-test"]).arg(place.memory_dir());
    if !run(&mut tmpfs) {
        println!("skipped: cannot mount a small tmpfs");
        return;
    }
    let outcome = open(&place.dir(), Some(&place.memory_dir()));
    let left = fs::read_dir(place.memory_dir()).unwrap().count();
    assert!(run(Command::new("umount").arg(place.memory_dir())));
    let error = outcome.err().unwrap().to_string();
    assert!(error.contains("No space left"), "{error}");
    assert_eq!((left, place.dir().exists()), (0, false));
}
