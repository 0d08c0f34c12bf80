//! Measures how long it takes to reopen a heap whose process was killed.

use super::contestant::Who;
use super::process::Worker;
use super::protocol::{Order, Setup};
use super::result::{Recovery, Spread};
use super::round::timed;
use super::{HeapBenchError, HeapSettings};

/// Number of heap sizes that are measured.
pub const SIZES: usize = 3;
/// Openings of each heap; every one ends with a kill.
const OPENINGS: usize = 5;

/// Numbers of objects: half of the setting, the setting, and twice the setting.
pub fn sizes(objects: usize) -> [usize; SIZES] {
    [objects.div_ceil(2), objects, objects * 2]
}

/// Fills a heap, churns it, kills the process, and has other processes open the heap.
pub fn measure(settings: &HeapSettings, setup: Setup) -> Result<Recovery, HeapBenchError> {
    let who = Who::Perdura;
    let file = setup.dir.join("recovery");
    let setup = Setup { keep: Some(file.clone()), ..setup };
    let mut filling = Worker::start(&settings.worker, &setup)?;
    timed(who, filling.order(&Order::Populate)?)?;
    timed(who, filling.order(&Order::Warm(setup.objects as u64))?)?;
    // The process is killed in the middle of its work: nothing is folded or closed.
    drop(filling);
    let opening = Setup { objects: 0, ..setup.clone() };
    let mut found = Vec::new();
    for _ in 0..OPENINGS {
        let reopened = Worker::start(&settings.worker, &opening)?.reopened;
        found.extend(reopened);
    }
    std::fs::remove_file(&file)
        .map_err(|cause| HeapBenchError::Dir { dir: file.clone(), cause })?;
    // The table of addresses is one more object.
    let expected = setup.objects as u64 + 1;
    let wrong = found.iter().find(|reopened| reopened.objects != expected);
    if let Some(objects) = wrong.map(|reopened| reopened.objects) {
        return Err(HeapBenchError::Lost { expected, objects });
    }
    let Some(first) = found.first() else { return Err(HeapBenchError::NotReopened { file }) };
    let ns = Spread::of(&found.iter().map(|reopened| reopened.ns as f64).collect::<Vec<_>>());
    let objects_per_s = expected as f64 * 1e9 / ns.median;
    Ok(Recovery {
        objects: expected,
        records: first.records,
        ns,
        objects_per_s,
        objects_per_s_per_thread: objects_per_s / setup.threads as f64,
    })
}
