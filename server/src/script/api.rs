//! The functions of the table `redis`, and those that the prelude needs itself.

use std::rc::Rc;

use mlua::{Lua, MultiValue, Table, Value};
use sha1::{Digest, Sha1};

use super::bind::{Answer, Arguments, Failure, Function, raise};
use super::host::{CallError, State, Stop};
use super::random::Rand48;
use super::values::{self, coded_error};
use super::words::Words;

/// The functions, by the names under which the prelude finds them.
pub(crate) const FUNCTIONS: [(&str, Function); 9] = [
    ("acl_check_cmd", acl_check_cmd),
    ("error_reply", error_reply),
    ("log", log),
    ("random", random),
    ("randomseed", randomseed),
    ("register_function", super::library::register),
    ("set_repl", set_repl),
    ("setresp", setresp),
    ("sha1hex", sha1hex),
];

/// Adds the functions that do not answer in the common way, because they are called most or while
/// a script ends.
pub(crate) fn add_special(lua: &Lua, host: &Table, state: &Rc<State>) -> mlua::Result<()> {
    for (name, raises) in [("call", true), ("pcall", false)] {
        let state = Rc::clone(state);
        let call = lua.create_function(move |lua, values: MultiValue| {
            if values.len() > WORDS_MAX {
                // Lua's stack has no room for a value to be raised.
                let text = format!("a command of a script has at most {WORDS_MAX} words");
                return Err(mlua::Error::runtime(text));
            }
            let (value, is_error) = call(lua, &state, values.iter())?;
            if raises && is_error { Err(raise(&state, value)) } else { Ok(value) }
        })?;
        host.raw_set(name, call)?;
    }
    let of = Rc::clone(state);
    host.raw_set("raised", lua.create_function(move |_, ()| Ok(of.raised.take()))?)?;
    let of = Rc::clone(state);
    host.raw_set("is_over", lua.create_function(move |_, ()| Ok(of.stopped().is_some()))?)?;
    let of = Rc::clone(state);
    let out_of_memory = lua.create_function(move |_, ()| {
        of.stop(Stop::Memory);
        Ok(())
    })?;
    host.raw_set("out_of_memory", out_of_memory)?;
    host.raw_set("where_is", lua.create_function(|lua, ()| Ok(place_in_script(lua)))?)?;
    host.raw_set("null", Value::NULL)?;
    host.raw_set("version", crate::REDIS_VERSION)?;
    host.raw_set("version_number", crate::REDIS_VERSION_NUMBER)
}

/// The chunk and the line of the innermost function that is written in Lua and a script's own.
fn place_in_script(lua: &Lua) -> (Option<String>, Option<i64>) {
    for level in 1.. {
        let found = lua.inspect_stack(level, |debug| {
            let source = debug.source();
            let is_own = source.what != "C" && source.source.as_deref() != Some(super::PRELUDE);
            let source = source.source.map(|source| source.into_owned());
            let line = debug.current_line().map(|line| line as i64);
            is_own.then_some((source, line))
        });
        match found {
            None => break,
            Some(Some(place)) => return place,
            Some(None) => {}
        }
    }
    (None, None)
}

/// Carries out a command, and returns its reply and whether that is an error.
fn call<'v>(
    lua: &Lua,
    state: &State,
    values: impl ExactSizeIterator<Item = &'v Value>,
) -> mlua::Result<(Value, bool)> {
    let refused = |text: &str| {
        let table = values::error(lua, text.as_bytes())?;
        Ok((Value::Table(table), true))
    };
    if state.stopped().is_some() {
        return Err(mlua::Error::runtime("the script is over"));
    }
    let (Ok(mut words), Ok(mut reply)) =
        (state.words.try_borrow_mut(), state.reply.try_borrow_mut())
    else {
        return refused("ERR a command is being carried out");
    };
    if let Err(why) = take_words(&mut words, values) {
        return refused(why);
    }
    reply.clear();
    reply.shrink_to(64 << 10);
    let resp3 = state.resp3.get();
    match state.host.with(|host| host.call(&words, resp3, &mut reply)) {
        None => refused("ERR redis.call can only be called while a script runs"),
        Some(Ok(())) => values::to_lua(lua, &state.names, &reply),
        Some(Err(CallError::Refused(text))) => {
            let table = values::error(lua, text.as_bytes())?;
            table.raw_set("ignore_error_stats_update", true)?;
            Ok((Value::Table(table), true))
        }
        Some(Err(CallError::Halted)) => {
            state.stop(Stop::Halted);
            // An error of Rust is never caught by a script.
            Err(mlua::Error::runtime("the script's attempt is over"))
        }
    }
}

/// Takes the words of a command from a script's values.
fn take_words<'v>(
    words: &mut Words,
    values: impl ExactSizeIterator<Item = &'v Value>,
) -> Result<(), &'static str> {
    words.clear();
    if values.len() == 0 {
        return Err("ERR Please specify at least one argument for this redis lib call");
    }
    for value in values {
        let fits = match value {
            Value::String(text) => words.push(&text.as_bytes()),
            Value::Integer(int) => words.push_int(*int),
            Value::Number(number) => words.push(crate::number::format_double(*number).as_bytes()),
            _ => return Err("ERR Lua redis lib command arguments must be strings or integers"),
        };
        if !fits {
            return Err("ERR the command is longer than 4 GiB");
        }
    }
    Ok(())
}

