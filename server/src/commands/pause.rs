//! CLIENT PAUSE: which commands wait until the pause ends.

use super::context::Server;
use super::dispatch::table_for;
use super::facts::shown;
use super::handler::Handler;
use super::scripts;
use crate::resp::Args;
use crate::session::Session;

/// Whether the pause that CLIENT PAUSE has asked for holds the command in a row of the table.
pub(super) fn is_paused(
    server: &mut Server<'_>,
    session: &Session,
    row: usize,
    args: Args<'_>,
) -> bool {
    let (until_ns, writes_only) = server.shared.pause.now();
    if server.now_ns >= until_ns {
        return false;
    }
    !writes_only
        || may_change(server, row, args)
        || matches!(table_for(&server.config)[row].handler, Handler::Exec)
            && session.multi.as_ref().is_some_and(|multi| {
                multi.queue.iter().any(|queued| may_change(server, queued.row, queued.args()))
            })
}

/// Whether a command may change data, or tell others something; of a script, whether it says that
/// it does not.
fn may_change(server: &mut Server<'_>, row: usize, args: Args<'_>) -> bool {
    match table_for(&server.config)[row].handler {
        Handler::Script(scripted) => scripts::may_write(server, scripted, args),
        _ => server.index.facts(row).has(shown::WRITE | shown::MAY_REPLICATE),
    }
}
