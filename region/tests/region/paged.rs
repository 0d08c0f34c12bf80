//! Paged memory keeps what was stored in it, and never has more in DRAM than its cap.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use perdura_media::emulator::{Emulator, Pace};
use perdura_media::model::Model;
use perdura_media::profile::System;
use perdura_media::recording::{Kind, replay};
use perdura_region::paged::{PagedConfig, PagedError, PagedMemory, PlantedPaging};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

const PAGE: u64 = 4096;

fn medium(name: &str, len_bytes: u64, pace: Pace) -> Arc<Emulator> {
    let system = System::find(name).unwrap();
    Arc::new(Emulator::anonymous(&system, len_bytes, pace).unwrap())
}

fn open(config: &PagedConfig) -> PagedMemory {
    PagedMemory::open(config, medium("pcie-pcm", config.len_bytes, Pace::Virtual)).unwrap()
}

/// A word of the memory, which any thread may use.
fn word(memory: &PagedMemory, index: u64) -> &AtomicU64 {
    assert!(index * 8 < memory.len_bytes());
    // SAFETY: the word is inside the memory and aligned; any bytes are valid in an atomic, and
    // threads may share it.
    unsafe { &*memory.base().wrapping_add((index * 8) as usize).cast() }
}

/// Compares random loads and stores with an array. Returns the first difference.
fn random_course(seed: u64, planted: PlantedPaging) -> Result<(), String> {
    let mut random = Random::seed_from_u64(seed);
    let fault_pages = 1 << random.random_range(0..4);
    let unit = u64::from(fault_pages) * PAGE;
    let units = random.random_range(2..60);
    let resident = random.random_range(1..units);
    let inactive_percent = [0, 25, 60][random.random_range(0..3)];
    let len_bytes = units * unit;
    let config = PagedConfig {
        fault_pages,
        inactive_percent,
        planted,
        ..PagedConfig::new(len_bytes, resident * unit)
    };
    let memory = open(&config);
    let mut shadow = vec![0u64; (len_bytes / 8) as usize];
    for step in 0..3000u64 {
        // Most touches go to a few places, so that units become inactive and are reactivated.
        let among = if random.random_range(0..3) > 0 { units.min(resident + 2) } else { units };
        let index = random.random_range(0..among * unit / 8);
        match random.random_range(0..200) {
            0 => {
                let first = random.random_range(0..len_bytes);
                let len = random.random_range(0..=(len_bytes - first).min(3 * unit));
                memory.discard(first, len).unwrap();
                let bytes: &mut [u8] = bytes_of(&mut shadow);
                bytes[first as usize..(first + len) as usize].fill(0);
            }
            1..100 => {
                word(&memory, index).store(step | seed << 32, Relaxed);
                shadow[index as usize] = step | seed << 32;
            }
            _ => {
                let (found, expected) =
                    (word(&memory, index).load(Relaxed), shadow[index as usize]);
                if found != expected {
                    return Err(format!(
                        "step {step}: word {index} is {found:#x}, not {expected:#x}"
                    ));
                }
            }
        }
        if step % 512 == 0 {
            let entered_bytes = memory.entered_bytes().unwrap();
            assert!(entered_bytes <= resident * unit, "seed {seed}: {entered_bytes} bytes entered");
        }
    }
    let stats = memory.stats();
    assert!(stats.resident_bytes_max <= resident * unit, "seed {seed}: {stats:?}");
    let wrong = (0..shadow.len()).find(|i| word(&memory, *i as u64).load(Relaxed) != shadow[*i]);
    wrong.map_or(Ok(()), |index| Err(format!("word {index} is wrong in the end")))
}

fn bytes_of(words: &mut [u64]) -> &mut [u8] {
    // SAFETY: the words are the same bytes, and any bytes are a valid word.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), words.len() * 8) }
}

#[test]
fn it_holds_what_an_array_would_hold() {
    for seed in 0..40 {
        if let Err(wrong) = random_course(seed, PlantedPaging::None) {
            panic!("seed {seed}: {wrong}");
        }
    }
}

#[test]
fn a_victim_whose_dirty_bit_is_forgotten_is_caught() {
    let caught =
        (0..40).filter(|seed| random_course(*seed, PlantedPaging::ForgetDirtyVictim).is_err());
    assert!(caught.count() > 0, "no seed lost a store");
}