/// The failure that raises a table with an error's text.
fn raised(args: &Arguments<'_>, text: &str) -> Failure {
    match values::error(args.lua, text.as_bytes()) {
        Ok(table) => Failure::Value(Value::Table(table)),
        Err(error) => Failure::Lua(error),
    }
}

fn acl_check_cmd(args: &Arguments<'_>) -> Answer {
    let mut words = Words::default();
    take_words(&mut words, args.values.iter()).map_err(|why| raised(args, why))?;
    match args.state.host.with(|host| host.may_call(&words)) {
        Some(Some(may)) => Ok(vec![Value::Boolean(may)]),
        _ => Err(raised(args, "ERR Invalid command passed to redis.acl_check_cmd()")),
    }
}

fn error_reply(args: &Arguments<'_>) -> Answer {
    let table = match (args.len(), args.get(0)) {
        (1, Value::String(text)) => {
            let text = text.as_bytes();
            // Up to its first zero, as a C string.
            let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
            let given = if text.starts_with(b"-") { &[][..] } else { b"-" };
            coded_error(args.lua, &[given, &text[..end]].concat())?
        }
        _ => values::error(args.lua, b"ERR wrong number or type of arguments")?,
    };
    Ok(vec![Value::Table(table)])
}

fn log(args: &Arguments<'_>) -> Answer {
    if args.len() < 2 {
        return Err(raised(args, "ERR redis.log() requires two arguments or more."));
    }
    let Ok(level) = args.int(0) else {
        return Err(raised(args, "ERR First argument must be a number (log level)."));
    };
    let Some(level) = u8::try_from(level).ok().filter(|level| *level <= 3) else {
        return Err(raised(args, "ERR Invalid debug level."));
    };
    let mut line = Vec::new();
    for index in 1..args.len() {
        let Ok(text) = args.string(index) else { continue };
        if index > 1 {
            line.push(b' ');
        }
        let room = LOG_BYTES_MAX.saturating_sub(line.len());
        let text = text.as_bytes();
        line.extend_from_slice(&text[..text.len().min(room)]);
    }
    args.state.host.with(|host| host.log(level, &line));
    Ok(Vec::new())
}

/// Most words of a command of a script: Lua's stack for a function in Rust has a few more places.
const WORDS_MAX: usize = 8001;

/// Bytes of a line that a script writes to the log; Redis cuts lines there, too.
const LOG_BYTES_MAX: usize = 1024;

fn random(args: &Arguments<'_>) -> Answer {
    // The largest number is taken modulo itself, as Redis does.
    let drawn = args.state.random.borrow_mut().next() % i32::MAX as u32;
    let part = f64::from(drawn) / f64::from(i32::MAX);
    let empty = |index| args.wrong(index, "interval is empty");
    Ok(vec![Value::Number(match args.len() {
        0 => part,
        1 => {
            let high = args.int(0)?;
            if high < 1 {
                return Err(empty(0));
            }
            (part * high as f64).floor() + 1.0
        }
        2 => {
            let (low, high) = (args.int(0)?, args.int(1)?);
            if low > high {
                return Err(empty(1));
            }
            (part * (high as f64 - low as f64 + 1.0)).floor() + low as f64
        }
        _ => return Err(Failure::Text("wrong number of arguments".to_owned())),
    })])
}

fn randomseed(args: &Arguments<'_>) -> Answer {
    let seed = args.int(0)?;
    args.state.random.replace(Rand48::seeded(seed as i32));
    Ok(Vec::new())
}

fn set_repl(args: &Arguments<'_>) -> Answer {
    if args.len() != 1 {
        return Err(raised(args, "ERR redis.set_repl() requires one argument."));
    }
    let flags = args.int(0).unwrap_or(0);
    if flags & !3 != 0 {
        let text = "ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or \
                    REPL_NONE.";
        return Err(raised(args, text));
    }
    Ok(Vec::new())
}

fn setresp(args: &Arguments<'_>) -> Answer {
    if args.len() != 1 {
        return Err(raised(args, "ERR redis.setresp() requires one argument."));
    }
    let version = args.number(0).unwrap_or(0.0) as i64;
    if !(2..=3).contains(&version) {
        return Err(raised(args, "ERR RESP version must be 2 or 3."));
    }
    args.state.resp3.set(version == 3);
    Ok(Vec::new())
}

fn sha1hex(args: &Arguments<'_>) -> Answer {
    if args.len() != 1 {
        return Err(raised(args, "ERR wrong number of arguments"));
    }
    let text = match args.get(0) {
        Value::String(_) | Value::Integer(_) | Value::Number(_) => {
            args.string(0)?.as_bytes().to_vec()
        }
        _ => Vec::new(),
    };
    args.state.is_over();
    let digest = super::hex(&Sha1::digest(&text));
    Ok(vec![Value::String(args.lua.create_string(digest)?)])
}
