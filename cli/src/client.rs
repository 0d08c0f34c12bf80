//! A connection to a running server, for `drill` and `status`.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use crate::connection::{Address, Stream, TlsOptions};

/// The longest reply that is read, because a server of another make may send anything.
const REPLY_BYTES_MAX: usize = 1 << 20;

/// Time that a server may take to begin a reply to a question.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// The same for a drill, which flushes the whole budget first.
pub const PATIENCE_OF_DRILL: Duration = Duration::from_secs(600);

/// An open connection, with the password given.
pub struct Client {
    stream: BufReader<Stream>,
    /// For errors.
    address: String,
}

impl Client {
    /// Connects, with the password if the server has one; one that is in the address goes before.
    /// `patience` is the time that the server may take to begin a reply.
    pub fn connect(
        address: &Address,
        tls: &TlsOptions,
        password: Option<String>,
        patience: Duration,
    ) -> Result<Self> {
        let stream = Stream::connect(address, tls, patience).context("--connect")?;
        let stream = BufReader::new(stream);
        let mut client = Self { stream, address: address.place.clone() };
        let words = match (&address.user, &address.password, &password) {
            (Some(user), Some(password), _) => vec!["AUTH", user, password],
            (_, Some(password), _) | (_, None, Some(password)) => vec!["AUTH", password],
            (_, None, None) => Vec::new(),
        };
        if !words.is_empty() {
            let reply = client.ask(&words)?;
            if reply != "OK" {
                bail!("{}: AUTH was answered by {reply}", client.address);
            }
        }
        Ok(client)
    }

    /// Sends a command and returns its simple or bulk reply. An error reply is an error.
    pub fn ask(&mut self, words: &[&str]) -> Result<String> {
        self.exchange(words).map_err(|error| match error.downcast::<std::io::Error>() {
            Ok(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                anyhow!("{}: no answer: the server hangs or is stopped", self.address)
            }
            Ok(error) => anyhow::Error::from(error).context(self.address.clone()),
            Err(error) => error.context(self.address.clone()),
        })
    }

    fn exchange(&mut self, words: &[&str]) -> Result<String> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.stream.get_mut().write_all(request.as_bytes())?;
        let mut head = String::new();
        Read::by_ref(&mut self.stream).take(REPLY_BYTES_MAX as u64).read_line(&mut head)?;
        let head = head.trim_end();
        match head.split_at_checked(1) {
            Some(("+", text)) => Ok(text.to_owned()),
            Some(("-", text)) if text.starts_with("NOAUTH") => {
                bail!("the server wants a password: give --password-file FILE or PERDURA_PASSWORD")
            }
            Some(("-", text)) if text.starts_with("ERR unknown command") => {
                bail!("this is no Perdura server: {text}")
            }
            Some(("-", text)) => bail!("the server refused: {text}"),
            Some(("$" | "=", length)) => {
                let length: usize = length.parse().with_context(|| format!("reply {head:?}"))?;
                if length > REPLY_BYTES_MAX {
                    bail!("reply of {length} bytes: this is no Perdura server");
                }
                let mut bytes = vec![0; length + 2];
                self.stream.read_exact(&mut bytes)?;
                Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
            }
            _ => bail!("unexpected reply {head:?}: is this a Perdura server?"),
        }
    }
}
