//! A part as bytes, for another process or machine: magic, version, numbers as varints, streams
//! with their lengths, and a checksum (XXH3) over all bytes before it. A reader trusts nothing:
//! lengths are checked before anything is allocated, and sums that must agree are compared.

use xxhash_rust::xxh3::xxh3_64;

use super::sweep::worst_of;
use super::{Body, Part};
use crate::skew::SkewError;
use crate::skew::options::WINDOWS_MAX;
use crate::skew::series::{OVERFLOW, Series, Sums};
use crate::skew::tally::{Most, Worst};
use crate::skew::varint::{Numbers, Wrong, put};

/// The first eight bytes; the last of them is the version.
const MAGIC: &[u8; 8] = b"PPLNPRT\x01";
/// The bytes of the checksum at the end.
const SUM_BYTES: usize = 8;
const MAXIMA: u64 = 0;
const SERIES: u64 = 1;
const CUT: u64 = 2;
const SLICE: u64 = 3;

impl Part {
    /// The part as bytes; an approximate one cannot be merged, so nobody needs its bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>, SkewError> {
        if self.sampled.is_some() {
            return Err(SkewError::NotMergeable);
        }
        let mut bytes = MAGIC.to_vec();
        let into = &mut bytes;
        put(into, self.windows_ns.len() as u64);
        self.windows_ns.iter().for_each(|window| put(into, *window));
        let (first, last) = self.span_ns.unwrap_or((self.start_ns, self.start_ns));
        let numbers = [
            self.start_ns,
            self.records,
            self.write_records,
            u64::from(self.span_ns.is_some()),
            first - self.start_ns,
            last - first,
            self.touched_pages,
            self.page_writes,
        ];
        numbers.iter().for_each(|number| put(into, *number));
        put(into, self.histogram.len() as u64);
        let mut before = 0;
        for (count, pages) in &self.histogram {
            put(into, count - before);
            put(into, *pages);
            before = *count;
        }
        match &self.body {
            Body::Maxima(worst) => {
                put(into, MAXIMA);
                for most in worst.iter().flat_map(|worst| [worst.tumbling, worst.sliding]) {
                    put(into, most.adversarial);
                    put(into, most.unique);
                }
            }
            Body::Series(series) => put_series(into, SERIES, series),
            Body::Cut => put(into, CUT),
            Body::Slice(series) => put_series(into, SLICE, series),
        }
        let sum = xxh3_64(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        Ok(bytes)
    }

    /// Reads a part from its bytes, or gives the place at which they are wrong.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SkewError> {
        let damaged = |wrong: Wrong, before: usize| SkewError::Damaged {
            what: wrong.what,
            at: (before + wrong.at) as u64,
            len_bytes: bytes.len() as u64,
        };
        let whole = |what| damaged(Wrong { what, at: 0 }, 0);
        let Some((inner, sum)) = bytes.split_last_chunk::<SUM_BYTES>() else {
            return Err(whole("it is shorter than a checksum"));
        };
        let Some(content) = inner.strip_prefix(MAGIC) else {
            return Err(whole("it does not begin as a part of this version"));
        };
        if xxh3_64(inner) != u64::from_le_bytes(*sum) {
            return Err(whole("the checksum differs"));
        }
        let part = read(content).map_err(|wrong| damaged(wrong, MAGIC.len()))?;
        part.check().map_err(|wrong| damaged(wrong, MAGIC.len()))?;
        Ok(part)
    }

    /// Checks sums that must agree.
    fn check(&self) -> Result<(), Wrong> {
        let wrong = |what| Wrong { what, at: 0 };
        let (mut writes, mut written) = (0u64, 0u64);
        for (count, pages) in &self.histogram {
            let both = count.checked_mul(*pages).and_then(|more| writes.checked_add(more));
            let both = both.zip(written.checked_add(*pages));
            (writes, written) = both.ok_or(wrong("the histogram counts beyond 2^64"))?;
        }
        if writes != self.page_writes || written > self.touched_pages {
            return Err(wrong("the histogram does not agree with the totals"));
        }
        if self.write_records > self.records {
            return Err(wrong("more records write than there are"));
        }
        match &self.body {
            Body::Maxima(worst) => {
                let mut all = worst.iter().flat_map(|worst| [worst.tumbling, worst.sliding]);
                let fits = |most: &Most| {
                    most.unique <= most.adversarial && most.adversarial <= self.page_writes
                };
                if all.all(|most| fits(&most)) {
                    Ok(())
                } else {
                    Err(wrong("a window has more than all"))
                }
            }
            Body::Series(series) => {
                let worst = worst_of(series, &self.windows_ns)?;
                let total = written_in(series, self.windows_ns.len())?;
                let fits = worst.iter().all(|worst| worst.sliding.unique <= written);
                if total == Some(self.page_writes) && fits {
                    Ok(())
                } else {
                    Err(wrong("the instants do not agree with the totals"))
                }
            }
            Body::Cut => Ok(()),
            Body::Slice(series) => {
                let windows = self.windows_ns.len();
                written_in(series, windows)?.ok_or(OVERFLOW)?;
                for window in 0..windows {
                    let mut tumbled = series.tumbling_cursor(window);
                    while tumbled.next()?.is_some() {}
                }
                let counts = [self.records, self.touched_pages, self.page_writes];
                match counts == [0; 3] && self.span_ns.is_none() {
                    true => Ok(()),
                    false => Err(wrong("a slice with totals")),
                }
            }
        }
    }
}

