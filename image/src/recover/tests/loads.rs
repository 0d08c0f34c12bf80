//! Loading what was recovered: what is known of it, and how damage is named.

use super::*;

#[test]
fn what_was_loaded_is_known_byte_by_byte_and_block_by_block() {
    let bare = bare();
    // Of the first frame, the second replaces a page.
    let first = Crafted { extents: vec![Extent { grain: 30, len: 4 }], ..crafted(1, 4) };
    let second = Crafted { extents: vec![Extent { grain: 33, len: 20 }], ..crafted(2, 20) };
    let used = put(&bare, 0, &[first]);
    let also_used = put(&bare, 1, &[second]);
    for (number, (first_seq, used)) in (0..).zip([(1, used), (2, also_used)]) {
        bare.ledger.segment(number).first_seq().store(first_seq, Relaxed);
        bare.ledger.segment(number).used_bytes().store(used.into(), Relaxed);
    }
    let slot = SlotContents { needed: &[true; 2], last_seq: 2, is_final: true, unix_ms: 0 };
    write_slot(&bare.ledger, &bare.layout, &bare.device, &slot, false).unwrap();
    let empty = Ledger::create(bare.geometry, 7, bare.geometry.reserved_bytes).unwrap();
    let recovered =
        recover(&bare.device, &bare.geometry, 7, &empty, Tail::Committed, Planted::None);
    let loading = recovered.unwrap().1;
    let loaded = Mutex::new(Vec::new());
    let note = |block| loaded.lock().unwrap().push(block);
    let (ledger, map) = (&empty, &bare.map);
    let to = Target { device: &bare.device, ledger, map, loaded: &note, huge_pages: None };
    // In trap mode a bitmap word, and so a unit of loading, has four blocks.
    let total = 23 * 4096;
    assert_eq!(loading.progress(), (0, total));
    assert_eq!(Vec::from_iter(loading.blocks()), [0]);
    let live = [0, 1].map(|number| empty.segment(number).live_bytes().load(Relaxed));
    assert_eq!(live, [3 * 4096, 20 * 4096]);
    assert!(loading.load_next(&to).unwrap());
    assert_eq!((loading.progress(), loading.is_complete()), ((3 * 4096, total), false));
    assert_eq!(*loaded.lock().unwrap(), []);
    loading.load_block(&to, 0).unwrap();
    assert_eq!((loading.progress(), loading.is_complete()), ((total, total), true));
    assert_eq!(*loaded.lock().unwrap(), [0]);
    assert!(!loading.load_next(&to).unwrap());
    assert_eq!(loading.blocks().count(), 0);
    for grain in 28..56 {
        let segment = match grain {
            30..33 => 1,
            33..53 => 2,
            _ => 0,
        };
        assert_eq!(empty.locations().of(grain), segment, "{grain}");
    }
}

/// Loads an image of an empty frame and this one, in whose payload a bit is flipped. Returns
/// the error, and where on the device that payload begins.
fn refused_load(frame: Crafted, flipped_at: Option<u64>) -> (Option<OpenError>, u64) {
    let bare = bare();
    let used = put(&bare, 1, &[crafted(8, 0), frame]);
    let entry = bare.ledger.segment(1);
    entry.first_seq().store(8, Relaxed);
    entry.used_bytes().store(used.into(), Relaxed);
    let needed = &[false, true];
    let slot = SlotContents { needed, last_seq: 9, is_final: true, unix_ms: 0 };
    write_slot(&bare.ledger, &bare.layout, &bare.device, &slot, false).unwrap();
    let payload_at = bare.layout.segment_at(1) + 4096 + FRAME_HEADER_BYTES as u64;
    flipped_at.into_iter().for_each(|at| bare.device.flip_bit(payload_at + at, 7));
    let Bare { geometry, device, map, .. } = &bare;
    let empty = Ledger::create(*geometry, 7, 0).unwrap();
    let recovered = recover(device, geometry, 7, &empty, Tail::Committed, Planted::None);
    let ledger = &empty;
    let to = Target { device, ledger, map, loaded: &|_| {}, huge_pages: None };
    (recovered.unwrap().1.load_all(&to, 1).err(), payload_at)
}

#[test]
fn damaged_pages_and_chunks_are_named_by_their_places_in_the_region_and_on_the_device() {
    let lies = |extents: &[(u64, u64)]| {
        extents.iter().map(|(grain, len)| Extent { grain: *grain, len: *len }).collect()
    };
    // (page of the payload that is damaged, page of the region that it belongs to)
    for (damaged, damaged_page) in [(0, 30), (3, 33), (4, 7), (6, 51)] {
        let extents = lies(&[(30, 4), (7, 1), (50, 2)]);
        let flipped_at = Some(damaged * 4096 + 4095);
        let frame = Crafted { extents, ..crafted(9, 7) };
        let (error, payload_at) = refused_load(frame, flipped_at);
        let Some(OpenError::Image(ImageError::DamagedPage {
            page,
            region_offset,
            segment,
            offset_bytes,
            expected,
            found,
        })) = error
        else {
            panic!("{damaged}: {error:?}")
        };
        assert_eq!((page, region_offset), (damaged_page, damaged_page * 4096));
        assert_eq!((segment, offset_bytes), (1, payload_at + damaged * 4096));
        assert_eq!(expected, checksum(&[0; 4096]));
        assert_ne!(found, expected);
    }
    // A chunk that is stored as it is, and one that is no LZ4 block.
    let frame = Crafted {
        flags: FRAME_LZ4,
        extents: lies(&[(30, 16), (7, 4)]),
        raw: 20 * 4096,
        lengths: vec![16 * 4096, 300],
        payload: 16 * 4096 + 300,
        ..crafted(9, 0)
    };
    let (error, payload_at) = refused_load(frame, None);
    let Some(OpenError::Image(ImageError::DamagedChunk {
        page,
        region_offset,
        segment,
        offset_bytes,
        stored_bytes,
        expected_bytes,
        ..
    })) = error
    else {
        panic!("{error:?}")
    };
    assert_eq!((page, region_offset, segment), (7, 7 * 4096, 1));
    assert_eq!((offset_bytes, stored_bytes), (payload_at + 16 * 4096, 300));
    assert_eq!(expected_bytes, 4 * 4096);
}

