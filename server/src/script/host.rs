//! What a script needs of the server, and what the functions of one Lua state share.

use std::cell::{Cell, RefCell};

use super::json::JsonOptions;
use super::library::Registered;
use super::names::Names;
use super::random::Rand48;
use super::words::Words;
use crate::sys::Lent;

/// The server, as a script sees it.
pub(crate) trait Host {
    /// Carries out a command and appends its reply, in RESP2 or RESP3, to `reply`.
    ///
    /// # Errors
    /// The command cannot be given from this script, or the attempt is over.
    fn call(&mut self, words: &Words, resp3: bool, reply: &mut Vec<u8>) -> Result<(), CallError>;

    /// Why the script has to end now, if it has to. Asked every few thousand instructions.
    fn interrupted(&mut self) -> Option<Stop>;

    /// Writes a line to the server's log. `level` is 0 (debug) to 3 (warning).
    fn log(&mut self, level: u8, line: &[u8]);

    /// Whether the client may give a command; `None` if there is no such command.
    fn may_call(&mut self, words: &Words) -> Option<bool>;
}

/// Why a command of a script was not carried out.
#[derive(Debug)]
pub(crate) enum CallError {
    /// The script may go on with this error, which begins with its code.
    Refused(String),
    /// The script's attempt is over, and the host knows why.
    Halted,
}

/// Why a script ended before its own end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The host has ended the attempt.
    Halted,
    /// The script ran longer than it may.
    TooLong,
    /// SCRIPT KILL or FUNCTION KILL asked for it.
    Killed,
    /// The script needed more memory than it may.
    Memory,
    /// The server ends.
    Ending,
}

/// What the functions that scripts call share.
pub(crate) struct State {
    pub host: Lent,
    pub names: Names,
    /// Why the script that runs is over.
    stop: Cell<Option<Stop>>,
    /// The value of an error that Rust has raised and nobody has caught yet.
    pub raised: RefCell<Option<mlua::Value>>,
    /// Whether replies of commands are converted from RESP3.
    pub resp3: Cell<bool>,
    pub random: RefCell<Rand48>,
    pub json: RefCell<JsonOptions>,
    /// The arguments of the command that is being given; kept for the next one.
    pub words: RefCell<Words>,
    /// The reply of the command that was given last; kept for the next one.
    pub reply: RefCell<Vec<u8>>,
    /// What the library that is being loaded has registered; `None` while none is loaded.
    pub registering: RefCell<Option<Vec<Registered>>>,
    /// Bytes that a state may use.
    pub memory_max: Cell<usize>,
}

impl State {
    pub fn new(names: Names) -> Self {
        Self {
            host: Lent::default(),
            names,
            stop: Cell::default(),
            raised: RefCell::default(),
            resp3: Cell::default(),
            random: RefCell::default(),
            json: RefCell::default(),
            words: RefCell::default(),
            reply: RefCell::default(),
            registering: RefCell::default(),
            memory_max: Cell::default(),
        }
    }

    /// Begins a script that draws these numbers.
    pub fn begin(&self, random: Rand48) {
        self.stop.set(None);
        self.raised.replace(None);
        self.resp3.set(false);
        self.random.replace(random);
        self.json.replace(JsonOptions::default());
    }

    /// Why the script is over, if it is.
    pub fn stopped(&self) -> Option<Stop> {
        self.stop.get()
    }

    /// Ends the script. The first reason counts.
    pub fn stop(&self, why: Stop) {
        if self.stop.get().is_none() {
            self.stop.set(Some(why));
        }
    }

    /// Asks the host whether the script may go on. True: the script is over.
    pub fn is_over(&self) -> bool {
        if self.stop.get().is_none()
            && let Some(Some(why)) = self.host.with(|host| host.interrupted())
        {
            self.stop(why);
        }
        self.stop.get().is_some()
    }
}
