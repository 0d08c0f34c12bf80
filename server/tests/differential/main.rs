//! The same seeded commands to this server and to a real Redis: byte-equal RESP2 replies.
//!
//! Where a reply has no order (HGETALL, KEYS, …) its elements are sorted first. Random replies,
//! times that pass, and what this server answers differently on purpose are not generated.
//! `PERDURA_SEED=n` replays; `PERDURA_COMMANDS=n` goes on for longer.
#![allow(clippy::unwrap_used)] // tests, though not every helper is inside one

mod acl_templates;
mod beyond;
mod bit_templates;
mod facts;
mod generator;
mod geo_templates;
mod list_templates;
mod notices;
mod payloads;
mod redis;
#[path = "../server/running/mod.rs"]
mod running;
mod script_templates;
mod set_templates;
mod sort_templates;
mod sorted_templates;
mod stream_templates;
mod talk;
mod templates;
mod waits;

use std::collections::BTreeSet;
use std::io::Write;

use acl_templates::ACL;
use bit_templates::BITS;
use generator::{Generator, Words};
use geo_templates::GEO;
use list_templates::LISTS;
use rand::prelude::*;
use rand_xoshiro::Xoshiro256PlusPlus;
use redis::Redis;
use running::{Client, config, frame, start};
use script_templates::SCRIPTED;
use set_templates::{LARGE_SETS, SETS};
use sort_templates::SORTING;
use sorted_templates::{LARGE, SORTED};
use stream_templates::STREAMS;
use talk::TALK;
use templates::TEMPLATES;
use waits::WAITS;

/// The elements of a flat array of bulk strings, sorted; pairs stay pairs where `width` is 2.
fn sorted(reply: &[u8], width: usize) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = Vec::new();
    let mut rest = reply;
    while let Some(end) = rest.iter().position(|b| *b == b'\n') {
        let number = std::str::from_utf8(&rest[1..end - 1]).unwrap().parse().unwrap_or(-1i64);
        let body = if rest[0] == b'$' && number >= 0 { number as usize + 2 } else { 0 };
        let (part, after) = rest.split_at(end + 1 + body);
        parts.push(part);
        rest = after;
    }
    // The heads: `*n`, and for SCAN `*2`, the cursor and `*n`.
    let heads =
        parts.iter().rposition(|p| matches!(p[0], b'*' | b'%' | b'~')).map_or(0, |at| at + 1);
    let mut items: Vec<&[&[u8]]> = parts[heads..].chunks(width).collect();
    items.sort();
    [parts[..heads].concat(), items.concat().concat()].concat()
}

/// Whether two replies to a command say the same.
fn same(words: &Words, ours: &[u8], theirs: &[u8]) -> bool {
    ours == theirs || comparable(words, ours.to_vec()) == comparable(words, theirs.to_vec())
}

fn comparable(words: &Words, reply: Vec<u8>) -> Vec<u8> {
    let name = String::from_utf8_lossy(&words[0]).to_ascii_lowercase();
    let is_array = matches!(reply.first(), Some(b'*' | b'%' | b'~'));
    let text = String::from_utf8_lossy(if is_array && name != "exec" { b"" } else { &reply });
    if text.contains("ermissions to ") {
        // Redis 7.0 has other words than 7.2.
        let kinds = [" command", " key", " channel"];
        let named = text.split('\'').nth(1).filter(|_| text.starts_with('$')).unwrap_or_default();
        return format!("{:?} {named}", kinds.map(|kind| text.contains(kind))).into_bytes();
    }
    match name.as_str() {
        // The other way round, Redis 7.0 finds the other error.
        "xsetid" => without_newer(&reply),
        _ if reply.first() == Some(&b'-') || reply.first() == Some(&b'+') => reply,
        "hgetall" | "hscan" | "zscan" | "config" => sorted(&reply, 2),
        // Times counted from now differ by what passed between the two servers.
        "expiretime" | "pexpiretime" if reply.len() > 5 => reply[..7].to_vec(),
        // Payloads may differ; `payloads.rs` compares what they mean.
        "dump" => reply[..1].to_vec(),
        "xinfo" | "exec" => without_newer(&reply),
        "hkeys" | "hvals" | "keys" | "scan" | "command" => sorted(&reply, 1),
        "sdiff" | "sinter" | "smembers" | "spop" | "srandmember" | "sscan" | "sunion" => {
            sorted(&reply, 1)
        }
        _ => reply,
    }
}

/// A reply without what Redis 7.0 says otherwise than 7.2: it makes consumers later, and XSETID
/// finds another error first.
fn without_newer(reply: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(reply);
    let mut parts = text.split("consumers\r\n:");
    let first = parts.next().map(str::to_owned).unwrap_or_default();
    let whole =
        parts.fold(first, |all, part| all + part.trim_start_matches(|c: char| c.is_ascii_digit()));
    let setid = "-ERR The ID specified in XSETID is smaller than ";
    let below = ["current max_deleted_entry_id", "the target stream top item"];
    below.iter().fold(whole, |all, why| all.replace(&format!("{setid}{why}"), "-ERR")).into()
}

