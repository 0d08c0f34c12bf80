//! The request parser: multibulk and inline commands, incremental, without copies.
//!
//! The parser owns its position in the current frame, and the places of the arguments in it.
//! Invariants:
//! - The caller always passes the bytes from the start of the frame. While [`Step::Incomplete`] is
//!   returned, the bytes may only grow at the end, so no byte is read twice.
//! - The result depends on the bytes alone, never on how they were split over calls. Limits are
//!   therefore checked on declared lengths, not on the number of bytes that have arrived.
//! - The frames that [`Parser::step_on`] finds are kept until the next [`Parser::step`], so that a
//!   whole pipeline can be read before its first command is carried out.
//! - A span takes 8 bytes and stands for at least 6 received bytes (2 in an inline command, which
//!   is at most 64 KiB long). A declared count or length reserves nothing, so memory is bounded by
//!   the bytes that have arrived.
//!
//! Failure rule: after a [`ProtocolError`] nobody knows where the next request begins, so the
//! connection must be closed.

use super::inline;

/// The limits of one request. A value that is equal to its limit is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most arguments of one command.
    pub args_max: usize,
    /// Most bytes of one argument.
    pub bulk_max_bytes: usize,
    /// Most bytes of an inline command or of a header line.
    pub inline_max_bytes: usize,
    /// Most bytes of one whole command; more than 4 GiB - 1 is taken as 4 GiB - 1.
    pub frame_max_bytes: usize,
    /// Whether the client has not given the password yet: then a command has at most 10 arguments
    /// of 16 KiB, as in Redis.
    pub unauthenticated: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            args_max: 1 << 20,
            bulk_max_bytes: 512 << 20,
            inline_max_bytes: 64 << 10,
            frame_max_bytes: 1 << 30,
            unauthenticated: false,
        }
    }
}

/// Why a byte stream is not a request; the texts are Redis's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The number after `*` is missing or beyond the limit.
    #[error("Protocol error: invalid multibulk length")]
    MultibulkLength,
    /// The command has too many arguments for a client that has not given the password.
    #[error("Protocol error: unauthenticated multibulk length")]
    MultibulkUnauthenticated,
    /// The line after `*` does not end.
    #[error("Protocol error: too big mbulk count string")]
    MultibulkLine,
    /// An argument does not begin with `$`.
    #[error("Protocol error: expected '$', got '{}'", *.0 as char)]
    ExpectedBulk(u8),
    /// The number after `$` is missing or beyond the limit.
    #[error("Protocol error: invalid bulk length")]
    BulkLength,
    /// An argument is too long for a client that has not given the password.
    #[error("Protocol error: unauthenticated bulk length")]
    BulkUnauthenticated,
    /// The line after `$` does not end.
    #[error("Protocol error: too big bulk count string")]
    BulkLine,
    /// A line or an argument is not followed by CR LF. Redis does not check this, but it is safer
    /// to stop a stream whose commands begin at unknown places than to execute it.
    #[error("Protocol error: expected CRLF")]
    ExpectedCrlf,
    /// An inline command is longer than the limit.
    #[error("Protocol error: too big inline request")]
    InlineTooBig,
    /// A quoted argument of an inline command is not closed.
    #[error("Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
    /// The command as a whole is longer than the limit.
    #[error("Protocol error: too big request")]
    FrameTooBig,
}

/// An argument's place in its buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    start: u32,
    len: u32,
}

impl Span {
    /// The place of `len` bytes from `start` on, both below 4 GiB.
    pub(crate) fn new(start: usize, len: usize) -> Self {
        span(start, len)
    }
}

