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
    slots: Box<[u16; SLOTS]>,
}

impl Index {
    pub fn new(specs: impl Iterator<Item = &'static Spec>) -> Self {
        let specs: Vec<_> = specs.collect();
        let mut slots = Box::new([u16::MAX; SLOTS]);
        for (row, spec) in specs.iter().enumerate() {
            let mut at = slot(spec.name.as_bytes());
            while slots[at] != u16::MAX {
                at = (at + 1) % SLOTS;
            }
            slots[at] = row as u16;
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
            return self.find_whole(name).filter(|_| !name.contains(&b'|'));
        };
        let mut whole = [0u8; NAME_MAX];
        let whole = whole.get_mut(..name.len() + 1 + sub.len())?;
        whole[..name.len()].copy_from_slice(name);
        whole[name.len()] = b'|';
        whole[name.len() + 1..].copy_from_slice(sub);
        self.find_whole(whole)
    }

    fn find_whole(&self, name: &[u8]) -> Option<(usize, &'static Spec)> {
        let mut at = slot(name);
        while let Some(spec) = self.specs.get(usize::from(self.slots[at])) {
            if spec.name.as_bytes().eq_ignore_ascii_case(name) {
                return Some((usize::from(self.slots[at]), spec));
            }
            at = (at + 1) % SLOTS;
        }
        None
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

/// The slot at which the search for a name begins: a hash of its length, its first and its last
/// bytes, the same in upper and lower case.
fn slot(name: &[u8]) -> usize {
    let (first, last) = match (name.first_chunk::<8>(), name.last_chunk::<8>()) {
        (Some(first), Some(last)) => (u64::from_le_bytes(*first), u64::from_le_bytes(*last)),
        _ => match (name.first_chunk::<4>(), name.last_chunk::<4>()) {
            (Some(first), Some(last)) => {
                (u32::from_le_bytes(*first).into(), u32::from_le_bytes(*last).into())
            }
            _ => (name.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)), 0),
        },
    };
    let (first, last) = (first | LOWER_CASE, last | LOWER_CASE);
    let mixed = first ^ last.rotate_left(27) ^ name.len() as u64;
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - SLOTS.ilog2())) as usize
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
            let keyed =
                matches!(command.handler, Handler::Read(_) | Handler::Field(_) | Handler::Data(_));
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
        assert!(index.find(&[b'x'; 100], None).is_none());
    }
}
