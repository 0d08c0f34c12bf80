//! A connection: its batch under way, and the replies that have come.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use crate::AnyError;

pub struct Connection {
    stream: TcpStream,
    /// Bytes of a line that is not whole yet.
    line: Vec<u8>,
    /// Bytes of a string that are still to come, its end of line included.
    skipped: usize,
    /// Replies, and elements of replies that are arrays, to come.
    left: usize,
    due: Instant,
}

impl Connection {
    pub fn open(address: &str) -> Result<Self, AnyError> {
        let stream = TcpStream::connect(address).map_err(|e| format!("{address}: {e}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, line: Vec::new(), skipped: 0, left: 0, due: Instant::now() })
    }

    /// Sends a batch of so many commands, which was due at this time; the socket takes a batch
    /// without waiting, unless the server leaves its bytes unread.
    pub fn send(&mut self, batch: &[u8], commands: usize, due: Instant) -> Result<(), AnyError> {
        (self.left, self.due) = (commands, due);
        Ok(self.stream.write_all(batch)?)
    }

    /// Reads once, and says whether all replies have come and how long that took, in milliseconds.
    pub fn receive(&mut self, piece: &mut [u8]) -> Result<Option<f64>, AnyError> {
        let read = match self.stream.read(piece) {
            Ok(0) => return Err("the server has closed the connection".into()),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut bytes = &piece[..read];
        while !bytes.is_empty() {
            let passed = self.skipped.min(bytes.len());
            (self.skipped, bytes) = (self.skipped - passed, &bytes[passed..]);
            let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
                self.line.extend_from_slice(bytes);
                break;
            };
            match self.line.is_empty() {
                true => self.take(&bytes[..end])?,
                false => {
                    let mut line = std::mem::take(&mut self.line);
                    line.extend_from_slice(&bytes[..end]);
                    self.take(&line)?;
                }
            }
            bytes = &bytes[end + 1..];
        }
        let is_over = self.left == 0 && self.skipped == 0 && self.line.is_empty();
        Ok(is_over.then(|| self.due.elapsed().as_secs_f64() * 1e3))
    }

    /// Counts what a line says, of a reply or an element.
    fn take(&mut self, line: &[u8]) -> Result<(), AnyError> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let wrong = || format!("the server answers {:?}", String::from_utf8_lossy(line));
        self.left = self.left.checked_sub(1).ok_or_else(wrong)?;
        let number = |digits: &[u8]| Ok::<i64, AnyError>(std::str::from_utf8(digits)?.parse()?);
        match line.split_first() {
            Some((b'+' | b':', _)) => Ok(()),
            Some((b'$', digits)) => match usize::try_from(number(digits)?) {
                Ok(len) => {
                    self.skipped = len + 2;
                    Ok(())
                }
                Err(_) => Err("a key or an element is not there: run with --fill yes".into()),
            },
            Some((b'*', digits)) => {
                self.left += usize::try_from(number(digits)?)?;
                Ok(())
            }
            _ => Err(wrong().into()),
        }
    }

    /// Waits for all replies.
    pub fn finish(&mut self, piece: &mut [u8]) -> Result<(), AnyError> {
        while self.receive(piece)?.is_none() {}
        Ok(())
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
