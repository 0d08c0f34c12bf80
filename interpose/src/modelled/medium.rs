//! The medium of all served files of this process: its time, its addresses, and the record of each
//! request.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};

use perdura_media::emulator::Tsc;
use perdura_media::recording::{Kind, Recorder, RecordingError, Step};
use perdura_media::{Access, Due, Emulator, EmulatorError, Pace};

use crate::modelled::settings::Settings;
use crate::modelled::tally::Tally;

/// Size of the address space if requests are only recorded, so that addresses never end.
const RECORDED_BYTES: u64 = 1 << 46;
/// Files' addresses begin at multiples of this, so that small files that grow do not overlap at
/// once.
const PLACE_BYTES: u64 = 64 << 20;

pub struct Medium {
    time: Time,
    capacity_bytes: u64,
    recorder: Option<Recorder>,
    /// False in a forked child: the recording is its parent's.
    is_recording: AtomicBool,
    /// Instant at which the last request of any thread ended.
    last_end_ps: AtomicU64,
    pub tally: Tally,
}

enum Time {
    Modelled(Box<Emulator>),
    Measured { tsc: Tsc, start: u64 },
}

/// The instant at which a request began.
#[derive(Clone, Copy)]
pub struct Begun {
    due: Due,
    ps: u64,
}

/// Why a medium cannot be made.
pub enum Refused {
    Emulator(EmulatorError),
    Recording(RecordingError),
}

impl Medium {
    pub fn new(settings: &Settings) -> Result<Self, Refused> {
        let time = match &settings.system {
            Some(system) => {
                // `place` maps addresses beyond the medium's end.
                let capacity_bytes = system.capacity().0 / PLACE_BYTES * PLACE_BYTES;
                let emulator =
                    Emulator::anonymous(system, capacity_bytes.max(PLACE_BYTES), Pace::Real);
                Time::Modelled(Box::new(emulator.map_err(Refused::Emulator)?))
            }
            None => {
                let tsc = Tsc::calibrated();
                Time::Measured { tsc, start: tsc.ticks() }
            }
        };
        let recorder = match &settings.record {
            Some(path) if !path.exists() => Some(Recorder::create(path, settings.record_steps)),
            // Another process records.
            _ => None,
        };
        let recorder = recorder.transpose().map_err(Refused::Recording)?;
        let medium = Self {
            capacity_bytes: match &time {
                Time::Modelled(emulator) => emulator.capacity_bytes(),
                Time::Measured { .. } => RECORDED_BYTES,
            },
            time,
            is_recording: AtomicBool::new(recorder.is_some()),
            recorder,
            last_end_ps: AtomicU64::new(0),
            tally: Tally::new(),
        };
        medium.last_end_ps.store(medium.begin().ps, Relaxed);
        Ok(medium)
    }

    /// The model's name; `None` if no medium is modelled.
    pub fn describe(&self) -> Option<String> {
        match &self.time {
            Time::Modelled(emulator) => Some(emulator.describe()),
            Time::Measured { .. } => None,
        }
    }

    #[inline]
    pub fn begin(&self) -> Begun {
        match &self.time {
            Time::Modelled(emulator) => {
                let due = emulator.now();
                Begun { due, ps: due.ps() }
            }
            Time::Measured { tsc, start } => {
                let ps = tsc.ps(tsc.ticks().saturating_sub(*start));
                Begun { due: Due::default(), ps }
            }
        }
    }

    /// Waits until the medium would be done with a request. The file's addresses begin at
    /// `base_bytes`.
    #[inline]
    pub fn end(&self, begun: Begun, kind: Kind, base_bytes: u64, offset_bytes: u64, bytes: usize) {
        let len_bytes = bytes as u64;
        let at_bytes = self.place(base_bytes, offset_bytes, len_bytes);
        let thread = thread();
        if let Some(recorder) = &self.recorder
            && self.is_recording.load(Relaxed)
        {
            let think_ps = begun.ps.saturating_sub(self.last_end_ps.load(Relaxed));
            let len_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            let (at_bytes, len_bytes) = match kind {
                Kind::Flush => (0, 0),
                _ => (at_bytes, len_bytes),
            };
            recorder.record(thread, &Step { think_ps, kind, offset_bytes: at_bytes, len_bytes });
        }
        let (due_ps, end_ps) = match &self.time {
            Time::Modelled(emulator) => {
                let book = |access| emulator.book_since(begun.due, access, at_bytes, len_bytes);
                let due = match kind {
                    Kind::Read => book(Access::Read),
                    Kind::Write => book(Access::Write),
                    Kind::Flush => emulator.flush(),
                };
                (due.ps(), due.ps() + emulator.wait(due))
            }
            Time::Measured { .. } => (begun.ps, self.begin().ps),
        };
        let (modelled_ps, measured_ps) =
            (due_ps.saturating_sub(begun.ps), end_ps.saturating_sub(begun.ps));
        self.tally.count(thread, kind, len_bytes, modelled_ps, measured_ps);
        self.last_end_ps.store(end_ps, Relaxed);
    }

    /// An address on the medium. Files that together are larger than the medium share addresses:
    /// its time is modelled, not its room.
    #[inline]
    fn place(&self, base_bytes: u64, offset_bytes: u64, len_bytes: u64) -> u64 {
        let at_bytes = base_bytes.saturating_add(offset_bytes);
        match at_bytes.checked_add(len_bytes).is_some_and(|end| end <= self.capacity_bytes) {
            true => at_bytes,
            false => {
                let room_bytes = self.capacity_bytes.saturating_sub(len_bytes);
                (at_bytes % self.capacity_bytes).min(room_bytes)
            }
        }
    }

    /// Addresses that a file of this size gets, with room for some growth.
    pub fn place_bytes(&self, size_bytes: u64) -> u64 {
        size_bytes.saturating_add(1).next_multiple_of(PLACE_BYTES).min(self.capacity_bytes)
    }

    pub fn recorder(&self) -> Option<&Recorder> {
        self.recorder.as_ref().filter(|_| self.is_recording.load(Relaxed))
    }

    /// Resets a forked child: it has made no request, and does not record.
    pub fn part(&self) {
        self.is_recording.store(false, Relaxed);
        self.tally.clear();
    }

    /// Ends the recording.
    pub fn stop_recording(&self) -> Result<(), RecordingError> {
        match (&self.recorder, self.is_recording.swap(false, Relaxed)) {
            (Some(recorder), true) => recorder.finish(),
            _ => Ok(()),
        }
    }
}

/// This thread's number, from 0, in the order of first requests.
#[inline]
fn thread() -> u32 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    thread_local! {
        static NUMBER: Cell<u32> = const { Cell::new(u32::MAX) };
    }
    let number = NUMBER.get();
    if number != u32::MAX {
        return number;
    }
    NUMBER.set(COUNT.fetch_add(1, Relaxed));
    NUMBER.get()
}
