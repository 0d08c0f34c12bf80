use super::*;
use crate::geometry::GRAIN_SHIFT_BARRIER;
use crate::planted::Planted;

fn attached(ledger: &Ledger) -> Result<Ledger, SetupError> {
    let fd = ledger.memory().fd().try_clone_to_owned().unwrap();
    Ledger::attach(SharedMemory::from_fd(fd).unwrap())
}

fn empty() -> Ledger {
    let geometry = Geometry::new(BLOCK_BYTES, GRAIN_SHIFT_BARRIER, None, 4).unwrap();
    let ledger = Ledger::create(geometry, 7, BLOCK_BYTES).unwrap();
    ledger.segments().store(8, Relaxed);
    ledger
}

#[test]
fn memory_laid_out_by_another_version_is_refused() {
    let ledger = empty();
    let locations = Extent { grain: 5, len: 3 };
    ledger.locations().set(locations, 9);
    let found = attached(&ledger).unwrap();
    assert_eq!((found.locations().of(7), found.locations().alike(locations)), (9, 3));
    assert_eq!((found.location_bytes(), found.buffer(0).packed()), (2, None));
    ledger.set(Word::Layout, LIVE_LAYOUT + 1);
    assert!(matches!(attached(&ledger), Err(SetupError::LiveLayout { .. })));
}

#[test]
fn sizes_with_which_arithmetic_would_fail_are_refused() {
    for (word, value) in [
        (Word::SegmentBytes, 0),
        (Word::SegmentBytes, 3 << 16),
        (Word::SegmentsMax, 0),
        (Word::Reserved, 0),
        (Word::Reserved, u64::MAX),
        (Word::GrainShift, 63),
        (Word::Buffers, 0),
    ] {
        let ledger = empty();
        ledger.set(word, value);
        let refused = attached(&ledger);
        assert!(matches!(refused, Err(SetupError::Memory { .. })), "{value}: {refused:?}");
    }
}

#[test]
fn states_that_nobody_knows_are_refused_with_their_place() {
    let refused = |ledger: &Ledger| match attached(ledger) {
        Err(SetupError::UnknownState { what, index, value }) => (what, index, value),
        other => panic!("{other:?}"),
    };
    let ledger = empty();
    ledger.map.words(ledger.offsets.segments + 3 * SEGMENT_ENTRY_BYTES, 1)[0].store(7, Relaxed);
    assert_eq!(refused(&ledger), ("segment state", 3, 7));
    let ledger = empty();
    ledger.map.words(ledger.offsets.controls + BUFFER_CONTROL_BYTES, 1)[0].store(3, Relaxed);
    assert_eq!(refused(&ledger), ("buffer state", 1, 3));
    let ledger = empty();
    ledger.kinds()[0].store(2, Relaxed);
    assert_eq!(refused(&ledger), ("kind of a block", 0, 2));
    let ledger = empty();
    let too_much = ledger.geometry().reserved_bytes + 1;
    ledger.region_bytes().store(too_much, Relaxed);
    assert_eq!(refused(&ledger), ("size of the region", 0, too_much));
    let (ledger, used) = (empty(), 4161);
    ledger.map.words(ledger.offsets.undo + 64, 1)[0].store(used, Relaxed);
    assert_eq!(refused(&ledger), ("undo slot", 1, used));
}

