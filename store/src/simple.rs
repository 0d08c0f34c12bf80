//! Operations of a single call.

use std::sync::Arc;

use crate::api::{Access, DATABASES, Expiry, Key};
use crate::error::{StoreError, WrongType};
use crate::store::Store;
use crate::watches::Listener;

impl Store {
    /// Sets a key to a string that does not expire.
    ///
    /// # Errors
    /// The errors of [`Store::run`].
    pub fn put(&self, key: Key<'_>, value: &[u8]) -> Result<(), StoreError> {
        let place = self.place(key);
        self.prefetch_bucket(&place);
        if self.replace_at(key, place, Expiry::None, |_| Some((value, ()))).is_some() {
            return Ok(());
        }
        self.run(Access::Placed(key, place), |tx| tx.put(key, value, Expiry::None))
    }

    /// Removes a key. Returns whether the key was there.
    ///
    /// # Errors
    /// The errors of [`Store::run`].
    pub fn delete(&self, key: Key<'_>) -> Result<bool, StoreError> {
        self.run(Access::Key(key), |tx| tx.delete(key))
    }

    /// Replaces a string by the one that `f` returns, and keeps its expiry. A key for which `f`
    /// returns `None` is removed.
    ///
    /// # Errors
    /// The errors of [`Store::run`], and [`StoreError::WrongType`] if the key holds another kind of
    /// value.
    pub fn update(
        &self,
        key: Key<'_>,
        mut f: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<(), StoreError> {
        self.run(Access::Key(key), |tx| {
            let new = match tx.get(key) {
                None => f(None),
                Some(entry) => f(Some(entry.string().ok_or(WrongType)?)),
            };
            match new {
                Some(value) => tx.put(key, &value, Expiry::Keep),
                None => tx.delete(key).map(drop),
            }
        })
    }

    /// Removes all keys of a database in one step. Their memory is free before this returns.
    ///
    /// # Errors
    /// The errors of [`Store::run`].
    pub fn flush_db(&self, db: u8) -> Result<(), StoreError> {
        self.run(Access::Everything, |tx| tx.clear(db))?;
        self.reap_all();
        Ok(())
    }

    /// Lets a listener know of every key that operations change from now on; `None`: nobody.
    pub fn listen(&self, listener: Option<Arc<dyn Listener>>) {
        self.watches.listen(listener);
    }

    /// Removes all keys of all databases in one step. Their memory is free before this returns.
    ///
    /// # Errors
    /// The errors of [`Store::run`].
    pub fn flush_all(&self) -> Result<(), StoreError> {
        self.run(Access::Everything, |tx| (0..DATABASES).try_for_each(|db| tx.clear(db)))?;
        self.reap_all();
        Ok(())
    }
}
