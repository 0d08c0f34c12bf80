//! Replies as bytes. A reply's buffer is used again and again, so its length is kept apart from the
//! number of its bytes that are valid.

use super::wire::{
    CHUNK_BYTES, CHUNK_MAGIC, ErrorCode, SIMPLE_REPLY_BYTES, SIMPLE_REPLY_MAGIC, chunk,
};

/// A complete reply, to be sent when its instant has come.
#[derive(Debug, Default)]
pub struct Reply {
    bytes: Vec<u8>,
    used: usize,
}

impl Reply {
    /// An empty reply in a buffer that may have been used before.
    #[must_use]
    pub fn in_buffer(bytes: Vec<u8>) -> Self {
        Self { bytes, used: 0 }
    }

    /// The bytes to send.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }

    /// Returns the buffer for another reply.
    #[must_use]
    pub fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }

    /// Makes a reply of success without data. A client that wants structured replies gets the
    /// simple one, too, for it is shorter.
    pub fn done(&mut self, cookie: u64) {
        self.simple(cookie, 0, 0);
    }

    /// Makes the head of a successful read's reply, and returns the place of its `len_bytes` bytes.
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

    /// Makes a reply of failure: a chunk with a text for people if `structured`, else a simple
    /// reply.
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

    /// Begins a chunk that is the only one of its reply, so a client that forbids fragments gets
    /// none.
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

/// Longest text of an error. The protocol allows 4,096 bytes.
const TEXT_BYTES_MAX: usize = 1024;
