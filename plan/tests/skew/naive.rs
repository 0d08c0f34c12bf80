//! The figures by plain sets, maps and queues of page writes. This oracle shares only the records
//! with the tested code.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use perdura_plan::trace::{Op, Record};
use serde_json::{Value, json};

type Page = (u32, u64);
type Pages = HashSet<Page, BuildHasherDefault<PageHasher>>;
type PageCounts = HashMap<Page, u64, BuildHasherDefault<PageHasher>>;

/// Hashes a page by a multiplication: the standard library's hashes took most of the tests' time.
#[derive(Default)]
struct PageHasher(u64);

impl Hasher for PageHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u32(&mut self, volume: u32) {
        self.write_u64(u64::from(volume));
    }

    fn write_u64(&mut self, page: u64) {
        self.0 = (self.0.rotate_left(29) ^ page).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}

/// The JSON that `Figures` must give, for one volume or for all.
pub fn figures(
    all: &[Record],
    start_ns: u64,
    volume: Option<u32>,
    windows_ns: &[u64],
    shares: &[u64],
) -> Value {
    let own: Vec<&Record> = all.iter().filter(|r| volume.is_none_or(|v| v == r.volume)).collect();
    let pages_of = |record: &Record| {
        let first = record.offset_bytes / 4096;
        let last = (record.offset_bytes + record.len_bytes - 1) / 4096;
        (first..=last).map(|page| (record.volume, page)).collect::<Vec<Page>>()
    };
    let mut touched = Pages::default();
    let mut writes: Vec<(u64, Page)> = Vec::new();
    for record in &own {
        for page in pages_of(record) {
            touched.insert(page);
            if record.op == Op::Write {
                writes.push((record.time_ns - start_ns, page));
            }
        }
    }
    let mut counts = PageCounts::default();
    writes.iter().for_each(|(_, page)| *counts.entry(*page).or_default() += 1);
    let mut worst = serde_json::Map::new();
    for window_ns in windows_ns {
        let (adversarial, unique) = tumbling(&writes, *window_ns);
        let tumbling = json!({"adversarial_pages": adversarial, "unique_pages": unique});
        let (adversarial, unique) = sliding(&writes, *window_ns);
        let sliding = json!({"adversarial_pages": adversarial, "unique_pages": unique});
        worst.insert(key(*window_ns), json!({"tumbling": tumbling, "sliding": sliding}));
    }
    let mut hottest: Vec<u64> = counts.values().copied().collect();
    hottest.sort_unstable_by(|a, b| b.cmp(a));
    let mut skew = serde_json::Map::new();
    for share in shares {
        let (mut pages, mut taken) = (0u64, 0u64);
        while taken * 100 < share * writes.len() as u64 {
            taken += hottest[pages as usize];
            pages += 1;
        }
        skew.insert(share.to_string(), json!(pages));
    }
    json!({
        "records": own.len(), "touched_pages": touched.len(), "written_pages": counts.len(),
        "page_writes": writes.len(), "worst": worst, "skew_pages": skew,
    })
}

fn key(window_ns: u64) -> String {
    let text = format!("{}.{:09}", window_ns / 1_000_000_000, window_ns % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

fn tumbling(writes: &[(u64, Page)], window_ns: u64) -> (u64, usize) {
    let mut by_window: BTreeMap<u64, (u64, Pages)> = BTreeMap::new();
    for (time_ns, page) in writes {
        let window = by_window.entry(time_ns / window_ns).or_default();
        window.0 += 1;
        window.1.insert(*page);
    }
    let most = |of: fn(&(u64, Pages)) -> u64| by_window.values().map(of).max().unwrap_or(0);
    (most(|w| w.0), most(|w| w.1.len() as u64) as usize)
}

fn sliding(writes: &[(u64, Page)], window_ns: u64) -> (usize, usize) {
    let (mut queue, mut inside) = (VecDeque::new(), PageCounts::default());
    let (mut most, mut unique) = (0, 0);
    for (at, (time_ns, page)) in writes.iter().enumerate() {
        queue.push_back((*time_ns, *page));
        *inside.entry(*page).or_default() += 1;
        while let Some((old_ns, old)) = queue.front().copied()
            && old_ns + window_ns <= *time_ns
        {
            queue.pop_front();
            let left = inside.get_mut(&old).unwrap();
            *left -= 1;
            if *left == 0 {
                inside.remove(&old);
            }
        }
        // A window ends after the last write of its time.
        if writes.get(at + 1).is_none_or(|(next_ns, _)| next_ns != time_ns) {
            most = most.max(queue.len());
            unique = unique.max(inside.len());
        }
    }
    (most, unique)
}

/// The sliding windows once more, each written out by itself: what the queue above is compared
/// with.
pub fn sliding_written_out(writes: &[(u64, Page)], window_ns: u64) -> (usize, usize) {
    let inside = |end_ns: u64| {
        let kept = writes.iter().filter(move |(t, _)| *t <= end_ns && *t + window_ns > end_ns);
        kept.map(|(_, page)| *page)
    };
    let ends: Vec<u64> = writes.iter().map(|(time_ns, _)| *time_ns).collect();
    let most = ends.iter().map(|end| inside(*end).count()).max().unwrap_or(0);
    let unique = ends.iter().map(|end| inside(*end).collect::<Pages>().len()).max().unwrap_or(0);
    (most, unique)
}

/// The queue against the windows written out.
pub fn check_itself(writes: &[(u64, Page)], window_ns: u64) {
    assert_eq!(sliding(writes, window_ns), sliding_written_out(writes, window_ns));
}
