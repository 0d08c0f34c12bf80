//! The reply writer: one value at a time, in the protocol version that the client asked for.
//!
//! The writer appends to the connection's output. At `limit` bytes it stops appending and
//! [`Reply::overflowed`] says so. The connection is closed then, so that no client takes a part of
//! a reply for the whole.

use std::fmt::Display;
use std::io::Write;

/// Most bytes of the word by which an error is counted: as in Redis.
const ERROR_WORD_BYTES_MAX: usize = 30;

/// Appends replies to an output buffer.
pub struct Reply<'a> {
    out: &'a mut Vec<u8>,
    resp3: bool,
    limit: usize,
    overflowed: bool,
    errors: u32,
    /// The first words of the errors, with the places at which they stand.
    words: Vec<(usize, Box<[u8]>)>,
}

impl<'a> Reply<'a> {
    /// Makes a writer that never lets `out` grow beyond `limit` bytes.
    pub fn new(out: &'a mut Vec<u8>, resp3: bool, limit: usize) -> Self {
        Self { out, resp3, limit, overflowed: false, errors: 0, words: Vec::new() }
    }

    /// Whether the client speaks RESP3.
    pub fn resp3(&self) -> bool {
        self.resp3
    }

    /// Changes the protocol version, as HELLO asks.
    pub fn set_resp3(&mut self, resp3: bool) {
        self.resp3 = resp3;
    }

    /// Whether the limit was reached, so that the connection must be closed.
    pub fn overflowed(&self) -> bool {
        self.overflowed
    }

    /// Number of errors written so far.
    pub fn errors(&self) -> u32 {
        self.errors
    }

    /// The current end of the output, for [`Reply::rewind`].
    pub fn mark(&self) -> usize {
        self.out.len()
    }

    /// Removes everything that was written after `mark`.
    pub fn rewind(&mut self, mark: usize) {
        self.out.truncate(mark);
        self.words.retain(|(at, _)| *at < mark);
    }

    /// The first words of the errors that were written and not taken back.
    pub fn error_words(&self) -> impl Iterator<Item = &[u8]> {
        self.words.iter().map(|(_, word)| &**word)
    }

    /// The bytes that were written after `mark`.
    pub fn since(&self, mark: usize) -> &[u8] {
        &self.out[mark..]
    }

    /// Writes `+OK`.
    pub fn ok(&mut self) {
        self.raw(b"+OK\r\n");
    }

    /// Writes a simple string, which has no line breaks.
    pub fn simple(&mut self, text: &str) {
        self.raw(b"+");
        self.raw(text.as_bytes());
        self.raw(b"\r\n");
    }

    /// Writes an error. Line breaks in its text become blanks.
    pub fn error(&mut self, text: &dyn Display) {
        self.error_bytes(text.to_string().as_bytes());
    }

