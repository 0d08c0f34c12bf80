//! A command's code, in the form that fits what it works on.

use perdura_store::{Entry, Tx};

use super::call::{Call, Outcome};
use super::context::Context;
use super::keyspace::Keyspace;
use super::scripts::Scripted;
use super::spec::{Spec, flag};
use crate::resp::Args;

/// How a command is carried out. Data commands run the same alone and inside EXEC; a function may
/// be called again after everything it did was rolled back.
#[derive(Clone, Copy)]
pub(crate) enum Handler {
    /// Answers from one key's entry; outside EXEC without a transaction.
    Read(for<'r, 'c, 'o, 'e> fn(&'r mut Call<'c, 'o>, Option<&'r Entry<'e>>) -> Outcome),
    /// Answers from one field (argument 2) of one hash (argument 1).
    Field(for<'r, 'c, 'o> fn(&'r mut Call<'c, 'o>, Option<&'r [u8]>) -> Outcome),
    /// Reads and writes the keys of its arguments. Fails before its first change, or with
    /// [`CommandError::Tx`].
    Data(DataFn),
    /// Walks keys that its arguments do not name.
    Keyspace(for<'r, 'c, 'o, 's, 't> fn(&'r mut Call<'c, 'o>, &'r mut Keyspace<'s, 't>) -> Outcome),
    /// Works on client and server state, and on no keys from inside a transaction.
    Control(for<'r, 'c, 'a, 'o, 'x> fn(&'r mut Context<'c, 'a, 'o>, Args<'x>) -> Outcome),
    /// Carries out other commands: EXEC.
    Exec,
    /// Runs a script, which carries out other commands.
    Script(Scripted),
    /// Has no code: its subcommands have their own lines.
    Container,
}

/// The function of a command on data.
pub(crate) type DataFn = for<'r, 'c, 'o, 's> fn(&'r mut Call<'c, 'o>, &'r mut Tx<'s>) -> Outcome;

/// One line of the table: what is known of a command, and its code.
pub(crate) struct Command {
    pub spec: Spec,
    pub handler: Handler,
}

impl Command {
    /// Makes a line, and adds to its flags what the handler works on.
    pub const fn new(spec: Spec, handler: Handler) -> Self {
        let works_on = match handler {
            Handler::Control(_) | Handler::Exec => flag::STATE,
            Handler::Script(_) => flag::SCRIPT,
            Handler::Keyspace(_) => flag::WALKS,
            _ => 0,
        };
        Self { spec: Spec { flags: spec.flags | works_on, ..spec }, handler }
    }
}
