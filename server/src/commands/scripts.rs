//! EVAL, EVALSHA, FCALL and SCRIPT.
//!
//! A script is one store transaction over the keys that it names: all of it happens or nothing
//! does, also after a crash. Where it uses a key that it has not named, or what the whole store is
//! needed for, its attempt is rolled back and made again with every shard held. A script that fails
//! by its own mistake keeps what it had written, as in Redis; one that is stopped, because of the
//! time, its memory, SCRIPT KILL or the store, leaves nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use perdura_store::{Access, Key, Tx, TxError};

use super::call::Outcome;
use super::context::{Context, Server};
use super::dispatch::table_for;
use super::error::CommandError;
use super::functions::load_all;
use super::monitor;
use super::options::is;
use super::script_call::{Caller, Halt};
use crate::number::parse_i64;
use crate::resp::Args;
use crate::script::{Ended, Engine, Flags, Input, Libraries, Sha, Stop};
use crate::script::{flags_of_code, hex, parse_sha, sha_of};
use crate::shared::{Room, Running};

/// What a command runs, and whether it may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scripted {
    what: What,
    read_only: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// A script's text.
    Text,
    /// A script by its digest.
    Digest,
    /// A function of a library.
    Function,
}

pub(super) const EVAL: Scripted = Scripted { what: What::Text, read_only: false };
pub(super) const EVAL_RO: Scripted = Scripted { what: What::Text, read_only: true };
pub(super) const EVALSHA: Scripted = Scripted { what: What::Digest, read_only: false };
pub(super) const EVALSHA_RO: Scripted = Scripted { what: What::Digest, read_only: true };
pub(super) const FCALL: Scripted = Scripted { what: What::Function, read_only: false };
pub(super) const FCALL_RO: Scripted = Scripted { what: What::Function, read_only: true };

/// The scripts of one loop.
#[derive(Default)]
pub(crate) struct Scripts {
    /// The Lua state, made when it is first needed.
    engine: Option<Box<Engine>>,
    flushes: u64,
    changes: u64,
    libraries: Arc<Libraries>,
    /// Transactions with scripts that the loop has begun. All attempts of one have its number, so
    /// that SCRIPT KILL ends it whichever attempt runs.
    transactions: u64,
    /// Why the transaction that was tried last has to be tried again, or has ended.
    need: Option<Need>,
    /// Whether the transaction holds every shard.
    holds_all: bool,
    /// Whether the facts about the store are those of before the transaction.
    has_facts: bool,
    /// Whether a script has written.
    pub(super) wrote: bool,
    /// Commands that scripts have given in the transaction: their rows and how often; and bytes
    /// that were written.
    pub(super) calls: Vec<(u16, u64)>,
    pub(super) user_bytes: u64,
    /// Lines about these commands, for those who watch.
    pub(super) lines: String,
}

/// Why a script's transaction came to no end of its own.
#[derive(Debug)]
enum Need {
    All,
    Facts,
    Stopped(Stop),
}

/// What is to be done after a transaction with scripts.
#[derive(Debug)]
pub(super) enum Relieved {
    /// Nothing: its result counts.
    No,
    /// It is tried again with every shard held.
    NeedsAll,
    /// It is tried again.
    Again,
    /// It has ended, for this reason.
    Over(&'static str),
}

impl Scripts {
    /// Gives a number to a transaction that may run scripts.
    pub fn count_transaction(&mut self) {
        self.transactions += 1;
    }

    /// Begins trying a transaction that may run scripts.
    pub fn begin_transaction(&mut self, holds_all: bool) {
        self.holds_all = holds_all;
        self.need = None;
    }

    /// Forgets what scripts have done in an attempt that was rolled back.
    pub fn begin_attempt(&mut self) {
        self.wrote = false;
        self.calls.clear();
        self.user_bytes = 0;
        self.lines.clear();
    }

