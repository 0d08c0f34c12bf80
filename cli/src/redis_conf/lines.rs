//! The lines of a redis.conf: a directive and its values, quoted as Redis quotes them.

/// One directive with its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Number of the line, counted from 1.
    pub number: usize,
    /// Name of the directive, in lower case.
    pub directive: String,
    /// The words after the name, without their quotes.
    pub values: Vec<String>,
}

/// A line that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Number of the line, counted from 1.
    pub number: usize,
    /// The mistake in the line.
    pub why: &'static str,
}

/// The lines with a directive, in the order of the file.
pub fn read(text: &str) -> Result<Vec<Line>, Unreadable> {
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut words = words(line).map_err(|why| Unreadable { number, why })?;
        if words.is_empty() {
            continue;
        }
        let directive = words.remove(0).to_lowercase();
        lines.push(Line { number, directive, values: words });
    }
    Ok(lines)
}

/// The words of a line, which blanks separate. A word in quotes may have blanks in it, and escapes
/// if the quotes are double.
fn words(line: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let word;
        (word, rest) = match first {
            '"' | '\'' => quoted(&rest[1..], first)?,
            _ => {
                let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                (rest[..end].to_owned(), &rest[end..])
            }
        };
        if rest.starts_with(|c: char| !c.is_whitespace()) {
            return Err("something stands directly behind a closing quote");
        }
        words.push(word);
        rest = rest.trim_start();
    }
    Ok(words)
}

/// The text before the closing quote, and the text after it.
fn quoted(text: &str, quote: char) -> Result<(String, &str), &'static str> {
    let mut word = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            _ if c == quote => return Ok((word, &text[at + 1..])),
            '\\' => match chars.next().map(|(_, escaped)| escaped) {
                Some(escaped) if quote == '"' => match escaped {
                    'n' => word.push('\n'),
                    'r' => word.push('\r'),
                    't' => word.push('\t'),
                    'b' => word.push('\u{8}'),
                    'a' => word.push('\u{7}'),
                    'x' => word.push(hexadecimal(&mut chars)?),
                    other => word.push(other),
                },
                Some('\'') => word.push('\''),
                Some(other) => word.extend(['\\', other]),
                None => return Err("a quote is not closed"),
            },
            _ => word.push(c),
        }
    }
    Err("a quote is not closed")
}

/// The character of `\xHH`. Only ASCII is taken, because a larger byte would be a part of a
/// character.
fn hexadecimal(chars: &mut std::str::CharIndices<'_>) -> Result<char, &'static str> {
    let mut digit = || chars.next().and_then(|(_, c)| c.to_digit(16));
    match (digit(), digit()) {
        (Some(high), Some(low)) if high < 8 => char::from_u32(high << 4 | low),
        _ => None,
    }
    .ok_or("\\x needs two hexadecimal digits, at most 7f")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_as_redis_quotes_them() {
        let text =
            "# a comment\n\n  PORT 7000 \nrequirepass \"a \\\"b\\x41\\n\"\nbind 'x y' z\nsave \"\"";
        let lines = read(text).unwrap();
        let of = |at: usize| (lines[at].directive.as_str(), lines[at].values.join("|"));
        assert_eq!(of(0), ("port", "7000".to_owned()));
        assert_eq!(of(1), ("requirepass", "a \"bA\n".to_owned()));
        assert_eq!(of(2), ("bind", "x y|z".to_owned()));
        assert_eq!((of(3), lines[3].values.len()), (("save", String::new()), 1));
        assert_eq!((lines[0].number, lines[3].number), (3, 6));
    }

    #[test]
    fn a_line_that_cannot_be_read_is_told_by_its_number() {
        for line in
            ["requirepass \"open", "requirepass 'open", "a \"b\"c", "a \"\\xzz\"", "a \"\\xff\""]
        {
            assert_eq!(read(&format!("port 1\n{line}")).unwrap_err().number, 2, "{line}");
        }
    }
}
