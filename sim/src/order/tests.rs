//! The enumeration against a machine that loses power at every instant, and the checker against a
//! toy.

use std::collections::{BTreeMap, HashSet};

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

use super::contents::Contents;
use super::explore::{End, Explorer, Limits, Reopened, Subject};
use super::model::Lines;
use super::plant::Bug;
use super::states::Selections;
use super::trace::{Event, Recorder, States, Trace};

const LINES: usize = 3;
const WORDS: usize = 8;
/// A whole memory, as words.
type Words = [u64; LINES * WORDS];

/// Stores to a line until a flush, and its words then.
type Flushed = (u64, [u64; WORDS]);

/// The naive machine: a cache and a medium, and lines written back whenever it likes.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Machine {
    cache: Words,
    medium: Words,
    /// By thread: what its next fence writes back at the latest, line by line as it was when
    /// flushed.
    flushing: BTreeMap<(usize, usize), Vec<Flushed>>,
    /// Stores so far, by line, and how many of them the medium has.
    stored: [u64; LINES],
    persisted: [u64; LINES],
}

impl Machine {
    fn new() -> Self {
        Self {
            cache: [0; LINES * WORDS],
            medium: [0; LINES * WORDS],
            flushing: BTreeMap::new(),
            stored: [0; LINES],
            persisted: [0; LINES],
        }
    }

    /// This machine, and the same with any of its lines written back.
    fn evictions(&self) -> Vec<Self> {
        let mut all = vec![self.clone()];
        for line in 0..LINES {
            for mut machine in all.clone() {
                let at = line * WORDS..(line + 1) * WORDS;
                machine.medium[at.clone()].copy_from_slice(&self.cache[at]);
                machine.persisted[line] = machine.stored[line];
                all.push(machine);
            }
        }
        all
    }

    fn store(&self, word: usize, value: u64) -> Self {
        let mut machine = self.clone();
        machine.cache[word] = value;
        machine.stored[word / WORDS] += 1;
        machine
    }

    fn flush(&mut self, line: usize, thread: usize) {
        let mut words = [0; WORDS];
        words.copy_from_slice(&self.cache[line * WORDS..(line + 1) * WORDS]);
        let flushed = (self.stored[line], words);
        self.flushing.entry((thread, line)).or_default().push(flushed);
    }

    fn fence(&mut self, thread: usize) {
        for line in 0..LINES {
            for (stored, words) in self.flushing.remove(&(thread, line)).unwrap_or_default() {
                if self.persisted[line] < stored {
                    self.persisted[line] = stored;
                    self.medium[line * WORDS..(line + 1) * WORDS].copy_from_slice(&words);
                }
            }
        }
    }
}

/// All that can be on the medium after `events`.
fn brute_force(events: &[Event]) -> HashSet<Words> {
    let mut machines: HashSet<Machine> = HashSet::from([Machine::new()]);
    for event in events {
        machines = machines.iter().flat_map(Machine::evictions).collect();
        machines = match event {
            Event::Store { offset, bytes } => {
                let first = *offset as usize / 8;
                let words: Vec<(usize, u64)> = bytes
                    .chunks(8)
                    .enumerate()
                    .map(|(index, word)| {
                        (first + index, u64::from_le_bytes(word.try_into().unwrap()))
                    })
                    .collect();
                store_all(machines, &words)
            }
            Event::Flush { line_offset, thread } => machines
                .into_iter()
                .map(|mut machine| {
                    machine.flush(*line_offset as usize / 64, *thread);
                    machine
                })
                .collect(),
            Event::Fence { thread } => machines
                .into_iter()
                .map(|mut machine| {
                    machine.fence(*thread);
                    machine
                })
                .collect(),
            Event::Stream { .. } | Event::Empty { .. } | Event::Mark(_) => machines,
        };
    }
    machines.iter().flat_map(Machine::evictions).map(|machine| machine.medium).collect()
}

