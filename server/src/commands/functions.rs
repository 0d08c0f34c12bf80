//! FUNCTION: libraries of functions, which the store keeps.
//!
//! All libraries lie in one record of the store's own database, in the form of FUNCTION DUMP. A
//! change is made in the store first, in one transaction, then put in force for all loops. Each
//! loop loads what has changed into its own Lua state when it next calls a function.

use std::collections::BTreeMap;
use std::sync::Arc;

use perdura_media::Clock;
use perdura_store::{Access, Expiry, Key, OWN_DATABASE, Store};

use super::call::Outcome;
use super::context::{Context, Server};
use super::error::{CommandError, text};
use super::options::is;
use super::script_call::Loader;
use super::scripts::{kill_running, put_engine, take_engine};
use crate::resp::Args;
use crate::script::{
    About, Engine, Flags, Libraries, Library, LoadError, Stop, dump, library_name, restore,
};

/// The key of the libraries in the store's own database.
const KEY: Key<'static> = Key { db: OWN_DATABASE, bytes: b"functions" };
/// Time that the code of a library has, nanoseconds, as in Redis.
const LOAD_LIMIT_NS: u64 = 500_000_000;

fn loader(clock: &dyn Clock, limit_ns: u64) -> Loader<'_> {
    Loader { clock, started_ns: clock.now_ns(), limit_ns }
}

fn load_failed(error: LoadError) -> CommandError {
    CommandError::Library(match error {
        LoadError::Wrong(why) => why,
        LoadError::Stopped(Stop::Memory) => {
            "the library needs more memory than script-memory-limit allows".to_owned()
        }
        LoadError::Stopped(_) => {
            "Error registering functions: ERR FUNCTION LOAD timeout".to_owned()
        }
    })
}

/// Loads libraries into a loop's state. They have been loaded once, so there is no limit of time.
pub(super) fn load_all(
    engine: &mut Engine,
    libraries: &Libraries,
    clock: &dyn Clock,
) -> Result<(), CommandError> {
    engine.take_libraries(&mut loader(clock, 0), libraries).map_err(load_failed)
}

/// The libraries that the store keeps.
///
/// # Errors
/// What the store keeps cannot be read, or is none that this server can load.
pub(crate) fn kept(
    store: &Store,
    clock: &dyn Clock,
    memory_max: usize,
) -> Result<Libraries, String> {
    let mut libraries = Libraries::default();
    if !store.has_own_database() {
        return Ok(libraries);
    }
    let read = || store.read(KEY, |entry| entry.and_then(|e| e.string().map(<[u8]>::to_vec)));
    let kept = perdura_store::Unreadable::catch(read).map_err(|error| error.to_string())?;
    let Some(bytes) = kept else { return Ok(libraries) };
    let codes = restore(&bytes).map_err(|error| error.to_string())?;
    let mut engine = Engine::new(memory_max).map_err(|error| error.to_string())?;
    for code in codes {
        let loaded = engine.load(&mut loader(clock, 0), &code).map_err(load_failed);
        let (library, _) = loaded.map_err(|error| error.to_string())?;
        libraries.add(library, false)?;
    }
    Ok(libraries)
}

/// Keeps libraries in the store, then puts them in force. The caller has begun a change.
fn keep(server: &Server<'_>, libraries: Libraries) -> Outcome {
    let store = server.store;
    let is_empty = libraries.by_name.is_empty();
    if !is_empty || store.has_own_database() {
        store.make_own_database()?;
        let bytes = dump(libraries.by_name.values().map(|library| library.code.as_slice()));
        store.run(Access::Key(KEY), |tx| match is_empty {
            true => tx.delete(KEY).map(drop),
            false => tx.put(KEY, &bytes, Expiry::None),
        })?;
    }
    server.shared.functions.set(libraries);
    Ok(())
}

/// Loads a library, to see what it registers.
fn try_load(server: &mut Server<'_>, code: &[u8]) -> Result<Library, CommandError> {
    let mut engine = take_engine(server)?;
    let loaded = engine.load(&mut loader(server.clock, LOAD_LIMIT_NS), code);
    put_engine(server, engine);
    Ok(loaded.map_err(load_failed)?.0)
}

