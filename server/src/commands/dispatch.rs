//! Carries out a command: makes the checks in Redis's order, then calls the command's handler.

use perdura_store::{Access, Entry, Key, Place, StoreError, Tx, Unreadable, quietly};

use super::blocking::{self, Wait};
use super::call::{Call, Outcome};
use super::context::{Context, Server};
use super::error::CommandError;
use super::facts::shown;
use super::handler::{Command, DataFn, Handler};
use super::keyspace::Keyspace;
use super::misses;
use super::monitor;
use super::null;
use super::pause::is_paused;
use super::permit;
use super::scripts;
use super::spec::{Spec, flag};
use super::steps::{Step, Steps};
use super::table::TABLE;
use super::tracking::{end_caching, note_read, write_push};
use super::transactions::exec;
use crate::config::ServerConfig;
use crate::resp::{Args, Reply};
use crate::session::{Queued, ReplyMode, Session};
use crate::shared::{Push, Room, Tracking};

/// The next step of a connection after a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// The connection goes on; the reply to a write may have to wait for the group commit.
    Next { wrote: bool },
    /// The command is answered later, and those behind it wait. Other clients may have been served.
    Waits { wrote: bool },
    /// CLIENT PAUSE holds this command, or it waits for something outside: it is to be carried out
    /// again.
    Paused,
    /// The connection closes at once. Its writes are done all the same, and others will read them.
    Close { wrote: bool },
}

/// The commands that a server offers: for a measurement without a store, those that need none.
pub(super) fn table_for(config: &ServerConfig) -> &'static [Command] {
    if config.null_value_bytes.is_some() { null::TABLE } else { TABLE }
}

