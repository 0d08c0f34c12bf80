//! A connection: its batch under way, and the replies that have come.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use crate::AnyError;

pub struct Connection {
    stream: TcpStream,
    /// Bytes of replies that are not whole yet.
    rest: Vec<u8>,
    /// Replies to come.
    left: usize,
    sent_at: Instant,
}

impl Connection {
    pub fn open(address: &str) -> Result<Self, AnyError> {
        let stream = TcpStream::connect(address).map_err(|e| format!("{address}: {e}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, rest: Vec::new(), left: 0, sent_at: Instant::now() })
    }

    /// Sends a batch of so many commands; the socket takes a batch without waiting, unless the
    /// server leaves its bytes unread.
    pub fn send(&mut self, batch: &[u8], commands: usize) -> Result<(), AnyError> {
        (self.left, self.sent_at) = (commands, Instant::now());
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
        let mut joined = std::mem::take(&mut self.rest);
        let bytes = match joined.is_empty() {
            true => &piece[..read],
            false => {
                joined.extend_from_slice(&piece[..read]);
                &joined[..]
            }
        };
        let mut at = 0;
        while self.left > 0
            && let Some(len) = reply_bytes(&bytes[at..])?
        {
            (at, self.left) = (at + len, self.left - 1);
        }
        self.rest = bytes[at..].to_vec();
        Ok((self.left == 0).then(|| self.sent_at.elapsed().as_secs_f64() * 1e3))
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

/// Bytes of the first reply: a simple string, a number, or a string of bytes. `None` if it is not
/// whole yet.
fn reply_bytes(bytes: &[u8]) -> Result<Option<usize>, AnyError> {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\r') else { return Ok(None) };
    let line = &bytes[..end];
    match line.first() {
        Some(b'+' | b':') => Ok(Some(end + 2).filter(|all| *all <= bytes.len())),
        Some(b'$') => match std::str::from_utf8(&line[1..])?.parse::<i64>()? {
            -1 => Err("a key is not there: run with --fill yes".into()),
            len => Ok(Some(end + 4 + usize::try_from(len)?).filter(|all| *all <= bytes.len())),
        },
        _ => Err(format!("the server answers {:?}", String::from_utf8_lossy(line)).into()),
    }
}
