//! A naive Bayesian classifier of mails: half of them, whose kind is known, make a model, which
//! then judges the rest.
//!
//! Words are counted by kind in DRAM (scratch) and stored as a sorted table of fixed entries, which
//! is searched in place.

use std::collections::BTreeMap;

use rand::Rng;
use xxhash_rust::xxh3::xxh3_64;

use crate::access::Access;
use crate::error::{AppError, Result};
use crate::kinds::{App, Named, Random, Size, random};

const NAME: &str = "mails";
const MAIL_BYTES: usize = 8 << 10;
const CALL_BYTES: usize = 4096;
const VOCABULARY: usize = 20_000;
const KINDS: usize = 2;
const MODEL: &str = "out-model";
/// Bytes of the head: mails and words of each kind, and the number of different words.
const HEAD_BYTES: usize = 8 * (2 * KINDS + 1);
/// Bytes of an entry: a word's hash and its counts.
const ENTRY_BYTES: usize = 8 + 4 * KINDS;

/// The application.
#[derive(Debug)]
pub struct Mails {
    mails: usize,
    seed: u64,
}

impl Mails {
    /// The number of mails follows the size.
    pub fn new(size: Size, seed: u64) -> Self {
        let mails = match size {
            Size::Small => 60,
            Size::Medium => 400,
            // As many mails as make the paper's 500 MB.
            Size::Paper => 61_000,
        };
        Self { mails, seed }
    }

    /// Draws a mail. Both kinds share a vocabulary, but one word in eight is from the kind's own
    /// part of it.
    fn mail(&self, number: usize) -> Vec<u8> {
        let mut random = random(self.seed, NAME, number);
        let kind = kind_of(number);
        let mut text =
            format!("From: a{number}@example.org\nSubject: mail {number}\n\n").into_bytes();
        while text.len() < MAIL_BYTES - 16 {
            let word = if random.random_range(0..8) == 0 {
                VOCABULARY + rank(&mut random, 500) * KINDS + kind
            } else {
                rank(&mut random, VOCABULARY)
            };
            // A hash spells the word: letters only, of varying length.
            let mut spelling = xxh3_64(&word.to_le_bytes());
            for _ in 0..3 + spelling % 7 {
                text.push(b'a' + (spelling % 26) as u8);
                spelling /= 26;
            }
            text.push(b" \n"[usize::from(random.random_range(0..10) == 0)]);
        }
        text
    }
}

fn rank(random: &mut Random, words: usize) -> usize {
    (random.random::<f64>().powi(3) * words as f64) as usize
}

/// The known kind of a mail.
fn kind_of(number: usize) -> usize {
    (xxh3_64(&(number as u64).to_le_bytes()) % KINDS as u64) as usize
}

fn input(number: usize) -> String {
    format!("in-{number:06}.mail")
}

impl App for Mails {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> String {
        format!(
            "naive Bayesian classifier: {} mails of {} KiB, half to learn from, half judged",
            self.mails,
            MAIL_BYTES >> 10
        )
    }

    fn inputs(&self) -> Result<Vec<Named>> {
        Ok((0..self.mails).map(|number| (input(number), self.mail(number))).collect())
    }

    fn run(&self, access: &dyn Access) -> Result<()> {
        let learned = self.mails / 2;
        let mut counts = Counts::default();
        for number in 0..learned {
            let mut mail = access.get(&input(number))?;
            counts.learn(kind_of(number), mail.whole(CALL_BYTES)?);
        }
        counts.put(access)?;
        drop(counts);
        let mut file = access.get(MODEL)?;
        let len_bytes = file.len_bytes();
        let model = Model::read(file.whole(len_bytes)?)?;
        let mut verdicts = access.put("out-verdicts", learned * 16)?;
        for number in learned..self.mails {
            let mut mail = access.get(&input(number))?;
            let kind = model.judge(mail.whole(CALL_BYTES)?);
            verdicts.write(format!("{number} {kind}\n").as_bytes())?;
        }
        verdicts.finish()
    }
}

fn words(text: &[u8]) -> impl Iterator<Item = u64> {
    text.split(|byte| !byte.is_ascii_alphabetic()).filter(|word| !word.is_empty()).map(xxh3_64)
}

/// Counts of mails and words of each kind.
#[derive(Debug, Default)]
struct Counts {
    mails: [u64; KINDS],
    words: [u64; KINDS],
    by_word: BTreeMap<u64, [u32; KINDS]>,
}

impl Counts {
    fn learn(&mut self, kind: usize, text: &[u8]) {
        self.mails[kind] += 1;
        for word in words(text) {
            self.words[kind] += 1;
            self.by_word.entry(word).or_default()[kind] += 1;
        }
    }