/// FUNCTION LOAD [REPLACE] code
pub(super) fn load(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let mut replace = false;
    for at in 2..args.len() - 1 {
        if !is(args.get(at), "REPLACE") {
            return Err(CommandError::FunctionOption(text(args.get(at), 128)));
        }
        replace = true;
    }
    let code = args.get(args.len() - 1);
    let shared = ctx.server.shared;
    let _changing = shared.functions.begin_change();
    let mut libraries = Libraries::clone(&shared.functions.libraries());
    let name = library_name(code).map_err(CommandError::Library)?;
    if !replace && libraries.by_name.contains_key(&name) {
        return Err(CommandError::Library(format!("Library '{name}' already exists")));
    }
    let library = try_load(ctx.server, code)?;
    libraries.add(library, replace).map_err(CommandError::Library)?;
    keep(ctx.server, libraries)?;
    ctx.reply.bulk(name.as_bytes());
    Ok(())
}

/// FUNCTION DELETE library
pub(super) fn delete(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let shared = ctx.server.shared;
    let _changing = shared.functions.begin_change();
    let mut libraries = Libraries::clone(&shared.functions.libraries());
    let name = String::from_utf8_lossy(args.get(2));
    libraries.by_name.remove(&*name).ok_or(CommandError::NoLibrary)?;
    keep(ctx.server, libraries)?;
    ctx.reply.ok();
    Ok(())
}

/// FUNCTION FLUSH [ASYNC | SYNC]
pub(super) fn flush(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    if args.len() > 3 {
        return Err(CommandError::subcommand(args));
    }
    let mode = args.get(2);
    if args.len() == 3 && !is(mode, "SYNC") && !is(mode, "ASYNC") {
        return Err(CommandError::FunctionFlushMode);
    }
    let _changing = ctx.server.shared.functions.begin_change();
    keep(ctx.server, Libraries::default())?;
    ctx.reply.ok();
    Ok(())
}

/// FUNCTION DUMP
pub(super) fn dump_all(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    let libraries = ctx.server.shared.functions.libraries();
    let bytes = dump(libraries.by_name.values().map(|library| library.code.as_slice()));
    ctx.reply.bulk(&bytes);
    Ok(())
}

/// FUNCTION RESTORE payload [FLUSH | APPEND | REPLACE]
pub(super) fn restore_all(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    if args.len() > 4 {
        return Err(CommandError::subcommand(args));
    }
    let policy = args.get(3);
    let (flush, replace) = (is(policy, "FLUSH"), is(policy, "REPLACE"));
    if args.len() == 4 && !flush && !replace && !is(policy, "APPEND") {
        return Err(CommandError::RestorePolicy);
    }
    let codes = restore(args.get(2)).map_err(|error| CommandError::Library(error.to_string()))?;
    let shared = ctx.server.shared;
    let _changing = shared.functions.begin_change();
    let mut restored = Libraries::default();
    for code in codes {
        let library = try_load(ctx.server, &code)?;
        restored.add(library, false).map_err(CommandError::Library)?;
    }
    if !flush {
        restored = joined(&shared.functions.libraries(), restored, replace)?;
    }
    keep(ctx.server, restored)?;
    ctx.reply.ok();
    Ok(())
}

/// Libraries, with others added to them.
fn joined(
    present: &Libraries,
    restored: Libraries,
    replace: bool,
) -> Result<Libraries, CommandError> {
    let mut all = present.clone();
    let failed = |why| Err(CommandError::Library(why));
    for name in restored.by_name.keys() {
        if all.by_name.remove(name).is_some() && !replace {
            return failed(format!("Library {name} already exists"));
        }
    }
    let mut functions = restored.by_name.values().flat_map(|library| library.functions.keys());
    if let Some(name) = functions.find(|name| all.function(name).is_some()) {
        return failed(format!("Function {name} already exists"));
    }
    all.by_name.extend(restored.by_name);
    Ok(all)
}

