//! Whether a user may run a command with its arguments.

use super::selector::{READ, Selector, WRITE};
use super::user::User;
use crate::commands::facts::{FACTS, Facts, KeyAt, access, keys_of, shown};
use crate::glob;
use crate::resp::Args;

/// Why something is forbidden. The order is that in which reasons are told: the last one that any
/// set of permissions has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    Command,
    Key,
    /// The user name or the password was wrong.
    Auth,
    Channel,
}

impl Reason {
    /// The word for the reason in ACL LOG.
    pub fn word(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Key => "key",
            Self::Auth => "auth",
            Self::Channel => "channel",
        }
    }
}

/// What is forbidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Denied {
    pub reason: Reason,
    /// The argument that is the key or the channel.
    pub at: usize,
}

impl Denied {
    /// The text about it, as Redis says it; with the name of a key or of a channel for who asks
    /// about somebody else.
    pub fn text(&self, user: &User, facts: &Facts, args: Args<'_>, with_name: bool) -> Vec<u8> {
        let (kind, what) = match self.reason {
            Reason::Command | Reason::Auth => {
                let what = [b" has no permissions to run the '", facts.name.as_bytes()].concat();
                return [b"User ", &*user.name, &what[..], b"' command"].concat();
            }
            Reason::Key => ("key", args.get(self.at)),
            Reason::Channel => ("channel", args.get(self.at)),
        };
        if !with_name {
            return format!("No permissions to access a {kind}").into_bytes();
        }
        let access = b" has no permissions to access the '";
        [b"User ", &*user.name, access, what, b"' ", kind.as_bytes()].concat()
    }
}

impl User {
    /// Whether the user may run the command in a row of the facts with these arguments.
    pub fn check(&self, row: usize, args: Args<'_>) -> Result<(), Denied> {
        let facts = &FACTS[row];
        let mut keys = None;
        let mut worst = Denied { reason: Reason::Command, at: 0 };
        for selector in &self.selectors {
            match selector.check(row, facts, args, &mut keys) {
                Ok(()) => return Ok(()),
                Err(denied) => {
                    if (denied.reason, denied.at) > (worst.reason, worst.at) {
                        worst = denied;
                    }
                }
            }
        }
        Err(worst)
    }

    /// Whether the user may run the command and besides read every key: for a command that finds
    /// names of keys in values.
    pub fn may_read_all(&self, row: usize, args: Args<'_>) -> bool {
        let mut keys = None;
        self.selectors.iter().any(|selector| {
            selector.check(row, &FACTS[row], args, &mut keys).is_ok() && selector.reads_all_keys()
        })
    }

    /// Whether the user may listen to a channel or a pattern by any of its permissions. Patterns
    /// are compared as they are.
    pub fn may_listen(&self, name: &[u8], is_pattern: bool) -> bool {
        self.selectors.iter().any(|selector| selector.may_use(name, is_pattern))
    }
}

impl Selector {
    fn check(
        &self,
        row: usize,
        facts: &Facts,
        args: Args<'_>,
        keys: &mut Option<Vec<KeyAt>>,
    ) -> Result<(), Denied> {
        let first = (args.len() > 1).then(|| args.get(1));
        if !facts.has(shown::NO_AUTH) && !self.allows_command(row, first) {
            return Err(Denied { reason: Reason::Command, at: 0 });
        }
        if !self.all_keys && !facts.keys.is_empty() {
            let keys = keys.get_or_insert_with(|| keys_of(facts, args).unwrap_or_default());
            for key in keys {
                if !self.may_touch(args.get(key.at), key.access) {
                    return Err(Denied { reason: Reason::Key, at: key.at });
                }
            }
        }
        if !self.all_channels
            && let Some(channels) = facts.channels()
        {
            for (at, name) in args.from(1).enumerate().take(channels.count) {
                if !self.may_use(name, channels.is_pattern) {
                    return Err(Denied { reason: Reason::Channel, at: at + 1 });
                }
            }
        }
        Ok(())
    }

    fn may_touch(&self, key: &[u8], access: u16) -> bool {
        let needed = needed(access);
        self.keys.iter().any(|known| known.allows & needed == needed && fits(&known.pattern, key))
    }

    fn reads_all_keys(&self) -> bool {
        self.all_keys
            || self.keys.iter().any(|known| known.allows & READ != 0 && *known.pattern == *b"*")
    }

    fn may_use(&self, name: &[u8], is_pattern: bool) -> bool {
        let is_it = |known: &[u8]| match is_pattern {
            true => known == name,
            false => fits(known, name),
        };
        self.all_channels || self.channels.iter().any(|known| is_it(known))
    }
}

/// Whether a name fits a pattern. As in Redis, no star fits the empty name.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    if name.is_empty() { pattern.is_empty() } else { glob::matches(pattern, name) }
}

/// The permissions that something needs that is done with a key.
fn needed(access: u16) -> u8 {
    let read = if access & access::ACCESS != 0 { READ } else { 0 };
    let writes = access::INSERT | access::DELETE | access::UPDATE;
    read | if access & writes != 0 { WRITE } else { 0 }
}
