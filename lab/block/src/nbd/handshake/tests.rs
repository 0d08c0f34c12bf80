//! Handshakes by messages, and by random bytes in pieces of any size.

use proptest::prelude::*;

use super::*;

const OFFER: Offer<'static> = Offer {
    name: "disk",
    description: "modelled",
    capacity_bytes: 1 << 20,
    read_only: false,
    stopping: false,
};

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = OPTION_MAGIC.to_be_bytes().to_vec();
    bytes.extend(number.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

fn go(name: &[u8], requests: &[u16]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name);
    data.extend((requests.len() as u16).to_be_bytes());
    data.extend(requests.iter().flat_map(|request| request.to_be_bytes()));
    data
}

/// The kinds of the replies in `out`, with their data.
fn replies(mut out: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut found = Vec::new();
    while !out.is_empty() {
        assert_eq!(out[..8], OPTION_REPLY_MAGIC.to_be_bytes());
        let kind = u32::from_be_bytes(out[12..16].try_into().unwrap());
        let len = u32::from_be_bytes(out[16..20].try_into().unwrap()) as usize;
        found.push((kind, out[20..20 + len].to_vec()));
        out = &out[20 + len..];
    }
    found
}

/// The kinds of the replies to one option, and the step.
fn ask(handshake: &mut Handshake, offer: &Offer<'_>, message: &[u8]) -> (Vec<u32>, Step) {
    let mut out = Vec::new();
    let (taken, step) = handshake.take(message, offer, &mut out).unwrap();
    assert_eq!(taken, message.len());
    (replies(&out).into_iter().map(|(kind, _)| kind).collect(), step)
}

fn greeted() -> Handshake {
    let mut handshake = Handshake::default();
    ask(&mut handshake, &OFFER, &3u32.to_be_bytes());
    handshake
}

#[test]
fn options_are_answered_as_the_protocol_says() {
    use super::option::*;
    let mut handshake = greeted();
    let mut asked = |number, data: &[u8]| ask(&mut handshake, &OFFER, &option(number, data));
    let more = |kinds: &[u32]| (kinds.to_vec(), Step::More);
    let (ack, info, server) = (option_reply::ACK, option_reply::INFO, option_reply::SERVER);
    assert_eq!(asked(LIST, b""), more(&[server, ack]));
    assert_eq!(asked(LIST, b"x"), more(&[option_reply::ERR_INVALID]));
    // Numbers of STARTTLS, PEEK, the metadata contexts, and options that do not exist.
    for unknown in [4, 5, 9, 10, 11, 12, u32::MAX] {
        assert_eq!(asked(unknown, b"whatever"), more(&[option_reply::ERR_UNSUP]));
    }
    assert_eq!(asked(INFO, &go(b"disk", &[])), more(&[info, ack]));
    assert_eq!(asked(INFO, &go(b"", &[1, 2, 3, 99])), more(&[info, info, info, info, ack]));
    assert_eq!(asked(INFO, &go(b"other", &[])), more(&[option_reply::ERR_UNKNOWN]));
    assert_eq!(asked(GO, b"\xff\xff\xff\xffab"), more(&[option_reply::ERR_INVALID]));
    assert_eq!(asked(GO, &go(b"disk", &[])[..9]), more(&[option_reply::ERR_INVALID]));
    assert_eq!(asked(STRUCTURED_REPLY, b"x"), more(&[option_reply::ERR_INVALID]));
    assert_eq!(asked(STRUCTURED_REPLY, b""), more(&[ack]));
    let chosen = asked(GO, &go(b"disk", &[3]));
    assert_eq!(chosen, (vec![info, info, ack], Step::Transmission { structured: true }));
    assert_eq!(ask(&mut greeted(), &OFFER, &option(ABORT, b"")), (vec![ack], Step::Over));
}

#[test]
fn a_stopping_server_refuses_options_but_lets_clients_go() {
    let stopping = Offer { stopping: true, ..OFFER };
    let go = option(super::option::GO, &go(b"", &[]));
    let refused = (vec![option_reply::ERR_SHUTDOWN], Step::More);
    assert_eq!(ask(&mut greeted(), &stopping, &go), refused);
    let abort = option(super::option::ABORT, b"");
    assert_eq!(ask(&mut greeted(), &stopping, &abort).1, Step::Over);
}

