//! NUMA nodes of the machine, as the kernel lists them.

use std::path::Path;

/// A node that has memory or processors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub number: u32,
    /// Its processors.
    pub processors: Vec<usize>,
    /// Whether it has memory.
    pub has_memory: bool,
}

/// Nodes of this machine; none where the kernel tells of none.
pub fn here() -> Vec<Node> {
    listed(Path::new("/sys/devices/system/node"))
}

fn listed(folder: &Path) -> Vec<Node> {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
    let with_memory = ranges(&read("has_memory"));
    let online = ranges(&read("online"));
    online
        .iter()
        .map(|number| Node {
            number: *number as u32,
            processors: ranges(&read(&format!("node{number}/cpulist"))),
            has_memory: with_memory.contains(number),
        })
        .collect()
}

/// `0-3,8` as its numbers.
fn ranges(text: &str) -> Vec<usize> {
    let range = |word: &str| {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

/// Where threads run and where memory lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Processors of the threads.
    pub processors: Vec<usize>,
    /// Node of the memory.
    pub node: u32,
}

/// Threads on the first node that has processors; memory on the same, or on another. None: there is one node only, and nothing to place;
/// an error: no other.
pub fn place(nodes: &[Node], is_far: bool) -> Result<Option<Placement>, NoFarNode> {
    if nodes.len() < 2 {
        return if is_far { Err(NoFarNode) } else { Ok(None) };
    }
    let threads = nodes.iter().find(|node| !node.processors.is_empty()).ok_or(NoFarNode)?;
    let fits = |node: &&Node| node.has_memory && (node.number != threads.number) == is_far;
    // A node of processors without memory has its nearest elsewhere.
    let memory = nodes.iter().find(fits).or_else(|| nodes.iter().find(|node| node.has_memory));
    let memory = memory.filter(|node| !is_far || node.number != threads.number).ok_or(NoFarNode)?;
    Ok(Some(Placement { processors: threads.processors.clone(), node: memory.number }))
}

/// Far memory was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("numa_pattern: far: this machine has one NUMA node with memory; use near")]
pub struct NoFarNode;

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u32, processors: &[usize], has_memory: bool) -> Node {
        Node { number, processors: processors.to_vec(), has_memory }
    }

    #[test]
    fn the_kernels_lists_are_read() {
        assert_eq!(ranges("0-2,7\n"), [0, 1, 2, 7]);
        assert!(ranges("\n").is_empty());
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("node1")).unwrap();
        for (name, text) in [("online", "0-1\n"), ("has_memory", "1\n"), ("node1/cpulist", "4-5\n")]
        {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        assert_eq!(listed(dir.path()), [node(0, &[], false), node(1, &[4, 5], true)]);
    }

    #[test]
    fn near_and_far_are_seen_from_the_threads() {
        let two = [node(0, &[0, 1], true), node(1, &[2, 3], true)];
        let on = |node| Some(Placement { processors: vec![0, 1], node });
        assert_eq!(place(&two, false), Ok(on(0)));
        assert_eq!(place(&two, true), Ok(on(1)));
        // Memory without processors, as an NVDIMM has it.
        let slow = [node(0, &[0, 1], true), node(1, &[], true)];
        assert_eq!(place(&slow, true), Ok(on(1)));
        assert_eq!(place(&two[..1], false), Ok(None));
        assert_eq!(place(&two[..1], true), Err(NoFarNode));
        let bare = [node(0, &[0], true), node(1, &[1], false)];
        assert_eq!(place(&bare, true), Err(NoFarNode));
    }
}
