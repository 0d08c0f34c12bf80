//! Clients that wait for data, beside a real Redis: some clients of each, who get the same commands
//! in the same order. After each command, who waits and what everybody has been answered is the
//! same on both sides.

use rand::prelude::*;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::redis::Redis;
use crate::running::{Client, config, start};
use perdura_server::ServerConfig;

/// The commands; `V` is a value of its own, `N` a small number, `@` a client's number. One line may
/// be several commands.
///
/// A client that waits for several keys runs its command anew once one is ready, as in Redis 7.2;
/// Redis 7.0 pops from that one, though an earlier one is of another kind or has become ready, too.
/// So `L` is a key of lists only and `X` one of sorted sets only, and one command makes one of them
/// ready; `K` is a key of any kind that is waited for alone. Nor does `ZUNIONSTORE` wake anybody in
/// Redis where its target was a list before.
pub const WAITS: &[&str] = &[
    "blpop L 0",
    "blpop L L L 0",
    "brpop L L 0",
    "blpop K 0",
    "brpop K 0",
    "blmove K K left right 0",
    "blmove L K right left 0",
    "blmove L K left left 0",
    "brpoplpush K K 0",
    "blmpop 0 1 K left count N",
    "blmpop 0 2 L L right",
    "bzpopmin X X 0",
    "bzpopmin K 0",
    "bzpopmax K 0",
    "bzmpop 0 2 X X min count N",
    "bzmpop 0 1 K max",
    "lpush L V",
    "rpush L V",
    "rpush L V V V",
    "lpush K V",
    "rpush K V",
    "rpush K V V V",
    "lpush K V V",
    "lpop K",
    "rpop L N",
    "lmove K K left right",
    "lmove L K left right",
    "rpoplpush L L",
    "linsert K before V V",
    "zadd K N V",
    "zadd X N V N V",
    "zincrby K N V",
    "zincrby X N V",
    "zpopmin X",
    "zunionstore X 2 X X",
    "del K",
    "del K L X",
    "set K V",
    "rename K K",
    "rename L L",
    "copy K K replace",
    "copy X K replace",
    "flushall",
    "multi;del a b x y;swapdb 0 1;exec",
    "client unblock @",
    "client unblock @ timeout",
    "client unblock @ error",
    "multi;rpush K V;del K;exec",
    "multi;rpush K V;rpush K V V;lpop K;exec",
    "multi;lpush L V;zadd K N V;zadd X N V;exec",
    "multi;del K;zadd K N V;rpush K V;exec",
    "multi;blpop K 0;blmove K K left left 0;bzpopmin K 0;brpoplpush K K 0;exec",
    "multi;select 1;rpush K V;select 0;exec",
    "multi;del a b x y;select 1;rpush K V;swapdb 0 1;select 0;exec",
    "multi;select 1;rpush K V;move K 0;select 0;exec",
    "multi;brpop K K 0;bzpopmax K 0;blmpop 0 1 K left;bzmpop 0 1 K max;client unblock @;exec",
];

const CLIENTS: usize = 6;

/// A server with its clients.
struct Side {
    clients: Vec<Client>,
    ids: Vec<String>,
    waits: Vec<bool>,
    observer: Client,
}

impl Side {
    fn new(connect: impl Fn() -> Client) -> Self {
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| connect()).collect();
        let ids = clients.iter_mut().map(|client| client.call("CLIENT ID")[1..].to_owned());
        let ids = ids.collect();
        Self { clients, ids, waits: vec![false; CLIENTS], observer: connect() }
    }

    /// Which clients wait, as the server says.
    fn flagged(&mut self) -> Vec<bool> {
        let mut waits = vec![false; CLIENTS];
        let list = self.observer.call("CLIENT LIST");
        let mut at = None;
        for word in list.split_whitespace() {
            if let Some(id) = word.strip_prefix("id=") {
                at = self.ids.iter().position(|own| own == id);
            } else if let (Some(flags), Some(at)) = (word.strip_prefix("flags="), at) {
                waits[at] = flags.contains('b');
            }
        }
        waits
    }

    /// Gives a client commands, and returns what everybody hears.
    fn step(&mut self, speaker: usize, line: &str) -> Vec<(usize, String)> {
        let mut line = line.to_owned();
        for (at, id) in self.ids.iter().enumerate() {
            line = line.replace(&format!("@{at}"), id);
        }
        let lines = line.split(';').count();
        assert!(self.clients[speaker].write(&line.replace(';', "\r\n")));
        let mut heard = Vec::new();
        while heard.len() < lines {
            if self.clients[speaker].hears_now() {
                heard.push((speaker, self.clients[speaker].reply_text()));
            } else if self.flagged()[speaker] {
                self.waits[speaker] = true;
                break;
            }
        }
        let flagged = self.flagged();
        for (at, flagged) in flagged.iter().enumerate() {
            if self.waits[at] && !flagged {
                self.waits[at] = false;
                heard.push((at, self.clients[at].reply_text()));
            }
        }
        heard
    }
}

#[test]
fn who_waits_is_served_as_by_redis() {
    let Some(redis) = Redis::start() else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let from_env = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let seed = from_env("PERDURA_SEED").unwrap_or(1);
    let count = from_env("PERDURA_COMMANDS").unwrap_or(1_500);
    let server = start(ServerConfig { threads: 3, ..config() });
    let mut ours = Side::new(|| server.client());
    let mut theirs = Side::new(|| Client::connect(redis.addr));
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (mut recent, mut value): (Vec<String>, u64) = (Vec::new(), 0);
    for step in 0..count {
        let free: Vec<_> = (0..CLIENTS).filter(|at| !ours.waits[*at]).collect();
        // Somebody must be left to speak.
        let template = loop {
            let template = WAITS.choose(&mut random).unwrap();
            if free.len() > 1 || !template.starts_with('b') {
                break *template;
            }
        };
        let speaker = *free.choose(&mut random).unwrap();
        let line: String = template
            .chars()
            .map(|letter| match letter {
                'K' => ["c", "d"].choose(&mut random).unwrap().to_string(),
                'L' => ["a", "b"].choose(&mut random).unwrap().to_string(),
                'X' => ["x", "y"].choose(&mut random).unwrap().to_string(),
                'N' => random.random_range(1..4).to_string(),
                '@' => format!("@{}", random.random_range(0..CLIENTS)),
                'V' => {
                    value += 1;
                    format!("v{value}")
                }
                letter => letter.to_string(),
            })
            .collect();
        recent.push(format!("{speaker}: {line}"));
        recent.drain(..recent.len().saturating_sub(40));
        let (found, wanted) = (ours.step(speaker, &line), theirs.step(speaker, &line));
        assert_eq!(
            (found, &ours.waits),
            (wanted, &theirs.waits),
            "PERDURA_SEED={seed} cargo test -p perdura-server --test differential waits\n\
             step {step}: {recent:#?}"
        );
    }
    for key in ["a", "b", "c", "d"] {
        let lines = [format!("TYPE {key}"), format!("LRANGE {key} 0 -1")];
        for line in &lines {
            assert_eq!(ours.observer.call(line), theirs.observer.call(line), "{line}");
        }
    }
}
