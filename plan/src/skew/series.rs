//! The numbers that a part keeps so that it can be merged exactly: sums over pages, for every
//! instant with writes and for every tumbling window.
//!
//! An instant has its page writes. For each sliding window it also has the number of pages that
//! *enter* the window at it (the first write, or the first for as long as the window) and the
//! number that *leave* after it (no later write for as long as the window). Pages do not depend on
//! each other, so the numbers of two sets of pages can be added, instant by instant, however a
//! volume was split. The pages in the window that ends at t are those that entered up to t, less
//! those that left up to t. The encoding is canonical: the same numbers are the same bytes.

use std::collections::BTreeMap;

use super::varint::{Numbers, Wrong, put};

/// The sums of one set of pages, by instant and by window of the clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// The number of instants.
    pub instants: u64,
    /// The time from each instant to the next, the first since the start of the trace.
    pub times: Vec<u8>,
    /// The page writes of each instant.
    pub written: Vec<u8>,
    /// For each sliding window, the pages that are new in it at each instant.
    pub enters: Vec<Vec<u8>>,
    /// For each sliding window, the pages that leave it from each instant.
    pub leaves: Vec<Vec<u8>>,
    /// Per tumbling window, of each with writes: its number from one to the next, unique pages,
    /// page writes.
    pub tumbling: Vec<Vec<u8>>,
    last_ns: u64,
    last_window: Vec<u64>,
}

/// The sums of an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sums {
    pub time_ns: u64,
    pub written: u64,
    pub enters: Vec<u64>,
    pub leaves: Vec<u64>,
}

/// The sums of a window of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tumbled {
    pub number: u64,
    pub unique: u64,
    pub written: u64,
}

impl Series {
    pub fn new(windows: usize) -> Self {
        let empty = vec![Vec::new(); windows];
        Self {
            enters: empty.clone(),
            leaves: empty.clone(),
            tumbling: empty,
            last_window: vec![0; windows],
            ..Self::default()
        }
    }

    pub fn push_instant(&mut self, time_ns: u64, written: u64, enters: &[u64]) {
        self.instants += 1;
        put(&mut self.times, time_ns - self.last_ns);
        self.last_ns = time_ns;
        put(&mut self.written, written);
        self.enters.iter_mut().zip(enters).for_each(|(into, value)| put(into, *value));
    }

    /// Appends an instant with all its sums.
    fn push(&mut self, sums: &Sums) {
        self.push_instant(sums.time_ns, sums.written, &sums.enters);
        for (window, leaves) in sums.leaves.iter().enumerate() {
            self.push_leaves(window, *leaves);
        }
    }

    /// Appends what leaves `window`, for each instant in order.
    pub fn push_leaves(&mut self, window: usize, leaves: u64) {
        put(&mut self.leaves[window], leaves);
    }

    pub fn push_tumbled(&mut self, window: usize, tumbled: Tumbled) {
        let last = std::mem::replace(&mut self.last_window[window], tumbled.number);
        for value in [tumbled.number - last, tumbled.unique, tumbled.written] {
            put(&mut self.tumbling[window], value);
        }
    }

    /// Takes the streams of stored parts; nothing in them is believed before [`Cursor`] and
    /// [`TumblingCursor`] read it.
    pub fn from_streams(instants: u64, streams: [Vec<u8>; 2], rest: [Vec<Vec<u8>>; 3]) -> Self {
        let [times, written] = streams;
        let [enters, leaves, tumbling] = rest;
        let last_window = vec![0; tumbling.len()];
        Self { instants, times, written, enters, leaves, tumbling, last_ns: 0, last_window }
    }

    /// Nothing more will be pushed. What was only needed for that is forgotten, so that equal
    /// series are equal.
    pub fn seal(mut self) -> Self {
        self.last_ns = 0;
        self.last_window.fill(0);
        self
    }

