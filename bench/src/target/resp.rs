//! The client's side of the Redis protocol (RESP2): requests into a buffer, replies out of one.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::TargetError;

/// A server that takes longer for a reply hangs.
const PATIENCE: Duration = Duration::from_secs(60);
const READ_BYTES: usize = 64 * 1024;

/// A reply, in the detail that a load generator needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    /// A status or a number.
    Line,
    /// An error.
    Error(String),
    /// A string, or nothing.
    Bulk { is_nil: bool },
    /// An array: the number of its elements, and of those that are nil.
    Array { len: usize, nils: usize },
}

/// A connection. The caller counts the requests that have no reply yet.
pub(crate) struct Connection {
    stream: TcpStream,
    address: String,
    out: Vec<u8>,
    input: Vec<u8>,
    /// Bytes of `input` that were parsed.
    taken: usize,
}

impl Connection {
    pub fn open(address: &str, password: Option<&str>) -> Result<Self, TargetError> {
        let broken = |source| TargetError::Connection { address: address.to_owned(), source };
        let stream = TcpStream::connect(address).map_err(broken)?;
        stream.set_nodelay(true).map_err(broken)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(broken)?;
        let mut connection = Self {
            stream,
            address: address.to_owned(),
            out: Vec::new(),
            input: Vec::new(),
            taken: 0,
        };
        if let Some(password) = password {
            connection.request(&[b"AUTH", password.as_bytes()]);
            if let Reply::Error(text) = connection.ask()? {
                return Err(TargetError::Reply { text });
            }
        }
        Ok(connection)
    }

    /// Begins a request of `words` words in the buffer; each word follows by [`Connection::word`].
    pub fn begin(&mut self, words: usize) {
        self.out.push(b'*');
        self.number(words as u64);
    }

    pub fn word(&mut self, word: &[u8]) {
        self.out.push(b'$');
        self.number(word.len() as u64);
        self.out.extend_from_slice(word);
        self.out.extend_from_slice(b"\r\n");
    }

    pub fn request(&mut self, words: &[&[u8]]) {
        self.begin(words.len());
        words.iter().for_each(|word| self.word(word));
    }

