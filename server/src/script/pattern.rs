//! Patterns of Lua 5.1, matched in bounded time and depth.
//!
//! Lua's own matcher tries again and again without looking at the time, and calls itself as deep as
//! a pattern is long. This one counts its steps, and asks now and then whether to go on.

/// Most captures of a pattern.
const CAPTURES_MAX: usize = 32;
/// Depth of calls above which a pattern is refused.
const DEPTH_MAX: u32 = 200;
/// Steps between two questions whether to go on.
const STEPS_PER_QUESTION: u32 = 1 << 16;

const ESCAPE: u8 = b'%';

/// Why a match came to no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatternError {
    /// The pattern is wrong; the text is Lua's own.
    Wrong(&'static str),
    /// The capture with this number does not exist (yet).
    CaptureIndex,
    /// The script is over.
    Over,
}

impl PatternError {
    /// The text of the error.
    pub fn text(self) -> &'static str {
        match self {
            Self::Wrong(text) => text,
            Self::CaptureIndex => "invalid capture index",
            Self::Over => "the script is over",
        }
    }
}

/// A part of the text that a pattern has captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Capture {
    /// The bytes from here, so many.
    Bytes(usize, usize),
    /// A position, from 1.
    Position(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Len {
    Open,
    Position,
    Bytes(usize),
}

/// The state of one search.
pub(crate) struct Matcher<'a> {
    text: &'a [u8],
    pattern: &'a [u8],
    anchored: bool,
    captures: Vec<(usize, Len)>,
    depth: u32,
    steps: u32,
    is_over: &'a mut dyn FnMut() -> bool,
}

type Found = Result<Option<usize>, PatternError>;

impl<'a> Matcher<'a> {
    /// Makes a matcher, which asks `is_over` now and then whether to end.
    pub fn new(text: &'a [u8], pattern: &'a [u8], is_over: &'a mut dyn FnMut() -> bool) -> Self {
        let anchored = pattern.first() == Some(&b'^');
        Self { text, pattern, anchored, captures: Vec::new(), depth: 0, steps: 0, is_over }
    }

    /// Makes a matcher to which a caret at the beginning is a character like others.
    pub fn unanchored(
        text: &'a [u8],
        pattern: &'a [u8],
        is_over: &'a mut dyn FnMut() -> bool,
    ) -> Self {
        Self { anchored: false, ..Self::new(text, pattern, is_over) }
    }

    /// Finds the first match at or after `from`: where it begins and ends. An anchored pattern
    /// matches at `from` only.
    pub fn find(&mut self, from: usize) -> Result<Option<(usize, usize)>, PatternError> {
        let anchored = self.anchored;
        let mut at = from;
        loop {
            self.captures.clear();
            self.depth = 0;
            if let Some(end) = self.matches(at, usize::from(anchored))? {
                return Ok(Some((at, end)));
            }
            if anchored || at >= self.text.len() {
                return Ok(None);
            }
            at += 1;
        }
    }

    /// The captures of the match that was found.
    pub fn captures(&self) -> Result<Vec<Capture>, PatternError> {
        let of = |(at, len): &(usize, Len)| match len {
            Len::Open => Err(PatternError::Wrong("unfinished capture")),
            Len::Position => Ok(Capture::Position(at + 1)),
            Len::Bytes(len) => Ok(Capture::Bytes(*at, *len)),
        };
        self.captures.iter().map(of).collect()
    }

    fn step(&mut self) -> Result<(), PatternError> {
        self.steps += 1;
        if self.steps.is_multiple_of(STEPS_PER_QUESTION) && (self.is_over)() {
            return Err(PatternError::Over);
        }
        Ok(())
    }

