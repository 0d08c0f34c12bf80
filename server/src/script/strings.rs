//! The functions of strings that Lua's own library would carry out without looking at time or
//! memory.

use mlua::{Lua, Value};

use super::bind::{Answer, Arguments, Failure, Function};
use super::host::{State, Stop};
use super::pattern::{Capture, Matcher, PatternError};

/// The functions, by the names under which the prelude finds them.
pub(crate) const FUNCTIONS: [(&str, Function); 3] =
    [("rep", rep), ("find", |args| search(args, true)), ("match", |args| search(args, false))];

/// The functions that the prelude calls for a script's own.
pub(crate) const FOR_PRELUDE: [(&str, Function); 6] = [
    ("breathe", breathe),
    ("check_gmatch", check_gmatch),
    ("match_step", match_step),
    ("gsub", gsub),
    ("check_gsub", check_gsub),
    ("next_match", next_match),
];

fn pattern_failure(error: PatternError) -> Failure {
    Failure::Text(error.text().to_owned())
}

/// Refuses a result that would need more memory than a script may use.
fn check_room(state: &State, bytes: usize) -> Result<(), Failure> {
    if bytes <= state.memory_max.get() {
        return Ok(());
    }
    state.stop(Stop::Memory);
    Err(Failure::Text("not enough memory".to_owned()))
}

fn rep(args: &Arguments<'_>) -> Answer {
    let (text, count) = (args.string(0)?, args.int(1)?);
    let count = usize::try_from(count).unwrap_or(0);
    let bytes = text.as_bytes().len().saturating_mul(count);
    check_room(args.state, bytes)?;
    let repeated = if bytes == 0 { Vec::new() } else { text.as_bytes().repeat(count) };
    args.state.is_over();
    Ok(vec![Value::String(args.lua.create_string(repeated)?)])
}

/// The values of a match: its captures, or all of it where the pattern has none.
fn captured(
    lua: &Lua,
    text: &[u8],
    captures: &[Capture],
    whole: Option<(usize, usize)>,
) -> Result<Vec<Value>, Failure> {
    let value = |capture: &Capture| match capture {
        Capture::Bytes(at, len) => Ok(Value::String(lua.create_string(&text[*at..at + len])?)),
        Capture::Position(at) => Ok(Value::Integer(*at as i64)),
    };
    match whole {
        Some((from, to)) if captures.is_empty() => {
            Ok(vec![value(&Capture::Bytes(from, to - from))?])
        }
        _ => captures.iter().map(value).collect(),
    }
}

/// Where a search begins: `init` counts from 1, or from the end where it is negative.
fn start(init: i64, len: usize) -> usize {
    match init {
        1.. => usize::try_from(init - 1).unwrap_or(usize::MAX),
        0 => 0,
        _ => len.saturating_sub(usize::try_from(init.unsigned_abs()).unwrap_or(usize::MAX)),
    }
}

fn search(args: &Arguments<'_>, find: bool) -> Answer {
    let (text, pattern) = (args.string(0)?, args.string(1)?);
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let from = start(args.int_or(2, 1)?, text.len()).min(text.len());
    let is_plain = !matches!(args.get(3), Value::Nil | Value::Boolean(false));
    if find && (is_plain || !pattern.iter().any(|byte| b"^$*+?.([%-".contains(byte))) {
        let at = find_plain(args.state, &text[from..], &pattern)?;
        return Ok(match at {
            Some(at) => {
                let at = from + at;
                vec![Value::Integer(at as i64 + 1), Value::Integer((at + pattern.len()) as i64)]
            }
            None => vec![Value::Nil],
        });
    }
    let mut is_over = || args.state.is_over();
    let mut matcher = Matcher::new(&text, &pattern, &mut is_over);
    let Some((from, to)) = matcher.find(from).map_err(pattern_failure)? else {
        return Ok(vec![Value::Nil]);
    };
    let captures = matcher.captures().map_err(pattern_failure)?;
    if !find {
        return captured(args.lua, &text, &captures, Some((from, to)));
    }
    let mut values = vec![Value::Integer(from as i64 + 1), Value::Integer(to as i64)];
    values.extend(captured(args.lua, &text, &captures, None)?);
    Ok(values)
}

/// Finds bytes in a text. Where both are long this takes long, so the time is looked at.
fn find_plain(state: &State, text: &[u8], wanted: &[u8]) -> Result<Option<usize>, Failure> {
    let Some(first) = wanted.first() else { return Ok(Some(0)) };
    let (mut at, mut compared) = (0, 0usize);
    while at + wanted.len() <= text.len() {
        let candidates = &text[at..=text.len() - wanted.len()];
        let Some(next) = candidates.iter().position(|byte| byte == first) else { break };
        at += next;
        if text[at..].starts_with(wanted) {
            return Ok(Some(at));
        }
        let same = text[at..].iter().zip(wanted).take_while(|(a, b)| a == b).count();
        compared += same + next + 1;
        if compared > 1 << 20 {
            compared = 0;
            if state.is_over() {
                return Err(pattern_failure(PatternError::Over));
            }
        }
        at += 1;
    }
    Ok(None)
}