/// Carries out one command and appends its reply to `out`. `found` is its line in the table, and
/// `place` that of its only key, if they have been looked up already.
pub(crate) fn execute(
    server: &mut Server<'_>,
    session: &mut Session,
    found: Option<(usize, &'static Spec)>,
    place: Option<Place>,
    args: Args<'_>,
    out: &mut Vec<u8>,
) -> Flow {
    let resolved = match found {
        Some(found) => Ok(found),
        None => server.index.resolve(args),
    };
    if let Ok((row, _)) = resolved
        && is_paused(server, session, row, args)
    {
        return Flow::Paused;
    }
    if resolved.is_err() && is_http(args.get(0)) {
        return Flow::Close { wrote: false };
    }
    // A subscription is confirmed by a message, which is sent as those that follow.
    let confirms = session.multi.is_none()
        && resolved.as_ref().is_ok_and(|(_, spec)| spec.name.ends_with("subscribe"));
    let reply_mode = session.reply_mode;
    if reply_mode == ReplyMode::SkipNext {
        session.reply_mode = ReplyMode::SkipThis;
    }
    let tracks = server.shared.tracking.is_on();
    if server.limit.room == Room::Little {
        write_pushes(session, server.evict_before(session), out);
    }
    let mark = out.len();
    if tracks {
        Tracking::begin_command(session.card.id);
    }
    let mut reply = Reply::new(out, session.resp3, server.config.output_max_bytes);
    let mut ctx = Context { server, session, reply: &mut reply };
    let wrote = match resolved {
        Ok((row, spec)) => match attempt(&mut ctx, row, spec, place, args) {
            Some(wrote) => wrote,
            None => {
                session.reply_mode = reply_mode;
                out.truncate(mark);
                return Flow::Paused;
            }
        },
        Err(error @ CommandError::Arity("exec")) => {
            refuse_exec(&mut ctx, None, error);
            false
        }
        Err(error) => {
            reject(&mut ctx, None, &error);
            false
        }
    };
    if reply.errors() > 0 {
        reply.error_words().for_each(|word| server.own.count_error(word));
    }
    let errors = reply.errors();
    let pushes = if tracks { Tracking::end_command() } else { Vec::new() };
    if reply.overflowed() {
        server.stats.output_limit_disconnections.add(1);
        // A reply that was cut off is not sent at all.
        out.truncate(mark);
        return Flow::Close { wrote };
    }
    let is_silent = session.reply_mode != ReplyMode::On;
    if session.reply_mode == ReplyMode::SkipThis {
        session.reply_mode = ReplyMode::On;
    }
    if is_silent && !(confirms && errors == 0) {
        out.truncate(mark);
    }
    write_pushes(session, pushes, out);
    if let Some(waiting) = &mut session.waiting {
        waiting.is_silent = is_silent;
        return Flow::Waits { wrote };
    }
    Flow::Next { wrote }
}

fn write_pushes(session: &Session, pushes: Vec<Push>, out: &mut Vec<u8>) {
    for push in pushes {
        let mut reply = Reply::new(out, session.resp3, usize::MAX);
        write_push(&mut reply, &push, session.subscribed.is_any());
    }
}

/// Whether the first word is one that a browser sends to any port that a page names. The words
/// behind it must not be executed.
fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// Whether a command changes data, or runs others that may.
pub(crate) fn may_write(spec: &Spec) -> bool {
    spec.has(flag::WRITE | flag::BLOCKING | flag::SCRIPT) || spec.name == "exec"
}

/// Checks a command, then queues or runs it. True if data may have changed; `None` if the command
/// waits, and is to be carried out again.
fn attempt(
    ctx: &mut Context<'_, '_, '_>,
    row: usize,
    spec: &'static Spec,
    place: Option<Place>,
    args: Args<'_>,
) -> Option<bool> {
    ctx.session.last_row = row as u16;
    if let Err(error) = check(ctx, row, spec, args) {
        match spec.name == "exec" {
            true => refuse_exec(ctx, Some(row), error),
            false => reject(ctx, Some(row), &error),
        }
        return Some(false);
    }
    if ctx.session.multi.is_some() && !spec.has(flag::UNQUEUED) {
        match queue(ctx, row, args) {
            Ok(()) => ctx.reply.simple("QUEUED"),
            Err(error) => reject(ctx, Some(row), &error),
        }
        return Some(false);
    }
    let command = &table_for(&ctx.server.config)[row];
    let db = ctx.session.db;
    let (mark, errors) = (ctx.reply.mark(), ctx.reply.errors());
    if ctx.session.tracks.is_some() {
        note_read(ctx.server, ctx.session, row, args);
    }
    let is_watched = ctx.server.shared.monitors.is_any();
    let is_shown_first = is_watched && ctx.server.index.facts(row).has(shown::SKIP_MONITOR);
    if is_shown_first {
        monitor::show(ctx.server, ctx.session, ctx.session.db, row, args);
    }
    let is_quiet = ctx.session.no_touch && spec.name != "touch";
    let mut outcome = || Unreadable::catch(|| run(ctx, command, place, args));
    let outcome = if is_quiet { quietly(outcome) } else { outcome() };
    let outcome = outcome.unwrap_or_else(|unreadable| Err(unreadable.into()));
    let time_ns = ctx.server.pass_time();
    let has_stepped = std::mem::take(&mut ctx.server.has_stepped);
    let left_all = std::mem::take(&mut ctx.server.left_all);
    if matches!(outcome, Err(CommandError::Waits)) {
        ctx.reply.rewind(mark);
        return None;
    }
    if outcome.is_ok()
        && let Some(wait) = ctx.server.wait.take()
    {
        ctx.reply.rewind(mark);
        if is_watched && !is_shown_first {
            monitor::show(ctx.server, ctx.session, ctx.session.db, row, args);
        }
        ctx.server.note_busy(spec, time_ns);
        return Some(blocking::begin(ctx, row, args, wait, time_ns));
    }
    // A script that failed keeps what it had written.
    let script_wrote = spec.has(flag::SCRIPT) && ctx.server.scripts.take_wrote();
    let writes = spec.has(flag::WRITE) || spec.name == "exec" || script_wrote;
    let wrote = (outcome.is_ok() || has_stepped) && writes;
    if let Err(error) = outcome {
        ctx.reply.rewind(mark);
        ctx.reply.error(&error);
        // A transaction that did not happen sends nothing.
        ctx.server.outgoing.clear();
    }
    if ctx.session.tracks.is_some() {
        end_caching(ctx.session, spec.name);
    }
    if is_watched && !is_shown_first {
        monitor::show(ctx.server, ctx.session, ctx.session.db, row, args);
    }
    let shared = ctx.server.shared;
    if !ctx.server.outgoing.is_empty() {
        ctx.server.outgoing.drain(..).for_each(|message| shared.topics.send(&message));
    }
    if wrote {
        ctx.server.own.changes.add(u64::from(!left_all));
        ctx.server.own.user_bytes.add(spec.user_bytes(args));
        if spec.has(flag::WRITE) {
            blocking::note_changed(ctx.server, spec, db, args);
        }
        ctx.server.limit.note_written();
    }
    let failed = ctx.reply.errors() != errors;
    if failed {
        ctx.server.stats.errors.add(1);
    }
    ctx.server.note_busy(spec, time_ns);
    ctx.server.count_command((row, spec), args, &ctx.session.card, time_ns, failed);
    if wrote {
        // Those who wait for what has changed. Their time is not this command's.
        blocking::serve(ctx.server);
    }
    Some(wrote)
}

fn check(ctx: &mut Context<'_, '_, '_>, row: usize, spec: &Spec, args: Args<'_>) -> Outcome {
    permit::check(ctx, row, spec, args)?;
    if ctx.session.multi.is_some() && spec.has(flag::NOMULTI) {
        return Err(CommandError::NotInMulti);
    }
    if ctx.session.subscribed.is_any() && !ctx.session.resp3 && !spec.has(flag::SUBSCRIBED) {
        return Err(CommandError::Subscribed(spec.name));
    }
    if ctx.server.limit.room == Room::None {
        let needs_memory = needs_memory(ctx, spec);
        // A script is refused by its flags, once it is found.
        let may_be_refused = needs_memory || spec.has(flag::SCRIPT);
        if may_be_refused && ctx.server.refuses_for_memory() && needs_memory {
            return Err(CommandError::MemoryFull);
        }
    }
    if spec.has(flag::WRITE) || spec.name == "exec" && has_queued(ctx, flag::WRITE) {
        ctx.server.check_writes()?;
    }
    Ok(())
}

/// Whether a command of the transaction has one of the flags.
fn has_queued(ctx: &Context<'_, '_, '_>, flags: u32) -> bool {
    let table = table_for(&ctx.server.config);
    let has = |queued: &Queued| table[queued.row].spec.has(flags);
    ctx.session.multi.as_ref().is_some_and(|multi| multi.queue.iter().any(has))
}

/// Whether a command needs memory: of a transaction, if any of its commands does.
fn needs_memory(ctx: &Context<'_, '_, '_>, spec: &Spec) -> bool {
    match &ctx.session.multi {
        Some(_) if spec.name == "exec" => has_queued(ctx, flag::DENYOOM),
        Some(_) => !spec.has(flag::UNQUEUED) || spec.name == "watch",
        None => spec.has(flag::DENYOOM),
    }
}

/// Answers a command that was not tried. A transaction to which it belongs is lost.
fn reject(ctx: &mut Context<'_, '_, '_>, row: Option<usize>, error: &CommandError) {
    if let Some(multi) = &mut ctx.session.multi {
        multi.failed = true;
    }
    ctx.server.stats.errors.add(1);
    if let Some(row) = row {
        ctx.server.stats.by_command[row].rejected.add(1);
    }
    ctx.reply.error(error);
}

/// Refuses EXEC, which ends the transaction as DISCARD does.
fn refuse_exec(ctx: &mut Context<'_, '_, '_>, row: Option<usize>, why: CommandError) {
    ctx.session.multi = None;
    ctx.session.unwatch();
    reject(ctx, row, &CommandError::ExecRefused(Box::new(why)));
}

fn queue(ctx: &mut Context<'_, '_, '_>, row: usize, args: Args<'_>) -> Outcome {
    let max = ctx.server.config.multi_max_bytes;
    let Some(multi) = &mut ctx.session.multi else { return Ok(()) };
    let queued = Queued::new(row, args);
    if multi.bytes + queued.memory_bytes() > max {
        return Err(CommandError::MultiTooLarge(max));
    }
    multi.bytes += queued.memory_bytes();
    multi.queue.push(queued);
    Ok(())
}

/// Runs a command that is not part of a transaction.
fn run(
    ctx: &mut Context<'_, '_, '_>,
    command: &'static Command,
    place: Option<Place>,
    args: Args<'_>,
) -> Outcome {
    let spec = &command.spec;
    if spec.has(flag::FACTS) {
        ctx.server.refresh_facts();
    }
    let (store, db) = (ctx.server.store, ctx.session.db);
    let key = Key { db, bytes: args.get(spec.keys.first.max(0) as usize) };
    let at = place;
    let place = || at.unwrap_or_else(|| store.place(key));
    match command.handler {
        Handler::Control(handler) => handler(ctx, args),
        Handler::Exec => {
            let table = table_for(&ctx.server.config);
            exec(ctx, table)
        }
        Handler::Script(scripted) => scripts::run_alone(ctx, scripted, args),
        Handler::Container => Err(CommandError::Arity(spec.name)),
        Handler::Read(handler) => {
            misses::tell_alone(ctx.server, args, db)?;
            let (server, steps) = (&*ctx.server, &mut Steps::whole());
            let mut call = Call::new(server, args, db, ctx.reply, steps);
            let answer = |entry: Option<Entry<'_>>| {
                let hit = entry.is_some();
                (hit, handler(&mut call, entry.as_ref()))
            };
            let (hit, outcome) = match spec.has(flag::NOVALUE) {
                true => store.look_at(key, place(), answer),
                false => store.read_at(key, place(), answer),
            };
            let stats = ctx.server.stats;
            if hit { &stats.keyspace_hits } else { &stats.keyspace_misses }.add(1);
            outcome
        }
        Handler::Field(handler) => {
            misses::tell_alone(ctx.server, args, db)?;
            let (server, steps) = (&*ctx.server, &mut Steps::whole());
            let mut call = Call::new(server, args, db, ctx.reply, steps);
            match store.hash_get_at(key, place(), args.get(2), |value| handler(&mut call, value)) {
                Ok(outcome) => outcome,
                Err(_wrong_type) => Err(CommandError::WrongType),
            }
        }
        Handler::Keyspace(handler) => {
            let (server, steps) = (&*ctx.server, &mut Steps::whole());
            let mut call = Call::new(server, args, db, ctx.reply, steps);
            handler(&mut call, &mut Keyspace::Store(store))
        }
        Handler::Data(handler) | Handler::InPlace(_, handler) => {
            let row = usize::from(ctx.session.last_row);
            if let Handler::InPlace(in_place, _) = command.handler
                && ctx.server.in_place_tries.is_due(row)
            {
                let (server, steps) = (&*ctx.server, &mut Steps::whole());
                let mut call = Call::new(server, args, db, ctx.reply, steps);
                let done = in_place(&mut call, store, place());
                ctx.server.in_place_tries.note(row, done.is_some());
                if let Some(has_changed) = done {
                    ctx.server.left_all = !has_changed;
                    return Ok(());
                }
            }
            let (mut done, data) = (Done::default(), (args, db, at));
            let found = run_data(ctx.server, ctx.reply, spec, handler, data, &mut done);
            ctx.server.has_stepped = done.has_stepped;
            ctx.server.left_all = !done.has_stepped && !done.has_changed;
            ctx.server.wait = found?;
            Ok(())
        }
    }
}

