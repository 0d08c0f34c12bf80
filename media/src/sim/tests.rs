use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::clock::Clock;
use crate::device::Completion;
use crate::sys::BlockBuf;
use crate::units::BytesPerSecond;

const BLOCK: usize = BLOCK_BYTES as usize;
const SEED: u64 = 7;

fn filled(byte: u8, blocks: usize) -> BlockBuf {
    let mut buf = BlockBuf::zeroed(blocks * BLOCK);
    buf.fill(byte);
    buf
}

fn device(blocks: usize) -> SimDevice {
    SimDevice::new((blocks * BLOCK) as u64, SEED)
}

fn submit(queue: &mut Box<dyn WriteQueue>, token: u64, block: u64, buf: &BlockBuf) {
    // SAFETY: the tests keep their buffers, unchanged, beyond their queues.
    unsafe { queue.submit(token, block * BLOCK_BYTES, buf.as_ptr(), buf.len()) }.unwrap();
}

fn first_bytes(device: &SimDevice) -> Vec<u8> {
    device.snapshot().chunks(BLOCK).map(|block| block[0]).collect()
}

#[test]
fn reads_see_unflushed_writes_and_flushed_ones_survive() {
    let device = device(2);
    device.write_at(0, &filled(1, 1)).unwrap();
    device.flush().unwrap();
    device.write_at(4096, &filled(2, 1)).unwrap();
    let mut buf = filled(9, 2);
    device.read_at(0, &mut buf).unwrap();
    assert_eq!((buf[0], buf[BLOCK]), (1, 2));
    assert_eq!(device.snapshot_durable()[BLOCK], 0);
    for seed in 0..20 {
        assert_eq!(device.power_cycle(seed).snapshot()[..BLOCK], *filled(1, 1));
    }
}

#[test]
fn a_durable_write_survives_and_says_nothing_of_others() {
    let device = device(4);
    device.grow(8 * BLOCK_BYTES).unwrap();
    device.write_at(0, &filled(1, 1)).unwrap();
    device.write_at(6 * BLOCK_BYTES, &filled(1, 2)).unwrap();
    device.write_durable_at(7 * BLOCK_BYTES, &filled(2, 1)).unwrap();
    let mut others_lost = 0;
    for seed in 0..20 {
        let again = device.power_cycle(seed);
        assert_eq!(again.snapshot()[7 * BLOCK..], *filled(2, 1), "seed {seed}");
        others_lost += u32::from(again.snapshot()[0] == 0);
    }
    assert!(others_lost > 0);
}

#[test]
fn a_durable_write_may_be_cut_before_and_after_it_has_reached_the_device() {
    for cut in 0..2 {
        let device = device(1);
        device.cut_after(cut);
        let written = device.write_durable_at(0, &filled(1, 1));
        assert!(matches!(written, Err(DeviceError::PowerLost)));
        let survived = (0..50).filter(|seed| device.power_cycle(*seed).snapshot()[0] == 1).count();
        assert!((1..50).contains(&survived), "{survived} of 50 after {cut} operations");
    }
}

#[test]
fn an_unflushed_write_is_lost_whole_or_torn_at_sectors() {
    let device = device(2);
    device.write_at(0, &filled(1, 2)).unwrap();
    let (mut lost, mut whole, mut torn) = (0, 0, 0);
    for seed in 0..100 {
        let bytes = device.power_cycle(seed).snapshot();
        let sectors = bytes.chunks(SECTOR_BYTES);
        assert!(
            sectors.clone().all(|s| s.iter().all(|b| *b == s[0])),
            "a torn sector, seed {seed}"
        );
        match sectors.filter(|sector| sector[0] == 1).count() {
            0 => lost += 1,
            16 => whole += 1,
            _ => torn += 1,
        }
    }
    assert!(lost > 10 && whole > 10 && torn > 10, "lost {lost}, whole {whole}, torn {torn}");
}

#[test]
fn unflushed_overwrites_may_land_in_any_order() {
    let device = device(1);
    device.write_at(0, &filled(1, 1)).unwrap();
    device.write_at(0, &filled(2, 1)).unwrap();
    let outcomes: Vec<u8> = (0..100).map(|seed| device.power_cycle(seed).snapshot()[0]).collect();
    assert!([0, 1, 2].iter().all(|byte| outcomes.contains(byte)));
}

