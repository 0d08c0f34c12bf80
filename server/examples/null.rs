//! The server without a store: parses, answers GET with a constant and SET with OK. What `perdura
//! serve` costs beside it is the store's.
//!
//! `cargo run --release -p perdura-server --example null -- PORT VALUE_BYTES [epoll|uring]`

use std::sync::Arc;

use perdura_media::sim::SimDevice;
use perdura_media::{Clock, RealClock};
use perdura_region::{Config, Region};
use perdura_server::{EventQueue, Listener, ServerConfig, StopFlag, run};
use perdura_store::{Heap, Store, StoreOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [port, value_bytes, events @ ..] = &words[..] else {
        return Err("expected: PORT VALUE_BYTES [epoll|uring]".into());
    };
    let config = ServerConfig {
        bind: vec![format!("127.0.0.1:{port}").parse()?],
        events: match events {
            [word] if word == "epoll" => EventQueue::Epoll,
            [word] if word == "uring" => EventQueue::Uring,
            _ => EventQueue::Auto,
        },
        null_value_bytes: Some(value_bytes.parse()?),
        ..ServerConfig::default()
    };
    let clock: Arc<dyn Clock> = Arc::new(RealClock);
    let device = Arc::new(SimDevice::new(0, 1));
    let region = Region::open(device, Arc::clone(&clock), Config::new(64 << 20, 16 << 20))?;
    let store = Store::open(Heap::open(region)?, Arc::clone(&clock), StoreOptions::default())?;
    run(Listener::bind(&config)?, &store, &config, &*clock, &StopFlag::new()?)?;
    Ok(())
}
