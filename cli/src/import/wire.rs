//! RESP as a client sees it: commands of a stream, and replies that are checked for errors.

use std::io::{self, BufRead, ErrorKind, Read, Write};

use anyhow::{Result, bail};

/// Most words of a command, and most bytes of one, that are believed.
const WORDS_MAX: usize = 1 << 20;
const WORD_BYTES_MAX: usize = 512 << 20;
/// Longest line that is believed.
const LINE_BYTES_MAX: usize = 64 << 10;

/// A command: its words.
pub type Words = Vec<Vec<u8>>;

/// Adds a command in the form in which a server reads it.
pub fn put_command(out: &mut Vec<u8>, words: &[&[u8]]) {
    // Writing to memory does not fail.
    let _ = write!(out, "*{}\r\n", words.len());
    for word in words {
        let _ = write!(out, "${}\r\n", word.len());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// Bytes of a stream of commands, of which whole ones are taken.
#[derive(Default)]
pub struct Commands {
    bytes: Vec<u8>,
    at: usize,
    /// Bytes that were needed for the next command when it was last looked for.
    needed: usize,
}

/// The next command of a stream, if it is there as a whole.
#[derive(Debug, PartialEq)]
pub enum Next {
    /// A whole command, and the bytes it took.
    Command(Words, u64),
    /// Something that says nothing, and the bytes it took: an empty line, or a note in a file.
    Nothing(u64),
    /// The beginning of a command, or no byte.
    Incomplete,
}

impl Commands {
    /// Adds bytes of the stream.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.at > self.bytes.len() / 2 {
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Bytes that no whole command has taken.
    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Takes the next whole command.
    ///
    /// # Errors
    /// The bytes are no commands.
    pub fn next_command(&mut self) -> Result<Next> {
        if self.left() < self.needed {
            return Ok(Next::Incomplete);
        }
        self.needed = 0;
        let rest = &self.bytes[self.at..];
        let mut at = 0;
        let Some(head) = line(rest, &mut at)? else { return Ok(Next::Incomplete) };
        if head.is_empty() || head[0] == b'#' {
            self.at += at;
            return Ok(Next::Nothing(at as u64));
        }
        let count = number(head, b'*', WORDS_MAX)?;
        // Words are copied once all are there.
        let mut spans = Vec::with_capacity(count.min(1024));
        for _ in 0..count {
            let Some(head) = line(rest, &mut at)? else { return Ok(Next::Incomplete) };
            let len = number(head, b'$', WORD_BYTES_MAX)?;
            let Some(word) = rest.get(at..at + len + 2) else {
                self.needed = at + len + 2;
                return Ok(Next::Incomplete);
            };
            if !word.ends_with(b"\r\n") {
                bail!("a word of a command is not followed by the end of a line");
            }
            spans.push(at..at + len);
            at += len + 2;
        }
        let words: Words = spans.into_iter().map(|span| rest[span].to_vec()).collect();
        self.at += at;
        match words.is_empty() {
            true => Ok(Next::Nothing(at as u64)),
            false => Ok(Next::Command(words, at as u64)),
        }
    }
}

/// Takes a line without its end; `None` if it is not whole.
fn line<'b>(bytes: &'b [u8], at: &mut usize) -> Result<Option<&'b [u8]>> {
    let rest = &bytes[*at..];
    let Some(end) = rest.iter().take(LINE_BYTES_MAX).position(|byte| *byte == b'\n') else {
        if rest.len() >= LINE_BYTES_MAX {
            bail!("a line that does not end");
        }
        return Ok(None);
    };
    *at += end + 1;
    Ok(Some(rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end])))
}

fn number(head: &[u8], sign: u8, max: usize) -> Result<usize> {
    let digits = head.strip_prefix(&[sign]).and_then(|digits| std::str::from_utf8(digits).ok());
    match digits.and_then(|digits| digits.parse::<usize>().ok()) {
        Some(number) if number <= max => Ok(number),
        _ => bail!(
            "expected a command, found {:?}",
            head[..head.len().min(60)].escape_ascii().to_string()
        ),
    }
}

/// A reply of a server: what matters of it.
#[derive(Debug, PartialEq)]
pub enum Reply {
    /// A line, a number or a string.
    Text(String),
    /// An error's words.
    Error(String),
    /// Nothing, or several replies without an error.
    Other,
}

