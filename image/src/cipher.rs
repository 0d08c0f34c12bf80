//! Encryption of frames at rest: AES-256-GCM, by the crate `ring`.
//!
//! An image has a random key of its own, which the superblock keeps encrypted by the user's key, so
//! that the user's key can be changed without writing the image anew. Each frame has a key that is
//! derived from the image's key, the frame's identity and a random salt; under it each 4 KiB of
//! payload is encrypted with its number as the nonce. So no nonce meets one key twice, though a
//! frame may be sealed again after a kill. The tag of a block takes the place of its checksum. One
//! more tag covers the header and the tables, which are not secret: they show where and when data
//! changed, and how well they compressed. A commit has a tag, too.
//!
//! Whoever can write to the SSD can bring back an older whole state of an image; other changes of
//! commits and frames are found.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use zerocopy::IntoBytes;

use crate::error::{ImageError, OpenError};
use crate::format::{
    FrameHeader, SALT_BYTES, SEAL_BYTES, SUM_BYTES, SlotHeader, WRAPPED_KEY_BYTES,
};

/// Number that the seal has among the nonces of a frame; no block has it.
const SEAL_NUMBER: u64 = u64::MAX;
const NONCE_BYTES: usize = 12;
const KEY_BYTES: usize = 32;
const TAG_BYTES: usize = 16;
const _: () = assert!(TAG_BYTES == SUM_BYTES);

/// A key of 256 bits. It is not shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; KEY_BYTES]);

impl Key {
    /// A key of these bytes.
    pub fn new(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// The key in a file: its 32 bytes, or 64 hexadecimal digits with white space around them.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if let Ok(bytes) = text.try_into() {
            return Some(Self(bytes));
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
        let (pairs, rest) = text.trim_ascii().as_chunks::<2>();
        let bytes: Option<Vec<u8>> =
            pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect();
        bytes.filter(|_| rest.is_empty())?.try_into().ok().map(Self)
    }

    /// The bytes of the key.
    pub fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// A key of random bytes, as an image has one.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn random() -> Result<Self, OpenError> {
        let mut bytes = [0; KEY_BYTES];
        fill_random(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// The key in words, as the ledger keeps it.
    pub(crate) fn from_words(words: [u64; 4]) -> Self {
        let mut bytes = [0; KEY_BYTES];
        bytes.copy_from_slice(words.map(u64::to_le_bytes).as_flattened());
        Self(bytes)
    }

    /// The words of [`Key::from_words`].
    pub fn words(&self) -> [u64; 4] {
        let (words, _) = self.0.as_chunks::<8>();
        std::array::from_fn(|number| u64::from_le_bytes(words[number]))
    }

    /// The tag of a commit: of its header without tag and checksum, and of its table.
    pub(crate) fn commit_seal(&self, header: &SlotHeader, table: &[u8]) -> [u8; SUM_BYTES] {
        let bare = SlotHeader { seal: [0; SUM_BYTES], checksum: 0.into(), ..*header };
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &self.0));
        context.update(b"perdura commit");
        context.update(bare.as_bytes());
        context.update(table);
        let mut tag = [0; SUM_BYTES];
        tag.copy_from_slice(&context.sign().as_ref()[..SUM_BYTES]);
        tag
    }

    /// Encrypts an image's key.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub(crate) fn wrap(
        &self,
        image_key: &Self,
        image_id: u64,
    ) -> Result<[u8; WRAPPED_KEY_BYTES], OpenError> {
        let mut wrapped = [0; WRAPPED_KEY_BYTES];
        let (nonce, rest) = wrapped.split_at_mut(NONCE_BYTES);
        let (key, tag) = rest.split_at_mut(KEY_BYTES);
        fill_random(nonce)?;
        key.copy_from_slice(&image_key.0);
        let found = aead(&self.0).seal_in_place_separate_tag(
            Nonce::assume_unique_for_key(std::array::from_fn(|at| nonce[at])),
            Aad::from(wrapped_aad(image_id)),
            key,
        );
        tag.copy_from_slice(sealed(found).as_ref());
        Ok(wrapped)
    }

    /// Decrypts an image's key; `None`: this is not the key that it was encrypted with.
    pub(crate) fn unwrap(&self, wrapped: &[u8; WRAPPED_KEY_BYTES], image_id: u64) -> Option<Self> {
        let (nonce, rest) = wrapped.split_at(NONCE_BYTES);
        let mut rest: [u8; KEY_BYTES + TAG_BYTES] = rest.try_into().ok()?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let aad = Aad::from(wrapped_aad(image_id));
        let key = aead(&self.0).open_in_place(nonce, aad, &mut rest).ok()?;
        Some(Self(key.try_into().ok()?))
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(…)")
    }
}

