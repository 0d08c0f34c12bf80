//! LCS: the longest common subsequence of two strings, chosen and shown as in Redis.

use perdura_store::{Key, Tx};

use super::call::{Call, Outcome};
use super::error::CommandError;
use super::options::is;

/// Most cells of the table of lengths, which are four bytes each: enough for two strings of 8 KiB.
/// Every client waits while the table is filled.
const CELLS_MAX: u64 = 1 << 26;

#[derive(Default)]
struct Options {
    len: bool,
    ranges: bool,
    with_len: bool,
    len_min: i64,
}

impl Options {
    fn parse(call: &Call<'_, '_>) -> Result<Self, CommandError> {
        let (mut options, mut at) = (Self::default(), 3);
        while at < call.args.len() {
            let arg = call.args.get(at);
            if is(arg, "IDX") {
                options.ranges = true;
            } else if is(arg, "LEN") {
                options.len = true;
            } else if is(arg, "WITHMATCHLEN") {
                options.with_len = true;
            } else if is(arg, "MINMATCHLEN") && at + 1 < call.args.len() {
                at += 1;
                options.len_min = call.int(at)?;
            } else {
                return Err(CommandError::Syntax);
            }
            at += 1;
        }
        if options.len && options.ranges {
            return Err(CommandError::LcsBoth);
        }
        Ok(options)
    }
}

/// LCS key1 key2 [LEN] [IDX] [MINMATCHLEN length] [WITHMATCHLEN]
pub(super) fn lcs(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let (a, b) = (value(tx, call.key(1))?, value(tx, call.key(2))?);
    let options = Options::parse(call)?;
    let cells = (a.len() as u64 + 1).saturating_mul(b.len() as u64 + 1);
    if cells > CELLS_MAX {
        return Err(CommandError::LcsTooLong);
    }
    let table = Table::new(a, b);
    if options.len {
        call.reply.int(i64::from(table.at(a.len(), b.len())));
        return Ok(());
    }
    let (common, mut ranges) = table.walk(a, b);
    if !options.ranges {
        call.reply.bulk(&common);
        return Ok(());
    }
    ranges.retain(|range| range.len as i64 >= options.len_min);
    call.reply.map(2);
    call.reply.bulk(b"matches");
    call.reply.array(ranges.len());
    for Range { a, b, len } in ranges {
        call.reply.array(2 + usize::from(options.with_len));
        for start in [a, b] {
            call.reply.array(2);
            call.reply.len(start as u64);
            call.reply.len((start + len - 1) as u64);
        }
        if options.with_len {
            call.reply.len(len as u64);
        }
    }
    call.reply.bulk(b"len");
    call.reply.len(common.len() as u64);
    Ok(())
}

fn value<'t>(tx: &'t Tx<'_>, key: Key<'_>) -> Result<&'t [u8], CommandError> {
    match tx.get(key) {
        None => Ok(&[]),
        Some(entry) => entry.string().ok_or(CommandError::LcsNotStrings),
    }
}

/// A run of bytes that both strings have, by its starts.
#[derive(Debug, PartialEq, Eq)]
struct Range {
    a: usize,
    b: usize,
    len: usize,
}

/// Lengths of the longest common subsequence of every two prefixes.
struct Table {
    cells: Vec<u32>,
    width: usize,
}

impl Table {
    fn new(a: &[u8], b: &[u8]) -> Self {
        let width = b.len() + 1;
        let mut cells = vec![0; (a.len() + 1) * width];
        for (i, x) in a.iter().enumerate() {
            for (j, y) in b.iter().enumerate() {
                let at = (i + 1) * width + j + 1;
                cells[at] = if x == y {
                    cells[at - width - 1] + 1
                } else {
                    cells[at - 1].max(cells[at - width])
                };
            }
        }
        Self { cells, width }
    }

    fn at(&self, i: usize, j: usize) -> u32 {
        self.cells[i * self.width + j]
    }

    /// Walks from the ends of the strings to their beginnings, and returns the subsequence and its
    /// runs, the last run first.
    fn walk(&self, a: &[u8], b: &[u8]) -> (Vec<u8>, Vec<Range>) {
        let (mut i, mut j) = (a.len(), b.len());
        let (mut common, mut ranges) = (Vec::new(), Vec::<Range>::new());
        while i > 0 && j > 0 {
            if a[i - 1] == b[j - 1] {
                (i, j) = (i - 1, j - 1);
                common.push(a[i]);
                match ranges.last_mut() {
                    Some(range) if range.a == i + 1 && range.b == j + 1 => {
                        (range.a, range.b, range.len) = (i, j, range.len + 1);
                    }
                    _ => ranges.push(Range { a: i, b: j, len: 1 }),
                }
            } else if self.at(i - 1, j) > self.at(i, j - 1) {
                i -= 1;
            } else {
                j -= 1;
            }
        }
        common.reverse();
        (common, ranges)
    }
}
