//! What the work stands on: persistent memory that changes in transactions, and capacity memory.

use parking_lot::Mutex;

use super::access::Recorder;
use super::model::Owner;
use super::sys::Block;

/// Where an object lies: its offset in persistent memory.
pub type Place = u64;

/// Work that cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// What it stands on refuses.
    #[error("{what}: {source}")]
    Ground {
        /// What was asked.
        what: &'static str,
        /// Why not.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A place that nothing is at.
    #[error("an object at place 0, where nothing can be")]
    Nowhere,
    /// The table does not hold what was put in.
    #[error("the hash table lost key {key:#x} (seed {seed})")]
    Lost {
        /// The key.
        key: u64,
        /// Seed of the stream of operations.
        seed: u64,
    },
}

/// Memory of two kinds.
pub trait Ground: Sync {
    /// Makes changes of persistent memory that come together or not at all.
    ///
    /// # Errors
    /// There is no memory, or no room in the log.
    fn transact(
        &self,
        make: &mut dyn FnMut(&mut dyn Changes) -> Result<(), WorkError>,
    ) -> Result<(), WorkError>;

    /// Copies persistent bytes out.
    ///
    /// # Errors
    /// They are of no object.
    fn read(&self, place: Place, bytes: &mut [u8]) -> Result<(), WorkError>;

    /// The address of a persistent byte.
    fn address(&self, place: Place) -> u64;

    /// A block of capacity memory, of whole words.
    ///
    /// # Errors
    /// There is none.
    fn capacity(&self, bytes: usize) -> Result<Block<'_>, WorkError>;

    /// Gives a block back.
    ///
    /// # Errors
    /// It was none.
    fn give_back(&self, block: Block<'_>) -> Result<(), WorkError>;
}

/// Changes within a transaction.
pub trait Changes {
    /// A new object.
    ///
    /// # Errors
    /// There is no memory.
    fn alloc(&mut self, bytes: usize) -> Result<Place, WorkError>;
    /// Ends an object.
    ///
    /// # Errors
    /// There is none at that place.
    fn free(&mut self, place: Place) -> Result<(), WorkError>;
    /// Changes a word of an object.
    ///
    /// # Errors
    /// There is no room in the log.
    fn word(&mut self, object: Place, at: usize, value: u64) -> Result<(), WorkError>;
    /// Changes bytes in a row, all of an object or most of it.
    ///
    /// # Errors
    /// There is no room in the log.
    fn bytes(&mut self, place: Place, bytes: &[u8]) -> Result<(), WorkError>;
}

/// Tells a recorder, if there is one.
#[derive(Clone, Copy)]
pub struct Watch<'r>(pub Option<&'r Mutex<Recorder>>);

impl Watch<'_> {
    /// Bytes are loaded.
    pub fn load(self, address: u64, bytes: usize, owner: Owner) {
        if let Some(recorder) = self.0 {
            recorder.lock().load(address, bytes as u64, owner);
        }
    }

    /// Bytes are stored.
    pub fn store(self, address: u64, bytes: usize, owner: Owner) {
        if let Some(recorder) = self.0 {
            recorder.lock().store(address, bytes as u64, owner);
        }
    }
}
