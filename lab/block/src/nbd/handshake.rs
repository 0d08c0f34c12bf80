//! The handshake as a pure function: bytes of the client in, bytes of the server out.
//!
//! Bounds: an option has at most [`OPTION_BYTES_MAX`] bytes, and a client sends at most
//! [`OPTIONS_MAX`] options; more end the connection. A violation ends the connection. An option
//! that is unknown or malformed is answered with the protocol's error, and the client may go on.

use super::wire::{
    BLOCK_MIN_BYTES, BLOCK_PREFERRED_BYTES, FIXED_NEWSTYLE, GREETING_MAGIC, NO_ZEROES,
    OPTION_MAGIC, OPTION_REPLY_MAGIC, PAYLOAD_MAX_BYTES, info, option, option_reply, transmission,
};

/// Most bytes of an option. A name may have 4,096, and a few requests for information follow.
pub const OPTION_BYTES_MAX: u32 = 16 << 10;
/// Most options that a client may send before it has chosen an export.
pub const OPTIONS_MAX: u32 = 256;

const OPTION_HEADER_BYTES: usize = 16;
const PADDING_BYTES: usize = 124;

/// The export that a client is offered.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'a> {
    /// The export's name. The empty name means the same export.
    pub name: &'a str,
    /// A text for people about the export.
    pub description: &'a str,
    /// Size of the export.
    pub capacity_bytes: u64,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether the server is stopping; options are refused then.
    pub stopping: bool,
}

/// The state of a handshake after a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// More of the client's bytes are needed.
    More,
    /// The client has chosen the export, and its requests follow.
    Transmission {
        /// Whether reads are answered in chunks.
        structured: bool,
    },
    /// The client has ended the handshake.
    Over,
}

/// A reason to end a connection during the handshake.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The client set flags that were not offered.
    #[error("client flags {0:#x}: only {known:#x} are known", known = FIXED_NEWSTYLE | NO_ZEROES)]
    ClientFlags(u32),
    /// An option does not begin with the protocol's magic number.
    #[error("{found:#018x} where an option begins with {OPTION_MAGIC:#018x}")]
    NotAnOption {
        /// The number found in its place.
        found: u64,
    },
    /// An option is longer than any option that this server knows.
    #[error("option {option} announces {len_bytes} bytes; at most {OPTION_BYTES_MAX}")]
    OptionTooLong {
        /// Number of the option.
        option: u32,
        /// Length that was announced.
        len_bytes: u32,
    },
    /// The client sent more than [`OPTIONS_MAX`] options.
    #[error("more than {OPTIONS_MAX} options")]
    TooManyOptions,
    /// The client asked for another export by `EXPORT_NAME`, which has no error reply: only closing
    /// the connection refuses it.
    #[error("no export named {0:?}")]
    UnknownExport(String),
}

/// A handshake under way.
#[derive(Debug, Default)]
pub struct Handshake {
    client_flags: Option<u32>,
    structured: bool,
    options: u32,
}

