//! What was sent and what was acknowledged, and the judgement of what is there after a loss.
//!
//! Each value begins with the number of times that its key was written. A client writes keys of its
//! own, so that the order of versions is the order of its requests.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

/// Digits of a version.
pub const VERSION_BYTES: usize = 16;

/// The versions of one client's keys.
#[derive(Debug, Clone)]
pub struct Writes {
    /// This client's number, and that of all clients.
    client: u64,
    clients: u64,
    /// The last version that was sent of each of its keys.
    sent: Vec<u32>,
    /// The last version that was acknowledged.
    acked: Vec<u32>,
}

/// What a loss has left.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Keys of which at least one write was acknowledged.
    pub keys: u64,
    /// Of them, those that are missing or older than the last acknowledged write.
    pub lost: u64,
    /// Keys whose value was never sent.
    pub wrong: u64,
}

impl Writes {
    /// The keys of client `client` of `clients`, of `keys` in all. None was written.
    pub fn new(client: u64, clients: u64, keys: u64) -> Self {
        let own = (keys.saturating_sub(client)).div_ceil(clients) as usize;
        Self { client, clients, sent: vec![0; own], acked: vec![0; own] }
    }

    /// How many keys this client has.
    pub fn len(&self) -> usize {
        self.sent.len()
    }

    /// The name of a key.
    pub fn key(&self, at: usize) -> String {
        format!("k{:010}", at as u64 * self.clients + self.client)
    }

    /// Notes that the next version of a key is sent, and returns it.
    pub fn send(&mut self, at: usize) -> u32 {
        self.sent[at] += 1;
        self.sent[at]
    }

    /// Notes that a version is acknowledged.
    pub fn acknowledge(&mut self, at: usize, version: u32) {
        self.acked[at] = self.acked[at].max(version);
    }

    /// Judges a value that was found; `None`: there is none.
    pub fn judge(&self, at: usize, value: Option<&[u8]>, len: usize, found: &mut Found) {
        let (acked, sent) = (self.acked[at], self.sent[at]);
        found.keys += u64::from(acked > 0);
        let version = match value {
            None => Some(0),
            Some(value) => version_of(value).filter(|_| value.len() == len),
        };
        match version {
            Some(version) if version > u64::from(sent) => found.wrong += 1,
            None => found.wrong += 1,
            Some(version) => found.lost += u64::from(version < u64::from(acked)),
        }
    }
}

/// Writes a value of `len` bytes: the version, and letters.
pub fn write_value(version: u32, len: usize, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(format!("{version:0VERSION_BYTES$x}").as_bytes());
    // Not the same in each value, so that nothing gains by compressing.
    let mut letters = Xoshiro256PlusPlus::seed_from_u64(version.into());
    out.resize_with(len.max(VERSION_BYTES), || letters.random_range(b'a'..=b'z'));
}

fn version_of(value: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(value.get(..VERSION_BYTES)?).ok()?;
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 40;

    fn judged(acked: u32, sent: u32, value: Option<&[u8]>) -> Found {
        let mut writes = Writes::new(0, 1, 1);
        for version in 1..=sent {
            assert_eq!(writes.send(0), version);
        }
        writes.acknowledge(0, acked);
        let mut found = Found::default();
        writes.judge(0, value, LEN, &mut found);
        found
    }

    fn value(version: u32) -> Vec<u8> {
        let mut out = Vec::new();
        write_value(version, LEN, &mut out);
        out
    }

    #[test]
    fn any_version_between_the_last_acknowledged_and_the_last_sent_one_is_right() {
        for version in 0..8 {
            let found = judged(3, 5, Some(&value(version)));
            let (lost, wrong) = (u64::from(version < 3), u64::from(version > 5));
            assert_eq!(found, Found { keys: 1, lost, wrong }, "version {version}");
        }
        assert_eq!(judged(3, 5, None), Found { keys: 1, lost: 1, wrong: 0 });
        assert_eq!(judged(0, 5, None), Found { keys: 0, lost: 0, wrong: 0 });
        assert_eq!(judged(0, 0, Some(&value(1))), Found { keys: 0, lost: 0, wrong: 1 });
    }

    #[test]
    fn a_value_that_was_cut_or_is_none_of_ours_is_wrong() {
        for bad in [&value(4)[..20], b"no version at all, but of forty bytes.. ", b""] {
            assert_eq!(judged(3, 5, Some(bad)), Found { keys: 1, lost: 0, wrong: 1 });
        }
    }

    #[test]
    fn every_key_belongs_to_one_client() {
        for keys in 0..20 {
            let clients = (0..3).map(|client| Writes::new(client, 3, keys));
            let names = clients.flat_map(|one| (0..one.len()).map(move |at| one.key(at)));
            let names: std::collections::BTreeSet<_> = names.collect();
            assert_eq!(names.len() as u64, keys);
            assert!(names.iter().all(|name| *name < format!("k{keys:010}")));
        }
    }
}
