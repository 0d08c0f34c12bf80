//! Properties of commands that the differential test cannot compare with a real Redis.
#![allow(clippy::unwrap_used)] // tests, though not every helper is inside one

mod introspection;
#[path = "../running/mod.rs"]
mod running;
mod transactions;
mod values;

use running::Client;

/// Calls each line and compares its reply, with CR LF shown as a blank.
fn check(client: &mut Client, lines: &[(&str, &str)]) {
    for (line, reply) in lines {
        assert_eq!(client.call(line), *reply, "{line}");
    }
}