/// The first bytes that the server sends.
#[must_use]
pub fn greeting() -> [u8; 18] {
    let mut bytes = [0; 18];
    bytes[..8].copy_from_slice(&GREETING_MAGIC.to_be_bytes());
    bytes[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
    bytes[16..].copy_from_slice(&((FIXED_NEWSTYLE | NO_ZEROES) as u16).to_be_bytes());
    bytes
}

impl Handshake {
    /// Takes one message from the beginning of `input`, and appends the answer to `out`. Returns
    /// the number of bytes taken, which is 0 with [`Step::More`] while the message is incomplete.
    ///
    /// # Errors
    /// The client violated the protocol.
    pub fn take(
        &mut self,
        input: &[u8],
        offer: &Offer<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(usize, Step), Violation> {
        if self.client_flags.is_none() {
            let Some(flags) = input.first_chunk() else { return Ok((0, Step::More)) };
            let flags = u32::from_be_bytes(*flags);
            if flags & !(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
                return Err(Violation::ClientFlags(flags));
            }
            self.client_flags = Some(flags);
            return Ok((4, Step::More));
        }
        let Some((option, data)) = whole_option(input)? else { return Ok((0, Step::More)) };
        self.options += 1;
        if self.options > OPTIONS_MAX {
            return Err(Violation::TooManyOptions);
        }
        let step = self.answer(option, data, offer, out)?;
        Ok((OPTION_HEADER_BYTES + data.len(), step))
    }

    fn answer(
        &mut self,
        option: u32,
        data: &[u8],
        offer: &Offer<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Step, Violation> {
        let mut answer = Answer { option, out };
        match option {
            option::ABORT => {
                answer.ack();
                return Ok(Step::Over);
            }
            option::EXPORT_NAME => return self.export_name(data, offer, answer.out),
            _ if offer.stopping => {
                answer.error(option_reply::ERR_SHUTDOWN, "the server is stopping")
            }
            option::LIST if data.is_empty() => {
                let name = offer.name.as_bytes();
                let len = (name.len() as u32).to_be_bytes();
                answer.reply(option_reply::SERVER, &[&len, name, offer.description.as_bytes()]);
                answer.ack();
            }
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.structured = true;
                answer.ack();
            }
            option::LIST | option::STRUCTURED_REPLY => {
                answer.error(option_reply::ERR_INVALID, "this option has no data");
            }
            option::INFO | option::GO => match wanted(data) {
                None => answer.error(option_reply::ERR_INVALID, "lengths that do not add up"),
                Some((name, _)) if !means(name, offer) => {
                    answer.error(option_reply::ERR_UNKNOWN, "no such export");
                }
                Some((_, requests)) => {
                    self.inform(requests, offer, &mut answer);
                    answer.ack();
                    if option == option::GO {
                        return Ok(Step::Transmission { structured: self.structured });
                    }
                }
            },
            _ => answer.error(option_reply::ERR_UNSUP, "unknown option"),
        }
        Ok(Step::More)
    }

    fn export_name(
        &self,
        name: &[u8],
        offer: &Offer<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Step, Violation> {
        if !means(name, offer) {
            let name: String = String::from_utf8_lossy(name).chars().take(100).collect();
            return Err(Violation::UnknownExport(name));
        }
        out.extend_from_slice(&offer.capacity_bytes.to_be_bytes());
        out.extend_from_slice(&flags(offer, self.structured).to_be_bytes());
        if self.client_flags.unwrap_or(0) & NO_ZEROES == 0 {
            out.extend_from_slice(&[0; PADDING_BYTES]);
        }
        Ok(Step::Transmission { structured: self.structured })
    }

    fn inform(&self, requests: &[u8], offer: &Offer<'_>, answer: &mut Answer<'_>) {
        let size = offer.capacity_bytes.to_be_bytes();
        let flags = flags(offer, self.structured).to_be_bytes();
        answer.info(info::EXPORT, &[&size, &flags]);
        let asked = |kind: u16| requests.chunks_exact(2).any(|word| word == kind.to_be_bytes());
        if asked(info::NAME) {
            answer.info(info::NAME, &[offer.name.as_bytes()]);
        }
        if asked(info::DESCRIPTION) {
            answer.info(info::DESCRIPTION, &[offer.description.as_bytes()]);
        }
        if asked(info::BLOCK_SIZE) {
            let sizes = [BLOCK_MIN_BYTES, BLOCK_PREFERRED_BYTES, PAYLOAD_MAX_BYTES];
            let [min, preferred, max] = sizes.map(u32::to_be_bytes);
            answer.info(info::BLOCK_SIZE, &[&min, &preferred, &max]);
        }
    }
}

/// Number and data of the first option in `input`, if it is complete.
fn whole_option(input: &[u8]) -> Result<Option<(u32, &[u8])>, Violation> {
    let magic = OPTION_MAGIC.to_be_bytes();
    let known = input.len().min(8);
    if input[..known] != magic[..known] {
        let mut word = [0; 8];
        word[..known].copy_from_slice(&input[..known]);
        return Err(Violation::NotAnOption { found: u64::from_be_bytes(word) });
    }
    let Some((header, rest)) = input.split_first_chunk::<OPTION_HEADER_BYTES>() else {
        return Ok(None);
    };
    let [.., a, b, c, d, e, f, g, h] = *header;
    let (option, len_bytes) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
    if len_bytes > OPTION_BYTES_MAX {
        return Err(Violation::OptionTooLong { option, len_bytes });
    }
    Ok(rest.get(..len_bytes as usize).map(|data| (option, data)))
}

/// The name and the requests for information (two bytes each) in the data of `INFO` and `GO`.
fn wanted(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (name_len, rest) = data.split_first_chunk()?;
    let (name, rest) = rest.split_at_checked(u32::from_be_bytes(*name_len) as usize)?;
    let (count, requests) = rest.split_first_chunk()?;
    let whole = requests.len() == usize::from(u16::from_be_bytes(*count)) * 2;
    whole.then_some((name, requests))
}

/// Whether `name` means the export. The empty name is the default export's, and there is only one.
fn means(name: &[u8], offer: &Offer<'_>) -> bool {
    name.is_empty() || name == offer.name.as_bytes()
}

/// The protocol's flags of the export.
fn flags(offer: &Offer<'_>, structured: bool) -> u16 {
    use transmission::{
        CAN_MULTI_CONN, HAS_FLAGS, READ_ONLY, SEND_DF, SEND_FAST_ZERO, SEND_FLUSH, SEND_FUA,
        SEND_TRIM, SEND_WRITE_ZEROES,
    };
    // Operations of all connections change the same memory, so a flush on one connection covers
    // all.
    let mut flags = HAS_FLAGS | SEND_FLUSH | SEND_FUA | SEND_TRIM | CAN_MULTI_CONN;
    flags |= SEND_WRITE_ZEROES | SEND_FAST_ZERO;
    if offer.read_only {
        flags |= READ_ONLY;
    }
    if structured {
        flags |= SEND_DF;
    }
    flags
}

/// Writes the replies to one option.
struct Answer<'a> {
    option: u32,
    out: &'a mut Vec<u8>,
}

impl Answer<'_> {
    fn reply(&mut self, kind: u32, parts: &[&[u8]]) {
        let len_bytes: usize = parts.iter().map(|part| part.len()).sum();
        self.out.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
        self.out.extend_from_slice(&self.option.to_be_bytes());
        self.out.extend_from_slice(&kind.to_be_bytes());
        self.out.extend_from_slice(&(len_bytes as u32).to_be_bytes());
        for part in parts {
            self.out.extend_from_slice(part);
        }
    }

    fn ack(&mut self) {
        self.reply(option_reply::ACK, &[]);
    }

    fn error(&mut self, kind: u32, text: &str) {
        self.reply(kind, &[text.as_bytes()]);
    }

    fn info(&mut self, kind: u16, parts: &[&[u8]]) {
        let kind = kind.to_be_bytes();
        let mut all: Vec<&[u8]> = vec![&kind];
        all.extend(parts);
        self.reply(option_reply::INFO, &all);
    }
}

#[cfg(test)]
#[path = "handshake/tests.rs"]
mod tests;
