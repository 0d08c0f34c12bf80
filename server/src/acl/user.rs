//! One user: its state, passwords and permissions.

use sha2::{Digest, Sha256};

use super::RuleError;
use super::selector::Selector;

/// A user. Its numbers tell a user from another that had the same name before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub name: Box<[u8]>,
    /// Number of the user, which no other ever has.
    pub id: u64,
    /// Whether a client may become this user.
    pub is_on: bool,
    /// Whether every password is right.
    pub no_password: bool,
    /// Whether RESTORE trusts what the user gives it.
    pub skips_sanitizing: bool,
    /// SHA-256 of each password, in lower-case hexadecimal digits.
    pub passwords: Vec<String>,
    /// The permissions: those of the user itself first.
    pub selectors: Vec<Selector>,
}

impl User {
    /// A user that may do nothing, but perhaps use all channels.
    pub fn new(name: &[u8], id: u64, all_channels: bool) -> Self {
        Self {
            name: name.into(),
            id,
            is_on: false,
            no_password: false,
            skips_sanitizing: false,
            passwords: Vec::new(),
            selectors: vec![Selector::new(all_channels)],
        }
    }

    /// Whether nothing is forbidden.
    pub fn allows_everything(&self) -> bool {
        self.selectors.iter().any(Selector::allows_everything)
    }

    /// Whether clients of this user need no password: a client is the default user from its
    /// beginning if this holds.
    pub fn is_open(&self) -> bool {
        self.is_on && self.no_password
    }

    /// Whether the password is one of the user's. The time tells nothing about how much of a
    /// password was right.
    pub fn accepts(&self, password: &[u8]) -> bool {
        if !self.is_on {
            return false;
        }
        if self.no_password {
            return true;
        }
        let given = hash(password);
        let mut found = false;
        for known in &self.passwords {
            let pairs = known.bytes().zip(given.bytes());
            found |= pairs.fold(0, |different, (a, b)| different | (a ^ b)) == 0;
        }
        found
    }

    /// Applies a rule. `all_channels`: whether a user that is set back may use all channels.
    pub fn apply(&mut self, rule: &[u8], all_channels: bool) -> Result<(), RuleError> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        match rule {
            [] => {}
            _ if is("on") => self.is_on = true,
            _ if is("off") => self.is_on = false,
            _ if is("skip-sanitize-payload") => self.skips_sanitizing = true,
            _ if is("sanitize-payload") => self.skips_sanitizing = false,
            _ if is("nopass") => {
                self.no_password = true;
                self.passwords.clear();
            }
            _ if is("resetpass") => {
                self.no_password = false;
                self.passwords.clear();
            }
            [b'>' | b'#', ..] => {
                let password = hash_of(rule)?;
                if !self.passwords.contains(&password) {
                    self.passwords.push(password);
                }
                self.no_password = false;
            }
            [b'<' | b'!', ..] => {
                let password = hash_of(rule)?;
                let at = self.passwords.iter().position(|known| *known == password);
                self.passwords.remove(at.ok_or(RuleError::NoSuchPassword)?);
            }
            [b'(', .., b')'] => self.selectors.push(Selector::parse(rule, all_channels)?),
            _ if is("clearselectors") => self.selectors.truncate(1),
            _ if is("reset") => *self = Self::new(&self.name, self.id, all_channels),
            _ => self.selectors[0].apply(rule)?,
        }
        Ok(())
    }

    /// The words for the user's state.
    pub fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.is_on { "on" } else { "off" }];
        if self.no_password {
            flags.push("nopass");
        }
        let skips = self.skips_sanitizing;
        flags.push(if skips { "skip-sanitize-payload" } else { "sanitize-payload" });
        flags
    }

    /// The rules that make this user, as ACL LIST shows them.
    pub fn describe(&self) -> Vec<u8> {
        let mut parts: Vec<Vec<u8>> =
            self.flags().iter().map(|flag| flag.as_bytes().to_vec()).collect();
        parts.extend(self.passwords.iter().map(|hash| format!("#{hash}").into_bytes()));
        let (own, more) = self.selectors.split_at(1);
        parts.extend(own.iter().map(Selector::describe));
        parts.extend(more.iter().map(|more| [b"(", &more.describe()[..], b")"].concat()));
        parts.join(&b' ')
    }
}

/// The hash that a rule about a password names, or that of its password.
fn hash_of(rule: &[u8]) -> Result<String, RuleError> {
    let rest = &rule[1..];
    if matches!(rule[0], b'>' | b'<') {
        return Ok(hash(rest));
    }
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    match std::str::from_utf8(rest) {
        Ok(text) if rest.len() == 64 && rest.iter().all(is_digit) => Ok(text.to_owned()),
        _ => Err(RuleError::Hash),
    }
}

fn hash(password: &[u8]) -> String {
    Sha256::digest(password).iter().map(|byte| format!("{byte:02x}")).collect()
}
