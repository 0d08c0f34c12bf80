use super::*;
use crate::clock::SimClock;
use crate::device::{BLOCK_BYTES, Completion};
use crate::sim::SimDevice;
use crate::sys::BlockBuf;
use crate::units::BytesPerSecond;

const BLOCK: usize = BLOCK_BYTES as usize;

struct Bench {
    device: FaultyDevice<SimDevice>,
    plan: Arc<FaultPlan>,
    clock: Arc<SimClock>,
    buf: BlockBuf,
}

impl Bench {
    fn new() -> Self {
        let plan = Arc::new(FaultPlan::new());
        let clock = Arc::new(SimClock::new(0));
        let sound = SimDevice::new(16 * BLOCK_BYTES, 1);
        let device = FaultyDevice::new(sound, Arc::clone(&plan), Arc::clone(&clock) as _);
        let mut buf = BlockBuf::zeroed(BLOCK);
        buf.fill(1);
        Self { device, plan, clock, buf }
    }

    fn write(&self, block: u64) -> Result<(), DeviceError> {
        self.device.write_at(block * BLOCK_BYTES, &self.buf)
    }

    fn submit(&self, queue: &mut Box<dyn WriteQueue>, block: u64) -> Result<(), DeviceError> {
        let offset_bytes = block * BLOCK_BYTES;
        // SAFETY: the bench, and with it the buffer, outlives the queues of its test, unchanged.
        unsafe { queue.submit(block, offset_bytes, self.buf.as_ptr(), self.buf.len()) }
    }
}

fn failed(done: &[Completion]) -> Vec<u64> {
    done.iter().filter(|done| done.result.is_err()).map(|done| done.token).collect()
}

#[test]
fn the_nth_write_fails_once_and_changes_nothing() {
    let bench = Bench::new();
    bench.plan.fail_write(2);
    bench.write(0).unwrap();
    let error = bench.write(1).unwrap_err();
    assert!(matches!(error, DeviceError::Io { op: "write", offset_bytes: 4096, .. }), "{error}");
    assert_eq!(bench.device.inner().snapshot()[BLOCK], 0);
    bench.write(1).unwrap();
    bench.device.flush().unwrap();
}

#[test]
fn the_nth_write_of_a_queue_fails_in_its_completion() {
    let bench = Bench::new();
    bench.plan.fail_write(3);
    let mut queue = bench.device.queue(4).unwrap();
    (0..4).for_each(|block| bench.submit(&mut queue, block).unwrap());
    assert_eq!(queue.outstanding(), 4);
    let mut done = Vec::new();
    queue.wait(4, &mut done).unwrap();
    assert_eq!((done.len(), failed(&done), queue.outstanding()), (4, vec![2], 0));
}

#[test]
fn no_space_lasts_until_healed() {
    let bench = Bench::new();
    bench.plan.no_space_from_write(2);
    bench.plan.no_space_from_grow(1);
    bench.write(0).unwrap();
    for _ in 0..3 {
        assert!(matches!(bench.write(1), Err(DeviceError::NoSpace { op: "write", .. })));
    }
    let error = bench.device.grow(32 * BLOCK_BYTES).unwrap_err();
    assert!(matches!(error, DeviceError::NoSpace { op: "grow", len_bytes: 65_536, .. }), "{error}");
    bench.plan.heal();
    bench.write(1).unwrap();
    bench.device.grow(32 * BLOCK_BYTES).unwrap();
    assert_eq!(bench.device.capacity_bytes(), 32 * BLOCK_BYTES);
}

#[test]
fn a_failed_flush_latches_for_good() {
    let bench = Bench::new();
    let mut queue = bench.device.queue(1).unwrap();
    bench.plan.fail_flush(2);
    bench.device.flush().unwrap();
    assert!(matches!(bench.device.flush(), Err(DeviceError::Io { op: "flush", .. })));
    bench.plan.heal();
    assert!(matches!(bench.device.flush(), Err(DeviceError::Latched { .. })));
    assert!(matches!(bench.write(0), Err(DeviceError::Latched { .. })));
    assert!(matches!(bench.submit(&mut queue, 0), Err(DeviceError::Latched { .. })));
    assert_eq!(bench.device.inner().ops(), 1);
}