#[test]
fn an_undo_slot_with_an_entry_that_no_program_writes_is_refused_and_nothing_is_put_back() {
    let region = SharedMemory::create("region", BLOCK_BYTES).unwrap().map().unwrap();
    let end = BLOCK_BYTES;
    // Used bytes, and the heads of two entries with 8 bytes each; the value that is blamed.
    for (used, heads, blamed) in [
        (32, [8 | 8 << 48, 16 | 8 << 48], None),
        (16, [8 | 8 << 48, 7], None),
        (32, [8 | 8 << 48, 16 | 4097 << 48], Some(16 | 4097 << 48)),
        (32, [8 | 8 << 48, 16], Some(16)),
        (32, [8 | 8 << 48, 16 | 9 << 48], Some(16 | 9 << 48)),
        (24, [8 | 8 << 48, 16 | 8 << 48], Some(16 | 8 << 48)),
        (20, [8 | 8 << 48, 16 | 8 << 48], Some(0)),
        (32, [8 | 8 << 48, (end - 7) | 8 << 48], Some(end - 7)),
    ] {
        let ledger = empty();
        let words = |at, count| ledger.map.words(ledger.offsets.undo + at, count);
        words(64, 1)[0].store(used, Relaxed);
        let entries = words(64 * 64 + 4160, 4);
        let stored = [heads[0], 5, heads[1], 6];
        entries.iter().zip(stored).for_each(|(word, value)| word.store(value, Relaxed));
        region.words(8, 2).iter().for_each(|word| word.store(1, Relaxed));
        let refused = match ledger.put_back(&region, Planted::None) {
            Ok(()) => None,
            Err(SetupError::UnknownState { what: "undo slot", index: 1, value }) => Some(value),
            Err(other) => panic!("{other:?}"),
        };
        assert_eq!(refused, blamed);
        let found: Vec<_> = region.words(8, 2).iter().map(|word| word.load(Relaxed)).collect();
        let put_back = if used == 32 { [5, 6] } else { [5, 1] };
        assert_eq!(found, if blamed.is_none() { put_back } else { [1, 1] });
    }
}

#[test]
fn the_entries_of_every_undo_slot_are_put_back_and_the_slots_are_closed() {
    let region = SharedMemory::create("region", BLOCK_BYTES).unwrap().map().unwrap();
    let ledger = empty();
    for number in 0..64 {
        let (slot, old) = (ledger.undo_slot(number), (number + 1).to_le_bytes());
        assert_eq!(slot.keep(0, number * 8, &old, Planted::None), Some(16));
    }
    ledger.put_back(&region, Planted::None).unwrap();
    let words = region.words(0, 65).iter().map(|word| word.load(Relaxed));
    assert!(words.eq((1..=64).chain([0])));
    assert!((0..64).all(|number| ledger.undo_slot(number).entries().next().is_none()));
}

#[test]
fn grains_words_and_pages_are_capacity_memory_where_their_blocks_are() {
    for shift in [6, 9, 10, 11, 12] {
        let geometry = Geometry::new(16 * BLOCK_BYTES, shift, None, 4).unwrap();
        let ledger = Ledger::create(geometry, 7, 16 * BLOCK_BYTES).unwrap();
        for block in [0, 5, 6, 15] {
            ledger.kinds()[block].store(KindBits::Capacity.to_byte(), Relaxed);
        }
        ledger.kinds()[9].store(KindBits::BoundCapacity.to_byte(), Relaxed);
        let is_capacity = |offset: u64| [0, 5, 6, 9, 15].contains(&(offset / BLOCK_BYTES));
        for word in 0..geometry.words() {
            let offset = |grain| (word as u64 * WORD_GRAINS + grain) << shift;
            let expected = (0..WORD_GRAINS)
                .filter(|grain| is_capacity(offset(*grain)))
                .fold(0, |bits, grain| bits | 1 << grain);
            assert_eq!(ledger.capacity_bits(word), expected, "2^{shift}, word {word}");
            if geometry.word_bytes() <= BLOCK_BYTES {
                assert_eq!(ledger.is_capacity_word(word), expected != 0);
            }
        }
        for page in 0..16 * 16 {
            assert_eq!(ledger.is_capacity_page(page), is_capacity(page * 4096));
        }
        assert_eq!(ledger.kind(16), Kind::Persistent, "no block of the region");
    }
}

