//! Commands that wait when they find nothing, and how they are served.
//!
//! Such a command is first run like any other. If it finds nothing, its client is noted as waiting
//! and the keys are looked at once more, so that no change between the two is missed. After a
//! command or an EXEC has changed keys, the loop that has run it serves those who wait for them: it
//! runs each one's own command, and leaves the reply with the client's loop. A command served so
//! may make other keys ready (BLMOVE); these are served next.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use perdura_region::Planted;
use perdura_store::{Access, Key, Kind, StoreError, Unreadable};

use super::call::{Call, Outcome};
use super::context::{Context, Server};
use super::dispatch::{Done, run_data, table_for};
use super::error::CommandError;
use super::options::is;
use super::permit;
use super::spec::{Spec, flag};
use crate::number::parse_i64;
use crate::resp::{Args, Reply};
use crate::session::{Queued, Waiting};
use crate::shared::{Held, Served, Shared, Tracking, Waiter, Waiters};

/// What a command waits for that has found nothing.
#[derive(Debug, Clone)]
pub(crate) struct Wait {
    /// The arguments that name the keys waited for.
    pub keys: Range<usize>,
    /// The kind that a key must have for the command to find something.
    pub kind: Kind,
    /// Whether the command is also run again when a key has gone or has another kind.
    pub on_other: bool,
    /// The longest wait, milliseconds; 0: it has no end.
    pub timeout_ms: u64,
    /// Arguments that are others when the command is run again, by their index: `$` is the ID that
    /// was the last one when the command began.
    pub instead: Vec<(usize, Vec<u8>)>,
    /// Whether the command has changed data though it has found nothing.
    pub wrote: bool,
}

impl Call<'_, '_> {
    /// Answers that nothing was found, and says what the client waits for. Inside EXEC the answer
    /// stands.
    pub fn wait(&mut self, wait: Wait) -> Outcome {
        self.reply.null_array();
        self.wait = Some(wait);
        Ok(())
    }

    /// Reads argument `index` as a timeout in seconds; the result is in milliseconds.
    pub fn timeout_ms(&self, index: usize) -> Result<u64, CommandError> {
        let seconds = crate::number::parse_double(self.args.get(index));
        let ms = seconds.ok_or(CommandError::TimeoutNotFloat)? * 1000.0;
        // The end of the wait must be a time of the calendar, in milliseconds of 63 bits.
        let most_ms = i64::MAX as f64 - self.now_ms as f64;
        match ms.ceil() {
            ms if ms > most_ms => Err(CommandError::TimeoutRange),
            ms if ms < 0.0 => Err(CommandError::TimeoutNegative),
            ms => Ok(ms as u64),
        }
    }
}

/// Lets the client wait, whose first look at its keys took `looked_ns`, and looks at them once
/// more. True if data has changed.
pub(super) fn begin(
    ctx: &mut Context<'_, '_, '_>,
    row: usize,
    args: Args<'_>,
    wait: Wait,
    looked_ns: u64,
) -> bool {
    let server = &mut *ctx.server;
    let end_ns = server.now_ns.saturating_add(wait.timeout_ms.saturating_mul(1_000_000));
    let deadline_ns = (wait.timeout_ms > 0).then_some(end_ns);
    let command = Queued::with(row, args, &wait.instead);
    let bytes = command.memory_bytes() + size_of::<Waiter>();
    ctx.session.waiting = Some(Box::new(Waiting { deadline_ns, bytes, is_silent: false }));
    let db = ctx.session.db;
    server.ready.extend(wait.keys.clone().map(|at| (db, args.get(at).into())));
    let waiter = Waiter {
        number: 0,
        client: Arc::clone(&ctx.session.card),
        db,
        resp3: ctx.session.resp3,
        command,
        keys: wait.keys,
        kind: wait.kind,
        on_other: wait.on_other,
        has_deadline: deadline_ns.is_some(),
        looked_ns,
    };
    #[cfg(test)]
    before_noted::call();
    let mut held = server.shared.waiters.lock();
    held.add(waiter);
    if server.store.region().planted().is(Planted::LookOnce) {
        server.ready.clear();
    }
    serve_ready(server, &mut held) | wait.wrote
}

