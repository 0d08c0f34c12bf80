//! Capacity memory on a NUMA node: where the kernel says that its pages are.
//!
//! The node is 0, or the one that `PERDURA_TEST_NUMA_NODE` names: then nothing is skipped, and
//! where that is another than 0, no page of other memory may be on it. `cargo xtask test-qemu` runs
//! this with an NVDIMM as node 1.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test's own failure

use std::collections::BTreeMap;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

use perdura_heap::{Config, Durability, Heap, HeapError, Kind, Memory, MemoryError};
use perdura_media::RealClock;
use perdura_media::sim::SimDevice;
use perdura_region::{
    BLOCK_BYTES, Config as RegionConfig, OpenError, Region, SetupError, TrackingKind, TrapKind,
};

const NODE_VARIABLE: &str = "PERDURA_TEST_NUMA_NODE";
const LEN_BYTES: u64 = 32 << 20;
const PAGE_BYTES: usize = 4096;
/// Small objects, and such as have spans of their own.
const SIZES: [usize; 4] = [1_000, 5_000, 60_000, 1 << 20];
/// Of each size.
const BYTES_OF_A_SIZE: usize = 2 << 20;

/// The node to bind to; `None`, and a word about it, where nobody could tell that it worked.
fn node() -> Option<u32> {
    let named = std::env::var(NODE_VARIABLE).ok();
    let node = named.as_deref().map_or(0, |word| word.parse().expect(NODE_VARIABLE));
    let lacks = if !Path::new(&format!("/sys/devices/system/node/node{node}")).exists() {
        format!("node {node}")
    } else if !Path::new("/proc/self/numa_maps").exists() {
        "/proc/self/numa_maps".to_owned()
    } else {
        return Some(node);
    };
    assert!(named.is_none(), "{NODE_VARIABLE}={node}: this kernel has no {lacks}");
    eprintln!("skipped: this kernel has no {lacks}");
    None
}

fn bound_to(node: u32) -> Config {
    let mut config = Config::default();
    config.numa_node = Some(node);
    config
}

fn on_node(node: u32) -> Result<Heap, HeapError> {
    Heap::open(Memory::anonymous(LEN_BYTES, Durability::Ordered)?, bound_to(node))
}