#[test]
fn four_threads_store_into_the_same_pages_and_the_cap_holds() {
    const THREADS: u64 = 4;
    for (seed, fault_pages, inactive_percent) in [(1, 1, 0), (2, 1, 25), (3, 4, 25), (4, 1, 50)] {
        let len_bytes = 96 * PAGE;
        let cap_bytes = 20 * PAGE;
        let config =
            PagedConfig { fault_pages, inactive_percent, ..PagedConfig::new(len_bytes, cap_bytes) };
        let memory = open(&config);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let mut looks = 0;
                while !stop.load(Relaxed) || looks == 0 {
                    let entered_bytes = memory.entered_bytes().unwrap();
                    assert!(entered_bytes <= cap_bytes, "seed {seed}: {entered_bytes} entered");
                    looks += 1;
                }
            });
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let memory = &memory;
                    scope.spawn(move || {
                        let mut random = Random::seed_from_u64(seed * 100 + thread);
                        let mut shadow = vec![0; (len_bytes / 8 / THREADS) as usize];
                        for step in 1..6000 {
                            let mine = random.random_range(0..shadow.len());
                            let word = word(memory, mine as u64 * THREADS + thread);
                            assert_eq!(word.load(Relaxed), shadow[mine], "seed {seed}, {thread}");
                            if random.random() {
                                word.store(step, Relaxed);
                                shadow[mine] = step;
                            }
                        }
                    })
                })
                .collect();
            let ends: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
            stop.store(true, Relaxed);
            watcher.join().unwrap();
            assert!(ends.into_iter().all(|end| end.is_ok()));
        });
        let stats = memory.stats();
        assert!(stats.resident_bytes_max <= cap_bytes, "seed {seed}: {stats:?}");
        assert!(stats.page_outs > 0 && stats.page_ins > 0, "{stats:?}");
    }
}

#[test]
fn threads_that_touch_one_page_at_once_page_it_in_once() {
    let memory = open(&PagedConfig::new(64 * PAGE, 8 * PAGE));
    let barrier = Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for page in 0..64 {
                    barrier.wait();
                    word(&memory, page * 512).fetch_add(1, Relaxed);
                }
            });
        }
    });
    assert_eq!(memory.stats().misses, 64);
    for page in 0..64 {
        assert_eq!(word(&memory, page * 512).load(Relaxed), 4);
    }
}

/// The accesses of the medium by first-in-first-out paging of whole pages, computed naively.
fn naive_course(touches: &[(u64, bool)], cap: usize) -> Vec<(Kind, u64)> {
    let mut asked = vec![];
    let mut stored = std::collections::BTreeSet::new();
    let mut queue: VecDeque<(u64, bool)> = VecDeque::new();
    for (page, is_store) in touches {
        if let Some(found) = queue.iter_mut().find(|resident| resident.0 == *page) {
            found.1 |= is_store;
            continue;
        }
        if queue.len() == cap {
            let (gone, is_dirty) = queue.pop_front().unwrap();
            if is_dirty {
                asked.push((Kind::Write, gone * PAGE));
                stored.insert(gone);
            }
        }
        if stored.contains(page) {
            asked.push((Kind::Read, page * PAGE));
        }
        queue.push_back((*page, *is_store));
    }
    asked
}

#[test]
fn the_medium_is_asked_exactly_what_a_naive_pager_would_ask() {
    for seed in 0..8 {
        let mut random = Random::seed_from_u64(seed);
        let touches: Vec<(u64, bool)> = (0..1500)
            .map(|_| (random.random_range(0..40), random.random_range(0..3) == 0))
            .collect();
        let config = PagedConfig {
            inactive_percent: 0,
            steps_max: 10_000,
            ..PagedConfig::new(40 * PAGE, 13 * PAGE)
        };
        let medium = medium("pcie-pcm", config.len_bytes, Pace::Virtual);
        let memory = PagedMemory::open(&config, Arc::clone(&medium)).unwrap();
        for (page, is_store) in &touches {
            match is_store {
                true => word(&memory, page * 512).store(1, Relaxed),
                false => assert!(word(&memory, page * 512).load(Relaxed) <= 1),
            }
        }
        let recorded = memory.take_recorded();
        let asked: Vec<_> = recorded.steps.iter().map(|s| (s.kind, s.offset_bytes)).collect();
        assert_eq!(asked, naive_course(&touches, 13), "seed {seed}");
        assert_eq!(recorded.left_out, 0);
        let stats = memory.stats();
        let count = |kind| asked.iter().filter(|step| step.0 == kind).count() as u64;
        assert_eq!((stats.page_ins, stats.page_outs), (count(Kind::Read), count(Kind::Write)));

        // The virtual clock has gone on by the time of a replay without computing time.
        let steps: Vec<_> = recorded
            .steps
            .iter()
            .map(|step| perdura_media::recording::Step { think_ps: 0, ..*step })
            .collect();
        let model = Model::new(&System::find("pcie-pcm").unwrap(), config.len_bytes);
        let elapsed_ps = replay(&steps, &model).elapsed_ps;
        assert!(medium.is_due(medium.now()), "seed {seed}");
        assert_eq!(elapsed_ps, medium.now().ps(), "seed {seed}");
    }
}

