//! Changes of several keys that happen all or none.

use std::time::Duration;

use perdura_store::{Expiry, Key, Tx, TxError, WrongType};

/// The keys of a [`Store::transaction`](crate::Store::transaction), to be read and changed.
///
/// Return the errors of its calls: most of them mean that the transaction is to be run again.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let options = perdura::Options::new().memory_bytes(16 << 20);
/// # let store = perdura::Store::open_with(dir.path().join("data"), &options)?;
/// use perdura::{StoreError, Transaction};
///
/// let renamed = |tx: &mut Transaction<'_, '_>| match tx.get("old")? {
///     None => tx.abort("there is no such key"),
///     Some(value) => {
///         tx.delete("old")?;
///         tx.set("new", value)
///     }
/// };
/// let refused = store.transaction(&["old", "new"], renamed);
/// assert!(matches!(refused, Err(StoreError::Aborted("there is no such key"))));
/// store.set("old", "value")?;
/// store.transaction(&["old", "new"], renamed)?;
/// assert!(store.contains("new") && !store.contains("old"));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct Transaction<'t, 's> {
    tx: &'t mut Tx<'s>,
    /// The keys named, in order.
    keys: &'t [Key<'t>],
}

impl<'t, 's> Transaction<'t, 's> {
    /// `keys` are in the order of their bytes.
    pub(crate) fn new(tx: &'t mut Tx<'s>, keys: &'t [Key<'t>]) -> Self {
        Self { tx, keys }
    }

    /// A copy of the key's value, with the changes of this transaction; `None`: there is no such
    /// key, or it has expired.
    ///
    /// # Errors
    /// The key was not named, or holds another kind of value.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, TxError> {
        let entry = self.tx.get(self.named(key.as_ref())?);
        let string = entry.map(|entry| entry.string().map(<[u8]>::to_vec).ok_or(WrongType));
        Ok(string.transpose()?)
    }

    /// Sets the key to a value that does not expire.
    ///
    /// # Errors
    /// The key was not named; key or value are too long; the transaction is to be run again.
    pub fn set(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), TxError> {
        self.tx.put(self.named(key.as_ref())?, value.as_ref(), Expiry::None)
    }

    /// Removes the key. Returns whether it was there.
    ///
    /// # Errors
    /// The key was not named; the transaction is to be run again.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<bool, TxError> {
        self.tx.delete(self.named(key.as_ref())?)
    }

    /// Lets the key go away after a time, or keeps it for good (`None`). Returns whether there is
    /// such a key.
    ///
    /// # Errors
    /// The key was not named; the transaction is to be run again.
    pub fn expire(
        &mut self,
        key: impl AsRef<[u8]>,
        after: Option<Duration>,
    ) -> Result<bool, TxError> {
        let now_ms = self.tx.now_ms();
        let at_ms = after.map(|after| {
            now_ms.saturating_add(u64::try_from(after.as_millis()).unwrap_or(u64::MAX))
        });
        self.tx.set_expiry(self.named(key.as_ref())?, at_ms)
    }

    /// Ends the transaction without any change.
    ///
    /// # Errors
    /// Always: [`TxError::Abort`], which the caller of the transaction gets as
    /// [`StoreError::Aborted`](crate::StoreError::Aborted).
    pub fn abort<T>(&self, why: &'static str) -> Result<T, TxError> {
        self.tx.abort(why)
    }

    /// The key, if it is one of those whose shards are held.
    fn named<'k>(&self, key: &'k [u8]) -> Result<Key<'k>, TxError> {
        match self.keys.binary_search_by(|named| named.bytes.cmp(key)) {
            Ok(_) => Ok(Key::new(key)),
            Err(_) => self.tx.abort("a key was used that the transaction does not name"),
        }
    }
}