    pub fn cursor(&self) -> Cursor<'_> {
        Cursor {
            left: self.instants,
            time_ns: 0,
            times: Numbers::new(&self.times),
            written: Numbers::new(&self.written),
            enters: self.enters.iter().map(|bytes| Numbers::new(bytes)).collect(),
            leaves: self.leaves.iter().map(|bytes| Numbers::new(bytes)).collect(),
            first: true,
        }
    }

    pub fn tumbling_cursor(&self, window: usize) -> TumblingCursor<'_> {
        TumblingCursor { numbers: Numbers::new(&self.tumbling[window]), number: 0, first: true }
    }

    /// The times of instants with what leaves one window at each, from a mark on.
    pub fn leaves_of(&self, window: usize, from: Mark) -> LeavesCursor<'_> {
        LeavesCursor {
            all: self.instants,
            done: from.done,
            time_ns: from.time_ns,
            times: Numbers::from(&self.times, from.at[0]),
            written: Numbers::from(&self.written, from.at[1]),
            leaves: Numbers::from(&self.leaves[window], from.at[2]),
        }
    }

    /// Cuts it at these times: what lies from one to before the next, with the number of the piece.
    pub fn cut(&self, bounds_ns: &[u64], windows_ns: &[u64]) -> Result<Vec<(u64, Series)>, Wrong> {
        let piece_of = |time_ns: u64| bounds_ns.partition_point(|bound| *bound <= time_ns) as u64;
        let mut pieces = BTreeMap::new();
        let (mut cursor, mut sums) = (self.cursor(), Sums::new(windows_ns.len()));
        while cursor.next(&mut sums)? {
            let piece = pieces.entry(piece_of(sums.time_ns));
            piece.or_insert_with(|| Series::new(windows_ns.len())).push(&sums);
        }
        for (window, length_ns) in windows_ns.iter().enumerate() {
            let mut cursor = self.tumbling_cursor(window);
            while let Some(tumbled) = cursor.next()? {
                // Whole, where it begins: the same window of other pages goes the same way.
                let piece = pieces.entry(piece_of(tumbled.number.saturating_mul(*length_ns)));
                let piece = piece.or_insert_with(|| Series::new(windows_ns.len()));
                piece.push_tumbled(window, tumbled);
            }
        }
        Ok(pieces.into_iter().map(|(number, piece)| (number, piece.seal())).collect())
    }

    /// Merges the series of disjoint sets of pages.
    pub fn merge(windows: usize, all: &[&Series]) -> Result<Series, Wrong> {
        let mut merged = Series::new(windows);
        merge_instants(all, &mut merged)?;
        for window in 0..windows {
            merge_tumbling(window, all, &mut merged)?;
        }
        Ok(merged.seal())
    }
}

/// Reads instants in order.
pub struct Cursor<'a> {
    left: u64,
    time_ns: u64,
    first: bool,
    times: Numbers<'a>,
    written: Numbers<'a>,
    enters: Vec<Numbers<'a>>,
    leaves: Vec<Numbers<'a>>,
}

impl Cursor<'_> {
    /// The next instant, into `sums`; false after the last, when all streams must have ended.
    pub fn next(&mut self, sums: &mut Sums) -> Result<bool, Wrong> {
        if self.left == 0 {
            let mut all =
                [&self.times, &self.written].into_iter().chain(&self.enters).chain(&self.leaves);
            return match all.find(|numbers| !numbers.is_empty()) {
                Some(numbers) => Err(numbers.wrong("a stream is longer than its instants")),
                None => Ok(false),
            };
        }
        self.left -= 1;
        let step = self.times.take()?;
        let time_ns = self.time_ns.checked_add(step);
        let rises = self.first || step > 0;
        let Some(time_ns) = time_ns.filter(|_| rises) else {
            return Err(self.times.wrong("instants do not rise"));
        };
        (self.first, self.time_ns) = (false, time_ns);
        (sums.time_ns, sums.written) = (time_ns, self.written.take()?);
        if sums.written == 0 {
            return Err(self.written.wrong("an instant without writes"));
        }
        for (into, numbers) in sums.enters.iter_mut().zip(&mut self.enters) {
            *into = numbers.take()?;
        }
        for (into, numbers) in sums.leaves.iter_mut().zip(&mut self.leaves) {
            *into = numbers.take()?;
        }
        Ok(true)
    }
}

impl Sums {
    pub fn new(windows: usize) -> Self {
        Self { time_ns: 0, written: 0, enters: vec![0; windows], leaves: vec![0; windows] }
    }

    fn add(&mut self, other: &Sums) -> Option<()> {
        self.written = self.written.checked_add(other.written)?;
        let numbers = self.enters.iter_mut().chain(&mut self.leaves);
        for (into, value) in numbers.zip(other.enters.iter().chain(&other.leaves)) {
            *into = into.checked_add(*value)?;
        }
        Some(())
    }
}

/// Where a reader of what leaves a window stands: in front of all, or where it was.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mark {
    done: u64,
    time_ns: u64,
    at: [usize; 3],
}

/// Reads what leaves one window.
pub struct LeavesCursor<'a> {
    all: u64,
    done: u64,
    time_ns: u64,
    times: Numbers<'a>,
    written: Numbers<'a>,
    leaves: Numbers<'a>,
}

/// An instant, as one window's left edge meets it.
#[derive(Clone, Copy, Debug)]
pub struct Old {
    pub time_ns: u64,
    pub written: u64,
    pub leaves: u64,
}

