//! Replies of a server, as far as the simulated clients ask for any.

/// A reply.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Done,
    Error(String),
    Nothing,
    Bytes(Vec<u8>),
}

/// The first reply in `bytes` if all of it is there, and its length.
///
/// # Errors
/// No reply begins like that.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Reply, usize)>, String> {
    let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
    let (line, after) = (&bytes[1..end.max(1)], end + 2);
    let reply = match bytes[0] {
        b'+' | b':' => Reply::Done,
        b'-' => Reply::Error(String::from_utf8_lossy(line).into_owned()),
        b'$' if line == b"-1" => Reply::Nothing,
        b'$' => {
            let len = std::str::from_utf8(line).ok().and_then(|text| text.parse::<usize>().ok());
            let len =
                len.ok_or_else(|| format!("a length: {:?}", String::from_utf8_lossy(line)))?;
            let Some(body) = bytes.get(after..after + len) else { return Ok(None) };
            if bytes.len() < after + len + 2 {
                return Ok(None);
            }
            return Ok(Some((Reply::Bytes(body.to_vec()), after + len + 2)));
        }
        other => return Err(format!("a reply that begins with byte {other}")),
    };
    Ok(Some((reply, after)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_taken_one_by_one_when_they_are_whole() {
        let all = b"+OK\r\n:12\r\n$-1\r\n$4\r\na\r\nb\r\n-ERR no\r\n";
        let expected = [
            Reply::Done,
            Reply::Done,
            Reply::Nothing,
            Reply::Bytes(b"a\r\nb".to_vec()),
            Reply::Error("ERR no".into()),
        ];
        let mut at = 0;
        for reply in expected {
            let (found, len) = parse(&all[at..]).unwrap().unwrap();
            assert_eq!(found, reply);
            assert_eq!(parse(&all[at..at + len - 1]).unwrap(), None);
            at += len;
        }
        assert_eq!(at, all.len());
        assert!(parse(b"?\r\n").is_err());
    }
}