#[test]
fn replies_equal_those_of_redis() {
    compare(TEMPLATES, false);
}

#[test]
fn replies_equal_those_of_redis_in_resp3() {
    compare(TEMPLATES, true);
}

/// Other keys than the other tests', and nothing that empties them all the time: large sets stay
/// large.
#[test]
fn large_sorted_sets_answer_as_those_of_redis() {
    compare(LARGE, false);
}

#[test]
fn lists_answer_as_those_of_redis() {
    compare(LISTS, false);
}

#[test]
fn lists_answer_as_those_of_redis_in_resp3() {
    compare(LISTS, true);
}

#[test]
fn large_lists_answer_as_those_of_redis() {
    compare(list_templates::LARGE, false);
}

#[test]
fn sorted_sets_answer_as_those_of_redis() {
    compare(SORTED, false);
}

#[test]
fn sorted_sets_answer_as_those_of_redis_in_resp3() {
    compare(SORTED, true);
}

#[test]
fn scripts_answer_as_those_of_redis() {
    compare(SCRIPTED, false);
}

#[test]
fn scripts_answer_as_those_of_redis_in_resp3() {
    compare(SCRIPTED, true);
}

#[test]
fn sets_answer_as_those_of_redis() {
    compare(SETS, false);
}

#[test]
fn sets_answer_as_those_of_redis_in_resp3() {
    compare(SETS, true);
}

#[test]
fn large_sets_answer_as_those_of_redis() {
    compare(LARGE_SETS, false);
}

#[test]
fn bits_and_hyperloglogs_answer_as_those_of_redis() {
    compare(BITS, false);
}

#[test]
fn bits_and_hyperloglogs_answer_as_those_of_redis_in_resp3() {
    compare(BITS, true);
}

#[test]
fn places_answer_as_those_of_redis() {
    compare(GEO, false);
}

#[test]
fn places_answer_as_those_of_redis_in_resp3() {
    compare(GEO, true);
}

#[test]
fn sorting_and_restoring_answer_as_in_redis() {
    compare(SORTING, false);
}

#[test]
fn sorting_and_restoring_answer_as_in_redis_in_resp3() {
    compare(SORTING, true);
}

#[test]
fn streams_answer_as_those_of_redis() {
    compare(STREAMS, false);
}

#[test]
fn streams_answer_as_those_of_redis_in_resp3() {
    compare(STREAMS, true);
}

#[test]
fn large_streams_answer_as_those_of_redis() {
    compare(stream_templates::LARGE, false);
}

#[test]
fn users_are_ruled_as_by_redis() {
    compare(ACL, false);
}

#[test]
fn users_are_ruled_as_by_redis_in_resp3() {
    compare(ACL, true);
}

/// WATCH, and what a client sees of the others: a command is answered before another client sends
/// one, so that both servers carry all out in one order.
#[test]
fn clients_who_take_turns_are_answered_as_by_redis() {
    compare_clients(TEMPLATES, false, 3);
}

/// How many commands a lone client sends before it reads their replies: most of a command's time is
/// its way, and servers carry out commands that wait in another way than a single one.
const AT_ONCE: usize = 16;

/// The generator's next command for a client of whom `in_multi` tells whether it has said MULTI.
fn next_command(generator: &mut Generator, in_multi: &mut bool, resp3: bool) -> Words {
    generator.in_multi = *in_multi;
    let mut words = generator.command();
    if resp3 && words[0] == b"reset" {
        words = vec![b"discard".to_vec()];
    }
    if matches!(words[0].to_ascii_lowercase().as_slice(), b"exec" | b"discard" | b"reset") {
        generator.in_multi = false;
    }
    *in_multi = generator.in_multi || (words.len() == 1 && words[0] == b"multi");
    words
}

