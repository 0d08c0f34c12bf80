//! A command's code, in the form that fits what it works on.

use perdura_store::{Entry, Place, Store, Tx};

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
    /// Works as [`Handler::Data`] does, and outside EXEC tries the first function before.
    InPlace(InPlaceFn, DataFn),
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

/// Carries out a command outside of EXEC, without a transaction, if it changes one place of a value
/// that is there. Returns whether it has changed anything; `None` if it has neither changed nor
/// answered anything, because there is more to do.
pub(crate) type InPlaceFn = for<'r, 'c, 'o> fn(&'r mut Call<'c, 'o>, &Store, Place) -> Option<bool>;

/// Which commands are worth a try in place: after one in vain, some calls do without.
#[derive(Debug)]
pub(crate) struct InPlaceTries(Vec<Tries>);

#[derive(Debug, Clone, Copy, Default)]
struct Tries {
    /// Calls that do without a try before the next one.
    left: u8,
    /// Calls that did without before the last try, if that was in vain.
    before: u8,
}

/// Most calls without a try between two in vain.
const CALLS_WITHOUT_MAX: u8 = 7;

impl InPlaceTries {
    pub fn new(commands: usize) -> Self {
        Self(vec![Tries::default(); commands])
    }

    /// Whether this call of the command in a row of the table is to try.
    pub fn is_due(&mut self, row: usize) -> bool {
        let tries = &mut self.0[row];
        let is_due = tries.left == 0;
        tries.left = tries.left.saturating_sub(1);
        is_due
    }

    /// Notes how a try has ended. More and more calls do without while all are in vain.
    pub fn note(&mut self, row: usize, was_done: bool) {
        let tries = &mut self.0[row];
        let left = if was_done { 0 } else { (2 * tries.before + 1).min(CALLS_WITHOUT_MAX) };
        *tries = Tries { left, before: left };
    }
}

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

    /// The function of a command on data.
    pub fn data(&self) -> Option<DataFn> {
        match self.handler {
            Handler::Data(data) | Handler::InPlace(_, data) => Some(data),
            _ => None,
        }
    }
}