/// The page writes of all instants, each of which is read; none beyond 2^64.
fn written_in(series: &Series, windows: usize) -> Result<Option<u64>, Wrong> {
    let (mut cursor, mut sums, mut total) = (series.cursor(), Sums::new(windows), Some(0u64));
    while cursor.next(&mut sums)? {
        total = total.and_then(|total| total.checked_add(sums.written));
    }
    Ok(total)
}

fn put_series(into: &mut Vec<u8>, kind: u64, series: &Series) {
    put(into, kind);
    put(into, series.instants);
    let one = [&series.times, &series.written].into_iter();
    for stream in one.chain(&series.enters).chain(&series.leaves).chain(&series.tumbling) {
        put(into, stream.len() as u64);
        into.extend_from_slice(stream);
    }
}

fn read(content: &[u8]) -> Result<Part, Wrong> {
    let mut numbers = Numbers::new(content);
    let count = numbers.take()?;
    if !(1..=WINDOWS_MAX as u64).contains(&count) {
        return Err(numbers.wrong("a number of windows that cannot be"));
    }
    let mut windows_ns = Vec::new();
    for _ in 0..count {
        let window_ns = numbers.take()?;
        if window_ns <= windows_ns.last().copied().unwrap_or(0) {
            return Err(numbers.wrong("windows do not rise"));
        }
        windows_ns.push(window_ns);
    }
    let mut fixed = [0; 8];
    for number in &mut fixed {
        *number = numbers.take()?;
    }
    let [start_ns, records, write_records, has_span, first, last, touched_pages, page_writes] =
        fixed;
    let first = start_ns.checked_add(first);
    let span = first.and_then(|first| Some((first, first.checked_add(last)?)));
    let span = span.ok_or(numbers.wrong("a time beyond 2^64"))?;
    if has_span > 1 || (has_span == 0 && span != (start_ns, start_ns)) {
        return Err(numbers.wrong("neither with nor without a first record"));
    }
    let span_ns = (has_span == 1).then_some(span);
    let histogram = read_histogram(&mut numbers)?;
    let body = match numbers.take()? {
        MAXIMA => Body::Maxima(read_maxima(&mut numbers, windows_ns.len())?),
        SERIES => Body::Series(read_series(&mut numbers, windows_ns.len())?),
        CUT => Body::Cut,
        SLICE => Body::Slice(read_series(&mut numbers, windows_ns.len())?),
        _ => return Err(numbers.wrong("an unknown kind of part")),
    };
    if !numbers.is_empty() {
        return Err(numbers.wrong("something follows the end"));
    }
    let sampled = None;
    Ok(Part {
        start_ns,
        windows_ns,
        records,
        write_records,
        span_ns,
        touched_pages,
        page_writes,
        histogram,
        body,
        sampled,
    })
}