/// One store of several words: in each line from its start or from its end.
fn store_all(machines: HashSet<Machine>, words: &[(usize, u64)]) -> HashSet<Machine> {
    let mut machines = machines;
    for line in 0..LINES {
        let of_line: Vec<_> = words.iter().filter(|(at, _)| at / WORDS == line).copied().collect();
        if of_line.is_empty() {
            continue;
        }
        let reversed: Vec<_> = of_line.iter().rev().copied().collect();
        let mut after = HashSet::new();
        for order in [of_line, reversed] {
            let mut so_far = machines.clone();
            for (at, value) in order {
                so_far = so_far
                    .iter()
                    .flat_map(Machine::evictions)
                    .map(|machine| machine.store(at, value))
                    .collect();
            }
            after.extend(so_far);
        }
        machines = after;
    }
    machines
}

fn draw_trace(random: &mut Random, events: usize) -> Trace {
    let recorder = Recorder::default();
    let mut trace = Trace::default();
    for number in 1..=events {
        let line = random.random_range(0..LINES);
        let thread = random.random_range(0..2);
        match random.random_range(0..8) {
            0..=3 => {
                // Few values, so that some stores change nothing.
                let word = line * WORDS + random.random_range(0..3);
                recorder.store(word as u64 * 8, &(number as u64 % 3).to_le_bytes());
            }
            4 => {
                let word = random.random_range(0..LINES * WORDS - 3);
                let bytes: Vec<u8> = (0..3).flat_map(|_| (number as u64).to_le_bytes()).collect();
                recorder.store(word as u64 * 8, &bytes);
            }
            5 | 6 => trace.events.push(Event::Flush { line_offset: line as u64 * 64, thread }),
            _ => trace.events.push(Event::Fence { thread }),
        }
        trace.events.extend(recorder.take().events);
    }
    trace
}

fn words_of(contents: &Contents) -> Words {
    let mut words = [0; LINES * WORDS];
    for (index, word) in words.iter_mut().enumerate() {
        let at = index % WORDS * 8;
        let line = contents.line((index / WORDS) as u64);
        *word = u64::from_le_bytes(line[at..at + 8].try_into().unwrap());
    }
    words
}

fn enumerated(events: &[Event], states_max: usize) -> (HashSet<Words>, bool) {
    let mut lines = Lines::new(&Contents::zeroed((LINES * 64) as u64));
    events.iter().for_each(|event| lines.apply(event));
    let choices = lines.choices();
    let counts: Vec<_> = choices.iter().map(|choices| choices.len()).collect();
    let selections = Selections::of(&counts, states_max, 1);
    let found = selections.list.iter().map(|selection| {
        let contents = lines.found(&choices, selection);
        let hash = choices.iter().zip(selection).map(|(choices, cut)| choices.hash_change(*cut));
        let hash = hash.fold(lines.guaranteed().hash(), |hash, change| hash ^ change);
        assert_eq!(hash, contents.hash(), "the hash does not follow the bytes");
        words_of(&contents)
    });
    (found.collect(), selections.is_all)
}

#[test]
fn the_enumerated_states_are_those_that_a_machine_can_leave() {
    for seed in 0..150 {
        let mut random = Random::seed_from_u64(seed);
        let trace = draw_trace(&mut random, 7);
        for until in 0..=trace.events.len() {
            let events = &trace.events[..until];
            let expected = brute_force(events);
            let (found, is_all) = enumerated(events, usize::MAX);
            assert!(is_all);
            assert_eq!(found, expected, "seed {seed}, after {until} of {:?}", trace.events);
            let (few, _) = enumerated(events, 6);
            assert!(few.is_subset(&expected), "seed {seed}: a drawn state that cannot be");
        }
    }
}

/// Two words at 64 and 128 that change together, by way of a log at 256: {old, old, 1} and a mark
/// at 320.
struct Toy;

impl Toy {
    const LIMITS: Limits = Limits {
        states_max: 4_096,
        stores_max: 1_000,
        losses_max: 3,
        recovery_states_max: 4_096,
        recovery_one_in: 1,
        kill_one_in: 1,
        with_kills: true,
    };

    fn word(contents: &Contents, offset: u64) -> u64 {
        let line = contents.line(offset / 64);
        u64::from_le_bytes(line[..8].try_into().unwrap())
    }

