//! A vault on another machine, behind `ssh`: there `perdura backup receive PATH` keeps a directory,
//! and answers over its standard input and output. Neither side trusts the other's names.
//!
//! ```text
//! greeting  "PRDRECV1"                                        from the receiver
//! request   operation u8 | name length u32 | body length u64 | name | body
//! answer    0: done, 1: failed, 2: not there, 3: there already, u8 | length u64 | bytes, or why
//! ```
//! Numbers are little-endian. A listing is text, a line for each folder (`F NAME`) and object
//! (`O BYTES NAME`).

use std::io::{BufReader, BufWriter, ErrorKind, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use parking_lot::Mutex;

use super::{Directory, Listed, Listing, Vault, VaultError};
use crate::error::BackupError;
use crate::urls::without_password;

const GREETING: &[u8; 8] = b"PRDRECV1";
const PUT: u8 = 1;
const GET: u8 = 2;
const LIST: u8 = 3;
const DELETE: u8 = 4;
const PUT_NEW: u8 = 5;
const TIDY: u8 = 6;
const DONE: u8 = 0;
const FAILED: u8 = 1;
const MISSING: u8 = 2;
const EXISTS: u8 = 3;
const NAME_BYTES_MAX: u32 = 1024;
const BODY_BYTES_MAX: u64 = 1 << 30;
/// Bytes of text that may come before the greeting, from the other machine's shell.
const CHATTER_BYTES_MAX: usize = 64 << 10;

/// A directory on another machine.
pub struct Ssh {
    /// The program and its first words: `ssh`, or what PERDURA_SSH says.
    words: Vec<String>,
    host: String,
    port: Option<String>,
    path: String,
    connection: Mutex<Option<Connection>>,
}

struct Connection {
    child: Child,
    to: BufWriter<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _waited = self.child.wait();
    }
}

impl Ssh {
    /// The vault at `ssh://USER@HOST:PORT/PATH`, given what comes behind `ssh://`.
    ///
    /// # Errors
    /// The URL is none.
    pub fn new(place: &str) -> Result<Self, BackupError> {
        let refused_for = |why: &str| {
            let shown = without_password(&format!("ssh://{place}"));
            BackupError::Refused(format!("{shown}: expected ssh://USER@HOST:PORT/PATH{why}"))
        };
        let refused = || refused_for("");
        let (host, path) = place.split_once('/').ok_or_else(refused)?;
        if host.rsplit_once('@').is_some_and(|(user, _)| user.contains(':')) {
            return Err(refused_for(
                ", with no password: ssh asks for none here, so give it a key",
            ));
        }
        let (host, port) = match host.rsplit_once(':') {
            Some((host, port)) => (host, Some(port.to_owned())),
            None => (host, None),
        };
        let is_port = |port: &String| port.parse::<u16>().is_ok();
        // A host with `-` before it would be an option.
        if host.is_empty() || host.starts_with('-') || !port.as_ref().is_none_or(is_port) {
            return Err(refused());
        }
        let words = std::env::var("PERDURA_SSH").unwrap_or_default();
        let mut words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        if words.is_empty() {
            words.push("ssh".to_owned());
        }
        let (host, path) = (host.to_owned(), format!("/{path}"));
        Ok(Self { words, host, port, path, connection: Mutex::new(None) })
    }

