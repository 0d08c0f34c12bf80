//! The memories that a loss of power may leave: the persistency model of x86.
//!
//! As in the Intel SDM (volume 1, chapter "persistent memory"; volume 2, CLWB, CLFLUSHOPT, SFENCE)
//! and in its formal model Px86 (Raad, Wickerson, Neis, Vafeiadis, 2020):
//! - an aligned word of 8 bytes is persisted whole or not at all;
//! - stores to one line are persisted in program order: a *cut* of the line is a prefix of them;
//! - lines are persisted independently: any line may be written back at any time, up to its current
//!   cut;
//! - a line that was flushed is persisted at least as it was then, once its thread's next fence
//!   completed.
//!
//! So the crash states at a point are the product over the lines of (guaranteed cut ..= current
//! cut). A store of many words (memcpy) is free to store them in any order: within one such store
//! each line has the prefixes from its start and those from its end. Non-temporal stores are
//! reported as stores and flushes, which is the same until their fence. Pages that are given up
//! read as zeros; whether they do after a loss is left open, line by line. The arm64 instructions
//! (dc cvap, dsb) guarantee no less in the way the heap uses them.

use std::collections::{BTreeMap, VecDeque};

use super::contents::{Contents, LINE_BYTES, Line, WORD_BYTES, line_hash, lines_of, pieces};
use super::trace::Event;

/// A memory, and the stores to it that are not guaranteed to survive.
#[derive(Clone)]
pub(crate) struct Lines {
    guaranteed: Contents,
    current: Contents,
    dirty: BTreeMap<u64, Dirty>,
    /// Flushes that the next fence of each thread completes: number of the line, and number of the
    /// first group that stays open.
    flushing: Vec<Vec<(u64, u64)>>,
}

/// A line that may differ between memory and medium.
#[derive(Clone, Default)]
struct Dirty {
    /// Number of groups that are guaranteed already.
    gone: u64,
    /// A group for each store since then.
    groups: VecDeque<Group>,
}

/// The cuts that one store adds to a line: the store unfinished, and last the whole store.
#[derive(Clone)]
struct Group {
    cuts: Vec<Cut>,
}

/// A line as it may be found.
#[derive(Clone)]
pub(crate) struct Cut {
    pub line: Line,
    /// Hash that the line adds to the hash of the contents.
    hash: u64,
}

/// A dirty line with all its cuts but the guaranteed one; the last is the current one.
pub(crate) struct Choices<'a> {
    pub number: u64,
    pub cuts: Vec<&'a Cut>,
    guaranteed_hash: u64,
}

impl Lines {
    /// A memory of which everything is guaranteed.
    pub fn new(contents: &Contents) -> Self {
        Self {
            guaranteed: contents.clone(),
            current: contents.clone(),
            dirty: BTreeMap::new(),
            flushing: Vec::new(),
        }
    }

    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::Store { offset, bytes } => {
                for (number, at, part) in lines_of(*offset, bytes) {
                    self.store(number, at, part);
                }
            }
            Event::Stream { offset, bytes, thread } => {
                for (number, at, part) in lines_of(*offset, bytes) {
                    self.store(number, at, part);
                    self.flush(number, *thread);
                }
            }
            Event::Empty { offset, len } => {
                for number in self.current.lines_within(*offset, *len) {
                    self.change(number, vec![[0; LINE_BYTES]]);
                }
            }
            Event::Flush { line_offset, thread } => {
                self.flush(line_offset / LINE_BYTES as u64, *thread);
            }
            Event::Fence { thread } => {
                let flushed = self.flushing.get_mut(*thread).map(std::mem::take);
                for (number, until) in flushed.unwrap_or_default() {
                    self.guarantee(number, until);
                }
            }
            Event::Mark(_) => {}
        }
    }

    /// Notes that the process was killed, so none of its fences comes any more.
    pub fn kill(&mut self) {
        self.flushing.clear();
    }

    /// The bytes that all processors see.
    pub fn current(&self) -> &Contents {
        &self.current
    }

    /// The bytes that survive every loss.
    pub fn guaranteed(&self) -> &Contents {
        &self.guaranteed
    }

    /// The lines that may be found in more than one way.
    pub fn choices(&self) -> Vec<Choices<'_>> {
        self.dirty
            .iter()
            .filter(|(_, dirty)| !dirty.groups.is_empty())
            .map(|(number, dirty)| Choices {
                number: *number,
                cuts: dirty.groups.iter().flat_map(|group| &group.cuts).collect(),
                guaranteed_hash: line_hash(*number, &self.guaranteed.line(*number)),
            })
            .collect()
    }

    /// The contents if each of `choices`, which are [`Lines::choices`], is found at the cut
    /// selected for it.
    pub fn found(&self, choices: &[Choices<'_>], selection: &[usize]) -> Contents {
        let mut contents = self.guaranteed.clone();
        for (choices, cut) in choices.iter().zip(selection) {
            if let Some(cut) = cut.checked_sub(1) {
                contents.set_line(choices.number, &choices.cuts[cut].line);
            }
        }
        contents
    }

    fn store(&mut self, number: u64, at: usize, bytes: &[u8]) {
        let before = self.current.line(number);
        let words: Vec<(usize, &[u8])> = pieces(at as u64, bytes, WORD_BYTES)
            .map(|(at, word)| (at as usize, word))
            // A word that does not change cannot be seen to be missing.
            .filter(|(at, word)| before[*at..*at + word.len()] != **word)
            .collect();
        if words.is_empty() {
            return;
        }
        let mut cuts = Vec::new();
        let mut from_end = before;
        for (at, word) in words[1..].iter().rev() {
            from_end[*at..*at + word.len()].copy_from_slice(word);
            cuts.push(from_end);
        }
        let mut line = before;
        for (at, word) in &words {
            line[*at..*at + word.len()].copy_from_slice(word);
            cuts.push(line);
        }
        self.change(number, cuts);
    }

    /// Adds cuts of a line; the last one is the line as it is now.
    fn change(&mut self, number: u64, cuts: Vec<Line>) {
        if let Some(now) = cuts.last() {
            self.current.set_line(number, now);
        }
        let cut = |line: Line| Cut { line, hash: line_hash(number, &line) };
        let cuts = cuts.into_iter().map(cut).collect();
        self.dirty.entry(number).or_default().groups.push_back(Group { cuts });
    }

    /// Notes that the thread's next fence guarantees the line as it is now.
    fn flush(&mut self, number: u64, thread: usize) {
        let Some(dirty) = self.dirty.get(&number) else { return };
        if self.flushing.len() <= thread {
            self.flushing.resize(thread + 1, Vec::new());
        }
        self.flushing[thread].push((number, dirty.gone + dirty.groups.len() as u64));
    }

    fn guarantee(&mut self, number: u64, until: u64) {
        let Some(dirty) = self.dirty.get_mut(&number) else { return };
        while dirty.gone < until {
            let Some(group) = dirty.groups.pop_front() else { break };
            dirty.gone += 1;
            if let Some(whole) = group.cuts.last() {
                self.guaranteed.set_line(number, &whole.line);
            }
        }
        // Kept though it may be clean: flushes under way name its groups by number.
    }
}

impl Choices<'_> {
    /// Number of ways in which the line may be found.
    pub fn len(&self) -> usize {
        self.cuts.len() + 1
    }

    /// The change of the contents' hash by cut `number`, where 0 is the guaranteed cut.
    pub fn hash_change(&self, number: usize) -> u64 {
        number.checked_sub(1).map_or(0, |cut| self.cuts[cut].hash ^ self.guaranteed_hash)
    }
}
