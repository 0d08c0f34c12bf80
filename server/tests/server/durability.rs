//! The promise of an acknowledgement, for each row of the fault model in which the server has a
//! part.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::running::{Gate, GatedFlush, Opened, config, frame, open_on, start_with};
use perdura_media::faulty::{FaultPlan, FaultyDevice};
use perdura_media::sim::SimDevice;
use perdura_media::{Clock, RealClock};
use perdura_region::{Config, Region};
use perdura_server::{Durability, ServerConfig};
use perdura_store::{Heap, Key, Store, StoreOptions};

fn fsync() -> ServerConfig {
    ServerConfig { durability: Durability::Fsync, ..config() }
}

#[test]
fn with_fsync_every_acknowledged_write_survives_an_unwarned_loss() {
    for seed in 0..5 {
        let device = SimDevice::new(0, seed);
        let server = start_with(fsync(), open_on(Arc::new(device.clone()), true));
        let mut clients: Vec<_> = (0..4).map(|_| server.client()).collect();
        for round in 0..50 {
            for (at, client) in clients.iter_mut().enumerate() {
                client
                    .stream
                    .write_all(&frame(&[b"SET", name(at, round).as_bytes(), b"v"]))
                    .unwrap();
                client
                    .stream
                    .write_all(b"INCR count\r\nMULTI\r\nINCR in\r\nINCR in\r\nEXEC\r\n")
                    .unwrap();
            }
            for client in &mut clients {
                assert_eq!(client.reply_text(), "+OK");
                assert!(client.reply_text().starts_with(':'));
                for _ in 0..3 {
                    client.reply_text();
                }
                assert!(client.reply_text().starts_with("*2 :"));
            }
        }
        // The power fails while the server runs, so nothing is flushed.
        let after = device.power_cycle(seed);
        drop((clients, server));
        let opened = open_on(Arc::new(after), true);
        for (at, round) in (0..4).flat_map(|at| (0..50).map(move |round| (at, round))) {
            let name = name(at, round);
            assert!(opened.store.get(key(&name)).is_some(), "seed {seed}: {name}");
        }
        assert_eq!(opened.store.get(key("count")).as_deref(), Some(&b"200"[..]));
        assert_eq!(opened.store.get(key("in")).as_deref(), Some(&b"400"[..]));
    }
}

fn name(client: usize, round: usize) -> String {
    format!("key:{client}:{round}")
}

fn key(name: &str) -> Key<'_> {
    Key { db: 0, bytes: name.as_bytes() }
}

#[test]
fn a_failed_commit_answers_writes_with_an_error_and_latches() {
    let plan = Arc::new(FaultPlan::new());
    let device = FaultyDevice::new(SimDevice::new(0, 1), Arc::clone(&plan), Arc::new(RealClock));
    let server = start_with(fsync(), open_on(Arc::new(device), false));
    let mut client = server.client();
    assert_eq!(client.call("SET a 1"), "+OK");
    let mut begun = server.client();
    assert_eq!((&*begun.call("MULTI"), &*begun.call("SET c 1")), ("+OK", "+QUEUED"));
    plan.fail_flush(1);
    client.stream.write_all(b"GET a\r\nSET a 2\r\nPING\r\nINCR a\r\nGET a\r\n").unwrap();
    assert_eq!(client.reply_text(), "$1 1");
    assert!(client.reply_text().starts_with("-MISCONF this write is done in memory"));
    assert_eq!(client.reply_text(), "+PONG");
    assert!(client.reply_text().starts_with("-MISCONF this write is done in memory"));
    // The write is done in memory, as the error says, and is not durable.
    assert_eq!(client.reply_text(), "$1 3");
    assert!(client.call("SET b 1").starts_with("-MISCONF the log on the device has failed"));
    assert_eq!(client.call("EXISTS b"), ":0");
    assert_eq!(client.call("MULTI"), "+OK");
    assert!(client.call("SET b 1").starts_with("-MISCONF "));
    assert!(client.call("EXEC").starts_with("-EXECABORT "));
    let refused = begun.call("EXEC");
    assert!(
        refused.starts_with("-EXECABORT Transaction discarded because of: MISCONF"),
        "{refused}"
    );
    assert!(client.call("INFO perdura").contains("latched:1"));
    assert!(server.stop().latched.is_some());
}

