//! All users at a moment, by their names.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::selector::has_spaces;
use super::user::User;
use crate::commands::facts::{FACTS, category};

/// The name of the user that a client is from its beginning.
pub(crate) const DEFAULT: &[u8] = b"default";

/// All users. The default user is always there.
#[derive(Debug, Clone)]
pub(crate) struct Users {
    by_name: BTreeMap<Box<[u8]>, Arc<User>>,
    /// The user that a client is from its beginning.
    default: Arc<User>,
    /// Number of changes that led here; never 0.
    pub version: u64,
}

/// Whether a user can have this name.
pub(crate) fn is_name(name: &[u8]) -> bool {
    !has_spaces(name)
}

/// The number of the next user.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

fn new_id() -> u64 {
    NEXT_ID.fetch_add(1, Relaxed)
}

impl Users {
    /// The default user alone, who may do everything, with this password, if there is one.
    pub fn new(password: Option<&str>) -> Self {
        let default = Arc::new(everything(new_id()));
        let by_name = BTreeMap::from([(DEFAULT.into(), Arc::clone(&default))]);
        let users = Self { by_name, default, version: 1 };
        match password.filter(|password| !password.is_empty()) {
            Some(password) => users.with_password(Some(password)),
            None => users,
        }
    }

    /// The users that are made one after the other.
    pub(super) fn of(made: impl IntoIterator<Item = User>) -> Self {
        let mut users = Self::new(None);
        made.into_iter().for_each(|user| users.put(user));
        users
    }

    /// The user with this name.
    pub fn get(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.by_name.get(name)
    }

    /// The user that a client is from its beginning.
    pub fn default(&self) -> &Arc<User> {
        &self.default
    }

    /// All users, in the order of their names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<User>> {
        self.by_name.values()
    }

    /// These users and a changed one, or a new one. `all_channels`: whether a new user may use all
    /// channels.
    ///
    /// # Errors
    /// A rule has a mistake: what Redis says about it.
    pub fn with(&self, name: &[u8], rules: &[&[u8]], all_channels: bool) -> Result<Self, Vec<u8>> {
        let rules = merged(rules).map_err(|open| {
            [b"Unmatched parenthesis in acl selector starting at '", open, b"'."].concat()
        })?;
        let mut user = match self.get(name) {
            Some(user) => User::clone(user),
            None => User::new(name, new_id(), all_channels),
        };
        for rule in &rules {
            user.apply(rule, all_channels).map_err(|error| {
                let why = format!("': {error}");
                [b"Error in ACL SETUSER modifier '", &rule[..], why.as_bytes()].concat()
            })?;
        }
        let mut users = self.clone();
        users.put(user);
        Ok(users)
    }

    /// These users without those with the names, and how many they are. The default user stays.
    pub fn without<'n>(&self, names: impl Iterator<Item = &'n [u8]>) -> (Self, usize) {
        let mut users = self.clone();
        let gone = names.filter(|name| *name != DEFAULT && users.by_name.remove(*name).is_some());
        let count = gone.count();
        (users, count)
    }

    /// These users, the default user with this password alone, or with none.
    pub fn with_password(&self, password: Option<&str>) -> Self {
        let mut default = User::clone(&self.default);
        default.passwords.clear();
        default.no_password = password.is_none();
        let rule = password.map(|password| [b">", password.as_bytes()].concat());
        // A password in clear is always taken.
        let _ = rule.map(|rule| default.apply(&rule, true));
        let mut users = self.clone();
        users.put(default);
        users
    }

    /// Takes the place of others. The default user stays who it is; all others are new ones, as in
    /// Redis: who was one of them before must say again who it is.
    pub fn instead_of(mut self, before: &Self) -> Self {
        let default = User { id: before.default.id, ..User::clone(&self.default) };
        self.put(default);
        self
    }

    /// A user who needs no password, and may read or change data, or the server itself: whoever
    /// knows its name is let in. The default user has no need to be named.
    pub fn open_user(&self) -> Option<&User> {
        use category::{ADMIN, DANGEROUS, KEYSPACE, READ, WRITE};
        let guarded = ADMIN | DANGEROUS | KEYSPACE | READ | WRITE;
        let is_guarded = |row: &usize| FACTS[*row].categories & guarded != 0;
        let is_open = |user: &&Arc<User>| {
            let may = |row| user.selectors.iter().any(|own| own.allows_command(row, None));
            user.is_open() && (0..FACTS.len()).filter(is_guarded).any(may)
        };
        std::iter::once(&self.default)
            .chain(self.by_name.values())
            .find(is_open)
            .map(|user| &**user)
    }

    fn put(&mut self, user: User) {
        let user = Arc::new(user);
        if *user.name == *DEFAULT {
            self.default = Arc::clone(&user);
        }
        self.by_name.insert(user.name.clone(), user);
    }
}

/// A default user who may do everything without a password.
fn everything(id: u64) -> User {
    let mut user = User::new(DEFAULT, id, true);
    for rule in ["+@all", "~*", "&*", "on", "nopass"] {
        // None of these rules has a mistake.
        let _ = user.apply(rule.as_bytes(), true);
    }
    user
}

/// A user with nothing but a name, for a line that says everything about it.
pub(super) fn nobody(name: &[u8], all_channels: bool) -> User {
    User::new(name, new_id(), all_channels)
}

/// The rules, with those in parentheses that stand in several words joined into one.
///
/// # Errors
/// A parenthesis is not closed: the word that opens it.
pub(super) fn merged<'r>(rules: &[&'r [u8]]) -> Result<Vec<Vec<u8>>, &'r [u8]> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    let mut open: Option<(&[u8], Vec<u8>)> = None;
    for rule in rules {
        match &mut open {
            Some((_, text)) => {
                text.push(b' ');
                text.extend_from_slice(rule);
                if rule.ends_with(b")") {
                    all.extend(open.take().map(|(_, text)| text));
                }
            }
            None if rule.starts_with(b"(") && !rule.ends_with(b")") => {
                open = Some((rule, rule.to_vec()));
            }
            None => all.push(rule.to_vec()),
        }
    }
    match open {
        Some((first, _)) => Err(first),
        None => Ok(all),
    }
}
