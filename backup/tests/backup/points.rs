//! What a restore point names is checked before it is believed, a point is chosen by its time, and
//! what was shipped by an earlier run is taken over only if the image still has it.

use std::sync::Arc;

use perdura_backup::{
    BackupError, Planted, PointName, Retention, Seal, Shipper, Source, Vault, choose, list,
    restore_to, verify,
};
use perdura_media::{Clock, SimDevice};

use crate::machine::{Machine, Memory, claim, key};

/// Offset of the number of the last frame in the body of a point, as docs/backup.md draws it.
const LAST_SEQ_AT: usize = 56;
/// Offset of the number of packs.
const PACKS_AT: usize = 92;
const TABLES_AT: usize = 164;
const PACK_BYTES: usize = 20;
/// Bytes of the last piece's checksum of its frames' headers, the end of a point.
const CHAIN_BYTES: usize = 8;

pub fn ship<'v>(vault: &'v dyn Vault, source: &Source<'_>) -> Shipper<'v> {
    let writer = claim(vault, source).unwrap();
    Shipper::new(vault, Seal::default(), source, writer, Planted::None).unwrap()
}

/// Changes the body of an object and seals it again, as somebody may who has no image's key.
pub fn forge(memory: &Memory, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let seal = Seal::default();
    let mut body = seal.open(name, memory.get(name).unwrap()).unwrap();
    change(&mut body);
    memory.change(name, |bytes| *bytes = seal.seal(name, &body));
}

pub fn forge_point(memory: &Memory, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
    forge(memory, name, |body| {
        let mut bytes = lz4_flex::decompress_size_prepended(body).unwrap();
        change(&mut bytes);
        *body = lz4_flex::compress_prepend_size(&bytes);
    });
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().unwrap())
}

#[test]
fn objects_that_are_sealed_anew_and_wrong_are_found_without_the_images_key() {
    let (machine, memory) = (Machine::new(1), Memory::default());
    machine.write(100);
    machine.checkpoint();
    let source = Source::new(&*machine.device, Some(&key())).unwrap();
    ship(&memory, &source).pass(&source, &*machine.clock).unwrap().unwrap();
    let point = list(&memory, None).unwrap().remove(0);
    let name = point.as_str();
    let whole = memory.objects.lock().clone();
    let seal = Seal::default();
    let expect = |why: &str| {
        let error = verify(&memory, &seal, &point, &mut |_, _| {}).unwrap_err();
        assert!(matches!(error, BackupError::Object { .. }), "{error}");
        assert!(error.to_string().contains(why), "{error}");
        memory.objects.lock().clone_from(&whole);
    };
    verify(&memory, &seal, &point, &mut |_, _| {}).unwrap();
    // A byte of encrypted payload, of which only the image's key would tell.
    let pack = memory.names().into_iter().find(|name| name.contains("packs")).unwrap();
    forge(&memory, &pack, |body| body[100] ^= 1);
    expect("has a wrong checksum");
    forge_point(&memory, name, |bytes| {
        let last_seq = word(bytes, LAST_SEQ_AT) - 1;
        bytes[LAST_SEQ_AT..LAST_SEQ_AT + 8].copy_from_slice(&last_seq.to_le_bytes());
    });
    expect("which is not of this commit");
    forge_point(&memory, name, |bytes| {
        let at = bytes.len() - CHAIN_BYTES;
        bytes[at] ^= 1;
    });
    expect("ends elsewhere than it should");
    // The first segment is said to be a page shorter than its pieces.
    forge_point(&memory, name, |bytes| {
        let packs = word(bytes, PACKS_AT) as u32 as usize;
        let at = TABLES_AT + packs * PACK_BYTES + 4;
        let used_bytes = word(bytes, at) as u32 - 4096;
        bytes[at..at + 4].copy_from_slice(&used_bytes.to_le_bytes());
    });
    expect("is not complete");
    // The point of one moment by the name of another, and each with a right seal.
    let body = seal.open(name, memory.get(name).unwrap()).unwrap();
    let later = name.replace("/points/1970", "/points/2001");
    memory.put(&later, &seal.seal(&later, &body)).unwrap();
    let point = list(&memory, None).unwrap().remove(1);
    let error = verify(&memory, &seal, &point, &mut |_, _| {}).unwrap_err();
    assert!(error.to_string().contains("the point of another name"), "{error}");
}

