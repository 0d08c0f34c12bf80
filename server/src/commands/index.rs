//! Finds the line of the table for a name on the wire, by open addressing.

use super::error::{CommandError, text};
use super::facts::{self, FACTS, Facts};
use super::spec::{Spec, flag};
use crate::resp::Args;

const SLOTS: usize = 1024;
/// Bytes of the longest name of a command, its container's included.
const NAME_MAX: usize = 32;

/// The places of all names, built once when the server starts.
pub(crate) struct Index {
    specs: Vec<&'static Spec>,
    /// The row of each command in the facts.
    facts: Vec<u16>,
    slots: Box<[Slot; SLOTS]>,
}

/// A place of the index, with the parts of a name that a search compares before the whole.
#[derive(Debug, Clone, Copy)]
struct Slot {
    folded: Folded,
    /// The row of the command; of an empty slot, that of none.
    row: u16,
    /// Whether the name has only letters, and all of them are in `folded`.
    is_told: bool,
}

/// A name's length, and its first and last bytes in lower case. A byte that is no letter may be the
/// same as another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Folded {
    first: u64,
    last: u64,
    len: usize,
}

impl Index {
    pub fn new(specs: impl Iterator<Item = &'static Spec>) -> Self {
        let specs: Vec<_> = specs.collect();
        let empty = Slot { folded: Folded::of(b""), row: u16::MAX, is_told: false };
        let mut slots = Box::new([empty; SLOTS]);
        for (row, spec) in specs.iter().enumerate() {
            let (name, folded) = (spec.name.as_bytes(), Folded::of(spec.name.as_bytes()));
            let mut at = folded.slot();
            while slots[at].row != u16::MAX {
                at = (at + 1) % SLOTS;
            }
            let is_told = name.len() <= 16 && name.iter().all(u8::is_ascii_lowercase);
            slots[at] = Slot { folded, row: row as u16, is_told };
        }
        let facts = specs.iter().map(|spec| facts_row(spec.name)).collect();
        Self { specs, facts, slots }
    }

    /// The row of the facts about the command in a row of the table.
    pub fn facts_row(&self, row: usize) -> usize {
        usize::from(self.facts[row])
    }

    /// The facts about the command in a row of the table.
    pub fn facts(&self, row: usize) -> &'static Facts {
        &FACTS[self.facts_row(row)]
    }

    /// The commands, in the order of their rows.
    pub fn specs(&self) -> &[&'static Spec] {
        &self.specs
    }

    /// Finds the command that `args` ask for, with its row in the table; `None` if there is no such
    /// command, or it takes another number of arguments.
    pub fn look_up(&self, args: Args<'_>) -> Option<(usize, &'static Spec)> {
        let (row, spec) = self.find(args.get(0), None)?;
        if !spec.has(flag::SUBS) || args.len() == 1 {
            return spec.accepts(args.len()).then_some((row, spec));
        }
        let found = self.find(args.get(0), Some(args.get(1)));
        found.filter(|(_, sub)| sub.accepts(args.len()))
    }

    /// Finds the command that `args` ask for as [`Index::look_up`] does, or says what is wrong.
    pub fn resolve(&self, args: Args<'_>) -> Result<(usize, &'static Spec), CommandError> {
        if let Some(found) = self.look_up(args) {
            return Ok(found);
        }
        let (_, spec) = self.find(args.get(0), None).ok_or_else(|| unknown(args))?;
        if !spec.has(flag::SUBS) || args.len() == 1 {
            return Err(CommandError::Arity(spec.name));
        }
        Err(match self.find(args.get(0), Some(args.get(1))) {
            Some((_, sub)) => CommandError::Arity(sub.name),
            None => CommandError::UnknownSubcommand {
                container: spec.name,
                sub: text(args.get(1), 128),
            },
        })
    }

    /// Looks up a name, or a container's subcommand, in upper or lower case.
    pub fn find(&self, name: &[u8], sub: Option<&[u8]>) -> Option<(usize, &'static Spec)> {
        let Some(sub) = sub else {
            let slot = self.find_whole(name)?;
            return (slot.is_told || !name.contains(&b'|')).then(|| self.row_of(slot));
        };
        let mut whole = [0u8; NAME_MAX];
        let whole = whole.get_mut(..name.len() + 1 + sub.len())?;
        whole[..name.len()].copy_from_slice(name);
        whole[name.len()] = b'|';
        whole[name.len() + 1..].copy_from_slice(sub);
        self.find_whole(whole).map(|slot| self.row_of(slot))
    }

    fn row_of(&self, slot: &Slot) -> (usize, &'static Spec) {
        (usize::from(slot.row), self.specs[usize::from(slot.row)])
    }

    fn find_whole(&self, name: &[u8]) -> Option<&Slot> {
        let folded = Folded::of(name);
        let mut at = folded.slot();
        loop {
            let slot = &self.slots[at];
            let spec = self.specs.get(usize::from(slot.row))?;
            if slot.folded == folded
                && (slot.is_told || spec.name.as_bytes().eq_ignore_ascii_case(name))
            {
                return Some(slot);
            }
            at = (at + 1) % SLOTS;
        }
    }
}

