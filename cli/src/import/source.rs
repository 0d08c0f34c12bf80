//! A running server as the source: it takes this program for a replica.
//!
//! First comes a dump of everything as of one moment, then every later command. How far both sides
//! are is told by the *offset*, bytes of the stream of commands.

use std::cell::RefCell;
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use perdura_rdb::{RdbError, Reader};
use perdura_terminal::LateBar;

use crate::connection::{Address, Stream, TlsOptions};

use super::follow::Follower;
use super::keys::{Taken, VALUE_BYTES_MAX, take};
use super::target::Target;
use super::wire::{Commands, Next, put_command, read_line};

/// Time that the source may be silent.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a look for further commands waits.
const LOOK: Duration = Duration::from_millis(50);
/// How often the source is told how far this side is.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// Bytes of the word at the end of a dump whose length is not known beforehand.
const MARK_BYTES: usize = 40;

/// The stream of commands of a source, after its dump.
pub struct Source {
    stream: Stream,
    place: String,
    commands: Commands,
    follower: Follower,
    /// How far the stream was read and carried out.
    pub offset: u64,
    told: Instant,
    heard: Instant,
    /// Bytes of a transaction that is not whole, behind the offset.
    pending: u64,
    piece: Vec<u8>,
}

/// How the dump comes.
enum Form {
    /// With its length before it.
    Sized(u64),
    /// With a word behind it.
    Marked(Vec<u8>),
}

impl Source {
    /// Connects to a source, and takes its dump.
    pub fn sync(
        address: &Address,
        tls: &TlsOptions,
        target: &mut Target,
        taken: &mut Taken,
    ) -> Result<Self> {
        let place = address.place.clone();
        let mut stream = Stream::connect(address, tls, PATIENCE)?;
        let (form, offset) = {
            let mut replies = BufReader::with_capacity(1, &mut stream);
            ask_for_sync(address, &mut replies).map_err(|error| lost(error, &place))?
        };
        let shared = RefCell::new(stream);
        let bar = LateBar::new("full sync");
        let mut told = Instant::now();
        let mut seen = |done: u64, keys: u64| {
            if told.elapsed() > TELL_EVERY {
                told = Instant::now();
                // An empty line says that this side is at work.
                shared.borrow_mut().write_all(b"\n").map_err(|error| lost(error.into(), &place))?;
            }
            match form {
                Form::Sized(all) => bar.bytes_of("keys", keys, done, all),
                Form::Marked(_) => bar.bytes_of("keys", keys, done, done),
            }
            Ok(())
        };
        let mut commands = Commands::default();
        match &form {
            Form::Sized(len) => {
                let mut reader = dump(Shared(&shared).take(*len), &place)?;
                let outcome = take(&mut reader, address.db, target, taken, &mut seen);
                outcome.map_err(|error| cut(error, &place, taken, target))?;
                if reader.offset() != *len {
                    bail!("{place}: the dump is shorter than the source has said");
                }
            }
            Form::Marked(mark) => {
                let mut reader = dump(Shared(&shared), &place)?;
                let outcome = take(&mut reader, address.db, target, taken, &mut seen);
                outcome.map_err(|error| cut(error, &place, taken, target))?;
                let (mut behind, mut rest) = reader.into_rest();
                while behind.len() < MARK_BYTES {
                    let mut more = [0; MARK_BYTES];
                    match rest.read(&mut more)? {
                        0 => return Err(lost(ended(), &place)),
                        len => behind.extend_from_slice(&more[..len]),
                    }
                }
                if behind[..MARK_BYTES] != mark[..] {
                    bail!("{place}: the dump does not end with the word that the source has said");
                }
                commands.feed(&behind[MARK_BYTES..]);
            }
        }
        bar.finish();
        let stream = shared.into_inner();
        stream.set_read_timeout(LOOK)?;
        let now = Instant::now();
        let (follower, piece) = (Follower::new(address.db), vec![0; 256 << 10]);
        let mut source = Self {
            stream,
            place,
            commands,
            follower,
            offset,
            told: now,
            heard: now,
            pending: 0,
            piece,
        };
        source.tell()?;
        Ok(source)
    }

    /// Carries out the commands that have come, and waits a moment for more. Returns whether there
    /// were any.
    pub fn step(&mut self, target: &mut Target) -> Result<bool> {
        match self.stream.read(&mut self.piece) {
            Ok(0) => return Err(lost(ended(), &self.place)),
            Ok(len) => {
                self.heard = Instant::now();
                self.commands.feed(&self.piece[..len]);
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {
                    if self.heard.elapsed() > PATIENCE {
                        bail!(
                            "{}: the source has been silent for {} s, at offset {}",
                            self.place,
                            PATIENCE.as_secs(),
                            self.offset
                        );
                    }
                }
                _ => return Err(lost(error.into(), &self.place)),
            },
        }
        let (mut read, mut whole) = (self.offset + self.pending, self.offset);
        let mut asks = false;
        loop {
            let at = || format!("{}: the stream at offset {read}", self.place);
            match self.commands.next_command().with_context(at)? {
                Next::Incomplete => break,
                Next::Nothing(len) => read += len,
                Next::Command(words, len) => {
                    read += len;
                    asks |= words[0].eq_ignore_ascii_case(b"replconf");
                    self.follower.take(words, target)?;
                }
            }
            if !self.follower.is_in_multi() {
                whole = read;
            }
        }
        target.finish()?;
        // In the middle of a transaction the stream is read on, and counts when that is whole.
        let went_on = whole > self.offset;
        (self.offset, self.pending) = (whole, read - whole);
        if asks || self.told.elapsed() > TELL_EVERY {
            self.tell()?;
        }
        Ok(went_on)
    }

