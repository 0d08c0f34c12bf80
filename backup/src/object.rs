//! The envelope of each object in a vault: what it is, its length, and a seal by which a reader
//! knows that it is whole and has this name. With a key, what is in it is encrypted.
//!
//! ```text
//!  0  magic "PRDSHIP1"     8  version u32 = 1     12  seal u32: 0 XXH3-64, 1 AES-256-GCM
//! 16  body bytes u64      24  mark of the key u64, or 0
//! 32  salt, 32 B, or zeros
//! 64  seal 0: the body; XXH3-64 of name, the 64 bytes above and body
//!     seal 1: for each 64 KiB of the body, the last part may be shorter: ciphertext | tag, 16 B
//! ```
//!
//! Each object has a key of its own, which HKDF-SHA-256 makes from the user's key and the salt. The
//! nonce of a part is its number; the name, the head and the number are authenticated with it.

use perdura_image::Key;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Salt};
use xxhash_rust::xxh3::Xxh3;

use crate::error::BackupError;

const MAGIC: &[u8; 8] = b"PRDSHIP1";
const VERSION: u32 = 1;
const SEAL_CHECKSUM: u32 = 0;
const SEAL_AES: u32 = 1;
const HEAD_BYTES: usize = 64;
const SUM_BYTES: usize = 8;
const TAG_BYTES: usize = 16;
/// Bytes of a part that is encrypted by itself.
const PART_BYTES: usize = 64 << 10;

/// How objects are sealed: with or without a key.
#[derive(Clone, Default)]
pub struct Seal {
    key: Option<Key>,
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.key.is_some() { "Seal(key)" } else { "Seal(checksum)" })
    }
}

/// 32 bytes for HKDF to make.
struct Bytes32;

impl KeyType for Bytes32 {
    fn len(&self) -> usize {
        32
    }
}

impl Seal {
    /// Objects are encrypted with keys that are made from this one.
    pub fn with_key(key: Key) -> Self {
        Self { key: Some(key) }
    }

    /// Whether objects are encrypted.
    pub fn is_encrypting(&self) -> bool {
        self.key.is_some()
    }

    /// Bytes of an object with a body of this length.
    pub fn object_bytes(&self, body_bytes: usize) -> usize {
        let seals = match self.key {
            Some(_) => parts(body_bytes) * TAG_BYTES,
            None => SUM_BYTES,
        };
        HEAD_BYTES + body_bytes + seals
    }

    /// The object by this name with this body.
    pub fn seal(&self, name: &str, body: &[u8]) -> Vec<u8> {
        let mut object = Vec::with_capacity(self.object_bytes(body.len()));
        object.extend_from_slice(MAGIC);
        object.extend_from_slice(&VERSION.to_le_bytes());
        let seal = if self.key.is_some() { SEAL_AES } else { SEAL_CHECKSUM };
        object.extend_from_slice(&seal.to_le_bytes());
        object.extend_from_slice(&(body.len() as u64).to_le_bytes());
        let Some(key) = &self.key else {
            object.resize(HEAD_BYTES, 0);
            object.extend_from_slice(body);
            let sum = checksum(name, &object);
            object.extend_from_slice(&sum.to_le_bytes());
            return object;
        };
        object.extend_from_slice(&mark_of(key).to_le_bytes());
        object.extend_from_slice(&rand::random::<[u8; 32]>());
        let head: [u8; HEAD_BYTES] = head_of(&object);
        let cipher = cipher_of(key, &head);
        for number in 0..parts(body.len()) {
            let part = &body[number * PART_BYTES..body.len().min((number + 1) * PART_BYTES)];
            let from = object.len();
            object.extend_from_slice(part);
            let aad = Aad::from(context(name, &head, number));
            let sealed = cipher.seal_in_place_separate_tag(nonce(number), aad, &mut object[from..]);
            match sealed {
                Ok(tag) => object.extend_from_slice(tag.as_ref()),
                // What is not encrypted must never leave this function.
                Err(_) => unreachable!("a part of 64 KiB is too long to be encrypted"),
            }
        }
        object
    }

    /// The body of an object.
    ///
    /// # Errors
    /// The bytes are not the object that was put under this name, or the key is another or missing.
    pub fn open(&self, name: &str, mut object: Vec<u8>) -> Result<Vec<u8>, BackupError> {
        let wrong = |why: &str| Err(BackupError::object(name, why));
        if object.len() < HEAD_BYTES {
            return wrong("it is cut short: shorter than a head");
        }
        let head = head_of(&object);
        if &head[..8] != MAGIC {
            return wrong("it is no object of a backup: it begins with other bytes");
        }
        let version = word(&head, 8) as u32;
        if version != VERSION {
            let why = format!("it has format version {version}, this program reads {VERSION}");
            return wrong(&why);
        }
        let body_bytes = word(&head, 16);
        let seal = (word(&head, 8) >> 32) as u32;
        let (seals, key) = match (seal, &self.key) {
            (SEAL_CHECKSUM, None) => (SUM_BYTES as u64, None),
            (SEAL_AES, Some(key)) => {
                let parts = body_bytes.div_ceil(PART_BYTES as u64).max(1);
                (parts.saturating_mul(TAG_BYTES as u64), Some(key))
            }
            (SEAL_CHECKSUM, Some(_)) => {
                return wrong(
                    "it is not encrypted, and with a key only encrypted objects are believed",
                );
            }
            (SEAL_AES, None) => return wrong("it is encrypted: give --ship-key-file FILE"),
            (other, _) => return wrong(&format!("it has an unknown seal, {other}")),
        };
        let expected = (HEAD_BYTES as u64).saturating_add(body_bytes).saturating_add(seals);
        if object.len() as u64 != expected {
            let found = object.len();
            return wrong(&format!("it should have {expected} bytes and has {found}"));
        }
        let Some(key) = key else {
            let sum = word(&object[object.len() - SUM_BYTES..], 0);
            object.truncate(object.len() - SUM_BYTES);
            if checksum(name, &object) != sum {
                return wrong("it is damaged, or another object's bytes: its checksum is wrong");
            }
            object.drain(..HEAD_BYTES);
            return Ok(object);
        };
        if word(&head, 24) != mark_of(key) {
            return wrong("it was encrypted with another key");
        }
        let cipher = cipher_of(key, &head);
        let mut body = Vec::with_capacity(body_bytes as usize);
        for (number, part) in object[HEAD_BYTES..].chunks_mut(PART_BYTES + TAG_BYTES).enumerate() {
            let aad = Aad::from(context(name, &head, number));
            match cipher.open_in_place(nonce(number), aad, part) {
                Ok(plain) => body.extend_from_slice(plain),
                Err(_) => return wrong("it is damaged, or another object's bytes"),
            }
        }
        Ok(body)
    }
}

