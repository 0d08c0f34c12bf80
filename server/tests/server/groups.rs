//! Groups of writes while a commit is on its way (`durability = fsync`): a gate holds the device's
//! flush, so that the commit of the first group does not return, and the server goes on executing
//! the next.

use std::io::Write;
use std::sync::Arc;

use crate::running::{Client, Gate, GatedFlush, Running, config, open_on, start_with};
use perdura_media::RealClock;
use perdura_media::faulty::{FaultPlan, FaultyDevice};
use perdura_media::sim::SimDevice;
use perdura_server::{Durability, EventQueue, ServerConfig};
use perdura_store::Key;

/// Event queues, and numbers of loops.
const LOOPS: [(EventQueue, usize); 3] =
    [(EventQueue::Epoll, 1), (EventQueue::Auto, 1), (EventQueue::Auto, 3)];

fn fsync((events, threads): (EventQueue, usize)) -> ServerConfig {
    // The loops commit nothing themselves, because the test must see that they go on.
    let durability = Durability::Fsync;
    ServerConfig { durability, events, threads, group_writes_inline: 0, ..config() }
}

struct World {
    gate: Opened,
    server: Running,
    device: SimDevice,
    plan: Arc<FaultPlan>,
}

/// Opens the gate when it is dropped, which is before the drop of the server: behind a shut gate
/// the server could not end.
struct Opened(Arc<Gate>);

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.shut(false);
    }
}

impl World {
    /// Starts a server that has committed once and cannot commit again, because the gate is shut.
    fn new(config: ServerConfig) -> Self {
        let (device, plan, gate) =
            (SimDevice::new(0, 1), Arc::default(), Arc::new(Gate::default()));
        let faulty = FaultyDevice::new(device.clone(), Arc::clone(&plan), Arc::new(RealClock));
        let gated = GatedFlush { inner: faulty, gate: Arc::clone(&gate) };
        let server = start_with(config, open_on(Arc::new(gated), false));
        assert_eq!(server.client().call("SET first 1"), "+OK");
        gate.shut(true);
        Self { gate: Opened(gate), server, device, plan }
    }

    /// Sends a line whose commit does not return.
    fn begin(&self, client: &mut Client, line: &str) {
        client.stream.write_all(format!("{line}\r\n").as_bytes()).unwrap();
        self.gate.0.until_reached();
    }

    /// Sends lines, and waits until the server has carried them out, which makes `key` this.
    fn gather(&self, client: &mut Client, lines: &str, key: &str, value: &str) {
        client.stream.write_all(lines.as_bytes()).unwrap();
        while self.get(key).as_deref() != Some(value.as_bytes()) {
            std::thread::yield_now();
        }
    }

    fn get(&self, key: &str) -> Option<Vec<u8>> {
        self.server.store.get(Key { db: 0, bytes: key.as_bytes() })
    }

    /// The value that is there if the power fails now.
    fn after(&self, key: &str) -> Option<Vec<u8>> {
        let opened = open_on(Arc::new(self.device.power_cycle(1)), false);
        opened.store.get(Key { db: 0, bytes: key.as_bytes() })
    }
}

#[test]
fn nobody_is_told_of_a_write_before_its_commit_returns() {
    for loops in LOOPS {
        let world = World::new(fsync(loops));
        let mut clients: Vec<_> = (0..3).map(|_| world.server.client()).collect();
        world.begin(&mut clients[0], "SET a 1");
        // Nobody waits for the commit on its way, so neither write is answered.
        world.gather(&mut clients[1], "GET a\r\nSET b 2\r\n", "b", "2");
        clients[2].stream.write_all(b"GET a\r\nGET b\r\n").unwrap();
        assert!(clients.iter_mut().all(Client::hears_nothing));
        world.gate.0.shut(false);
        assert_eq!(clients[2].reply_text(), "$1 1");
        assert_eq!(clients[2].reply_text(), "$1 2");
        assert_eq!(clients[1].reply_text(), "$1 1");
        assert_eq!(clients[1].reply_text(), "+OK");
        assert_eq!(clients[0].reply_text(), "+OK");
        assert_eq!(world.after("b").as_deref(), Some(&b"2"[..]));
    }
}

#[test]
fn a_connection_in_two_groups_is_answered_in_order() {
    for loops in LOOPS {
        let world = World::new(fsync(loops));
        let mut client = world.server.client();
        let long = "x".repeat(50_000);
        world.begin(&mut client, "INCR n");
        world.gather(&mut client, &format!("GET n\r\nAPPEND long {long}\r\n"), "long", &long);
        world.gather(&mut client, "GET long\r\nINCR n\r\nCLIENT REPLY OFF\r\nINCR n\r\n", "n", "3");
        world.gather(&mut client, "CLIENT REPLY ON\r\nGET n\r\nINCR n\r\n", "n", "4");
        assert!(client.hears_nothing());
        world.gate.0.shut(false);
        for reply in [":1", "$1 1", ":50000", &format!("$50000 {long}"), ":2", "+OK", "$1 3", ":4"]
        {
            assert_eq!(client.reply_text(), reply);
        }
        assert_eq!(world.after("n").as_deref(), Some(&b"4"[..]));
    }
}

