//! Searches for an order of a history's commands that a sequential model agrees with.
//!
//! The search is that of Wing and Gong (*Testing and Verifying Concurrent Objects*, 1993) with
//! Lowe's memory of what was tried (*Testing for Linearizability*, 2017): the commands' calls and
//! returns are a list in the order of time. A command may be the next one in the order if its call
//! stands before the first return that is left. If the model gives its answer, both are taken out
//! of the list, and the search begins at the front again; if a return is reached, the last command
//! that was taken out is put back. What was reached before, the same commands carried out with the
//! same result, is not tried again.

use std::collections::HashSet;

use super::model::Model;
use super::record::Event;

/// The result of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// There is such an order.
    Linearizable,
    /// There is none. These commands, by their places in the history, are the longest order that
    /// was found.
    Not { longest: Vec<usize> },
    /// The search was given up after so many steps.
    Undecided { steps: u64 },
}

/// A place in the list of calls and returns. The first place is a head that is neither.
type Place = usize;
const HEAD: Place = 0;

/// Calls and returns in the order of time, linked both ways.
struct Entries {
    /// Of each place: the event and whether it is its call.
    entries: Vec<(usize, bool)>,
    before: Vec<Place>,
    behind: Vec<Place>,
    /// Of each event: the places of its call and its return.
    of_event: Vec<(Place, Place)>,
}

impl Entries {
    fn new(events: &[Event]) -> Self {
        let times = events
            .iter()
            .enumerate()
            .flat_map(|(at, event)| [(event.called, (at, true)), (event.returned, (at, false))]);
        let mut times: Vec<_> = times.collect();
        times.sort_unstable_by_key(|(moment, _)| *moment);
        let mut entries = vec![(usize::MAX, true)];
        entries.extend(times.into_iter().map(|(_, entry)| entry));
        let mut of_event = vec![(HEAD, HEAD); events.len()];
        for (place, (event, is_call)) in entries.iter().enumerate().skip(1) {
            let (call, back) = &mut of_event[*event];
            *(if *is_call { call } else { back }) = place;
        }
        let len = entries.len();
        let before = (0..len).map(|place| place.checked_sub(1).unwrap_or(len - 1)).collect();
        let behind = (0..len).map(|place| (place + 1) % len).collect();
        Self { entries, before, behind, of_event }
    }

    fn first(&self) -> Place {
        self.behind[HEAD]
    }

    fn take_out(&mut self, event: usize) {
        let (call, back) = self.of_event[event];
        for place in [call, back] {
            let (before, behind) = (self.before[place], self.behind[place]);
            self.behind[before] = behind;
            self.before[behind] = before;
        }
    }

    /// Puts back the event that was taken out last.
    fn put_back(&mut self, event: usize) {
        let (call, back) = self.of_event[event];
        for place in [back, call] {
            let (before, behind) = (self.before[place], self.behind[place]);
            self.behind[before] = place;
            self.before[behind] = place;
        }
    }
}

/// Which events were carried out.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Done(Vec<u64>);

impl Done {
    fn flip(&mut self, event: usize) {
        self.0[event / 64] ^= 1 << (event % 64);
    }
}

/// Searches for an order, in at most so many steps.
pub(crate) fn check(events: &[Event], steps_max: u64) -> Verdict {
    let mut list = Entries::new(events);
    let mut done = Done(vec![0; events.len().div_ceil(64)]);
    let mut model = Model::default();
    let mut reached: HashSet<(Done, Model)> = HashSet::new();
    let mut order: Vec<(usize, Model)> = Vec::new();
    let mut longest: Vec<usize> = Vec::new();
    let mut place = list.first();
    for _ in 0..steps_max {
        if place == HEAD {
            return Verdict::Linearizable;
        }
        let (event, is_call) = list.entries[place];
        if is_call {
            let Event { client, op, answer, .. } = &events[event];
            let mut next = model.clone();
            if next.apply(*client, op) == *answer {
                done.flip(event);
                if reached.insert((done.clone(), next.clone())) {
                    order.push((event, std::mem::replace(&mut model, next)));
                    list.take_out(event);
                    if order.len() > longest.len() {
                        longest = order.iter().map(|(event, _)| *event).collect();
                    }
                    place = list.first();
                    continue;
                }
                done.flip(event);
            }
            place = list.behind[place];
        } else {
            let Some((last, before)) = order.pop() else { return Verdict::Not { longest } };
            model = before;
            done.flip(last);
            list.put_back(last);
            place = list.behind[list.of_event[last].0];
        }
    }
    Verdict::Undecided { steps: steps_max }
}