/// Reads one reply. Of an array, the first error in it.
pub fn read_reply(from: &mut impl BufRead) -> io::Result<Reply> {
    let head = read_line(from)?;
    let invalid = || {
        let shown = head[..head.len().min(60)].escape_ascii().to_string();
        io::Error::new(ErrorKind::InvalidData, format!("not a reply of a server: {shown:?}"))
    };
    let (kind, rest) = head.split_first().ok_or_else(invalid)?;
    let text = String::from_utf8_lossy(rest).into_owned();
    match kind {
        b'+' | b':' | b',' | b'(' | b'#' => Ok(Reply::Text(text)),
        b'-' => Ok(Reply::Error(text)),
        b'_' => Ok(Reply::Other),
        b'$' | b'=' => {
            let len: i64 = text.parse().map_err(|_| invalid())?;
            let Ok(len) = usize::try_from(len) else { return Ok(Reply::Other) };
            if len > WORD_BYTES_MAX {
                return Err(invalid());
            }
            let mut bytes = Vec::new();
            Read::take(&mut *from, len as u64 + 2).read_to_end(&mut bytes)?;
            if bytes.len() < len + 2 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            bytes.truncate(len);
            Ok(Reply::Text(String::from_utf8_lossy(&bytes).into_owned()))
        }
        b'*' | b'%' | b'~' => {
            let count: i64 = text.parse().map_err(|_| invalid())?;
            let mut found = Reply::Other;
            for _ in 0..count.max(0) * if *kind == b'%' { 2 } else { 1 } {
                let part = read_reply(from)?;
                if matches!((&found, &part), (Reply::Other, Reply::Error(_))) {
                    found = part;
                }
            }
            Ok(found)
        }
        _ => Err(invalid()),
    }
}

/// Reads a reply that is one string of bytes; any other is the error, as words.
pub fn read_bytes(from: &mut impl BufRead) -> io::Result<Result<Vec<u8>, String>> {
    let head = read_line(from)?;
    let text = String::from_utf8_lossy(&head).into_owned();
    let len = text.strip_prefix('$').and_then(|len| len.parse::<usize>().ok());
    let Some(len) = len.filter(|len| *len <= WORD_BYTES_MAX) else { return Ok(Err(text)) };
    let mut bytes = Vec::new();
    Read::take(&mut *from, len as u64 + 2).read_to_end(&mut bytes)?;
    if bytes.len() < len + 2 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    bytes.truncate(len);
    Ok(Ok(bytes))
}

/// Reads a line without its end.
pub fn read_line(from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    Read::take(&mut *from, LINE_BYTES_MAX as u64).read_until(b'\n', &mut line)?;
    if !line.ends_with(b"\n") {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    line.truncate(line.len() - 1 - usize::from(line.ends_with(b"\r\n")));
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_come_whole_however_they_are_cut() {
        let mut bytes = b"*1\r\n$4\r\nPING\r\n\r\n#TS:12\r\n".to_vec();
        put_command(&mut bytes, &[b"SET", b"k\r\n", &[b'v'; 300]]);
        for step in [1, 2, 7, 400] {
            let (mut commands, mut found, mut used) = (Commands::default(), Vec::new(), 0);
            for piece in bytes.chunks(step) {
                commands.feed(piece);
                loop {
                    match commands.next_command().unwrap() {
                        Next::Incomplete => break,
                        Next::Nothing(len) => used += len,
                        Next::Command(words, len) => {
                            found.push(words);
                            used += len;
                        }
                    }
                }
            }
            let set = vec![b"SET".to_vec(), b"k\r\n".to_vec(), vec![b'v'; 300]];
            assert_eq!(found, [vec![b"PING".to_vec()], set]);
            assert_eq!((used, commands.left()), (bytes.len() as u64, 0));
        }
    }

    #[test]
    fn what_is_no_command_is_refused() {
        for bad in ["SET k v\r\n", "*-1\r\n", "*1\r\n+a\r\n", "*9999999\r\n", "*1\r\n$1\r\nabc\r\n"]
        {
            let mut commands = Commands::default();
            commands.feed(bad.as_bytes());
            assert!(commands.next_command().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_error_is_found_inside_of_an_array() {
        let read = |text: &str| read_reply(&mut text.as_bytes()).unwrap();
        assert_eq!(read("*3\r\n+OK\r\n*1\r\n-ERR a\r\n-ERR b\r\n"), Reply::Error("ERR a".into()));
        assert_eq!(read("$2\r\nab\r\n"), Reply::Text("ab".into()));
        assert_eq!(read("$-1\r\n"), Reply::Other);
        assert!(read_reply(&mut "$5\r\nab\r\n".as_bytes()).is_err());
        assert!(read_reply(&mut "hello\r\n".as_bytes()).is_err());
    }
}