/// FUNCTION LIST [LIBRARYNAME pattern] [WITHCODE]
pub(super) fn list(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let (mut pattern, mut with_code, mut at) = (None, false, 2);
    while at < args.len() {
        let word = args.get(at);
        if !with_code && is(word, "WITHCODE") {
            with_code = true;
        } else if pattern.is_none() && is(word, "LIBRARYNAME") {
            at += 1;
            if at >= args.len() {
                return Err(CommandError::NoLibraryName);
            }
            pattern = Some(args.get(at));
        } else {
            return Err(CommandError::FunctionArgument(text(word, 128)));
        }
        at += 1;
    }
    let libraries = ctx.server.shared.functions.libraries();
    let fits = |library: &&Arc<Library>| {
        let name = library.name.as_bytes();
        pattern.is_none_or(|pattern| crate::glob::matches_ignoring_case(pattern, name))
    };
    let found: Vec<_> = libraries.by_name.values().filter(fits).collect();
    ctx.reply.array(found.len());
    for library in found {
        describe(ctx, library, with_code);
    }
    Ok(())
}

fn describe(ctx: &mut Context<'_, '_, '_>, library: &Library, with_code: bool) {
    let reply = &mut ctx.reply;
    reply.map(if with_code { 4 } else { 3 });
    reply.bulk(b"library_name");
    reply.bulk(library.name.as_bytes());
    reply.bulk(b"engine");
    reply.bulk(b"LUA");
    reply.bulk(b"functions");
    let functions: &BTreeMap<String, About> = &library.functions;
    reply.array(functions.len());
    for (name, about) in functions {
        reply.map(3);
        reply.bulk(b"name");
        reply.bulk(name.as_bytes());
        reply.bulk(b"description");
        reply.bulk_or_null(about.description.as_deref());
        reply.bulk(b"flags");
        let flags = Flags::NAMES.iter().filter(|(_, flag)| about.flags.has(*flag));
        reply.set(flags.clone().count());
        flags.for_each(|(name, _)| reply.simple(name));
    }
    if with_code {
        reply.bulk(b"library_code");
        reply.bulk(&library.code);
    }
}

/// FUNCTION STATS
pub(super) fn stats(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    let shared = ctx.server.shared;
    let told = shared.loops.iter().filter_map(|own| own.running.told());
    let running = told.max_by_key(|about| (about.is_function, u64::MAX - about.started_ns));
    let now_ns = ctx.server.clock.now_ns();
    let reply = &mut ctx.reply;
    reply.map(2);
    reply.bulk(b"running_script");
    match running {
        None => reply.null(),
        Some(about) => {
            reply.map(3);
            reply.bulk(b"name");
            reply.bulk(about.name.as_bytes());
            reply.bulk(b"command");
            reply.array(about.command.len());
            about.command.iter().for_each(|word| reply.bulk(word));
            reply.bulk(b"duration_ms");
            reply.len(now_ns.saturating_sub(about.started_ns) / 1_000_000);
        }
    }
    let libraries = shared.functions.libraries();
    reply.bulk(b"engines");
    reply.map(1);
    reply.bulk(b"LUA");
    reply.map(2);
    reply.bulk(b"libraries_count");
    reply.len(libraries.by_name.len() as u64);
    reply.bulk(b"functions_count");
    reply.len(libraries.functions() as u64);
    Ok(())
}

/// FUNCTION KILL
pub(super) fn kill(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    kill_running(ctx, true)
}

/// FUNCTION HELP
pub(super) fn help(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    ctx.reply.lines(&[
        "FUNCTION <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "LOAD [REPLACE] <FUNCTION CODE>",
        "    Create a new library with the given library name and code.",
        "DELETE <LIBRARY NAME>",
        "    Delete the given library.",
        "LIST [LIBRARYNAME PATTERN] [WITHCODE]",
        "    Return general information on all the libraries:",
        "    * Library name",
        "    * The engine used to run the Library",
        "    * Functions list",
        "    * Library code (if WITHCODE is given)",
        "    Only libraries that match a pattern are returned where LIBRARYNAME is given.",
        "STATS",
        "    Return information about the current function running:",
        "    * Function name",
        "    * Command used to run the function",
        "    * Duration in MS that the function is running",
        "    If no function is running, return nil",
        "    In addition, returns a list of available engines.",
        "KILL",
        "    Kill the current running function.",
        "FLUSH [ASYNC|SYNC]",
        "    Delete all the libraries.",
        "DUMP",
        "    Return a serialized payload representing the current libraries, can be restored \
         using FUNCTION RESTORE command",
        "RESTORE <PAYLOAD> [FLUSH|APPEND|REPLACE]",
        "    Restore the libraries represented by the given payload; existing libraries go first, \
         stay (default), or are replaced.",
        "HELP",
        "    Print this help.",
    ]);
    Ok(())
}