fn parts(body_bytes: usize) -> usize {
    body_bytes.div_ceil(PART_BYTES).max(1)
}

fn head_of(object: &[u8]) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head.copy_from_slice(&object[..HEAD_BYTES]);
    head
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

fn checksum(name: &str, object: &[u8]) -> u64 {
    let mut sum = Xxh3::new();
    sum.update(name.as_bytes());
    sum.update(object);
    sum.digest()
}

fn context(name: &str, head: &[u8], number: usize) -> Vec<u8> {
    [name.as_bytes(), head, &(number as u64).to_le_bytes()].concat()
}

fn nonce(number: usize) -> Nonce {
    let mut nonce = [0; 12];
    nonce[..8].copy_from_slice(&(number as u64).to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}

/// 32 bytes that follow from a key, a salt and a purpose.
fn derived(key: &Key, salt: &[u8], purpose: &[u8]) -> [u8; 32] {
    let mut bytes = [0; 32];
    let made = Salt::new(HKDF_SHA256, salt).extract(key.as_bytes());
    match made.expand(&[purpose], Bytes32).and_then(|okm| okm.fill(&mut bytes)) {
        Ok(()) => bytes,
        // Zeros would be a key that everybody knows.
        Err(_) => unreachable!("32 bytes are more than HKDF makes"),
    }
}

/// A number by which a key is known, and which says nothing else of it.
fn mark_of(key: &Key) -> u64 {
    word(&derived(key, &[], b"perdura backup: mark"), 0)
}

fn cipher_of(key: &Key, head: &[u8; HEAD_BYTES]) -> LessSafeKey {
    let bytes = derived(key, &head[32..], b"perdura backup: object");
    match UnboundKey::new(&AES_256_GCM, &bytes) {
        Ok(key) => LessSafeKey::new(key),
        Err(_) => unreachable!("a key of 32 bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_equal_parts_of_an_object_are_encrypted_to_different_bytes() {
        let object = Seal::with_key(Key::new([7; 32])).seal("a", &vec![0; 2 * PART_BYTES]);
        let parts = &object[HEAD_BYTES..];
        let second = &parts[PART_BYTES + TAG_BYTES..];
        assert_ne!(parts[..PART_BYTES], second[..PART_BYTES], "one nonce for both");
    }

    fn seals() -> [Seal; 2] {
        [Seal::default(), Seal::with_key(Key::new([7; 32]))]
    }

    #[test]
    fn an_object_comes_back_whole_and_any_change_of_it_is_found() {
        for seal in seals() {
            for len in [0, 1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES] {
                let body: Vec<u8> = (0..len).map(|n| (n * 7 % 251) as u8).collect();
                let object = seal.seal("a/b", &body);
                assert_eq!(object.len(), seal.object_bytes(len));
                assert_eq!(seal.open("a/b", object.clone()).unwrap(), body);
                seal.open("a/c", object.clone()).unwrap_err();
                seal.open("a/b", object[..object.len() - 1].to_vec()).unwrap_err();
                seal.open("a/b", [&object[..], &[0]].concat()).unwrap_err();
                let step = (object.len() / 97).max(1);
                for at in (0..object.len()).step_by(step).chain([object.len() - 1]) {
                    let mut other = object.clone();
                    other[at] ^= 1 << (at % 8);
                    assert!(seal.open("a/b", other).is_err(), "{seal:?}: byte {at} of {len}");
                }
            }
        }
    }

    #[test]
    fn another_key_none_and_a_plain_object_are_named() {
        let [plain, keyed] = seals();
        let said = |seal: &Seal, object| seal.open("a", object).unwrap_err().to_string();
        let secret = b"a secret that must not be in the object".repeat(10);
        let encrypted = keyed.seal("a", &secret);
        assert!(!encrypted.windows(16).any(|window| window == &secret[..16]));
        assert_ne!(encrypted, keyed.seal("a", &secret), "each object has its own key");
        assert!(
            said(&Seal::with_key(Key::new([8; 32])), encrypted.clone()).contains("another key")
        );
        assert!(said(&plain, encrypted).contains("--ship-key-file"));
        assert!(said(&keyed, plain.seal("a", b"x")).contains("not encrypted"));
        let mut newer = plain.seal("a", b"x");
        newer[8] = 2;
        assert!(said(&plain, newer).contains("format version 2"));
        assert!(said(&plain, vec![1; 100]).contains("no object of a backup"));
    }
}