impl LeavesCursor<'_> {
    pub fn mark(&self) -> Mark {
        let at = [self.times.at(), self.written.at(), self.leaves.at()];
        Mark { done: self.done, time_ns: self.time_ns, at }
    }

    pub fn next(&mut self) -> Result<Option<Old>, Wrong> {
        if self.done == self.all {
            return Ok(None);
        }
        self.done += 1;
        let step = self.times.take()?;
        let Some(time_ns) = self.time_ns.checked_add(step) else {
            return Err(self.times.wrong("instants beyond all time"));
        };
        self.time_ns = time_ns;
        Ok(Some(Old { time_ns, written: self.written.take()?, leaves: self.leaves.take()? }))
    }
}

/// Reads windows of the clock in order.
pub struct TumblingCursor<'a> {
    numbers: Numbers<'a>,
    number: u64,
    first: bool,
}

impl TumblingCursor<'_> {
    pub fn next(&mut self) -> Result<Option<Tumbled>, Wrong> {
        if self.numbers.is_empty() {
            return Ok(None);
        }
        let step = self.numbers.take()?;
        let rises = self.first || step > 0;
        let Some(number) = self.number.checked_add(step).filter(|_| rises) else {
            return Err(self.numbers.wrong("windows do not rise"));
        };
        (self.first, self.number) = (false, number);
        let (unique, written) = (self.numbers.take()?, self.numbers.take()?);
        if unique > written || written == 0 {
            return Err(self.numbers.wrong("a window with more pages than writes"));
        }
        Ok(Some(Tumbled { number, unique, written }))
    }
}

/// The error of sums that overflow, which cannot have been counted.
pub const OVERFLOW: Wrong = Wrong { what: "sums beyond 2^64", at: 0 };

fn merge_instants(all: &[&Series], merged: &mut Series) -> Result<(), Wrong> {
    let windows = merged.enters.len();
    let mut heads = Vec::new();
    for series in all {
        let (mut cursor, mut sums) = (series.cursor(), Sums::new(windows));
        if cursor.next(&mut sums)? {
            heads.push((cursor, sums));
        }
    }
    let mut order: std::collections::BinaryHeap<_> = heads
        .iter()
        .enumerate()
        .map(|(at, (_, sums))| std::cmp::Reverse((sums.time_ns, at)))
        .collect();
    let mut sum = Sums::new(windows);
    while let Some(std::cmp::Reverse((time_ns, at))) = order.pop() {
        sum.clone_from(&heads[at].1);
        advance(&mut heads[at], at, &mut order)?;
        while let Some(std::cmp::Reverse((also_ns, at))) = order.peek().copied()
            && also_ns == time_ns
        {
            order.pop();
            sum.add(&heads[at].1).ok_or(OVERFLOW)?;
            advance(&mut heads[at], at, &mut order)?;
        }
        merged.push(&sum);
    }
    Ok(())
}

type Order = std::collections::BinaryHeap<std::cmp::Reverse<(u64, usize)>>;

fn advance(head: &mut (Cursor<'_>, Sums), at: usize, order: &mut Order) -> Result<(), Wrong> {
    let (cursor, sums) = head;
    if cursor.next(sums)? {
        order.push(std::cmp::Reverse((sums.time_ns, at)));
    }
    Ok(())
}

fn merge_tumbling(window: usize, all: &[&Series], merged: &mut Series) -> Result<(), Wrong> {
    let mut cursors: Vec<_> = all.iter().map(|series| series.tumbling_cursor(window)).collect();
    let mut heads = Vec::new();
    let mut order = Order::new();
    for (at, cursor) in cursors.iter_mut().enumerate() {
        let head = cursor.next()?;
        order.extend(head.map(|head| std::cmp::Reverse((head.number, at))));
        heads.push(head);
    }
    let mut sum: Option<Tumbled> = None;
    while let Some(std::cmp::Reverse((number, at))) = order.pop() {
        let Some(head) = heads[at] else { continue };
        heads[at] = cursors[at].next()?;
        order.extend(heads[at].map(|head| std::cmp::Reverse((head.number, at))));
        match &mut sum {
            Some(sum) if sum.number == number => {
                sum.unique = sum.unique.checked_add(head.unique).ok_or(OVERFLOW)?;
                sum.written = sum.written.checked_add(head.written).ok_or(OVERFLOW)?;
            }
            _ => {
                let done = sum.replace(head);
                done.into_iter().for_each(|done| merged.push_tumbled(window, done));
            }
        }
    }
    sum.into_iter().for_each(|done| merged.push_tumbled(window, done));
    Ok(())
}