    /// Matches the pattern from `at_pattern` on at `at`, and returns the end.
    fn matches(&mut self, at: usize, at_pattern: usize) -> Found {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(PatternError::Wrong("pattern too complex"));
        }
        let found = self.matches_here(at, at_pattern);
        self.depth -= 1;
        found
    }

    fn matches_here(&mut self, mut at: usize, mut p: usize) -> Found {
        loop {
            self.step()?;
            let Some(byte) = self.pattern.get(p).copied() else { return Ok(Some(at)) };
            match byte {
                b'(' if self.pattern.get(p + 1) == Some(&b')') => {
                    return self.open(at, p + 2, Len::Position);
                }
                b'(' => return self.open(at, p + 1, Len::Open),
                b')' => return self.close(at, p + 1),
                b'$' if p + 1 == self.pattern.len() => {
                    return Ok((at == self.text.len()).then_some(at));
                }
                ESCAPE => match self.pattern.get(p + 1).copied() {
                    Some(b'b') => match self.balance(at, p + 2)? {
                        Some(end) => {
                            (at, p) = (end, p + 4);
                            continue;
                        }
                        None => return Ok(None),
                    },
                    Some(b'f') => {
                        p += 2;
                        if self.pattern.get(p) != Some(&b'[') {
                            return Err(PatternError::Wrong("missing '[' after '%f' in pattern"));
                        }
                        let end = self.class_end(p)?;
                        let before = if at == 0 { 0 } else { self.text[at - 1] };
                        let here = self.text.get(at).copied().unwrap_or(0);
                        if self.in_set(before, p, end - 1) || !self.in_set(here, p, end - 1) {
                            return Ok(None);
                        }
                        p = end;
                        continue;
                    }
                    Some(digit @ b'0'..=b'9') => match self.repeated(at, digit)? {
                        Some(end) => {
                            (at, p) = (end, p + 2);
                            continue;
                        }
                        None => return Ok(None),
                    },
                    _ => {}
                },
                _ => {}
            }
            let end = self.class_end(p)?;
            let fits = at < self.text.len() && self.fits(self.text[at], p, end);
            match self.pattern.get(end) {
                Some(b'?') => {
                    if fits && let Some(found) = self.matches(at + 1, end + 1)? {
                        return Ok(Some(found));
                    }
                    p = end + 1;
                }
                Some(b'*') => return self.most(at, p, end),
                Some(b'+') => return if fits { self.most(at + 1, p, end) } else { Ok(None) },
                Some(b'-') => return self.least(at, p, end),
                _ if !fits => return Ok(None),
                _ => (at, p) = (at + 1, end),
            }
        }
    }

    /// The end of the single character or class that begins at `p`.
    fn class_end(&self, p: usize) -> Result<usize, PatternError> {
        let wrong = |text| Err(PatternError::Wrong(text));
        match self.pattern[p] {
            ESCAPE if p + 1 >= self.pattern.len() => wrong("malformed pattern (ends with '%')"),
            ESCAPE => Ok(p + 2),
            b'[' => {
                let mut at = p + 1;
                at += usize::from(self.pattern.get(at) == Some(&b'^'));
                loop {
                    // The first bracket of a set may be one of its members.
                    match self.pattern.get(at) {
                        None => return wrong("malformed pattern (missing ']')"),
                        Some(&ESCAPE) => at += 2,
                        Some(_) => at += 1,
                    }
                    match self.pattern.get(at) {
                        None => return wrong("malformed pattern (missing ']')"),
                        Some(b']') => return Ok(at + 1),
                        Some(_) => {}
                    }
                }
            }
            _ => Ok(p + 1),
        }
    }

    fn fits(&self, byte: u8, p: usize, end: usize) -> bool {
        match self.pattern[p] {
            b'.' => true,
            ESCAPE => is_of_class(byte, self.pattern[p + 1]),
            b'[' => self.in_set(byte, p, end - 1),
            literal => literal == byte,
        }
    }

    /// Whether a byte is in the set between the brackets at `p` and `end`.
    fn in_set(&self, byte: u8, p: usize, end: usize) -> bool {
        let mut at = p + 1;
        let is_negated = self.pattern.get(at) == Some(&b'^');
        at += usize::from(is_negated);
        while at < end {
            if self.pattern[at] == ESCAPE {
                if is_of_class(byte, self.pattern[at + 1]) {
                    return !is_negated;
                }
                at += 2;
            } else if self.pattern.get(at + 1) == Some(&b'-') && at + 2 < end {
                if (self.pattern[at]..=self.pattern[at + 2]).contains(&byte) {
                    return !is_negated;
                }
                at += 3;
            } else {
                if self.pattern[at] == byte {
                    return !is_negated;
                }
                at += 1;
            }
        }
        is_negated
    }

    /// As many repetitions as possible, then the rest of the pattern.
    fn most(&mut self, at: usize, p: usize, end: usize) -> Found {
        let mut count = 0;
        while at + count < self.text.len() && self.fits(self.text[at + count], p, end) {
            self.step()?;
            count += 1;
        }
        loop {
            if let Some(found) = self.matches(at + count, end + 1)? {
                return Ok(Some(found));
            }
            if count == 0 {
                return Ok(None);
            }
            count -= 1;
        }
    }

    /// As few repetitions as possible, then the rest of the pattern.
    fn least(&mut self, mut at: usize, p: usize, end: usize) -> Found {
        loop {
            if let Some(found) = self.matches(at, end + 1)? {
                return Ok(Some(found));
            }
            if at >= self.text.len() || !self.fits(self.text[at], p, end) {
                return Ok(None);
            }
            at += 1;
        }
    }

    fn open(&mut self, at: usize, p: usize, len: Len) -> Found {
        if self.captures.len() >= CAPTURES_MAX {
            return Err(PatternError::Wrong("too many captures"));
        }
        self.captures.push((at, len));
        let found = self.matches(at, p)?;
        if found.is_none() {
            self.captures.pop();
        }
        Ok(found)
    }

    fn close(&mut self, at: usize, p: usize) -> Found {
        let open = self.captures.iter().rposition(|(_, len)| *len == Len::Open);
        let index = open.ok_or(PatternError::Wrong("invalid pattern capture"))?;
        self.captures[index].1 = Len::Bytes(at - self.captures[index].0);
        let found = self.matches(at, p)?;
        if found.is_none() {
            self.captures[index].1 = Len::Open;
        }
        Ok(found)
    }

    /// Matches from one byte to the other that closes it.
    fn balance(&mut self, at: usize, p: usize) -> Found {
        let (Some(open), Some(close)) = (self.pattern.get(p), self.pattern.get(p + 1)) else {
            return Err(PatternError::Wrong("unbalanced pattern"));
        };
        let (open, close) = (*open, *close);
        if self.text.get(at) != Some(&open) {
            return Ok(None);
        }
        let mut depth = 1;
        for end in at + 1..self.text.len() {
            self.step()?;
            if self.text[end] == close {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(end + 1));
                }
            } else if self.text[end] == open {
                depth += 1;
            }
        }
        Ok(None)
    }

    /// Matches the text of an earlier capture once more.
    fn repeated(&mut self, at: usize, digit: u8) -> Found {
        let index = usize::from(digit).wrapping_sub(usize::from(b'1'));
        let Some((from, Len::Bytes(len))) = self.captures.get(index).copied() else {
            return Err(PatternError::CaptureIndex);
        };
        let fits = self.text[at..].starts_with(&self.text[from..from + len]);
        Ok(fits.then_some(at + len))
    }
}

