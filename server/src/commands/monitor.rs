//! MONITOR: a client sees each command that any client's loop carries out.

use std::borrow::Cow;
use std::fmt::{Display, Write};

use super::call::Outcome;
use super::context::{Context, Server};
use super::facts::shown;
use super::options::is;
use crate::resp::Args;
use crate::session::Session;

/// MONITOR
pub(super) fn monitor(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    if !ctx.session.is_monitor {
        ctx.session.is_monitor = true;
        // Who watches all commands may not run those that use keys.
        ctx.session.free_in = 0;
        ctx.server.shared.monitors.join(&ctx.session.card);
        ctx.reply.ok();
    }
    Ok(())
}

/// Ends a client's watching.
pub(crate) fn end(server: &Server<'_>, session: &mut Session) {
    if std::mem::take(&mut session.is_monitor) {
        server.shared.monitors.leave(session.card.id);
    }
}

/// Shows a command to those who watch, unless it is about the server itself. `db` is the database
/// that the command used.
#[cold]
pub(super) fn show(server: &Server<'_>, session: &Session, db: u8, row: usize, args: Args<'_>) {
    let line = line(server, &session.card.peer, db, row, args);
    show_lines(server, line.unwrap_or_default().as_bytes());
}

/// Shows lines to those who watch.
pub(super) fn show_lines(server: &Server<'_>, lines: &[u8]) {
    if !lines.is_empty() {
        server.shared.monitors.show(lines, &server.shared.loops);
    }
}

/// The line that shows a command, which came from `source`; none of a command about the server.
#[cold]
pub(super) fn line(
    server: &Server<'_>,
    source: &dyn Display,
    db: u8,
    row: usize,
    args: Args<'_>,
) -> Option<String> {
    if server.index.facts(row).has(shown::ADMIN) {
        return None;
    }
    let (since_ns, unix_ms) = server.turn;
    let unix_us = unix_ms * 1000 + server.now_ns.saturating_sub(since_ns) / 1000;
    let (seconds, us) = (unix_us / 1_000_000, unix_us % 1_000_000);
    let mut line = format!("+{seconds}.{us:06} [{db} {source}]");
    for arg in visible(server.index.specs()[row].name, args) {
        line.push(' ');
        quote(&mut line, &arg);
    }
    line.push_str("\r\n");
    Some(line)
}

/// Writes bytes in quotes, those that cannot be printed as escapes.
fn quote(line: &mut String, bytes: &[u8]) {
    line.push('"');
    for byte in bytes {
        match byte {
            b'\\' | b'"' => line.extend(['\\', char::from(*byte)]),
            b'\n' => line.push_str("\\n"),
            b'\r' => line.push_str("\\r"),
            b'\t' => line.push_str("\\t"),
            0x07 => line.push_str("\\a"),
            0x08 => line.push_str("\\b"),
            b' '..=b'~' => line.push(char::from(*byte)),
            // Writing to a string does not fail.
            _ => drop(write!(line, "\\x{byte:02x}")),
        }
    }
    line.push('"');
}

/// The arguments of the command with this name, as MONITOR and SLOWLOG show them: without secrets.
pub(super) fn visible<'a>(name: &str, args: Args<'a>) -> impl Iterator<Item = Cow<'a, [u8]>> {
    let secrets = secrets(name, args);
    args.from(0).enumerate().map(move |(at, arg)| match secrets.contains(&at) {
        true => Cow::Borrowed(&b"(redacted)"[..]),
        false => Cow::Borrowed(arg),
    })
}

/// Settings whose values are secrets.
const SECRET_SETTINGS: [&str; 4] =
    ["requirepass", "masterauth", "tls-key-file-pass", "tls-client-key-file-pass"];

/// The places of secrets among a command's arguments.
fn secrets(name: &str, args: Args<'_>) -> Vec<usize> {
    let len = args.len();
    match name {
        "auth" => (1..len).collect(),
        "acl|setuser" => (2..len).collect(),
        "config|set" => (2..len)
            .step_by(2)
            .filter(|at| SECRET_SETTINGS.iter().any(|secret| is(args.get(*at), secret)))
            .map(|at| at + 1)
            .collect(),
        "hello" => behind(args, 2, "AUTH", 2),
        "migrate" => [behind(args, 6, "AUTH", 1), behind(args, 6, "AUTH2", 2)].concat(),
        _ => Vec::new(),
    }
}

/// The places of `count` arguments behind a word.
fn behind(args: Args<'_>, from: usize, word: &str, count: usize) -> Vec<usize> {
    let words = (from..args.len()).filter(|at| is(args.get(*at), word));
    words.flat_map(|at| at + 1..=at + count).collect()
}
