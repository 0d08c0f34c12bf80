//! The NUMA nodes of the machine, as the kernel lists them.

use std::path::Path;

/// A node that has memory or processors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The kernel's number of the node.
    pub number: u32,
    /// Processors of the node.
    pub processors: Vec<usize>,
    /// Whether the node has memory.
    pub has_memory: bool,
}

/// Nodes of this machine, with the processors that this process may use; empty where the kernel
/// lists none.
pub fn here() -> Vec<Node> {
    let mut nodes = listed(Path::new("/sys/devices/system/node"));
    if let Ok(allowed) = rustix::thread::sched_getaffinity(None) {
        let is_allowed =
            |one: &usize| *one < rustix::thread::CpuSet::MAX_CPU && allowed.is_set(*one);
        nodes.iter_mut().for_each(|node| node.processors.retain(is_allowed));
    }
    nodes
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

/// The numbers of a list like `0-3,8`.
fn ranges(text: &str) -> Vec<usize> {
    let range = |word: &str| {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

/// The node for the memory of a benchmark: that of the first processors, or another one with
/// memory. None: there is only one.
///
/// # Errors
/// Another node was asked for, and there is none.
pub fn memory_node(nodes: &[Node], is_far: bool) -> Result<Option<u32>, NoFarNode> {
    if nodes.len() < 2 {
        return if is_far { Err(NoFarNode) } else { Ok(None) };
    }
    let threads = nodes.iter().find(|node| !node.processors.is_empty()).ok_or(NoFarNode)?;
    let fits = |node: &&Node| node.has_memory && (node.number != threads.number) == is_far;
    // A node of processors without memory has its nearest memory elsewhere.
    let any = || nodes.iter().find(|node| node.has_memory && !is_far);
    let memory = nodes.iter().find(fits).or_else(any).ok_or(NoFarNode)?;
    Ok(Some(memory.number))
}

/// Processors for threads whose memory lies on a node: that node's, or those of another node. None:
/// any, because there is only one node, or the memory's node is unknown.
///
/// # Errors
/// Processors of another node were asked for, and there are none.
pub fn processors(
    nodes: &[Node],
    lies_on: Option<u32>,
    is_far: bool,
) -> Result<Option<Vec<usize>>, NoFarNode> {
    if nodes.len() < 2 {
        return if is_far { Err(NoFarNode) } else { Ok(None) };
    }
    let Some(lies_on) = lies_on else { return if is_far { Err(NoFarNode) } else { Ok(None) } };
    let mut with = nodes.iter().filter(|node| !node.processors.is_empty());
    let own = with.clone().find(|node| node.number == lies_on);
    let found = match is_far {
        true => Some(with.find(|node| node.number != lies_on).ok_or(NoFarNode)?),
        // Memory without processors of its own is equally far from all.
        false => own,
    };
    Ok(found.map(|node| node.processors.clone()))
}

/// Far memory was asked for, and the machine has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "numa_pattern: far: this machine has no processors and memory on different NUMA nodes; use near"
)]
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
        assert_eq!((memory_node(&two, false), memory_node(&two, true)), (Ok(Some(0)), Ok(Some(1))));
        assert_eq!(processors(&two, Some(1), false), Ok(Some(vec![2, 3])));
        assert_eq!(processors(&two, Some(1), true), Ok(Some(vec![0, 1])));
        assert_eq!(processors(&two, None, false), Ok(None));
        assert_eq!(processors(&two, None, true), Err(NoFarNode), "nobody knows what is far");
        // A node of memory without processors, such as an NVDIMM.
        let slow = [node(0, &[0, 1], true), node(1, &[], true)];
        assert_eq!(memory_node(&slow, true), Ok(Some(1)));
        assert_eq!(processors(&slow, Some(1), true), Ok(Some(vec![0, 1])));
        assert_eq!(processors(&slow, Some(1), false), Ok(None));
        for (one, other) in [(false, Ok(None)), (true, Err(NoFarNode))] {
            assert_eq!(memory_node(&two[..1], one), other);
        }
        assert_eq!(processors(&two[..1], Some(0), true), Err(NoFarNode));
        let bare = [node(0, &[0], true), node(1, &[1], false)];
        assert_eq!(memory_node(&bare, true), Err(NoFarNode));
    }
}
