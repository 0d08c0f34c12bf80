//! Stores, flushes and fences of an operation in their order, with the moments between them.
//!
//! A fence completes the flushes of its own thread only, so flushes and fences carry the thread's
//! number, given in the order of their first event. Marks are no events of the memory: a mark says
//! which states the oracle allows from there on.

use std::fmt;
use std::sync::Arc;
use std::thread::ThreadId;

use parking_lot::Mutex;

use super::contents::Contents;

/// A set of the oracle's states, a bit for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct States(pub u64);

impl States {
    /// The set that has only state `number`.
    pub fn one(number: usize) -> Self {
        Self(1 << number)
    }

    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    pub fn numbers(self) -> impl Iterator<Item = usize> {
        (0..64).filter(move |number| self.0 >> number & 1 == 1)
    }
}

/// One event of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    Store {
        offset: u64,
        bytes: Arc<[u8]>,
    },
    /// A store past the caches: as if stored and flushed at once.
    Stream {
        offset: u64,
        bytes: Arc<[u8]>,
        thread: usize,
    },
    /// Pages that were given up: they read as zeros, which a loss may undo.
    Empty {
        offset: u64,
        len: u64,
    },
    Flush {
        line_offset: u64,
        thread: usize,
    },
    Fence {
        thread: usize,
    },
    /// From here on a loss leads to one of these states.
    Mark(States),
}

impl Event {
    /// Offset and bytes of a store.
    pub fn stored(&self) -> Option<(u64, &[u8])> {
        match self {
            Self::Store { offset, bytes } | Self::Stream { offset, bytes, .. } => {
                Some((*offset, bytes))
            }
            Self::Empty { .. } | Self::Flush { .. } | Self::Fence { .. } | Self::Mark(_) => None,
        }
    }
}

impl Event {
    /// Changes the bytes that all processors see.
    pub fn change(&self, contents: &mut Contents) {
        match self {
            Self::Store { offset, bytes } | Self::Stream { offset, bytes, .. } => {
                contents.write(*offset, bytes);
            }
            Self::Empty { offset, len } => contents.empty(*offset, *len),
            Self::Flush { .. } | Self::Fence { .. } | Self::Mark(_) => {}
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store { offset, bytes } => write!(f, "{} bytes at {offset:#x}", bytes.len()),
            Self::Stream { offset, bytes, .. } => {
                write!(f, "{} bytes past the caches at {offset:#x}", bytes.len())
            }
            Self::Empty { offset, len } => write!(f, "{len} bytes given up at {offset:#x}"),
            Self::Flush { line_offset, .. } => write!(f, "line {line_offset:#x}"),
            Self::Fence { thread } => write!(f, "fence of thread {thread}"),
            Self::Mark(_) => f.write_str("end of a step"),
        }
    }
}

/// Events in the order in which they happened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Trace {
    pub events: Vec<Event>,
}

impl Trace {
    /// Number of stores, together with those past the caches.
    pub fn stores(&self) -> usize {
        self.events.iter().filter(|event| event.stored().is_some()).count()
    }

    pub fn flushes(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::Flush { .. })).count()
    }

    pub fn fences(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::Fence { .. })).count()
    }
}

thread_local! {
    /// The number of this thread, which takes long to find.
    static THIS_THREAD: ThreadId = std::thread::current().id();
}

/// Records stores, flushes and fences of a heap.
#[derive(Default)]
pub(crate) struct Recorder {
    recording: Mutex<Recording>,
}

#[derive(Default)]
struct Recording {
    trace: Trace,
    /// Threads as they came: two or three, so a search is faster than a table.
    threads: Vec<ThreadId>,
}

impl Recorder {
    pub fn store(&self, offset: u64, bytes: &[u8]) {
        self.push(|_| Event::Store { offset, bytes: bytes.into() });
    }

    pub fn stream(&self, offset: u64, bytes: &[u8]) {
        self.push(|thread| Event::Stream { offset, bytes: bytes.into(), thread });
    }

    pub fn empty(&self, offset: u64, len: u64) {
        self.push(|_| Event::Empty { offset, len });
    }

    pub fn flush(&self, line_offset: u64) {
        self.push(|thread| Event::Flush { line_offset, thread });
    }

    pub fn fence(&self) {
        self.push(|thread| Event::Fence { thread });
    }

    /// From here on a loss leads to one of `states`.
    pub fn mark(&self, states: States) {
        self.push(|_| Event::Mark(states));
    }

    /// Number of events so far.
    pub fn len(&self) -> usize {
        self.recording.lock().trace.events.len()
    }

    /// Marks a past moment: the one after `events` events.
    pub fn mark_after(&self, events: usize, states: States) {
        self.recording.lock().trace.events.insert(events, Event::Mark(states));
    }

    /// Takes the events that were recorded since the last call.
    pub fn take(&self) -> Trace {
        std::mem::take(&mut self.recording.lock().trace)
    }

    fn push(&self, event: impl FnOnce(usize) -> Event) {
        let mut recording = self.recording.lock();
        let id = THIS_THREAD.with(|id| *id);
        let known = recording.threads.iter().position(|other| *other == id);
        let thread = known.unwrap_or_else(|| {
            recording.threads.push(id);
            recording.threads.len() - 1
        });
        recording.trace.events.push(event(thread));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_numbered_as_they_come() {
        let recorder = Recorder::default();
        recorder.fence();
        std::thread::scope(|scope| {
            scope.spawn(|| recorder.flush(64));
        });
        recorder.fence();
        let first = Event::Fence { thread: 0 };
        let flush = Event::Flush { line_offset: 64, thread: 1 };
        assert_eq!(recorder.take().events, [first.clone(), flush, first]);
        assert!(recorder.take().events.is_empty());
    }
}