    /// Writes an error whose text may be no UTF-8. Line breaks in it become blanks.
    pub fn error_bytes(&mut self, text: &[u8]) {
        self.errors += 1;
        self.raw(b"-");
        let from = self.out.len();
        self.raw(text);
        for byte in &mut self.out[from..] {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        self.words.push((from, error_word(&self.out[from..]).into()));
        self.raw(b"\r\n");
    }

    /// Writes an integer.
    pub fn int(&mut self, value: i64) {
        match value {
            0 => self.raw(b":0\r\n"),
            1 => self.raw(b":1\r\n"),
            _ => self.header(b':', value),
        }
    }

    /// Writes an integer that is never negative.
    pub fn len(&mut self, value: u64) {
        self.int(i64::try_from(value).unwrap_or(i64::MAX));
    }

    /// Writes a bulk string.
    pub fn bulk(&mut self, bytes: &[u8]) {
        if self.out.len() + bytes.len() + 32 > self.limit {
            self.overflowed = true;
            return;
        }
        self.out.reserve(bytes.len() + 32);
        match bytes.len() {
            // Most have two digits.
            len @ 10..100 => {
                let [tens, ones] = [len / 10, len % 10].map(|digit| b'0' + digit as u8);
                self.out.extend_from_slice(&[b'$', tens, ones, b'\r', b'\n']);
            }
            len => self.header(b'$', len as i64),
        }
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Writes a bulk string, or null for `None`.
    pub fn bulk_or_null(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// Writes null, which is the null bulk string in RESP2.
    pub fn null(&mut self) {
        self.raw(if self.resp3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// Writes null, which is the null array in RESP2.
    pub fn null_array(&mut self) {
        self.raw(if self.resp3 { b"_\r\n" } else { b"*-1\r\n" });
    }

    /// Writes the head of an array. The caller writes its `len` values next.
    pub fn array(&mut self, len: usize) {
        self.header(b'*', len as i64);
    }

    /// Puts the head of an array before what was written after `mark`: its `len` values.
    pub fn insert_array(&mut self, mark: usize, len: usize) {
        self.insert_head(mark, b'*', len);
    }

    /// Puts the head of a map before what was written after `mark`: keys and values of `pairs`.
    pub fn insert_map(&mut self, mark: usize, pairs: usize) {
        match self.resp3 {
            true => self.insert_head(mark, b'%', pairs),
            false => self.insert_head(mark, b'*', 2 * pairs),
        }
    }

    fn insert_head(&mut self, mark: usize, kind: u8, len: usize) {
        if self.overflowed {
            return;
        }
        let written = self.out.len();
        self.header(kind, len as i64);
        let head = self.out.len() - written;
        self.out[mark..].rotate_right(head);
    }

    /// Writes the head of a message that answers no request; an array's in RESP2. The caller writes
    /// its `len` values next.
    pub fn push(&mut self, len: usize) {
        self.header(if self.resp3 { b'>' } else { b'*' }, len as i64);
    }

    /// Writes the head of a map. The caller writes `pairs` keys and values next.
    pub fn map(&mut self, pairs: usize) {
        if self.resp3 {
            self.header(b'%', pairs as i64);
        } else {
            self.header(b'*', pairs as i64 * 2);
        }
    }

    /// Writes the head of a set. The caller writes its `len` values next.
    pub fn set(&mut self, len: usize) {
        self.header(if self.resp3 { b'~' } else { b'*' }, len as i64);
    }

    /// Writes a floating point number, which is a bulk string in RESP2.
    pub fn double(&mut self, value: f64) {
        match crate::number::as_whole(value) {
            Some(whole) => self.number(itoa::Buffer::new().format(whole)),
            None => self.number(&crate::number::format_double(value)),
        }
    }

    /// Writes a number's text, which is a bulk string in RESP2.
    pub fn number(&mut self, text: &str) {
        if self.resp3 {
            self.raw(b",");
            self.raw(text.as_bytes());
            self.raw(b"\r\n");
        } else {
            self.bulk(text.as_bytes());
        }
    }

    /// Writes a boolean, which is 1 or 0 in RESP2.
    pub fn boolean(&mut self, value: bool) {
        match (self.resp3, value) {
            (true, true) => self.raw(b"#t\r\n"),
            (true, false) => self.raw(b"#f\r\n"),
            (false, value) => self.int(i64::from(value)),
        }
    }

    /// Writes text for people, which is a bulk string in RESP2.
    pub fn verbatim(&mut self, text: &[u8]) {
        if !self.resp3 {
            return self.bulk(text);
        }
        if self.out.len() + text.len() + 40 > self.limit {
            self.overflowed = true;
            return;
        }
        self.header(b'=', text.len() as i64 + 4);
        self.out.extend_from_slice(b"txt:");
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Writes an array of simple strings, which is the form of every HELP.
    pub fn lines(&mut self, lines: &[&str]) {
        self.array(lines.len());
        for line in lines {
            self.simple(line);
        }
    }

    /// Writes `marker`, a number and CR LF.
    fn header(&mut self, marker: u8, value: i64) {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(value).as_bytes();
        let len = digits.len() + 3;
        if self.out.len() + len > self.limit {
            self.overflowed = true;
            return;
        }
        self.out.reserve(len);
        self.out.push(marker);
        self.out.extend_from_slice(digits);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Writes what is in the protocol's form already.
    pub fn raw(&mut self, bytes: &[u8]) {
        if self.out.len() + bytes.len() > self.limit {
            self.overflowed = true;
        } else {
            self.out.extend_from_slice(bytes);
        }
    }
}

impl Write for Reply<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.raw(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The word by which an error is counted: its first one, or `ERR` if that is long. Scripts write
/// errors of any length.
fn error_word(line: &[u8]) -> &[u8] {
    let end = line.iter().take(ERROR_WORD_BYTES_MAX + 1).position(|byte| *byte == b' ');
    end.map_or(&b"ERR"[..], |end| &line[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(resp3: bool, f: impl FnOnce(&mut Reply)) -> String {
        let mut out = Vec::new();
        f(&mut Reply::new(&mut out, resp3, 1 << 20));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn both_protocols_write_redis_forms() {
        let all = |r: &mut Reply| {
            r.map(1);
            r.null();
            r.null_array();
            r.boolean(true);
            r.double(1.5);
            r.verbatim(b"a");
            r.set(2);
            r.int(i64::MIN);
        };
        assert_eq!(
            written(false, all),
            "*2\r\n$-1\r\n*-1\r\n:1\r\n$3\r\n1.5\r\n$1\r\na\r\n*2\r\n:-9223372036854775808\r\n"
        );
        assert_eq!(
            written(true, all),
            "%1\r\n_\r\n_\r\n#t\r\n,1.5\r\n=5\r\ntxt:a\r\n~2\r\n:-9223372036854775808\r\n"
        );
    }

    #[test]
    fn an_error_stays_on_one_line() {
        assert_eq!(written(false, |r| r.error(&"ERR a\r\nb")), "-ERR a  b\r\n");
    }

    #[test]
    fn the_limit_is_never_passed() {
        let mut out = Vec::new();
        let mut reply = Reply::new(&mut out, false, 100);
        reply.bulk(&[0; 200]);
        assert!(reply.overflowed());
        for _ in 0..100 {
            reply.ok();
        }
        assert!(out.len() <= 100);
    }
}