    /// Commands that were carried out after the dump.
    pub fn commands(&self) -> u64 {
        self.follower.commands
    }

    /// Tells the source how far this side is.
    fn tell(&mut self) -> Result<()> {
        let mut words = Vec::new();
        put_command(&mut words, &[b"REPLCONF", b"ACK", self.offset.to_string().as_bytes()]);
        self.told = Instant::now();
        self.stream.write_all(&words).map_err(|error| lost(error.into(), &self.place))
    }
}

fn dump<R: Read>(stream: R, place: &str) -> Result<Reader<R>> {
    Reader::new(stream, VALUE_BYTES_MAX).map_err(|error| lost(error.into(), place))
}

/// The stream of a dump, which others write to between two reads.
struct Shared<'s>(&'s RefCell<Stream>);

impl Read for Shared<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.borrow_mut().read(buf)
    }
}

/// Says who this is, and asks for everything.
fn ask_for_sync(address: &Address, stream: &mut BufReader<&mut Stream>) -> Result<(Form, u64)> {
    let place = &address.place;
    if let Some(password) = &address.password {
        let mut words: Vec<&[u8]> = vec![b"AUTH"];
        words.extend(address.user.iter().map(String::as_bytes));
        words.push(password.as_bytes());
        let reply = ask(stream, &words)?;
        if reply != "+OK" {
            bail!("{place}: the source does not take the password: {reply}");
        }
    }
    let reply = ask(stream, &[b"REPLCONF", b"capa", b"eof", b"capa", b"psync2"])?;
    if reply.starts_with("-NOAUTH") {
        bail!(
            "{place}: the source wants a password: --source-password-file or \
               PERDURA_SOURCE_PASSWORD"
        );
    }
    if reply != "+OK" {
        bail!("{place}: the source takes no replicas: {}", reply.trim_start_matches('-'));
    }
    let reply = ask(stream, &[b"PSYNC", b"?", b"-1"])?;
    let offset = reply.strip_prefix("+FULLRESYNC ").and_then(|rest| rest.split(' ').nth(1));
    let Some(offset) = offset.and_then(|offset| offset.parse().ok()) else {
        bail!("{place}: the source gives no full sync: {}", reply.trim_start_matches(['-', '+']));
    };
    let head = line(stream)?;
    let form = match head.strip_prefix("$") {
        Some(rest) => match rest.strip_prefix("EOF:") {
            Some(mark) if mark.len() == MARK_BYTES => Form::Marked(mark.as_bytes().to_vec()),
            Some(_) => bail!("{place}: the end of the dump is said in an unknown way: {head}"),
            None => Form::Sized(rest.parse().with_context(|| format!("{place}: {head}"))?),
        },
        None => bail!("{place}: expected a dump, found {head:?}"),
    };
    Ok((form, offset))
}

fn ask(stream: &mut BufReader<&mut Stream>, words: &[&[u8]]) -> Result<String> {
    let mut request = Vec::new();
    put_command(&mut request, words);
    stream.get_mut().write_all(&request)?;
    line(stream)
}

/// Reads a line; empty ones say that the source is at work.
fn line(replies: &mut BufReader<&mut Stream>) -> Result<String> {
    loop {
        let line = read_line(replies)?;
        if !line.is_empty() {
            return Ok(String::from_utf8_lossy(&line).into_owned());
        }
    }
}

fn ended() -> anyhow::Error {
    std::io::Error::from(ErrorKind::UnexpectedEof).into()
}

/// Says that the connection to the source was lost, if that is what the error is.
fn lost(error: anyhow::Error, place: &str) -> anyhow::Error {
    let io = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
    match io.map(std::io::Error::kind) {
        Some(ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            anyhow!("{place}: the source has been silent for {} s", PATIENCE.as_secs())
        }
        Some(ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
            anyhow!("{place}: the source has ended the connection")
        }
        _ => error.context(place.to_owned()),
    }
}

/// Says what is at the target, when a dump could not be taken to its end.
fn cut(error: anyhow::Error, place: &str, taken: &Taken, target: &mut Target) -> anyhow::Error {
    let is_cut = matches!(
        error.downcast_ref::<RdbError>(),
        Some(RdbError::Truncated { .. } | RdbError::Io { .. })
    );
    let error = match is_cut {
        true => anyhow!("{place}: the source is gone in the middle of the full sync: {error}"),
        false => error,
    };
    let so_far = taken.so_far(target);
    error.context(format!("{so_far}, and later changes were not; begin anew with --flush"))
}
