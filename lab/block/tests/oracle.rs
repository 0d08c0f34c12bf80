//! Random operations of several connections, compared with a plain array of bytes.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test's own failure

mod common;

use std::collections::HashMap;
use std::sync::Arc;

use common::{Client, Served};
use perdura_block::nbd::wire::{command, command_flag};
use perdura_block::scripted::Scripted;
use perdura_block::{Disk, ReadOnly};
use perdura_media::{Emulator, Pace, System};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const CAPACITY_BYTES: usize = 1 << 20;
const OPERATIONS: usize = 3000;

fn seed() -> u64 {
    let seed = std::env::var("PERDURA_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or(0x6e6264);
    println!("replay with PERDURA_SEED={seed}");
    seed
}

/// A random range, mostly aligned and mostly small.
fn range(random: &mut Xoshiro256PlusPlus) -> (usize, usize) {
    let (step, max) = if random.random_bool(0.7) { (4096, 8) } else { (1, 70_000) };
    let len = random.random_range(1..=max) * step;
    let start = random.random_range(0..=(CAPACITY_BYTES - len) / step) * step;
    (start, len)
}

/// One request at a time, on either of two connections: each sees the changes of the other.
fn compare(disk: Arc<dyn Disk>) {
    let served = Served::new(disk);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed());
    let mut clients: [Client; 2] = [served.client(), served.simple_client()];
    let mut oracle = vec![0u8; CAPACITY_BYTES];
    for number in 0..OPERATIONS {
        let client = &mut clients[random.random_range(0..2)];
        let (start, len) = range(&mut random);
        let flags = if random.random_bool(0.2) { command_flag::FUA } else { 0 };
        let place = start..start + len;
        match random.random_range(0..10) {
            0..4 => {
                let found = client.read(start as u64, len as u32).unwrap();
                assert!(found == oracle[place], "operation {number}: read of {len} at {start}");
            }
            4..8 => {
                let mut data = vec![0; len];
                random.fill(&mut data[..]);
                client.ask(command::WRITE, flags, start as u64, len as u32, &data).unwrap();
                oracle[place].copy_from_slice(&data);
            }
            8 => {
                let kind = [0, command_flag::NO_HOLE, command_flag::FAST_ZERO];
                let flags = flags | kind[random.random_range(0..3)];
                client.ask(command::WRITE_ZEROES, flags, start as u64, len as u32, b"").unwrap();
                oracle[place].fill(0);
            }
            _ => {
                client.ask(command::TRIM, flags, start as u64, len as u32, b"").unwrap();
                oracle[place].fill(0);
                client.ask(command::FLUSH, 0, 0, 0, b"").unwrap();
            }
        }
    }
    assert!(clients[0].read(0, CAPACITY_BYTES as u32).unwrap() == oracle);
}

#[test]
fn operations_in_turn_leave_what_a_byte_array_has() {
    compare(Arc::new(Scripted::new(CAPACITY_BYTES)));
}

#[test]
fn an_emulated_medium_leaves_what_a_byte_array_has() {
    let system = System::find("pcie-pcm").unwrap();
    let emulator = Emulator::anonymous(&system, CAPACITY_BYTES as u64, Pace::Real).unwrap();
    compare(Arc::new(emulator));
}

/// With many requests under way, answered in any order, the requests of one connection take effect
/// in the order in which it sent them.
#[test]
fn requests_under_way_take_effect_in_their_order() {
    let disk = Arc::new(Scripted::new(CAPACITY_BYTES));
    let served = Served::new(Arc::clone(&disk) as Arc<dyn Disk>);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed());
    let mut client = served.client();
    let mut oracle = vec![0u8; CAPACITY_BYTES];
    for _ in 0..60 {
        disk.take_ns(random.random_range(0..200_000), random.random_range(0..200_000));
        let mut expected = HashMap::new();
        for _ in 0..random.random_range(1..40) {
            let (start, len) = range(&mut random);
            if random.random_bool(0.5) {
                let data = vec![random.random(); len];
                let cookie = client.send(command::WRITE, 0, start as u64, len as u32, &data);
                oracle[start..start + len].copy_from_slice(&data);
                expected.insert(cookie, Vec::new());
            } else {
                let len = len.min(8192);
                let cookie = client.send(command::READ, 0, start as u64, len as u32, b"");
                expected.insert(cookie, oracle[start..start + len].to_vec());
            }
        }
        while !expected.is_empty() {
            let (cookie, found) = client.answer(0);
            let wanted = expected.remove(&cookie).expect("each request is answered once");
            assert!(found.unwrap() == wanted, "request {cookie}");
        }
    }
    assert!(disk.snapshot() == oracle);
}

#[test]
fn a_read_only_disk_can_be_read_and_nothing_else() {
    let inner = Arc::new(Scripted::new(CAPACITY_BYTES));
    inner.write(0, b"as it was").unwrap();
    let served = Served::new(Arc::new(ReadOnly(Arc::clone(&inner) as Arc<dyn Disk>)));
    let mut client = served.client();
    let before = inner.snapshot();
    let eperm = Err(1);
    assert_eq!(client.flags & 2, 2);
    assert_eq!(client.write(0, b"changed"), eperm);
    assert_eq!(client.ask(command::TRIM, 0, 0, 4096, b""), eperm);
    assert_eq!(client.ask(command::WRITE_ZEROES, 0, 0, 4096, b""), eperm);
    assert_eq!(client.read(0, 9).unwrap(), b"as it was");
    assert!(inner.snapshot() == before);
}
