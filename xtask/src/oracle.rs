//! A client of a server that is cut again and again, and that knows every state that the store may
//! be in.
//!
//! Write number n sets key n % KEYS to a value that names n and the run of the server in which it
//! was written. So the whole state after n writes is known. An old value beside a new one is found,
//! and so is a write that an earlier cut had undone and that came back. Only the standard library
//! is used, because the module is a part of a guest's program too, which has no other.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// How many keys there are: few, so that each is overwritten often and the log is compacted.
const KEYS: u64 = 1_000;
/// Writes that are on their way at a time.
pub const PIPELINE: u64 = 16;
const PATIENCE: Duration = Duration::from_secs(60);

/// How a run of writes ended.
pub struct Written {
    /// How many writes were acknowledged, counted from 0.
    pub acked: u64,
    /// The server's words, if it refused the next write; otherwise the connection ended.
    pub refusal: Option<String>,
}

/// A connection to the server.
pub struct Oracle {
    connection: BufReader<TcpStream>,
}

impl Oracle {
    /// Connects to the server if it serves now.
    pub fn try_connect(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { connection: BufReader::new(stream) })
    }

    /// The number of writes after which the store has this state; an error if there is no such
    /// number. `starts` are the first writes of the earlier runs.
    pub fn verify(&mut self, starts: &[u64]) -> io::Result<u64> {
        let mut values = Vec::new();
        for from in (0..KEYS).step_by(100) {
            let keys = from..from + 100;
            let asked: String =
                keys.clone().map(|key| request(&["GET", &format!("key:{key}")])).collect();
            self.connection.get_mut().write_all(asked.as_bytes())?;
            for _ in keys {
                values.push(bulk_reply(&mut self.connection)?);
            }
        }
        let number = |value: &String| -> Option<u64> { value.get(..8)?.parse().ok() };
        let newest = values.iter().flatten().filter_map(number).max();
        let count = newest.map_or(0, |n| n + 1);
        for (key, found) in (0..KEYS).zip(&values) {
            let last_write = count.checked_sub(key + 1).map(|rest| key + rest / KEYS * KEYS);
            let expected = last_write.map(|n| {
                let run = starts.iter().rposition(|start| *start <= n).unwrap_or(0);
                value(n, run)
            });
            if *found != expected {
                let (found, expected) = (shown(found), shown(&expected));
                let place = format!("key {key} after {count} writes, runs from {starts:?}");
                return Err(io::Error::other(format!("{place}: {found}, expected {expected}")));
            }
        }
        Ok(count)
    }

    /// Writes from number `from` on until the connection ends or a write is refused. `note` is told
    /// after each group how many writes were acknowledged, counted from 0.
    pub fn write(&mut self, from: u64, run: usize, mut note: impl FnMut(u64)) -> Written {
        let mut acked = from;
        let mut line = String::new();
        loop {
            let requests: String = (acked..acked + PIPELINE)
                .map(|n| request(&["SET", &format!("key:{}", n % KEYS), &value(n, run)]))
                .collect();
            if self.connection.get_mut().write_all(requests.as_bytes()).is_err() {
                return Written { acked, refusal: None };
            }
            for _ in 0..PIPELINE {
                line.clear();
                if self.connection.read_line(&mut line).is_err() || !line.ends_with('\n') {
                    return Written { acked, refusal: None };
                }
                if line != "+OK\r\n" {
                    return Written { acked, refusal: Some(line) };
                }
                acked += 1;
            }
            note(acked);
        }
    }
}

/// The value of write `n`. Its length varies, and it spans several grains.
fn value(n: u64, run: usize) -> String {
    format!("{n:08}/{run}.").repeat(30 + (n % 70) as usize)
}

fn shown(value: &Option<String>) -> String {
    value.as_ref().map_or("nothing".into(), |v| format!("{:.11}… of {} bytes", v, v.len()))
}

fn request(words: &[&str]) -> String {
    let bulks: String = words.iter().map(|w| format!("${}\r\n{w}\r\n", w.len())).collect();
    format!("*{}\r\n{bulks}", words.len())
}

fn bulk_reply(connection: &mut BufReader<TcpStream>) -> io::Result<Option<String>> {
    let mut line = String::new();
    connection.read_line(&mut line)?;
    match line.trim_end().strip_prefix('$').map(str::parse::<i64>) {
        Some(Ok(-1)) => Ok(None),
        Some(Ok(len @ 0..=65_536)) => {
            let mut bytes = vec![0; len as usize + 2];
            connection.read_exact(&mut bytes)?;
            bytes.truncate(len as usize);
            Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
        }
        _ => Err(io::Error::other(format!("a reply to GET: {line:?}"))),
    }
}