#[test]
fn the_newest_point_at_a_time_or_before_it_is_chosen_and_of_one_image() {
    let memory = Memory::default();
    let put = |image: u64, second: u64| {
        let name = format!(
            "image-{image:016x}/points/20010909T0146{second:02}.000Z-{second:016x}-00000000"
        );
        memory.put(&name, b"").unwrap();
    };
    let ms = |second: u64| 1_000_000_000_000 - 40_000 + second * 1000;
    for second in [40, 42, 44] {
        put(7, second);
    }
    let at = |image, unix_ms| choose(&memory, image, unix_ms).map(|point| point.commit);
    assert_eq!(at(None, None).unwrap(), 44);
    assert_eq!(at(None, Some(ms(44))).unwrap(), 44);
    assert_eq!(at(None, Some(ms(44) - 1)).unwrap(), 42);
    assert_eq!(at(None, Some(ms(42))).unwrap(), 42);
    assert_eq!(at(None, Some(ms(41))).unwrap(), 40);
    let early = at(None, Some(ms(40) - 1)).unwrap_err().to_string();
    assert!(early.contains("the first is 2001-09-09T01:46:40.000Z"), "{early}");
    // The points of several images are in one order, and one image is to be named.
    put(8, 41);
    put(6, 43);
    let listed = list(&memory, None).unwrap();
    let commits: Vec<u64> = listed.iter().map(|point: &PointName| point.commit).collect();
    assert_eq!(commits, [40, 41, 42, 43, 44]);
    let several = at(None, None).unwrap_err().to_string();
    assert!(several.contains("0000000000000006, up to 2001-09-09T01:46:43.000Z"), "{several}");
    assert_eq!(at(Some(8), Some(ms(44))).unwrap(), 41);
}

#[test]
fn a_shipper_that_begins_anew_ships_what_has_changed_since() {
    let (machine, memory) = (Machine::new(2), Memory::default());
    let source = Source::new(&*machine.device, Some(&key())).unwrap();
    ship(&memory, &source).pass(&source, &*machine.clock).unwrap().unwrap();
    // Some changes need another segment, and some make one longer.
    for _ in 0..20 {
        machine.write(1);
        machine.checkpoint();
        let mut shipper = ship(&memory, &source);
        assert_eq!(shipper.newest(), None, "the newest commit is not in the vault");
        shipper.pass(&source, &*machine.clock).unwrap().unwrap();
    }
    for name in list(&memory, None).unwrap() {
        machine.compare(&memory, &Seal::default(), &name).unwrap();
    }
}

/// An image that was restored goes on with frames by the same numbers as the one it was made of.
#[test]
fn of_two_histories_of_one_image_each_ships_its_own_frames() {
    let (seal, memory) = (Seal::default(), Memory::default());
    let machine = Machine::new(3);
    machine.write(50);
    machine.checkpoint();
    let machine = machine.opened_anew(4);
    let ship_all = |machine: &Machine| {
        let source = Source::new(&*machine.device, Some(&key())).unwrap();
        let mut shipper = ship(&memory, &source);
        shipper.pass(&source, &*machine.clock).unwrap().unwrap();
        let newest = shipper.newest().unwrap().commit;
        let points = list(&memory, None).unwrap();
        points.into_iter().rfind(|point| point.commit == newest).unwrap()
    };
    let first = ship_all(&machine);
    let copy = Arc::new(SimDevice::new(0, 1));
    restore_to(&memory, &seal, &first, &copy, Some(&key())).unwrap();
    let go_on = |machine: &Machine, seed_ms: u64| {
        machine.clock.sleep_ns(seed_ms * 1_000_000);
        machine.write(20);
        machine.checkpoint();
    };
    // Both are opened as often as the other.
    let machine = machine.opened_anew(5);
    let other = Machine::on(copy, 6);
    go_on(&machine, 1_000);
    go_on(&other, 2_000_000);
    let mine = ship_all(&machine);
    machine.compare(&memory, &seal, &mine).unwrap();
    let others = ship_all(&other);
    other.compare(&memory, &seal, &others).unwrap();
    machine.compare(&memory, &seal, &mine).unwrap();
}

#[test]
fn a_pack_that_waits_for_its_point_is_kept() {
    let (machine, memory) = (Machine::new(7), Memory::default());
    let source = Source::new(&*machine.device, Some(&key())).unwrap();
    let mut shipper = ship(&memory, &source);
    shipper.pass(&source, &*machine.clock).unwrap().unwrap();
    machine.write(10);
    machine.checkpoint();
    // The pack is put, and then the vault fails for hours.
    *memory.left.lock() = Some(1);
    shipper.pass(&source, &*machine.clock).unwrap_err();
    *memory.left.lock() = None;
    machine.clock.sleep_ns(3 * 3600 * 1_000_000_000);
    let mut retention = Retention::new(std::time::Duration::from_secs(24 * 3600), Planted::None);
    let now = machine.clock.unix_ms();
    retention.tidy(&memory, &Seal::default(), source.image_id(), &shipper, now).unwrap();
    shipper.pass(&source, &*machine.clock).unwrap().unwrap();
    for name in list(&memory, None).unwrap() {
        machine.compare(&memory, &Seal::default(), &name).unwrap();
    }
}
