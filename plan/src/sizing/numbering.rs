//! Numbers the pages of a trace in the order in which they were first written, without gaps.
//!
//! The places of pages in their volumes are forgotten, but neighbours that are first written one
//! after the other stay neighbours. A region that is fed the trace beside a replay uses the same
//! numbers.

use crate::trace::{Op, Record};

/// One page that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageWrite {
    /// The time since the trace's first record, nanoseconds.
    pub time_ns: u64,
    /// The number of the page.
    pub page: u32,
}

/// The table of numbers: open addressing, 16 B an entry, at most three quarters full.
#[derive(Debug)]
pub struct Numbering {
    /// For each page its number in the volume, its volume, and its number here plus one; 0 is free.
    slots: Vec<(u64, u32, u32)>,
    pages: u32,
    began_ns: Option<u64>,
    last_ns: u64,
}

impl Default for Numbering {
    fn default() -> Self {
        Self { slots: vec![(0, 0, 0); 1 << 12], pages: 0, began_ns: None, last_ns: 0 }
    }
}

impl Numbering {
    /// How many pages were met so far.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// The time from the first record to the last, reads among them, nanoseconds.
    pub fn last_ns(&self) -> u64 {
        self.last_ns
    }

    /// Appends the page writes of these records, in order. Reads count only as the beginning of
    /// time, and its end.
    ///
    /// # Errors
    /// The time of the record before and its own, where time goes back.
    pub fn number(
        &mut self,
        records: &[Record],
        into: &mut Vec<PageWrite>,
    ) -> Result<(), (u64, u64)> {
        for record in records {
            let began_ns = *self.began_ns.get_or_insert(record.time_ns);
            let time_ns = record.time_ns.checked_sub(began_ns);
            let time_ns = time_ns.filter(|time_ns| *time_ns >= self.last_ns);
            let Some(time_ns) = time_ns else {
                return Err((began_ns + self.last_ns, record.time_ns));
            };
            self.last_ns = time_ns;
            if record.op == Op::Write {
                let (first, count) = record.pages();
                for page in first..first + count {
                    let page = self.number_of(record.volume, page);
                    into.push(PageWrite { time_ns, page });
                }
            }
        }
        Ok(())
    }

    /// The number of a page, which is new if the page was not met before.
    #[inline]
    pub fn number_of(&mut self, volume: u32, page: u64) -> u32 {
        let mask = self.slots.len() - 1;
        let mut at = hash(volume, page) as usize & mask;
        loop {
            let slot = &mut self.slots[at];
            if slot.2 == 0 {
                self.pages += 1;
                *slot = (page, volume, self.pages);
                let number = self.pages - 1;
                if self.pages as usize > self.slots.len() / 4 * 3 {
                    self.grow();
                }
                return number;
            }
            if (slot.0, slot.1) == (page, volume) {
                return slot.2 - 1;
            }
            at = (at + 1) & mask;
        }
    }

    fn grow(&mut self) {
        let mut larger = vec![(0, 0, 0); self.slots.len() * 2];
        let mask = larger.len() - 1;
        for slot in self.slots.iter().filter(|slot| slot.2 != 0) {
            let mut at = hash(slot.1, slot.0) as usize & mask;
            while larger[at].2 != 0 {
                at = (at + 1) & mask;
            }
            larger[at] = *slot;
        }
        self.slots = larger;
    }
}

#[inline]
fn hash(volume: u32, page: u64) -> u64 {
    let mixed = (page ^ u64::from(volume) << 52).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 32
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn pages_are_numbered_as_a_map_would_number_them() {
        for seed in 0..20 {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let (mut numbering, mut map) = (Numbering::default(), HashMap::new());
            for _ in 0..20_000 {
                let volume = random.random_range(0..3);
                let bits = random.random_range(1..52);
                let page = random.random_range(0..1u64 << bits);
                let next = map.len() as u32;
                let expected = *map.entry((volume, page)).or_insert(next);
                assert_eq!(numbering.number_of(volume, page), expected, "seed {seed}");
            }
            assert_eq!(numbering.pages() as usize, map.len());
        }
    }

    #[test]
    fn time_begins_with_the_first_record_and_must_not_go_back() {
        let at = |time_ns, op| Record { time_ns, offset_bytes: 8191, len_bytes: 2, volume: 0, op };
        let (mut numbering, mut writes) = (Numbering::default(), Vec::new());
        numbering.number(&[at(70, Op::Read), at(90, Op::Write)], &mut writes).unwrap();
        let write = |page| PageWrite { time_ns: 20, page };
        assert_eq!(writes, [write(0), write(1)]);
        assert_eq!(numbering.number(&[at(89, Op::Read)], &mut writes), Err((90, 89)));
        assert_eq!(numbering.number(&[at(3, Op::Read)], &mut writes), Err((90, 3)));
    }
}
