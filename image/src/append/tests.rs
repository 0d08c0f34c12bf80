//! Frames, segments and the reserve, as appending uses them.

use super::*;
use perdura_dirty::geometry::{BLOCK_BYTES, GRAIN_SHIFT_BARRIER, Geometry};

#[test]
fn a_segment_is_known_by_the_number_of_its_first_frame_though_several_threads_begin_frames() {
    let geometry = Geometry::new(BLOCK_BYTES, GRAIN_SHIFT_BARRIER, None, 4).unwrap();
    let ledger = Ledger::create(geometry, 7, BLOCK_BYTES).unwrap();
    std::thread::scope(|scope| {
        for number in 0..4 {
            let ledger = &ledger;
            scope.spawn(move || {
                for _ in 0..100_000 {
                    let mut appender =
                        Appender::new(vec![number], [number].into(), 0, geometry.segment_bytes);
                    appender.begin_frame(ledger).unwrap();
                    assert_eq!(
                        ledger.segment(number).first_seq().load(Relaxed),
                        ledger.buffer(number).seq().load(Relaxed),
                    );
                    free_buffer(ledger, number);
                }
            });
        }
    });
}

#[test]
fn segments_that_were_written_come_first_only_once_somebody_waits_for_frames() {
    let geometry = Geometry::new(BLOCK_BYTES, GRAIN_SHIFT_BARRIER, None, 4).unwrap();
    let ledger = Ledger::create(geometry, 7, BLOCK_BYTES).unwrap();
    let mut appender = Appender::new(vec![0], (0..6).collect(), 2, geometry.segment_bytes);
    let write = |number: u32| ledger.segment(number).set_written();
    write(4);
    appender.sort_free(&ledger);
    assert_eq!(appender.free_segments, [0, 1, 2, 3, 4, 5]);
    assert_eq!(appender.next_unwritten(&ledger), None);
    appender.prefer_written(&ledger);
    assert_eq!(appender.free_segments, [4, 0, 1, 2, 3, 5]);
    assert_eq!(appender.next_unwritten(&ledger), Some((1, 0)));
    write(2);
    write(5);
    appender.sort_free(&ledger);
    assert_eq!(appender.free_segments, [4, 2, 5, 0, 1, 3]);
    // As many as the reserve are left to the emergency flush.
    assert_eq!((appender.spare_segments(), appender.take_free(&ledger)), (4, Some(4)));
    assert_eq!((appender.spare_segments(), appender.take_free(&ledger)), (3, Some(0)));
    appender.add_free(&ledger, 4);
    assert_eq!(appender.free_segments, [2, 5, 4, 1, 3]);
    appender.add_free(&ledger, 0);
    assert_eq!(appender.free_segments, [2, 5, 4, 1, 3, 0]);
    appender.add_new(6);
    assert_eq!(appender.free_segments, [2, 5, 4, 1, 3, 0, 6]);
}

#[test]
fn what_compression_saves_is_filled_further_unless_the_segment_is_being_emptied() {
    for is_emptied in [false, true] {
        let geometry = Geometry::new(BLOCK_BYTES, GRAIN_SHIFT_BARRIER, None, 4).unwrap();
        let ledger = Ledger::create(geometry, 7, BLOCK_BYTES).unwrap();
        let mut appender = Appender::new(vec![0], [1, 2].into(), 0, geometry.segment_bytes);
        appender.begin_frame(&ledger).unwrap();
        appender.close_frame(&ledger, 0);
        let (buffer, end) = (ledger.buffer(0), frame_bytes(&ledger.buffer(0)));
        assert_eq!(appender.current, Some((1, end)));
        assert!(!appender.begin_emptying(1), "it is being filled");
        appender.current = Some((2, 0));
        assert!(!is_emptied || appender.begin_emptying(1));
        assert_eq!(appender.give_back(&ledger, &buffer, end + 1, 64), end + 1, "not the last");
        assert_eq!(appender.give_back(&ledger, &buffer, end, 64), 64);
        assert_eq!(ledger.segment(1).used_bytes().load(Relaxed), 64);
        let expected: &[(u32, u64)] = if is_emptied { &[] } else { &[(1, 64)] };
        assert_eq!(appender.reopened, expected);
        appender.leave(1);
        assert_eq!(appender.reopened, []);
    }
}

