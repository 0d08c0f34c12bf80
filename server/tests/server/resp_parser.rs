//! The parser against a naive one, and against itself with the input cut everywhere.

use perdura_server::resp::{Limits, Parser, ProtocolError, Step};
use proptest::prelude::*;

const LIMITS: Limits = Limits {
    args_max: 20,
    bulk_max_bytes: 50,
    inline_max_bytes: 40,
    frame_max_bytes: 200,
    unauthenticated: false,
};

type Commands = (Vec<Vec<Vec<u8>>>, Option<ProtocolError>);

/// Feeds `input` in pieces of the given sizes, as a connection would.
fn parse_in_pieces(input: &[u8], mut piece: impl FnMut() -> usize) -> Commands {
    let (mut parser, mut pending, mut at) = (Parser::default(), Vec::new(), 0);
    let mut commands = Vec::new();
    loop {
        match parser.step(&pending, &LIMITS) {
            Ok(Step::Command { consumed }) => {
                let args = parser.args(&pending);
                commands.push(args.from(0).map(<[u8]>::to_vec).collect());
                pending.drain(..consumed);
            }
            Ok(Step::Empty { consumed }) => drop(pending.drain(..consumed)),
            Ok(Step::Incomplete) if at < input.len() => {
                let end = (at + piece().max(1)).min(input.len());
                pending.extend_from_slice(&input[at..end]);
                at = end;
            }
            Ok(Step::Incomplete) => return (commands, None),
            Err(error) => return (commands, Some(error)),
        }
    }
}

/// Looks `most` commands ahead before it takes the first; the input arrives in two pieces.
fn parse_looking_ahead(input: &[u8], cut: usize, most: usize) -> Commands {
    let (mut parser, mut commands, mut at) = (Parser::default(), Vec::new(), 0);
    let mut known = &input[..cut];
    loop {
        let mut step = parser.step(&known[at..], &LIMITS);
        let mut frames = Vec::new();
        while let Ok(Step::Command { consumed }) = step {
            frames.push((at, parser.frame()));
            at += consumed;
            if frames.len() == most {
                break;
            }
            step = parser.step_on(&known[at..], &LIMITS);
        }
        for (at, frame) in &frames {
            let args = parser.args_of(*frame, &known[*at..]);
            commands.push(args.from(0).map(<[u8]>::to_vec).collect());
        }
        match step {
            _ if !frames.is_empty() => {}
            Ok(Step::Command { .. }) => unreachable!(),
            Ok(Step::Empty { consumed }) => at += consumed,
            Ok(Step::Incomplete) if known.len() < input.len() => known = input,
            Ok(Step::Incomplete) => return (commands, None),
            Err(error) => return (commands, Some(error)),
        }
    }
}

/// The naive oracle: it reads multibulk requests only, of which all bytes are there at once.
fn naive(mut input: &[u8]) -> Commands {
    use ProtocolError as E;
    fn line<'a>(input: &mut &'a [u8]) -> Result<Option<&'a [u8]>, E> {
        match input.iter().position(|b| *b == b'\r') {
            Some(at) if at > LIMITS.inline_max_bytes => Ok(None),
            Some(at) if at + 1 < input.len() && input[at + 1] != b'\n' => Err(E::ExpectedCrlf),
            Some(at) if at + 1 < input.len() => {
                let found = &input[..at];
                *input = &input[at + 2..];
                Ok(Some(found))
            }
            _ => Ok(None),
        }
    }
    let too_long = |rest: &[u8]| {
        rest.iter().position(|b| *b == b'\r').unwrap_or(rest.len()) > LIMITS.inline_max_bytes
    };
    let number = |text: &[u8]| {
        let text = std::str::from_utf8(text).ok()?;
        let value: i64 = text.parse().ok()?;
        (value.to_string() == text).then_some(value)
    };
    let mut commands = Vec::new();
    loop {
        let whole = input.len();
        let Some((b'*', rest)) = input.split_first() else {
            return (commands, None);
        };
        let mut one = || -> Result<Option<Vec<Vec<u8>>>, E> {
            input = rest;
            if too_long(input) {
                return Err(E::MultibulkLine);
            }
            let Some(text) = line(&mut input)? else { return Ok(None) };
            let count = number(text).filter(|n| *n <= LIMITS.args_max as i64);
            let mut args = Vec::new();
            for _ in 0..count.ok_or(E::MultibulkLength)? {
                match input.split_first() {
                    None => return Ok(None),
                    Some((b'$', rest)) => input = rest,
                    Some((other, _)) => return Err(E::ExpectedBulk(*other)),
                }
                if too_long(input) {
                    return Err(E::BulkLine);
                }
                let Some(text) = line(&mut input)? else { return Ok(None) };
                let len = number(text).and_then(|n| usize::try_from(n).ok());
                let len = len.filter(|n| *n <= LIMITS.bulk_max_bytes).ok_or(E::BulkLength)?;
                if whole - input.len() + len + 2 > LIMITS.frame_max_bytes {
                    return Err(E::FrameTooBig);
                }
                let tail = input.get(len..).unwrap_or(&[]);
                if !b"\r\n".starts_with(&tail[..tail.len().min(2)]) {
                    return Err(E::ExpectedCrlf);
                }
                if tail.len() < 2 {
                    return Ok(None);
                }
                args.push(input[..len].to_vec());
                input = &tail[2..];
            }
            Ok(Some(args))
        };
        match one() {
            Ok(Some(args)) if args.is_empty() => {}
            Ok(Some(args)) => commands.push(args),
            Ok(None) => return (commands, None),
            Err(error) => return (commands, Some(error)),
        }
    }
}

