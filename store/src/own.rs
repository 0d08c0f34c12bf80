//! The program's own database: a table of keys in one shard, which the heap's root `own` leads to.
//!
//! The table is made when it is first needed. Its keys are read and written as any other, by their
//! names; nothing walks over them or counts them.

use std::sync::atomic::Ordering::{Acquire, Release};

use perdura_slots::{Heat, LaneId};

use crate::api::Access;
use crate::error::StoreError;
use crate::store::Store;
use crate::table::ROOT_BYTES;

/// Name of the heap's root that leads to the table.
pub(crate) const OWN_ROOT_NAME: &str = "own";
/// The shard that has the table and its records.
pub(crate) const OWN_LANE: LaneId = LaneId(0);

impl Store {
    /// Whether there is a database of the program's own, [`crate::OWN_DATABASE`].
    pub fn has_own_database(&self) -> bool {
        self.own_root.load(Acquire) != 0
    }

    /// Makes the database of the program's own unless it is there. Only one thread may do so at a
    /// time.
    ///
    /// # Errors
    /// The errors of [`Store::run`], or the heap has no room for another root.
    pub fn make_own_database(&self) -> Result<(), StoreError> {
        if self.has_own_database() {
            return Ok(());
        }
        // The search for free memory would not find the new table in use.
        self.await_rebuild();
        let root = self.run(Access::Everything, |tx| tx.new_own_root())?;
        // Until the heap's root is set, nothing leads to the table: a crash in between leaves it
        // free.
        self.heap.set_root(OWN_ROOT_NAME, root).map_err(|error| match error {
            perdura_slots::HeapError::Region(error) => StoreError::NotDurable(error),
            _ => StoreError::Aborted("the heap has no room for another root"),
        })?;
        self.own_root.store(root, Release);
        Ok(())
    }
}

impl crate::tx::Tx<'_> {
    /// An empty table, to which no reference leads yet.
    fn new_own_root(&mut self) -> Result<u64, crate::error::TxError> {
        let made = self.op.alloc(OWN_LANE, ROOT_BYTES).and_then(|root| {
            let bytes = self.op.fill(OWN_LANE, root, ROOT_BYTES as usize, Some(Heat::COLD))?;
            bytes.fill(0);
            Ok(root)
        });
        made.map_err(|stop| self.stop(stop))
    }
}
