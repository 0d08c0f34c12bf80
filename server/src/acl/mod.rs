//! Users: who may use which commands, keys and channels.
//!
//! All loops have one [`Users`], which is never changed: a change makes a new one and counts it. A
//! loop takes the new one at the beginning of its next turn, and each client then looks up its user
//! again with its next command. A client whose user may do everything costs one comparison a
//! command.

mod check;
mod file;
mod log;
mod selector;
mod user;
mod users;

pub(crate) use check::{Denied, Reason};
pub(crate) use file::{load, names_default, parse, save};
pub(crate) use log::{AclLog, Entry as LogEntry, Origin};
pub(crate) use selector::Selector;
pub(crate) use user::User;
pub(crate) use users::{DEFAULT, Users, is_name};

/// A mistake in a rule; `Display` is what Redis says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RuleError {
    #[error("Unknown command or category name in ACL")]
    Unknown,
    #[error("Syntax error")]
    Syntax,
    #[error(
        "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not \
         have any effect. Try 'resetkeys' to start with an empty list of patterns"
    )]
    AllKeys,
    #[error(
        "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does \
         not have any effect. Try 'resetchannels' to start with an empty list of channels"
    )]
    AllChannels,
    #[error("The password you are trying to remove from the user does not exist")]
    NoSuchPassword,
    #[error(
        "The password hash must be exactly 64 characters and contain only lowercase hexadecimal \
         characters"
    )]
    Hash,
    #[error("Allowing first-arg of a subcommand is not supported")]
    FirstArgument,
}