#[test]
fn a_failed_commit_fails_the_group_behind_it_too() {
    for loops in LOOPS {
        let world = World::new(fsync(loops));
        let (mut first, mut second) = (world.server.client(), world.server.client());
        let failed = "-MISCONF this write is done in memory";
        world.plan.fail_flush(1);
        world.begin(&mut first, "INCR n");
        let line = "MULTI\r\nINCR n\r\nGET n\r\nEXEC\r\nGET n\r\nINCR n\r\nPING\r\n";
        world.gather(&mut second, line, "n", "3");
        world.gather(&mut first, "GET n\r\nINCR n\r\nGET n\r\n", "n", "4");
        assert!(first.hears_nothing() && second.hears_nothing());
        world.gate.0.shut(false);
        assert!(first.reply_text().starts_with(failed));
        assert_eq!(first.reply_text(), "$1 3");
        assert!(first.reply_text().starts_with(failed));
        assert_eq!(first.reply_text(), "$1 4");
        for reply in ["+OK", "+QUEUED", "+QUEUED", failed, "$1 2", failed, "+PONG"] {
            let found = second.reply_text();
            assert!(found.starts_with(reply), "{found}, not {reply}");
        }
        assert!(second.call("INCR n").starts_with("-MISCONF the log on the device has failed"));
        // Reads are answered as before, in a transaction too.
        assert_eq!(second.call("GET n"), "$1 4");
        for (line, reply) in [("MULTI", "+OK"), ("GET n", "+QUEUED"), ("EXEC", "*1 $1 4")] {
            assert_eq!(second.call(line), reply);
        }
        assert!(world.server.stop().latched.is_some());
    }
}

#[test]
fn a_stop_waits_for_the_commit_on_its_way_and_begins_no_other() {
    for loops in LOOPS {
        let world = World::new(fsync(loops));
        let (mut first, mut second) = (world.server.client(), world.server.client());
        world.begin(&mut first, "SET a 1");
        world.gather(&mut second, "SET b 1\r\n", "b", "1");
        world.server.trigger();
        assert!(first.hears_nothing() && second.hears_nothing());
        assert!(!world.server.has_ended(), "a commit is on its way");
        world.gate.0.shut(false);
        assert_eq!(first.reply_text(), "+OK");
        assert_eq!(second.rest(), "", "told of a write without a commit");
        let World { server, device, .. } = world;
        assert_eq!(server.stop().latched, None);
        let then = open_on(Arc::new(device.power_cycle(1)), false).store;
        assert!(then.get(Key { db: 0, bytes: b"a" }).is_some(), "acknowledged");
        assert!(
            then.get(Key { db: 0, bytes: b"b" }).is_none(),
            "the final flush's, not a commit's"
        );
    }
}

#[test]
fn shutdown_commits_and_answers_what_came_before_it() {
    for loops in LOOPS {
        let world = World::new(fsync(loops));
        let (mut first, mut second) = (world.server.client(), world.server.client());
        world.begin(&mut first, "SET a 1");
        world.gather(&mut second, "SET b 1\r\nSHUTDOWN\r\n", "b", "1");
        assert!(first.hears_nothing() && second.hears_nothing());
        world.gate.0.shut(false);
        assert_eq!(first.reply_text(), "+OK");
        assert_eq!(second.rest(), "+OK\r\n");
        let World { server, device, .. } = world;
        server.join();
        let then = open_on(Arc::new(device.power_cycle(1)), false).store;
        assert!(
            [b"a", b"b"]
                .iter()
                .all(|name| then.get(Key { db: 0, bytes: name.as_slice() }).is_some())
        );
    }
}

#[test]
fn who_takes_the_place_of_a_killed_client_does_not_get_its_replies() {
    for loops in LOOPS {
        let world = World::new(fsync(loops));
        let (mut writer, mut other) = (world.server.client(), world.server.client());
        assert_eq!(writer.call("CLIENT SETNAME writer"), "+OK");
        let id = writer.call("CLIENT ID").trim_start_matches(':').to_owned();
        world.begin(&mut writer, "SET a 1");
        world.gather(&mut other, &format!("CLIENT KILL ID {id}\r\nSET b 1\r\n"), "b", "1");
        assert_eq!(writer.rest(), "", "killed with what it was owed");
        let mut next = world.server.client();
        world.gather(&mut next, "SET c 1\r\nGET a\r\n", "c", "1");
        assert!(next.hears_nothing() && other.hears_nothing());
        world.gate.0.shut(false);
        assert_eq!(next.reply_text(), "+OK");
        assert_eq!(next.reply_text(), "$1 1");
        assert_eq!(other.reply_text(), ":1");
        assert_eq!(other.reply_text(), "+OK");
        assert_eq!(world.after("a").as_deref(), Some(&b"1"[..]), "others were told of it");
    }
}

#[test]
fn what_is_held_is_bounded() {
    for loops in LOOPS {
        let paused = ServerConfig { output_pause_bytes: 100, ..fsync(loops) };
        let crowded = ServerConfig { group_writes_max: 8, turn_bytes_max: 100, ..fsync(loops) };
        for config in [paused, crowded] {
            let world = World::new(config);
            let mut client = world.server.client();
            world.begin(&mut client, "INCR n");
            client.stream.write_all("INCR n\r\n".repeat(1_000).as_bytes()).unwrap();
            assert!(client.hears_nothing());
            let done: u64 = String::from_utf8(world.get("n").unwrap()).unwrap().parse().unwrap();
            assert!((2..60).contains(&done), "{done}");
            world.gate.0.shut(false);
            for n in 1..=1_001 {
                assert_eq!(client.reply_text(), format!(":{n}"));
            }
        }
    }
}