/// The key of one frame.
pub(crate) struct FrameKey {
    aead: LessSafeKey,
    salt: [u8; SALT_BYTES],
}

impl FrameKey {
    /// The key of a frame that is about to be sealed.
    ///
    /// # Panics
    /// The system has no random bytes, which Linux always has once it has booted. A frame that
    /// cannot be encrypted must not be written.
    pub(crate) fn new(image_key: &Key, header: &FrameHeader) -> Self {
        let mut salt = [0; SALT_BYTES];
        if let Err(error) = fill_random(&mut salt) {
            panic!("{error}");
        }
        Self::of(image_key, header, salt)
    }

    /// The key of a frame that was sealed with this salt.
    pub(crate) fn of(image_key: &Key, header: &FrameHeader, salt: [u8; SALT_BYTES]) -> Self {
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &image_key.0));
        context.update(b"perdura frame");
        context.update(header.image_id.as_bytes());
        context.update(header.seq.as_bytes());
        context.update(header.incarnation.as_bytes());
        context.update(&salt);
        let mut key = [0; KEY_BYTES];
        key.copy_from_slice(context.sign().as_ref());
        Self { aead: aead(&key), salt }
    }

    /// Encrypts a block of payload in place. Returns its tag.
    pub(crate) fn seal_block(&self, number: usize, block: &mut [u8]) -> [u8; SUM_BYTES] {
        let found = self.aead.seal_in_place_separate_tag(nonce(number as u64), Aad::empty(), block);
        tag_of(sealed(found))
    }

    /// Decrypts a block of payload in place. Returns whether it has its tag; if not, the block has
    /// bytes that must not be used.
    pub(crate) fn open_block(
        &self,
        number: usize,
        block: &mut [u8],
        tag: &[u8; SUM_BYTES],
    ) -> bool {
        let tag = (*tag).into();
        let aad = Aad::empty();
        self.aead.open_in_place_separate_tag(nonce(number as u64), aad, tag, block, 0..).is_ok()
    }

    /// The seal of a frame: salt, and the tag of its header and tables.
    pub(crate) fn seal(&self, header: &FrameHeader, tables: &[u8]) -> [u8; SEAL_BYTES] {
        let aad = Aad::from([&bound(header), tables].concat());
        let found = self.aead.seal_in_place_separate_tag(nonce(SEAL_NUMBER), aad, &mut []);
        let mut seal = [0; SEAL_BYTES];
        seal[..SALT_BYTES].copy_from_slice(&self.salt);
        seal[SALT_BYTES..].copy_from_slice(sealed(found).as_ref());
        seal
    }

    /// The key of a sealed frame, if header and tables are those that were sealed.
    pub(crate) fn open(
        image_key: &Key,
        header: &FrameHeader,
        tables: &[u8],
        seal: &[u8; SEAL_BYTES],
    ) -> Option<Self> {
        let (salt, tag) = seal.split_first_chunk()?;
        let key = Self::of(image_key, header, *salt);
        let aad = Aad::from([&bound(header), tables].concat());
        let mut tag: [u8; TAG_BYTES] = tag.try_into().ok()?;
        key.aead.open_in_place(nonce(SEAL_NUMBER), aad, &mut tag).ok()?;
        Some(key)
    }

    #[cfg(test)]
    fn salt(&self) -> [u8; SALT_BYTES] {
        self.salt
    }
}

