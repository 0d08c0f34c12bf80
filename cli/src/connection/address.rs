//! The address of a server, as users write it.

use anyhow::{Result, bail};
use perdura_backup::without_password;

/// The port where none is given.
const PORT: u16 = 6379;

/// The address of a server, as in `redis://user:password@host:port/db`.
#[derive(Debug, Clone, PartialEq)]
pub struct Address {
    /// `host:port`.
    pub place: String,
    /// Whether TLS is spoken there.
    pub is_sealed: bool,
    pub user: Option<String>,
    pub password: Option<String>,
    pub db: Option<u64>,
}

impl Address {
    /// A `host:port`.
    pub fn of_place(place: &str) -> Self {
        let place = place.to_owned();
        Self { place, is_sealed: false, user: None, password: None, db: None }
    }

    /// The host alone, without the brackets of an IPv6 address.
    pub fn host(&self) -> &str {
        let host = self.place.rsplit_once(':').map_or(&*self.place, |(host, _)| host);
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    /// Reads what the user has typed, if it is a URL.
    pub fn of_url(text: &str) -> Result<Option<Self>> {
        let (is_sealed, rest) = match text.split_once("://") {
            Some(("redis" | "valkey", rest)) => (false, rest),
            Some(("rediss" | "valkeys", rest)) => (true, rest),
            Some((scheme, _)) => bail!(
                "{}: {scheme}:// is not known; expected redis://HOST:PORT, or rediss://HOST:PORT \
                 for TLS",
                without_password(text)
            ),
            None => return Ok(None),
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
            let shown = without_password(text);
            bail!("{shown}: expected a host, such as redis://127.0.0.1:{PORT}");
        }
        let has_port = place.rsplit_once(':').is_some_and(|(host, _)| {
            // Colons of an IPv6 address stand in brackets.
            !host.contains(':') || host.ends_with(']')
        });
        let place = if has_port { place.to_owned() } else { format!("{place}:{PORT}") };
        let (user, password) = match who.map(|who| who.split_once(':').unwrap_or((who, ""))) {
            None => (None, None),
            Some((user, password)) => (Some(decoded(user)?), Some(decoded(password)?)),
        };
        let user = user.filter(|user| !user.is_empty());
        Ok(Some(Self { place, is_sealed, user, password, db }))
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
        let Address { place, user, password, db, .. } = Address::of_url(text).unwrap().unwrap();
        (place, user, password, db)
    }

    #[test]
    fn addresses_are_read_as_clients_of_redis_read_them() {
        let some = |text: &str| Some(text.to_owned());
        let full = server("redis://me:p%40ss%3a@h.example:7000/3");
        assert_eq!(full, ("h.example:7000".to_owned(), some("me"), some("p@ss:"), Some(3)));
        assert_eq!(server("redis://:secret@h"), ("h:6379".to_owned(), None, some("secret"), None));
        assert_eq!(server("valkey://[::1]:1/"), ("[::1]:1".to_owned(), None, None, None));
        assert_eq!(server("redis://[::1]").0, "[::1]:6379");
        for (text, is_sealed) in [("redis://h", false), ("rediss://h", true), ("valkeys://h", true)]
        {
            assert_eq!(Address::of_url(text).unwrap().unwrap().is_sealed, is_sealed, "{text}");
        }
        for (place, host) in [("h:1", "h"), ("[::1]:1", "::1"), ("127.0.0.1:6379", "127.0.0.1")] {
            assert_eq!(Address::of_place(place).host(), host);
        }
        assert_eq!(Address::of_url("dump.rdb").unwrap(), None);
        for bad in ["http://h", "redis://", "redis://h/x", "redis://a:%4@h"] {
            assert!(Address::of_url(bad).is_err(), "{bad}");
        }
        for bad in ["http://u:geheim@h", "redis://u:geheim@", "redis://u:geheim@h/x"] {
            let error = Address::of_url(bad).unwrap_err().to_string();
            assert!(!error.contains("geheim"), "{error}");
        }
    }
}
