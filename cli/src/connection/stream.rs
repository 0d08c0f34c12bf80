//! The stream of bytes to a server, sealed by TLS or plain.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use rustls::{ClientConnection, StreamOwned};

use super::address::Address;
use super::options::TlsOptions;
use super::tls;

/// The first byte of what a server that speaks TLS says to a client that does not.
const ALERT: u8 = 0x15;

/// Time that a server may take for each message of a handshake, however long its replies may take:
/// a port at which no TLS is spoken may say nothing.
const PATIENCE_OF_HANDSHAKE: Duration = Duration::from_secs(10);

/// An open connection.
pub struct Stream {
    socket: Socket,
    /// Whether the server has said anything.
    has_heard: bool,
}

enum Socket {
    Plain(TcpStream),
    Sealed(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    /// Connects; with TLS, until it is known that the server is the one that was meant. `patience`
    /// is the time that the server may take for each reply.
    pub fn connect(address: &Address, options: &TlsOptions, patience: Duration) -> Result<Self> {
        let place = || address.place.clone();
        // A certificate that cannot be read is found without the server.
        let session = match address.is_sealed {
            true => Some(tls::session(address.host(), options)?),
            false => None,
        };
        let mut stream =
            TcpStream::connect(&address.place).map_err(|error| match error.kind() {
                ErrorKind::ConnectionRefused => anyhow!(
                    "{}: {error}; no server listens there: start it, or give its address",
                    address.place
                ),
                _ => anyhow!("{}: {error}", address.place),
            })?;
        stream.set_read_timeout(Some(patience)).with_context(place)?;
        stream.set_write_timeout(Some(patience)).with_context(place)?;
        stream.set_nodelay(true).with_context(place)?;
        let Some(mut session) = session else {
            return Ok(Self { socket: Socket::Plain(stream), has_heard: false });
        };
        let limit = PATIENCE_OF_HANDSHAKE.min(patience);
        stream.set_read_timeout(Some(limit)).with_context(place)?;
        while session.is_handshaking() {
            session.complete_io(&mut stream).map_err(|error| match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::UnexpectedEof => anyhow!(
                    "{}: no TLS is spoken there, or the server hangs: give the port of --tls-port, \
                     or connect without --tls",
                    address.place
                ),
                _ => anyhow!("{}: {}", address.place, tls::explained(error)),
            })?;
        }
        stream.set_read_timeout(Some(patience)).with_context(place)?;
        let sealed = Box::new(StreamOwned::new(session, stream));
        Ok(Self { socket: Socket::Sealed(sealed), has_heard: true })
    }

    /// Sets the time that reading waits.
    pub fn set_read_timeout(&self, time: Duration) -> io::Result<()> {
        let socket = match &self.socket {
            Socket::Plain(socket) => socket,
            Socket::Sealed(sealed) => &sealed.sock,
        };
        socket.set_read_timeout(Some(time))
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = match &mut self.socket {
            Socket::Plain(socket) => socket.read(buf)?,
            Socket::Sealed(sealed) => sealed.read(buf).map_err(tls::explained)?,
        };
        if count > 0 && !self.has_heard {
            self.has_heard = true;
            if buf[0] == ALERT {
                let why = "the server speaks TLS: add --tls, or give the address as \
                           rediss://HOST:PORT";
                return Err(io::Error::new(ErrorKind::InvalidData, why));
            }
        }
        Ok(count)
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match &mut self.socket {
            Socket::Plain(socket) => socket.write(buf),
            Socket::Sealed(sealed) => {
                sealed.write(buf).map_err(|error| tls::explained(last_word(sealed, error)))
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.socket {
            Socket::Plain(socket) => socket.flush(),
            Socket::Sealed(sealed) => sealed.flush().map_err(tls::explained),
        }
    }
}

/// Why the server has ended the connection, if it has said so, or else the error.
fn last_word(sealed: &mut StreamOwned<ClientConnection, TcpStream>, error: io::Error) -> io::Error {
    if !matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) {
        return error;
    }
    match sealed.conn.read_tls(&mut sealed.sock).map(|_| sealed.conn.process_new_packets()) {
        Ok(Err(told)) => io::Error::new(ErrorKind::InvalidData, told),
        _ => error,
    }
}
