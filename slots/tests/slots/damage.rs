//! Damaged words: every word that no correct program writes is refused on open, by place and value.

use std::sync::Arc;

use perdura_media::SimClock;
use perdura_media::sim::SimDevice;
use perdura_region::{Config, Region};
use perdura_slots::check::region_bytes;
use perdura_slots::{Heap, HeapError, LaneId, LaneSet};

const REGION_BYTES: u64 = 8 << 20;
const BLOCK_BYTES: u64 = 64 << 10;
const SPAN_BYTES: u64 = 8 << 10;
const BLOCK_SPANS: u64 = BLOCK_BYTES / SPAN_BYTES;
const LANES: u16 = 3;
const LANE: LaneId = LaneId(0);

const AT_SPANS: u64 = 24;
const AT_TABLE: u64 = 4096;
/// Header and span table take one block, the two shard lanes one each.
const FIRST_SPAN: u64 = 3 * BLOCK_SPANS;
const LOG: u64 = BLOCK_BYTES;
/// Spans of the large object in the image, and the span of the run behind it.
const LARGE_SPANS: u64 = 9;
const SMALL: u64 = FIRST_SPAN + LARGE_SPANS;
const BYTES_FLAG: u64 = 1 << 63;

fn region(device: &SimDevice) -> Region {
    let config = Config {
        segment_bytes: Some(64 << 10),
        reserved_bytes: Some(REGION_BYTES),
        lanes: Some(LANES),
        thread: false,
        checkpoint_every: None,
        ..Config::new(REGION_BYTES, 2 << 20)
    };
    Region::open(Arc::new(device.clone()), Arc::new(SimClock::new(1)), config).unwrap()
}

/// The image of a heap with a large object, and a small one behind it in the same block.
fn image() -> SimDevice {
    let device = SimDevice::new(0, 1);
    let heap = Heap::open(region(&device)).unwrap();
    let mut op = heap.begin(LaneSet::One(LANE), 0);
    let large = op.alloc(LANE, LARGE_SPANS * SPAN_BYTES).unwrap();
    assert_eq!(large, FIRST_SPAN * SPAN_BYTES);
    assert_eq!(op.alloc(LANE, 100).unwrap(), SMALL * SPAN_BYTES);
    op.commit().unwrap();
    heap.region().close(1).unwrap();
    device
}

/// Opens the image with these words stored in it, and expects the last one, or the word that
/// `blamed` names, to be refused.
fn expect_refused(what: &str, words: &[(u64, u64)], blamed: (u64, u64)) {
    let device = image();
    let bare = region(&device);
    for (offset, value) in words {
        bare.lock(LaneId(0)).store(*offset, *value).unwrap();
    }
    bare.close(1).unwrap();
    drop(bare);
    match Heap::open(region(&device)).map(drop) {
        Err(HeapError::Corrupt { what: found, offset, value }) => {
            assert_eq!((found, (offset, value)), (what, blamed), "{words:x?}");
        }
        other => panic!("{what} {words:x?}: {other:?}"),
    }
}

fn table(span: u64) -> u64 {
    AT_TABLE + span * 8
}

#[test]
fn a_damaged_header_is_refused_by_place_and_value() {
    expect_refused("heap header", &[(AT_SPANS, 129)], (AT_SPANS, 129));
}

#[test]
fn a_damaged_span_table_is_refused_by_place_and_value() {
    let last = REGION_BYTES / SPAN_BYTES - 1;
    let damages = [
        ("no kind", FIRST_SPAN, 9),
        ("no length", FIRST_SPAN, 2),
        ("a class that there is not", FIRST_SPAN, 1 | 200 << 8 | 1 << 32),
        ("another length than runs of the class have", FIRST_SPAN, 1 | 3 << 32),
        ("a lane that there is not", FIRST_SPAN, 2 | 7 << 16 | 2 << 32),
        ("the meta lane", FIRST_SPAN, 2 | 2 << 16 | 2 << 32),
        ("another lane's run in the block", SMALL, 1 | 1 << 8 | 1 << 16 | 1 << 32),
        ("a run that leaves the region", last, 2 | 2 << 32),
        ("a word inside a run", FIRST_SPAN + 1, 1 | 1 << 32),
        ("a free span with a lane", last, 1 << 16),
    ];
    for (why, span, value) in damages {
        eprintln!("{why}");
        expect_refused("span table", &[(table(span), value)], (table(span), value));
    }
}