#[test]
fn a_grain_has_a_place_in_the_current_a_reopened_or_a_spare_segment() {
    let geometry = Geometry::new(BLOCK_BYTES, GRAIN_SHIFT_BARRIER, None, 4).unwrap();
    let ledger = Ledger::create(geometry, 7, BLOCK_BYTES).unwrap();
    let end = geometry.segment_bytes;
    // (current, reopened, free segments with a reserve of 1)
    let with = |current: Option<u64>, reopened: bool, free: u32| {
        let mut appender = Appender::new(vec![0], (2..2 + free).collect(), 1, end);
        appender.current = current.map(|at| (0, at));
        appender.reopened = if reopened { vec![(1, 4096)] } else { Vec::new() };
        appender.can_take(&ledger)
    };
    assert!(!with(None, false, 1), "the last is the reserve");
    assert!(!with(Some(end - FRAME_MIN_BYTES + 1), false, 0));
    assert!(with(Some(end - FRAME_MIN_BYTES), false, 0));
    assert!(with(None, true, 0) && with(None, true, 1));
    assert!(with(None, false, 2));
    let mut without_buffer = Appender::new(Vec::new(), (0..4).collect(), 1, end);
    assert!(!without_buffer.can_take(&ledger));
    without_buffer.free_buffers.push(0);
    without_buffer.begin_frame(&ledger).unwrap();
    assert!(without_buffer.free_buffers.is_empty() && without_buffer.can_take(&ledger));
}

#[test]
fn a_sweep_leaves_the_last_buffers_to_captures_unless_the_open_frame_has_room() {
    let geometry = Geometry::new(BLOCK_BYTES, GRAIN_SHIFT_BARRIER, None, 8).unwrap();
    let ledger = Ledger::create(geometry, 7, BLOCK_BYTES).unwrap();
    let limit = geometry.segment_bytes;
    let mut appender = Appender::new((0..5).collect(), [0].into(), 0, limit);
    assert!(!appender.leaves_to_captures(1 << 30), "there are others");
    appender.begin_frame(&ledger).unwrap();
    assert_eq!(appender.free_buffers.len(), 4);
    assert!(!appender.leaves_to_captures(1 << 30), "there is another");
    appender.free_buffers.pop();
    for (payload, extents) in [(0, 0), (4096, 1), (1 << 19, 64), (limit as usize - 8192, 2)] {
        let open = appender.open.as_mut().unwrap();
        (open.payload, open.extents) = (payload, extents);
        // All grains of a word may be isolated, which takes an entry for each.
        let room = room_for_payload(limit as usize, payload, extents + 64);
        assert!(!appender.leaves_to_captures(room), "{payload}");
        assert!(appender.leaves_to_captures(room + 1), "{payload}");
    }
    appender.close_frame(&ledger, 0);
    assert!(appender.leaves_to_captures(1) && appender.leaves_to_captures(0));
}

