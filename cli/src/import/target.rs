//! The server that takes the data: commands go to it in pipelines, and each reply is looked at.

use std::collections::VecDeque;
use std::fmt;
use std::io::{BufReader, ErrorKind, Write};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};

use crate::connection::{Address, Stream, TlsOptions};

use super::wire::{Reply, put_command, read_bytes, read_reply};

/// Bytes and commands that are gathered before they are sent.
const BATCH_BYTES: usize = 256 << 10;
const BATCH_COMMANDS: usize = 1000;
/// Bytes of a key that an error shows.
const KEY_BYTES_SHOWN: usize = 80;
/// Time that the server may take for a batch.
const PATIENCE: Duration = Duration::from_secs(120);

/// The subject of a command, which an error names if the command is refused.
pub enum About {
    /// A key of a database: of a long name, the beginning.
    Key(Vec<u8>, u64),
    /// Something else, in words.
    Other(String),
}

impl About {
    /// A key of a database.
    pub fn key(key: &[u8], db: u64) -> Self {
        Self::Key(key[..key.len().min(KEY_BYTES_SHOWN)].to_vec(), db)
    }
}

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key, db) => write!(f, "key {:?} of database {db}", shown(key)),
            Self::Other(words) => f.write_str(words),
        }
    }
}

/// The beginning of a key for an error.
pub fn shown(key: &[u8]) -> String {
    String::from_utf8_lossy(&key[..key.len().min(KEY_BYTES_SHOWN)]).into_owned()
}

/// A server that takes commands.
pub struct Target {
    stream: BufReader<Stream>,
    address: String,
    batch: Vec<u8>,
    /// What the commands of the batch, and of the one before it, are about.
    about: VecDeque<About>,
    /// How many of these were sent.
    sent: usize,
    /// The database that commands go to.
    db: u64,
    /// Commands that were carried out.
    pub done: u64,
}

impl Target {
    /// Connects to a server. A password that is in the address goes before the other.
    pub fn connect(address: &Address, tls: &TlsOptions, password: Option<&str>) -> Result<Self> {
        let stream = Stream::connect(address, tls, PATIENCE)?;
        let (user, password) = match &address.password {
            Some(password) => (address.user.as_deref(), Some(&**password)),
            None => (None, password),
        };
        let mut target = Self {
            stream: BufReader::with_capacity(64 << 10, stream),
            address: address.place.clone(),
            batch: Vec::new(),
            about: VecDeque::new(),
            sent: 0,
            db: 0,
            done: 0,
        };
        match (user, password) {
            (Some(user), Some(password)) => target.ask(&["AUTH", user, password]).map(drop)?,
            (_, Some(password)) => target.ask(&["AUTH", password]).map(drop)?,
            _ => {}
        }
        Ok(target)
    }

    /// Sends one command, waits for its reply, and returns its text.
    ///
    /// # Errors
    /// The reply is an error.
    pub fn ask(&mut self, words: &[&str]) -> Result<String> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        match self.ask_bytes(&words)? {
            Reply::Text(text) => Ok(text),
            Reply::Other => Ok(String::new()),
            Reply::Error(words) if words.starts_with("NOAUTH") => bail!(
                "{}: the server wants a password (--password-file or PERDURA_PASSWORD for the one \
                 that takes the data, redis://:PASSWORD@HOST for the source)",
                self.address
            ),
            Reply::Error(error) => bail!(
                "{}: {} was refused: {error}",
                self.address,
                String::from_utf8_lossy(words[0])
            ),
        }
    }

    /// Sends one command and returns its reply.
    pub fn ask_bytes(&mut self, words: &[&[u8]]) -> Result<Reply> {
        self.finish()?;
        let mut request = Vec::new();
        put_command(&mut request, words);
        let address = self.address.clone();
        let talk = |error: std::io::Error| talk_failed(&address, &error);
        self.stream.get_mut().write_all(&request).map_err(talk)?;
        read_reply(&mut self.stream).map_err(talk)
    }

    /// Sends one command, and returns the bytes it is answered with.
    ///
    /// # Errors
    /// The reply is no string.
    pub fn ask_for_bytes(&mut self, words: &[&str]) -> Result<Vec<u8>> {
        self.finish()?;
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let mut request = Vec::new();
        put_command(&mut request, &words);
        let address = self.address.clone();
        let talk = |error: std::io::Error| talk_failed(&address, &error);
        self.stream.get_mut().write_all(&request).map_err(talk)?;
        match read_bytes(&mut self.stream).map_err(talk)? {
            Ok(bytes) => Ok(bytes),
            Err(other) => bail!("{}: expected bytes, found {other:?}", self.address),
        }
    }

    /// Lets commands go to a database from now on.
    pub fn select(&mut self, db: u64) -> Result<()> {
        if self.db != db {
            self.db = db;
            self.push(&[b"SELECT", db.to_string().as_bytes()], || {
                About::Other(format!("database {db}"))
            })?;
        }
        Ok(())
    }

    /// Sends a command in the next batch. `about` says what an error of it would be about.
    ///
    /// # Errors
    /// The server is gone, or has refused an earlier command.
    pub fn push(&mut self, words: &[&[u8]], about: impl FnOnce() -> About) -> Result<()> {
        put_command(&mut self.batch, words);
        self.about.push_back(about());
        if self.batch.len() >= BATCH_BYTES || self.about.len() - self.sent >= BATCH_COMMANDS {
            self.send()?;
        }
        Ok(())
    }

    /// Sends the batch, and reads the replies to the one before.
    fn send(&mut self) -> Result<()> {
        let before = self.sent;
        let address = self.address.clone();
        self.stream
            .get_mut()
            .write_all(&self.batch)
            .map_err(|error| talk_failed(&address, &error))?;
        self.batch.clear();
        self.batch.shrink_to(4 * BATCH_BYTES);
        self.sent = self.about.len();
        self.read(before)
    }

    /// Sends everything, and waits until it has been carried out.
    ///
    /// # Errors
    /// The server is gone, or has refused a command.
    pub fn finish(&mut self) -> Result<()> {
        if !self.batch.is_empty() {
            self.send()?;
        }
        self.read(self.sent)
    }

    fn read(&mut self, count: usize) -> Result<()> {
        for _ in 0..count {
            let reply = read_reply(&mut self.stream);
            let reply = reply.map_err(|error| talk_failed(&self.address, &error))?;
            let about = self.about.pop_front();
            self.sent -= 1;
            if let Reply::Error(words) = reply {
                let about = about.map_or_else(String::new, |about| about.to_string());
                bail!("{} refused {about}: {words}", self.address);
            }
            self.done += 1;
        }
        Ok(())
    }
}

fn talk_failed(address: &str, error: &std::io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            anyhow!("{address}: no answer for {} s: the server hangs", PATIENCE.as_secs())
        }
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
            anyhow!("{address}: the server has ended the connection")
        }
        _ => anyhow!("{address}: {error}"),
    }
}
