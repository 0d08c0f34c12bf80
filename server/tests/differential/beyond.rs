//! Commands that change more than this server's budget has room for, and what they leave, as those
//! of Redis: built where nobody sees it, or in steps.

use crate::redis::Redis;
use crate::running::{Client, config, open_with_budget, start_with};
use crate::sorted;

const ELEMENTS: u32 = 5_000;

/// A command with many elements behind it.
fn many(command: &str, range: std::ops::Range<u32>, element: impl Fn(u32) -> String) -> String {
    let elements: Vec<_> = range.map(element).collect();
    format!("{command} {}", elements.join(" "))
}

fn name(n: u32) -> String {
    format!("{:036}", n.wrapping_mul(2_654_435_761))
}

fn commands() -> Vec<String> {
    let all = 0..ELEMENTS;
    let mut commands = vec![
        many("SADD s", all.clone(), name),
        many("SADD t", 2_500..7_500, name),
        many("ZADD z CH", all.clone(), |n| format!("{} {}", n % 100, name(n))),
        many("ZADD z CH", 2_500..7_500, |n| format!("{} {}", n % 50, name(n))),
        many("ZADD z NX", 0..9_000, |n| format!("7 {}", name(n))),
        many("HSET h", all.clone(), |n| format!("{} {n}", name(n))),
        many("HMSET h", 2_500..7_500, |n| format!("{} {n}", name(n))),
        many("RPUSH l", all.clone(), name),
        many("LPUSH l", all.clone(), name),
        many("GEOADD g CH", all.clone(), |n| format!("{} 40 {}", f64::from(n) / 50.0, name(n))),
        "XGROUP CREATE x g 0 MKSTREAM".to_owned(),
    ];
    commands.extend((1..2_000).map(|n| format!("XADD x {n}-1 field {}", name(n))));
    commands.extend((0..4).map(|n| format!("XREADGROUP GROUP g c{n} COUNT 600 STREAMS x >")));
    let plain = [
        "SUNIONSTORE u s t",
        "SINTERSTORE i s t",
        "SDIFFSTORE d s t",
        "ZUNIONSTORE zu 2 z s WEIGHTS 2 3",
        "ZINTERSTORE zi 2 z s AGGREGATE MAX",
        "ZDIFFSTORE zd 2 z t",
        "ZRANGESTORE zr z 10 -10",
        "SORT l ALPHA LIMIT 5 9000 STORE sorted",
        "GEOSEARCHSTORE gs g FROMLONLAT 10 40 BYRADIUS 20000 KM",
        "COPY h hc",
        "COPY z zc DB 3",
        "COPY x xc REPLACE",
        "RENAME l renamed",
        "RENAMENX s t",
        "MOVE u 4",
        "MULTI",
        "COPY t tc",
        "ZRANGESTORE s z 0 -1",
        "RENAME zu other",
        "EXEC",
        "XGROUP DELCONSUMER x g c1",
        "XPENDING x g",
        "XINFO GROUPS xc",
        "XPENDING xc g",
        "TYPE s",
    ];
    commands.extend(plain.map(str::to_owned));
    commands.push(many("SREM t", 3_000..7_000, name));
    commands.push(many("HDEL hc", 0..7_000, name));
    commands.push(many("ZREM other", 0..7_000, name));
    commands.push(many("XACK x g", 0..2_000, |n| format!("{n}-1")));
    commands.push(many("XDEL x", 100..2_000, |n| format!("{n}-1")));
    commands.push(many("DEL", 0..4_000, |n| format!("none{n}")));
    commands
}

/// The whole value at each key; where it has no order, sorted.
fn contents(client: &mut Client) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for db in [0, 3, 4] {
        client.call(&format!("SELECT {db}"));
        let names = client.call("KEYS *");
        let mut names: Vec<_> = names.split(' ').skip(2).step_by(2).map(str::to_owned).collect();
        names.sort_unstable();
        for key in names {
            let kind = client.call(&format!("TYPE {key}"));
            let (line, width) = match &kind[..] {
                "+set" => (format!("SMEMBERS {key}"), 1),
                "+hash" => (format!("HGETALL {key}"), 2),
                "+list" => (format!("LRANGE {key} 0 -1"), 0),
                "+zset" => (format!("ZRANGE {key} 0 -1 WITHSCORES"), 0),
                "+stream" => (format!("XRANGE {key} - +"), 0),
                other => panic!("{key} is {other}"),
            };
            let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            let reply = client.call_bytes(&args);
            let reply = if width > 0 { sorted(&reply, width) } else { reply };
            found.push((format!("{db} {key} {kind}"), reply));
        }
    }
    client.call("SELECT 0");
    found
}

#[test]
fn commands_beyond_the_budget_answer_as_in_redis() {
    let Some(redis) = Redis::start() else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let server = start_with(config(), open_with_budget(256 << 10));
    let (mut ours, mut theirs) = (server.client(), Client::connect(redis.addr));
    let same = |ours: &mut Client, theirs: &mut Client| {
        for ((key, our), (other, their)) in contents(ours).into_iter().zip(contents(theirs)) {
            assert!(key == other && our == their, "{key} here, {other} there");
        }
    };
    for line in commands() {
        let (our, their) = (ours.call(&line), theirs.call(&line));
        let shown = &line[..line.len().min(60)];
        assert!(our == their, "{shown}: {:.200} here, {:.200} there", our, their);
    }
    same(&mut ours, &mut theirs);
    // Redis' payloads are restored here, and ours there.
    for key in ["h", "z", "renamed", "t", "xc"] {
        let restore = |from: &mut Client, to: &mut Client| {
            let reply = from.call_bytes(&[b"DUMP", key.as_bytes()]);
            let head = reply.iter().position(|byte| *byte == b'\n').unwrap() + 1;
            let payload = &reply[head..reply.len() - 2];
            to.call_bytes(&[b"RESTORE", b"restored", b"0", payload, b"REPLACE"])
        };
        assert_eq!(restore(&mut theirs, &mut ours), b"+OK\r\n", "{key}");
        assert_eq!(restore(&mut ours, &mut theirs), b"+OK\r\n", "{key}");
        same(&mut ours, &mut theirs);
    }
}
