//! The appender: a frame passes from its writer to the device and back in one pair of hands, and a
//! process that takes over after a kill finds what was published complete.

use std::sync::Arc;
use std::time::Duration;

use crate::append::{Appender, Refusal, Source, free_buffer};
use crate::budget::Budget;
use crate::explore::{Model, Planted, Subject, spawn};
use crate::extent::Extent;
use crate::ledger::{BufferState, Ledger};
use crate::locations::NO_LOCATION;
use crate::ranks::Rank;
use crate::seal::frame_bytes;
use crate::sync::{NoTime, Ordering::*, fence};
use crate::waited::Waited;

const FILE: &str = "image/src/append.rs";
const BUFFER: &str = "dirty/src/ledger/buffer.rs";
const HANDS: &str = "a frame is in one pair of hands, and who waits for its buffer is woken";
const TAKEN_OVER: &str = "who takes over finds what was published complete";
const COUNTED: &str = "who takes over finds live bytes counted or marked as uncounted";

/// The appender, and what a process that takes over relies on.
pub const SUBJECT: Subject = Subject {
    models: &[
        Model { name: HANDS, run: hands, preemptions: 2 },
        Model { name: TAKEN_OVER, run: taken_over, preemptions: 3 },
        Model { name: COUNTED, run: counted, preemptions: 3 },
    ],
    planted: &[
        Planted { file: FILE, text: "buffer.fill().store((extents", found_by: TAKEN_OVER },
        Planted {
            file: BUFFER,
            text: "self.words[0].store(state as u64, Release)",
            found_by: TAKEN_OVER,
        },
        Planted { file: FILE, text: "        fence(Release);", found_by: COUNTED },
        Planted { file: FILE, text: "ledger.uncounted().store(0, Release)", found_by: COUNTED },
        Planted {
            file: "dirty/src/budget.rs",
            text: "if self.waiters.load(SeqCst) > 0",
            found_by: HANDS,
        },
    ],
};

const GRAIN: Extent = Extent { grain: 1, len: 1 };

fn appender() -> Appender {
    Appender::new(vec![0], [0, 1].into(), 0, 1 << 14)
}

struct Log {
    ledger: Ledger,
    budget: Budget,
    appender: Waited<Appender>,
}

impl Log {
    /// Appends a grain and closes the frame; waits for a buffer as a writer does.
    fn append(&self) {
        loop {
            let seen = self.budget.version();
            let mut appender = self.appender.lock();
            match appender.append(&self.ledger, Source::Zeros, GRAIN, true) {
                Ok(_) => return appender.close_frame(&self.ledger, 0),
                Err(Refusal::NoBuffer) => {
                    drop(appender);
                    self.budget.wait(&NoTime, seen, Duration::MAX);
                }
                Err(Refusal::NoSegment) => unreachable!("two frames fit a segment"),
            }
        }
    }

    /// Takes a closed frame to the device, and frees its buffer.
    fn write(&self) -> bool {
        let Some(number) = self.appender.lock().closed.pop_front() else { return false };
        let buffer = self.ledger.buffer(number);
        // SAFETY: a closed frame that was taken out belongs to who took it; loom reports it if not.
        let bytes = unsafe { buffer.bytes_mut(64, 64) };
        assert!(bytes.iter().all(|byte| *byte == 0) && frame_bytes(&buffer) == 4096);
        bytes.fill(1);
        buffer.charged_bytes().swap(0, AcqRel);
        free_buffer(&self.ledger, number);
        self.appender.lock().free_buffers.push(number);
        self.budget.notify();
        true
    }
}

/// A writer appends two frames through one buffer, beside whoever writes them to the device.
fn hands() {
    let log = Arc::new(Log {
        ledger: Ledger::default(),
        budget: Budget::default(),
        appender: Waited::new(Rank::Appender, appender()),
    });
    log.append();
    let writer = {
        let log = Arc::clone(&log);
        spawn(move || log.append())
    };
    assert!(log.write(), "a frame was closed");
    assert!(writer.join().is_ok());
    assert!(log.write(), "a second frame was closed");
}

/// A process is killed while it appends a grain to a frame; another one looks at the buffer.
fn taken_over() {
    let ledger = Arc::new(Ledger::default());
    let killed = {
        let ledger = Arc::clone(&ledger);
        spawn(move || {
            let appended = appender().append(&ledger, Source::Zeros, GRAIN, true);
            assert_eq!(appended, Ok(1));
        })
    };
    let buffer = ledger.buffer(0);
    if buffer.state() == BufferState::Filling {
        assert_eq!(buffer.seq().load(Relaxed), 1, "the frame has no number");
        if buffer.fill().load(Acquire) >> 32 == 1 {
            assert_eq!(buffer.table()[0].load(Relaxed), GRAIN.pack(), "the table is incomplete");
            // SAFETY: the killed process appended nothing after this; loom reports it otherwise.
            let _bytes = unsafe { buffer.bytes_mut(64, 64) };
        }
    }
    assert!(killed.join().is_ok());
}

/// A process is killed while it enters a location; another one looks at the counts.
fn counted() {
    let ledger = Arc::new(Ledger::default());
    let killed = {
        let ledger = Arc::clone(&ledger);
        spawn(move || {
            let appended = appender().append(&ledger, Source::Zeros, GRAIN, true);
            assert_eq!(appended, Ok(1));
        })
    };
    let location = ledger.locations().of(GRAIN.grain);
    fence(Acquire);
    if location != NO_LOCATION && ledger.uncounted().load(Acquire) == 0 {
        let live = ledger.segment(location - 1).live_bytes().load(Relaxed);
        assert_eq!(live, 64, "the live bytes were not counted");
    }
    assert!(killed.join().is_ok());
}
