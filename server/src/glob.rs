//! Redis's glob patterns: `*`, `?`, `[a-z]`, `[^a]`, `\` quotes.
//!
//! A mismatch returns to the last star only, so the cost is at most pattern x text. The recursive
//! form would be exponential in the number of stars.

/// Whether the whole of `text` matches `pattern`.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    matches_with(pattern, text, false)
}

/// Matches as [`matches()`] does, but takes upper and lower case ASCII letters as equal.
pub fn matches_ignoring_case(pattern: &[u8], text: &[u8]) -> bool {
    matches_with(pattern, text, true)
}

fn matches_with(pattern: &[u8], text: &[u8], fold: bool) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            star = Some((p, t));
            continue;
        }
        let step = match text.get(t) {
            None if p >= pattern.len() => return true,
            None => None,
            Some(byte) if p < pattern.len() => one(&pattern[p..], *byte, fold),
            Some(_) => None,
        };
        match (step, star) {
            (Some(used), _) => {
                p += used;
                t += 1;
            }
            (None, Some((after, from))) if from < text.len() => {
                star = Some((after, from + 1));
                p = after;
                t = from + 1;
            }
            _ => return false,
        }
    }
}

/// Matches one byte against the pattern's first element; returns the element's length.
fn one(pattern: &[u8], byte: u8, fold: bool) -> Option<usize> {
    let same = |a: u8, b: u8| a == b || (fold && a.eq_ignore_ascii_case(&b));
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', quoted, ..] => same(*quoted, byte).then_some(2),
        [b'[', ..] => class(pattern, byte, fold),
        [plain, ..] => same(*plain, byte).then_some(1),
        [] => None,
    }
}

/// Matches one byte against a class, `[...]`, and returns the length of the class. A class that is
/// not closed reaches to the pattern's end.
fn class(pattern: &[u8], byte: u8, fold: bool) -> Option<usize> {
    let low = |b: u8| if fold { b.to_ascii_lowercase() } else { b };
    let byte = low(byte);
    let mut at = 1;
    let negated = pattern.get(at) == Some(&b'^');
    at += usize::from(negated);
    let mut hit = false;
    loop {
        match &pattern[at.min(pattern.len())..] {
            [] => break,
            [b'\\', quoted, ..] => {
                hit |= *quoted == byte;
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [first, b'-', last, ..] => {
                let (a, z) = (low(*first.min(last)), low(*first.max(last)));
                hit |= (a..=z).contains(&byte);
                at += 3;
            }
            [plain, ..] => {
                hit |= low(*plain) == byte;
                at += 1;
            }
        }
    }
    (hit != negated).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_patterns() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("h?llo", "hello", true),
            ("h*llo", "heeeello", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hbllo", true),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hello", false),
            ("a*b*c", "aXbXbXc", true),
            ("a*b*c", "aXbXbX", false),
            ("[abc", "a", true),
            ("", "a", false),
            ("**", "x", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
        assert!(matches_ignoring_case(b"MAX[A-Z]*", b"maxclients"));
    }

    /// The definition, read out loud.
    fn naive(p: &[u8], t: &[u8]) -> bool {
        match p {
            [] => t.is_empty(),
            [b'*', rest @ ..] => (0..=t.len()).any(|cut| naive(rest, &t[cut..])),
            _ => match t {
                [] => false,
                [byte, after @ ..] => one(p, *byte, false).is_some_and(|n| naive(&p[n..], after)),
            },
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_naive_matcher(p in "[ab*?]{0,8}|[ab*?\\[\\]^-]{0,8}", t in "[ab]{0,8}") {
            prop_assert_eq!(matches(p.as_bytes(), t.as_bytes()), naive(p.as_bytes(), t.as_bytes()));
        }
    }
}
