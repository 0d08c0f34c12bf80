//! The interface between the work and its memory: persistent memory that changes in transactions,
//! and capacity memory.

use parking_lot::Mutex;

use super::access::Recorder;
use super::model::Owner;
use super::sys::Block;

/// Offset of an object in persistent memory.
pub type Place = u64;

/// Why the work cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// The memory refused a request.
    #[error("{what}: {source}")]
    Ground {
        /// The request.
        what: &'static str,
        /// The memory's reason.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// An offset at which there is no object.
    #[error("an object at offset 0, which no object has")]
    Nowhere,
    /// The table has lost a key that was put in.
    #[error("the hash table lost key {key:#x} (seed {seed})")]
    Lost {
        /// The lost key.
        key: u64,
        /// Seed of the stream of operations, which replays the loss.
        seed: u64,
    },
}

/// Persistent and capacity memory.
pub trait Ground: Sync {
    /// Changes persistent memory in a transaction: all changes take effect, or none.
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
    /// The bytes belong to no object.
    fn read(&self, place: Place, bytes: &mut [u8]) -> Result<(), WorkError>;

    /// Address of a persistent byte.
    fn address(&self, place: Place) -> u64;

    /// Allocates a block of capacity memory, in whole words.
    ///
    /// # Errors
    /// There is no memory.
    fn capacity(&self, bytes: usize) -> Result<Block<'_>, WorkError>;

    /// Frees a block of capacity memory.
    ///
    /// # Errors
    /// The block is not allocated.
    fn give_back(&self, block: Block<'_>) -> Result<(), WorkError>;
}

/// Changes within a transaction.
pub trait Changes {
    /// Allocates a new object.
    ///
    /// # Errors
    /// There is no memory.
    fn alloc(&mut self, bytes: usize) -> Result<Place, WorkError>;
    /// Frees an object.
    ///
    /// # Errors
    /// There is no object at that offset.
    fn free(&mut self, place: Place) -> Result<(), WorkError>;
    /// Changes a word of an object.
    ///
    /// # Errors
    /// There is no room in the log.
    fn word(&mut self, object: Place, at: usize, value: u64) -> Result<(), WorkError>;
    /// Changes consecutive bytes: all of an object, or most of it.
    ///
    /// # Errors
    /// There is no room in the log.
    fn bytes(&mut self, place: Place, bytes: &[u8]) -> Result<(), WorkError>;
}

/// Passes accesses to a recorder, if there is one.
#[derive(Clone, Copy)]
pub struct Watch<'r>(pub Option<&'r Mutex<Recorder>>);

impl Watch<'_> {
    /// Records that bytes are loaded.
    pub fn load(self, address: u64, bytes: usize, owner: Owner) {
        if let Some(recorder) = self.0 {
            recorder.lock().load(address, bytes as u64, owner);
        }
    }

    /// Records that bytes are stored.
    pub fn store(self, address: u64, bytes: usize, owner: Owner) {
        if let Some(recorder) = self.0 {
            recorder.lock().store(address, bytes as u64, owner);
        }
    }
}