fn read_histogram(numbers: &mut Numbers<'_>) -> Result<Vec<(u64, u64)>, Wrong> {
    let (mut histogram, mut before) = (Vec::new(), 0u64);
    // Not reserved by what is said: it grows by what is there.
    for _ in 0..numbers.take()? {
        let (step, pages) = (numbers.take()?, numbers.take()?);
        let count = before.checked_add(step).filter(|_| step > 0 && pages > 0);
        before = count.ok_or(numbers.wrong("the histogram does not rise"))?;
        histogram.push((before, pages));
    }
    Ok(histogram)
}

fn read_maxima(numbers: &mut Numbers<'_>, windows: usize) -> Result<Vec<Worst>, Wrong> {
    let mut most = || Ok(Most { adversarial: numbers.take()?, unique: numbers.take()? });
    (0..windows).map(|_| Ok(Worst { tumbling: most()?, sliding: most()? })).collect()
}

fn read_series(numbers: &mut Numbers<'_>, windows: usize) -> Result<Series, Wrong> {
    let instants = numbers.take()?;
    let mut stream = || Ok(numbers.take_bytes()?.to_vec());
    let one = [stream()?, stream()?];
    let mut per_window = || (0..windows).map(|_| stream()).collect::<Result<Vec<_>, Wrong>>();
    let rest = [per_window()?, per_window()?, per_window()?];
    Ok(Series::from_streams(instants, one, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skew::{Analyzer, Options};
    use crate::trace::{Op, Record};

    fn part() -> Part {
        let mut options = Options::default();
        options.mergeable = true;
        let mut analyzer = Analyzer::new(&options, 0).unwrap();
        for (time_ns, page) in [(0, 1), (5, 2), (9, 1)] {
            let (op, offset_bytes) = (Op::Write, page * 4096);
            let record = Record { time_ns, offset_bytes, len_bytes: 1, volume: 0, op };
            analyzer.add(&[record]).unwrap();
        }
        analyzer.finish().unwrap().all().unwrap()
    }

    fn refused(part: &Part) -> String {
        Part::from_bytes(&part.to_bytes().unwrap()).unwrap_err().to_string()
    }

    #[test]
    fn totals_that_are_not_those_of_the_instants_are_refused() {
        let part = part();
        assert_eq!(Part::from_bytes(&part.to_bytes().unwrap()).unwrap(), part);
        assert_eq!(part.histogram, [(1, 1), (2, 1)]);
        // One page more, written once: histogram and totals agree, only the instants know better.
        let more = Part {
            page_writes: 4,
            touched_pages: 3,
            histogram: vec![(1, 2), (2, 1)],
            ..part.clone()
        };
        assert!(refused(&more).contains("the instants do not agree"));
        let less = Part { page_writes: 2, histogram: vec![(1, 2)], ..part.clone() };
        assert!(refused(&less).contains("the instants do not agree"));
        let alone = Part { page_writes: 4, ..part };
        assert!(refused(&alone).contains("the histogram does not agree"));
    }

    #[test]
    fn parts_that_come_to_more_than_can_be_counted_are_not_merged() {
        let (cut, _) = part().cut(&[]).unwrap();
        let half = 1 << 63;
        let histogram = vec![(1, half)];
        for forged in [
            Part { records: half, ..cut.clone() },
            Part { records: half, write_records: half, ..cut.clone() },
            Part { touched_pages: half, ..cut.clone() },
            Part { touched_pages: half, page_writes: half, histogram, ..cut.clone() },
        ] {
            let forged = Part::from_bytes(&forged.to_bytes().unwrap()).unwrap();
            assert_eq!(Part::merge([&forged]).unwrap(), forged);
            let refused = Part::merge([&forged, &forged]).unwrap_err();
            assert!(refused.to_string().contains("sums beyond 2^64"), "{refused}");
        }
    }
}