/// Whether a byte is of the class that a letter behind `%` names.
fn is_of_class(byte: u8, class: u8) -> bool {
    let is_member = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => matches!(byte, b' ' | b'\t'..=b'\r'),
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    is_member != class.is_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, pattern: &str) -> Result<Option<(usize, usize)>, PatternError> {
        Matcher::new(text.as_bytes(), pattern.as_bytes(), &mut || false).find(0)
    }

    #[test]
    fn a_pattern_that_tries_for_ever_ends_when_asked() {
        let text = "a".repeat(4000);
        let pattern = "a-".repeat(20) + "b";
        let mut questions = 0;
        let mut is_over = || {
            questions += 1;
            questions > 3
        };
        let outcome = Matcher::new(text.as_bytes(), pattern.as_bytes(), &mut is_over).find(0);
        assert_eq!(outcome, Err(PatternError::Over));
    }

    #[test]
    fn a_deep_pattern_is_refused() {
        let outcome = found("x", &"x?".repeat(100_000));
        assert_eq!(outcome, Ok(Some((0, 1))));
        let outcome = found(&"x".repeat(1000), &"x?".repeat(1000));
        assert_eq!(outcome, Err(PatternError::Wrong("pattern too complex")));
    }

    #[test]
    fn patterns_match_as_luas_own() {
        assert_eq!(found("hello world", "o w"), Ok(Some((4, 7))));
        assert_eq!(found("THE (quick) fox", "%((%a+)%)"), Ok(Some((4, 11))));
        assert_eq!(found("f(a(b)c)d", "%b()"), Ok(Some((1, 8))));
        assert_eq!(found("THE (quick) fox", "%f[%a]%a+%f[%A]"), Ok(Some((0, 3))));
        assert_eq!(found("aXbXc", "(%u)b%1"), Ok(Some((1, 4))));
        assert_eq!(found("x]y", "[]]"), Ok(Some((1, 2))));
        assert_eq!(found("abc", "[^a-b]"), Ok(Some((2, 3))));
        assert_eq!(found("abc", "^b"), Ok(None));
        assert_eq!(found("abc", "c$"), Ok(Some((2, 3))));
        assert_eq!(found("", ".-"), Ok(Some((0, 0))));
        assert_eq!(found("a", "[a"), Err(PatternError::Wrong("malformed pattern (missing ']')")));
        assert_eq!(found("a", "%"), Err(PatternError::Wrong("malformed pattern (ends with '%')")));
        assert_eq!(found("aa", "(a"), Ok(Some((0, 1))));
    }
}
