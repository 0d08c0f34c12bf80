//! What a trap costs in a process alone, beside a holder, and with a guard: the first store to each
//! page after a checkpoint.
//!
//! `cargo run --release -p perdura-cli --example guarded_traps -- DIR [ROUNDS]`, after
//! `cargo build --release`.

#![allow(clippy::unwrap_used, clippy::expect_used)] // an example: it may end at the first error

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use perdura::{Durability, Holder, Options, TrappedRegion};

const PAGE_BYTES: u64 = 4096;
const PAGES: u64 = 16_384;
/// Rounds that are not counted.
const WARM_UP: usize = 2;

/// Kills the guard's parent at the end, and the guard ends with it.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let dir = PathBuf::from(words.first().expect("DIR [ROUNDS]"));
    let rounds: usize = words.get(1).map_or(20, |rounds| rounds.parse().unwrap());
    let perdura = std::env::current_exe().unwrap().with_file_name("../perdura");
    let socket = dir.join("guard.sock");
    std::fs::create_dir_all(&dir).unwrap();
    let _guard = start_guard(&perdura, &socket);
    let common = Options::new()
        .memory_bytes(PAGES * PAGE_BYTES)
        .warning(Duration::from_secs(30))
        .checkpoint_every(None)
        .durability(Durability::Warned);
    let ways = [
        ("alone", common.clone()),
        ("holder", common.clone().holder(Holder::perdura(&perdura))),
        ("guard", common.guard(&socket)),
    ];
    let opened = ways.map(|(name, options)| {
        (name, TrappedRegion::open_with(dir.join(name), &options).unwrap(), Vec::new())
    });
    let mut opened = opened;
    for round in 0..rounds + WARM_UP {
        let turn = round % opened.len();
        opened.rotate_left(turn);
        for (_, region, times) in &mut opened {
            let ns = nanoseconds_a_trap(region, round as u8);
            if round >= WARM_UP {
                times.push(ns);
            }
        }
    }
    let alone = opened.iter().find(|(name, ..)| *name == "alone").unwrap().2.clone();
    for (name, region, times) in opened {
        let ratios: Vec<f64> = times.iter().zip(&alone).map(|(one, base)| one / base).collect();
        println!("{name:7} {} ns a trap; beside alone {}", quartiles(&times), quartiles(&ratios));
        region.close().unwrap();
    }
}

fn start_guard(perdura: &Path, socket: &Path) -> Guard {
    let mut guard = Command::new(perdura);
    guard.args(["guard", "--socket"]).arg(socket).stdout(Stdio::null());
    let child = guard.spawn().unwrap();
    while !socket.exists() {
        std::thread::sleep(Duration::from_millis(20));
    }
    Guard(child)
}

fn nanoseconds_a_trap(region: &TrappedRegion, value: u8) -> f64 {
    // Every page traps again after it.
    region.checkpoint().unwrap();
    let began = Instant::now();
    for page in 0..PAGES {
        region.write(page * PAGE_BYTES, &[value; 8]).unwrap();
    }
    began.elapsed().as_nanos() as f64 / PAGES as f64
}

fn quartiles(values: &[f64]) -> String {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |share: usize| sorted[sorted.len() * share / 4];
    format!("{:.2} ({:.2} to {:.2})", at(2), at(1), at(3))
}
