//! Custom operations: chains of dependent accesses, written as in the published benchmark.
//!
//! `r_256,w_64_cache_128,w_64_cache_-128`: read 256 B at a place of its own, then write 64 B at 128
//! B behind it, then 64 B where the read was: offsets add up. `p` and `d` behind the letter mean
//! persistent memory (the default) and DRAM.

use std::fmt;
use std::str::FromStr;

use super::choices::Persist;

/// Size of a cache line, the least access.
pub const LINE_BYTES: u64 = 64;
/// Most accesses of a chain: a file may have thousands of cells, each with its own chain.
const CHAIN_MAX: usize = 256;

/// The memory of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// The memory of `memory_range` bytes, which is measured.
    Persistent,
    /// The memory of `dram_memory_range` bytes beside it.
    Dram,
}

/// One access of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CustomOp {
    /// A read at a place that depends on the read before.
    Read {
        /// Memory that is read.
        memory: Memory,
        /// Size of the read.
        bytes: u64,
    },
    /// A write at an offset from the place of the access before.
    Write {
        /// Memory that is written.
        memory: Memory,
        /// Size of the write.
        bytes: u64,
        /// Instructions that make the write durable.
        persist: Persist,
        /// Distance from the access before, bytes.
        offset_bytes: i64,
    },
}

/// A chain of accesses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain(Vec<CustomOp>);

impl Chain {
    /// The accesses; the first one is a read.
    pub fn ops(&self) -> &[CustomOp] {
        &self.0
    }

    /// Whether some access is in this memory.
    pub fn touches(&self, memory: Memory) -> bool {
        self.0.iter().any(|op| op.memory() == memory)
    }

    /// For one memory: bytes to keep free before the first place of a read, for writes before it,
    /// in whole accesses of the largest size, so that reads lie at multiples of their size; and
    /// bytes from where a read begins to the end of what is accessed from there.
    pub fn reach(&self, memory: Memory) -> (u64, u64) {
        let (mut lowest, mut highest) = (0, 0);
        let mut largest = LINE_BYTES;
        let mut at = 0i64;
        for op in self.0.iter().filter(|op| op.memory() == memory) {
            at = match op {
                CustomOp::Read { .. } => 0,
                CustomOp::Write { offset_bytes, .. } => at + offset_bytes,
            };
            lowest = lowest.min(at);
            highest = highest.max(at + op.bytes() as i64);
            largest = largest.max(op.bytes());
        }
        (lowest.unsigned_abs().next_multiple_of(largest), highest as u64)
    }
}

impl CustomOp {
    /// Memory of the access.
    pub fn memory(&self) -> Memory {
        match self {
            Self::Read { memory, .. } | Self::Write { memory, .. } => *memory,
        }
    }

    /// Size of the access.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Read { bytes, .. } | Self::Write { bytes, .. } => *bytes,
        }
    }
}

impl FromStr for Chain {
    type Err = String;

    /// Parses a chain; an error says which rule which access breaks.
    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split(',').map(str::trim).collect();
        if words.len() > CHAIN_MAX {
            return Err(format!("at most {CHAIN_MAX} accesses, and here are {}", words.len()));
        }
        let ops: Vec<CustomOp> = words.iter().map(|word| access(word)).collect::<Result<_, _>>()?;
        if !matches!(ops.first(), Some(CustomOp::Read { .. })) {
            return Err(format!("the first access is a read, and {:?} is not", words[0]));
        }
        for (at, op) in ops.iter().enumerate() {
            let before = ops[..at].iter().any(|before| before.memory() == op.memory());
            if matches!(op, CustomOp::Write { .. }) && !before {
                return Err(format!(
                    "a write follows an access to the same memory, and none comes before {:?}",
                    words[at]
                ));
            }
        }
        Ok(Self(ops))
    }
}

