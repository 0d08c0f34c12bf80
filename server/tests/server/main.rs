//! Properties of commands that the differential test cannot compare with a real Redis; durability
//! and group commits over a device that waits or fails; the parser against another one.
#![allow(clippy::unwrap_used)] // tests, though not every helper is inside one

mod acl;
mod blocking;
mod dumps;
mod durability;
mod groups;
mod hash_expiry;
mod introspection;
mod kept_inputs;
mod killed;
mod loops;
mod memory;
mod monitor;
mod notices;
mod pubsub;
mod resp_parser;
mod running;
mod scripts;
mod steps;
mod streams;
mod tracking;
mod transactions;
mod values;

use running::Client;

/// Calls each line and compares its reply, with CR LF shown as a blank.
fn check(client: &mut Client, lines: &[(&str, &str)]) {
    for (line, reply) in lines {
        assert_eq!(client.call(line), *reply, "{line}");
    }
}