#[test]
fn the_power_is_cut_at_each_durable_operation() {
    for cut in 0..4 {
        let device = device(2);
        device.cut_after(cut);
        let mut done = 0;
        let steps: [&dyn Fn() -> Result<(), DeviceError>; 4] = [
            &|| device.write_at(0, &filled(1, 1)),
            &|| device.flush(),
            &|| device.write_at(4096, &filled(2, 1)),
            &|| device.flush(),
        ];
        for step in steps {
            match step() {
                Ok(()) => done += 1,
                Err(error) => assert!(matches!(error, DeviceError::PowerLost), "{error}"),
            }
        }
        assert_eq!((done, device.ops(), device.is_powered()), (cut, cut, false));
        let read = device.read_at(0, &mut filled(0, 1));
        assert!(matches!(read, Err(DeviceError::PowerLost)));
        assert!(matches!(device.queue(1), Err(DeviceError::PowerLost)));
    }
}

#[test]
fn the_write_at_which_the_power_goes_may_survive() {
    let device = device(1);
    device.cut_after(0);
    device.write_at(0, &filled(1, 1)).unwrap_err();
    let survived = (0..50).filter(|seed| device.power_cycle(*seed).snapshot()[0] == 1).count();
    assert!((1..50).contains(&survived), "{survived} of 50");
}

#[test]
fn a_battery_lasts_for_its_bytes_and_not_one_more() {
    let device = device(4);
    device.set_energy_bytes(Some(2 * BLOCK_BYTES));
    device.write_at(0, &filled(1, 2)).unwrap();
    assert_eq!(device.energy_bytes(), Some(0));
    device.flush().unwrap();
    assert!(matches!(device.write_at(8192, &filled(2, 1)), Err(DeviceError::PowerLost)));
    assert!(matches!(device.flush(), Err(DeviceError::PowerLost)));
    let again = device.power_cycle(1);
    assert_eq!(again.energy_bytes(), None);
    assert_eq!(again.snapshot()[..2 * BLOCK], *filled(1, 2));
}

#[test]
fn queued_writes_complete_out_of_order_and_the_same_way_for_a_seed() {
    let order = |seed| {
        let device = SimDevice::new(8 * BLOCK_BYTES, seed);
        let buf = filled(1, 1);
        let mut queue = device.queue(8).unwrap();
        (0..8).for_each(|block| submit(&mut queue, block, block, &buf));
        let mut out = Vec::new();
        queue.wait(0, &mut out).unwrap();
        queue.wait(8, &mut out).unwrap();
        assert_eq!((queue.outstanding(), device.ops()), (0, 8));
        out.iter().map(|completion| completion.token).collect::<Vec<_>>()
    };
    assert_eq!(order(1), order(1));
    assert_ne!(order(1), order(2));
    assert_ne!(order(1), (0..8).collect::<Vec<_>>());
}

#[test]
fn a_write_in_flight_is_not_covered_by_a_flush() {
    let device = device(1);
    let buf = filled(1, 1);
    let mut queue = device.queue(1).unwrap();
    submit(&mut queue, 0, 0, &buf);
    device.flush().unwrap();
    assert_eq!(device.snapshot_durable()[0], 0);
    drop(queue);
    assert_eq!(device.ops(), 2, "dropping the queue completes its writes");
    device.flush().unwrap();
    assert_eq!(device.snapshot_durable()[0], 1);
}

#[test]
fn a_power_cut_hands_every_outstanding_write_back() {
    let device = device(4);
    let buf = filled(1, 1);
    let mut queue = device.queue(4).unwrap();
    (0..4).for_each(|block| submit(&mut queue, block, block, &buf));
    device.cut_after(2);
    let mut out = Vec::new();
    queue.wait(4, &mut out).unwrap();
    let lost = out.iter().filter(|done| matches!(done.result, Err(DeviceError::PowerLost))).count();
    assert_eq!((out.len(), lost, queue.outstanding()), (4, 2, 0));
}

