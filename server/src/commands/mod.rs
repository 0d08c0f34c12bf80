//! The commands: one table ([`table`]) with a function each, and one way to run them
//! ([`dispatch`]).

mod absent;
mod acl;
mod bitfield;
mod bits;
mod blocking;
mod blocking_pops;
mod call;
mod client;
mod connection;
mod context;
mod copying;
mod devices;
mod dispatch;
mod drives;
mod dump;
mod dump_stream;
mod error;
mod expiry;
pub(crate) mod facts;
mod figures;
mod functions;
mod geo;
mod geo_search;
mod handler;
mod hash_expiry;
mod hashes;
mod hyperloglog;
mod index;
mod info;
mod introspect;
mod keys;
mod keyspace;
mod latency;
mod lists;
mod memory;
mod migrate;
mod misses;
mod monitor;
mod null;
mod options;
mod pause;
mod perdura;
mod permit;
mod process;
mod pubsub;
mod room;
mod script_call;
mod scripts;
mod sections;
mod server;
mod sets;
mod sets_algebra;
mod settings;
mod sort;
mod sorted;
mod sorted_algebra;
mod sorted_range;
mod spec;
mod steps;
mod streams;
mod streams_claim;
mod streams_error;
mod streams_groups;
mod streams_ids;
mod streams_info;
mod streams_lag;
mod streams_read;
mod strings;
mod strings_lcs;
mod strings_set;
mod table;
mod tally;
mod tracking;
mod transactions;

use index::Index;

use crate::config::ServerConfig;

#[cfg(test)]
pub(crate) use blocking::before_noted;
pub(crate) use blocking::{serve_after_expiry, timeout_reply};
pub(crate) use context::Server;
pub(crate) use dispatch::{Flow, execute, may_write};
pub(crate) use dump::encode_entry;
pub(crate) use error::CommandError;
pub(crate) use functions::kept as kept_functions;
pub(crate) use info::info_for_look;
pub(crate) use migrate::Moving;
pub(crate) use monitor::end as end_monitor;
pub(crate) use perdura::end_import;
pub(crate) use permit::{heed_users, may_go_on_listening};
pub(crate) use pubsub::write_message;
pub(crate) use spec::{Spec, flag};
pub(crate) use tracking::{end as end_tracking, write_push};

/// Where to find the commands that a server of this configuration offers.
pub(crate) fn index_for(config: &ServerConfig) -> Index {
    Index::new(dispatch::table_for(config).iter().map(|command| &command.spec))
}