/// The arguments of one command; the first one is the command's name.
#[derive(Debug, Clone, Copy)]
pub struct Args<'a> {
    buf: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Args<'a> {
    /// Joins spans that a [`Parser`] made with the bytes in which they lie.
    pub fn new(buf: &'a [u8], spans: &'a [Span]) -> Self {
        Self { buf, spans }
    }

    /// Number of arguments, the name included.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there are no arguments, not even a name.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The argument at `index`; empty beyond the last one, because handlers run only after the
    /// number of arguments was checked.
    pub fn get(&self, index: usize) -> &'a [u8] {
        match self.spans.get(index) {
            Some(span) => &self.buf[span.start as usize..(span.start + span.len) as usize],
            None => &[],
        }
    }

    /// The arguments from `first` on.
    pub fn from(self, first: usize) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone {
        let spans = self.spans.get(first..).unwrap_or(&[]);
        spans.iter().map(move |s| &self.buf[s.start as usize..(s.start + s.len) as usize])
    }

    /// The arguments without the first `count`.
    pub fn skip(self, count: usize) -> Self {
        Self { buf: self.buf, spans: self.spans.get(count..).unwrap_or(&[]) }
    }

    /// Copies the bytes of the arguments, and makes spans for the copy; for the queue of a
    /// transaction.
    pub fn to_owned(self) -> (Box<[u8]>, Box<[Span]>) {
        self.to_owned_with(&[])
    }

    /// Copies the arguments as [`Args::to_owned`] does, with others in the place of some, by their
    /// index.
    pub fn to_owned_with(self, instead: &[(usize, Vec<u8>)]) -> (Box<[u8]>, Box<[Span]>) {
        let mut bytes = Vec::with_capacity(self.from(0).map(<[u8]>::len).sum());
        let mut spans = Vec::with_capacity(self.len());
        for (at, arg) in self.from(0).enumerate() {
            let other = instead.iter().find(|(index, _)| *index == at);
            let arg = other.map_or(arg, |(_, other)| other);
            spans.push(span(bytes.len(), arg.len()));
            bytes.extend_from_slice(arg);
        }
        (bytes.into_boxed_slice(), spans.into_boxed_slice())
    }
}

/// The result of a call to [`Parser::step`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A whole command. [`Parser::args`] gives its arguments until the next step.
    Command {
        /// Length of the frame, bytes.
        consumed: usize,
    },
    /// An empty line or an empty array, which is no command and gets no reply.
    Empty {
        /// Length of the frame, bytes.
        consumed: usize,
    },
    /// The frame is not complete: more bytes are needed.
    Incomplete,
}

/// The state of one command that is partly received, and of whole commands before it.
#[derive(Debug, Default)]
pub struct Parser {
    /// Arguments of the frames that are kept, then those of the current frame.
    spans: Vec<Span>,
    /// Index of the current frame's first span.
    first: usize,
    /// Arguments of inline commands, with quotes and escapes resolved.
    scratch: Vec<u8>,
    /// Whether the current frame is an inline command.
    inline: bool,
    /// The first byte of the frame that has not been parsed.
    pos: usize,
    /// While a line is being received: the first byte that was not searched for the line's end.
    scanned: usize,
    /// Arguments of the frame that are still to come; `None`: the frame has not begun.
    args_left: Option<usize>,
    /// Length of the argument whose bytes come next, bytes; `None`: its header comes first.
    bulk_len: Option<usize>,
}

/// One of the commands that a parser keeps.
#[derive(Debug, Clone, Copy)]
pub struct Frame {
    /// Index of its first span.
    first: u32,
    /// Index behind its last span.
    end: u32,
    /// Whether it is an inline command.
    inline: bool,
}

impl Parser {
    /// Continues with the frame that begins at `buf[0]`, and forgets the frames before it.
    ///
    /// # Errors
    /// The bytes are not a request within `limits`.
    pub fn step(&mut self, buf: &[u8], limits: &Limits) -> Result<Step, ProtocolError> {
        if self.args_left.is_none() && self.pos != 0 {
            self.restart();
        } else if self.first > 0 {
            // The scratch bytes are those of earlier frames: an inline frame is parsed when all of
            // it has arrived.
            self.scratch.clear();
            self.spans.drain(..self.first);
            self.spans.shrink_to(1024);
            self.first = 0;
        }
        self.go_on(buf, limits)
    }

    /// Begins with the frame at `buf[0]` and keeps the frames before it, all of which are whole.
    /// After an error the frame may be tried again.
    ///
    /// # Errors
    /// The bytes are not a request within `limits`.
    pub fn step_on(&mut self, buf: &[u8], limits: &Limits) -> Result<Step, ProtocolError> {
        debug_assert!(self.args_left.is_none());
        self.begin();
        let step = self.go_on(buf, limits);
        if step.is_err() {
            self.spans.truncate(self.first);
            self.args_left = None;
            self.begin();
        }
        step
    }

    /// Forgets all frames. The next bytes begin a frame.
    pub fn restart(&mut self) {
        self.spans.clear();
        self.scratch.clear();
        // The memory for one huge command is given back.
        self.spans.shrink_to(1024);
        self.scratch.shrink_to(4096);
        self.args_left = None;
        self.begin();
    }

    fn begin(&mut self) {
        self.first = self.spans.len();
        self.inline = false;
        self.pos = 0;
        self.scanned = 0;
        self.bulk_len = None;
    }