    /// Whether a script has written since the last call.
    pub fn take_wrote(&mut self) -> bool {
        std::mem::take(&mut self.wrote)
    }
}

/// Looks at why a transaction has ended, and does what a new attempt needs.
pub(super) fn relieve(ctx: &mut Context<'_, '_, '_>) -> Relieved {
    let scripts = &mut ctx.server.scripts;
    match scripts.need.take() {
        None => {
            scripts.has_facts = false;
            settle(ctx.server);
            Relieved::No
        }
        Some(Need::All) => Relieved::NeedsAll,
        Some(Need::Facts) => {
            ctx.server.refresh_facts();
            ctx.server.scripts.has_facts = true;
            Relieved::Again
        }
        Some(Need::Stopped(stop)) => {
            scripts.has_facts = false;
            scripts.begin_attempt();
            Relieved::Over(stopped_text(stop))
        }
    }
}

/// Counts what the scripts of a transaction have done, now that it is over.
fn settle(server: &mut Server<'_>) {
    let stats = server.stats;
    for (row, calls) in server.scripts.calls.drain(..) {
        stats.by_command[usize::from(row)].calls.add(calls);
    }
    server.own.user_bytes.add(std::mem::take(&mut server.scripts.user_bytes));
    let lines = std::mem::take(&mut server.scripts.lines);
    monitor::show_lines(server, lines.as_bytes());
}

/// The reason why a script was stopped, without the code of the error.
fn stopped_text(stop: Stop) -> &'static str {
    match stop {
        Stop::TooLong => {
            "the script ran longer than busy-reply-threshold allows; everything it did was undone"
        }
        Stop::Killed => "Script killed by user with SCRIPT KILL. Everything it did was undone",
        Stop::Memory => {
            "the script needs more memory than script-memory-limit allows; everything it did was \
             undone"
        }
        Stop::Ending => "the server ends; everything the script did was undone",
        Stop::Halted => "the script's transaction was ended",
    }
}

/// What is to be run.
struct Prepared {
    kind: Kind,
    flags: Flags,
    keys: usize,
    seed: u32,
}

enum Kind {
    Script(Sha, String),
    Function { library: String, name: String },
}

/// Runs a script that is not part of EXEC.
pub(super) fn run_alone(
    ctx: &mut Context<'_, '_, '_>,
    scripted: Scripted,
    args: Args<'_>,
) -> Outcome {
    let prepared = prepare(ctx, scripted, args)?;
    ctx.server.scripts.count_transaction();
    let (store, db) = (ctx.server.store, ctx.session.db);
    let keys: Vec<Key<'_>> =
        args.skip(3).from(0).take(prepared.keys).map(|bytes| Key { db, bytes }).collect();
    let (mark, drawn) = (ctx.reply.mark(), ctx.server.random.mark());
    let mut holds_all = false;
    loop {
        ctx.server.scripts.begin_transaction(holds_all);
        let access = if holds_all { Access::Everything } else { Access::Keys(&keys) };
        let result = store.run(access, |tx| {
            ctx.reply.rewind(mark);
            ctx.server.outgoing.clear();
            ctx.server.random.rewind(drawn);
            ctx.server.scripts.begin_attempt();
            attempt(ctx, &prepared, scripted, args, tx)
        });
        match relieve(ctx) {
            Relieved::NeedsAll => holds_all = true,
            Relieved::Again => {}
            Relieved::Over(why) => return Err(CommandError::ScriptStopped(why)),
            Relieved::No => return Ok(result?),
        }
    }
}

/// Runs a script as one of EXEC's commands.
pub(super) fn run_inside(
    ctx: &mut Context<'_, '_, '_>,
    scripted: Scripted,
    args: Args<'_>,
    tx: &mut Tx<'_>,
) -> Outcome {
    let prepared = prepare(ctx, scripted, args)?;
    attempt(ctx, &prepared, scripted, args, tx).map_err(CommandError::Tx)
}

