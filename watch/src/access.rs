//! Who may look: everybody on this machine, whoever has the password, or everybody.

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, header};
use sha2::{Digest, Sha256};

/// The name that goes with the password.
const USER: &str = "perdura";

/// Who may look from beyond this machine.
#[derive(Debug, Clone)]
pub enum Readers {
    /// Nobody: the address must be of this machine alone.
    ThisMachine,
    /// Who gives this password, also on this machine.
    Password(String),
    /// Everybody.
    Everybody,
}

/// Why an address was refused.
#[derive(Debug, thiserror::Error)]
#[error(
    "refusing to listen on {addr} for --http without a password, because anyone who reaches it \
     could read the names of commands, the load and the state of the power: give \
     --http-password-file FILE, or --http-open if they may, or an address of this machine such as \
     127.0.0.1"
)]
pub struct Unprotected {
    addr: SocketAddr,
}

/// Decides about requests.
#[derive(Debug)]
pub struct Access {
    /// The hash of the header that is asked for, if one is.
    wanted: Option<[u8; 32]>,
    /// More names by which this server is called.
    names: Vec<String>,
}

/// Why a request was refused.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The header `Host` names another machine, or nothing.
    Host,
    /// The password is missing or wrong.
    Password,
}

impl Access {
    /// # Errors
    /// The address would be open to everybody, and nobody has said so.
    pub fn new(
        addr: SocketAddr,
        readers: &Readers,
        names: Vec<String>,
    ) -> Result<Self, Unprotected> {
        let is_here = addr.ip().to_canonical().is_loopback();
        match readers {
            Readers::ThisMachine if !is_here => Err(Unprotected { addr }),
            Readers::ThisMachine | Readers::Everybody => Ok(Self { wanted: None, names }),
            Readers::Password(password) => {
                let words = base64(format!("{USER}:{password}").as_bytes());
                Ok(Self { wanted: Some(hash(&format!("Basic {words}"))), names })
            }
        }
    }

    /// # Errors
    /// The request may have no answer.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        match self.wanted {
            // Hashes are compared: the time that it takes says nothing of the password.
            Some(wanted) => {
                let given = text(header::AUTHORIZATION).unwrap_or_default();
                if hash(given) == wanted { Ok(()) } else { Err(Refusal::Password) }
            }
            None => {
                let host = text(header::HOST).unwrap_or_default();
                if self.is_own_name(host) { Ok(()) } else { Err(Refusal::Host) }
            }
        }
    }

    /// Whether a page of somebody else's cannot have sent the request. A page of `evil.example`
    /// whose name is suddenly an address of this machine may read what this server answers (DNS
    /// rebinding), but it cannot change the name in `Host`. A password needs no such check, because
    /// a browser gives it to the name it was typed for alone. What is no address is a name that the
    /// operator has given, or one without a dot or of a network at home, which are in no public DNS.
    fn is_own_name(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split_once(']').map_or("", |(name, _)| name),
            None => host.split_once(':').map_or(host.as_str(), |(name, _)| name),
        };
        let is_local = |name: &str| {
            !name.contains('.')
                || [".localhost", ".local", ".internal"].iter().any(|end| name.ends_with(end))
        };
        let is_given = || self.names.iter().any(|own| own.eq_ignore_ascii_case(name));
        !name.is_empty() && (name.parse::<IpAddr>().is_ok() || is_local(name) || is_given())
    }
}

fn hash(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

/// Bytes in the alphabet of RFC 4648.
pub fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let is_there = at <= three.len();
            let letter = ALPHABET[(word >> (18 - 6 * at) & 63) as usize];
            text.push(if is_there { char::from(letter) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(addr: &str, readers: &Readers) -> Result<Access, Unprotected> {
        Access::new(addr.parse().unwrap(), readers, vec!["db.example.org".into()])
    }

    fn headers(name: header::HeaderName, value: &str) -> HeaderMap {
        [(name, value.parse().unwrap())].into_iter().collect()
    }

    #[test]
    fn an_address_that_others_reach_needs_a_password_or_a_word() {
        for addr in ["127.0.0.1:9", "[::1]:9", "[::ffff:127.0.0.1]:9"] {
            access(addr, &Readers::ThisMachine).unwrap();
        }
        for addr in ["0.0.0.0:9", "192.168.1.2:9", "[::]:9"] {
            let error = access(addr, &Readers::ThisMachine).unwrap_err().to_string();
            assert!(error.contains(addr) && error.contains("--http-password-file"), "{error}");
            access(addr, &Readers::Everybody).unwrap();
            access(addr, &Readers::Password("x".into())).unwrap();
        }
    }

    #[test]
    fn the_password_is_asked_for_on_every_address() {
        let access = access("127.0.0.1:9", &Readers::Password("secret".into())).unwrap();
        let given = |value| access.check(&headers(header::AUTHORIZATION, value));
        assert_eq!(given("Basic cGVyZHVyYTpzZWNyZXQ="), Ok(()));
        assert_eq!(given("Basic cGVyZHVyYTpzZWNyZXR="), Err(Refusal::Password));
        assert_eq!(access.check(&headers(header::HOST, "127.0.0.1")), Err(Refusal::Password));
    }

    #[test]
    fn a_name_that_somebody_else_may_have_is_refused() {
        let access = access("127.0.0.1:9", &Readers::ThisMachine).unwrap();
        let asked = |host| access.check(&headers(header::HOST, host));
        for host in [
            "127.0.0.1:9121",
            "[::1]:9121",
            "[fe80::1]",
            "localhost:9121",
            "LOCALHOST",
            "perdura",
            "db.Example.org:80",
            "db.local",
            "a.b.internal:1",
        ] {
            assert_eq!(asked(host), Ok(()), "{host}");
        }
        for host in ["evil.example", "evil.example:9121", "localhost.evil.example", "", "[", ":80"]
        {
            assert_eq!(asked(host), Err(Refusal::Host), "{host}");
        }
        assert_eq!(access.check(&HeaderMap::new()), Err(Refusal::Host));
    }

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xff, 0xef, 0xbe]), "/+++");
    }
}