#[test]
fn after_a_stop_and_a_flush_everything_is_there() {
    let device = SimDevice::new(0, 1);
    let server = start_with(config(), open_on(Arc::new(device.clone()), true));
    let mut client = server.client();
    for n in 0..500 {
        assert_eq!(client.call(&format!("SET key:{n} {n}")), "+OK");
    }
    let store = Arc::clone(&server.store);
    server.stop();
    store.region().close(1).unwrap();
    let after = device.power_cycle(1);
    let opened = open_on(Arc::new(after), true);
    for n in 0..500 {
        let value = opened.store.get(key(&format!("key:{n}")));
        assert_eq!(value, Some(n.to_string().into_bytes()));
    }
}

#[test]
fn save_makes_a_checkpoint() {
    let device = SimDevice::new(0, 1);
    let server = start_with(config(), open_on(Arc::new(device.clone()), false));
    let mut client = server.client();
    assert_eq!(client.call("SET a 1"), "+OK");
    assert_eq!(client.call("SAVE"), "+OK");
    assert_eq!(client.call("SET b 1"), "+OK");
    let opened = open_on(Arc::new(device.power_cycle(3)), true);
    assert!(opened.store.get(key("a")).is_some());
    assert!(opened.store.get(key("b")).is_none());
}

#[test]
fn a_full_store_refuses_writes_and_stays_usable() {
    let server = start_with(config(), open_on(Arc::new(SimDevice::new(0, 1)), true));
    let mut client = server.client();
    let value = vec![b'x'; 1 << 20];
    let mut refused = None;
    for n in 0..200 {
        let reply = client.call_bytes(&[b"SET", format!("k{n}").as_bytes(), &value]);
        if reply != b"+OK\r\n" {
            refused = Some(String::from_utf8(reply).unwrap());
            break;
        }
    }
    assert!(refused.is_some_and(|text| text.starts_with("-OOM ")));
    assert_eq!(client.call("STRLEN k0"), ":1048576");
    assert_eq!(client.call("MULTI"), "+OK");
    assert_eq!(client.call("DEL k0"), "+QUEUED");
    for n in 0..3 {
        client.send(&[b"SET", format!("new{n}").as_bytes(), &value]);
        assert_eq!(client.reply_text(), "+QUEUED");
    }
    assert!(client.call("EXEC").starts_with("-EXECABORT "));
    assert_eq!(client.call("EXISTS k0 new0 new1 new2"), ":1");
    assert_eq!(client.call("DEL k0 k1 k2"), ":3");
    assert_eq!(client.call_bytes(&[b"SET", b"again", &value]), b"+OK\r\n");
}

#[test]
fn memory_grows_while_it_serves_and_never_beyond_its_reserve() {
    let device = SimDevice::new(0, 1);
    let server = start_with(config(), open_on(Arc::new(device.clone()), true));
    let mut client = server.client();
    let value = "v".repeat(1 << 20);
    let mut set = |name: &str| client.call_bytes(&[b"SET", name.as_bytes(), value.as_bytes()]);
    let full = (0..100).find(|n| set(&format!("a{n}")).starts_with(b"-OOM")).unwrap();
    assert!(full > 40, "{full}");
    let mut client = server.client();
    for (value, why) in [("257mb", "more than was reserved"), ("much", "must be a memory value")] {
        let reply = client.call(&format!("CONFIG SET timeout 7 maxmemory {value}"));
        assert!(reply.starts_with("-ERR CONFIG SET failed") && reply.contains(why), "{reply}");
    }
    assert_eq!(client.call("CONFIG GET timeout"), "*2 $7 timeout $1 0");
    assert_eq!(client.call("CONFIG SET maxmemory 128mb"), "+OK");
    assert_eq!(client.call("CONFIG GET maxmemory"), "*2 $9 maxmemory $9 134217728");
    let names: Vec<_> = (full..100).map(|n| format!("a{n}")).collect();
    for name in &names {
        let reply = client.call_bytes(&[b"SET", name.as_bytes(), value.as_bytes()]);
        assert_eq!(reply, b"+OK\r\n", "{name}");
    }
    assert_eq!(client.call("SAVE"), "+OK");
    let opened = open_on(Arc::new(device.power_cycle(1)), true);
    assert_eq!(opened.store.region().len_bytes(), 128 << 20);
    for name in &names {
        assert_eq!(opened.store.get(key(name)).as_deref(), Some(value.as_bytes()), "{name}");
    }
}

