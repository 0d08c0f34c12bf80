//! Recording an operation: a heap is made, the operation's steps are run, and the oracle learns the
//! effect of each.

use std::sync::Arc;

use perdura_heap::{Heap, HeapError, Offset};

use super::broken::Broken;
use super::contents::Contents;
use super::explore::{End, Loss, Subject};
use super::model::Lines;
use super::oracle::Expected;
use super::settings::{FIRST_BOOT, Settings};
use super::subject::HeapSubject;
use super::sys::{Bytes, memory_of};
use super::trace::{Event, Recorder, States, Trace};

/// Bytes of each heap, as few as serve, because each crash state has a heap of its own.
pub(crate) const HEAP_BYTES: u64 = 4 << 20;

/// An operation to be checked.
pub(crate) struct Operation {
    pub name: &'static str,
    pub settings: Settings,
    pub start: Start,
    /// Most losses in a row.
    pub losses_max: usize,
    /// Losses are tried in the recovery of one state in so many.
    pub recovery_one_in: u64,
    /// Losses are tried in the recovery from one killed process in so many.
    pub kill_one_in: u64,
    pub run: fn(&mut Script) -> Result<(), Broken>,
}

/// The part of an operation that is recorded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// The steps after [`Script::begin`].
    Steps,
    /// The making of the heap, and its steps.
    Nothing,
    /// The longest recovery from a loss during the steps.
    Recovery,
}

impl Operation {
    /// An operation that is recorded from [`Script::begin`] on.
    pub fn new(
        name: &'static str,
        settings: Settings,
        run: fn(&mut Script) -> Result<(), Broken>,
    ) -> Self {
        let start = Start::Steps;
        let (recovery_one_in, kill_one_in) = (16, 1);
        Self { name, settings, start, losses_max: 2, recovery_one_in, kill_one_in, run }
    }

    /// The operation with losses in fewer of its recoveries, each of which puts a whole log in
    /// place.
    pub fn with_long_recoveries(self) -> Self {
        Self { recovery_one_in: self.recovery_one_in * 4, kill_one_in: 4, ..self }
    }

    /// An operation whose recovery is recorded.
    pub fn recovery(
        name: &'static str,
        settings: Settings,
        run: fn(&mut Script) -> Result<(), Broken>,
    ) -> Self {
        let start = Start::Recovery;
        let (recovery_one_in, kill_one_in) = (4, 1);
        Self { name, settings, start, losses_max: 3, recovery_one_in, kill_one_in, run }
    }
}

/// A recorded operation.
pub(crate) struct Recorded {
    /// The memory at the begin, with the stores that were not persisted then.
    pub lines: Lines,
    pub trace: Trace,
    pub subject: HeapSubject,
    /// Number of the boot in which the operation was recorded.
    pub boot: u64,
    pub losses_max: usize,
    pub recovery_one_in: u64,
    pub kill_one_in: u64,
}

impl Recorded {
    /// The event at `index` in words.
    pub fn describe(&self, index: usize) -> String {
        self.trace.events.get(index).map(Event::to_string).unwrap_or_default()
    }
}

/// A heap in use, with the contents that it should have and the recording of its stores.
pub(crate) struct Script {
    pub heap: Heap,
    bytes: Bytes,
    recorder: Arc<Recorder>,
    lines: Lines,
    /// Whether the steps are recorded; before that they only prepare.
    is_begun: bool,
    states: Vec<Expected>,
}

/// Runs an operation once, without any loss, and records the part that is checked.
pub(crate) fn record(operation: &Operation) -> Result<Recorded, Broken> {
    let recorded = run(operation)?;
    if operation.start == Start::Recovery { recovered(recorded) } else { Ok(recorded) }
}

fn run(operation: &Operation) -> Result<Recorded, Broken> {
    let recorder = Arc::new(Recorder::default());
    let contents = Contents::zeroed(HEAP_BYTES);
    let (memory, bytes) = memory_of(&contents)?;
    let heap = Heap::open(memory, operation.settings.config(&recorder, FIRST_BOOT))
        .map_err(Broken::Open)?;
    let mut script = Script {
        heap,
        bytes,
        recorder,
        lines: Lines::new(&contents),
        is_begun: operation.start == Start::Nothing,
        states: vec![Expected { step: "nothing", ..Expected::default() }],
    };
    (operation.run)(&mut script)?;
    let trace = script.recorder.take();
    let mut end = script.lines.clone();
    trace.events.iter().for_each(|event| end.apply(event));
    if let Some(offset) = bytes.first_difference(end.current(), true) {
        return Err(Broken::Untapped { when: "recording", offset });
    }
    let settings = operation.settings;
    let subject = HeapSubject { settings, boot: 0, seed: 0, states: script.states };
    let Operation { losses_max, recovery_one_in, kill_one_in, .. } = *operation;
    let (lines, boot) = (script.lines, 0);
    Ok(Recorded { lines, trace, subject, boot, losses_max, recovery_one_in, kill_one_in })
}

