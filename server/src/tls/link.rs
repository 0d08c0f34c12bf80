//! The TLS layer of one connection.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};

use crate::conn::Spares;

/// The state of TLS on one connection.
pub(crate) struct Link {
    tls: UnbufferedServerConnection,
    /// Received bytes that are no whole record yet.
    incoming: Vec<u8>,
    /// Sealed bytes, of which the first `sent` have been sent.
    outgoing: Vec<u8>,
    sent: usize,
    is_open: bool,
    peer_has_closed: bool,
    /// TLS has failed, and must not be asked anything any more.
    has_failed: bool,
}

impl Link {
    pub fn new(config: &Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        Ok(Self {
            tls: UnbufferedServerConnection::new(Arc::clone(config))?,
            incoming: Vec::new(),
            outgoing: Vec::new(),
            sent: 0,
            is_open: false,
            peer_has_closed: false,
            has_failed: false,
        })
    }

    /// Whether the handshake is over.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether the peer has said that it sends no more.
    pub fn peer_has_closed(&self) -> bool {
        self.peer_has_closed
    }

    /// Opens the records that `received` completes, and appends what is in them to `plain`.
    /// `scratch` is for the bytes while they are opened, if none were kept before.
    ///
    /// # Errors
    /// The peer does not keep to TLS, or is not let in. What it is told then is to be sent.
    pub fn open(
        &mut self,
        received: &[u8],
        scratch: &mut Vec<u8>,
        plain: &mut Vec<u8>,
    ) -> Result<(), String> {
        if self.has_failed {
            // The ring had received the bytes already. Nobody looks at what comes after an error.
            return Ok(());
        }
        let mut kept = std::mem::take(&mut self.incoming);
        let bytes = if kept.is_empty() { scratch } else { &mut kept };
        bytes.extend_from_slice(received);
        let used = self.process(bytes, plain).and_then(|used| match bytes.len() - used {
            0..=INCOMING_MAX => Ok(used),
            _ => Err("a message is too long".to_owned()),
        });
        // TLS may panic when it is asked anything after an error.
        let used = used.inspect_err(|_| self.has_failed = true)?;
        self.incoming = bytes[used..].to_vec();
        Ok(())
    }

    /// Processes `bytes` as far as they go, and returns how many were used.
    fn process(&mut self, bytes: &mut [u8], plain: &mut Vec<u8>) -> Result<usize, String> {
        let mut used = 0;
        loop {
            let UnbufferedStatus { discard, state, .. } =
                self.tls.process_tls_records(&mut bytes[used..]);
            used += discard;
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record.map_err(|error| error.to_string())?;
                        used += record.discard;
                        plain.extend_from_slice(record.payload);
                    }
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    append(&mut self.outgoing, 0, |room| match data.encode(room) {
                        Err(EncodeError::InsufficientSize(size)) => Err(Some(size.required_size)),
                        other => other.map_err(|_| None),
                    })
                    .ok_or("a message cannot be encoded")?;
                }
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed) => self.peer_has_closed = true,
                Ok(ConnectionState::WriteTraffic(_)) => {
                    self.is_open = true;
                    return Ok(used);
                }
                Ok(_) => return Ok(used),
                Err(error) => {
                    self.encode_alert();
                    return Err(error.to_string());
                }
            }
        }
    }

    /// Appends what the peer is told after an error, if there is anything.
    fn encode_alert(&mut self) {
        self.has_failed = true;
        if !self.tls.wants_write() {
            return;
        }
        if let Ok(ConnectionState::EncodeTlsData(mut data)) =
            self.tls.process_tls_records(&mut []).state
        {
            append(&mut self.outgoing, 0, |room| match data.encode(room) {
                Err(EncodeError::InsufficientSize(size)) => Err(Some(size.required_size)),
                other => other.map_err(|_| None),
            });
        }
    }

    /// Seals a piece of output. False: it cannot be, and the connection must end.
    pub fn seal(&mut self, plain: &[u8], spare: &mut Spares) -> bool {
        if self.outgoing.capacity() == 0 {
            self.outgoing = spare.take().unwrap_or_default();
        }
        let sealed = plain.len() + (plain.len() / RECORD_BYTES + 1) * RECORD_EXTRA_BYTES;
        self.write(sealed, |traffic, room| traffic.encrypt(plain, room))
    }

    /// Says that nothing more will be sent.
    pub fn close(&mut self) {
        if !self.is_open {
            return;
        }
        self.write(RECORD_EXTRA_BYTES * 2, |traffic, room| traffic.queue_close_notify(room));
    }

    fn write(
        &mut self,
        expected: usize,
        mut write: impl FnMut(
            &mut rustls::unbuffered::WriteTraffic<'_, rustls::server::ServerConnectionData>,
            &mut [u8],
        ) -> Result<usize, EncryptError>,
    ) -> bool {
        if self.has_failed {
            return false;
        }
        // What is kept of the input is shown again, because TLS may look for its place in it.
        loop {
            let UnbufferedStatus { discard, state, .. } =
                self.tls.process_tls_records(&mut self.incoming);
            let written = match state {
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    append(&mut self.outgoing, expected, |room| match write(&mut traffic, room) {
                        Err(EncryptError::InsufficientSize(size)) => Err(Some(size.required_size)),
                        other => other.map_err(|_| None),
                    })
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    let encoded = append(&mut self.outgoing, 0, |room| match data.encode(room) {
                        Err(EncodeError::InsufficientSize(size)) => Err(Some(size.required_size)),
                        other => other.map_err(|_| None),
                    });
                    if encoded.is_none() {
                        return false;
                    }
                    self.incoming.drain(..discard);
                    continue;
                }
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    data.done();
                    self.incoming.drain(..discard);
                    continue;
                }
                _ => None,
            };
            self.incoming.drain(..discard);
            return written.is_some();
        }
    }

    /// Sealed bytes that neither the socket nor the ring has been given.
    pub fn unsent(&self) -> &[u8] {
        &self.outgoing[self.sent..]
    }

    /// Notes that the socket has taken `count` sealed bytes.
    pub fn note_sent(&mut self, count: usize, spare: &mut Spares) {
        self.sent += count;
        if self.sent == self.outgoing.len() {
            spare.keep(std::mem::take(&mut self.outgoing));
            self.sent = 0;
        }
    }

    /// Gives away the sealed bytes, with the place at which those begin that are unsent.
    pub fn take_unsent(&mut self) -> (Vec<u8>, usize) {
        (std::mem::take(&mut self.outgoing), std::mem::take(&mut self.sent))
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { is_open, peer_has_closed, .. } = self;
        f.debug_struct("Link").field("is_open", is_open).field("closed", peer_has_closed).finish()
    }
}