/// Finds the script, and checks what can be checked before it runs.
fn prepare(
    ctx: &mut Context<'_, '_, '_>,
    scripted: Scripted,
    args: Args<'_>,
) -> Result<Prepared, CommandError> {
    let (kind, flags, keys) = match scripted.what {
        What::Function => {
            heed_functions(ctx.server)?;
            let name = String::from_utf8_lossy(args.get(1));
            let found = ctx.server.scripts.libraries.function(&name);
            let (library, name, about) = found.ok_or(CommandError::NoFunction)?;
            let (library, name, flags) = (library.name.clone(), name.clone(), about.flags);
            let count = parse_i64(args.get(2)).ok_or(CommandError::BadKeyCount)?;
            (Kind::Function { library, name }, flags, count_of_keys(count, args)?)
        }
        What::Text => {
            let keys =
                count_of_keys(parse_i64(args.get(2)).ok_or(CommandError::NotInteger)?, args)?;
            let sha = sha_of(args.get(1));
            let flags = add_script(ctx.server, sha, args.get(1), false)?;
            (Kind::Script(sha, hex(&sha)), flags, keys)
        }
        What::Digest => {
            let sha = parse_sha(args.get(1)).ok_or(CommandError::NoScript)?;
            let keys =
                count_of_keys(parse_i64(args.get(2)).ok_or(CommandError::NotInteger)?, args)?;
            let flags = find_script(ctx.server, sha)?;
            (Kind::Script(sha, hex(&sha)), flags, keys)
        }
    };
    if !flags.has(Flags::COMPATIBLE) && !flags.has(Flags::NO_WRITES) {
        ctx.server.check_writes()?;
        if scripted.read_only {
            return Err(CommandError::ScriptWrites);
        }
        if ctx.server.limit.room == Room::None && !flags.has(Flags::ALLOW_OOM) {
            return Err(CommandError::ScriptMemoryFull);
        }
    }
    // Drawn at each attempt anew, from the same state of the source.
    Ok(Prepared { kind, flags, keys, seed: ctx.server.random.below(1 << 31) as u32 })
}

/// Whether a script may write, as far as its kind of command and its own flags tell.
pub(super) fn may_write(server: &mut Server<'_>, scripted: Scripted, args: Args<'_>) -> bool {
    if scripted.read_only {
        return false;
    }
    let flags = match scripted.what {
        What::Function => heed_functions(server).ok().and_then(|()| {
            let name = String::from_utf8_lossy(args.get(1));
            server.scripts.libraries.function(&name).map(|(_, _, about)| about.flags)
        }),
        What::Text => flags_of_code(args.get(1)),
        What::Digest => parse_sha(args.get(1)).and_then(|sha| find_script(server, sha).ok()),
    };
    !flags.is_some_and(|flags| flags.has(Flags::NO_WRITES))
}

fn count_of_keys(count: i64, args: Args<'_>) -> Result<usize, CommandError> {
    if count > args.len() as i64 - 3 {
        return Err(CommandError::NumKeysArgs);
    }
    usize::try_from(count).map_err(|_| CommandError::NumKeysNegative)
}