fn access(word: &str) -> Result<CustomOp, String> {
    let parts: Vec<&str> = word.split('_').collect();
    let memory = |letters: &str| match letters {
        "" | "p" => Some(Memory::Persistent),
        "d" => Some(Memory::Dram),
        _ => None,
    };
    let is_read = parts[0].starts_with('r');
    let letters = parts[0].strip_prefix(['r', 'w']);
    let memory = letters.and_then(memory).ok_or_else(|| {
        format!(
            "{word:?} is not an access: r, rp, rd and a size, or w, wp, wd, a size and none, \
                 cache, cacheinv or nocache"
        )
    })?;
    let size = parts.get(1).ok_or_else(|| format!("{word:?} has no size"))?;
    let bytes = size
        .parse()
        .ok()
        .filter(|bytes: &u64| bytes.is_power_of_two() && (LINE_BYTES..=1 << 30).contains(bytes))
        .ok_or_else(|| {
            format!(
                "sizes are powers of two from {LINE_BYTES} to {}, and {word:?} has {size:?}",
                1 << 30
            )
        })?;
    if is_read {
        return match parts.len() {
            2 => Ok(CustomOp::Read { memory, bytes }),
            _ => Err(format!("a read has a size and nothing else, and {word:?} has")),
        };
    }
    let persist = parts.get(2).ok_or_else(|| {
        format!("{word:?} does not say what follows: none, cache, cacheinv or nocache")
    })?;
    let persist = Persist::named(persist).ok_or_else(|| {
        format!(
            "none, cache, cacheinv or nocache follows a size, and in {word:?} it is {persist:?}"
        )
    })?;
    let offset_bytes = match parts.get(3) {
        None => 0,
        Some(offset) => offset
            .parse()
            .ok()
            .filter(|bytes: &i64| bytes % LINE_BYTES as i64 == 0 && bytes.abs() <= 1 << 30)
            .ok_or_else(|| {
                format!(
                    "offsets are multiples of {LINE_BYTES}, 1 GiB at most, and {word:?} has \
                         {offset:?}"
                )
            })?,
    };
    if parts.len() > 4 {
        return Err(format!("nothing follows an offset, and in {word:?} something does"));
    }
    Ok(CustomOp::Write { memory, bytes, persist, offset_bytes })
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, op) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            write!(f, "{op}")?;
        }
        Ok(())
    }
}

impl fmt::Display for CustomOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = match self.memory() {
            Memory::Persistent => 'p',
            Memory::Dram => 'd',
        };
        match self {
            Self::Read { bytes, .. } => write!(f, "r{letter}_{bytes}"),
            Self::Write { bytes, persist, offset_bytes: 0, .. } => {
                write!(f, "w{letter}_{bytes}_{}", persist.name())
            }
            Self::Write { bytes, persist, offset_bytes, .. } => {
                write!(f, "w{letter}_{bytes}_{}_{offset_bytes}", persist.name())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> String {
        text.parse::<Chain>().unwrap_err()
    }

    #[test]
    fn chains_are_what_they_say() {
        let chain: Chain = "rd_2048,rp_1024,wp_64_cache_512,w_64_nocache_-512".parse().unwrap();
        assert_eq!(chain.to_string(), "rd_2048,rp_1024,wp_64_cache_512,wp_64_nocache_-512");
        assert_eq!(chain.reach(Memory::Persistent), (0, 1024));
        assert_eq!(chain.reach(Memory::Dram), (0, 2048));
        let chain: Chain = "r_64,w_64_none_-128,w_256_none_512".parse().unwrap();
        assert_eq!(
            chain.reach(Memory::Persistent),
            (256, 640),
            "room for 128 B, in whole accesses of 256"
        );
        assert!(!chain.touches(Memory::Dram));
        let shown = chain.to_string();
        assert_eq!(shown.parse::<Chain>().unwrap(), chain);
    }

    #[test]
    fn each_rule_has_its_message() {
        assert!(rule("w_64_none").contains("the first access is a read"));
        assert!(rule("r_64,wd_64_none").contains("follows an access to the same memory"));
        assert!(rule("r_63").contains("powers of two"));
        assert!(rule("r_32").contains("powers of two"));
        assert!(rule("r_64,w_64_none_32").contains("multiples of 64"));
        assert!(rule("r_64,w_64_flush").contains("none, cache"));
        assert!(rule("r_64,w_64").contains("does not say what follows"));
        assert!(rule("r_64_none").contains("nothing else"));
        assert!(rule("r_64,w_64_none_64_64").contains("nothing follows"));
        assert!(rule("x_64").contains("not an access"));
        assert!(rule("").contains("not an access"));
        assert!(rule("r").contains("no size"));
    }
}
