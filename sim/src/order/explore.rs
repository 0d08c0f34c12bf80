//! Walks a trace event by event, and reopens each crash state once.
//!
//! The result of a state is remembered by the state's bytes, so a state that was seen before costs
//! a look-up, also when the trace is walked again with a bug planted. Trace, seed and limits decide
//! everything: a [`Place`] names a state.

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::contents::{Contents, WORD_BYTES};
use super::model::{Choices, Lines};
use super::place::{Place, Step};
use super::states::Selections;
use super::trace::{Event, States, Trace};

/// How a life ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Loss {
    /// Loss of power: stores that were not persisted are gone, and the next life has another boot.
    Power,
    /// Loss of the process: all stores are there, and the boot is the same.
    Process,
}

/// The end of a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct End {
    pub loss: Loss,
    /// Number of the boot in which the next life runs; the first boot is 0.
    pub boot: u64,
}

impl End {
    fn of(place: &Place, first_boot: u64) -> Self {
        let is_power = |step: &&Step| matches!(step, Step::Power { .. });
        let boot = first_boot + place.0.iter().filter(is_power).count() as u64;
        let loss = match place.0.last() {
            Some(Step::Power { .. }) | None => Loss::Power,
            Some(Step::Kill { .. }) => Loss::Process,
        };
        Self { loss, boot }
    }
}

/// A program's data that are reopened after a loss.
pub(crate) trait Subject {
    /// Errors that a reopening finds.
    type Broken;

    /// Opens `contents` and tells which of the oracle's states the contents are.
    fn reopen(&self, contents: &Contents, end: End) -> Result<Reopened, Self::Broken>;

    /// Tells why `contents`, which could be opened, are none of the `allowed` states.
    fn explain(&self, contents: &Contents, end: End, allowed: States) -> Self::Broken;
}

/// A crash state that was opened.
pub(crate) struct Reopened {
    /// The states of the oracle that were found: several if they look alike, none if it is another
    /// state.
    pub states: States,
    /// Stores, flushes and fences of the recovery.
    pub recovery: Trace,
}

/// How many states, losses and recoveries are tried.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Most states that are tried at one event.
    pub states_max: usize,
    /// Most stores of a life at which a loss is tried, taken evenly, and a third as many in a
    /// recovery. A loss is tried at every fence and every mark.
    pub stores_max: usize,
    /// Most losses in a row. Each further loss falls into the recovery from the one before.
    pub losses_max: usize,
    /// Most states that are tried at one event of a recovery.
    pub recovery_states_max: usize,
    /// Losses are tried in the recovery of one state in so many.
    pub recovery_one_in: u64,
    /// Losses are tried in the recovery from one killed process in so many.
    pub kill_one_in: u64,
    /// Whether losses of the process are tried besides those of power.
    pub with_kills: bool,
}

/// Counts of the states that were tried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Points of traces at which states were enumerated.
    pub points: u64,
    /// Points at which all states were enumerated, not only some.
    pub whole_points: u64,
    /// States tried, together with those seen before.
    pub states: u64,
    /// Different states, each of which was reopened.
    pub reopened: u64,
    /// Recoveries in which losses were tried in their turn.
    pub recoveries: u64,
}

/// A crash state that is none of the allowed states.
#[derive(Debug)]
pub(crate) struct Found<B> {
    pub place: Place,
    pub broken: B,
}

/// Walks traces of one subject.
pub(crate) struct Explorer<'s, S: Subject> {
    subject: &'s S,
    seed: u64,
    /// Number of the boot in which the trace was recorded.
    boot: u64,
    seen: HashMap<(u64, End), States>,
    pub tally: Tally,
}

/// Where a walk stands: one life, from an opening to its losses.
struct Life<'t> {
    lines: Lines,
    /// Stores, flushes and fences of the life.
    trace: &'t Trace,
    /// States that a loss may lead to now.
    allowed: States,
    /// Losses before this life.
    place: Place,
}

impl<'t> Life<'t> {
    fn first(lines: &Lines, trace: &'t Trace) -> Self {
        // Everything is allowed until the first mark says which states are.
        let allowed = States(u64::MAX);
        Self { lines: lines.clone(), trace, allowed, place: Place::default() }
    }

    fn apply(&mut self, event: &Event) {
        match event {
            Event::Mark(states) => self.allowed = *states,
            event => self.lines.apply(event),
        }
    }