/// Looks at the time before something that takes long.
fn breathe(args: &Arguments<'_>) -> Answer {
    args.state.is_over();
    Ok(Vec::new())
}

fn check_gmatch(args: &Arguments<'_>) -> Answer {
    args.string(0)?;
    args.string(1)?;
    Ok(Vec::new())
}

/// The next match of `gmatch` from a position on: the position behind it, and its captures.
fn match_step(args: &Arguments<'_>) -> Answer {
    let (text, pattern) = (args.string(0)?, args.string(1)?);
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let from = start(args.int(2)?, text.len());
    if from > text.len() {
        return Ok(vec![Value::Nil]);
    }
    let mut is_over = || args.state.is_over();
    // A caret is a character like others here, as in Lua 5.1.
    let mut matcher = Matcher::unanchored(&text, &pattern, &mut is_over);
    let Some((found, to)) = matcher.find(from).map_err(pattern_failure)? else {
        return Ok(vec![Value::Nil]);
    };
    let captures = matcher.captures().map_err(pattern_failure)?;
    let after = if to == found { to + 1 } else { to };
    let mut values = vec![Value::Integer(after as i64 + 1)];
    values.extend(captured(args.lua, &text, &captures, Some((found, to)))?);
    Ok(values)
}

fn check_gsub(args: &Arguments<'_>) -> Answer {
    args.string(0)?;
    args.string(1)?;
    if !args.is_none(2) {
        match args.number(2) {
            Ok(_) => {}
            Err(_) => {
                let got = super::bind::type_name(args.get(2));
                return Err(Failure::Text(format!(
                    "bad argument #4 to 'gsub' (number expected, got {got})"
                )));
            }
        }
    }
    Ok(Vec::new())
}

/// The first match at or behind a position: its first and last byte, and its captures.
fn next_match(args: &Arguments<'_>) -> Answer {
    let (text, pattern) = (args.string(0)?, args.string(1)?);
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let from = start(args.int(2)?, text.len());
    if from > text.len() {
        return Ok(vec![Value::Nil]);
    }
    let mut is_over = || args.state.is_over();
    let mut matcher = Matcher::new(&text, &pattern, &mut is_over);
    let Some((from, to)) = matcher.find(from).map_err(pattern_failure)? else {
        return Ok(vec![Value::Nil]);
    };
    let captures = matcher.captures().map_err(pattern_failure)?;
    let mut values = vec![Value::Integer(from as i64 + 1), Value::Integer(to as i64)];
    values.extend(captured(args.lua, &text, &captures, Some((from, to)))?);
    Ok(values)
}

/// `string.gsub` with a text as replacement.
fn gsub(args: &Arguments<'_>) -> Answer {
    let (text, pattern) = (args.string(0)?, args.string(1)?);
    let kind = super::bind::type_name(args.get(2));
    let Ok(repl) = args.string(2) else {
        let why = format!("string/function/table expected, got {kind}");
        return Err(args.wrong(2, why));
    };
    let (text, pattern, repl) = (text.as_bytes(), pattern.as_bytes(), repl.as_bytes());
    let most = usize::try_from(args.int_or(3, text.len() as i64 + 1)?).unwrap_or(0);
    let anchored = pattern.first() == Some(&b'^');
    let (mut out, mut count, mut at) = (Vec::new(), 0, 0);
    let mut is_over = || args.state.is_over();
    let mut matcher = Matcher::new(&text, &pattern, &mut is_over);
    while count < most && at <= text.len() {
        let Some((from, to)) = matcher.find(at).map_err(pattern_failure)? else { break };
        out.extend_from_slice(&text[at..from]);
        count += 1;
        let captures = matcher.captures().map_err(pattern_failure)?;
        append_replacement(&mut out, &repl, &text, &captures, (from, to))?;
        check_room(args.state, out.len())?;
        if to > from {
            at = to;
        } else {
            out.extend(text.get(from));
            at = from + 1;
        }
        if anchored {
            break;
        }
    }
    out.extend_from_slice(text.get(at..).unwrap_or_default());
    let result = args.lua.create_string(out)?;
    Ok(vec![Value::String(result), Value::Integer(count as i64)])
}

fn append_replacement(
    out: &mut Vec<u8>,
    repl: &[u8],
    text: &[u8],
    captures: &[Capture],
    (from, to): (usize, usize),
) -> Result<(), Failure> {
    let mut bytes = repl.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'0') => out.extend_from_slice(&text[from..to]),
            Some(digit @ b'1'..=b'9') => match captures.get(usize::from(digit - b'1')) {
                Some(Capture::Bytes(at, len)) => out.extend_from_slice(&text[*at..at + len]),
                Some(Capture::Position(at)) => out.extend_from_slice(at.to_string().as_bytes()),
                None if digit == b'1' && captures.is_empty() => {
                    out.extend_from_slice(&text[from..to]);
                }
                None => return Err(pattern_failure(PatternError::CaptureIndex)),
            },
            // The byte behind the text's end is a zero to Lua.
            other => out.push(other.unwrap_or(0)),
        }
    }
    Ok(())
}