/// The fields of a header that a seal covers. Left out are the length that the frame keeps, which
/// may be decided later, and the checksums.
fn bound(header: &FrameHeader) -> Vec<u8> {
    let FrameHeader { version, flags, image_id, seq, epoch, .. } = header;
    let FrameHeader { raw_bytes, payload_bytes, extents, incarnation, .. } = header;
    let halves = [version, flags].map(IntoBytes::as_bytes).concat();
    let wholes = [image_id, seq].map(IntoBytes::as_bytes).concat();
    let words = [epoch, raw_bytes, payload_bytes, extents, incarnation];
    [halves, wholes, words.map(IntoBytes::as_bytes).concat()].concat()
}

fn wrapped_aad(image_id: u64) -> [u8; 25] {
    let mut aad = *b"perdura image key........";
    aad[17..].copy_from_slice(&image_id.to_le_bytes());
    aad
}

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; NONCE_BYTES];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

fn aead(key: &[u8; KEY_BYTES]) -> LessSafeKey {
    match UnboundKey::new(&AES_256_GCM, key) {
        Ok(key) => LessSafeKey::new(key),
        Err(_) => unreachable!("a key of AES-256 has 32 bytes"),
    }
}

fn tag_of(tag: ring::aead::Tag) -> [u8; TAG_BYTES] {
    let mut bytes = [0; TAG_BYTES];
    bytes.copy_from_slice(tag.as_ref());
    bytes
}

fn sealed(found: Result<ring::aead::Tag, ring::error::Unspecified>) -> ring::aead::Tag {
    match found {
        Ok(tag) => tag,
        Err(_) => unreachable!("AES-GCM encrypts up to 64 GiB at a time"),
    }
}

