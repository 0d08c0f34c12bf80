//! The errors of the commands on streams, in Redis's words.

use super::error::text;

/// Why a command on a stream was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StreamError {
    #[error("ERR Invalid stream ID specified as stream command argument")]
    Id,
    #[error("ERR The ID specified in XADD must be greater than 0-0")]
    IdZero,
    #[error("ERR The stream has exhausted the last possible ID, unable to add more items")]
    Exhausted,
    #[error("ERR The ID specified in XADD is equal or smaller than the target stream top item")]
    IdNotLast,
    #[error("ERR invalid start ID for the interval")]
    IntervalStart,
    #[error("ERR invalid end ID for the interval")]
    IntervalEnd,
    #[error("ERR syntax error, MAXLEN and MINID options at the same time are not compatible")]
    MaxLenAndMinId,
    #[error("ERR The MAXLEN argument must be >= 0.")]
    MaxLen,
    #[error("ERR The LIMIT argument must be >= 0.")]
    Limit,
    #[error("ERR syntax error, LIMIT cannot be used without specifying a trimming strategy")]
    LimitWithoutTrim,
    #[error("ERR syntax error, LIMIT cannot be used without the special ~ option")]
    LimitWithoutRough,
    #[error("ERR syntax error, XTRIM must be called with a trimming strategy")]
    TrimWithoutStrategy,
    #[error("ERR entries_added must be positive")]
    EntriesAdded,
    #[error("ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id")]
    SetBelowGivenDeleted,
    #[error("ERR The ID specified in XSETID is smaller than current max_deleted_entry_id")]
    SetBelowDeleted,
    #[error("ERR The ID specified in XSETID is smaller than the target stream top item")]
    SetBelowTop,
    #[error("ERR The entries_added specified in XSETID is smaller than the target stream length")]
    AddedBelowLength,
    #[error(
        "ERR Unbalanced '{command}' list of streams: for each stream key an ID or '{symbol}' must \
         be specified."
    )]
    Unbalanced { command: &'static str, symbol: char },
    #[error("ERR The {0} option is only supported by XREADGROUP. You called XREAD instead.")]
    OnlyReadGroup(&'static str),
    #[error("ERR Missing GROUP option for XREADGROUP")]
    MissingGroup,
    #[error(
        "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of \
         this consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID \
         would just return an empty result set."
    )]
    DollarInGroup,
    #[error(
        "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> \
         <consumer> option."
    )]
    NewInRead,
    #[error(
        "NOGROUP No such key '{key}' or consumer group '{group}' in XREADGROUP with GROUP option"
    )]
    NoGroupToRead { key: String, group: String },
    #[error("NOGROUP No such key '{key}' or consumer group '{group}'")]
    NoKeyOrGroup { key: String, group: String },
    #[error("NOGROUP No such consumer group '{group}' for key name '{key}'")]
    NoGroup { key: String, group: String },
    #[error("BUSYGROUP Consumer Group name already exists")]
    BusyGroup,
    #[error(
        "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to \
         use the MKSTREAM option to create an empty stream automatically."
    )]
    NoKey,
    #[error("ERR value for ENTRIESREAD must be positive or -1")]
    EntriesRead,
    #[error("ERR Invalid min-idle-time argument for {0}")]
    MinIdle(&'static str),
    #[error("ERR Invalid {0} option argument for XCLAIM")]
    ClaimOption(&'static str),
    #[error("ERR Unrecognized XCLAIM option '{0}'")]
    ClaimUnknown(String),
    #[error("ERR COUNT must be > 0")]
    Count,
}

impl StreamError {
    /// The error of a key without such a group.
    pub fn no_key_or_group(key: &[u8], group: &[u8]) -> Self {
        Self::NoKeyOrGroup { key: shown(key), group: shown(group) }
    }

    /// The error of a stream without such a group.
    pub fn no_group(key: &[u8], group: &[u8]) -> Self {
        Self::NoGroup { key: shown(key), group: shown(group) }
    }

    /// The error of XREADGROUP for a key without such a group.
    pub fn no_group_to_read(key: &[u8], group: &[u8]) -> Self {
        Self::NoGroupToRead { key: shown(key), group: shown(group) }
    }
}

/// A name as an error shows it: up to the first zero byte.
fn shown(name: &[u8]) -> String {
    text(name.split(|byte| *byte == 0).next().unwrap_or_default(), 1 << 10)
}