fn framed(words: &Words) -> Vec<u8> {
    frame(&words.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

fn compare(templates: &'static [&'static str], resp3: bool) {
    compare_clients(templates, resp3, 1);
}

fn compare_clients(templates: &'static [&'static str], resp3: bool, clients: usize) {
    let Some(redis) = Redis::start() else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let from_env = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let seed = from_env("PERDURA_SEED").unwrap_or(1);
    let count = from_env("PERDURA_COMMANDS").unwrap_or(20_000) as usize;
    let server = start(config());
    // Each client of ours, of theirs, and whether it has said MULTI.
    let mut pairs: Vec<(Client, Client, bool)> =
        (0..clients).map(|_| (server.client(), Client::connect(redis.addr), false)).collect();
    for (ours, theirs, _) in pairs.iter_mut().filter(|_| resp3) {
        ours.call("HELLO 3");
        theirs.call("HELLO 3");
    }
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut turns = Xoshiro256PlusPlus::seed_from_u64(random.random());
    let mut generator = Generator { random, in_multi: false, templates, last_ms: 0 };
    // Several clients take turns in one order, so each waits for its reply.
    let at_once = if clients == 1 { AT_ONCE } else { 1 };
    let mut who = 0;
    let mut recent: Vec<String> = Vec::new();
    let mut differences = Vec::new();
    for step in (0..count).step_by(at_once) {
        if turns.random_bool(0.3) {
            who = turns.random_range(0..clients);
        }
        let (ours, theirs, in_multi) = &mut pairs[who];
        let commands: Vec<Words> =
            (0..at_once).map(|_| next_command(&mut generator, in_multi, resp3)).collect();
        let frames: Vec<u8> = commands.iter().flat_map(framed).collect();
        ours.stream.write_all(&frames).unwrap();
        theirs.stream.write_all(&frames).unwrap();
        for words in commands {
            recent.push(format!("{who}: {}", String::from_utf8_lossy(&words.join(&b' '))));
            recent.drain(..recent.len().saturating_sub(40));
            let (our, their) = (ours.reply(), theirs.reply());
            if !same(&words, &our, &their) {
                differences.push(format!(
                    "step {step}: {recent:?}\n  ours   {:?}\n  redis  {:?}",
                    String::from_utf8_lossy(&our),
                    String::from_utf8_lossy(&their)
                ));
            }
        }
        if differences.len() >= 10 {
            break;
        }
    }
    assert!(
        differences.is_empty(),
        "PERDURA_SEED={seed} cargo test -p perdura-server --test differential\n{}",
        differences.join("\n")
    );
}

/// `docs/server.md` names what is not offered: each of Redis's commands is either in our table or
/// there.
#[test]
fn what_is_not_offered_is_named() {
    let document = include_str!("../../../docs/server.md");
    let table = document.split("\n## ").find(|part| part.starts_with("Not offered")).unwrap();
    let cells = table.lines().filter_map(|line| line.strip_prefix('|')?.split('|').nth(1));
    let names: BTreeSet<String> = cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .map(|name| name.to_ascii_lowercase().replace(' ', "|"))
        .collect();
    assert!(names.contains("bgrewriteaof"), "the table is not read: {names:?}");
    let server = start(config());
    let mut ours = server.client();
    for name in &names {
        let reply = ours.call(&name.replace('|', " "));
        assert!(reply.contains("unknown "), "{name} is offered: {reply}");
    }
    let Some(redis) = Redis::start() else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let mut theirs = Client::connect(redis.addr);
    if !theirs.call("INFO server").contains("redis_version:7.0.") {
        println!("skipped: another version of redis-server has other commands");
        return;
    }
    let offered = every(&mut ours);
    for name in every(&mut theirs) {
        let container = name.split('|').next().unwrap();
        let named = names.contains(&name) || names.contains(container);
        assert!(named != offered.contains(&name), "{name}: named {named}, or not");
    }
}

/// Commands that say what only one of the two knows, change the run itself, or are ours alone.
const NOT_COMPARED: [&str; 39] = [
    "acl|getuser",
    "acl|help",
    "acl|list",
    "client|help",
    "client|info",
    "client|no-touch",
    "client|setinfo",
    "command|help",
    "config|help",
    "function|delete",
    "function|dump",
    "function|flush",
    "function|help",
    "function|load",
    "function|restore",
    "function|stats",
    "latency|doctor",
    "latency|help",
    "memory|help",
    "module|help",
    "monitor",
    "object|help",
    "pubsub|help",
    "quit",
    "script|debug",
    "script|help",
    "slowlog|help",
    "xgroup|help",
    "xinfo|help",
    // Redis 7.0 has no such commands.
    "hexpire",
    "hexpireat",
    "hexpiretime",
    "hpersist",
    "hpexpire",
    "hpexpireat",
    "hpexpiretime",
    "hpttl",
    "httl",
    "waitaof",
];

#[test]
fn every_command_is_compared() {
    let server = start(config());
    for name in every(&mut server.client()) {
        let words = name.replace('|', " ");
        let all = TEMPLATES.iter().chain(SORTED).chain(LISTS);
        let all = all
            .chain(ACL)
            .chain(SETS)
            .chain(STREAMS)
            .chain(BITS)
            .chain(GEO)
            .chain(SORTING)
            .chain(SCRIPTED)
            .chain(TALK.iter().map(|(_, line, _)| line))
            .chain(WAITS);
        let mut templates = all.map(|template| template.to_ascii_lowercase());
        let has_template = templates.any(|t| t == words || t.starts_with(&format!("{words} ")));
        let is_ours = name.starts_with("perdura") || name.starts_with("debug");
        let is_named = is_ours || NOT_COMPARED.contains(&name.as_str());
        assert!(has_template || is_named, "{name} is in no template");
    }
}

/// All names that COMMAND tells of, subcommands too.
fn every(client: &mut Client) -> BTreeSet<String> {
    let (list, table) = (client.call("COMMAND LIST"), client.call("COMMAND"));
    let plain = |word: &&str| word.bytes().all(|b| b.is_ascii_lowercase() || b"|-_".contains(&b));
    let subs = table.split(' ').filter(plain).filter(|word| word.contains('|'));
    list.split(' ').filter(plain).chain(subs).map(str::to_owned).collect()
}