/// What a command on data has done to the store.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// Whether it has committed a step, whatever its outcome.
    pub has_stepped: bool,
    /// Whether its last transaction has changed a key.
    pub has_changed: bool,
}

/// Runs a command on data outside of EXEC. The result says what it waits for, if it has found
/// nothing.
pub(super) fn run_data(
    server: &Server<'_>,
    reply: &mut Reply<'_>,
    spec: &Spec,
    handler: DataFn,
    (args, db, place): (Args<'_>, u8, Option<Place>),
    done: &mut Done,
) -> Result<Option<Wait>, CommandError> {
    let random = &server.random;
    let (mut mark, drawn) = (reply.mark(), random.mark());
    let keys: Vec<Key<'_>>;
    let access = if spec.needs_all_shards(args) {
        Access::Everything
    } else if spec.keys.is_one() {
        let key = Key { db, bytes: args.get(spec.keys.first.max(0) as usize) };
        place.map_or(Access::Key(key), |place| Access::Placed(key, place))
    } else {
        keys = spec.keys.indices(args).map(|at| Key { db, bytes: args.get(at) }).collect();
        Access::Keys(&keys)
    };
    let (mut steps, mut is_again) = (Steps::whole(), false);
    loop {
        let (mut outcome, mut wait) = (Ok(()), None);
        let run = |tx: &mut Tx<'_>| {
            if std::mem::replace(&mut is_again, true) {
                reply.rewind(mark);
                random.rewind(drawn);
                steps.now = Step::default();
                (outcome, wait) = (Ok(()), None);
            }
            if !spec.has(flag::DENYOOM) {
                tx.allow_reserve();
            }
            let mut call = Call::new(server, args, db, reply, &mut steps);
            misses::tell(server, args, db, tx);
            match handler(&mut call, tx) {
                Err(CommandError::Tx(error)) => return Err(error),
                Err(other) => outcome = Err(other),
                Ok(()) if call.wait.is_some() => wait = call.wait,
                Ok(()) => {}
            }
            done.has_changed = tx.has_changed();
            Ok(())
        };
        let committed = server.store.run(access, run);
        let is_answered = steps.now.is_answered;
        match committed {
            Ok(()) if outcome.is_ok() && steps.now.is_more => {
                steps.keep();
                done.has_stepped = true;
                if is_answered {
                    mark = reply.mark();
                }
            }
            Ok(()) => return outcome.map(|()| wait),
            Err(StoreError::TransactionTooLarge { .. })
                if spec.has(flag::STEPS) && steps.shrink() => {}
            Err(error) => return Err(error.into()),
        }
    }
}
