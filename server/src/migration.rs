//! Moving keys to another server, on a thread beside the event loop: the loop goes on with other
//! clients meanwhile, and is woken when the other server has answered.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use crate::shared::Bell;

/// Most bytes of one line of a reply that are believed.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// What the other server is asked for, in this order.
#[derive(Debug, Default)]
pub(crate) struct Errand {
    pub host: String,
    pub port: u16,
    /// User and password, or the password alone.
    pub auth: Vec<Vec<u8>>,
    pub db: u64,
    /// For connecting, and for each reply.
    pub timeout: Duration,
    pub replaces: bool,
    pub keys: Vec<Cargo>,
}

/// A key on its way.
#[derive(Debug)]
pub(crate) struct Cargo {
    pub key: Vec<u8>,
    /// Time to live in milliseconds, 0: no end; and the payload. `None`: the key is removed there,
    /// because it is gone here.
    pub value: Option<(u64, Vec<u8>)>,
}

/// What became of it.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Whether each key was taken, in their order.
    pub taken: Vec<bool>,
    /// The first thing that went wrong.
    pub error: Option<Failure>,
}

/// Why keys were not taken.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The connection failed.
    Io { doing: &'static str, why: String },
    /// The other server refused, in these words.
    Refused(String),
}

/// An errand that is under way, or done.
#[derive(Debug)]
pub(crate) struct Migration {
    outcome: Receiver<Outcome>,
    /// The thread has another reference to it, until its outcome is there.
    is_running: Arc<()>,
    /// One of the loop's; it counts how many there are.
    _token: Arc<()>,
}

impl Migration {
    /// Begins an errand. The bell rings when it is done.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn begin(errand: Errand, bell: Arc<Bell>, token: Arc<()>) -> io::Result<Self> {
        let (sender, outcome) = mpsc::sync_channel(1);
        let is_running = Arc::new(());
        let runs = Arc::clone(&is_running);
        let run = move || {
            // A client that is gone is not told.
            let _ = sender.send(errand.run());
            drop(runs);
            bell.ring();
        };
        std::thread::Builder::new().name("migrate".to_owned()).spawn(run)?;
        Ok(Self { outcome, is_running, _token: token })
    }

    /// Whether the outcome is there.
    pub fn is_done(&self) -> bool {
        Arc::strong_count(&self.is_running) == 1
    }

    /// The outcome, which is there.
    pub fn take(self) -> Outcome {
        self.outcome.recv().unwrap_or_else(|_| {
            let why = "the thread has panicked".to_owned();
            let error = Some(Failure::Io { doing: "moving keys", why });
            Outcome { taken: Vec::new(), error }
        })
    }
}

impl Errand {
    fn run(&self) -> Outcome {
        let mut taken = vec![false; self.keys.len()];
        let error = self.transfer(&mut taken).err();
        Outcome { taken, error }
    }

    fn transfer(&self, taken: &mut [bool]) -> Result<(), Failure> {
        let failed = |doing| move |error: io::Error| Failure::Io { doing, why: error.to_string() };
        let mut stream = self.connect().map_err(failed("connecting to the target instance"))?;
        let (writing, reading) = ("writing to target instance", "reading from target instance");
        let mut replies = BufReader::new(stream.try_clone().map_err(failed(writing))?);
        let mut refused = None;
        let mut asked = Vec::new();
        if !self.auth.is_empty() {
            put_command(&mut asked, &[&[&b"AUTH"[..]], &self.words_of_auth()[..]].concat());
        }
        put_command(&mut asked, &[b"SELECT", self.db.to_string().as_bytes()]);
        stream.write_all(&asked).map_err(failed(writing))?;
        for _ in 0..1 + usize::from(!self.auth.is_empty()) {
            reply(&mut replies).map_err(failed(reading))?.map_err(Failure::Refused)?;
        }
        // A window of keys: payloads are long, and so neither side waits for the other.
        for (keys, taken) in self.keys.chunks(WINDOW).zip(taken.chunks_mut(WINDOW)) {
            asked.clear();
            for cargo in keys {
                match &cargo.value {
                    None => put_command(&mut asked, &[b"DEL", &cargo.key]),
                    Some((ttl_ms, payload)) => {
                        let ttl = ttl_ms.to_string();
                        let mut words: Vec<&[u8]> =
                            vec![b"RESTORE", &cargo.key, ttl.as_bytes(), payload];
                        if self.replaces {
                            words.push(b"REPLACE");
                        }
                        put_command(&mut asked, &words);
                    }
                }
            }
            stream.write_all(&asked).map_err(failed(writing))?;
            for taken in taken {
                match reply(&mut replies).map_err(failed(reading))? {
                    Ok(()) => *taken = true,
                    Err(words) => {
                        refused.get_or_insert(words);
                    }
                }
            }
        }
        refused.map_or(Ok(()), |words| Err(Failure::Refused(words)))
    }

    fn words_of_auth(&self) -> Vec<&[u8]> {
        self.auth.iter().map(Vec::as_slice).collect()
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let mut error = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in (self.host.as_str(), self.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, self.timeout) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(self.timeout))?;
                    stream.set_write_timeout(Some(self.timeout))?;
                    stream.set_nodelay(true)?;
                    return Ok(stream);
                }
                Err(other) => error = other,
            }
        }
        Err(error)
    }
}

/// Keys that are sent before their replies are read.
const WINDOW: usize = 16;

fn put_command(out: &mut Vec<u8>, words: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// Reads a reply of one line: an error's words without the dash.
fn reply(from: &mut impl BufRead) -> io::Result<Result<(), String>> {
    let mut line = Vec::new();
    io::Read::take(&mut *from, LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    match line.first() {
        None => Err(io::ErrorKind::UnexpectedEof.into()),
        Some(b'+' | b':') if line.ends_with(b"\n") => Ok(Ok(())),
        Some(b'-') if line.ends_with(b"\n") => {
            Ok(Err(String::from_utf8_lossy(&line[1..]).trim_end().to_owned()))
        }
        Some(_) => Err(io::Error::new(io::ErrorKind::InvalidData, "not a reply of a server")),
    }
}