/// Compares the places and lengths of all pieces of the ledger.
#[test]
fn no_piece_of_the_ledger_lies_in_another() {
    for (shift, segment_bytes, blocks) in
        [(6, None, 1), (12, Some(64 << 10), 40), (8, Some(16 << 20), 100)]
    {
        let geometry = Geometry::new(blocks * BLOCK_BYTES, shift, segment_bytes, 3).unwrap();
        let ledger = Ledger::create(geometry, 7, blocks * BLOCK_BYTES).unwrap();
        let (offsets, buffers) = (&ledger.offsets, u64::from(geometry.buffers));
        let mut pieces = vec![
            (0, size_of::<u64>() as u64 * 64),
            (offsets.bitmaps[0], geometry.words() as u64 * 8),
            (offsets.bitmaps[1], geometry.words() as u64 * 8),
            (offsets.location, geometry.grains() * offsets.location_bytes),
            (offsets.kinds, geometry.blocks() as u64),
            (offsets.undo, UNDO_TOTAL_BYTES),
        ];
        let segments = (0..u64::from(geometry.segments_max))
            .map(|number| (offsets.segments + number * SEGMENT_ENTRY_BYTES, 32));
        pieces.extend(segments);
        for number in 0..geometry.buffers {
            let buffer = ledger.buffer(number);
            let control = offsets.controls + u64::from(number) * BUFFER_CONTROL_BYTES;
            pieces.push((control, 64));
            // A frame of isolated grains fits, with an entry for each.
            let most = geometry.frame_limit() / (geometry.grain_bytes() + 8);
            assert!(buffer.table().len() as u64 >= most);
            pieces.push((buffer.table_at, buffer.table().len() as u64 * 8));
            pieces.push((buffer.bytes_at, geometry.frame_limit()));
            pieces.push((buffer.packed_at, geometry.frame_limit()));
            assert_eq!(buffer.len_bytes, geometry.frame_limit());
            assert!([buffer.bytes_at, buffer.packed_at].iter().all(|at| at.is_multiple_of(4096)));
        }
        pieces.sort_unstable();
        for pair in pieces.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?} of {offsets:?}");
        }
        let (at, len) = pieces[pieces.len() - 1];
        assert_eq!(at + len, offsets.total);
        let least: u64 = pieces.iter().map(|(_, len)| len).sum();
        let gaps = 4 * HUGE_PAGE_BYTES as u64 + (8 + buffers) * 4096;
        assert!(offsets.total <= least + gaps, "{offsets:?}");
    }
}

#[test]
fn what_is_forgotten_is_as_new_and_the_rest_stays() {
    let ledger = empty();
    for parity in [0, 1] {
        ledger.bitmap(parity).iter().for_each(|bits| bits.store(u64::MAX, Relaxed));
    }
    let grains = ledger.geometry().grains();
    ledger.locations().set(Extent { grain: 0, len: grains }, 3);
    for number in 0..8 {
        let entry = ledger.segment(number);
        entry.set_state(SegmentState::Used);
        entry.set_written();
        entry.used_bytes().store(5, Relaxed);
        entry.live_bytes().store(6, Relaxed);
    }
    ledger.buffer(3).set_state(BufferState::Filling);
    for word in [ledger.closing(), ledger.budget_used(), ledger.next_seq(), ledger.epoch()] {
        word.store(9, Relaxed);
    }
    ledger.forget_places();
    for parity in [0, 1] {
        assert!(ledger.bitmap(parity).iter().all(|bits| bits.load(Relaxed) == 0));
    }
    assert!((0..grains).all(|grain| ledger.locations().of(grain) == NO_LOCATION));
    for number in 0..8 {
        let entry = ledger.segment(number);
        assert_eq!((entry.state(), entry.was_written()), (SegmentState::Free, true));
        assert_eq!(entry.used_bytes().load(Relaxed) + entry.live_bytes().load(Relaxed), 0);
    }
    assert_eq!(ledger.buffer(3).state(), BufferState::Free);
    let words = [ledger.closing(), ledger.budget_used(), ledger.next_seq(), ledger.epoch()];
    assert_eq!(words.map(|word| word.load(Relaxed)), [0, 0, 9, 9]);
}