#[test]
fn a_damaged_undo_log_is_refused_by_place_and_value() {
    let (used, next, first, second) = (LOG, LOG + 8, LOG + 16, LOG + 24);
    let root = LOG + BLOCK_BYTES - 4096;
    // Entries are refused before the first of them is undone.
    let log = |words: &[(u64, u64)], blamed| expect_refused("undo log", words, blamed);
    log(&[(used, 24), (first, root)], (used, 24));
    log(&[(used, u64::MAX)], (used, u64::MAX));
    log(&[(used, 16), (first, root + 1)], (first, root + 1));
    log(&[(used, 16), (first, 8)], (first, 8));
    log(&[(used, 16), (first, LOG)], (first, LOG));
    log(&[(used, 16), (first, REGION_BYTES)], (first, REGION_BYTES));
    let free = (FIRST_SPAN + 3 * BLOCK_SPANS) * SPAN_BYTES;
    log(&[(used, 16), (first, free)], (first, free));
    let bytes = BYTES_FLAG | root;
    log(&[(used, 16), (first, bytes), (second, 16_385)], (second, 16_385));
    log(&[(used, 16), (first, bytes), (second, u64::MAX)], (second, u64::MAX));
    log(&[(used, 24), (first, bytes), (second, 8), (next, 12)], (next, 12));
    log(&[(used, 16), (first, root), (next, LOG)], (next, LOG));
    log(&[(used, 16), (first, root), (next, free)], (next, free));
    // Bytes that begin in the roots and end behind them.
    let over = BYTES_FLAG | (root + 4096 - 8);
    log(&[(used, 48), (first, over), (second, 32)], (first, root + 4096 - 8));
}

#[test]
fn a_check_names_the_words_that_opening_refuses() {
    let device = image();
    let bare = region(&device);
    let bytes = |bare: &Region| bare.lock(LaneId(0)).bytes(0, REGION_BYTES as usize).to_vec();
    assert!(region_bytes(&bytes(&bare)).damage.is_empty());
    for (what, offset, value) in [
        ("header", 8, 2),
        ("header", AT_SPANS, 1),
        ("span table", table(FIRST_SPAN), 9),
        ("span table", table(FIRST_SPAN), 1 | 200 << 8 | 1 << 32),
        ("span table", table(FIRST_SPAN + 1), 1 | 1 << 32),
        ("span table", table(SMALL), 1 | 1 << 8 | 1 << 16 | 1 << 32),
        ("undo log", LOG, u64::MAX),
    ] {
        let old = bare.lock(LaneId(0)).load(offset);
        bare.lock(LaneId(0)).store(offset, value).unwrap();
        let found = region_bytes(&bytes(&bare)).damage;
        let found = found.first().map(|damage| (damage.what, damage.offset, damage.value));
        assert_eq!(found, Some((what, offset, value)));
        bare.lock(LaneId(0)).store(offset, old).unwrap();
    }
}

#[test]
fn a_check_counts_every_span_once() {
    let bare = region(&image());
    let bytes = || bare.lock(LaneId(0)).bytes(0, REGION_BYTES as usize).to_vec();
    let report = region_bytes(&bytes());
    let spans = REGION_BYTES / SPAN_BYTES;
    assert_eq!((report.lanes, report.small_spans), (u64::from(LANES), 1));
    assert_eq!(report.large_spans, LARGE_SPANS);
    assert_eq!(report.free_spans, spans - SMALL - 1);
    assert_eq!((report.unfinished, report.damage), (0, vec![]));
    // A log with one entry, in the last of the shard lanes.
    let log = LOG + BLOCK_BYTES;
    bare.lock(LaneId(0)).store(log, 16).unwrap();
    bare.lock(LaneId(0)).store(log + 16, log + BLOCK_BYTES - 4096).unwrap();
    let report = region_bytes(&bytes());
    assert_eq!((report.unfinished, report.damage), (1, vec![]));
    bare.lock(LaneId(0)).store(log, 0).unwrap();
    // A run that ends with the region, and one that ends a span later.
    for (len, is_damaged) in [(1, false), (2, true)] {
        bare.lock(LaneId(0)).store(table(spans - 1), 2 | len << 32).unwrap();
        assert_eq!(region_bytes(&bytes()).damage.is_empty(), !is_damaged);
    }
    // The last of the lanes is no shard's.
    for (lane, is_damaged) in [(1, false), (2, true)] {
        bare.lock(LaneId(0)).store(table(spans - 1), 2 | lane << 16 | 1 << 32).unwrap();
        assert_eq!(region_bytes(&bytes()).damage.is_empty(), !is_damaged);
    }
}