    fn number(&mut self, value: u64) {
        let mut digits = [0; 20];
        let (mut at, mut rest) = (digits.len(), value);
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.out.extend_from_slice(&digits[at..]);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Sends the requests in the buffer.
    pub fn send(&mut self) -> Result<(), TargetError> {
        let sent = self.stream.write_all(&self.out);
        self.out.clear();
        sent.map_err(|source| self.broken(source))
    }

    /// Sends the buffer and waits for one reply.
    pub fn ask(&mut self) -> Result<Reply, TargetError> {
        self.send()?;
        self.reply(&mut |_| ())
    }

    /// Sends a request and returns the string of its reply.
    pub fn ask_text(&mut self, words: &[&[u8]]) -> Result<String, TargetError> {
        self.request(words);
        self.send()?;
        let mut text = String::new();
        match self.reply(&mut |bytes| text = String::from_utf8_lossy(bytes).into_owned())? {
            Reply::Error(text) => Err(TargetError::Reply { text }),
            _ => Ok(text),
        }
    }

    /// Reads the next reply; `bulk` is called with each string in it.
    pub fn reply(&mut self, bulk: &mut dyn FnMut(&[u8])) -> Result<Reply, TargetError> {
        // The reply is complete before it is parsed, so that `bulk` gets each string once.
        let end = loop {
            match whole(&self.input, self.taken) {
                Whole::Until(end) => break end,
                Whole::NotYet => self.fill()?,
                Whole::Never => return Err(self.garbage()),
            }
        };
        let reply = parse(&self.input, &mut self.taken, bulk);
        debug_assert_eq!(self.taken, end);
        self.taken = end;
        if self.taken == self.input.len() {
            self.input.clear();
            self.taken = 0;
        }
        reply.ok_or_else(|| self.garbage())
    }

    fn fill(&mut self) -> Result<(), TargetError> {
        if self.taken > READ_BYTES {
            self.input.drain(..self.taken);
            self.taken = 0;
        }
        let old = self.input.len();
        self.input.resize(old + READ_BYTES, 0);
        let outcome = loop {
            match self.stream.read(&mut self.input[old..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                outcome => break outcome,
            }
        };
        self.input.truncate(old + *outcome.as_ref().unwrap_or(&0));
        match outcome {
            Ok(0) => Err(self.broken(ErrorKind::UnexpectedEof.into())),
            Ok(_) => Ok(()),
            Err(source) => Err(self.broken(source)),
        }
    }

    fn broken(&self, source: std::io::Error) -> TargetError {
        TargetError::Connection { address: self.address.clone(), source }
    }

    fn garbage(&self) -> TargetError {
        let rest = &self.input[self.taken.min(self.input.len())..];
        let found = String::from_utf8_lossy(&rest[..rest.len().min(32)]).into_owned();
        TargetError::Protocol { address: self.address.clone(), found }
    }
}

enum Whole {
    Until(usize),
    NotYet,
    Never,
}

/// Finds the end of the reply at `from`.
fn whole(input: &[u8], from: usize) -> Whole {
    let (mut at, mut open) = (from, 1u64);
    while open > 0 {
        if input[at..].starts_with(b"\r\n") {
            return Whole::Never;
        }
        let Some(line) = line_at(input, at) else { return Whole::NotYet };
        let (kind, end) = (input[at], at + line.len() + 2);
        open -= 1;
        at = end;
        match (kind, number(&line[1..])) {
            (b'+' | b'-' | b':', _) | (b'$' | b'*', Some(..0)) => {}
            (b'$', Some(len)) => at += len as usize + 2,
            (b'*', Some(len)) => open += len as u64,
            _ => return Whole::Never,
        }
        if at > input.len() {
            return Whole::NotYet;
        }
    }
    Whole::Until(at)
}

/// Parses the reply at `at`, which is complete. Elements of elements count as elements.
fn parse(input: &[u8], at: &mut usize, bulk: &mut dyn FnMut(&[u8])) -> Option<Reply> {
    let (mut open, mut nils, mut array) = (1u64, 0, None);
    let mut reply = Reply::Line;
    while open > 0 {
        let line = line_at(input, *at)?;
        let kind = input[*at];
        *at += line.len() + 2;
        open -= 1;
        reply = match kind {
            b'-' => Reply::Error(String::from_utf8_lossy(&line[1..]).into_owned()),
            b'$' => match usize::try_from(number(&line[1..])?) {
                Err(_) => {
                    nils += 1;
                    Reply::Bulk { is_nil: true }
                }
                Ok(len) => {
                    bulk(input.get(*at..*at + len)?);
                    *at += len + 2;
                    Reply::Bulk { is_nil: false }
                }
            },
            b'*' => {
                let len = usize::try_from(number(&line[1..])?).unwrap_or(0);
                open += len as u64;
                array.get_or_insert(len);
                Reply::Line
            }
            _ => Reply::Line,
        };
    }
    Some(array.map_or(reply, |len| Reply::Array { len, nils }))
}

/// The line at `at` without its end.
fn line_at(input: &[u8], at: usize) -> Option<&[u8]> {
    let rest = input.get(at..)?;
    let len = rest.windows(2).position(|pair| pair == b"\r\n")?;
    (len > 0).then(|| &rest[..len])
}

fn number(digits: &[u8]) -> Option<i64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_found_whole_or_not_at_all() {
        let reply = b"*3\r\n$2\r\nab\r\n$-1\r\n*1\r\n:7\r\n";
        for len in 0..reply.len() {
            assert!(matches!(whole(&reply[..len], 0), Whole::NotYet), "{len}");
        }
        assert!(matches!(whole(reply, 0), Whole::Until(end) if end == reply.len()));
        let (mut at, mut seen) = (0, Vec::new());
        let parsed = parse(reply, &mut at, &mut |bytes| seen.push(bytes.to_vec()));
        assert_eq!(parsed, Some(Reply::Array { len: 3, nils: 1 }));
        assert_eq!((at, seen), (reply.len(), vec![b"ab".to_vec()]));
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        assert!(matches!(whole(b"HTTP/1.1 400\r\n", 0), Whole::Never));
        assert!(matches!(whole(b"$x\r\n", 0), Whole::Never));
        let mut at = 0;
        let error = parse(b"-ERR no\r\n", &mut at, &mut |_| ());
        assert_eq!(error, Some(Reply::Error("ERR no".into())));
    }
}