    fn go_on(&mut self, buf: &[u8], limits: &Limits) -> Result<Step, ProtocolError> {
        if self.args_left.is_none() {
            match buf.first() {
                None => return Ok(Step::Incomplete),
                Some(b'*') if self.whole(buf, limits) => {
                    return Ok(Step::Command { consumed: self.pos });
                }
                Some(b'*') => match self.count_line(buf, limits)? {
                    None => return Ok(Step::Incomplete),
                    Some(0) => return Ok(Step::Empty { consumed: self.pos }),
                    Some(count) => self.args_left = Some(count),
                },
                Some(_) => return self.inline_line(buf, limits),
            }
        }
        while let Some(left @ 1..) = self.args_left {
            if !self.argument(buf, limits)? {
                return Ok(Step::Incomplete);
            }
            self.args_left = Some(left - 1);
        }
        self.args_left = None;
        Ok(Step::Command { consumed: self.pos })
    }

    /// The arguments of the command that the last step found in `buf`.
    pub fn args<'a>(&'a self, buf: &'a [u8]) -> Args<'a> {
        self.args_of(self.frame(), buf)
    }

    /// The command that the last step found.
    pub fn frame(&self) -> Frame {
        Frame { first: self.first as u32, end: self.spans.len() as u32, inline: self.inline }
    }

    /// The arguments of a kept command, which began at `buf[0]`.
    pub fn args_of<'a>(&'a self, frame: Frame, buf: &'a [u8]) -> Args<'a> {
        let spans = &self.spans[frame.first as usize..frame.end as usize];
        Args::new(if frame.inline { &self.scratch } else { buf }, spans)
    }

    /// Whether a frame has begun and is not complete.
    pub fn is_partial(&self) -> bool {
        self.args_left.is_some()
    }

    /// Memory that the parser has allocated, bytes.
    pub fn memory_bytes(&self) -> usize {
        self.spans.capacity() * size_of::<Span>() + self.scratch.capacity()
    }

    /// Parses a frame of few arguments of which all bytes have arrived, which is the usual case.
    /// False: the frame is of another kind, the parser is as it was, and the general way decides.
    fn whole(&mut self, buf: &[u8], lim: &Limits) -> bool {
        if lim.unauthenticated || lim.inline_max_bytes < DIGITS_MAX || self.scanned > 0 {
            return false;
        }
        let Some((count @ 1..=WHOLE_ARGS_MAX, mut at)) = number_line(buf, 1) else { return false };
        if count > lim.args_max {
            return false;
        }
        for _ in 0..count {
            let end = match (buf.get(at), number_line(buf, at + 1)) {
                (Some(b'$'), Some((len, text))) if len <= lim.bulk_max_bytes => {
                    self.spans.push(span(text, len));
                    text + len
                }
                _ => 0,
            };
            if end == 0 || buf.get(end..end + 2) != Some(b"\r\n") || end + 2 > lim.frame_max_bytes {
                self.spans.truncate(self.first);
                return false;
            }
            at = end + 2;
        }
        self.pos = at;
        true
    }

    fn count_line(&mut self, buf: &[u8], lim: &Limits) -> Result<Option<usize>, ProtocolError> {
        let Some(line) = self.header(buf, lim, ProtocolError::MultibulkLine)? else {
            return Ok(None);
        };
        let count = length(line).ok_or(ProtocolError::MultibulkLength)?;
        if count > lim.args_max as i64 {
            return Err(ProtocolError::MultibulkLength);
        }
        if lim.unauthenticated && count > 10 {
            return Err(ProtocolError::MultibulkUnauthenticated);
        }
        Ok(Some(usize::try_from(count).unwrap_or(0)))
    }

    /// Reads one `$len CRLF bytes CRLF`; false when more bytes are needed.
    fn argument(&mut self, buf: &[u8], lim: &Limits) -> Result<bool, ProtocolError> {
        let len = match self.bulk_len {
            Some(len) => len,
            None => {
                match buf.get(self.pos) {
                    None => return Ok(false),
                    Some(b'$') => {}
                    Some(other) => return Err(ProtocolError::ExpectedBulk(*other)),
                }
                let Some(line) = self.header(buf, lim, ProtocolError::BulkLine)? else {
                    return Ok(false);
                };
                let len = length(line)
                    .and_then(|n| usize::try_from(n).ok())
                    .filter(|n| *n <= lim.bulk_max_bytes)
                    .ok_or(ProtocolError::BulkLength)?;
                if lim.unauthenticated && len > 16 << 10 {
                    return Err(ProtocolError::BulkUnauthenticated);
                }
                if self.pos + len + 2 > lim.frame_max_bytes.min(u32::MAX as usize) {
                    return Err(ProtocolError::FrameTooBig);
                }
                self.bulk_len = Some(len);
                len
            }
        };
        let end = self.pos + len;
        // A wrong first byte is an error at once, so that the result does not depend on whether the
        // second byte has arrived.
        match (buf.get(end), buf.get(end + 1)) {
            (Some(b'\r'), Some(b'\n')) => {}
            (Some(b'\r') | None, None) => return Ok(false),
            _ => return Err(ProtocolError::ExpectedCrlf),
        }
        self.spans.push(span(self.pos, len));
        self.pos = end + 2;
        self.scanned = self.pos;
        self.bulk_len = None;
        Ok(true)
    }

