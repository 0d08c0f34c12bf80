//! The errors that a command answers with; `Display` is the line on the wire, in Redis's words.

use std::borrow::Cow;

use perdura_store::{StoreError, TxError, Unreadable};

use super::streams_error::StreamError;
use crate::resp::Args;

/// Why a command was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    /// The store's transaction has failed: everything it did is rolled back.
    #[error("{}", tx_text(.0))]
    Tx(TxError),
    #[error("{}", store_text(.0))]
    Store(StoreError),
    #[error("EXECABORT Transaction discarded because of: {}", store_text(.0))]
    ExecStore(StoreError),
    #[error("{}", unreadable_text(.0))]
    Unreadable(#[from] Unreadable),
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error("WRONGTYPE Operation against a key holding the wrong kind of value")]
    WrongType,
    #[error("ERR timeout is not a float or out of range")]
    TimeoutNotFloat,
    #[error("ERR timeout is out of range")]
    TimeoutRange,
    #[error("UNBLOCKED client unblocked via CLIENT UNBLOCK")]
    Unblocked,
    #[error("ERR syntax error")]
    Syntax,
    #[error("ERR value is not an integer or out of range")]
    NotInteger,
    #[error("ERR value is out of range, value must between {min} and {max}")]
    OutOfBounds { min: i64, max: i64 },
    #[error("ERR value is out of range")]
    OutOfRange,
    #[error("ERR value is not a valid float")]
    NotFloat,
    #[error("ERR hash value is not an integer")]
    HashNotInteger,
    #[error("ERR hash value is not a float")]
    HashNotFloat,
    #[error("ERR increment or decrement would overflow")]
    Overflow,
    #[error("ERR decrement would overflow")]
    DecrementOverflow,
    #[error("ERR increment would produce NaN or Infinity")]
    NotFinite,
    #[error("ERR value is NaN or Infinity")]
    IncrementNotFinite,
    #[error("ERR offset is out of range")]
    Offset,
    #[error("ERR bit offset is not an integer or out of range")]
    BitOffset,
    #[error("ERR bit is not an integer or out of range")]
    Bit,
    #[error("ERR The bit argument must be 1 or 0.")]
    BitArgument,
    #[error("ERR BITOP NOT must be called with a single source key.")]
    BitOpNot,
    #[error(
        "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but \
         i64 is."
    )]
    BitfieldType,
    #[error("ERR Invalid OVERFLOW type specified")]
    BitfieldOverflow,
    #[error("ERR BITFIELD_RO only supports the GET subcommand")]
    BitfieldReadOnly,
    #[error("ERR unsupported unit provided. please use M, KM, FT, MI")]
    GeoUnit,
    #[error("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}")]
    GeoPlace { longitude: f64, latitude: f64 },
    #[error("ERR could not decode requested zset member")]
    GeoMember,
    #[error("ERR need numeric radius")]
    GeoRadius,
    #[error("ERR radius cannot be negative")]
    GeoRadiusNegative,
    #[error("ERR need numeric width")]
    GeoWidth,
    #[error("ERR need numeric height")]
    GeoHeight,
    #[error("ERR height or width cannot be negative")]
    GeoBoxNegative,
    #[error("ERR COUNT must be > 0")]
    GeoCount,
    #[error("ERR the ANY argument requires COUNT argument")]
    GeoAny,
    #[error("ERR {0} is not compatible with WITHDIST, WITHHASH and WITHCOORD options")]
    GeoStoreWith(&'static str),
    #[error("ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for {0}")]
    GeoFrom(String),
    #[error("ERR exactly one of BYRADIUS and BYBOX can be specified for {0}")]
    GeoBy(String),
    #[error("WRONGTYPE Key is not a valid HyperLogLog string value.")]
    NotHll,
    #[error("INVALIDOBJ Corrupted HLL object detected")]
    HllCorrupt,
    #[error("TESTFAILED {0}")]
    SelfTest(String),
    #[error("ERR HLL encoding is not sparse")]
    HllNotSparse,
    #[error("ERR The specified key does not exist")]
    NoSpecifiedKey,
    #[error("ERR Unknown PFDEBUG subcommand '{0}'")]
    PfdebugUnknown(String),
    #[error("ERR Wrong number of arguments for the '{0}' subcommand")]
    PfdebugArity(String),
    #[error("ERR string exceeds maximum allowed size (proto-max-bulk-len)")]
    StringTooLong,
    #[error("ERR invalid expire time in '{0}' command")]
    ExpireTime(&'static str),
    #[error("ERR invalid expire time, must be >= 0")]
    FieldExpireNegative,
    #[error("ERR Mandatory argument FIELDS is missing or not at the right position")]
    FieldsMissing,
    #[error("ERR Parameter `numFields` should be greater than 0")]
    FieldsNotAboveZero,
    #[error("ERR Number of fields must be a positive integer")]
    FieldsNotPositive,
    #[error("ERR The `numfields` parameter must match the number of arguments")]
    FieldsNumber,
    #[error("ERR The specified keys must contain string values")]
    LcsNotStrings,
    #[error("ERR If you want both the length and indexes, please just use IDX.")]
    LcsBoth,
    #[error("ERR String too long for LCS")]
    LcsTooLong,
    #[error("ERR XX and NX options at the same time are not compatible")]
    AddNxXx,
    #[error("ERR GT, LT, and/or NX options at the same time are not compatible")]
    AddGtLtNx,
    #[error("ERR INCR option supports a single increment-element pair")]
    AddIncr,
    #[error("ERR resulting score is not a number (NaN)")]
    ScoreNan,
    #[error("ERR min or max is not a float")]
    ScoreRange,
    #[error("ERR min or max not valid string range item")]
    LexRange,
    #[error(
        "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX"
    )]
    LimitByRank,
    #[error("ERR syntax error, WITHSCORES not supported in combination with BYLEX")]
    ScoresByLex,
    #[error("ERR value is out of range, must be positive")]
    NotPositive,
    #[error("ERR numkeys should be greater than 0")]
    NumKeys,
    #[error("ERR Number of keys can't be greater than number of args")]
    NumKeysArgs,
    #[error("ERR count should be greater than 0")]
    PopCount,
    #[error("ERR at least 1 input key is needed for '{0}' command")]
    InputKeys(&'static str),
    #[error("ERR weight value is not a float")]
    Weight,
    #[error(
        "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use \
         negative to start from the end of the list"
    )]
    RankZero,
    #[error("ERR COUNT can't be negative")]
    CountNegative,
    #[error("ERR MAXLEN can't be negative")]
    MaxLenNegative,
    #[error("ERR index out of range")]
    IndexOutOfRange,
    #[error("ERR LIMIT can't be negative")]
    LimitNegative,
    #[error("ERR no such key")]
    NoSuchKey,
    #[error("ERR invalid cursor")]
    Cursor,
    #[error("ERR DB index is out of range")]
    DbIndex,
    #[error("ERR invalid first DB index")]
    SwapFirst,
    #[error("ERR invalid second DB index")]
    SwapSecond,
    #[error("ERR source and destination objects are the same")]
    SameObject,
    #[error("ERR NX and XX, GT or LT options at the same time are not compatible")]
    ExpireNx,
    #[error("ERR GT and LT options at the same time are not compatible")]
    ExpireGtLt,
    #[error("ERR Unsupported option {0}")]
    ExpireOption(String),
    #[error("ERR wrong number of arguments for '{0}' command")]
    Arity(&'static str),
    #[error("ERR unknown command '{name}', with args beginning with: {args}")]
    UnknownCommand { name: String, args: String },
    #[error("ERR unknown subcommand '{sub}'. Try {} HELP.", container.to_ascii_uppercase())]
    UnknownSubcommand { container: &'static str, sub: String },
    #[error(
        "ERR unknown subcommand or wrong number of arguments for '{sub}'. Try {} HELP.",
        container.to_ascii_uppercase()
    )]
    Subcommand { container: String, sub: String },
    /// What Redis says to a client in the state of MONITOR, which it counts as a replica.
    #[error("ERR Replica can't interact with the keyspace")]
    ReplicaMayNot,
    #[error("NOPERM {0}")]
    NoPermission(String),
    #[error(
        "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC \
         call. This command is no longer allowed for the following reason: {0}"
    )]
    NoPermissionLater(&'static str),
    #[error("ERR {0} option of SORT denied due to insufficient ACL permissions.")]
    SortNeedsAllKeys(&'static str),
    #[error("ERR {0}")]
    Acl(String),
    #[error("NOAUTH Authentication required.")]
    NoAuth,
    #[error(
        "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO \
         <proto> AUTH <user> <pass> option can be used to authenticate the client and select the \
          RESP protocol version at the same time"
    )]
    HelloNoAuth,
    #[error("WRONGPASS invalid username-password pair or user is disabled.")]
    WrongPass,
    #[error(
        "ERR AUTH <password> called without any password configured for the default user. Are \
         you sure your configuration is correct?"
    )]
    NoPassword,
    #[error("NOPROTO unsupported protocol version")]
    NoProto,
    #[error("ERR Protocol version is not an integer or out of range")]
    ProtoNotInteger,
    #[error("ERR Syntax error in HELLO option '{0}'")]
    HelloOption(String),
    #[error("ERR MULTI calls can not be nested")]
    MultiNested,
    #[error("ERR EXEC without MULTI")]
    ExecWithoutMulti,
    #[error("ERR DISCARD without MULTI")]
    DiscardWithoutMulti,
    #[error("ERR WATCH inside MULTI is not allowed")]
    WatchInMulti,
    #[error("EXECABORT Transaction discarded because of previous errors.")]
    ExecAbort,
    #[error("EXECABORT Transaction discarded because of: {}", without_code(.0))]
    ExecRefused(Box<CommandError>),
    #[error(
        "ERR Can't execute '{0}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are \
         allowed in this context"
    )]
    Subscribed(&'static str),
    #[error("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client")]
    SubscribedShard,
    #[error("ERR Command not allowed inside a transaction")]
    NotInMulti,
    #[error("ERR the transaction's commands are larger than {0} bytes")]
    MultiTooLarge(usize),
    #[error("MISCONF the log on the device has failed and accepts no more writes: {0}")]
    Latched(String),
    #[error(
        "MISCONF this write is done in memory but could not be made durable, and no more are \
         accepted: {0}"
    )]
    NotCommitted(String),
    #[error(
        "MISCONF the power is low, or cannot be seen, so everything has been saved and no write is \
         accepted until it is back: {0}"
    )]
    PowerLow(String),
    #[error(
        "MISCONF the backup is further behind than --ship-lag-max, and --ship-lag-action refuse is \
         set: no write is accepted until it has caught up (INFO backup says what is wrong)"
    )]
    BackupLate,
    #[error("ERR the guard says how much may be dirty: change its tenants file, or detach")]
    GuardDecides,
    #[error("ERR the power asks for less than the promise until it is back: {0}")]
    PowerAsksForLess(String),
    #[error("ERR {0}")]
    Budget(String),
    #[error("ERR Client names cannot contain spaces, newlines or special characters.")]
    ClientName,
    #[error("ERR {0} cannot contain spaces, newlines or special characters.")]
    ClientInfo(&'static str),
    #[error("ERR Unrecognized option '{0}'")]
    ClientInfoOption(String),
    #[error("ERR No such client")]
    NoSuchClient,
    #[error("ERR No such user '{0}'")]
    NoSuchUser(String),
    #[error("ERR Invalid client ID")]
    ClientId,
    #[error("ERR client-id should be greater than 0")]
    ClientIdZero,
    #[error("ERR Unknown client type '{0}'")]
    ClientType(String),
    #[error("ERR timeout is not an integer or out of range")]
    TimeoutNotInteger,
    #[error("ERR timeout is negative")]
    TimeoutNegative,
    #[error("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")]
    UnblockReason,
    #[error("ERR CLIENT PAUSE mode must be WRITE or ALL")]
    PauseMode,
    #[error("ERR Unknown option or number of arguments for CONFIG SET - '{0}'")]
    ConfigUnknown(String),
    #[error("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}")]
    ConfigSet { name: String, why: Cow<'static, str> },
    #[error("ERR The server is running without a config file")]
    NoConfigFile,
    #[error("ERR Invalid command specified")]
    InvalidCommand,
    #[error("ERR The command has no key arguments")]
    NoKeyArguments,
    #[error("ERR Invalid arguments specified for command")]
    InvalidKeys,
    #[error("ERR Invalid number of arguments specified for command")]
    InvalidArity,
    #[error(
        "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note \
         that when switching between policies at runtime LRU and LFU data will take some time to \
          adjust."
    )]
    NoLfu,
    #[error(
        "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when \
         switching between policies at runtime LRU and LFU data will take some time to adjust."
    )]
    NoIdleTime,
    #[error("OOM command not allowed when used memory > 'maxmemory'.")]
    MemoryFull,
    #[error(
        "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", \
         you can run it from a local connection, otherwise you need to set this option in the \
          configuration file, and then restart the server."
    )]
    DebugDisabled,
    #[error(
        "ERR SHUTDOWN NOSAVE is refused: a stop of this server always flushes; kill the process \
         to test a crash"
    )]
    ShutdownNoSave,
    #[error(
        "ERR this server cannot be a replica; `perdura import redis://HOST:PORT` follows another \
         server until it is promoted"
    )]
    NoReplication,
    #[error("ERR No shutdown in progress.")]
    NoShutdown,
    #[error("ERR Background save already in progress")]
    SaveInProgress,
    #[error("ERR checkpoint failed: {0}")]
    Checkpoint(String),
    #[error("ERR the server was started without --device")]
    NoDevices,
    #[error("ERR {0}")]
    Device(String),
    #[error("ERR count should be greater than or equal to -1")]
    SlowlogCount,
    #[error("BUSYKEY Target key name already exists.")]
    BusyKey,
    #[error("ERR Invalid TTL value, must be >= 0")]
    RestoreTtl,
    #[error("ERR Invalid IDLETIME value, must be >= 0")]
    RestoreIdleTime,
    #[error("ERR Invalid FREQ value, must be >= 0 and <= 255")]
    RestoreFreq,
    #[error("ERR DUMP payload version or checksum are wrong")]
    PayloadFoot,
    #[error("ERR Bad data format")]
    PayloadData,
    #[error("ERR the value takes more memory than there is, or more than {0} bytes")]
    PayloadTooLarge(u64),
    #[error("ERR the values are more than {0} bytes: name fewer keys at once")]
    MigrateTooLarge(usize),
    #[error("ERR When using MIGRATE KEYS option, the key argument must be set to the empty string")]
    MigrateKeys,
    #[error("IOERR error or timeout {doing} ({why})")]
    MigrateIo { doing: &'static str, why: String },
    #[error("ERR Target instance replied with error: {0}")]
    MigrateRefused(String),
    #[error(
        "TRYAGAIN a key was written again and again while it was moved: it is in both servers, and \
         this one has the newer value"
    )]
    MigrateWritten,
    #[error("BUSY {0} clients of this loop are moving keys already: try again")]
    MigrateBusy(usize),
    #[error("ERR One or more scores can't be converted into double")]
    SortScore,
    #[error("ERR a dump is being made for PERDURA EXPORT already")]
    ExportBusy,
    #[error("ERR there is no dump: PERDURA EXPORT BEGIN makes one")]
    NoExport,
    #[error("ERR the dump cannot be read: {0}")]
    Export(String),
    #[error("ERR so many copies are being sent that no other is made: try again")]
    CopiesBusy,
    #[error(
        "NOMASTERLINK this server sends copies and no changes: the copy that this replica has is \
         all there is, and REPLICAOF NO ONE makes it a master"
    )]
    NoChanges,
    #[error("ERR PSYNC FAILOVER can't be sent to a master.")]
    FailoverOfMaster,
    #[error("ERR Unrecognized REPLCONF option: {0}")]
    ReplconfOption(String),
    #[error("ERR Unsupported rdb-filter-only option: {0}")]
    CopyFilter(String),
    /// Never sent: the command goes on later, and the client's next ones wait for that.
    #[error("ERR the command waits")]
    Waits,
    #[error("ERR Number of keys can't be negative")]
    NumKeysNegative,
    #[error("ERR Bad number of keys provided")]
    BadKeyCount,
    #[error("NOSCRIPT No matching script. Please use EVAL.")]
    NoScript,
    /// The whole line.
    #[error("{0}")]
    Script(String),
    #[error("ERR {0}")]
    ScriptStopped(&'static str),
    #[error("ERR {0} command is not allowed with BLOCK option from scripts")]
    BlockInScript(String),
    #[error("ERR Can not execute a script with write flag using *_ro command.")]
    ScriptWrites,
    #[error(
        "ERR the scripts that were loaded take all the memory that is for them: give SCRIPT FLUSH"
    )]
    ScriptCacheFull,
    #[error("ERR no memory for scripts: {0}")]
    NoEngine(String),
    #[error("ERR SCRIPT FLUSH only support SYNC|ASYNC option")]
    ScriptFlushMode,
    #[error("ERR Use SCRIPT DEBUG YES/SYNC/NO")]
    ScriptDebugMode,
    #[error(
        "OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'"
    )]
    ScriptMemoryFull,
    #[error("ERR the debugger of scripts is not offered: use redis.log")]
    NoDebugger,
    #[error("NOTBUSY No scripts in execution right now.")]
    NotBusy,
    #[error("BUSY Redis is busy running a script. You can only call {0} KILL or SHUTDOWN NOSAVE.")]
    BusyScript(&'static str),
    #[error("ERR Function not found")]
    NoFunction,
    #[error("ERR Library not found")]
    NoLibrary,
    #[error("ERR library name argument was not given")]
    NoLibraryName,
    #[error("ERR Unknown argument {0}")]
    FunctionArgument(String),
    #[error("ERR Unknown option given: {0}")]
    FunctionOption(String),
    #[error("ERR FUNCTION FLUSH only supports SYNC|ASYNC option")]
    FunctionFlushMode,
    #[error("ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.")]
    RestorePolicy,
    #[error("ERR {0}")]
    Library(String),
}