#[test]
fn what_a_disconnected_client_wrote_is_durable_before_another_is_told_of_it() {
    let device = SimDevice::new(0, 1);
    let limited = ServerConfig { output_max_bytes: 4_000, ..fsync() };
    let server = start_with(limited, open_on(Arc::new(device.clone()), false));
    let (mut writer, mut reader) = (server.client(), server.client());
    assert_eq!(writer.call_bytes(&[b"SET", b"big", &[b'x'; 3_000]]), b"+OK\r\n");
    // EXEC's reply is too long: the writer is disconnected, with all of the transaction done.
    writer.stream.write_all(b"MULTI\r\nSET a 1\r\nGET big\r\nGET big\r\nEXEC\r\n").unwrap();
    writer.rest();
    assert_eq!(reader.call("GET a"), "$1 1");
    let opened = open_on(Arc::new(device.power_cycle(1)), true);
    assert_eq!(opened.store.get(key("a")).as_deref(), Some(&b"1"[..]));
}

#[test]
fn emptying_in_a_transaction_needs_no_budget_for_each_key() {
    let clock: Arc<dyn Clock> = Arc::new(RealClock);
    let config_of_region = Config { thread: false, ..Config::new(64 << 20, 1 << 20) };
    let device = Arc::new(SimDevice::new(0, 1));
    let region = Region::open(device, Arc::clone(&clock), config_of_region).unwrap();
    let heap = Heap::open(region).unwrap();
    let store = Store::open(heap, Arc::clone(&clock), StoreOptions::default()).unwrap();
    let server = start_with(config(), Opened { store: Arc::new(store), clock });
    let mut client = server.client();
    for n in 0..100_000 {
        client.stream.write_all(format!("SET key:{n} x\r\n").as_bytes()).unwrap();
        if n % 1_000 == 999 {
            (0..1_000).for_each(|_| assert_eq!(client.reply_text(), "+OK"));
        }
    }
    assert_eq!(client.call("MULTI"), "+OK");
    for line in ["SET before 1", "FLUSHALL", "SET after 1", "DBSIZE", "APPEND key:7 y"] {
        assert_eq!(client.call(line), "+QUEUED");
    }
    assert_eq!(client.call("EXEC"), "*5 +OK +OK +OK :1 :1");
    assert_eq!(client.call("DBSIZE"), ":2");
    assert_eq!(client.call("EXISTS before after key:7 key:8"), ":2");
    assert_eq!(client.call("FLUSHALL"), "+OK");
    server.store.heap().reclaim();
    let fresh = open_on(Arc::new(SimDevice::new(0, 1)), false).store.stats().free_bytes;
    assert_eq!(server.store.stats().free_bytes, fresh);
}

#[test]
fn with_fsync_whatever_anybody_was_told_survives_whatever_the_turns_were() {
    for seed in 0..6u64 {
        let device = SimDevice::new(0, seed);
        // The limits are small, so that turns commit in the middle, clients stall, and replies are
        // sent in parts.
        let bounds = ServerConfig {
            group_writes_max: 1 + seed as usize % 3,
            group_writes_inline: seed as usize % 4,
            output_pause_bytes: 40 << (seed * 2),
            turn_bytes_max: 100 + 700 * seed as usize,
            ..fsync()
        };
        let server = start_with(bounds, open_on(Arc::new(device.clone()), true));
        let told: Vec<_> = (0..4).map(|_| AtomicU64::new(0)).collect();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let (mut client, told, stop) = (server.client(), &told, &stop);
                scope.spawn(move || {
                    let line = match writer {
                        0 => "INCR n0\r\nGET n1\r\n",
                        1 => "MULTI\r\nINCR n1\r\nGET n2\r\nEXEC\r\n",
                        2 => "CLIENT REPLY SKIP\r\nINCR n2\r\nGET n2\r\n",
                        _ => "GET n0\r\nGET n1\r\nGET n2\r\n",
                    };
                    let request = line.repeat(40);
                    while !stop.load(Ordering::Relaxed) {
                        client.stream.write_all(request.as_bytes()).unwrap();
                        for _ in 0..40 {
                            let note = |of: usize, reply: String| {
                                let number = reply.split([' ', ':']).next_back().unwrap_or("");
                                told[of].fetch_max(number.parse().unwrap_or(0), Ordering::SeqCst);
                            };
                            match writer {
                                0 => (0..2).for_each(|of| note(of, client.reply_text())),
                                1 => {
                                    (0..3).for_each(|_| drop(client.reply_text()));
                                    let both = client.reply_text();
                                    let count = both.split(' ').nth(1).unwrap().to_owned();
                                    note(1, count);
                                    note(2, both);
                                }
                                2 => note(2, client.reply_text()),
                                _ => (0..3).for_each(|of| note(of, client.reply_text())),
                            }
                        }
                    }
                });
            }
            while told[..3].iter().any(|n| n.load(Ordering::SeqCst) < 200 + 37 * seed) {
                std::thread::yield_now();
            }
            let before: Vec<u64> = told.iter().map(|n| n.load(Ordering::SeqCst)).collect();
            let opened = open_on(Arc::new(device.power_cycle(seed)), true);
            stop.store(true, Ordering::Relaxed);
            for (of, told) in before[..3].iter().enumerate() {
                let found = opened.store.get(key(&format!("n{of}"))).unwrap_or_default();
                let found: u64 = String::from_utf8(found).unwrap().parse().unwrap_or(0);
                assert!(found >= *told, "seed {seed}: n{of}: {found}, told {told}");
            }
        });
    }
}