    /// Reads the text between the marker at `pos` and CR LF, and moves `pos` behind CR LF.
    fn header<'b>(
        &mut self,
        buf: &'b [u8],
        lim: &Limits,
        too_long: ProtocolError,
    ) -> Result<Option<&'b [u8]>, ProtocolError> {
        let text = self.pos + 1;
        let from = self.scanned.max(text);
        let found = buf.get(from..).unwrap_or(&[]).iter().position(|b| *b == b'\r');
        let end = from + found.unwrap_or(buf.len().saturating_sub(from));
        if end.saturating_sub(text) > lim.inline_max_bytes {
            return Err(too_long);
        }
        self.scanned = end;
        if found.is_none() {
            return Ok(None);
        }
        match buf.get(end + 1) {
            None => Ok(None),
            Some(b'\n') => {
                self.pos = end + 2;
                self.scanned = self.pos;
                Ok(Some(&buf[text..end]))
            }
            Some(_) => Err(ProtocolError::ExpectedCrlf),
        }
    }

    fn inline_line(&mut self, buf: &[u8], lim: &Limits) -> Result<Step, ProtocolError> {
        let from = self.scanned;
        let found = buf[from..].iter().position(|b| *b == b'\n');
        let end = from + found.unwrap_or(buf.len() - from);
        if end > lim.inline_max_bytes {
            return Err(ProtocolError::InlineTooBig);
        }
        self.scanned = end;
        if found.is_none() {
            return Ok(Step::Incomplete);
        }
        let line = buf[..end].strip_suffix(b"\r").unwrap_or(&buf[..end]);
        self.inline = true;
        self.pos = end + 1;
        let (scratch, spans) = (&mut self.scratch, &mut self.spans);
        inline::split(line, scratch, |start, len| spans.push(span(start, len)))?;
        let consumed = end + 1;
        Ok(if spans.len() == self.first {
            Step::Empty { consumed }
        } else {
            Step::Command { consumed }
        })
    }
}

/// Makes a span. Both numbers fit 32 bits, because a frame is at most `u32::MAX` bytes long, which
/// is checked when a length is declared.
fn span(start: usize, len: usize) -> Span {
    Span { start: start as u32, len: len as u32 }
}

/// Most arguments of a frame that [`Parser::whole`] takes.
const WHOLE_ARGS_MAX: usize = 64;
/// Most digits of a number in such a frame.
const DIGITS_MAX: usize = 7;

/// Reads the number at `at`, which has few digits, and finds where the line behind it begins.
#[inline(always)]
fn number_line(buf: &[u8], at: usize) -> Option<(usize, usize)> {
    // Most are of one digit or two.
    match buf.get(at..)? {
        [a @ b'0'..=b'9', b'\r', b'\n', ..] => return Some((usize::from(a - b'0'), at + 3)),
        [a @ b'1'..=b'9', b @ b'0'..=b'9', b'\r', b'\n', ..] => {
            return Some((usize::from(a - b'0') * 10 + usize::from(b - b'0'), at + 4));
        }
        _ => {}
    }
    let mut value = 0;
    for (index, byte) in buf.get(at..)?.iter().take(DIGITS_MAX + 1).enumerate() {
        match byte {
            b'0'..=b'9' if index == 0 || value != 0 => {
                value = value * 10 + usize::from(byte - b'0')
            }
            b'\r' if index > 0 => {
                let end = at + index;
                return (buf.get(end + 1) == Some(&b'\n')).then_some((value, end + 2));
            }
            _ => return None,
        }
    }
    None
}

/// Reads a decimal number as Redis does: with or without a minus; a plus, leading zeros and blanks
/// are refused.
fn length(text: &[u8]) -> Option<i64> {
    if let [b'0'..=b'9'] = text {
        return Some(i64::from(text[0] - b'0'));
    }
    crate::number::parse_i64(text)
}
