//! Images in files that are made of restore points.

use std::path::Path;

use perdura_backup::{PointName, Seal, Source, Vault, WarmCopy, list, restore, verify};
use perdura_media::FileDevice;
use perdura_media::file::{Direct, Engine, OpenMode};
use tempfile::TempDir;
use xxhash_rust::xxh3::xxh3_64;

use crate::machine::{Machine, Memory, key};
use crate::points::{forge, forge_point, ship};

/// Bytes of a piece in the body of a point, as docs/backup.md draws it.
const PIECE_BYTES: usize = 40;

fn open(path: &Path) -> FileDevice {
    FileDevice::open(path, OpenMode::ReadOnly, Engine::Pwrite, Direct::Auto).unwrap()
}

fn newest(vault: &dyn Vault) -> PointName {
    list(vault, None).unwrap().pop().unwrap()
}

#[test]
fn a_warm_copy_is_one_point_after_the_other_while_segments_are_used_anew() {
    let (machine, memory, seal) = (Machine::new(5), Memory::default(), Seal::default());
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("copy");
    let source = Source::new(&*machine.device, Some(&key())).unwrap();
    let mut shipper = ship(&memory, &source);
    let mut copy: Option<WarmCopy> = None;
    for _ in 0..6 {
        machine.write(2500);
        machine.checkpoint();
        shipper.pass(&source, &*machine.clock).unwrap().unwrap();
        let name = newest(&memory);
        match &mut copy {
            Some(copy) => copy.apply(&memory, &seal, &name, &mut |_, _| {}).unwrap(),
            None => {
                let key = key();
                let progress = &mut |_, _| {};
                copy = WarmCopy::new(&memory, &seal, &name, &path, Some(&key), progress).ok();
            }
        }
        assert_eq!(copy.as_ref().unwrap().newest().1, name.commit);
        machine.compare_copy(&open(&path), &name);
    }
}

#[test]
fn a_restore_makes_a_whole_image_or_none_and_never_another_in_its_place() {
    let (machine, memory, seal) = (Machine::new(1), Memory::default(), Seal::default());
    let dir = TempDir::new().unwrap();
    let source = Source::new(&*machine.device, Some(&key())).unwrap();
    machine.write(50);
    machine.checkpoint();
    ship(&memory, &source).pass(&source, &*machine.clock).unwrap().unwrap();
    let name = newest(&memory);
    let path = dir.path().join("image");
    let make = || restore(&memory, &seal, &name, &path, Some(&key()), &mut |_, _| {});
    make().unwrap();
    machine.compare_copy(&open(&path), &name);
    let again = make().unwrap_err().to_string();
    assert!(again.contains("is there already"), "{again}");
    std::fs::remove_file(&path).unwrap();
    // Only the image's key tells that a byte of payload in the last piece is another.
    let mut range = 0..0;
    forge_point(&memory, name.as_str(), |bytes| {
        let half = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().unwrap()) as usize;
        let piece = bytes.len() - PIECE_BYTES;
        range = half(piece + 4)..half(piece + 4) + half(piece + 8);
    });
    let pack = memory.names().into_iter().find(|name| name.contains("packs")).unwrap();
    let forge_piece = |change: &dyn Fn(&mut [u8])| {
        let mut sum = 0;
        forge(&memory, &pack, |body| {
            change(&mut body[range.clone()]);
            sum = xxh3_64(&body[range.clone()]);
        });
        forge_point(&memory, name.as_str(), |bytes| {
            let at = bytes.len() - 16;
            bytes[at..at + 8].copy_from_slice(&sum.to_le_bytes());
        });
    };
    forge_piece(&|piece| piece[100] ^= 1);
    verify(&memory, &seal, &name, &mut |_, _| {}).unwrap();
    make().unwrap_err();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "something was left");
    // The tables of a frame, which end it, have a checksum that needs no key.
    forge_piece(&|piece| {
        let last = piece.iter().rposition(|byte| *byte != 0).unwrap();
        piece[last] ^= 0x80;
    });
    let error = verify(&memory, &seal, &name, &mut |_, _| {}).unwrap_err().to_string();
    assert!(error.contains("has a frame that is not whole"), "{error}");
}