impl CommandError {
    /// The error of a subcommand whose own code finds too many arguments.
    pub fn subcommand(args: Args<'_>) -> Self {
        Self::Subcommand { container: text(args.get(0), 128), sub: text(args.get(1), 128) }
    }
}

impl From<TxError> for CommandError {
    fn from(error: TxError) -> Self {
        match error {
            TxError::WrongType { .. } => Self::WrongType,
            other => Self::Tx(other),
        }
    }
}

impl From<StoreError> for CommandError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::WrongType { .. } => Self::WrongType,
            other => Self::Store(other),
        }
    }
}

/// The text of an error, without the code that says no more than that it is one.
fn without_code(error: &CommandError) -> String {
    let text = error.to_string();
    text.strip_prefix("ERR ").map(str::to_owned).unwrap_or(text)
}

fn store_text(error: &StoreError) -> String {
    match error {
        StoreError::OutOfMemory { .. } => {
            format!("OOM command not allowed when used memory > 'maxmemory'. {error}")
        }
        StoreError::NotDurable { .. } => format!("MISCONF {error}"),
        StoreError::Far(_) => format!("IOERR {error}"),
        other => format!("ERR {other}"),
    }
}

fn unreadable_text(error: &Unreadable) -> String {
    match error {
        Unreadable::Far(_) => format!("IOERR {error}"),
        other => format!("ERR {other}"),
    }
}

fn tx_text(error: &TxError) -> String {
    format!("ERR {error}")
}

/// At most `max` bytes as text.
pub(super) fn text(bytes: &[u8], max: usize) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(max)]).into_owned()
}
