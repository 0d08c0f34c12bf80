//! Commands that change more than the budget has room for: they go on in steps, and are refused
//! inside EXEC.

use crate::check;
use crate::running::{Client, Running, config, open_with_budget, start_with};

const ELEMENTS: u32 = 20_000;

/// A server whose budget has room for some hundred elements.
fn server_with_small_budget() -> Running {
    start_with(config(), open_with_budget(256 << 10))
}

fn fill(client: &mut Client, command: &str, element: impl Fn(u32) -> String) {
    for first in (0..ELEMENTS).step_by(100) {
        let elements: Vec<_> = (first..first + 100).map(&element).collect();
        let reply = client.call(&format!("{command} {}", elements.join(" ")));
        assert!(reply.starts_with(':'), "{reply}");
    }
}

#[test]
fn members_of_a_range_go_in_steps() {
    let server = server_with_small_budget();
    let mut client = server.client();
    for (range, gone, first_left) in [
        ("ZREMRANGEBYRANK z 5 19994", 19_990, "*1 $2 m0"),
        ("ZREMRANGEBYRANK z -19995 -6", 19_990, "*1 $2 m0"),
        ("ZREMRANGEBYRANK z -19995 19994", 19_990, "*1 $2 m0"),
        ("ZREMRANGEBYRANK z 0 -6", 19_995, "*1 $6 m19995"),
        ("ZREMRANGEBYSCORE z 1 +inf", 19_999, "*1 $2 m0"),
        ("ZREMRANGEBYSCORE z 1 (19990", 19_989, "*1 $2 m0"),
    ] {
        client.call("DEL z");
        fill(&mut client, "ZADD z", |n| format!("{n} m{n}"));
        assert_eq!(client.call("MULTI"), "+OK");
        assert_eq!(client.call(range), "+QUEUED");
        let refused = client.call("EXEC");
        assert!(refused.contains("the budget is"), "{range}: {refused}");
        let left = ELEMENTS - gone;
        check(
            &mut client,
            &[
                ("ZCARD z", ":20000"),
                (range, &format!(":{gone}")),
                ("ZCARD z", &format!(":{left}")),
                ("ZRANGE z 0 0", first_left),
            ],
        );
    }
}

#[test]
fn elements_of_a_list_and_of_a_set_go_in_steps() {
    let server = server_with_small_budget();
    let mut client = server.client();
    let odd = |n: u32| if n % 2 == 1 { "odd".to_owned() } else { format!("{n:0100}") };
    fill(&mut client, "RPUSH l", odd);
    check(
        &mut client,
        &[
            ("LREM l 9000 odd", ":9000"),
            ("LLEN l", ":11000"),
            ("LREM l 0 odd", ":1000"),
            ("LREM l 0 odd", ":0"),
            ("LLEN l", ":10000"),
        ],
    );
    fill(&mut client, "SADD s", |n| format!("{n:0100}"));
    let popped = client.call("SPOP s 15000");
    let mut names: Vec<_> = popped.split(' ').filter(|word| word.len() == 100).collect();
    assert!(popped.starts_with("*15000 "), "{}", &popped[..100]);
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 15_000, "a member was popped twice");
    assert_eq!(client.call("SCARD s"), ":5000");
    assert!(
        names.iter().step_by(1000).all(|name| client.call(&format!("SISMEMBER s {name}")) == ":0")
    );
}

/// Elements of one command: more than the budget has room for.
const MANY: u32 = 6_000;

/// A command with all elements at once.
fn at_once(command: &str, element: impl Fn(u32) -> String) -> String {
    let elements: Vec<_> = (0..MANY).map(element).collect();
    format!("{command} {}", elements.join(" "))
}

