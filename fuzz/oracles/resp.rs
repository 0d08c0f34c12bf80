//! Any bytes are received, cut anywhere: there is no panic, the commands do not depend on the cuts,
//! and memory is bounded by the bytes received.
use perdura_server::resp::{Limits, Parser, ProtocolError, Step};

fn parse(input: &[u8], cut: usize) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
    let (mut parser, mut start, mut end) = (Parser::default(), 0, cut);
    let mut commands = Vec::new();
    loop {
        match parser.step(&input[start..end], &Limits::default()) {
            Ok(Step::Command { consumed }) => {
                let args = parser.args(&input[start..end]);
                commands.push(args.from(0).map(<[u8]>::to_vec).collect());
                start += consumed;
            }
            Ok(Step::Empty { consumed }) => start += consumed,
            Ok(Step::Incomplete) if end == input.len() => return (commands, None),
            Ok(Step::Incomplete) => end = input.len(),
            Err(error) => return (commands, Some(error)),
        }
        assert!(parser.memory_bytes() <= 64 + 20 * input.len());
    }
}

/// Checks one input.
pub fn check(data: &[u8]) {
    let Some((first, input)) = data.split_first() else { return };
    let cut = usize::from(*first).min(input.len());
    assert_eq!(parse(input, cut), parse(input, input.len()));
}
