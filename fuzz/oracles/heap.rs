//! Any bytes are opened as a heap: the result is a typed error or a heap, never a panic, a hang or
//! memory without bound. A heap that the check calls sound opens.
use std::sync::LazyLock;

use perdura_heap::{Config, Durability, Heap, HeapError, Kind, Logging, Memory, Ptr, check};

const HEAP_BYTES: u64 = 2 << 20;

/// The bytes of a small heap with runs, a large object, a compartment, roots, a snapshot and logs,
/// as a killed process leaves them.
static IMAGES: LazyLock<[Vec<u8>; 2]> = LazyLock::new(|| {
    [Logging::Redo, Logging::Undo].map(|logging| {
        let mut config = Config::default();
        config.logging = logging;
        let memory = Memory::anonymous(HEAP_BYTES, Durability::Flushed).unwrap();
        let heap = Heap::open(memory, config).unwrap();
        for round in 0..30u64 {
            heap.transaction(|tx| {
                let object = tx.alloc(16 + round * 40)?;
                tx.write_bytes(object, &round.to_le_bytes())?;
                tx.set_root(["a", "b", "c"][round as usize % 3], Ptr::<u64>::new(object))?;
                tx.write_bytes(object, &[round as u8; 16])
            })
            .unwrap();
            if round == 15 {
                heap.persist_alloc_named(70_000, "large").unwrap();
                heap.compartment(Kind::Persistent, 1).unwrap();
                heap.compact().unwrap();
            }
        }
        let mut bytes = vec![0; HEAP_BYTES as usize];
        // SAFETY: the slice covers the heap's memory, which nobody changes now.
        unsafe { heap.memory().base().copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
        bytes
    })
});

/// The input is a list of patches, each with three bytes of place and one of value. The first byte
/// chooses the image and the part of it that is patched.
pub fn check(input: &[u8]) {
    let Some((mode, patches)) = input.split_first() else { return };
    let mut image = IMAGES[usize::from(mode & 1)].clone();
    for patch in patches.chunks_exact(4) {
        let place = u32::from_le_bytes([patch[0], patch[1], patch[2], 0]) as usize;
        // Most structures lie at the beginning: superblock, roots, span table.
        let span = if mode & 2 == 0 { image.len() } else { 128 << 10 };
        image[place % span] = patch[3];
    }
    let report = check::memory(Memory::copy_of_bytes(&image).unwrap());
    let opened: Result<Heap, HeapError> =
        Heap::open(Memory::copy_of_bytes(&image).unwrap(), Config::default());
    match opened {
        Ok(heap) => drop(heap.persist_alloc(100)),
        Err(error) => assert!(!report.is_sound(), "called sound, and does not open: {error}"),
    }
}
