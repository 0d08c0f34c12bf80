//! Publish and subscribe beside a real Redis: two clients of each, who take turns.

use crate::redis::Redis;
use crate::running::{Client, config, start};

/// Who speaks, what, and who gets a reply or a message then, once for each time named.
pub const TALK: &[(usize, &str, &[usize])] = &[
    (0, "subscribe a b", &[0, 0]),
    // One pattern for each channel: Redis has them in no order.
    (0, "psubscribe a* k?", &[0, 0]),
    (0, "get k", &[0]),
    (0, "ping", &[0]),
    (0, "ping x", &[0]),
    (0, "subscribe", &[0]),
    (1, "publish a 1", &[0, 0, 1]),
    (1, "publish abc 2", &[0, 1]),
    (1, "publish zz 3", &[1]),
    (1, "publish a", &[1]),
    (1, "pubsub numpat", &[1]),
    (1, "pubsub numsub a b c", &[1]),
    (1, "pubsub numsub", &[1]),
    (1, "pubsub channels a*", &[1]),
    (1, "pubsub channels z*", &[1]),
    (1, "pubsub channels a b", &[1]),
    (1, "pubsub nothing", &[1]),
    (1, "pubsub shardchannels", &[1]),
    (1, "pubsub", &[1]),
    (0, "unsubscribe b zz", &[0, 0]),
    (0, "punsubscribe k?", &[0]),
    (1, "publish a 4", &[0, 0, 1]),
    (0, "unsubscribe", &[0]),
    (0, "punsubscribe", &[0]),
    (0, "unsubscribe", &[0]),
    (0, "punsubscribe", &[0]),
    (0, "sunsubscribe", &[0]),
    (0, "get k", &[0]),
    (0, "ssubscribe s", &[0]),
    (0, "subscribe s", &[0]),
    (1, "spublish s 5", &[0, 1]),
    (1, "publish s 6", &[0, 1]),
    (1, "pubsub shardnumsub s t", &[1]),
    (0, "sunsubscribe s", &[0]),
    (0, "reset", &[0]),
    (1, "publish s 7", &[1]),
    (0, "get k", &[0]),
    (0, "hello 3 setname talk", &[0]),
    (0, "subscribe a", &[0]),
    (0, "ping", &[0]),
    (0, "set k v", &[0]),
    (1, "multi", &[1]),
    (1, "publish a 8", &[1]),
    (1, "publish a 9", &[1]),
    (1, "exec", &[1, 0, 0]),
    (0, "unsubscribe", &[0]),
    (0, "unsubscribe", &[0]),
    (0, "client caching yes", &[0]),
    (0, "client tracking maybe", &[0]),
    (0, "client tracking on prefix a", &[0]),
    (0, "client tracking on bcast optin", &[0]),
    (0, "client tracking on optin optout", &[0]),
    (0, "client tracking on redirect 99999999", &[0]),
    (0, "client tracking on redirect x", &[0]),
    (0, "client tracking on nothing", &[0]),
    (0, "client trackinginfo", &[0]),
    (0, "client tracking on", &[0]),
    (0, "client tracking on bcast", &[0]),
    (0, "get k", &[0]),
    (0, "mget k l", &[0]),
    (1, "set k w", &[0, 1]),
    (1, "set k w", &[1]),
    (1, "set l w", &[0, 1]),
    (0, "get k", &[0]),
    (0, "append k x", &[0, 0]),
    (0, "hgetall h", &[0]),
    (1, "hset h f 1", &[0, 1]),
    (0, "get k", &[0]),
    (1, "flushall", &[0, 1]),
    (0, "client caching no", &[0]),
    (0, "client tracking off", &[0]),
    (0, "client tracking on optin", &[0]),
    (0, "client tracking on optout", &[0]),
    (0, "client caching no", &[0]),
    (0, "client caching maybe", &[0]),
    (0, "client caching yes", &[0]),
    (0, "client trackinginfo", &[0]),
    (0, "get k", &[0]),
    (0, "get l", &[0]),
    (1, "mset k 1 l 1", &[0, 1]),
    (0, "client tracking off", &[0]),
    (0, "client tracking on bcast prefix ab prefix abc", &[0]),
    (0, "client tracking on bcast prefix ab prefix x", &[0]),
    (0, "client tracking on bcast prefix a", &[0]),
    (1, "set abc 1", &[0, 1]),
    (1, "multi", &[1]),
    (1, "set x1 1", &[1]),
    (1, "set y 1", &[1]),
    (1, "del x1", &[1]),
    (1, "exec", &[0, 1]),
    (0, "client trackinginfo", &[0]),
    (0, "client getredir", &[0]),
    (0, "client tracking off", &[0]),
    (0, "client getredir", &[0]),
    (0, "module list", &[0]),
    (0, "module", &[0]),
    (0, "lolwut version x", &[0]),
    (0, "replicaof no one", &[0]),
    (0, "slaveof No One", &[0]),
    (0, "replconf", &[0]),
    (0, "replconf capa", &[0]),
    (0, "replconf listening-port 7000 ip-address a capa eof capa psync2", &[0]),
    (0, "replconf listening-port x", &[0]),
    (0, "replconf rdb-only 1 rdb-only 0 rdb-only 2", &[0]),
    (0, "replconf rdb-only x", &[0]),
    (0, "replconf rdb-filter-only functions", &[0]),
    (0, "replconf rdb-filter-only keys", &[0]),
    (0, "replconf nothing 1", &[0]),
    (0, "psync ?", &[0]),
    (0, "psync ? x", &[0]),
    (0, "psync ? -1 failover", &[0]),
    (0, "sync 1", &[0]),
    (1, "multi", &[1]),
    (1, "subscribe m n", &[1]),
    (1, "psubscribe o*", &[1]),
    (1, "unsubscribe m", &[1]),
    // The transaction's reply says 3, and what SUBSCRIBE answers counts twice.
    (1, "exec", &[1, 1]),
    (0, "publish m 1", &[0]),
    (0, "publish n 2", &[0, 1]),
    (0, "publish open 3", &[0, 1]),
    (1, "unsubscribe", &[1]),
    (1, "punsubscribe", &[1]),
    (1, "multi", &[1]),
    (1, "ssubscribe s", &[1]),
    (1, "sunsubscribe", &[1]),
    (1, "exec", &[1]),
    (1, "get k", &[1]),
];

#[test]
fn who_has_subscribed_hears_what_redis_says() {
    let Some(redis) = Redis::start() else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let server = start(config());
    let mut ours = [server.client(), server.client()];
    let mut theirs = [Client::connect(redis.addr), Client::connect(redis.addr)];
    for (speaker, line, listeners) in TALK {
        assert!(ours[*speaker].write(line) && theirs[*speaker].write(line));
        let hear = |clients: &mut [Client; 2]| -> Vec<(usize, String)> {
            let heard = listeners.iter().map(|at| (*at, clients[*at].reply_text()));
            let mut heard: Vec<_> = heard.collect();
            if line.starts_with("publish") {
                // Redis looks at patterns in an order that differs from start to start.
                heard.sort();
            }
            heard
        };
        let (found, wanted) = (hear(&mut ours), hear(&mut theirs));
        // HELLO says who the server is.
        if !line.starts_with("hello") {
            assert_eq!(found, wanted, "after {line:?} of client {speaker}");
        }
    }
}
