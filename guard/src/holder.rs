//! The holder: the process that keeps the memory of one server.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use perdura_media::Clock;
use perdura_region::holder::socket::{SOCKET_NAME, listen_at};
use perdura_region::holder::wire::{Message, receive, send};
use perdura_warning::Warnings;
use rustix::fs::Mode;

use crate::emergency::Flushes;
use crate::error::{HoldError, failed};
use crate::foreign::Closings;
use crate::held::{Held, State};
use crate::holding::{Holding, Role};
use crate::isolate;
use crate::neighbours::Neighbours;
use crate::sys::{Peer, Process, own_user};
use crate::visitor::Visitors;

/// Settings of a holder.
#[derive(Debug, Clone)]
pub struct HolderOptions {
    /// The region's directory, which gets the socket.
    pub dir: PathBuf,
    /// Threads that copy and write during an emergency flush.
    pub threads: usize,
}

/// Holds the memory that arrives on `link` until a warning makes this holder flush it, or until the
/// server says goodbye.
///
/// # Errors
/// No usable memory arrives, or the directory's socket cannot be made.
pub fn hold(
    link: OwnedFd,
    warnings: Warnings,
    clock: Arc<dyn Clock>,
    options: HolderOptions,
) -> Result<(), HoldError> {
    let first = receive(&link).map_err(failed("read from the server"))?;
    let Some((Message::Hold { times, rate_bytes_per_s }, fds)) = first else {
        return Err(HoldError::NothingToHold(format!("{first:?}")));
    };
    let closings = Closings::default();
    let fds = closings.take(fds, own_user());
    let server = Peer::of(&link).map_or(Process::of(0), |peer| peer.process);
    let alone = State::Alone { since_ns: clock.now_ns() };
    let mut held = Held::new(fds, own_user(), (times, rate_bytes_per_s), server, alone)?;
    let (left, spared) = (isolate::leave_server(), isolate::ask_to_be_spared());
    // For debugging only: most users would see this line before the server's own first words.
    tracing::debug!(%left, %spared, locked = %isolate::lock(&held.attachment), "holding memory");
    let socket = options.dir.join(SOCKET_NAME);
    // In place of a socket that a dead holder left: whoever starts a holder has the image's lock.
    let listener = listen_at(&socket, Mode::RUSR | Mode::WUSR)?;
    // A server that was killed meanwhile gets no answer, and its memory is held all the same.
    match send(&link, &Message::Ready, &[]) {
        Ok(()) => held.state = State::Linked { link, ending: None },
        Err(error) => {
            tracing::warn!(%error, "the server was gone before its memory was held");
        }
    }
    let holding = Holding {
        role: Role::Holder,
        listener,
        socket: Some(socket),
        warnings,
        told: None,
        flushes: Flushes::new(options.threads, Arc::clone(&clock))?,
        clock,
        held: vec![held],
        visitors: Visitors::default(),
        neighbours: Neighbours::default(),
        closings,
        drill: None,
        given_up: None,
    };
    holding.run()
}
