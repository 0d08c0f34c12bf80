//! Sentences about the best persist instruction for each write, and about writes without any.

use perdura_media::Bytes;

use super::{Overall, overall, times, two};
use crate::access::insights::figures::{BestPersist, PlaceFigures, Verdict, Versus, WithoutFlush};

/// Sizes of writes for the question about eADR; the last one stands for the poster's 200 B.
pub const WITHOUT_FLUSH_BYTES: [u64; 3] = [64, 128, 256];

/// The best persist instruction for each write, in a sentence.
pub fn persists(bests: &[BestPersist]) -> String {
    let order = |is_random| {
        let own: Vec<&BestPersist> =
            bests.iter().filter(|best| best.is_random == is_random).collect();
        let mut said: Vec<String> = Vec::new();
        let mut rest = &own[..];
        while let Some(first) = rest.first() {
            let kind = |best: &BestPersist| (best.versus.verdict(), best.best.clone());
            let is_same = |other: &&&BestPersist| match is_clear(first) {
                true => kind(other) == kind(first),
                false => {
                    other.versus.verdict() == first.versus.verdict()
                        && advice(other) == advice(first)
                }
            };
            let count = rest.iter().take_while(is_same).count();
            said.push(group(&rest[..count]));
            rest = &rest[count..];
        }
        said.join(", ")
    };
    match (order(false), order(true)) {
        (in_order, random) if in_order.is_empty() && random.is_empty() => {
            "there are no two instructions to choose from".into()
        }
        (in_order, random) if random.is_empty() => format!("in sequence {in_order}"),
        (in_order, random) if in_order.is_empty() => format!("at random {random}"),
        (in_order, random) => format!("in sequence {in_order}; at random {random}"),
    }
}

fn is_clear(best: &BestPersist) -> bool {
    best.versus.verdict() == Verdict::Faster
}

/// The instruction to use; if two are alike, both, in alphabetical order.
fn advice(best: &BestPersist) -> Vec<&str> {
    let mut names = match is_clear(best) {
        true => vec![best.best.as_str()],
        false => vec![best.best.as_str(), best.next.as_str()],
    };
    names.sort_unstable();
    names
}

fn group(bests: &[&BestPersist]) -> String {
    let sizes = |bests: &[&BestPersist]| match bests {
        [one] => Bytes(one.write_bytes).to_string(),
        [first, .., last] => format!("{} to {}", Bytes(first.write_bytes), Bytes(last.write_bytes)),
        [] => String::new(),
    };
    let Some(first) = bests.first() else { return String::new() };
    if !is_clear(first) {
        let word = match first.versus.verdict() {
            Verdict::Alike => "alike",
            _ => "with no clear winner",
        };
        return format!("{} for {} {word}", advice(first).join(" and "), sizes(bests));
    }
    let ratios = bests.iter().map(|best| best.versus.ratio);
    let (low, high) = (ratios.clone().fold(f64::INFINITY, f64::min), ratios.fold(0.0, f64::max));
    let margin = match bests {
        [one] => format!("beside the next {}", times(&one.versus)),
        _ => format!("beside the next {} to {} times", two(low), two(high)),
    };
    format!("{} for {} ({margin})", first.best, sizes(bests))
}

/// Whether writes without flushes help: random writes alone, and changes of records that are read
/// before.
pub fn without_flush(
    of: &[WithoutFlush],
    place: &PlaceFigures,
    cache_bytes: Option<u64>,
) -> String {
    let bare = match has_outgrown(place, cache_bytes) {
        true => "bare writes",
        false => "bare writes, which the cache may still hold when the time is taken",
    };
    let bare = judged(of, bare, &|one| one.write.as_ref());
    let updates = judged(of, "records read and changed", &|one| one.update.as_ref());
    match (bare, updates) {
        (None, None) => "nothing was measured both with a flush and without".into(),
        (Some(one), None) | (None, Some(one)) => one,
        (Some(bare), Some(updates)) => format!("{bare}. {updates}"),
    }
}

fn judged(
    of: &[WithoutFlush],
    name: &str,
    versus: &dyn Fn(&WithoutFlush) -> Option<&Versus>,
) -> Option<String> {
    let all: Vec<(u64, &Versus)> =
        of.iter().filter_map(|one| Some((one.write_bytes, versus(one)?))).collect();
    if all.is_empty() {
        return None;
    }
    let verdicts: Vec<Verdict> = all.iter().map(|(_, versus)| versus.verdict()).collect();
    let headline = match overall(&verdicts) {
        (Overall::Helps, false) => "it helps at each size",
        (Overall::Helps, true) => "it helps at each size with a clear result",
        (Overall::Hurts, false) => "it hurts at each size",
        (Overall::Hurts, true) => "it hurts at each size with a clear result",
        (Overall::NoDifference, false) => "it makes no difference at any size",
        (Overall::NoDifference, true) => "it makes no difference at any size with a clear result",
        (Overall::HurtsSome, _) => "it hurts some sizes and helps none",
        (Overall::Depends, _) => "it depends on the size",
        (Overall::CannotBeTold, _) => "the rounds do not show whether it helps",
    };
    let told = |((bytes, versus), verdict): (&(u64, &Versus), &Verdict)| {
        let word = match verdict {
            Verdict::Faster => "helps",
            Verdict::Slower => "hurts",
            Verdict::Alike => "no difference",
            Verdict::Unclear => "unclear",
        };
        let rounded = if *bytes == 256 { " (for 200 B, rounded up)" } else { "" };
        format!("{}{rounded} {word} ({})", Bytes(*bytes), times(versus))
    };
    let each: Vec<String> = all.iter().zip(&verdicts).map(told).collect();
    Some(format!("{name}, beside the fastest flush: {headline}: {}", each.join("; ")))
}

/// How the answer about instructions was found.
pub fn how_persists(place: &PlaceFigures) -> String {
    format!("one thread, cells in turn, ratios by rounds{}", left_out(place))
}

/// How the answer about flushes was found, and what it cannot say.
pub fn how_without_flush(place: &PlaceFigures, cache_bytes: Option<u64>) -> String {
    format!(
        "one thread, at random places, cells in turn, ratios by rounds. Where records are read and \
         changed, no read waits for the flush before it, because sfence does not order loads: that \
         hides flushes behind reads. A program that must know that a write is durable before it \
         goes on sees more of them{}{}",
        ends(place, cache_bytes),
        left_out(place)
    )
}

/// Whether random writes without flushes are much larger than the cache, so that most of them had
/// to leave it.
fn has_outgrown(place: &PlaceFigures, cache_bytes: Option<u64>) -> bool {
    const SEVERAL: u64 = 3;
    cache_bytes.is_some_and(|bytes| place.random_written_bytes_min >= SEVERAL * bytes)
}

/// Where writes may still be when the time is taken.
fn ends(place: &PlaceFigures, cache_bytes: Option<u64>) -> String {
    if has_outgrown(place, cache_bytes) {
        return String::new();
    }
    let cache = match cache_bytes {
        Some(bytes) => {
            format!("beside a last-level cache of {}, as the machine reports it", Bytes(bytes))
        }
        None => "and the machine does not report its last-level cache".into(),
    };
    format!(
        ". A cell of random writes writes {} at least, {cache}: writes without a flush may still \
         be in the cache, and their way to memory is then not in the time",
        Bytes(place.random_written_bytes_min)
    )
}

fn left_out(place: &PlaceFigures) -> String {
    match &place.lacking[..] {
        [] => String::new(),
        lacking => format!(". Left out: {}", lacking.join("; ")),
    }
}
