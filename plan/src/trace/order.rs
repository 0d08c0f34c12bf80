//! Puts records in the order of time, within a bound: a record that is late by no more than the
//! window is put in its place.
//!
//! A record leaves when the newest time is a whole window later, or when more records are held than
//! memory allows. A record that should have come before one that has left is an error. Records of
//! one instant keep their order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Record;

/// The most records that are held for the order, 48 B each.
const HELD_MAX: usize = 1 << 22;

/// A record that is held; records are ordered by time, then by arrival.
#[derive(Debug, PartialEq, Eq)]
struct Held {
    arrival: u64,
    record: Record,
}

impl Ord for Held {
    fn cmp(&self, other: &Held) -> std::cmp::Ordering {
        (self.record.time_ns, self.arrival).cmp(&(other.record.time_ns, other.arrival))
    }
}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Held) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Debug)]
pub(crate) struct Order {
    window_ns: u64,
    held_max: usize,
    newest_ns: u64,
    arrivals: u64,
    held: BinaryHeap<Reverse<Held>>,
}

impl Order {
    pub(crate) fn new(window_ns: u64) -> Order {
        Order { window_ns, held_max: HELD_MAX, newest_ns: 0, arrivals: 0, held: BinaryHeap::new() }
    }

    /// Takes a record, and gives those that nothing can come before any more.
    pub(crate) fn push(&mut self, record: Record, out: &mut Vec<Record>) {
        self.newest_ns = self.newest_ns.max(record.time_ns);
        self.held.push(Reverse(Held { arrival: self.arrivals, record }));
        self.arrivals += 1;
        let due_ns = self.newest_ns.saturating_sub(self.window_ns);
        while let Some(Reverse(first)) = self.held.peek() {
            if first.record.time_ns >= due_ns && self.held.len() <= self.held_max {
                break;
            }
            out.extend(self.held.pop().map(|Reverse(held)| held.record));
        }
    }

    /// Gives up to `records` of those that are held, when no more come.
    pub(crate) fn drain(&mut self, records: usize, out: &mut Vec<Record>) {
        for _ in 0..records {
            match self.held.pop() {
                Some(Reverse(held)) => out.push(held.record),
                None => return,
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Op;
    use super::*;

    fn at(time_ns: u64, offset_bytes: u64) -> Record {
        Record { time_ns, offset_bytes, len_bytes: 1, volume: 0, op: Op::Write }
    }

    fn ordered(order: &mut Order, records: &[Record]) -> Vec<Record> {
        let mut out = Vec::new();
        records.iter().for_each(|&record| order.push(record, &mut out));
        order.drain(usize::MAX, &mut out);
        out
    }

    #[test]
    fn what_comes_late_within_the_window_finds_its_place_and_equal_times_keep_their_order() {
        let out =
            ordered(&mut Order::new(10), &[at(5, 0), at(12, 1), at(5, 2), at(11, 3), at(12, 4)]);
        let places: Vec<_> = out.iter().map(|record| record.offset_bytes).collect();
        assert_eq!(places, [0, 2, 3, 1, 4]);
    }

    #[test]
    fn no_more_records_are_held_than_memory_is_set_aside_for() {
        let mut order = Order { held_max: 3, ..Order::new(u64::MAX) };
        let mut out = Vec::new();
        (0..100).for_each(|time| order.push(at(time, time), &mut out));
        assert_eq!(out.len(), 97);
    }
}