/// The longest recovery from a loss of power during the recording, as a recording of its own.
fn recovered(recorded: Recorded) -> Result<Recorded, Broken> {
    let mut lines = recorded.lines.clone();
    let mut allowed = States::one(0);
    let mut longest: Option<(Contents, Trace)> = None;
    let end = End { loss: Loss::Power, boot: 1 };
    for event in &recorded.trace.events {
        lines.apply(event);
        if let Event::Mark(states) = event {
            allowed = *states;
        }
        if matches!(event, Event::Flush { .. }) {
            continue;
        }
        // Only the stores that must be persisted, or all stores.
        for contents in [lines.guaranteed(), lines.current()] {
            let reopened = recorded.subject.reopen(contents, end)?;
            let found = reopened.states.and(allowed);
            let len = reopened.recovery.events.len();
            if !found.is_none()
                && longest.as_ref().is_none_or(|(_, trace)| trace.events.len() <= len)
            {
                let mut trace = reopened.recovery;
                trace.events.insert(0, Event::Mark(allowed));
                trace.events.push(Event::Mark(found));
                longest = Some((contents.clone(), trace));
            }
        }
    }
    let Some((contents, trace)) = longest else { return Ok(recorded) };
    Ok(Recorded { lines: Lines::new(&contents), trace, boot: 1, ..recorded })
}

impl Script {
    /// Ends the preparation: from here on losses are tried.
    pub fn begin(&mut self) {
        for event in &self.recorder.take().events {
            self.lines.apply(event);
        }
        self.is_begun = true;
    }

    /// Runs one step. `run` carries the step out and changes the expected contents accordingly.
    pub fn step<R>(
        &mut self,
        step: &'static str,
        run: impl FnOnce(&Heap, &mut Expected) -> Result<R, HeapError>,
    ) -> Result<R, Broken> {
        let number = self.states.len() - 1;
        let mut next = self.states[number].clone();
        next.step = step;
        let began = self.recorder.len();
        let result = run(&self.heap, &mut next).map_err(|error| Broken::Refused { step, error })?;
        let mut ways = std::mem::take(&mut next.ways);
        ways.push(next);
        if !self.is_begun {
            self.states.clear();
            self.states.extend(ways.pop());
            return Ok(result);
        }
        self.states.extend(ways);
        let last = self.states.len() - 1;
        let under_way = (number..=last).map(States::one).fold(States(0), States::or);
        self.recorder.mark_after(began, under_way);
        self.recorder.mark(States::one(last));
        Ok(result)
    }

    /// Makes an object that has these bytes durably, in several steps.
    pub fn object(&mut self, step: &'static str, bytes: &[u8]) -> Result<Offset, Broken> {
        let len = bytes.len() as u64;
        let offset = self.step(step, |heap, expected| {
            let offset = heap.persist_alloc(len)?;
            expected.settle();
            expected.alloc(offset.get(), len, None);
            Ok(offset)
        })?;
        self.fill(step, offset, bytes)?;
        Ok(offset)
    }

    /// Notes that an object's bytes may be anything from here on.
    fn forget(&mut self, step: &'static str, object: Offset) -> Result<(), Broken> {
        self.step(step, |_, next| {
            if let Some(object) = next.objects.get_mut(&object.get()) {
                object.bytes = None;
            }
            Ok(())
        })
    }

    /// Stores an object's bytes as a user of the heap does, and makes them durable.
    pub fn fill(&mut self, step: &'static str, offset: Offset, bytes: &[u8]) -> Result<(), Broken> {
        if self.states[self.states.len() - 1].has_bytes(offset.get()) {
            self.forget("bytes on their way", offset)?;
        }
        self.bytes.write(offset.get(), bytes);
        self.recorder.store(offset.get(), bytes);
        self.step(step, |heap, expected| {
            heap.persist(offset, bytes.len() as u64);
            expected.settle();
            expected.alloc(offset.get(), bytes.len() as u64, Some(bytes.to_vec()));
            Ok(())
        })
    }
}