    /// The states of a loss of power now, when lines may be found in these ways.
    fn selections(
        &self,
        choices: &[Choices<'_>],
        events: usize,
        limits: &Limits,
        seed: u64,
    ) -> Selections {
        let counts: Vec<_> = choices.iter().map(Choices::len).collect();
        let states_max =
            if self.place.0.is_empty() { limits.states_max } else { limits.recovery_states_max };
        // Drawn by the name of the point, so that a replay draws the same selections.
        let point = format!("{}/{events}", self.place);
        Selections::of(&counts, states_max, xxh3_64_with_seed(point.as_bytes(), seed))
    }
}

impl<'s, S: Subject> Explorer<'s, S> {
    pub fn new(subject: &'s S, seed: u64, boot: u64) -> Self {
        Self { subject, seed, boot, seen: HashMap::new(), tally: Tally::default() }
    }

    /// Tries the crash states of `trace`, which begins with `lines`, until one is not allowed.
    pub fn walk(
        &mut self,
        lines: &Lines,
        trace: &Trace,
        limits: &Limits,
    ) -> Result<(), Found<S::Broken>> {
        self.live(Life::first(lines, trace), limits)
    }

    /// Tries only the state that `place` names. Returns false if there is no such state.
    pub fn replay(
        &mut self,
        lines: &Lines,
        trace: &Trace,
        limits: &Limits,
        place: &Place,
    ) -> Result<bool, Found<S::Broken>> {
        self.follow(Life::first(lines, trace), limits, &place.0)
    }

    fn follow(
        &mut self,
        mut life: Life<'_>,
        limits: &Limits,
        steps: &[Step],
    ) -> Result<bool, Found<S::Broken>> {
        let [step, rest @ ..] = steps else { return Ok(true) };
        let (Step::Power { events, .. } | Step::Kill { events, .. }) = *step;
        let Some(done) = life.trace.events.get(..events) else { return Ok(false) };
        done.iter().for_each(|event| life.apply(event));
        let lines = match *step {
            Step::Power { selection, .. } => {
                let choices = life.lines.choices();
                let selections = life.selections(&choices, events, limits, self.seed);
                let Some(selection) = selections.list.get(selection) else { return Ok(false) };
                Lines::new(&life.lines.found(&choices, selection))
            }
            Step::Kill { is_half, .. } => {
                let half =
                    if is_half { life.trace.events.get(events).and_then(half_of) } else { None };
                if half.is_none() && is_half {
                    return Ok(false);
                }
                half.iter().for_each(|event| life.apply(event));
                life.lines.kill();
                life.lines
            }
        };
        let place = life.place.then(*step);
        let reopened = self.reopen(lines.current(), life.allowed, &place)?;
        let trace = recovery_of(reopened, life.allowed);
        self.follow(Life { lines, trace: &trace, allowed: life.allowed, place }, limits, rest)
    }

    fn live(&mut self, mut life: Life<'_>, limits: &Limits) -> Result<(), Found<S::Broken>> {
        self.cut_power(&life, 0, limits)?;
        let is_first = life.place.0.is_empty();
        let stores_max = if is_first { limits.stores_max } else { limits.stores_max / 3 };
        let store_one_in = life.trace.stores().div_ceil(stores_max.max(1)).max(1);
        let mut stores = 0;
        for (index, event) in life.trace.events.iter().enumerate() {
            let is_store = event.stored().is_some();
            stores += usize::from(is_store);
            let is_passed = is_store && !stores.is_multiple_of(store_one_in);
            if is_passed {
                life.apply(event);
                continue;
            }
            self.cut_at(&mut life, index, event, limits)?;
        }
        Ok(())
    }

    /// Applies `event`, and tries the losses half-way through the event and after it.
    fn cut_at(
        &mut self,
        life: &mut Life<'_>,
        index: usize,
        event: &Event,
        limits: &Limits,
    ) -> Result<(), Found<S::Broken>> {
        if limits.with_kills
            && let Some(half) = half_of(event)
        {
            let mut lines = life.lines.clone();
            lines.apply(&half);
            self.kill(life, lines, Step::Kill { events: index, is_half: true }, limits)?;
        }
        let before_fence = matches!(event, Event::Fence { .. });
        if before_fence {
            self.cut_power(life, index, limits)?;
        }
        life.apply(event);
        let events = index + 1;
        match event {
            // A flush by itself changes nothing that a loss can lead to.
            Event::Flush { .. } => Ok(()),
            Event::Fence { .. } => self.cut_power(life, events, limits),
            Event::Store { .. } | Event::Stream { .. } | Event::Empty { .. } | Event::Mark(_) => {
                self.cut_power(life, events, limits)?;
                if !limits.with_kills {
                    return Ok(());
                }
                let step = Step::Kill { events, is_half: false };
                self.kill(life, life.lines.clone(), step, limits)
            }
        }
    }