#[test]
#[should_panic(expected = "the bytes of write 3 were changed while it was in flight")]
fn changing_bytes_in_flight_is_noticed() {
    let device = device(1);
    let mut buf = filled(1, 1);
    let mut queue = device.queue(1).unwrap();
    submit(&mut queue, 3, 0, &buf);
    buf[17] = 2;
    let _broken = queue.wait(1, &mut Vec::<Completion>::new());
}

#[test]
#[should_panic(expected = "more than 1 writes outstanding")]
fn a_queue_takes_no_more_than_its_depth() {
    let device = device(1);
    let buf = filled(1, 1);
    let mut queue = device.queue(1).unwrap();
    submit(&mut queue, 0, 0, &buf);
    submit(&mut queue, 1, 0, &buf);
}

#[test]
fn an_unflushed_growth_may_be_undone() {
    let device = device(1);
    device.grow(2 * BLOCK_BYTES).unwrap();
    device.write_at(BLOCK_BYTES, &filled(1, 1)).unwrap();
    let after_cut = |device: &SimDevice| -> Vec<u64> {
        (0..20).map(|seed| device.power_cycle(seed).capacity_bytes()).collect()
    };
    let unflushed = after_cut(&device);
    assert!(unflushed.contains(&4096) && unflushed.contains(&8192));
    let flushed = self::device(1);
    flushed.grow(2 * BLOCK_BYTES).unwrap();
    flushed.flush().unwrap();
    assert_eq!(after_cut(&flushed), [8192; 20]);
}

#[test]
fn accesses_beyond_the_end_are_refused() {
    let device = device(1);
    let error = device.write_at(4096, &filled(1, 1)).unwrap_err();
    assert!(matches!(error, DeviceError::OutOfRange { capacity_bytes: 4096, .. }), "{error}");
    assert_eq!(device.ops(), 0);
}

#[test]
fn a_planted_flaw_makes_flushes_lie() {
    let device = device(1);
    device.ignore_flushes(true);
    device.write_at(0, &filled(1, 1)).unwrap();
    device.flush().unwrap();
    device.write_durable_at(0, &filled(1, 1)).unwrap();
    assert!((0..20).any(|seed| device.power_cycle(seed).snapshot()[0] == 0));
}

#[test]
fn a_flipped_bit_is_flipped_before_and_after_the_flush() {
    let device = device(2);
    device.write_at(4096, &filled(1, 1)).unwrap();
    device.flip_bit(4096 + 5, 7);
    assert_eq!(device.snapshot()[4096 + 5], 0x81);
    device.flush().unwrap();
    assert_eq!(device.snapshot_durable()[4096 + 5], 0x81);
}

#[test]
fn modelled_time_adds_transfers_and_overlaps_latencies() {
    let clock = Arc::new(SimClock::new(0));
    let device = device(4);
    let bandwidth = BytesPerSecond(BLOCK_BYTES * 1_000_000);
    let timing =
        Timing { bandwidth, read_latency_ns: 100, write_latency_ns: 500, flush_latency_ns: 2_000 };
    device.set_timing(Arc::clone(&clock), timing);
    device.write_at(0, &filled(1, 1)).unwrap();
    assert_eq!(clock.now_ns(), 1_500);
    let buf = filled(1, 1);
    let mut queue = device.queue(4).unwrap();
    (0..4).for_each(|block| submit(&mut queue, block, block, &buf));
    let mut out = Vec::new();
    queue.wait(1, &mut out).unwrap();
    assert_eq!((out.len(), out[0].token, clock.now_ns()), (1, 0, 3_000));
    queue.wait(3, &mut out).unwrap();
    assert_eq!(clock.now_ns(), 6_000);
    device.flush().unwrap();
    assert_eq!(clock.now_ns(), 8_000);
    assert!(device.describe().contains("modelled"));
}