    /// Both words become `value`; as it should be done, and flushing one line for nothing.
    fn change(recorder: &Recorder, old: u64, value: u64) {
        let put = |offset: u64, value: u64| recorder.store(offset, &value.to_le_bytes());
        let persist = |lines: &[u64]| {
            lines.iter().for_each(|line| recorder.flush(*line));
            recorder.fence();
        };
        put(256, old);
        put(512, 7);
        persist(&[256, 512]);
        put(320, 1);
        persist(&[320]);
        put(64, value);
        put(128, value);
        persist(&[64, 128]);
        put(320, 0);
        persist(&[320]);
    }

    fn trace() -> Trace {
        let recorder = Recorder::default();
        for step in 0..2 {
            recorder.mark(States(0b11 << step));
            Self::change(&recorder, step + 1, step + 2);
            recorder.mark(States::one(step as usize + 1));
        }
        recorder.take()
    }

    /// Both words are 1: state 0.
    fn lines() -> Lines {
        let mut contents = Contents::zeroed(1 << 12);
        contents.write(64, &1_u64.to_le_bytes());
        contents.write(128, &1_u64.to_le_bytes());
        Lines::new(&contents)
    }

    fn walk(trace: &Trace) -> Result<Explorer<'static, Self>, String> {
        let mut explorer = Explorer::new(&Toy, 1, 0);
        let lines = Self::lines();
        match explorer.walk(&lines, trace, &Self::LIMITS) {
            Ok(()) => Ok(explorer),
            Err(found) => {
                let again = explorer.replay(&lines, trace, &Self::LIMITS, &found.place);
                let again = again.expect_err("the replay finds nothing");
                assert_eq!((&again.place, &again.broken), (&found.place, &found.broken));
                Err(format!("{}: {}", found.place, found.broken))
            }
        }
    }
}

impl Subject for Toy {
    type Broken = String;

    fn reopen(&self, contents: &Contents, _end: End) -> Result<Reopened, String> {
        let recorder = Recorder::default();
        // A killed process may have left what is read here in the caches only: durable before it is
        // acted on.
        [64, 128, 256, 320].iter().for_each(|line| recorder.flush(*line));
        recorder.fence();
        let mut words = [Self::word(contents, 64), Self::word(contents, 128)];
        if Self::word(contents, 320) == 1 {
            words = [Self::word(contents, 256); 2];
            for (offset, value) in [(64, words[0]), (128, words[1])] {
                recorder.store(offset, &value.to_le_bytes());
                recorder.flush(offset);
            }
            recorder.fence();
            recorder.store(320, &[0; 8]);
            recorder.flush(320);
            recorder.fence();
        }
        let states = match words {
            [one @ 1..=3, other] if one == other => States::one(one as usize - 1),
            _ => States(0),
        };
        Ok(Reopened { states, recovery: recorder.take() })
    }

    fn explain(&self, contents: &Contents, _end: End, allowed: States) -> String {
        let words = [64, 128, 256, 320].map(|offset| Self::word(contents, offset));
        format!("{words:?} is none of {allowed:?}")
    }
}

#[test]
fn a_right_program_passes_with_its_recovery_cut_again_and_again() {
    let explorer = Toy::walk(&Toy::trace()).unwrap();
    assert!(explorer.tally.recoveries > 10 && explorer.tally.reopened > 20);
    assert_eq!(explorer.tally.points, explorer.tally.whole_points);
}

#[test]
fn every_planted_bug_of_the_toy_is_caught_but_those_that_are_none() {
    let trace = Toy::trace();
    let missed: Vec<_> = Bug::all(&trace)
        .into_iter()
        .filter(|bug| match Toy::walk(&bug.plant(&trace).unwrap()) {
            Ok(_) => true,
            Err(why) => {
                println!("{bug}: {why}");
                false
            }
        })
        .map(|bug| bug.to_string())
        .collect();
    // The flushes for nothing, and stores whose order does not matter.
    let harmless = [
        "drop-flush:1",
        "drop-flush:7",
        "swap-stores:0",
        "swap-stores:3",
        "swap-stores:6",
        "swap-stores:9",
    ];
    assert_eq!(missed, harmless);
}
