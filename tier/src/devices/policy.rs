//! When values leave memory, which, and when a device is tidied up. Decisions only.

/// Memory of a store, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// The region at its present size.
    pub region_bytes: u64,
    /// Memory that is free.
    pub free_bytes: u64,
    /// Memory of this that is free for objects of any size.
    pub span_bytes: u64,
    /// Memory of that which only the mover may use.
    pub reserve_bytes: u64,
}

/// Percentages and limits by which values are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Values are moved once so much of memory is in use, percent. Sprint-AEP (section III.B)
    /// synchronises its buffer at 80 %; here the same memory is the cache, and what is free in it
    /// serves no read.
    pub start_percent: u64,
    /// Values are moved until no more is in use, percent.
    pub stop_percent: u64,
    /// Runs of slots are emptied while less of memory is free for objects of any size, percent.
    pub span_percent: u64,
    /// A device is tidied up while less of its used space is live, percent.
    pub live_percent: u64,
    /// An idle device that could sleep is tidied up only once less of its used space is live,
    /// percent; and then as far as any other, because it is awake anyway. What is left of its
    /// segments goes to a primary.
    pub idle_live_percent: u64,
    /// Values with more bytes stay in memory.
    pub value_bytes_max: u64,
    /// Bytes of a segment on a device that is new, and so the most that one batch writes there.
    pub segment_bytes: u64,
    /// Whether several devices are written to at the same time, by a thread each (section III.B).
    pub is_parallel: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            start_percent: 90,
            stop_percent: 87,
            span_percent: 5,
            live_percent: 66,
            idle_live_percent: 33,
            value_bytes_max: 1 << 20,
            segment_bytes: 4 << 20,
            is_parallel: true,
        }
    }
}

impl Policy {
    /// Bytes of memory that are to be freed by moving values; 0 while there is no need to.
    pub fn bytes_to_move(&self, memory: Memory) -> u64 {
        let used = memory.region_bytes.saturating_sub(memory.free_bytes);
        if used * 100 <= memory.region_bytes * self.start_percent {
            return 0;
        }
        used - memory.region_bytes * self.stop_percent / 100
    }

    /// Bytes of whole spans that are to be freed; 0 while there are enough. In little memory with
    /// many shards the reserve is most of it, and a part is to be left for others all the same:
    /// addresses that change, and values that come back.
    pub fn spans_to_free(&self, memory: Memory) -> u64 {
        let wanted = memory.region_bytes * self.span_percent / 100;
        let least = memory.reserve_bytes + memory.region_bytes / 64;
        wanted.max(least.min(wanted * 2)).saturating_sub(memory.span_bytes)
    }

    /// The share of a device's used space that is to be live, percent: segments are emptied until
    /// it is. A device that is full is worth more work, and one that could sleep less, until it is
    /// awake for it.
    pub fn live_percent_wanted(&self, is_full: bool, can_sleep: bool, is_tidied: bool) -> u64 {
        match (can_sleep, is_tidied) {
            (true, false) => self.idle_live_percent,
            (true, true) => self.live_percent,
            (false, _) if is_full => self.live_percent.max(90),
            (false, _) => self.live_percent,
        }
    }
}

/// Up to how many uses a value may have had lately to be moved. The levels are those of the paper's
/// range lists, powers of two (section III.C): values are moved from the coldest list upward.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Level(u8);

impl Level {
    /// Whether a value that was used so often is moved.
    pub fn moves(self, uses: u8) -> bool {
        uses <= self.0
    }

    /// Goes up one list: the lists up to the present one were not enough.
    pub fn raise(self) -> Self {
        Self(self.0.saturating_mul(2).saturating_add(1))
    }

    /// Goes down one list.
    pub fn lower(self) -> Self {
        Self(self.0 / 2)
    }

    /// The fewest uses of a value that is worth bringing back: one list above those that are moved,
    /// so that a value does not go to and fro.
    pub fn uses_to_return(self) -> u8 {
        self.raise().0.saturating_add(1)
    }
}

/// How many of the values that were looked at were cold, until enough were to judge the level.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    pub looked: u64,
    pub cold: u64,
}

impl Sample {
    /// Values looked at before the level is judged.
    const ENOUGH: u64 = 4096;

    /// The level from here on: where more than half of the values are cold, a lower one has enough
    /// to move; where few are, the search for them takes longer than the move.
    pub fn judge(&mut self, level: Level) -> Level {
        let Self { looked, cold } = *self;
        if looked < Self::ENOUGH {
            return level;
        }
        *self = Self::default();
        match cold * 16 / looked {
            0 => level.raise(),
            9.. => level.lower(),
            _ => level,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_moves_while_a_tenth_is_free_and_then_until_more_is() {
        let policy = Policy::default();
        let memory = |free_bytes| Memory { region_bytes: 1000, free_bytes, ..Memory::default() };
        assert_eq!(policy.bytes_to_move(memory(100)), 0);
        assert_eq!(policy.bytes_to_move(memory(99)), 31);
        assert_eq!(policy.bytes_to_move(memory(0)), 130);
        assert_eq!(policy.spans_to_free(memory(500)), 50);
        assert_eq!(policy.spans_to_free(Memory { span_bytes: 50, ..memory(500) }), 0);
        for (reserve_bytes, wanted) in [(35, 50), (36, 51), (85, 100), (125, 100)] {
            let memory = Memory { reserve_bytes, ..memory(500) };
            assert_eq!(policy.spans_to_free(memory), wanted, "a reserve of {reserve_bytes}");
        }
    }

    #[test]
    fn the_level_follows_the_share_of_cold_values() {
        let judge = |looked, cold| Sample { looked, cold }.judge(Level(3));
        assert_eq!(judge(4095, 4095), Level(3), "too few were looked at");
        assert_eq!(judge(4096, 255), Level(7));
        assert_eq!(judge(4096, 256), Level(3));
        assert_eq!(judge(4096, 2303), Level(3));
        assert_eq!(judge(4096, 2304), Level(1));
    }

    #[test]
    fn a_value_comes_back_only_if_it_is_hotter_than_what_leaves_next() {
        let levels = [0, 1, 3, 7, 15, 31, 63, 127, 255, 255];
        let mut level = Level::default();
        for max in levels {
            assert_eq!(level, Level(max));
            assert!(level.moves(max) && (max == 255 || !level.moves(max + 1)));
            assert!(max == 255 || !level.moves(level.uses_to_return()));
            level = level.raise();
        }
        assert_eq!(Level::default().uses_to_return(), 2, "the read that finds it counts one");
        assert_eq!(Level(7).lower(), Level(3));
    }
}
