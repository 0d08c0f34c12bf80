//! Commands: one table ([`table`]), one function each, one way to run them ([`dispatch`]).

mod client;
mod connection;
mod context;
mod dispatch;
mod error;
mod expiry;
mod figures;
mod hashes;
mod index;
mod info;
mod introspect;
mod keys;
mod keyspace;
mod null;
mod options;
mod perdura;
mod process;
mod sections;
mod server;
mod settings;
mod sorted;
mod sorted_algebra;
mod sorted_range;
mod spec;
mod strings;
mod strings_lcs;
mod strings_set;
mod table;
mod transactions;

use index::Index;

use crate::config::ServerConfig;

pub(crate) use context::Server;
pub(crate) use dispatch::{Flow, execute};
pub(crate) use error::CommandError;
pub(crate) use spec::{Handler, Spec};

/// The commands that a server offers: for a measurement without a store, those that need none.
pub(crate) fn index_for(config: &ServerConfig) -> Index {
    Index::new(if config.null_value_bytes.is_some() { null::TABLE } else { table::TABLE })
}
