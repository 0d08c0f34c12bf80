//! Connections, with each event queue: how bytes arrive, how they leave, and how connections end.
#![allow(clippy::unwrap_used)] // tests, though not every helper is inside one

#[path = "server/running/mod.rs"]
mod running;

mod epoll {
    fn config() -> ServerConfig {
        ServerConfig { events: perdura_server::EventQueue::Epoll, ..crate::running::config() }
    }

    include!("connections/cases.rs");

    mod copies {
        include!("connections/copies.rs");
    }

    mod tls {
        include!("connections/tls.rs");
    }
}

/// The ring, where the system allows one.
mod uring {
    fn config() -> ServerConfig {
        ServerConfig { events: perdura_server::EventQueue::Auto, ..crate::running::config() }
    }

    include!("connections/cases.rs");

    mod copies {
        include!("connections/copies.rs");
    }

    mod tls {
        include!("connections/tls.rs");
    }
}