/// A region of each way to trap that this machine grants.
fn regions() -> Vec<(TrapKind, Arc<Region>)> {
    let open = |kind| {
        let device = Arc::new(SimDevice::new(0, 1));
        let config = RegionConfig {
            tracking: TrackingKind::Trap(kind),
            reserved_bytes: Some(LEN_BYTES),
            checkpoint_every: None,
            ..RegionConfig::new(LEN_BYTES, LEN_BYTES / 2)
        };
        match Region::open(device, Arc::new(RealClock), config) {
            Ok(region) => Some((kind, Arc::new(region))),
            Err(OpenError::Setup(SetupError::Tracking { mode, source })) => {
                eprintln!("this machine does not grant {mode}: {source}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    };
    let kinds = [TrapKind::UffdSigbus, TrapKind::UffdThread, TrapKind::Mprotect];
    let regions: Vec<_> = kinds.into_iter().filter_map(open).collect();
    assert!(!regions.is_empty(), "mprotect at least is granted everywhere");
    regions
}

/// Memory that was stored to, and is nobody else's until the last look at it.
struct Stored {
    start: NonNull<u8>,
    len: usize,
}

impl Stored {
    fn to(start: NonNull<u8>, len: usize) -> Self {
        // SAFETY: so much memory, nobody else's.
        unsafe { start.as_ptr().write_bytes(0x5a, len) };
        Self { start, len }
    }

    /// The policy of the mapping it lies in.
    fn policy(&self) -> String {
        let maps = std::fs::read_to_string("/proc/self/numa_maps").unwrap();
        let mut starts = maps.lines().filter_map(|line| {
            let mut words = line.split(' ');
            let start = usize::from_str_radix(words.next()?, 16).ok()?;
            Some((start, words.next()?.to_owned()))
        });
        let address = self.start.as_ptr() as usize;
        starts.rfind(|(start, _)| *start <= address).expect("a mapping").1
    }

    /// How many of its pages are on each node, by the kernel's page tables; below 0: the kernel's
    /// error.
    fn nodes(&self) -> BTreeMap<i32, usize> {
        let start = self.start.as_ptr() as usize;
        let first = start / PAGE_BYTES * PAGE_BYTES;
        let pages: Vec<usize> = (first..start + self.len).step_by(PAGE_BYTES).collect();
        let mut answers = vec![0_i32; pages.len()];
        let no_nodes = std::ptr::null::<i32>();
        let (asked, told) = (pages.as_ptr(), answers.as_mut_ptr());
        // SAFETY: without nodes to move to the call only tells, and there is room for as many
        // answers as pages.
        let outcome = unsafe {
            libc::syscall(libc::SYS_move_pages, 0, pages.len(), asked, no_nodes, told, 0)
        };
        assert_eq!(outcome, 0, "move_pages: {}", std::io::Error::last_os_error());
        let mut nodes = BTreeMap::new();
        answers.into_iter().for_each(|node| *nodes.entry(node).or_default() += 1);
        nodes
    }
}

/// Objects of all sizes, every byte stored to.
fn fill(heap: &Heap, kind: Kind) -> Vec<Stored> {
    let counts = SIZES.map(|len| (len, BYTES_OF_A_SIZE / len));
    let lens = counts.into_iter().flat_map(|(len, count)| std::iter::repeat_n(len, count));
    let object = |len: usize| match kind {
        Kind::Capacity => heap.cap_alloc(len as u64).unwrap(),
        Kind::Persistent => {
            NonNull::new(heap.pointer(heap.persist_alloc(len as u64).unwrap())).unwrap()
        }
    };
    lens.map(|len| Stored::to(object(len), len)).collect()
}

/// Every page of capacity memory, and none of persistent memory where that can be told apart.
fn assert_apart(node: u32, capacity: &[Stored], persistent: &[Stored], what: &str) {
    let on_node = node as i32;
    let mut pages = [0, 0];
    for stored in capacity {
        let nodes = stored.nodes();
        let is_there = nodes.len() == 1 && nodes.contains_key(&on_node);
        assert!(is_there, "{what}: capacity memory of {} B: {nodes:?}", stored.len);
        pages[0] += nodes.values().sum::<usize>();
    }
    for stored in persistent {
        let nodes = stored.nodes();
        let is_elsewhere = node == 0 || !nodes.contains_key(&on_node);
        assert!(is_elsewhere, "{what}: persistent memory of {} B: {nodes:?}", stored.len);
        assert!(nodes.keys().all(|node| *node >= 0), "{what}: {nodes:?}");
        pages[1] += nodes.values().sum::<usize>();
    }
    for (all, policy) in [(capacity, format!("bind:{node}")), (persistent, "default".to_owned())] {
        // The table of all mappings is long, and slow to read.
        for stored in [all.first(), all.last()].into_iter().flatten() {
            assert_eq!(stored.policy(), policy, "{what}");
        }
    }
    let [capacity, persistent] = pages;
    eprintln!(
        "{what}: {capacity} pages of capacity memory on node {node}, {persistent} of persistent \
         memory not bound"
    );
}

#[test]
fn capacity_memory_is_bound_to_the_node_and_persistent_memory_is_not() {
    let Some(node) = node() else { return };
    let heap = on_node(node).unwrap();
    let (capacity, persistent) = (fill(&heap, Kind::Capacity), fill(&heap, Kind::Persistent));
    assert_apart(node, &capacity, &persistent, "private memory");
}

#[test]
fn so_it_is_in_a_heap_on_a_region() {
    let Some(node) = node() else { return };
    for (trap, region) in regions() {
        let heap = Heap::open(Memory::region(region).unwrap(), bound_to(node)).unwrap();
        let (capacity, persistent) = (fill(&heap, Kind::Capacity), fill(&heap, Kind::Persistent));
        assert_apart(node, &capacity, &persistent, &format!("a region ({trap:?})"));
    }
}

#[test]
fn a_file_is_bound_page_by_page_or_refused() {
    let Some(node) = node() else { return };
    let (mut bound, mut refused) = (0, 0);
    for dir in [std::env::temp_dir(), "/dev/shm".into(), std::env::current_dir().unwrap()] {
        let memory = match Memory::unnamed_file(&dir, LEN_BYTES) {
            Ok(memory) => memory,
            Err(MemoryError::File { what: "open", source, .. }) => {
                eprintln!("{}: {source}", dir.display());
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        match Heap::open(memory, bound_to(node)) {
            Ok(heap) => {
                let (capacity, persistent) =
                    (fill(&heap, Kind::Capacity), fill(&heap, Kind::Persistent));
                assert_apart(node, &capacity, &persistent, &dir.display().to_string());
                bound += 1;
            }
            Err(HeapError::Memory(MemoryError::NodeOfFile { node: named })) => {
                assert_eq!(named, node);
                refused += 1;
            }
            Err(error) => panic!("{}: {error}", dir.display()),
        }
    }
    // The guest has both: memory files where temporary ones are, and others where the test is
    // started.
    assert!(node == 0 || bound > 0 && refused > 0, "{bound} bound, {refused} refused");
}

/// As far as it goes; every byte is stored to.
fn fill_up(heap: &Heap) -> Vec<Stored> {
    let len = 60_000;
    let offsets = std::iter::from_fn(|| heap.persist_alloc(len as u64).ok());
    offsets.map(|at| Stored::to(NonNull::new(heap.pointer(at)).unwrap(), len)).collect()
}

#[test]
fn memory_that_was_bound_is_not_once_it_is_persistent() {
    let Some(node) = node() else { return };
    let regions = regions().into_iter().map(|(_, region)| Memory::region(region).unwrap());
    let private = Memory::anonymous(LEN_BYTES, Durability::Ordered).unwrap();
    for memory in regions.chain([private]) {
        let heap = Heap::open(memory, bound_to(node)).unwrap();
        let mut capacity = Vec::new();
        while let Ok(start) = heap.cap_alloc(60_000) {
            capacity.push(Stored::to(start, 60_000));
        }
        // Of each kind so many that spans must have served both. Caches keep some of what was
        // freed.
        let spans = (LEN_BYTES / BLOCK_BYTES) as usize;
        assert!(capacity.len() >= spans * 3 / 4, "{} objects", capacity.len());
        assert_apart(node, &capacity, &[], "before");
        for stored in &capacity {
            heap.cap_free(stored.start).unwrap();
        }
        let persistent = fill_up(&heap);
        assert!(persistent.len() >= spans / 2, "{} objects", persistent.len());
        assert_apart(node, &[], &persistent, "after");
    }
}

#[test]
fn what_a_region_holds_already_moves_to_the_node() {
    const BLOCKS: u64 = 32;
    let Some(node) = node() else { return };
    for (trap, region) in regions() {
        let memory = region.trapped().unwrap();
        let block = |number: u64| {
            let at = memory.as_ptr().wrapping_add((number * BLOCK_BYTES) as usize);
            Stored::to(NonNull::new(at).unwrap(), BLOCK_BYTES as usize)
        };
        region.set_kind(0..BLOCKS, perdura_region::Kind::Capacity).unwrap();
        let all: Vec<Stored> = (0..BLOCKS).map(block).collect();
        let (bound, unbound) = all.split_at(BLOCKS as usize / 2);
        assert_apart(node, &[], &all, "before");
        region.bind_capacity(0..BLOCKS / 2, node).unwrap();
        assert_apart(node, bound, unbound, &format!("half of a region ({trap:?})"));
        // SAFETY: stored to before, by this thread.
        let kept = |stored: &Stored| unsafe { stored.start.as_ptr().add(stored.len - 1).read() };
        assert!(all.iter().all(|stored| kept(stored) == 0x5a), "moved, and changed");
        region.set_kind(0..BLOCKS, perdura_region::Kind::Persistent).unwrap();
        let all: Vec<Stored> = (0..BLOCKS).map(block).collect();
        assert_apart(node, &[], &all, "after");
    }
}

#[test]
fn a_node_that_does_not_exist_is_refused_when_the_heap_is_opened() {
    for node in [99, 1023, 1024, u32::MAX] {
        match on_node(node) {
            Err(HeapError::Memory(MemoryError::Node { node: named, .. })) => {
                assert_eq!(named, node);
            }
            Err(error) => panic!("node {node}: {error}"),
            Ok(_) => panic!("node {node} was taken"),
        }
    }
}
