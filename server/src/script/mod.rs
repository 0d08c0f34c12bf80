//! Scripts: one Lua state for each loop, in which they run bounded in time and memory.
//!
//! `engine` has the state, `prelude.lua` what scripts see, `host` what a script needs of the
//! server. A script's values become replies in `replies`, and replies of its commands values in
//! `values`. `json`, `msgpack`, `structs`, `bits` and `strings` are the libraries that Redis
//! offers. The commands are in [`crate::commands`].
//!
//! Lua runs in the thread of its loop. An error of Rust, of the memory's limit or of the hook that
//! looks at the time cannot be caught by a script: the prelude raises it again.

mod api;
mod bind;
mod bits;
mod dump;
mod engine;
mod host;
mod json;
mod library;
mod msgpack;
mod names;
mod numbers;
mod pattern;
mod random;
mod replies;
mod shebang;
mod strings;
mod structs;
mod values;
mod words;

pub(crate) use dump::{dump, restore};
pub(crate) use engine::{Ended, Engine, Input, LoadError};
pub(crate) use host::{CallError, Host, Stop};
pub(crate) use library::{About, Libraries, Library};
pub(crate) use shebang::{Flags, flags_of_code, library_name};
pub(crate) use words::Words;

/// The name of the prelude's chunk.
const PRELUDE: &str = "=prelude";

/// A script's digest, by which EVALSHA names it.
pub(crate) type Sha = [u8; 20];

/// The digest of a script.
pub(crate) fn sha_of(code: &[u8]) -> Sha {
    use sha1::{Digest, Sha1};
    Sha1::digest(code).into()
}

/// Bytes as hexadecimal digits in lower case.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

/// The digest that 40 hexadecimal digits spell.
pub(crate) fn parse_sha(text: &[u8]) -> Option<Sha> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let mut sha = [0; 20];
    if text.len() != 40 {
        return None;
    }
    for (byte, pair) in sha.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(sha)
}
