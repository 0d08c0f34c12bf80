//! Counts windows in a thread of their own, so that both stages of a pass run at the same time.
//!
//! A few [`Moves`] circulate: full ones go to the windows, empty ones come back. The stage that is
//! ahead waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use crate::skew::SkewError;

use super::moves::Moves;
use super::windows::{Found, Windows};

/// How many moves are between the two threads.
const MOVES: usize = 3;

/// The second stage of a pass.
pub enum Stage {
    /// In the thread of the first stage.
    Here(Box<Windows>),
    /// In a thread of its own.
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

    /// The bytes in temporary files; of windows in their own thread, as they last said.
    pub fn spilled_bytes(&self) -> u64 {
        match self {
            Self::Here(windows) => windows.spilled_bytes(),
            Self::Apart(apart) => apart.spilled_bytes.load(Relaxed),
        }
    }

    /// Ends the windows of so many volumes.
    pub fn finish(self, volumes: usize) -> Result<Found, SkewError> {
        match self {
            Self::Here(windows) => windows.finish(volumes),
            Self::Apart(mut apart) => apart.end()?.finish(volumes),
        }
    }
}

/// The thread of the second stage and the ways to it. The thread does not outlive them.
pub struct Apart {
    /// `None` once there will be no more moves.
    full: Option<SyncSender<Moves>>,
    empty: Receiver<Moves>,
    /// `None` once the thread was waited for.
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
        let thread = Some(thread.map_err(|error| SkewError::Thread(Arc::new(error)))?);
        Ok(Self { full: Some(full), empty, thread, spilled_bytes })
    }

    fn count(&mut self, moves: &mut Moves) -> Result<(), SkewError> {
        // Both ways end when the thread has, which it does of itself only with an error.
        let Ok(empty) = self.empty.recv() else { return self.end().map(drop) };
        let full = std::mem::replace(moves, empty);
        match self.full.as_ref().map(|to| to.send(full)) {
            Some(Ok(())) => Ok(()),
            _ => self.end().map(drop),
        }
    }

    /// Waits for the thread to count what it was given.
    fn end(&mut self) -> Result<Windows, SkewError> {
        self.full = None;
        let thread = self.thread.take().ok_or(SkewError::Ended)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Apart {
    /// Ends the thread, so that it and its files are gone. A dropped analysis needs neither its
    /// result nor its error.
    fn drop(&mut self) {
        self.full = None;
        self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skew::Options;
    use crate::skew::queue::Instant;
    use crate::skew::table::NEVER;

    #[test]
    fn no_thread_is_left_of_an_analysis_that_is_dropped() {
        let mut apart = Apart::new(Windows::new(&Options::default(), 0)).unwrap();
        let mut moves = Moves::default();
        for time_ns in 0..100_000 {
            moves.push(Instant { time_ns, written: 1, volume: 0 }, true);
            moves.lasts.push(NEVER);
        }
        apart.count(&mut moves).unwrap();
        let shared = Arc::clone(&apart.spilled_bytes);
        drop(apart);
        // The thread had the other.
        assert_eq!(Arc::strong_count(&shared), 1);
    }
}