fn fill_random(bytes: &mut [u8]) -> Result<(), OpenError> {
    SystemRandom::new().fill(bytes).map_err(|_| ImageError::NoRandomBytes.into())
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;

    fn header(seq: u64) -> FrameHeader {
        FrameHeader { seq: seq.into(), image_id: 7.into(), ..FrameHeader::new_zeroed() }
    }

    #[test]
    fn a_key_is_32_bytes_or_64_digits_and_nothing_else() {
        let bytes: [u8; 32] = std::array::from_fn(|at| at as u8 * 7);
        let key = Key::new(bytes);
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        for text in [&digits, &digits.to_uppercase(), &format!("  {digits}\n")] {
            assert!(Key::parse(text.as_bytes()).as_ref() == Some(&key), "{text}");
        }
        assert!(Key::parse(&bytes) == Some(key));
        let long = format!("{digits}00");
        for wrong in [&digits[1..], &digits[2..], &long, "", "g", &digits.replace('0', "x")] {
            assert!(Key::parse(wrong.as_bytes()).is_none(), "{wrong}");
        }
    }

    #[test]
    fn an_image_key_is_had_back_by_the_key_it_was_wrapped_with_and_no_other() {
        let (user, other, image) = (Key::new([1; 32]), Key::new([2; 32]), Key::random().unwrap());
        let wrapped = user.wrap(&image, 7).unwrap();
        assert!(user.unwrap(&wrapped, 7).as_ref() == Some(&image));
        assert!(other.unwrap(&wrapped, 7).is_none() && user.unwrap(&wrapped, 8).is_none());
        for at in 0..wrapped.len() {
            let mut damaged = wrapped;
            damaged[at] ^= 1;
            assert!(user.unwrap(&damaged, 7).is_none(), "byte {at}");
        }
        assert!(!wrapped.windows(32).any(|part| part == image.0));
        assert!(Key::from_words(image.words()) == image);
        assert_ne!(wrapped, user.wrap(&image, 7).unwrap(), "the same nonce twice");
    }

    #[test]
    fn a_block_is_opened_in_its_own_place_of_its_own_frame_only() {
        let image = Key::random().unwrap();
        let key = FrameKey::new(&image, &header(1));
        let plain: Vec<u8> = (0..4000).map(|n| n as u8).collect();
        let mut stored = plain.clone();
        let tag = key.seal_block(3, &mut stored);
        assert_ne!(stored, plain);
        let opens = |key: &FrameKey, number, stored: &[u8], tag| {
            let mut block = stored.to_vec();
            key.open_block(number, &mut block, tag) && block == plain
        };
        assert!(opens(&FrameKey::of(&image, &header(1), key.salt()), 3, &stored, &tag));
        assert!(!opens(&key, 4, &stored, &tag), "another place");
        assert!(!opens(&FrameKey::of(&image, &header(2), key.salt()), 3, &stored, &tag));
        assert!(!opens(&FrameKey::of(&image, &header(1), [0; 16]), 3, &stored, &tag));
        for other in [
            FrameHeader { image_id: 8.into(), ..header(1) },
            FrameHeader { incarnation: 1.into(), ..header(1) },
        ] {
            assert!(!opens(&FrameKey::of(&image, &other, key.salt()), 3, &stored, &tag));
        }
        for at in [0, 1999, 3999] {
            let mut damaged = stored.clone();
            damaged[at] ^= 0x10;
            assert!(!opens(&key, 3, &damaged, &tag), "byte {at}");
        }
        // Another salt, and with it another ciphertext, each time.
        let mut again = plain.clone();
        FrameKey::new(&image, &header(1)).seal_block(3, &mut again);
        assert_ne!(again, stored);
    }

    #[test]
    fn the_tag_of_a_commit_is_of_its_header_and_its_table_and_of_one_image() {
        let (key, header) = (Key::new([1; 32]), SlotHeader::new_zeroed());
        let tag = key.commit_seal(&header, &[9; 64]);
        let sealed = SlotHeader { seal: tag, checksum: 7.into(), ..header };
        assert_eq!(key.commit_seal(&sealed, &[9; 64]), tag, "it is not of itself");
        let later = SlotHeader { commit: 1.into(), ..header };
        assert_ne!(key.commit_seal(&later, &[9; 64]), tag);
        assert_ne!(key.commit_seal(&header, &[8; 64]), tag);
        assert_ne!(key.commit_seal(&header, &[9; 63]), tag);
        assert_ne!(Key::new([2; 32]).commit_seal(&header, &[9; 64]), tag);
    }

    #[test]
    fn a_seal_is_of_all_that_a_reader_uses_of_header_and_tables() {
        let image = Key::random().unwrap();
        let tables = [9; 64];
        let seal = FrameKey::new(&image, &header(1)).seal(&header(1), &tables);
        let opens = |header: &FrameHeader, tables: &[u8], seal: &[u8; SEAL_BYTES]| {
            FrameKey::open(&image, header, tables, seal).is_some()
        };
        assert!(opens(&header(1), &tables, &seal));
        let total = FrameHeader { total_bytes: 9.into(), ..header(1) };
        assert!(opens(&total, &tables, &seal), "it may be decided later");
        for changed in [
            FrameHeader { version: 1.into(), ..header(1) },
            FrameHeader { flags: 1.into(), ..header(1) },
            FrameHeader { image_id: 1.into(), ..header(1) },
            header(2),
            FrameHeader { epoch: 1.into(), ..header(1) },
            FrameHeader { raw_bytes: 1.into(), ..header(1) },
            FrameHeader { payload_bytes: 1.into(), ..header(1) },
            FrameHeader { extents: 1.into(), ..header(1) },
            FrameHeader { incarnation: 1.into(), ..header(1) },
        ] {
            assert!(!opens(&changed, &tables, &seal), "{changed:?}");
        }
        assert!(!opens(&header(1), &[8; 64], &seal) && !opens(&header(1), &tables[1..], &seal));
        for at in 0..SEAL_BYTES {
            let mut damaged = seal;
            damaged[at] ^= 1;
            assert!(!opens(&header(1), &tables, &damaged), "byte {at}");
        }
    }
}
