//! Where data come from: an address of a server, or a path.

use std::path::PathBuf;

use anyhow::{Result, bail};

/// Where data come from.
#[derive(Debug, PartialEq)]
pub enum From {
    /// A running server.
    Server(Address),
    /// Files.
    Path(PathBuf),
}

/// The address of a server, as in `redis://user:password@host:port/db`.
#[derive(Debug, Clone, PartialEq)]
pub struct Address {
    /// `host:port`.
    pub place: String,
    pub user: Option<String>,
    pub password: Option<String>,
    pub db: Option<u64>,
}

impl From {
    /// Reads what the user has typed.
    pub fn parse(text: &str) -> Result<Self> {
        let rest = match text.split_once("://") {
            Some(("redis" | "valkey", rest)) => rest,
            Some(("rediss" | "valkeys", _)) => bail!(
                "{text}: the connection would have to be encrypted, and is not: lead it through a \
                 tunnel, and give redis:// and the tunnel's address"
            ),
            Some((scheme, _)) => {
                bail!("{text}: {scheme}:// is not known; expected redis://HOST:PORT or a path")
            }
            None => return Ok(Self::Path(PathBuf::from(text))),
        };
        let (who, place) = rest.rsplit_once('@').map_or((None, rest), |(who, at)| (Some(who), at));
        let (place, db) = place.split_once('/').map_or((place, ""), |parts| parts);
        let db = match db {
            "" => None,
            digits => match digits.parse() {
                Ok(db) => Some(db),
                Err(_) => bail!("{place}/{db}: expected the number of a database behind the slash"),
            },
        };
        if place.is_empty() {
            bail!("redis://: expected a host, such as redis://127.0.0.1:6379");
        }
        let has_port = place.rsplit_once(':').is_some_and(|(host, _)| {
            // Colons of an IPv6 address stand in brackets.
            !host.contains(':') || host.ends_with(']')
        });
        let place = if has_port { place.to_owned() } else { format!("{place}:6379") };
        let (user, password) = match who.map(|who| who.split_once(':').unwrap_or((who, ""))) {
            None => (None, None),
            Some((user, password)) => (Some(decoded(user)?), Some(decoded(password)?)),
        };
        let user = user.filter(|user| !user.is_empty());
        Ok(Self::Server(Address { place, user, password, db }))
    }
}

/// Replaces `%40` and the like by the bytes they stand for.
fn decoded(text: &str) -> Result<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = behind.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => bytes.push(byte),
            None => bail!("a percent sign in user or password must be written as %25"),
        }
        rest = &behind[2..];
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(_) => bail!("user and password must be text"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(text: &str) -> (String, Option<String>, Option<String>, Option<u64>) {
        match From::parse(text).unwrap() {
            From::Server(Address { place, user, password, db }) => (place, user, password, db),
            From::Path(path) => panic!("{text} is {path:?}"),
        }
    }

    #[test]
    fn addresses_are_read_as_clients_of_redis_read_them() {
        let some = |text: &str| Some(text.to_owned());
        let full = server("redis://me:p%40ss%3a@h.example:7000/3");
        assert_eq!(full, ("h.example:7000".to_owned(), some("me"), some("p@ss:"), Some(3)));
        assert_eq!(server("redis://:secret@h"), ("h:6379".to_owned(), None, some("secret"), None));
        assert_eq!(server("valkey://[::1]:1/"), ("[::1]:1".to_owned(), None, None, None));
        assert_eq!(server("redis://[::1]").0, "[::1]:6379");
        assert_eq!(From::parse("dump.rdb").unwrap(), From::Path(PathBuf::from("dump.rdb")));
        for bad in ["rediss://h", "http://h", "redis://", "redis://h/x", "redis://a:%4@h"] {
            assert!(From::parse(bad).is_err(), "{bad}");
        }
    }
}