#[test]
fn a_durable_write_that_fails_latches_whether_it_was_written_or_flushed() {
    for is_written in [false, true] {
        let bench = Bench::new();
        match is_written {
            true => bench.plan.fail_flush(2),
            false => bench.plan.fail_write(2),
        }
        bench.device.write_durable_at(0, &bench.buf).unwrap();
        assert_eq!(bench.device.inner().unflushed_bytes(), 0);
        let failed = bench.device.write_durable_at(BLOCK_BYTES, &bench.buf);
        let op = if is_written { "flush" } else { "write" };
        assert!(matches!(failed, Err(DeviceError::Io { op: failed, .. }) if failed == op));
        let unflushed_bytes = if is_written { BLOCK_BYTES } else { 0 };
        assert_eq!(bench.device.inner().unflushed_bytes(), unflushed_bytes);
        bench.plan.heal();
        let again = bench.device.write_durable_at(0, &bench.buf);
        assert!(matches!(again, Err(DeviceError::Latched { .. })));
        assert!(matches!(bench.device.flush(), Err(DeviceError::Latched { .. })));
    }
}

#[test]
fn the_nth_read_fails_once() {
    let bench = Bench::new();
    bench.plan.fail_read(1);
    let mut buf = BlockBuf::zeroed(BLOCK);
    assert!(matches!(bench.device.read_at(0, &mut buf), Err(DeviceError::Io { op: "read", .. })));
    bench.device.read_at(0, &mut buf).unwrap();
}

#[test]
fn a_bandwidth_limit_is_shared_by_all_writes_and_can_be_lifted() {
    let bench = Bench::new();
    bench.plan.slow_writes(Slowdown::AtMost(BytesPerSecond(BLOCK_BYTES * 1000)));
    bench.write(0).unwrap();
    assert_eq!(bench.clock.now_ns(), 1_000_000);
    let mut queue = bench.device.queue(4).unwrap();
    (0..4).for_each(|block| bench.submit(&mut queue, block).unwrap());
    let mut done = Vec::new();
    queue.wait(0, &mut done).unwrap();
    assert!(done.is_empty(), "nothing is due yet");
    queue.wait(4, &mut done).unwrap();
    assert_eq!((done.len(), bench.clock.now_ns()), (4, 5_000_000));
    bench.plan.slow_writes(Slowdown::None);
    bench.write(0).unwrap();
    assert_eq!(bench.clock.now_ns(), 5_000_000);
}

#[test]
fn held_back_writes_count_against_the_depth() {
    let bench = Bench::new();
    bench.plan.slow_writes(Slowdown::AtMost(BytesPerSecond(BLOCK_BYTES)));
    let mut queue = bench.device.queue(2).unwrap();
    bench.submit(&mut queue, 0).unwrap();
    bench.submit(&mut queue, 1).unwrap();
    let mut done = Vec::new();
    queue.wait(1, &mut done).unwrap();
    assert_eq!(done.len() + queue.outstanding(), 2);
    bench.submit(&mut queue, 2).unwrap();
    queue.wait(2, &mut done).unwrap();
    assert_eq!((done.len(), bench.clock.now_ns()), (3, 3_000_000_000));
}

#[test]
fn a_slowdown_multiplies_the_time_a_write_took() {
    let bench = Bench::new();
    let bandwidth = BytesPerSecond(BLOCK_BYTES * 1000);
    let timing =
        crate::Timing { bandwidth, read_latency_ns: 0, write_latency_ns: 0, flush_latency_ns: 0 };
    bench.device.inner().set_timing(Arc::clone(&bench.clock), timing);
    bench.plan.slow_writes(Slowdown::Times(3));
    bench.write(0).unwrap();
    assert_eq!(bench.clock.now_ns(), 3_000_000);
}

#[test]
fn a_power_cut_behind_the_faults_is_passed_on() {
    let bench = Bench::new();
    bench.device.inner().power_off();
    assert!(matches!(bench.write(0), Err(DeviceError::PowerLost)));
    assert!(matches!(bench.device.flush(), Err(DeviceError::PowerLost)));
}