/// Notes the keys that a command has changed and that somebody may wait for.
pub(super) fn note_changed(server: &mut Server<'_>, spec: &Spec, db: u8, args: Args<'_>) {
    let waiters: &Waiters = &server.shared.waiters;
    if !waiters.is_any() || !spec.has(flag::WRITE) {
        return;
    }
    if spec.has(flag::ALL_SHARDS | flag::WALKS) || spec.keys.is_none() {
        server.is_all_ready = true;
        return;
    }
    for key in spec.keys.indices(args).map(|at| args.get(at)) {
        if waiters.may_be_for(db, key) {
            server.ready.push_back((db, key.into()));
        }
    }
}

/// Serves those who wait for a key to go, after keys may have expired.
pub(crate) fn serve_after_expiry(server: &mut Server<'_>) -> bool {
    let (_, keys_on_other) = server.shared.waiters.keys();
    server.is_all_ready = keys_on_other > 0;
    serve(server)
}

/// Serves those who wait for the keys that were noted. True if data has changed.
pub(crate) fn serve(server: &mut Server<'_>) -> bool {
    if server.ready.is_empty() && !server.is_all_ready {
        return false;
    }
    let shared = server.shared;
    let mut held = shared.waiters.lock();
    if std::mem::take(&mut server.is_all_ready) {
        server.ready.extend(held.all_keys().map(|(db, key)| (db, key.into())));
    }
    serve_ready(server, &mut held)
}

fn serve_ready(server: &mut Server<'_>, held: &mut Held<'_>) -> bool {
    let mut wrote = false;
    while let Some((db, key)) = server.ready.pop_front() {
        let mut from = 0;
        let mut kind = None;
        let mut is_known = false;
        while let Some(waiter) = held.next_of(db, &key, from) {
            from = waiter.number + 1;
            if !is_known {
                // An unreadable or a closed store answers who asks; here nobody does.
                let Ok(found) = kind_of(server, Key { db, bytes: &key }) else { break };
                (kind, is_known) = (found, true);
            }
            if kind != Some(waiter.kind) && !waiter.on_other {
                if kind.is_none() && !held.is_other_awaited(db, &key) {
                    break;
                }
                continue;
            }
            // What the command changes is the client's own change, and is told behind its answer.
            let (served, pushes) =
                Tracking::on_behalf(waiter.client.id, || run_again(server, &waiter));
            let Some(served) = served else { continue };
            if server.store.region().planted().is(Planted::ServeTwice) {
                run_again(server, &waiter);
            }
            held.remove(waiter.client.id);
            if served.wrote {
                wrote = true;
                let spec = &table_for(&server.config)[waiter.command.row].spec;
                note_changed(server, spec, waiter.db, waiter.command.args());
            }
            server.shared.answer(server.number, served);
            server.shared.tracking.leave_all(pushes);
            if server.store.region().planted().is(Planted::ServeOne) {
                server.ready.clear();
                break;
            }
            is_known = false;
        }
    }
    wrote
}

/// The kind of a key, read with its shard held: what is found here is not older than the caller's
/// own changes, and a later change sees who waits.
fn kind_of(server: &Server<'_>, key: Key<'_>) -> Result<Option<Kind>, StoreError> {
    let store = server.store;
    let look = || store.run(Access::Key(key), |tx| Ok(tx.look(key).map(|entry| entry.kind)));
    Unreadable::catch(look).unwrap_or(Err(StoreError::Aborted("the value cannot be read")))
}