/// Appends what `write` writes to the room behind the bytes of `out`, first `expected` bytes and
/// then as many as it asks for. `None` if it fails.
fn append(
    out: &mut Vec<u8>,
    expected: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, Option<usize>>,
) -> Option<()> {
    let start = out.len();
    let mut room = expected;
    loop {
        out.resize(start + room, 0);
        match write(&mut out[start..]) {
            Ok(count) => {
                out.truncate(start + count);
                return Some(());
            }
            Err(Some(needed)) if needed > room => room = needed,
            Err(_) => {
                out.truncate(start);
                return None;
            }
        }
    }
}

/// Time in which a client has to finish its handshake.
pub(crate) const HANDSHAKE_NS: u64 = 10_000_000_000;
/// Bytes of output that are sealed at a time.
pub(crate) const PIECE_BYTES: usize = 64 << 10;
/// Most received bytes that are kept: the longest message of a handshake, and a record.
const INCOMING_MAX: usize = 80 << 10;
/// Most bytes of a record, and what one has besides them at most.
const RECORD_BYTES: usize = 16 << 10;
const RECORD_EXTRA_BYTES: usize = 32;

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rustls::{ClientConfig, ClientConnection, RootCertStore};

    use super::*;
    use crate::tls::{AuthClients, TlsSettings};

    fn file(name: &str) -> std::path::PathBuf {
        std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/certificates")).join(name)
    }

    /// Strangers may send anything, and must not end the server by it.
    #[test]
    fn greetings_with_wrong_bytes_are_refused_or_wait() {
        let mut settings = TlsSettings::default();
        settings.cert_file = Some(file("server.pem"));
        settings.key_file = Some(file("server.key"));
        settings.auth_clients = AuthClients::No;
        settings.load().unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = ClientConfig::builder_with_provider(provider);
        let client = client.with_safe_default_protocol_versions().unwrap();
        let client = client.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        let name = "localhost".try_into().unwrap();
        let mut greeting = Vec::new();
        let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
        client.write_tls(&mut greeting).unwrap();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(26);
        let mut refused = 0;
        for _ in 0..3000 {
            let mut sent = greeting.clone();
            for _ in 0..rng.random_range(1..6) {
                let at = match rng.random_bool(0.5) {
                    true => rng.random_range(0..12),
                    false => rng.random_range(0..sent.len()),
                };
                sent[at] = rng.random();
            }
            sent.extend_from_slice(&greeting[..rng.random_range(0..greeting.len())]);
            let mut link = Link::new(settings.ready().unwrap()).unwrap();
            let mut spare = Spares::default();
            for piece in sent.chunks(rng.random_range(1..200)) {
                if link.open(piece, &mut Vec::new(), &mut Vec::new()).is_err() {
                    refused += 1;
                    break;
                }
            }
            assert!(!link.has_failed || link.open(&sent, &mut Vec::new(), &mut Vec::new()).is_ok());
            link.close();
            assert!(link.is_open() || !link.seal(b"secret", &mut spare));
        }
        assert!(refused > 500, "{refused}");
    }
}