/// The row of the facts about a command.
fn facts_row(name: &str) -> u16 {
    match facts::find(name) {
        Some(row) => row as u16,
        None => panic!("no facts about the command {name}: add a line to commands/facts/data.rs"),
    }
}

fn unknown(args: Args<'_>) -> CommandError {
    let mut shown = String::new();
    for arg in args.from(1) {
        if shown.len() >= 128 {
            break;
        }
        shown.push_str(&format!("'{}' ", text(arg, 128 - shown.len())));
    }
    CommandError::UnknownCommand { name: text(args.get(0), 128), args: shown }
}

impl Folded {
    #[inline]
    fn of(name: &[u8]) -> Self {
        let (first, last) = match (name.first_chunk::<8>(), name.last_chunk::<8>()) {
            (Some(first), Some(last)) => (u64::from_le_bytes(*first), u64::from_le_bytes(*last)),
            _ => match (name.first_chunk::<4>(), name.last_chunk::<4>()) {
                (Some(first), Some(last)) => {
                    (u32::from_le_bytes(*first).into(), u32::from_le_bytes(*last).into())
                }
                _ => (name.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)), 0),
            },
        };
        Self { first: first | LOWER_CASE, last: last | LOWER_CASE, len: name.len() }
    }

    /// The slot at which the search for the name begins.
    fn slot(&self) -> usize {
        let mixed = self.first ^ self.last.rotate_left(27) ^ self.len as u64;
        (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - SLOTS.ilog2())) as usize
    }
}

/// The bit of each byte that a letter of lower case has and one of upper case has not.
const LOWER_CASE: u64 = 0x2020_2020_2020_2020;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::facts::shown;
    use crate::commands::handler::Handler;
    use crate::commands::spec::KeyOption;
    use crate::commands::table::TABLE;

    #[test]
    fn every_line_is_found_and_consistent() {
        let index = Index::new(TABLE.iter().map(|command| &command.spec));
        assert!(TABLE.len() < SLOTS / 2, "enlarge SLOTS");
        for (row, command) in TABLE.iter().enumerate() {
            let spec = &command.spec;
            assert!(spec.name.len() <= NAME_MAX && spec.name == spec.name.to_ascii_lowercase());
            let upper = spec.name.to_ascii_uppercase();
            let (name, sub) = match upper.split_once('|') {
                Some((name, sub)) => (name, Some(sub.as_bytes())),
                None => (upper.as_str(), None),
            };
            let found = index.find(name.as_bytes(), sub).map(|(row, _)| row);
            assert_eq!(found, Some(row), "{}", spec.name);
            if let Some((container, _)) = spec.name.split_once('|') {
                let (_, parent) = index.find(container.as_bytes(), None).unwrap();
                assert!(parent.has(flag::SUBS), "{}", spec.name);
            }
            let reads = matches!(command.handler, Handler::Read(_) | Handler::Field(_));
            let keyed = reads || command.data().is_some();
            let has_keys = spec.keys.first != 0 || spec.keys.count_at != 0;
            assert!(!keyed || has_keys, "{}", spec.name);
            let moves = spec.keys.count_at != 0 || spec.keys.option != KeyOption::None;
            assert_eq!(spec.has(flag::MOVABLE) && spec.name != "sort_ro", moves, "{}", spec.name);
            let facts = index.facts(row);
            for (heeded, told) in [
                (flag::WRITE, shown::WRITE),
                (flag::READ, shown::READ),
                (flag::DENYOOM, shown::DENYOOM),
                (flag::ADMIN, shown::ADMIN),
                (flag::NOAUTH, shown::NO_AUTH),
            ] {
                let differs = spec.has(heeded) != facts.has(told) && facts.name != "debug";
                assert!(!differs, "{}: {:?} is not what clients see", spec.name, heeded);
            }
        }
        assert!(index.find(b"object|encoding", None).is_none());
        for spec in TABLE.iter().map(|command| &command.spec).filter(|spec| !spec.has(flag::SUBS)) {
            for at in 0..spec.name.len() {
                for byte in 0..=u8::MAX {
                    let mut name = spec.name.as_bytes().to_vec();
                    name[at] = byte;
                    let found = index.find(&name, None).map(|(_, found)| found.name.as_bytes());
                    let is_right = found.is_none_or(|found| name.eq_ignore_ascii_case(found));
                    assert!(is_right, "{name:?} is taken for {found:?}");
                }
            }
        }
        assert!(index.find(&[b'x'; 100], None).is_none());
    }
}
