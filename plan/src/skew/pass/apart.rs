//! Windows in a thread of their own: the two stages of a pass at the same time.
//!
//! Few [`Moves`] go round: full ones to the windows, empty ones back. Whoever is ahead waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use crate::skew::SkewError;

use super::moves::Moves;
use super::windows::{Found, Windows};

/// Moves under way.
const MOVES: usize = 3;

/// The second stage.
pub enum Stage {
    /// In the thread of the first.
    Here(Box<Windows>),
    /// In its own.
    Apart(Apart),
}

impl Stage {
    pub fn new(windows: Windows, apart: bool) -> Result<Self, SkewError> {
        match apart {
            true => Ok(Self::Apart(Apart::new(windows)?)),
            false => Ok(Self::Here(Box::new(windows))),
        }
    }

    /// Counts page writes; `moves` is empty then.
    pub fn count(&mut self, moves: &mut Moves) -> Result<(), SkewError> {
        match self {
            Self::Here(windows) => {
                windows.count(moves)?;
                moves.clear();
                Ok(())
            }
            Self::Apart(apart) => apart.count(moves),
        }
    }

    /// Bytes in temporary files; of windows apart, as they last said.
    pub fn spilled_bytes(&self) -> u64 {
        match self {
            Self::Here(windows) => windows.spilled_bytes(),
            Self::Apart(apart) => apart.spilled_bytes.load(Relaxed),
        }
    }

    /// The end, of so many volumes.
    pub fn finish(self, volumes: usize) -> Result<Found, SkewError> {
        match self {
            Self::Here(windows) => windows.finish(volumes),
            Self::Apart(mut apart) => {
                drop(apart.full.take());
                apart.join()?.finish(volumes)
            }
        }
    }
}

/// The thread and the ways to it.
pub struct Apart {
    /// None: there will be no more.
    full: Option<SyncSender<Moves>>,
    empty: Receiver<Moves>,
    thread: Option<JoinHandle<Result<Windows, SkewError>>>,
    spilled_bytes: Arc<AtomicU64>,
}

impl Apart {
    fn new(mut windows: Windows) -> Result<Self, SkewError> {
        let (full, to_count) = sync_channel::<Moves>(MOVES);
        let (counted, empty) = sync_channel(MOVES);
        (1..MOVES).for_each(|_| drop(counted.try_send(Moves::default())));
        let spilled_bytes = Arc::new(AtomicU64::new(0));
        let said = Arc::clone(&spilled_bytes);
        let work = move || {
            for mut moves in to_count {
                windows.count(&moves)?;
                moves.clear();
                said.store(windows.spilled_bytes(), Relaxed);
                // Nobody waits for it at the end.
                let _ = counted.send(moves);
            }
            Ok(windows)
        };
        let thread = std::thread::Builder::new().name("plan-windows".into()).spawn(work);
        let thread = Some(thread.map_err(SkewError::Thread)?);
        Ok(Self { full: Some(full), empty, thread, spilled_bytes })
    }

    fn count(&mut self, moves: &mut Moves) -> Result<(), SkewError> {
        let Ok(empty) = self.empty.recv() else { return self.failed() };
        let full = std::mem::replace(moves, empty);
        match self.full.as_ref().map(|to| to.send(full)) {
            Some(Ok(())) => Ok(()),
            _ => self.failed(),
        }
    }

    /// The thread has ended before the records did.
    #[cold]
    fn failed(&mut self) -> Result<(), SkewError> {
        self.join().and(Err(SkewError::Ended))
    }

    fn join(&mut self) -> Result<Windows, SkewError> {
        let thread = self.thread.take().ok_or(SkewError::Ended)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}