    fn put(&self, access: &dyn Access) -> Result<()> {
        let mut output = access.put(MODEL, HEAD_BYTES + self.by_word.len() * ENTRY_BYTES)?;
        let differ = [self.by_word.len() as u64];
        let head = self.mails.iter().chain(&self.words).chain(&differ);
        let head: Vec<u8> = head.flat_map(|word| word.to_le_bytes()).collect();
        output.write(&head)?;
        for (word, counts) in &self.by_word {
            let mut entry = [0; ENTRY_BYTES];
            entry[..8].copy_from_slice(&word.to_le_bytes());
            for (into, count) in entry[8..].chunks_exact_mut(4).zip(counts) {
                into.copy_from_slice(&count.to_le_bytes());
            }
            output.write(&entry)?;
        }
        output.finish()
    }
}

/// The model in place, without a copy.
struct Model<'a> {
    mails: [u64; KINDS],
    words: [u64; KINDS],
    entries: &'a [[u8; ENTRY_BYTES]],
}

impl<'a> Model<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self> {
        let short = || AppError::malformed(MODEL, format!("{} B are too few", bytes.len()));
        let (head, rest) = bytes.split_at_checked(HEAD_BYTES).ok_or_else(short)?;
        let word = |number: usize| le_u64(&head[8 * number..]);
        let (entries, _) = rest.as_chunks();
        if entries.len() as u64 != word(2 * KINDS) {
            return Err(short());
        }
        let [mails, words] = [0, KINDS].map(|from| std::array::from_fn(|kind| word(from + kind)));
        Ok(Self { mails, words, entries })
    }

    fn counts(&self, word: u64) -> [u32; KINDS] {
        match self.entries.binary_search_by_key(&word, |entry| le_u64(entry)) {
            Ok(at) => {
                let counts = self.entries[at][8..].as_chunks().0;
                std::array::from_fn(|kind| u32::from_le_bytes(counts[kind]))
            }
            Err(_) => [0; KINDS],
        }
    }

    /// The likelier kind by the words' independent probabilities, with one added to all counts.
    fn judge(&self, text: &[u8]) -> usize {
        let all_mails: u64 = self.mails.iter().sum();
        let mut likely: [f64; KINDS] =
            self.mails.map(|mails| ((mails + 1) as f64 / (all_mails + KINDS as u64) as f64).ln());
        let below = self.words.map(|words| ((words + self.entries.len() as u64 + 1) as f64).ln());
        for word in words(text) {
            for (kind, count) in self.counts(word).into_iter().enumerate() {
                likely[kind] += f64::from(count + 1).ln() - below[kind];
            }
        }
        usize::from(likely[1] > likely[0])
    }
}

fn le_u64(bytes: &[u8]) -> u64 {
    bytes.first_chunk().copied().map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::kinds::tests::{result, run_in_memory};

    /// The same rule by products of plain fractions, kept as logarithms, over words as strings.
    fn naive_verdict(app: &Mails, number: usize) -> usize {
        let mut seen: [HashMap<Vec<u8>, f64>; KINDS] = Default::default();
        let mut mails = [0.0; KINDS];
        let cut = |mail: Vec<u8>| -> Vec<Vec<u8>> {
            let parts = mail.split(|byte| !byte.is_ascii_alphabetic());
            parts.filter(|word| !word.is_empty()).map(<[u8]>::to_vec).collect()
        };
        for known in 0..app.mails / 2 {
            mails[kind_of(known)] += 1.0;
            for word in cut(app.mail(known)) {
                *seen[kind_of(known)].entry(word).or_default() += 1.0;
            }
        }
        let differ = seen[0].keys().chain(seen[1].keys()).collect::<std::collections::HashSet<_>>();
        let score = |kind: usize| {
            let all: f64 = seen[kind].values().sum();
            let prior: f64 = (mails[kind] + 1.0) / (mails[0] + mails[1] + 2.0);
            cut(app.mail(number)).iter().fold(prior.ln(), |score, word| {
                let count = seen[kind].get(word).copied().unwrap_or(0.0);
                score + ((count + 1.0) / (all + differ.len() as f64 + 1.0)).ln()
            })
        };
        usize::from(score(1) > score(0))
    }

    #[test]
    fn verdicts_are_those_of_the_rule_and_mostly_right() {
        let app = Mails::new(Size::Small, 6);
        let access = run_in_memory(&app);
        let verdicts = String::from_utf8(result(&access, "out-verdicts")).unwrap();
        let mut right = 0;
        for (at, line) in verdicts.lines().enumerate() {
            let number = app.mails / 2 + at;
            let (named, kind) = line.split_once(' ').unwrap();
            let (named, kind): (usize, usize) = (named.parse().unwrap(), kind.parse().unwrap());
            assert_eq!(named, number);
            if at < 8 {
                assert_eq!(kind, naive_verdict(&app, number), "mail {number} of seed 6");
            }
            right += usize::from(kind == kind_of(number));
        }
        assert!(right * 20 >= app.mails / 2 * 19, "{right} of {} of seed 6", app.mails / 2);
    }

    #[test]
    fn a_cut_model_is_refused() {
        assert!(Model::read(&[0; HEAD_BYTES - 1]).is_err());
        let mut bytes = [0; HEAD_BYTES];
        bytes[HEAD_BYTES - 8] = 3;
        assert!(Model::read(&bytes).is_err());
    }
}