/// Writes a frame with a page of `byte` to the place that the appender gives it.
fn write_frame(bare: &mut Bare, byte: u8, flags: u16) {
    let Bare { layout, device, map, ledger, appender, .. } = bare;
    map.copy_in(5 * 4096, &[byte; 4096]);
    appender.append(ledger, &*map, Extent { grain: 5, len: 1 }, false).unwrap();
    appender.close_frame(ledger, flags);
    let buffer = ledger.buffer(0);
    seal(ledger, &buffer, 7, 0);
    let at = layout.segment_at(0) + buffer.segment_offset().load(Relaxed);
    // SAFETY: nobody else uses the buffer.
    let bytes = unsafe { buffer.bytes_mut(0, frame_bytes(&buffer) as usize) };
    device.write_at(at, bytes).unwrap();
    appender.closed.clear();
    crate::append::free_buffer(ledger, 0);
    appender.free_buffers.push(0);
}

/// The first life loses its first frame, and keeps the group commit behind it. The second life
/// writes a frame of the same size over the lost one.
#[test]
fn a_group_commit_of_an_earlier_life_does_not_count_behind_one_of_this_life() {
    let mut bare = bare();
    for (life, bytes) in [(1, &[1u8, 2][..]), (2, &[3][..])] {
        let segments = [0, 1].into();
        bare.appender = Appender::new(vec![0], segments, 0, bare.geometry.segment_bytes);
        bare.ledger = Ledger::create(bare.geometry, 7, bare.geometry.reserved_bytes).unwrap();
        bare.ledger.segments().store(2, Relaxed);
        bare.ledger.incarnation().store(life, Relaxed);
        for byte in bytes {
            write_frame(&mut bare, *byte, FRAME_COMMIT);
        }
    }
    let Bare { geometry, layout, device, ledger, .. } = &bare;
    let needed = &[false, false];
    let slot = SlotContents { needed, last_seq: 0, is_final: false, unix_ms: 0 };
    write_slot(ledger, layout, device, &slot, false).unwrap();

    let found = SharedMemory::create("test", geometry.reserved_bytes).unwrap().map().unwrap();
    let empty = Ledger::create(*geometry, 7, 0).unwrap();
    fill(device, geometry, &empty, &found);
    assert_eq!(found.octets(5 * 4096, 1)[0].load(Relaxed), 3);
}

#[test]
fn a_damaged_page_is_named_by_its_places_in_the_region_and_on_the_device() {
    let bare = bare();
    let extents = [(30, 2), (9, 3)].map(|(grain, len)| Extent { grain, len }).into();
    let frame = Crafted { extents, ..crafted(1, 5) };
    let used = put(&bare, 0, &[frame]);
    bare.ledger.segment(0).first_seq().store(1, Relaxed);
    bare.ledger.segment(0).used_bytes().store(used.into(), Relaxed);
    let needed = &[true, false];
    let slot = SlotContents { needed, last_seq: 1, is_final: true, unix_ms: 0 };
    write_slot(&bare.ledger, &bare.layout, &bare.device, &slot, false).unwrap();
    let payload_at = bare.layout.segment_at(0) + FRAME_HEADER_BYTES as u64;
    for (place, expected) in (0..).zip([30, 31, 9, 10, 11]) {
        let at = payload_at + place * 4096;
        bare.device.flip_bit(at + 77, 3);
        let empty = Ledger::create(bare.geometry, 7, 0).unwrap();
        let (device, map) = (&bare.device, &bare.map);
        let recovered = recover(device, &bare.geometry, 7, &empty, Tail::Committed, Planted::None);
        let loading = recovered.unwrap().1;
        let to = Target { device, ledger: &empty, map, loaded: &|_| {}, huge_pages: None };
        match loading.load_all(&to, 1) {
            Err(OpenError::Image(ImageError::DamagedPage {
                page,
                region_offset,
                segment,
                offset_bytes,
                ..
            })) => {
                assert_eq!((page, region_offset), (expected, expected * 4096));
                assert_eq!((segment, offset_bytes), (0, at));
            }
            other => panic!("page {expected}: {other:?}"),
        }
        bare.device.flip_bit(at + 77, 3);
    }
}
