//! A connection to a running server, as `drill` and `status` need one.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// What a reply may be long; a server of another make may say anything.
const REPLY_BYTES_MAX: usize = 1 << 20;

/// How long a server may take to begin a reply: a drill flushes the whole budget first.
const PATIENCE: Duration = Duration::from_secs(600);

/// A connection, open and authenticated.
pub struct Client(BufReader<TcpStream>);

impl Client {
    /// Connects to `host:port`, with the password if the server has one.
    pub fn connect(address: &str, password: Option<String>) -> Result<Self> {
        let stream = TcpStream::connect(address).with_context(|| format!("--connect {address}"))?;
        stream.set_read_timeout(Some(PATIENCE)).context("a limit on waiting")?;
        let mut client = Self(BufReader::new(stream));
        if let Some(password) = password {
            let reply = client.ask(&["AUTH", &password])?;
            if reply != "OK" {
                bail!("{address}: {reply}");
            }
        }
        Ok(client)
    }

    /// One command, one simple or bulk reply; an error reply is an error.
    pub fn ask(&mut self, words: &[&str]) -> Result<String> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.0.get_mut().write_all(request.as_bytes())?;
        let mut head = String::new();
        Read::by_ref(&mut self.0).take(REPLY_BYTES_MAX as u64).read_line(&mut head)?;
        let head = head.trim_end();
        match head.split_at_checked(1) {
            Some(("+", text)) => Ok(text.to_owned()),
            Some(("-", text)) => bail!("the server refused: {text}"),
            Some(("$" | "=", length)) => {
                let length: usize = length.parse().with_context(|| format!("reply {head:?}"))?;
                if length > REPLY_BYTES_MAX {
                    bail!("reply of {length} bytes: this is no Perdura server");
                }
                let mut bytes = vec![0; length + 2];
                self.0.read_exact(&mut bytes)?;
                Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
            }
            _ => bail!("unexpected reply {head:?}: is this a Perdura server?"),
        }
    }
}
