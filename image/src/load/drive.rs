//! Loading the next segment, everything, or one block.

use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use perdura_dirty::planted::Planted;

use super::buffers::Buffers;
use super::loading::{Loading, Scope, Target};
use crate::error::OpenError;

/// Buffers kept for the next reader.
const BUFFERS_KEPT: usize = 4;

impl Loading {
    /// Loads the next segment that nobody has taken up. Returns false if there is none, though
    /// other threads may still be at work. After an error the segments behind it can still be
    /// loaded.
    pub(crate) fn load_next(&self, to: &Target<'_>) -> Result<bool, Arc<OpenError>> {
        loop {
            let place = self.next.fetch_add(1, Relaxed);
            let Some(segment) = self.order.get(place) else { return Ok(false) };
            let segment = *segment as usize;
            if self.segments_left[segment].load(Acquire) > 0 {
                let loaded = self.with_buffers(|own| self.load_segment(to, segment, own));
                return loaded.map(|()| true).map_err(|error| self.fail(error));
            }
        }
    }

    /// Loads everything, with nobody else at work; the first error ends it.
    pub fn load_all(self, to: &Target<'_>, threads: usize) -> Result<(), OpenError> {
        let load = || {
            while self.failure.get().is_none() && self.load_next(to).is_ok_and(|more| more) {}
        };
        let load = &load;
        std::thread::scope(|scope| {
            for _ in 1..threads {
                if std::thread::Builder::new().spawn_scoped(scope, load).is_err() {
                    break;
                }
            }
            load();
        });
        let is_complete = self.is_complete();
        match self.failure.into_inner().map(Arc::into_inner) {
            None => {
                assert!(is_complete, "memory is not made of what the tables say");
                Ok(())
            }
            Some(Some(error)) => Err(error),
            Some(None) => unreachable!("an error that somebody else holds, too"),
        }
    }

    fn load_segment(
        &self,
        to: &Target<'_>,
        segment: usize,
        buffers: &mut Buffers,
    ) -> Result<(), OpenError> {
        let mut numbers = self.by_segment[segment].iter();
        numbers.try_for_each(|number| {
            self.load_from(to, &self.tables[*number as usize], Scope::All, buffers)
        })
    }

    /// Loads one block, also while other threads are at work.
    pub(crate) fn load_block(&self, to: &Target<'_>, block: u64) -> Result<(), Arc<OpenError>> {
        let Some(left) = self.blocks_left.get(block as usize) else { return Ok(()) };
        let _asking = self.traffic.ask();
        let part = self.parts.of_block(block);
        let load = |buffers: &mut Buffers| {
            let small = self.small[part].of(self.parts.portion_of_block(block));
            for number in self.large.iter().chain(small) {
                let table = &self.tables[*number as usize];
                if !table.share(part).may_have(block) {
                    continue;
                }
                self.load_from(to, table, Scope::Block(block), buffers)?;
                if self.planted.is(Planted::LoadedTooEarly) {
                    (to.loaded)(block);
                    break;
                }
            }
            Ok(())
        };
        self.with_buffers(load).map_err(|error| self.fail(error))?;
        let is_whole = left.load(Acquire) == 0 || self.planted.is(Planted::LoadedTooEarly);
        assert!(is_whole, "block {block} is not made of what the tables say");
        Ok(())
    }

    fn with_buffers(
        &self,
        f: impl FnOnce(&mut Buffers) -> Result<(), OpenError>,
    ) -> Result<(), OpenError> {
        let kept = self.buffers.lock().pop();
        let mut own = match kept {
            Some(own) => own,
            None => {
                let number = self.buffers_made.fetch_add(1, Relaxed);
                // Each thread begins with another part, so that threads wait for each other less
                // and give memory to different parts.
                let first_part = number % BUFFERS_KEPT * self.parts.count / BUFFERS_KEPT;
                Buffers::new(self.geometry.segment_bytes as usize, first_part)?
            }
        };
        let outcome = f(&mut own);
        let mut buffers = self.buffers.lock();
        if buffers.len() < BUFFERS_KEPT {
            buffers.push(own);
        }
        outcome
    }
}