    fn connect(&self) -> std::io::Result<Connection> {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]);
        command.args(["-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15"]);
        command.args(["-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4"]);
        if let Some(port) = &self.port {
            command.args(["-p", port]);
        }
        let path = self.path.replace('\'', r"'\''");
        command.args(["--", &self.host, &format!("perdura backup receive '{path}'")]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let closed = || std::io::Error::from(ErrorKind::BrokenPipe);
        let to = BufWriter::new(child.stdin.take().ok_or_else(closed)?);
        let from = BufReader::new(child.stdout.take().ok_or_else(closed)?);
        let mut connection = Connection { child, to, from };
        let ended = |error: std::io::Error| match error.kind() {
            ErrorKind::UnexpectedEof => std::io::Error::other(
                "it ended before `perdura backup receive` answered; what it said is in the log",
            ),
            _ => error,
        };
        let mut seen = Vec::new();
        while !seen.ends_with(GREETING) {
            let mut byte = [0];
            connection.from.read_exact(&mut byte).map_err(ended)?;
            seen.push(byte[0]);
            if seen.len() > CHATTER_BYTES_MAX {
                let why = "it does not answer as `perdura backup receive` does";
                return Err(std::io::Error::new(ErrorKind::InvalidData, why));
            }
        }
        Ok(connection)
    }

    fn ask(
        &self,
        operation: u8,
        what: &'static str,
        name: &str,
        body: &[u8],
    ) -> Result<(u8, Vec<u8>), VaultError> {
        let failed = |why: String, is_missing| {
            let vault = self.describe();
            VaultError { what, name: name.to_owned(), vault, why, is_missing }
        };
        let mut held = self.connection.lock();
        // An old connection may have ended since; the same request on a new one does no harm.
        let was_open = held.is_some();
        let mut outcome = self.exchange(&mut held, operation, name, body);
        if outcome.is_err() && was_open {
            *held = None;
            outcome = self.exchange(&mut held, operation, name, body);
        }
        match outcome {
            Ok((status @ (DONE | EXISTS), bytes)) => Ok((status, bytes)),
            Ok((status, why)) => {
                Err(failed(String::from_utf8_lossy(&why).into_owned(), status == MISSING))
            }
            Err(error) => {
                *held = None;
                Err(failed(format!("{}: {error}", self.words[0]), false))
            }
        }
    }

    fn exchange(
        &self,
        held: &mut Option<Connection>,
        operation: u8,
        name: &str,
        body: &[u8],
    ) -> std::io::Result<(u8, Vec<u8>)> {
        let connection = match held {
            Some(connection) => connection,
            None => held.insert(self.connect()?),
        };
        let to = &mut connection.to;
        to.write_all(&[operation])?;
        to.write_all(&(name.len() as u32).to_le_bytes())?;
        to.write_all(&(body.len() as u64).to_le_bytes())?;
        to.write_all(name.as_bytes())?;
        to.write_all(body)?;
        to.flush()?;
        let mut status = [0];
        connection.from.read_exact(&mut status)?;
        let len = read_word(&mut connection.from)?;
        Ok((status[0], read_bytes(&mut connection.from, len)?))
    }
}

impl Vault for Ssh {
    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), VaultError> {
        self.ask(PUT, "put", name, bytes).map(drop)
    }

    fn put_new(&self, name: &str, bytes: &[u8]) -> Result<bool, VaultError> {
        Ok(self.ask(PUT_NEW, "put", name, bytes)?.0 == DONE)
    }

    fn get(&self, name: &str) -> Result<Vec<u8>, VaultError> {
        Ok(self.ask(GET, "get", name, b"")?.1)
    }

    fn list(&self, folder: &str) -> Result<Listing, VaultError> {
        let (_, text) = self.ask(LIST, "list", folder, b"")?;
        let mut listing = Listing::default();
        for line in String::from_utf8_lossy(&text).lines() {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["F", name] => listing.folders.push(name.to_owned()),
                ["O", bytes, name] => {
                    if let Ok(bytes) = bytes.parse() {
                        listing.objects.push(Listed { name: name.to_owned(), bytes });
                    }
                }
                _ => {}
            }
        }
        Ok(listing)
    }

    fn delete(&self, name: &str) -> Result<(), VaultError> {
        self.ask(DELETE, "delete", name, b"").map(drop)
    }

    fn tidy(&self, folder: &str) -> Result<(), VaultError> {
        self.ask(TIDY, "tidy", folder, b"").map(drop)
    }

    fn describe(&self) -> String {
        let port = self.port.as_ref().map_or(String::new(), |port| format!(":{port}"));
        format!("ssh://{}{port}{}", self.host, self.path)
    }
}

