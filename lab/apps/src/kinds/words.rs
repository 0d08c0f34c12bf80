//! Word count by map and reduce: the input is read in one call, threads map parts of it to counts
//! by word, and counts are reduced by ranges of hashes.

use std::collections::HashMap;
use std::thread;

use perdura_media::Bytes;
use rand::Rng;
use xxhash_rust::xxh3::Xxh3Builder;

use crate::access::Access;
use crate::error::{AppError, Result};
use crate::kinds::{App, Named, Size, random};
use crate::scratch::Scratch;

const NAME: &str = "words";
const THREADS: usize = 2;
const VOCABULARY: usize = 50_000;

/// The application.
#[derive(Debug)]
pub struct Words {
    text_bytes: usize,
    seed: u64,
}

impl Words {
    /// The length of the text follows the size.
    pub fn new(size: Size, seed: u64) -> Self {
        let text_bytes = match size {
            Size::Small => 256 << 10,
            Size::Medium => 32 << 20,
            Size::Paper => 64 << 20,
        };
        Self { text_bytes, seed }
    }

    /// Draws words of 2 to 12 letters whose frequency is about Zipf's law, by the cube of a uniform
    /// number.
    fn text(&self) -> Vec<u8> {
        let mut random = random(self.seed, NAME, 0);
        let vocabulary: Vec<Vec<u8>> = (0..VOCABULARY)
            .map(|_| {
                let letters = random.random_range(2..=12);
                (0..letters).map(|_| random.random_range(b'a'..=b'z')).collect()
            })
            .collect();
        let mut text = Vec::with_capacity(self.text_bytes + 16);
        while text.len() < self.text_bytes {
            let rank = random.random::<f64>().powi(3) * VOCABULARY as f64;
            text.extend_from_slice(&vocabulary[rank as usize]);
            text.push(if random.random_range(0..12) == 0 { b'\n' } else { b' ' });
        }
        text.truncate(self.text_bytes);
        text
    }
}

impl App for Words {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> String {
        let text_bytes = Bytes(self.text_bytes as u64);
        format!("map-reduce word count of {text_bytes} of text, {THREADS} threads")
    }

    fn inputs(&self) -> Result<Vec<Named>> {
        Ok(vec![("in-text".into(), self.text())])
    }

    fn run(&self, access: &dyn Access) -> Result<()> {
        let mut input = access.get("in-text")?;
        let text = input.whole(usize::MAX)?;
        let scratch = access.scratch();
        let mapped = side_by_side(&scratch, split(text), map)?;
        let ranges: Vec<Vec<&Counts<'_>>> =
            (0..THREADS).map(|range| mapped.iter().map(|parts| &parts[range]).collect()).collect();
        let mut reduced: Vec<(&[u8], u64)> =
            side_by_side(&scratch, ranges, |parts| reduce(&parts))?.concat();
        reduced.sort_unstable();
        let mut output = access.put("out-counts", reduced.len() * 16)?;
        let mut line = Vec::new();
        for (word, count) in reduced {
            line.clear();
            line.extend_from_slice(word);
            line.push(b' ');
            line.extend_from_slice(count.to_string().as_bytes());
            line.push(b'\n');
            output.write(&line)?;
        }
        output.finish()
    }
}

type Counts<'a> = HashMap<&'a [u8], u64, Xxh3Builder>;

/// Parts of about the same length, cut between words.
fn split(text: &[u8]) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    let mut rest = text;
    for left in (1..=THREADS).rev() {
        let about = rest.len() / left;
        let word = rest[about..].iter().position(u8::is_ascii_whitespace);
        let (piece, after) = rest.split_at(about + word.unwrap_or(rest.len() - about));
        pieces.push(piece);
        rest = after;
    }
    pieces
}

/// Counts the words of a part, by ranges of their hashes.
fn map(piece: &[u8]) -> Vec<Counts<'_>> {
    let mut ranges: Vec<Counts<'_>> = (0..THREADS).map(|_| HashMap::default()).collect();
    for word in piece.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()) {
        // Another seed than the maps', so that the words of a range spread over the whole map.
        let range = xxhash_rust::xxh3::xxh3_64_with_seed(word, 1) as usize % THREADS;
        *ranges[range].entry(word).or_default() += 1;
    }
    ranges
}

fn reduce<'a>(parts: &[&Counts<'a>]) -> Vec<(&'a [u8], u64)> {
    let mut all = Counts::default();
    for (word, count) in parts.iter().copied().flatten() {
        *all.entry(word).or_default() += count;
    }
    all.into_iter().collect()
}

/// Calls `call` for each item in a thread of its own, whose allocations go where the application's
/// do.
fn side_by_side<T: Send, R: Send>(
    scratch: &Scratch,
    items: Vec<T>,
    call: impl Fn(T) -> R + Sync,
) -> Result<Vec<R>> {
    thread::scope(|scope| {
        let call = &call;
        let start = |item| {
            scope.spawn(move || {
                let _entered = scratch.enter();
                call(item)
            })
        };
        let started: Vec<_> = items.into_iter().map(start).collect();
        let end = |thread: thread::ScopedJoinHandle<'_, R>| {
            thread.join().map_err(|_| AppError::malformed(NAME, "a thread panicked"))
        };
        started.into_iter().map(end).collect()
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fmt::Write as _;

    use super::*;
    use crate::kinds::tests::{result, run_in_memory};

    #[test]
    fn counts_are_those_of_one_pass() {
        let app = Words::new(Size::Small, 9);
        let access = run_in_memory(&app);
        let text = String::from_utf8(app.text()).unwrap();
        let mut oracle = BTreeMap::new();
        for word in text.split_whitespace() {
            *oracle.entry(word).or_insert(0) += 1;
        }
        let expected = oracle.iter().fold(String::new(), |mut all, (word, count)| {
            writeln!(all, "{word} {count}").unwrap();
            all
        });
        assert!(oracle.len() > 5_000);
        assert!(result(&access, "out-counts") == expected.as_bytes(), "seed 9");
    }

    #[test]
    fn no_word_is_cut_where_a_text_is_split() {
        for text in ["", "a", "one", "one two", " a  b ", "aa bb cc dd ee", "abcdefghij k"] {
            let pieces = split(text.as_bytes());
            assert_eq!(pieces.concat(), text.as_bytes());
            let words: Vec<String> = pieces
                .iter()
                .flat_map(|piece| {
                    str::from_utf8(piece).unwrap().split_whitespace().map(str::to_owned)
                })
                .collect();
            assert_eq!(words, text.split_whitespace().collect::<Vec<_>>(), "{text:?}");
        }
    }
}
