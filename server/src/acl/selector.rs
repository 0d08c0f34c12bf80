//! A set of permissions: commands, patterns of keys, patterns of channels. A user has one and may
//! have several more, each of which allows a command alone.

use super::RuleError;
use crate::commands::facts::{self, FACTS, category};

/// Words of the bits of commands.
const WORDS: usize = 8;

/// The most commands there can be.
const _: () = assert!(FACTS.len() <= 64 * WORDS);

/// What a pattern lets be done with the keys that fit it.
pub(crate) const READ: u8 = 1;
pub(crate) const WRITE: u8 = 2;

/// A pattern of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyPattern {
    pub allows: u8,
    pub pattern: Box<[u8]>,
}

/// A set of permissions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Selector {
    pub all_keys: bool,
    pub all_channels: bool,
    pub keys: Vec<KeyPattern>,
    pub channels: Vec<Box<[u8]>>,
    /// Whether commands are allowed unless a rule forbids them.
    begins_with_all: bool,
    /// Bits of the commands that are allowed, by their rows in the facts.
    commands: [u64; WORDS],
    /// First arguments with which a forbidden command is allowed.
    first_arguments: Vec<(usize, Box<[u8]>)>,
    /// The rules about commands, in their order: whether they allow, and what.
    rules: Vec<(bool, String)>,
}

impl Selector {
    /// Permissions to do nothing, but perhaps to use all channels.
    pub fn new(all_channels: bool) -> Self {
        Self {
            all_keys: false,
            all_channels,
            keys: Vec::new(),
            channels: Vec::new(),
            begins_with_all: false,
            commands: [0; WORDS],
            first_arguments: Vec::new(),
            rules: Vec::new(),
        }
    }

    /// The permissions that a text in parentheses describes.
    pub fn parse(text: &[u8], all_channels: bool) -> Result<Self, RuleError> {
        let mut selector = Self::new(all_channels);
        let inner = &text[1..text.len() - 1];
        let words = inner.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        for word in words {
            selector.apply(word)?;
        }
        Ok(selector)
    }

    /// Whether nothing is forbidden.
    pub fn allows_everything(&self) -> bool {
        self.all_keys && self.all_channels && self.allows_all_commands()
    }

    fn allows_all_commands(&self) -> bool {
        self.begins_with_all && self.commands == [u64::MAX; WORDS]
    }

    /// Whether a command is allowed. `first` is its first argument.
    pub fn allows_command(&self, row: usize, first: Option<&[u8]>) -> bool {
        self.has(row)
            || first.is_some_and(|first| {
                let fits = |(of, word): &(usize, Box<[u8]>)| {
                    *of == row && word.eq_ignore_ascii_case(first)
                };
                self.first_arguments.iter().any(fits)
            })
    }

    fn has(&self, row: usize) -> bool {
        self.commands[row / 64] >> (row % 64) & 1 != 0
    }

    /// Applies a rule.
    pub fn apply(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        match rule {
            _ if is("allkeys") || is("~*") => {
                self.all_keys = true;
                self.keys.clear();
            }
            _ if is("resetkeys") => {
                self.all_keys = false;
                self.keys.clear();
            }
            _ if is("allchannels") || is("&*") => {
                self.all_channels = true;
                self.channels.clear();
            }
            _ if is("resetchannels") => {
                self.all_channels = false;
                self.channels.clear();
            }
            _ if is("allcommands") || is("+@all") => self.set_all(true),
            _ if is("nocommands") || is("-@all") => self.set_all(false),
            [b'~', pattern @ ..] => self.add_keys(READ | WRITE, pattern)?,
            [b'%', rest @ ..] => {
                if self.all_keys {
                    return Err(RuleError::AllKeys);
                }
                let (allows, pattern) = permissions(rest)?;
                self.add_keys(allows, pattern)?;
            }
            [b'&', pattern @ ..] => self.add_channels(pattern)?,
            [sign @ (b'+' | b'-'), b'@', name @ ..] => {
                let bit = category::find(name).ok_or(RuleError::Unknown)?;
                self.set_category(bit, *sign == b'+');
                self.note_rule(*sign == b'+', &rule[1..]);
            }
            [b'+', name @ ..] => self.allow(name)?,
            [b'-', name @ ..] => {
                let row = facts::find_ignoring_case(name).ok_or(RuleError::Unknown)?;
                self.set_command(row, false);
                self.note_rule(false, name);
            }
            _ => return Err(RuleError::Syntax),
        }
        Ok(())
    }

    fn add_keys(&mut self, allows: u8, pattern: &[u8]) -> Result<(), RuleError> {
        if self.all_keys {
            return Err(RuleError::AllKeys);
        }
        if has_spaces(pattern) {
            return Err(RuleError::Syntax);
        }
        match self.keys.iter_mut().find(|known| *known.pattern == *pattern) {
            Some(known) => known.allows |= allows,
            None => self.keys.push(KeyPattern { allows, pattern: pattern.into() }),
        }
        Ok(())
    }

    fn add_channels(&mut self, pattern: &[u8]) -> Result<(), RuleError> {
        if self.all_channels {
            return Err(RuleError::AllChannels);
        }
        if has_spaces(pattern) {
            return Err(RuleError::Syntax);
        }
        if !self.channels.iter().any(|known| **known == *pattern) {
            self.channels.push(pattern.into());
        }
        Ok(())
    }

