//! Connections: how bytes arrive, how they leave, and how connections end; over each event queue.
#![allow(clippy::unwrap_used)] // tests, though not every helper is inside one

mod common;

mod epoll {
    fn config() -> ServerConfig {
        ServerConfig { events: perdura_server::EventQueue::Epoll, ..crate::common::config() }
    }

    include!("connections/cases.rs");
}

/// The ring, where the system has one for us.
mod uring {
    fn config() -> ServerConfig {
        ServerConfig { events: perdura_server::EventQueue::Auto, ..crate::common::config() }
    }

    include!("connections/cases.rs");
}