#[test]
fn export_name_is_padded_unless_the_client_can_do_without() {
    for (flags, len) in [(1u32, 134), (3, 10)] {
        let mut handshake = Handshake::default();
        ask(&mut handshake, &OFFER, &flags.to_be_bytes());
        let mut out = Vec::new();
        let message = option(super::option::EXPORT_NAME, b"disk");
        let step = handshake.take(&message, &OFFER, &mut out).unwrap().1;
        assert_eq!((step, out.len()), (Step::Transmission { structured: false }, len));
        assert_eq!(out[..8], OFFER.capacity_bytes.to_be_bytes());
        assert_eq!(u16::from_be_bytes([out[8], out[9]]), 0b1001_0110_1101);
    }
}

#[test]
fn violations_are_told_as_early_as_possible_and_say_what_was_found() {
    let mut out = Vec::new();
    let taken =
        |handshake: &mut Handshake, bytes: &[u8]| handshake.take(bytes, &OFFER, &mut Vec::new());
    assert_eq!(taken(&mut Handshake::default(), &[0, 0, 0, 4]), Err(Violation::ClientFlags(4)));
    assert!(matches!(taken(&mut greeted(), b"GE"), Err(Violation::NotAnOption { .. })));
    let mut long = option(super::option::LIST, b"");
    long[12..16].copy_from_slice(&u32::MAX.to_be_bytes());
    let too_long = Violation::OptionTooLong { option: 3, len_bytes: u32::MAX };
    assert_eq!(taken(&mut greeted(), &long), Err(too_long));
    let unknown = option(super::option::EXPORT_NAME, b"other");
    assert_eq!(taken(&mut greeted(), &unknown), Err(Violation::UnknownExport("other".into())));
    let mut handshake = greeted();
    let list = option(super::option::LIST, b"");
    for _ in 0..OPTIONS_MAX {
        handshake.take(&list, &OFFER, &mut out).unwrap();
    }
    assert_eq!(handshake.take(&list, &OFFER, &mut out), Err(Violation::TooManyOptions));
}

proptest! {
    /// The same bytes are taken and answered in the same way, however they are cut into pieces.
    #[test]
    fn pieces_make_no_difference(
        options in proptest::collection::vec(
            (0u32..13, proptest::collection::vec(any::<u8>(), 0..40)),
            0..8,
        ),
        cuts in proptest::collection::vec(1usize..20, 1..200),
        noise in proptest::collection::vec(any::<u8>(), 0..30),
    ) {
        let mut bytes = 3u32.to_be_bytes().to_vec();
        bytes.extend(options.iter().flat_map(|(number, data)| option(*number, data)));
        bytes.extend(noise);
        let whole = follow(&bytes, &[bytes.len()]);
        prop_assert_eq!(whole, follow(&bytes, &cuts));
    }
}

/// The server's answer to bytes that come in pieces, and the end of the handshake.
fn follow(bytes: &[u8], cuts: &[usize]) -> (Vec<u8>, Result<Step, Violation>) {
    let (mut handshake, mut out) = (Handshake::default(), Vec::new());
    let (mut start, mut here) = (0, 0);
    for cut in cuts.iter().cycle() {
        here = (here + cut).min(bytes.len());
        loop {
            match handshake.take(&bytes[start..here], &OFFER, &mut out) {
                Ok((0, Step::More)) => break,
                Ok((taken, Step::More)) => start += taken,
                Ok((_, step)) => return (out, Ok(step)),
                Err(violation) => return (out, Err(early(violation))),
            }
        }
        if here == bytes.len() {
            return (out, Ok(Step::More));
        }
    }
    (out, Ok(Step::More))
}

/// The number in a violation depends on how many of its bytes have come, so it is left out.
fn early(violation: Violation) -> Violation {
    match violation {
        Violation::NotAnOption { .. } => Violation::NotAnOption { found: 0 },
        other => other,
    }
}
