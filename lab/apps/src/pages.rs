//! The cost of a page by each way: the first write, another write, a read, and a durable write.
//!
//! Pages are objects of a pool, so each way treats them as it treats an application's data. Each
//! round opens the way anew, so that pages of a first write were never touched before. Capacity
//! memory, and malloc's for comparison, is one large allocation.

use std::hint::black_box;
use std::time::Instant;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use serde::Serialize;

use crate::access::{Access, ObjectId};
use crate::error::Result;
use crate::kinds::Random;
use crate::measure::median;
use crate::ways::{Places, Way};

const PAGE_BYTES: usize = 4096;
/// Only so many pages are written durably: to wait for a device at each page takes long.
const WAITED_FOR: usize = 16;

/// Median latencies over the rounds, in nanoseconds a page.
#[derive(Debug, Clone, Serialize)]
pub struct PageLatency {
    /// The way, or the memory of the way.
    pub of: String,
    /// First write to a page that was allocated and never touched.
    pub first_write_ns: u64,
    /// Another write, in random order.
    pub write_ns: u64,
    /// A read in random order; by block I/O it comes from the device.
    pub read_ns: u64,
    /// A write in random order with the way's wait for durability.
    pub durable_write_ns: Option<u64>,
}

/// Measures that many pages by all ways.
///
/// # Errors
/// A way fails.
pub fn measure(
    ways: &[Way],
    places: &Places,
    pages: usize,
    rounds: usize,
    seed: u64,
) -> Result<Vec<PageLatency>> {
    let mut order: Vec<usize> = (0..pages).collect();
    order.shuffle(&mut Random::seed_from_u64(seed));
    let heap_bytes = (8 * (pages * PAGE_BYTES) as u64 + (64 << 20)).next_multiple_of(2 << 20);
    let places = Places { heap_bytes, ..places.clone() };
    let mut found: Vec<(String, Vec<[Option<u64>; 4]>)> = Vec::new();
    for round in 0..rounds {
        let mut turn = Vec::new();
        for &way in ways {
            let access = way.open(&places)?;
            turn.push((way.name().to_owned(), objects(&*access, &order)?));
            if matches!(way, Way::Dram | Way::Heap) {
                turn.push((format!("{}, scratch", way.name()), scratch(&*access, &order)));
            }
        }
        for (at, (of, figures)) in turn.into_iter().enumerate() {
            if round == 0 {
                found.push((of, Vec::new()));
            }
            found[at].1.push(figures);
        }
    }
    Ok(found.into_iter().map(|(of, rounds)| of_rounds(of, &rounds)).collect())
}

fn of_rounds(of: String, rounds: &[[Option<u64>; 4]]) -> PageLatency {
    let figure = |at: usize| {
        let figures: Option<Vec<u64>> = rounds.iter().map(|figures| figures[at]).collect();
        figures.map(median)
    };
    PageLatency {
        of,
        first_write_ns: figure(0).unwrap_or(0),
        write_ns: figure(1).unwrap_or(0),
        read_ns: figure(2).unwrap_or(0),
        durable_write_ns: figure(3),
    }
}

/// Measures first write, another write, read, and durable write.
fn objects(access: &dyn Access, order: &[usize]) -> Result<[Option<u64>; 4]> {
    let mut page = [7u8; PAGE_BYTES];
    let mut pool = access.pool("pool-pages")?;
    let mut ids: Vec<ObjectId> = Vec::with_capacity(order.len());
    let first = per_page(order.len(), || {
        for _ in order {
            let id = pool.alloc(PAGE_BYTES)?;
            pool.write(id, 0, &page)?;
            ids.push(id);
        }
        Ok(())
    })?;
    page.fill(8);
    let again =
        per_page(order.len(), || order.iter().try_for_each(|&at| pool.write(ids[at], 0, &page)))?;
    pool.sync()?;
    access.settle()?;
    let read = per_page(order.len(), || {
        for &at in order {
            black_box(sum(pool.read(ids[at], 0, PAGE_BYTES)?));
        }
        Ok(())
    })?;
    let few = &order[..order.len().div_ceil(WAITED_FOR)];
    let durable = per_page(few.len(), || {
        for &at in few {
            pool.write(ids[at], 0, &page)?;
            pool.sync()?;
        }
        Ok(())
    })?;
    Ok([Some(first), Some(again), Some(read), Some(durable)])
}

/// Measures the same on one allocation in the place of the application's allocations.
fn scratch(access: &dyn Access, order: &[usize]) -> [Option<u64>; 4] {
    let page = [7u8; PAGE_BYTES];
    let scratch = access.scratch();
    let _entered = scratch.enter();
    let mut all: Vec<u8> = Vec::with_capacity(order.len() * PAGE_BYTES);
    let began = Instant::now();
    for _ in order {
        all.extend_from_slice(&page);
    }
    let first = each(began, order.len());
    let began = Instant::now();
    for &at in order {
        all[at * PAGE_BYTES..][..PAGE_BYTES].copy_from_slice(&page);
    }
    let again = each(began, order.len());
    let began = Instant::now();
    for &at in order {
        black_box(sum(&all[at * PAGE_BYTES..][..PAGE_BYTES]));
    }
    let read = each(began, order.len());
    [Some(first), Some(again), Some(read), None]
}

/// Reads every word of a page.
fn sum(page: &[u8]) -> u64 {
    let words = page.as_chunks().0.iter().map(|&word| u64::from_le_bytes(word));
    words.fold(0, u64::wrapping_add)
}

fn per_page(pages: usize, call: impl FnOnce() -> Result<()>) -> Result<u64> {
    let began = Instant::now();
    call()?;
    Ok(each(began, pages))
}

fn each(began: Instant, pages: usize) -> u64 {
    (began.elapsed().as_nanos() / pages.max(1) as u128) as u64
}