/// Tries to run a script in a transaction.
fn attempt(
    ctx: &mut Context<'_, '_, '_>,
    prepared: &Prepared,
    scripted: Scripted,
    words: Args<'_>,
    tx: &mut Tx<'_>,
) -> Result<(), TxError> {
    let db = ctx.session.db;
    let mut engine = match take_engine(ctx.server) {
        Ok(engine) => engine,
        Err(error) => {
            ctx.reply.error(&error);
            return Ok(());
        }
    };
    let scripts = &mut ctx.server.scripts;
    let (name, is_function) = match &prepared.kind {
        Kind::Script(_, name) => (name, false),
        Kind::Function { name, .. } => (name, true),
    };
    let running: &Running = &ctx.server.own.running;
    running.begin(scripts.transactions, is_function);
    let (holds_all, has_facts) = (scripts.holds_all, scripts.has_facts);
    let input = Input { name, words, keys: prepared.keys, seed: prepared.seed };
    let table = table_for(&ctx.server.config);
    let mut caller = Caller {
        table,
        tx,
        holds_all,
        has_facts,
        read_only: scripted.read_only || prepared.flags.has(Flags::NO_WRITES),
        allow_oom: prepared.flags.has(Flags::ALLOW_OOM),
        started_ns: ctx.server.clock.now_ns(),
        limit_ns: ctx.server.config.script_limit_ms.saturating_mul(1_000_000),
        server: &mut *ctx.server,
        session: &mut *ctx.session,
        input,
        is_function,
        is_told: false,
        halt: None,
    };
    let ended = match &prepared.kind {
        Kind::Script(sha, _) => engine.eval(&mut caller, sha, input, ctx.reply),
        Kind::Function { library, .. } => engine.call(&mut caller, library, input, ctx.reply),
    };
    let (halt, is_told) = (caller.halt.take(), caller.is_told);
    running.end();
    running.memory_bytes.store(engine.memory_bytes() as u64, Relaxed);
    if is_told {
        running.tell(None);
    }
    ctx.session.db = db;
    if !engine.is_spent() {
        ctx.server.scripts.engine = Some(engine);
    }
    let need = match (ended, halt) {
        (Ended::Answered, _) => return Ok(()),
        (Ended::Stopped(_), Some(Halt::Tx(error))) => return Err(error),
        (Ended::Stopped(_), Some(Halt::Panic(panic))) => std::panic::resume_unwind(panic),
        (Ended::Stopped(_), Some(Halt::NeedsAll)) => Need::All,
        (Ended::Stopped(_), Some(Halt::NeedsFacts)) => Need::Facts,
        (Ended::Stopped(stop), None) => Need::Stopped(stop),
    };
    ctx.server.scripts.need = Some(need);
    tx.abort("a script has ended its transaction")
}

/// The loop's Lua state, made where there is none.
pub(super) fn take_engine(server: &mut Server<'_>) -> Result<Box<Engine>, CommandError> {
    let flushes = server.shared.scripts.flushes();
    let scripts = &mut server.scripts;
    if scripts.flushes != flushes {
        scripts.flushes = flushes;
        // What the scripts have left goes with them.
        scripts.engine = None;
    }
    let memory_max = server.config.script_memory_max;
    match scripts.engine.take().filter(|engine| engine.memory_max() == memory_max) {
        Some(engine) => Ok(engine),
        None => {
            // The new state has no libraries yet.
            scripts.changes = 0;
            let engine = Engine::new(memory_max);
            engine.map(Box::new).map_err(|error| CommandError::NoEngine(error.to_string()))
        }
    }
}

/// Gives the Lua state back.
pub(super) fn put_engine(server: &mut Server<'_>, engine: Box<Engine>) {
    if !engine.is_spent() {
        server.scripts.engine = Some(engine);
    }
}

/// Makes the libraries of the loop's state those in force.
fn heed_functions(server: &mut Server<'_>) -> Result<(), CommandError> {
    let changes = server.shared.functions.changes();
    if server.scripts.changes == changes && server.scripts.engine.is_some() {
        return Ok(());
    }
    let mut engine = take_engine(server)?;
    let libraries = server.shared.functions.libraries();
    let loaded = load_all(&mut engine, &libraries, server.clock);
    put_engine(server, engine);
    loaded?;
    server.scripts.libraries = libraries;
    server.scripts.changes = changes;
    Ok(())
}