#[test]
fn a_recording_stops_at_its_bound_and_counts_the_rest() {
    let config = PagedConfig { steps_max: 5, ..PagedConfig::new(40 * PAGE, 4 * PAGE) };
    let memory = open(&config);
    for round in 0..2 {
        for page in 0..40 {
            word(&memory, page * 512).store(round, Relaxed);
        }
    }
    let stats = memory.stats();
    let recorded = memory.take_recorded();
    assert_eq!(recorded.steps.len(), 5);
    assert_eq!(recorded.left_out, stats.page_ins + stats.page_outs - 5);
    assert_eq!(memory.take_recorded().steps.len(), 0);
}

#[test]
fn at_real_pace_a_miss_takes_what_the_model_says() {
    let config = PagedConfig {
        inactive_percent: 0,
        steps_max: 1000,
        ..PagedConfig::new(64 * PAGE, 8 * PAGE)
    };
    let medium = medium("pcie-pcm", config.len_bytes, Pace::Real);
    let memory = PagedMemory::open(&config, medium).unwrap();
    (0..64).for_each(|page| word(&memory, page * 512).store(page, Relaxed));
    (0..64).for_each(|page| assert_eq!(word(&memory, page * 512).load(Relaxed), page));
    let stats = memory.stats();
    let recorded = memory.take_recorded();
    let model = Model::new(&System::find("pcie-pcm").unwrap(), config.len_bytes);
    let modelled_ns = replay(&recorded.steps, &model).medium_ps / 1000;
    assert_eq!((stats.page_ins, stats.page_outs), (64, 56 + 8));
    assert!(stats.waited_ns >= modelled_ns * 99 / 100, "{stats:?}, modelled {modelled_ns} ns");
    assert!(stats.handler_ns >= stats.waited_ns);
}

#[test]
fn a_system_call_on_a_page_that_is_not_in_dram_fails_and_changes_nothing() {
    let memory = open(&PagedConfig::new(8 * PAGE, 2 * PAGE));
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    rustix::io::write(&writer, &7u64.to_le_bytes()).unwrap();
    let read = || {
        // SAFETY: the eight bytes are inside the memory, and nobody else uses them.
        let bytes = unsafe { std::slice::from_raw_parts_mut(memory.base(), 8) };
        rustix::io::read(&reader, bytes)
    };
    assert_eq!(read(), Err(rustix::io::Errno::FAULT));
    // After a touch the page is in DRAM.
    word(&memory, 0).store(1, Relaxed);
    assert_eq!(read(), Ok(8));
    assert_eq!(word(&memory, 0).load(Relaxed), 7);
}

#[test]
fn settings_that_cannot_work_are_refused_by_name() {
    let good = PagedConfig::new(64 * PAGE, 8 * PAGE);
    let refused = |config: PagedConfig| {
        let medium = medium("pcie-pcm", 64 * PAGE, Pace::Virtual);
        PagedMemory::open(&config, medium).unwrap_err()
    };
    for (config, word) in [
        (PagedConfig { fault_pages: 3, ..good.clone() }, "fault_pages = 3"),
        (PagedConfig { fault_pages: 1024, ..good.clone() }, "fault_pages = 1024"),
        (PagedConfig { len_bytes: 100, ..good.clone() }, "len_bytes = 100"),
        (PagedConfig { resident_bytes: 4095, ..good.clone() }, "resident_bytes = 4095"),
        (PagedConfig { inactive_percent: 91, ..good.clone() }, "inactive_percent = 91"),
    ] {
        let message = refused(config).to_string();
        assert!(message.contains(word), "{message}");
    }
    let larger = PagedConfig { len_bytes: 65 * PAGE, ..good };
    assert!(matches!(refused(larger), PagedError::SmallMedium { .. }));
}