/// Answers requests for a directory until they end.
///
/// # Errors
/// A request is none, or cannot be read or answered.
pub fn receive(vault: &Directory, mut from: impl Read, mut to: impl Write) -> std::io::Result<()> {
    to.write_all(GREETING)?;
    to.flush()?;
    loop {
        let mut operation = [0];
        if from.read(&mut operation)? == 0 {
            return Ok(());
        }
        let mut len = [0; 4];
        from.read_exact(&mut len)?;
        let (name_bytes, body_bytes) = (u32::from_le_bytes(len), read_word(&mut from)?);
        if name_bytes > NAME_BYTES_MAX {
            return Err(std::io::Error::new(ErrorKind::InvalidData, "a name is too long"));
        }
        let name = read_bytes(&mut from, name_bytes.into())?;
        let body = read_bytes(&mut from, body_bytes)?;
        let name = String::from_utf8_lossy(&name);
        let outcome = match operation[0] {
            PUT => vault.put(&name, &body).map(|()| (DONE, Vec::new())),
            PUT_NEW => vault.put_new(&name, &body).map(|is_put| match is_put {
                true => (DONE, Vec::new()),
                false => (EXISTS, Vec::new()),
            }),
            GET => vault.get(&name).map(|bytes| (DONE, bytes)),
            LIST => vault.list(&name).map(|listing| {
                let folders = listing.folders.iter().map(|name| format!("F {name}\n"));
                let objects = listing.objects.iter();
                let objects = objects.map(|one| format!("O {} {}\n", one.bytes, one.name));
                (DONE, folders.chain(objects).collect::<String>().into_bytes())
            }),
            DELETE => vault.delete(&name).map(|()| (DONE, Vec::new())),
            TIDY => vault.tidy(&name).map(|()| (DONE, Vec::new())),
            other => {
                let why = format!("unknown operation {other}");
                return Err(std::io::Error::new(ErrorKind::InvalidData, why));
            }
        };
        let (status, bytes) = match outcome {
            Ok(answer) => answer,
            Err(error) if error.is_missing => (MISSING, error.why.into_bytes()),
            Err(error) => (FAILED, error.why.into_bytes()),
        };
        to.write_all(&[status])?;
        to.write_all(&(bytes.len() as u64).to_le_bytes())?;
        to.write_all(&bytes)?;
        to.flush()?;
    }
}

fn read_word(from: &mut impl Read) -> std::io::Result<u64> {
    let mut word = [0; 8];
    from.read_exact(&mut word)?;
    Ok(u64::from_le_bytes(word))
}

fn read_bytes(from: &mut impl Read, len: u64) -> std::io::Result<Vec<u8>> {
    if len > BODY_BYTES_MAX {
        let why = format!("{len} bytes are announced, more than any object has");
        return Err(std::io::Error::new(ErrorKind::InvalidData, why));
    }
    // Memory is taken as the bytes come, and not as they are announced.
    let mut bytes = Vec::new();
    from.take(len).read_to_end(&mut bytes)?;
    match bytes.len() as u64 == len {
        true => Ok(bytes),
        false => Err(ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(operation: u8, name: &str, body: &[u8]) -> Vec<u8> {
        let (name_bytes, body_bytes) = (name.len() as u32, body.len() as u64);
        let mut request = vec![operation];
        request.extend_from_slice(&name_bytes.to_le_bytes());
        request.extend_from_slice(&body_bytes.to_le_bytes());
        request.extend_from_slice(name.as_bytes());
        request.extend_from_slice(body);
        request
    }

    #[test]
    fn a_receiver_removes_parts_of_a_folder() {
        let folder = tempfile::TempDir::new().unwrap();
        let vault = Directory::new(folder.path().to_owned());
        vault.put("packs/a", b"1").unwrap();
        for name in ["packs/.unfinished-1-b", ".unfinished-2-c"] {
            std::fs::write(folder.path().join(name), b"half").unwrap();
        }
        let requests = [request(TIDY, "packs", b""), request(TIDY, "none", b"")];
        let mut answers = Vec::new();
        receive(&vault, &requests.concat()[..], &mut answers).unwrap();
        assert_eq!(answers, [&GREETING[..], &[DONE], &[0; 8], &[DONE], &[0; 8]].concat());
        assert_eq!(std::fs::read_dir(folder.path().join("packs")).unwrap().count(), 1);
        assert!(folder.path().join(".unfinished-2-c").exists());
    }

    #[test]
    fn a_receiver_puts_a_new_object_once() {
        let folder = tempfile::TempDir::new().unwrap();
        let requests =
            [request(PUT_NEW, "a", b"1"), request(PUT_NEW, "a", b"2"), request(GET, "a", b"")];
        let mut answers = Vec::new();
        let vault = Directory::new(folder.path().to_owned());
        receive(&vault, &requests.concat()[..], &mut answers).unwrap();
        let answer = |status, bytes: &[u8]| {
            let len = bytes.len() as u64;
            [&[status][..], &len.to_le_bytes(), bytes].concat()
        };
        let expected = [answer(DONE, b""), answer(EXISTS, b""), answer(DONE, b"1")].concat();
        assert_eq!(answers, [&GREETING[..], &expected].concat());
    }
}