/// Compiles a script, and adds it to those that all loops know.
fn add_script(
    server: &mut Server<'_>,
    sha: Sha,
    code: &[u8],
    is_loaded: bool,
) -> Result<Flags, CommandError> {
    let mut engine = take_engine(server)?;
    let known = engine.flags_of(&sha);
    let compiled = engine.compile(sha, code);
    put_engine(server, engine);
    let flags = compiled.map_err(CommandError::Script)?;
    let cache = &server.shared.scripts;
    if is_loaded {
        cache.add_loaded(sha, code).map_err(|_| CommandError::ScriptCacheFull)?;
    } else if known.is_none() {
        cache.add_evaled(sha, code);
    }
    Ok(flags)
}

/// Finds a script by its digest, and compiles it if it came to another loop.
fn find_script(server: &mut Server<'_>, sha: Sha) -> Result<Flags, CommandError> {
    let mut engine = take_engine(server)?;
    let known = engine.flags_of(&sha).map(Ok);
    let found = known.or_else(|| {
        let code = server.shared.scripts.get(&sha)?;
        Some(engine.compile(sha, &code))
    });
    put_engine(server, engine);
    found.ok_or(CommandError::NoScript)?.map_err(CommandError::Script)
}

/// SCRIPT LOAD script
pub(super) fn load(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let sha = sha_of(args.get(2));
    add_script(ctx.server, sha, args.get(2), true)?;
    ctx.reply.bulk(hex(&sha).as_bytes());
    Ok(())
}

/// SCRIPT EXISTS sha1 [sha1 ...]
pub(super) fn exists(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    ctx.reply.array(args.len() - 2);
    for digest in args.from(2) {
        let is_known = parse_sha(digest).is_some_and(|sha| ctx.server.shared.scripts.has(&sha));
        ctx.reply.int(i64::from(is_known));
    }
    Ok(())
}

/// SCRIPT FLUSH [ASYNC | SYNC]
pub(super) fn flush(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let mode = args.get(2);
    if args.len() > 3 || args.len() == 3 && !is(mode, "SYNC") && !is(mode, "ASYNC") {
        return Err(CommandError::ScriptFlushMode);
    }
    ctx.server.shared.scripts.flush();
    ctx.reply.ok();
    Ok(())
}

/// SCRIPT KILL
pub(super) fn kill(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    kill_running(ctx, false)
}

/// Asks the scripts, or the functions, that other loops run to end.
pub(super) fn kill_running(ctx: &mut Context<'_, '_, '_>, functions: bool) -> Outcome {
    let loops = &ctx.server.shared.loops;
    let mut others = loops.iter().enumerate().filter(|(number, _)| *number != ctx.server.number);
    let running: Vec<&Running> = others.by_ref().map(|(_, own)| &own.running).collect();
    if running.iter().any(|running| running.kind() == Some(functions)) {
        running.iter().for_each(|running| running.kill(functions));
        ctx.reply.ok();
        return Ok(());
    }
    Err(match running.iter().any(|running| running.kind().is_some()) {
        true if functions => CommandError::BusyScript("SCRIPT"),
        true => CommandError::BusyScript("FUNCTION"),
        false => CommandError::NotBusy,
    })
}

/// SCRIPT DEBUG YES | SYNC | NO
pub(super) fn debug(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let mode = args.get(2);
    if is(mode, "NO") {
        ctx.reply.ok();
        return Ok(());
    }
    Err(match is(mode, "YES") || is(mode, "SYNC") {
        true => CommandError::NoDebugger,
        false => CommandError::ScriptDebugMode,
    })
}

/// SCRIPT HELP
pub(super) fn help(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    ctx.reply.lines(&[
        "SCRIPT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "DEBUG NO",
        "    The debugger of scripts is not offered; NO is answered for clients that ask.",
        "EXISTS <sha1> [<sha1> ...]",
        "    Return information about the existence of the scripts in the script cache.",
        "FLUSH [ASYNC|SYNC]",
        "    Flush the Lua scripts cache.",
        "KILL",
        "    Kill the currently executing Lua script.",
        "LOAD <script>",
        "    Load a script into the scripts cache without executing it.",
        "HELP",
        "    Print this help.",
    ]);
    Ok(())
}