    /// Allows a command, a subcommand, or a command with a certain first argument.
    fn allow(&mut self, name: &[u8]) -> Result<(), RuleError> {
        let Some(bar) = name.iter().rposition(|byte| *byte == b'|') else {
            let row = facts::find_ignoring_case(name).ok_or(RuleError::Unknown)?;
            self.set_command(row, true);
            self.note_rule(true, name);
            return Ok(());
        };
        let (of, first) = (&name[..bar], &name[bar + 1..]);
        let row = facts::find_ignoring_case(of).ok_or(RuleError::Unknown)?;
        if FACTS[row].name.contains('|') {
            return Err(RuleError::FirstArgument);
        }
        if first.is_empty() {
            return Err(RuleError::Syntax);
        }
        if facts::subcommands(row).next().is_some() {
            let row = facts::find_ignoring_case(name).ok_or(RuleError::Unknown)?;
            self.set_command(row, true);
        } else if !self.allows_first(row, first) {
            self.first_arguments.push((row, first.into()));
        }
        self.note_rule(true, name);
        Ok(())
    }

    fn allows_first(&self, row: usize, first: &[u8]) -> bool {
        self.first_arguments.iter().any(|(of, word)| *of == row && word.eq_ignore_ascii_case(first))
    }

    fn set_all(&mut self, is_allowed: bool) {
        self.begins_with_all = is_allowed;
        self.commands = [if is_allowed { u64::MAX } else { 0 }; WORDS];
        self.first_arguments.clear();
        self.rules.clear();
    }

    fn set_category(&mut self, bit: u32, is_allowed: bool) {
        for (row, facts) in FACTS.iter().enumerate() {
            if facts.categories & bit != 0 {
                self.set_command(row, is_allowed);
            }
        }
    }

    /// Allows or forbids a command with all its subcommands.
    fn set_command(&mut self, row: usize, is_allowed: bool) {
        self.first_arguments.retain(|(of, _)| *of != row);
        for row in std::iter::once(row).chain(facts::subcommands(row)) {
            let bit = 1 << (row % 64);
            match is_allowed {
                true => self.commands[row / 64] |= bit,
                false => self.commands[row / 64] &= !bit,
            }
        }
    }

    /// Keeps a rule about commands. It replaces an earlier one about the same, and one about a
    /// command those about its subcommands.
    fn note_rule(&mut self, is_allowed: bool, what: &[u8]) {
        let what = String::from_utf8_lossy(what).to_ascii_lowercase();
        let replaces = |old: &str| {
            old.strip_prefix(what.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('|'))
        };
        self.rules.retain(|(_, old)| !replaces(old));
        self.rules.push((is_allowed, what));
    }

    /// The rules about commands, as they can be given again.
    pub fn describe_commands(&self) -> String {
        let mut text = if self.begins_with_all { "+@all" } else { "-@all" }.to_owned();
        for (is_allowed, what) in &self.rules {
            text.push_str(if *is_allowed { " +" } else { " -" });
            text.push_str(what);
        }
        text
    }

    /// The patterns of keys, as they can be given again.
    pub fn describe_keys(&self) -> Vec<u8> {
        if self.all_keys {
            return b"~*".to_vec();
        }
        let patterns = self.keys.iter().map(|KeyPattern { allows, pattern }| {
            let sign: &[u8] = match *allows {
                READ => b"%R~",
                WRITE => b"%W~",
                _ => b"~",
            };
            [sign, pattern].concat()
        });
        patterns.collect::<Vec<_>>().join(&b' ')
    }

    /// The patterns of channels, as they can be given again.
    pub fn describe_channels(&self) -> Vec<u8> {
        if self.all_channels {
            return b"&*".to_vec();
        }
        let patterns = self.channels.iter().map(|pattern| [b"&", &**pattern].concat());
        patterns.collect::<Vec<_>>().join(&b' ')
    }

    /// Everything, as it can be given again.
    pub fn describe(&self) -> Vec<u8> {
        let mut parts = vec![self.describe_keys()];
        if !self.all_channels {
            parts.push(b"resetchannels".to_vec());
        }
        parts.push(self.describe_channels());
        parts.push(self.describe_commands().into_bytes());
        parts.retain(|part| !part.is_empty());
        parts.join(&b' ')
    }
}

/// The permissions that stand before a pattern of keys, `R~`, `W~`, `RW~`, and the pattern.
fn permissions(rest: &[u8]) -> Result<(u8, &[u8]), RuleError> {
    let mut allows = 0;
    for (at, byte) in rest.iter().enumerate() {
        match byte.to_ascii_uppercase() {
            b'R' if allows & READ == 0 => allows |= READ,
            b'W' if allows & WRITE == 0 => allows |= WRITE,
            b'~' if allows != 0 => return Ok((allows, &rest[at + 1..])),
            _ => return Err(RuleError::Syntax),
        }
    }
    // Redis takes permissions without a pattern: no key has an name that fits but the empty one.
    if allows == 0 { Err(RuleError::Syntax) } else { Ok((allows, &[])) }
}

/// Whether there is a byte that would end a word where rules are written to a file.
pub(super) fn has_spaces(text: &[u8]) -> bool {
    text.iter().any(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c | 0))
}