#[test]
fn commands_of_very_many_elements_go_in_steps() {
    let server = server_with_small_budget();
    let mut client = server.client();
    let name = |n: u32| format!("{n:040}");
    let adding = [
        at_once("SADD s", name),
        at_once("HSET h", |n| format!("{n:040} {n}")),
        at_once("ZADD z", |n| format!("{n} {n:040}")),
        at_once("RPUSH l", name),
        at_once("GEOADD g", |n| format!("{} 40 {n:040}", f64::from(n) / 60.0)),
    ];
    for command in adding {
        assert_eq!(client.call(&command), ":6000", "{}", &command[..10]);
    }
    let expired = client.call(&at_once(&format!("HEXPIRE h 90000 FIELDS {MANY}"), name));
    assert!(expired.starts_with("*6000 :1 :1"), "{}", &expired[..100]);
    assert_eq!(expired.matches(":1").count(), MANY as usize);
    check(
        &mut client,
        &[
            ("SCARD s", ":6000"),
            ("ZSCORE z 0000000000000000000000000000000000005999", "$4 5999"),
            ("HGET h 0000000000000000000000000000000000005999", "$4 5999"),
            ("HEXISTS h 0000000000000000000000000000000000000007", ":1"),
            ("LINDEX l -1", "$40 0000000000000000000000000000000000005999"),
            ("LPUSHX none a b", ":0"),
            ("ZCARD g", ":6000"),
        ],
    );
    let kept = client.call(&at_once(&format!("HPERSIST h FIELDS {MANY}"), name));
    assert_eq!(kept.matches(":1").count(), MANY as usize);
    for (command, key) in [("SREM s", "s"), ("HDEL h", "h"), ("ZREM z", "z"), ("ZREM g", "g")] {
        assert_eq!(client.call(&at_once(command, name)), ":6000", "{command}");
        assert_eq!(client.call(&format!("EXISTS {key}")), ":0");
    }
    for first in (0..MANY).step_by(500) {
        let pairs: Vec<_> = (first..first + 500).map(|n| format!("key:{n} x")).collect();
        client.call(&format!("MSET {}", pairs.join(" ")));
    }
    assert_eq!(client.call(&at_once("DEL", |n| format!("key:{n}"))), ":6000");
    assert_eq!(client.call("DBSIZE"), ":1");
}

#[test]
fn pending_entries_of_a_group_go_in_steps() {
    const ENTRIES: u32 = 3_000;
    let ids_of = |command: &str| {
        let ids: Vec<_> = (1..=ENTRIES).map(|n| format!("{n}-0")).collect();
        format!("{command} {}", ids.join(" "))
    };
    let server = server_with_small_budget();
    let mut client = server.client();
    for n in 1..=ENTRIES {
        client.call(&format!("XADD x {n}-0 f v"));
    }
    client.call("XGROUP CREATE x g 0");
    // Of very many entries the group gives as many as the budget has room for.
    let (mut given, mut calls) = (0, 0);
    while given < ENTRIES as usize {
        let reply = client.call("XREADGROUP GROUP g c STREAMS x >");
        let entries = reply.matches(" $1 f ").count();
        assert!(entries > 100, "{}", &reply[..reply.len().min(200)]);
        given += entries;
        calls += 1;
    }
    assert_eq!(given, ENTRIES as usize);
    assert!(calls > 1);
    let ids = ids_of("XACK x g");
    check(&mut client, &[("XPENDING x g", "*4 :3000 $3 1-0 $6 3000-0 *1 *2 $1 c $4 3000")]);
    assert_eq!(client.call(&ids), ":3000");
    client.call("XGROUP SETID x g 0");
    while client.call("XREADGROUP GROUP g c STREAMS x >") != "*-1" {}
    check(
        &mut client,
        &[
            ("XGROUP DELCONSUMER x g c", ":3000"),
            ("XPENDING x g", "*4 :0 $-1 $-1 *-1"),
            ("XINFO CONSUMERS x g", "*0"),
        ],
    );
    assert_eq!(client.call(&ids_of("XDEL x")), ":3000");
    assert_eq!(client.call("XLEN x"), ":0");
}

#[test]
fn values_of_very_many_elements_are_stored_copied_and_moved_whole() {
    let server = server_with_small_budget();
    let mut client = server.client();
    fill(&mut client, "SADD s", |n| format!("{n:040}"));
    fill(&mut client, "SADD t", |n| format!("{:040}", n + 10_000));
    fill(&mut client, "ZADD z", |n| format!("{n} {n:040}"));
    fill(&mut client, "RPUSH l", |n| format!("{n:040}"));
    check(
        &mut client,
        &[
            ("SUNIONSTORE u s t", ":30000"),
            ("SINTERSTORE u s t", ":10000"),
            ("ZUNIONSTORE y 2 z s", ":20000"),
            ("ZRANGESTORE r z 0 -1", ":20000"),
            ("SORT l STORE sorted", ":20000"),
            ("COPY z copied DB 2", ":1"),
            ("COPY l copy", ":1"),
            ("RENAME s renamed", "+OK"),
            ("MOVE l 3", ":1"),
            ("EXISTS s l", ":0"),
            ("SCARD renamed", ":20000"),
            ("LLEN copy", ":20000"),
            ("ZSCORE y 0000000000000000000000000000000000019999", "$5 20000"),
            ("LINDEX sorted -1", "$40 0000000000000000000000000000000000019999"),
            ("MULTI", "+OK"),
            ("COPY u v", "+QUEUED"),
            ("ZRANGESTORE w z 0 -1", "+QUEUED"),
            ("DEL z", "+QUEUED"),
            ("EXEC", "*3 :1 :20000 :1"),
            ("SCARD v", ":10000"),
            ("SELECT 2", "+OK"),
            ("ZCARD copied", ":20000"),
            ("SELECT 3", "+OK"),
            ("LLEN l", ":20000"),
        ],
    );
}
