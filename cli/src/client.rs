//! A connection to a running server, for `drill` and `status`.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

/// The longest reply that is read, because a server of another make may send anything.
const REPLY_BYTES_MAX: usize = 1 << 20;

/// Time that a server may take to begin a reply to a question.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// The same for a drill, which flushes the whole budget first.
pub const PATIENCE_OF_DRILL: Duration = Duration::from_secs(600);

/// An open connection, with the password given.
pub struct Client {
    stream: BufReader<TcpStream>,
    /// The address as the user gave it, for errors.
    address: String,
}

impl Client {
    /// Connects to `host:port`, with the password if the server has one. `patience` is the time
    /// that the server may take to begin a reply.
    pub fn connect(address: &str, password: Option<String>, patience: Duration) -> Result<Self> {
        if !address.contains(':') {
            bail!("--connect {address}: expected ADDRESS:PORT, such as 127.0.0.1:6379");
        }
        let stream = TcpStream::connect(address).map_err(|error| {
            let advice = match error.kind() {
                ErrorKind::ConnectionRefused => {
                    "; no server listens there: start it, or give its address"
                }
                _ => "",
            };
            anyhow!("--connect {address}: {error}{advice}")
        })?;
        stream.set_read_timeout(Some(patience)).context("a limit on waiting")?;
        let mut client = Self { stream: BufReader::new(stream), address: address.to_owned() };
        if let Some(password) = password {
            let reply = client.ask(&["AUTH", &password])?;
            if reply != "OK" {
                bail!("{address}: AUTH was answered by {reply}");
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
