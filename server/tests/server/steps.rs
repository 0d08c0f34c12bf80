//! Commands that change more than the budget has room for: they go on in steps, and are refused
//! inside EXEC.

use std::sync::Arc;

use perdura_media::{Clock, RealClock, SimDevice};
use perdura_region::{Config, Region};
use perdura_store::{Heap, Store, StoreOptions};

use crate::check;
use crate::running::{Client, Opened, Running, config, start_with};

const ELEMENTS: u32 = 20_000;

/// A server whose budget has room for some hundred elements.
fn server_with_small_budget() -> Running {
    let clock: Arc<dyn Clock> = Arc::new(RealClock);
    let budget_bytes = 256 << 10;
    let settings = Config { lanes: Some(3), ..Config::new(64 << 20, budget_bytes) };
    let device = Arc::new(SimDevice::new(0, 1));
    let region = Region::open(device, Arc::clone(&clock), settings).unwrap();
    let heap = Heap::open(region).unwrap();
    let store = Store::open(heap, Arc::clone(&clock), StoreOptions::default()).unwrap();
    start_with(config(), Opened { store: Arc::new(store), clock })
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
