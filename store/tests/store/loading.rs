//! A store that answers before its memory is loaded.

use std::sync::Arc;

use crate::harness::{config, deferred_on};
use perdura_media::SimClock;
use perdura_media::sim::SimDevice;
use perdura_region::{Config, Region};
use perdura_store::Key;

#[test]
fn the_final_flush_does_not_wait_for_a_shard_to_be_searched() {
    let (device, clock) = (SimDevice::new(0, 1), Arc::new(SimClock::new(1)));
    let config = || Config { defer_load: true, ..config(1 << 20) };
    let open = || {
        let region = Region::open(Arc::new(device.clone()), clock.clone(), config()).unwrap();
        deferred_on(region, &clock)
    };
    let first = open();
    for number in 0..8_000u32 {
        first.put(Key::new(&number.to_le_bytes()), &[1; 1000]).unwrap();
    }
    first.region().close(1).unwrap();
    drop(first);

    let second = open();
    // SIGTERM: from here on the flush waits for every shard, and the warning's time runs.
    second.region().refuse_writers();
    let before = second.region().load_progress().unwrap();
    assert!(second.rebuild_next().is_err());
    // Who wants a count is not kept either.
    let _ = second.len(0);
    let after = second.region().load_progress().unwrap();
    // The blocks of the shards' roots.
    let loaded_bytes = after.loaded_bytes - before.loaded_bytes;
    assert!(loaded_bytes <= 8 * (64 << 10), "{loaded_bytes} bytes loaded to count keys");
    second.region().close(1).unwrap();
    drop(second);
    assert_eq!(open().len(0), 8_000);
}