/// Appends runs here and there, and compares the frames with what was appended.
#[test]
fn frames_hold_what_was_appended_in_its_order_and_every_segment_counts_its_newest_grains() {
    use perdura_dirty::sys::SharedMemory;
    use rand::{Rng, SeedableRng};

    for seed in 0..6 {
        let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed);
        let shift = [GRAIN_SHIFT_BARRIER, 9, 12][seed as usize % 3];
        let bytes = 16 * BLOCK_BYTES;
        let geometry = Geometry::new(bytes, shift, Some(64 << 10), 2).unwrap();
        let ledger = Ledger::create(geometry, 7, bytes).unwrap();
        let map = SharedMemory::create("test", bytes).unwrap().map().unwrap();
        let (grain_bytes, grains) = (geometry.grain_bytes(), geometry.grains());
        for grain in 0..grains {
            let stamp = vec![grain as u8 | 1; grain_bytes as usize];
            map.copy_in(grain * grain_bytes, &stamp);
        }
        let limit = [64 << 10, 16 << 10][seed as usize / 3];
        let mut appender = Appender::new(vec![0, 1], (0..60).collect(), 1, limit);
        let (mut newest, mut charged) = (vec![0; grains as usize], 0);
        // What the open frame must hold: grains, and whether they are zeros.
        let mut appended: Vec<(u64, bool)> = Vec::new();
        let (mut frames, mut last_seq, mut ends) = (0, 0, [0; 60]);
        let mut check = |appender: &mut Appender, appended: &mut Vec<(u64, bool)>| {
            let Some(number) = appender.closed.pop_front() else { return 0 };
            let buffer = ledger.buffer(number);
            assert_eq!(buffer.state(), BufferState::Sealed);
            let (payload, extents) = crate::seal::fill(&buffer);
            assert!(frame_bytes(&buffer) <= limit);
            assert!(buffer.seq().load(Relaxed) > last_seq);
            last_seq = buffer.seq().load(Relaxed);
            let segment = buffer.segment().load(Relaxed) as u32;
            let entry = ledger.segment(segment);
            // Frames lie one behind another, and the first names the segment.
            let at = buffer.segment_offset().load(Relaxed);
            assert_eq!(at, ends[segment as usize]);
            ends[segment as usize] = at + frame_bytes(&buffer);
            assert_eq!(entry.used_bytes().load(Relaxed), ends[segment as usize]);
            assert!(ends[segment as usize] <= geometry.segment_bytes);
            if at == 0 {
                assert_eq!(entry.first_seq().load(Relaxed), last_seq);
            }
            let runs = buffer.table()[..extents].iter().map(|word| word.load(Relaxed));
            let runs: Vec<_> = runs.map(Extent::unpack).collect();
            let are_apart = |pair: &[Extent]| pair[0].grain + pair[0].len != pair[1].grain;
            assert!(runs.windows(2).all(are_apart), "an entry for nothing");
            let found: Vec<u64> =
                runs.iter().flat_map(|run| run.grain..run.grain + run.len).collect();
            let rest = appended.split_off(found.len());
            let expected = std::mem::replace(appended, rest);
            assert_eq!(payload as u64, found.len() as u64 * grain_bytes);
            // SAFETY: nobody else uses the buffer.
            let bytes = unsafe { buffer.bytes_mut(FRAME_HEADER_BYTES as u64, payload) };
            let places = bytes.chunks(grain_bytes as usize);
            for (place, (grain, (wanted, is_zero))) in places.zip(found.iter().zip(expected)) {
                let byte = if is_zero { 0 } else { *grain as u8 | 1 };
                assert_eq!((*grain, place), (wanted, &vec![byte; place.len()][..]));
            }
            frames += 1;
            let charged = buffer.charged_bytes().swap(0, Relaxed);
            free_buffer(&ledger, number);
            appender.free_buffers.push(number);
            charged
        };
        let mut bytes_left = 1u64 << 20;
        while bytes_left > 0 {
            let longest = [1, 4, 90][random.random_range(0..3)];
            let len = random.random_range(1..=longest).min(grains);
            bytes_left = bytes_left.saturating_sub(len * grain_bytes);
            // Every third run goes on where the last one ended.
            let behind = appended.last().map_or(0, |(grain, _)| grain + 1);
            let grain = match random.random_ratio(1, 3) && behind + len <= grains {
                true => behind,
                false => random.random_range(0..=grains - len),
            };
            let (is_zero, is_charged) = (random.random_ratio(1, 4), random.random());
            let source = if is_zero { Source::Zeros } else { Source::Memory(&map) };
            let mut rest = Extent { grain, len };
            while rest.len > 0 {
                let done = match appender.append(&ledger, source, rest, is_charged) {
                    Ok(done) => done,
                    Err(refusal) => panic!("{refusal:?}"),
                };
                assert!((1..=rest.len).contains(&done));
                let segment = appender.open.unwrap().segment;
                for grain in rest.grain..rest.grain + done {
                    appended.push((grain, is_zero));
                    newest[grain as usize] = segment + 1;
                    assert_eq!(ledger.locations().of(grain), segment + 1);
                }
                charged += if is_charged { done * grain_bytes } else { 0 };
                rest = Extent { grain: rest.grain + done, len: rest.len - done };
                charged -= check(&mut appender, &mut appended);
            }
        }
        appender.close_frame(&ledger, 0);
        charged -= check(&mut appender, &mut appended);
        assert_eq!((charged, appended.len()), (0, 0));
        for number in 0..60 {
            let live = newest.iter().filter(|location| **location == number + 1).count();
            let counted = ledger.segment(number).live_bytes().load(Relaxed);
            assert_eq!(counted, live as u64 * grain_bytes, "segment {number}");
        }
        assert!(frames > 5, "{frames}");
    }
}
