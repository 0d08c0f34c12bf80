//! Bugs planted in a trace: the heap as it would be if it had forgotten a flush or stored in
//! another order.
//!
//! The heap need not cooperate, so a bug is planted at each flush, fence and store in turn. Bugs in
//! which the heap does cooperate are recorded and recovered with the bug.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use perdura_heap::Planted;

use super::trace::{Event, Trace};

/// A bug. A number counts the events of that kind from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bug {
    /// A flush was forgotten.
    DropFlush(usize),
    /// A fence was forgotten.
    DropFence(usize),
    /// A store and the next one came in the other order.
    SwapStores(usize),
    /// Two stores of the same length were each given the other's bytes.
    SwapBytes(usize),
    /// A wrong turn of the heap.
    Heap(Planted),
}

/// A text that names no bug.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} names no bug: expected drop-flush:N, drop-fence:N, swap-stores:N, swap-bytes:N or one \
     of {known}",
    known = of_heap()
)]
pub struct NotABug(String);

fn of_heap() -> String {
    Planted::ALL.map(Planted::name).join(", ")
}

impl Bug {
    /// All bugs that can be planted in a trace.
    pub(crate) fn all(trace: &Trace) -> Vec<Self> {
        let mut bugs: Vec<_> = (0..trace.flushes()).map(Self::DropFlush).collect();
        bugs.extend((0..trace.fences()).map(Self::DropFence));
        bugs.extend((0..trace.stores()).map(Self::SwapStores));
        bugs.extend((0..trace.stores()).map(Self::SwapBytes));
        bugs.retain(|bug| bug.plant(trace).is_some());
        bugs
    }

    /// The kind of the bug, as the report names it.
    pub fn kind(self) -> &'static str {
        match self {
            Self::DropFlush(_) => "drop-flush",
            Self::DropFence(_) => "drop-fence",
            Self::SwapStores(_) => "swap-stores",
            Self::SwapBytes(_) => "swap-bytes",
            Self::Heap(planted) => planted.name(),
        }
    }

    /// Whether the bug shows waste if it is not caught. That the order of two stores does not
    /// matter is no waste.
    pub fn is_waste(self) -> bool {
        matches!(self, Self::DropFlush(_) | Self::DropFence(_))
    }

    /// The trace with the bug; `None` if there is no such place or the bug would change nothing.
    pub(crate) fn plant(self, trace: &Trace) -> Option<Trace> {
        let mut events = trace.events.clone();
        match self {
            // The trace was recorded with it.
            Self::Heap(_) => {}
            Self::DropFlush(_) | Self::DropFence(_) => {
                events.remove(self.index(trace)?);
            }
            Self::SwapStores(_) => {
                let at = self.index(trace)?;
                events.swap(at, next_store(trace, at)?);
            }
            Self::SwapBytes(_) => {
                let at = self.index(trace)?;
                let next = next_store(trace, at)?;
                let ((_, bytes), (_, other)) =
                    (trace.events[at].stored()?, trace.events[next].stored()?);
                if bytes.len() != other.len() || bytes == other {
                    return None;
                }
                set_bytes(&mut events[at], other.into());
                set_bytes(&mut events[next], bytes.into());
            }
        }
        Some(Trace { events })
    }

    /// Index of the event at which the bug is planted.
    pub(crate) fn index(self, trace: &Trace) -> Option<usize> {
        match self {
            Self::DropFlush(number) => {
                nth(trace, number, |event| matches!(event, Event::Flush { .. }))
            }
            Self::DropFence(number) => {
                nth(trace, number, |event| matches!(event, Event::Fence { .. }))
            }
            Self::SwapStores(number) | Self::SwapBytes(number) => nth(trace, number, is_store),
            Self::Heap(_) => None,
        }
    }
}

fn nth(trace: &Trace, number: usize, is_it: impl Fn(&Event) -> bool) -> Option<usize> {
    let mut of_kind = trace.events.iter().enumerate().filter(|(_, event)| is_it(event));
    of_kind.nth(number).map(|(index, _)| index)
}

/// The store after the one at `at`, in the same step of the operation.
fn next_store(trace: &Trace, at: usize) -> Option<usize> {
    let after = trace.events[at + 1..].iter();
    let step = after.take_while(|event| !matches!(event, Event::Mark(_)));
    step.zip(at + 1..).find(|(event, _)| is_store(event)).map(|(_, index)| index)
}

fn set_bytes(event: &mut Event, new: Arc<[u8]>) {
    if let Event::Store { bytes, .. } | Event::Stream { bytes, .. } = event {
        *bytes = new;
    }
}

fn is_store(event: &Event) -> bool {
    event.stored().is_some()
}

impl FromStr for Bug {
    type Err = NotABug;

    fn from_str(text: &str) -> Result<Self, NotABug> {
        let wrong = || NotABug(text.to_owned());
        if let Some(planted) = Planted::ALL.into_iter().find(|bug| bug.name() == text) {
            return Ok(Self::Heap(planted));
        }
        let (kind, number) = text.split_once(':').ok_or_else(wrong)?;
        let number = number.parse().map_err(|_| wrong())?;
        match kind {
            "drop-flush" => Ok(Self::DropFlush(number)),
            "drop-fence" => Ok(Self::DropFence(number)),
            "swap-stores" => Ok(Self::SwapStores(number)),
            "swap-bytes" => Ok(Self::SwapBytes(number)),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Bug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DropFlush(number)
            | Self::DropFence(number)
            | Self::SwapStores(number)
            | Self::SwapBytes(number) => write!(f, "{}:{number}", self.kind()),
            Self::Heap(planted) => f.write_str(planted.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::trace::{Recorder, States};
    use super::*;

    #[test]
    fn each_bug_changes_one_thing() {
        let recorder = Recorder::default();
        recorder.store(0, &[1; 8]);
        recorder.flush(0);
        recorder.fence();
        recorder.store(64, &[2; 8]);
        recorder.mark(States::one(1));
        recorder.store(72, &[2; 8]);
        let trace = recorder.take();
        let bugs: Vec<_> = Bug::all(&trace).iter().map(Bug::to_string).collect();
        assert_eq!(bugs, ["drop-flush:0", "drop-fence:0", "swap-stores:0", "swap-bytes:0"]);
        let swapped = Bug::SwapStores(0).plant(&trace).unwrap();
        assert_eq!(swapped.events[0], trace.events[3]);
        assert_eq!(swapped.events[3], trace.events[0]);
        assert_eq!(Bug::DropFlush(0).plant(&trace).unwrap().flushes(), 0);
        let Event::Store { offset: 0, bytes } = &Bug::SwapBytes(0).plant(&trace).unwrap().events[0]
        else {
            panic!("another event came first");
        };
        assert_eq!(bytes[..], [2; 8]);
    }

    #[test]
    fn a_name_is_read_as_it_is_written() {
        for name in
            ["drop-flush:0", "drop-fence:12", "swap-stores:3", "swap-bytes:4", "clear-unmarked"]
        {
            assert_eq!(name.parse::<Bug>().unwrap().to_string(), name);
        }
        for wrong in ["drop-flush", "drop-flush:", "drop:1", "swap-bytes:-1"] {
            assert!(wrong.parse::<Bug>().is_err(), "{wrong}");
        }
    }
}
