//! Replies as bytes. A reply's buffer is used again and again, so its length is kept apart from how
//! much of it counts.

use super::wire::{
    CHUNK_BYTES, CHUNK_MAGIC, ErrorCode, SIMPLE_REPLY_BYTES, SIMPLE_REPLY_MAGIC, chunk,
};

/// A reply, whole, to be sent when its time has come.
#[derive(Debug, Default)]
pub struct Reply {
    bytes: Vec<u8>,
    used: usize,
}

impl Reply {
    /// Into a buffer that may have been used before.
    #[must_use]
    pub fn in_buffer(bytes: Vec<u8>) -> Self {
        Self { bytes, used: 0 }
    }

    /// What is to be sent.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }

    /// The buffer back.
    #[must_use]
    pub fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }

    /// Done, without data. Also a client that wants structured replies takes the simple one, which
    /// is shorter.
    pub fn done(&mut self, cookie: u64) {
        self.simple(cookie, 0, 0);
    }

    /// The head of a successful read's reply; returns the place of its `len_bytes` bytes.
    pub fn data(
        &mut self,
        structured: bool,
        cookie: u64,
        offset_bytes: u64,
        len_bytes: u32,
    ) -> &mut [u8] {
        let len = len_bytes as usize;
        if !structured {
            self.simple(cookie, 0, len);
            return &mut self.bytes[SIMPLE_REPLY_BYTES..self.used];
        }
        self.chunk(cookie, chunk::OFFSET_DATA, 8 + len);
        self.bytes[CHUNK_BYTES..CHUNK_BYTES + 8].copy_from_slice(&offset_bytes.to_be_bytes());
        &mut self.bytes[CHUNK_BYTES + 8..self.used]
    }

    /// A failure; in a chunk with a text for people where the client wants that.
    pub fn error(&mut self, structured: bool, cookie: u64, code: ErrorCode, text: &str) {
        if !structured {
            return self.simple(cookie, code.number(), 0);
        }
        let text = &text.as_bytes()[..text.len().min(TEXT_BYTES_MAX)];
        self.chunk(cookie, chunk::ERROR, 6 + text.len());
        let payload = &mut self.bytes[CHUNK_BYTES..self.used];
        payload[..4].copy_from_slice(&code.number().to_be_bytes());
        payload[4..6].copy_from_slice(&(text.len() as u16).to_be_bytes());
        payload[6..].copy_from_slice(text);
    }

    fn simple(&mut self, cookie: u64, error: u32, data_bytes: usize) {
        self.make_room(SIMPLE_REPLY_BYTES + data_bytes);
        self.bytes[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
        self.bytes[4..8].copy_from_slice(&error.to_be_bytes());
        self.bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    }

    /// The only chunk of its reply: so the client that sets "don't fragment" has what it asked for.
    fn chunk(&mut self, cookie: u64, kind: u16, payload_bytes: usize) {
        self.make_room(CHUNK_BYTES + payload_bytes);
        self.bytes[..4].copy_from_slice(&CHUNK_MAGIC.to_be_bytes());
        self.bytes[4..6].copy_from_slice(&chunk::FLAG_DONE.to_be_bytes());
        self.bytes[6..8].copy_from_slice(&kind.to_be_bytes());
        self.bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
        self.bytes[16..20].copy_from_slice(&(payload_bytes as u32).to_be_bytes());
    }

    fn make_room(&mut self, used: usize) {
        if self.bytes.len() < used {
            self.bytes.resize(used, 0);
        }
        self.used = used;
    }
}

/// The protocol allows 4,096.
const TEXT_BYTES_MAX: usize = 1024;