fn frame(args: &[Vec<u8>]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// Makes valid frames, sometimes with a byte changed or with junk behind them.
fn streams() -> impl Strategy<Value = Vec<u8>> {
    let arg = prop::collection::vec(any::<u8>(), 0..60);
    let command = prop::collection::vec(arg, 0..5).prop_map(|args| frame(&args));
    let junk = "[*$0-9\r\na -]{0,12}".prop_map(String::into_bytes);
    (prop::collection::vec(command, 0..4), junk, any::<prop::sample::Index>(), any::<Option<u8>>())
        .prop_map(|(frames, junk, at, change)| {
            let mut bytes = [frames.concat(), junk].concat();
            if let (Some(byte), false) = (change, bytes.is_empty()) {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            bytes
        })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn agrees_with_the_naive_parser(input in streams()) {
        // The naive oracle knows no inline commands, so the input ends where one would begin.
        let (commands, error) = naive(&input);
        let parsed = parse_in_pieces(&input, || usize::MAX >> 1);
        prop_assert_eq!(&parsed.0[..commands.len().min(parsed.0.len())], &commands[..]);
        if error.is_some() {
            prop_assert_eq!(parsed.1, error);
        }
    }

    #[test]
    fn cuts_do_not_matter(input in streams(), cut in any::<prop::sample::Index>()) {
        let whole = parse_in_pieces(&input, || usize::MAX >> 1);
        prop_assert_eq!(&parse_in_pieces(&input, || 1), &whole);
        let mut first = Some(cut.index(input.len() + 1));
        let cut_once = parse_in_pieces(&input, || first.take().unwrap_or(usize::MAX >> 1));
        prop_assert_eq!(&cut_once, &whole);
    }

    #[test]
    fn looking_ahead_finds_the_same(
        input in streams(),
        inline in prop::collection::vec("[ a\"']{0,4}\n", 0..3),
        cut in any::<prop::sample::Index>(),
        most in 1..5usize,
    ) {
        let input = [inline.concat().into_bytes(), input].concat();
        let ahead = parse_looking_ahead(&input, cut.index(input.len() + 1), most);
        prop_assert_eq!(ahead, parse_in_pieces(&input, || usize::MAX >> 1));
    }

    #[test]
    fn any_bytes_are_handled_alike_however_they_arrive(
        input in prop::collection::vec(any::<u8>(), 0..80)
    ) {
        let whole = parse_in_pieces(&input, || usize::MAX >> 1);
        prop_assert_eq!(&parse_in_pieces(&input, || 1), &whole);
    }
}

#[test]
fn inline_commands_follow_redis_quoting() {
    let all = |text: &str| parse_in_pieces(text.as_bytes(), || 3);
    let words = |text: &str| {
        let (commands, error) = all(text);
        assert_eq!(error, None);
        commands.concat().iter().map(|w| String::from_utf8(w.clone()).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(words("PING\r\n"), ["PING"]);
    assert_eq!(words("\r\n\n  set  k\t\"a\\x41\\n\" 'b\\'c'\n"), ["set", "k", "aA\n", "b'c"]);
    assert_eq!(words("set k \"\"\n"), ["set", "k", ""]);
    assert_eq!(all("get \"a\n").1, Some(ProtocolError::UnbalancedQuotes));
    assert_eq!(all("get \"a\"b\n").1, Some(ProtocolError::UnbalancedQuotes));
    assert_eq!(all(&"x".repeat(41)).1, Some(ProtocolError::InlineTooBig));
}

#[test]
fn errors_are_spelled_as_redis_spells_them() {
    for (input, text) in [
        ("*x\r\n", "Protocol error: invalid multibulk length"),
        ("*21\r\n", "Protocol error: invalid multibulk length"),
        ("*1\r\nx", "Protocol error: expected '$', got 'x'"),
        ("*1\r\n$-1\r\n", "Protocol error: invalid bulk length"),
        ("*1\r\n$51\r\n", "Protocol error: invalid bulk length"),
    ] {
        let error = parse_in_pieces(input.as_bytes(), || 1).1.unwrap();
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn a_declared_size_reserves_nothing() {
    let mut parser = Parser::default();
    let input = b"*1048576\r\n$536870912\r\nabc";
    assert_eq!(parser.step(input, &Limits::default()), Ok(Step::Incomplete));
    assert!(parser.memory_bytes() < 1024);
}

#[test]
fn before_authentication_requests_are_small() {
    let limits = Limits { unauthenticated: true, ..Limits::default() };
    let of = |input: &[u8]| Parser::default().step(input, &limits);
    assert_eq!(of(b"*11\r\n"), Err(ProtocolError::MultibulkUnauthenticated));
    assert_eq!(of(b"*1\r\n$16385\r\n"), Err(ProtocolError::BulkUnauthenticated));
    assert_eq!(of(b"*1\r\n$4\r\nPING\r\n"), Ok(Step::Command { consumed: 14 }));
}
