//! Measures the figures of a device that a model needs: its rate with a full queue, and the time of
//! a write and of a flush beyond their bytes.

use std::sync::Arc;

use perdura_dirty::policy::pace::QUEUE_DEPTH;
use perdura_media::{BlockBuf, BytesPerSecond, Clock, Device, DeviceError, RealClock, Timing};

/// Bytes written with a full queue.
const STREAM_BYTES: u64 = 96 << 20;
/// Length of each write, bytes.
const FRAME_BYTES: u64 = 256 << 10;
/// Single operations, of which the median counts.
const SINGLES: usize = 41;

/// Measures a device whose contents may be overwritten: about 100 MB are written.
///
/// # Errors
/// The device failed.
pub fn probe(device: &Arc<dyn Device>) -> Result<Timing, DeviceError> {
    device.grow(STREAM_BYTES)?;
    // The bytes are written once before: space never written is slower, and a log writes its space
    // again and again.
    stream(device)?;
    let stream_ns = stream(device)?;
    let bytes_per_s = u128::from(STREAM_BYTES) * 1_000_000_000 / u128::from(stream_ns.max(1));
    let bandwidth = BytesPerSecond(u64::try_from(bytes_per_s).unwrap_or(u64::MAX).max(1));
    let mut block = BlockBuf::zeroed(4096);
    let mut times = [const { Vec::new() }; 3];
    for at in 0..SINGLES as u64 {
        let began_ns = RealClock.now_ns();
        device.write_at(at * FRAME_BYTES, &block)?;
        let written_ns = RealClock.now_ns();
        device.flush()?;
        let flushed_ns = RealClock.now_ns();
        device.read_at(at * FRAME_BYTES, &mut block)?;
        times[0].push(written_ns - began_ns);
        times[1].push(flushed_ns - written_ns);
        times[2].push(RealClock.now_ns() - flushed_ns);
    }
    let [write_latency_ns, flush_latency_ns, read_latency_ns] = times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2]
    });
    Ok(Timing { bandwidth, read_latency_ns, write_latency_ns, flush_latency_ns })
}

/// Writes all bytes with a full queue and flushes; returns the time that took, nanoseconds.
fn stream(device: &Arc<dyn Device>) -> Result<u64, DeviceError> {
    let frame = BlockBuf::zeroed(FRAME_BYTES as usize);
    let mut done = Vec::new();
    let mut queue = device.queue(QUEUE_DEPTH)?;
    let began_ns = RealClock.now_ns();
    for at in (0..STREAM_BYTES).step_by(FRAME_BYTES as usize) {
        if queue.outstanding() == QUEUE_DEPTH {
            queue.wait(1, &mut done)?;
        }
        // SAFETY: the frame is not changed, and outlives the queue, which was made after it.
        unsafe { queue.submit(at, at, frame.as_ptr(), FRAME_BYTES as usize) }?;
    }
    queue.wait(queue.outstanding(), &mut done)?;
    done.into_iter().try_for_each(|completion| completion.result)?;
    device.flush()?;
    Ok(RealClock.now_ns() - began_ns)
}