#[derive(Clone, Debug)]
enum Step {
    Write { block: u64, blocks: usize, byte: u8 },
    Submit { block: u64, byte: u8 },
    Wait,
    Flush,
    Grow { blocks: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let write = (0..6u64, 1..3usize, 1..=255u8).prop_map(|(block, blocks, byte)| Step::Write {
        block,
        blocks,
        byte,
    });
    // Queued writes keep to blocks of their own, for the order of overlapping ones is not promised.
    let submit = (8..12u64, 1..=255u8).prop_map(|(block, byte)| Step::Submit { block, byte });
    let grow = (12..16u64).prop_map(|blocks| Step::Grow { blocks });
    let (wait, flush) = (Just(Step::Wait), Just(Step::Flush));
    let step = prop_oneof![4 => write, 3 => submit, 2 => wait, 2 => flush, 1 => grow];
    prop::collection::vec(step, 0..40)
}

/// The first bytes that a block may have after a power cut: the flushed one, or any written since.
#[derive(Clone, Default)]
struct Oracle {
    durable: BTreeMap<u64, u8>,
    since: BTreeMap<u64, Vec<u8>>,
}

impl Oracle {
    fn write(&mut self, block: u64, byte: u8) {
        self.since.entry(block).or_default().push(byte);
    }

    fn current(&self, block: u64) -> u8 {
        let newest = self.since.get(&block).and_then(|bytes| bytes.last());
        *newest.or(self.durable.get(&block)).unwrap_or(&0)
    }

    fn flush(&mut self) {
        for (block, bytes) in std::mem::take(&mut self.since) {
            self.durable.extend(bytes.last().map(|byte| (block, *byte)));
        }
    }

    fn may_survive(&self, block: u64, byte: u8) -> bool {
        self.durable.get(&block).copied().unwrap_or(0) == byte
            || self.since.get(&block).is_some_and(|bytes| bytes.contains(&byte))
    }
}

proptest! {
    #[test]
    fn content_and_survivors_agree_with_a_naive_oracle(
        steps in steps(), seed in any::<u64>(), cut in prop::option::of(0..30u64),
    ) {
        let device = SimDevice::new(12 * BLOCK_BYTES, seed);
        let buffers: Vec<BlockBuf> = (0..=255).map(|byte| filled(byte, 1)).collect();
        let mut oracle = Oracle::default();
        let mut flight: Vec<(u64, u8)> = Vec::new();
        let mut queue = device.queue(64).unwrap();
        if let Some(cut) = cut {
            device.cut_after(cut);
        }
        for step in steps {
            let result = match step {
                Step::Write { block, blocks, byte } => {
                    let result = device.write_at(block * BLOCK_BYTES, &filled(byte, blocks));
                    (block..block + blocks as u64).for_each(|block| oracle.write(block, byte));
                    result
                }
                Step::Submit { block, .. } if flight.iter().any(|(busy, _)| *busy == block) => {
                    Ok(())
                }
                Step::Submit { block, byte } => {
                    flight.push((block, byte));
                    submit(&mut queue, block, block, &buffers[usize::from(byte)]);
                    oracle.write(block, byte);
                    Ok(())
                }
                Step::Wait => {
                    let mut out = Vec::new();
                    queue.wait(flight.len(), &mut out).unwrap();
                    flight.clear();
                    out.into_iter().try_for_each(|done| done.result)
                }
                // The oracle knows no writes in flight, so a flush comes after a wait.
                Step::Flush if !flight.is_empty() => Ok(()),
                Step::Flush => device.flush().map(|()| oracle.flush()),
                Step::Grow { blocks } => device.grow(blocks * BLOCK_BYTES),
            };
            if result.is_err() {
                prop_assert!(!device.is_powered());
                break;
            }
            for (block, byte) in first_bytes(&device).into_iter().enumerate() {
                prop_assert_eq!(byte, oracle.current(block as u64));
            }
        }
        for cycle in 0..4 {
            let survivor = device.power_cycle(seed ^ cycle);
            prop_assert!(survivor.is_powered() && survivor.ops() == 0);
            for (index, sector) in survivor.snapshot().chunks(SECTOR_BYTES).enumerate() {
                let block = (index * SECTOR_BYTES / BLOCK) as u64;
                prop_assert!(sector.iter().all(|byte| *byte == sector[0]));
                prop_assert!(oracle.may_survive(block, sector[0]), "block {}", block);
            }
        }
    }
}
