//! Replacing a string by another of its length.

use crate::api::{Expiry, Key};
use crate::record::RecordKind;
use crate::store::{Place, Store};

impl Store {
    /// Replaces the string that a key holds by the one of the same length that `f` makes of it, if
    /// that is all there is to do: the string is in memory, nothing has to be waited for, nobody
    /// watches the key or takes a snapshot, and an expiry that the key has is to be kept. `place`
    /// is [`Store::place`] of the key. Returns what `f` has returned beside the string; `f` may
    /// have been called in vain.
    pub fn replace_at<'v, R>(
        &self,
        key: Key<'_>,
        place: Place,
        expiry: Expiry,
        f: impl FnOnce(&[u8]) -> Option<(&'v [u8], R)>,
    ) -> Option<R> {
        let held = self.hold(key, &place)?;
        if held.found.expires() && expiry != Expiry::Keep {
            return None;
        }
        let bytes = held.value(key, RecordKind::String)?;
        self.replace_held(held, &place, bytes, f)
    }
}