    fn cut_power(
        &mut self,
        life: &Life<'_>,
        events: usize,
        limits: &Limits,
    ) -> Result<(), Found<S::Broken>> {
        let choices = life.lines.choices();
        let selections = life.selections(&choices, events, limits, self.seed);
        self.tally.points += 1;
        self.tally.whole_points += u64::from(selections.is_all);
        for (number, selection) in selections.list.iter().enumerate() {
            let change = |(choices, cut): (&Choices<'_>, &usize)| choices.hash_change(*cut);
            let hash = choices
                .iter()
                .zip(selection)
                .map(change)
                .fold(life.lines.guaranteed().hash(), |hash, change| hash ^ change);
            let step = Step::Power { events, selection: number };
            let lines = || Lines::new(&life.lines.found(&choices, selection));
            self.lose(life, hash, lines, step, limits)?;
        }
        Ok(())
    }

    fn kill(
        &mut self,
        life: &Life<'_>,
        mut lines: Lines,
        step: Step,
        limits: &Limits,
    ) -> Result<(), Found<S::Broken>> {
        lines.kill();
        let hash = lines.current().hash();
        self.lose(life, hash, || lines, step, limits)
    }

    /// Ends `life` with `lines`, whose bytes have `hash`.
    fn lose(
        &mut self,
        life: &Life<'_>,
        hash: u64,
        lines: impl FnOnce() -> Lines,
        step: Step,
        limits: &Limits,
    ) -> Result<(), Found<S::Broken>> {
        self.tally.states += 1;
        let place = life.place.then(step);
        let end = End::of(&place, self.boot);
        let states = self.seen.get(&(hash, end));
        if states.is_some_and(|states| !states.and(life.allowed).is_none()) {
            return Ok(());
        }
        let lines = lines();
        debug_assert_eq!(lines.current().hash(), hash, "hashes of contents do not add up");
        let reopened = self.reopen(lines.current(), life.allowed, &place)?;
        self.tally.reopened += 1;
        self.seen.insert((hash, end), reopened.states);
        // After a killed process the next life inherits stores that were not persisted, so such
        // recoveries are followed more often.
        let one_in = match end.loss {
            Loss::Process => limits.kill_one_in,
            Loss::Power => limits.recovery_one_in,
        };
        let is_chosen = is_drawn(hash, self.seed, one_in);
        if place.0.len() < limits.losses_max && is_chosen {
            self.tally.recoveries += 1;
            let trace = recovery_of(reopened, life.allowed);
            self.live(Life { lines, trace: &trace, allowed: life.allowed, place }, limits)?;
        }
        Ok(())
    }

    fn reopen(
        &self,
        contents: &Contents,
        allowed: States,
        place: &Place,
    ) -> Result<Reopened, Found<S::Broken>> {
        let found = |broken| Found { place: place.clone(), broken };
        let end = End::of(place, self.boot);
        let reopened = self.subject.reopen(contents, end).map_err(found)?;
        if reopened.states.and(allowed).is_none() {
            return Err(found(self.subject.explain(contents, end, allowed)));
        }
        Ok(reopened)
    }
}

/// The trace of a recovery, behind which the next life must find the same state.
fn recovery_of(reopened: Reopened, allowed: States) -> Trace {
    let mut trace = reopened.recovery;
    trace.events.push(Event::Mark(reopened.states.and(allowed)));
    trace
}

/// The first half of a store of several words.
fn half_of(event: &Event) -> Option<Event> {
    let (offset, bytes) = event.stored()?;
    let half = bytes.len() / 2 / WORD_BYTES * WORD_BYTES;
    (half > 0).then(|| Event::Store { offset, bytes: bytes[..half].into() })
}

/// Whether a draw of `seed` takes the contents with this hash: about one of `one_in`.
pub(crate) fn is_drawn(hash: u64, seed: u64, one_in: u64) -> bool {
    xxh3_64_with_seed(&hash.to_le_bytes(), seed).is_multiple_of(one_in.max(1))
}
