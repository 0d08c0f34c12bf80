//! What a run of clients may show.

use std::io;

use perdura_server::{ServeError, StartError};
use thiserror::Error;

/// Why a run has failed.
#[derive(Debug, Error)]
pub enum Broken {
    /// The clients of a round heard, or did not hear, what they should.
    #[error("{place}: {what}\n{replay}")]
    Round {
        /// The seed and the round.
        place: String,
        /// What was wrong there.
        what: Wrong,
        /// The command that runs the seed again.
        replay: String,
    },
    /// A client heard what it does not understand.
    #[error("client {client}: {command}: {heard:?} is no answer to that")]
    Answer {
        /// The client's number.
        client: usize,
        /// What it had sent.
        command: String,
        /// What it heard.
        heard: String,
    },
    /// The store does not open.
    #[error("the store does not open: {0}")]
    Open(String),
    /// The server does not start.
    #[error("the server does not start: {0}")]
    Start(#[from] StartError),
    /// The server has failed.
    #[error("the server has failed: {0}")]
    Serve(#[from] ServeError),
    /// The system refuses a socket or a thread.
    #[error("the system refuses: {0}")]
    System(#[from] io::Error),
}

/// What is wrong in a round of clients.
#[derive(Debug, Error)]
pub enum Wrong {
    /// No order of the commands explains the answers.
    #[error(
        "no order of these commands explains their answers; the longest that was found leaves \
         those with a mark (!) out:\n{history}"
    )]
    NotLinearizable {
        /// The commands, a line each.
        history: String,
    },
    /// The search for an order was given up.
    #[error("no order of these commands was found in {steps} steps:\n{history}")]
    Undecided {
        /// Steps of the search.
        steps: u64,
        /// The commands, a line each.
        history: String,
    },
    /// A client waits for elements though there are some, and nothing else happens.
    #[error("client {client} waits at {command}, and {found} is there")]
    Missed {
        /// The client's number.
        client: usize,
        /// The command that waits.
        command: String,
        /// The elements that it waits for.
        found: String,
    },
    /// The clients do not come to rest.
    #[error("of {clients} clients, {at_rest} have ended or wait after 20 s")]
    NoRest {
        /// Clients in all.
        clients: usize,
        /// Those that have ended, or wait.
        at_rest: usize,
    },
}
