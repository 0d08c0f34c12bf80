//! The name of a key: its bytes and its database.

use std::fmt;
use std::rc::Rc;

use perdura_store::Key;

/// A key with its database.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    pub db: u8,
    pub key: Rc<[u8]>,
}

impl Name {
    /// The key, to be given to the store.
    pub fn key(&self) -> Key<'_> {
        Key { db: self.db, bytes: &self.key }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.db, String::from_utf8_lossy(&self.key))
    }
}