/// Runs the command of a client that waits; `None` if it still finds nothing.
fn run_again(server: &mut Server<'_>, waiter: &Waiter) -> Option<Served> {
    let row = waiter.command.row;
    let command = &table_for(&server.config)[row];
    let args = waiter.command.args();
    let mut out = Vec::new();
    let mut reply = Reply::new(&mut out, waiter.resp3, server.config.output_max_bytes);
    // The user may have changed since the client began to wait. One that is gone has lost its
    // clients.
    let denied = permit::check_waiter(server, &waiter.client, row, args)?;
    let handler = command.data()?;
    // Commands that wait have no steps.
    let data = (args, waiter.db, None);
    let run = || run_data(server, &mut reply, &command.spec, handler, data, &mut Done::default());
    let is_denied = denied.is_some();
    let outcome = match denied {
        Some(error) => Err(error),
        None => Unreadable::catch(run).unwrap_or_else(|unreadable| Err(unreadable.into())),
    };
    let time_ns = server.pass_time();
    server.note_busy(&command.spec, time_ns);
    let wrote = match outcome {
        Ok(Some(_)) => return None,
        Ok(None) => command.spec.has(flag::WRITE),
        Err(error) => {
            reply.rewind(0);
            reply.error(&error);
            false
        }
    };
    let errors = u64::from(reply.errors());
    if reply.overflowed() {
        // As with any reply that is too long: it is not sent, and the client is disconnected.
        server.stats.output_limit_disconnections.add(1);
        waiter.client.kill();
        server.shared.loops[waiter.client.of_loop].inbox.kill();
    }
    if is_denied {
        server.stats.by_command[row].rejected.add(1);
    } else {
        server.count_waiter(waiter, time_ns, errors > 0);
    }
    server.stats.errors.add(errors);
    reply.error_words().for_each(|word| server.own.count_error(word));
    if wrote {
        server.own.changes.add(1);
        server.own.user_bytes.add(command.spec.user_bytes(args));
    }
    Some(Served { client: Arc::clone(&waiter.client), reply: out, wrote })
}

/// The reply to a client whose wait has ended without data.
pub(crate) fn timeout_reply(resp3: bool) -> Vec<u8> {
    let mut out = Vec::new();
    Reply::new(&mut out, resp3, usize::MAX).null_array();
    out
}

/// CLIENT UNBLOCK id [TIMEOUT | ERROR]
pub(super) fn unblock(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let with_error = match args.len() {
        3 => false,
        4 if is(args.get(3), "TIMEOUT") => false,
        4 if is(args.get(3), "ERROR") => true,
        4 => return Err(CommandError::UnblockReason),
        _ => return Err(CommandError::subcommand(args)),
    };
    let id = parse_i64(args.get(2)).ok_or(CommandError::NotInteger)?;
    let shared: &Shared<'_> = ctx.server.shared;
    let id = u64::try_from(id).unwrap_or(0);
    let removed = match &mut ctx.server.waiters {
        Some(held) => held.remove(id),
        None => shared.waiters.lock().remove(id),
    };
    if let Some(waiter) = &removed {
        let mut reply = timeout_reply(waiter.resp3);
        ctx.server.count_waiter(waiter, 0, with_error);
        if with_error {
            reply.clear();
            Reply::new(&mut reply, waiter.resp3, usize::MAX).error(&CommandError::Unblocked);
            ctx.server.stats.errors.add(1);
        }
        let client = Arc::clone(&waiter.client);
        shared.answer(ctx.server.number, Served { client, reply, wrote: false });
    }
    ctx.reply.int(i64::from(removed.is_some()));
    Ok(())
}

impl Shared<'_> {
    /// Leaves the answer to a client that has waited with its loop, and wakes it if it is not the
    /// loop with this number.
    fn answer(&self, number: usize, served: Served) {
        let of_loop = served.client.of_loop;
        debug_assert!(served.client.slot.load(Relaxed) != crate::shared::NO_SLOT);
        self.loops[of_loop].inbox.answer(served);
        if of_loop != number {
            self.loops[of_loop].bell.ring();
        }
    }
}

/// What a test does between a client's first look at its keys and the moment in which it is noted
/// as waiting.
#[cfg(test)]
pub(crate) mod before_noted {
    use std::cell::RefCell;

    thread_local! {
        static STEP: RefCell<Option<Box<dyn FnOnce()>>> = RefCell::new(None);
    }

    /// Sets the step of the next client of this thread's loop that begins to wait.
    pub(crate) fn set(step: impl FnOnce() + 'static) {
        STEP.with(|place| *place.borrow_mut() = Some(Box::new(step)));
    }

    /// Takes the step, if one is set.
    pub(super) fn call() {
        let step = STEP.with(|place| place.borrow_mut().take());
        step.into_iter().for_each(|step| step());
    }
}