#[test]
fn bgsave_does_not_keep_clients_waiting() {
    let device = SimDevice::new(0, 1);
    let gate = Arc::new(Gate::default());
    let gated = GatedFlush { inner: device.clone(), gate: Arc::clone(&gate) };
    let server = start_with(config(), open_on(Arc::new(gated), false));
    let mut client = server.client();
    assert_eq!(client.call("SET a 1"), "+OK");
    let persistence = |client: &mut crate::running::Client| client.call("INFO persistence");
    assert!(persistence(&mut client).contains("rdb_last_bgsave_time_sec:-1"));
    gate.shut(true);
    assert_eq!(client.call("BGSAVE"), "+Background saving started");
    assert!(persistence(&mut client).contains("rdb_bgsave_in_progress:1"));
    assert_eq!(client.call("SET b 1"), "+OK");
    assert_eq!(client.call("GET b"), "$1 1");
    for line in ["BGSAVE", "BGSAVE SCHEDULE", "SAVE"] {
        assert_eq!(client.call(line), "-ERR Background save already in progress", "{line}");
    }
    gate.shut(false);
    while persistence(&mut client).contains("rdb_bgsave_in_progress:1") {}
    let info = persistence(&mut client);
    assert!(info.contains("rdb_saves:1") && info.contains("rdb_last_bgsave_status:ok"), "{info}");
    assert!(client.call("LASTSAVE").starts_with(':'));
    // In a transaction it is only begun there, so nothing waits for the shards EXEC holds.
    for (line, reply) in [("MULTI", "+OK"), ("SET c 1", "+QUEUED"), ("BGSAVE", "+QUEUED")] {
        assert_eq!(client.call(line), reply);
    }
    assert_eq!(client.call("EXEC"), "*2 +OK +Background saving started");
    while persistence(&mut client).contains("rdb_bgsave_in_progress:1") {}
    assert_eq!(client.call("SAVE"), "+OK");
    assert!(persistence(&mut client).contains("rdb_saves:3"));
    // A stop does not wait for an order that the thread has not begun.
    assert_eq!(client.call("BGSAVE"), "+Background saving started");
    server.stop();
    let opened = open_on(Arc::new(device.power_cycle(3)), true);
    assert!(["a", "b", "c"].iter().all(|name| opened.store.get(key(name)).is_some()));
}

#[test]
fn a_full_device_refuses_writes_beyond_the_budget_and_keeps_what_is_in_memory() {
    let plan = Arc::new(FaultPlan::new());
    let device = FaultyDevice::new(SimDevice::new(0, 1), Arc::clone(&plan), Arc::new(RealClock));
    let server = start_with(config(), open_on(Arc::new(device), true));
    let mut client = server.client();
    plan.no_space_from_write(1);
    let value = "v".repeat(10_000);
    let mut accepted = 0;
    let refused = loop {
        let reply = client.call(&format!("SET key:{accepted} {value}"));
        if reply != "+OK" {
            break reply;
        }
        accepted += 1;
        assert!(accepted < 6_000, "the budget is 16 MiB");
    };
    assert!(refused.starts_with("-MISCONF ") && refused.contains("space"), "{refused}");
    // Space that comes back does not make the failure undone: what could not be written is not
    // known.
    plan.heal();
    assert!(client.call(&format!("SET more {value}")).starts_with("-MISCONF "));
    let info = client.call("INFO perdura persistence");
    for text in ["latched:1", "aof_last_write_status:err", "rdb_last_bgsave_status:err", "space"] {
        assert!(info.contains(text), "{text} in {info}");
    }
    assert!(client.call("SAVE").starts_with("-ERR checkpoint failed"));
    for n in 0..accepted {
        assert_eq!(client.call(&format!("STRLEN key:{n}")), ":10000");
    }
}
