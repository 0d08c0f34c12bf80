//! Checkpoints and compaction of a replayed region, in the steps of `region/src/checkpoint.rs` and
//! `image/src/compact.rs`.

use perdura_dirty::geometry::COMPACTION_FRAMES;
use perdura_dirty::policy::hands::Stretch;
use perdura_dirty::policy::pace::DRAIN_STEP_TRAPPED_BYTES;
use perdura_dirty::policy::space::{Ahead, FRUITLESS_MAX, FirstLook};
use perdura_image::format::commit_bytes;

use super::cleaner::{Cleaner, LogFull, Pump};
use super::config::Planted;
use super::log::Refusal;
use super::outcome::Cause;
use super::pages::WORD_PAGES;

impl Cleaner {
    pub async fn checkpoint(&mut self) -> Result<(), LogFull> {
        self.ensure_space().await?;
        self.commit().await
    }

    /// Cuts, writes all that is dirty at the cut, and commits.
    async fn commit(&mut self) -> Result<(), LogFull> {
        if self.world().pages.is_closing {
            // An earlier checkpoint ran out of log space: what it still owes comes first.
            self.finish_closing().await?;
        }
        self.world().pages.cut();
        self.finish_closing().await?;
        self.commit_slot().await;
        let mut world = self.world();
        world.log.free_dead();
        world.note_space();
        world.tally.checkpoints += 1;
        world.room_version += 1;
        Ok(())
    }

    async fn finish_closing(&mut self) -> Result<(), LogFull> {
        self.drain().await?;
        {
            let mut world = self.world();
            world.log.close_frame();
            world.pages.is_closing = false;
        }
        self.pump(Pump::Durable).await;
        Ok(())
    }

    /// Writes both copies of the slot, one after the other, and flushes the device.
    async fn commit_slot(&mut self) {
        let (copy_bytes, begun) = {
            let world = self.world();
            (commit_bytes(world.log.segments()) / 2, world.log.begun)
        };
        for _ in 0..2 {
            let done_ns = self.world().write(copy_bytes);
            self.wait_until(done_ns).await;
        }
        let done_ns = {
            let mut world = self.world();
            world.tally.device_flushes += 1;
            world.channel.flush(world.now_ns)
        };
        self.wait_until(done_ns).await;
        self.committed = begun;
    }

    /// Copies every page that the closing epoch still owes.
    async fn drain(&mut self) -> Result<(), LogFull> {
        let mut from = 0;
        loop {
            self.serve_urgent().await?;
            let (swept, words) = {
                let mut world = self.world();
                let words = world.pages.words;
                let stretch = Stretch { from, to: words, spares: false };
                (world.sweep(None, stretch, DRAIN_STEP_TRAPPED_BYTES), words)
            };
            self.in_flight_bytes += swept.bytes;
            match swept.refusal {
                None if swept.next >= words => return Ok(()),
                None => _ = self.pump(Pump::Poll).await,
                Some(Refusal::NoBuffer) => _ = self.pump(Pump::One).await,
                Some(Refusal::NoSegment) => return Err(LogFull),
            }
            from = swept.next;
        }
    }

    /// Copies the owed page that a store waits for, before the drain comes to it.
    async fn serve_urgent(&mut self) -> Result<(), LogFull> {
        let Some(page) = self.world().urgent.take() else { return Ok(()) };
        let (word, bit) = (page as usize / WORD_PAGES, 1 << (page as usize % WORD_PAGES));
        loop {
            let refusal = {
                let mut world = self.world();
                if world.pages.owed().word(word) & bit == 0 {
                    return Ok(());
                }
                world.unblocked_version += 1;
                world.append_dirty(true, word, bit, Cause::Checkpoint).1
            };
            match refusal {
                None => return Ok(()),
                Some(Refusal::NoBuffer) => _ = self.pump(Pump::One).await,
                Some(Refusal::NoSegment) => return Err(LogFull),
            }
        }
    }

    /// Keeps enough spare segments for a whole drain.
    pub async fn ensure_space(&mut self) -> Result<(), LogFull> {
        let ahead = {
            let world = self.world();
            let (space, spare) = (world.log.space(), world.log.spare());
            match space.first_look(spare) {
                FirstLook::Ample => return Ok(()),
                FirstLook::Needed => None,
                FirstLook::Survey => Some(space.ahead(spare, &world.log.survey(), true)),
            }
        };
        match ahead {
            None => self.make_space().await,
            Some(Ahead::Nothing) => Ok(()),
            Some(Ahead::Commit) => self.commit().await,
            Some(Ahead::Empty(victims)) => {
                for victim in victims.into_iter().flatten() {
                    self.compact(victim).await?;
                }
                Ok(())
            }
        }
    }

    async fn make_space(&mut self) -> Result<(), LogFull> {
        let mut compactions_left = self.world().log.segments();
        let mut fruitless = 0;
        while fruitless < FRUITLESS_MAX {
            let (spare, victim) = {
                let world = self.world();
                let (space, spare) = (world.log.space(), world.log.spare());
                if !space.is_short(spare) {
                    return Ok(());
                }
                (spare, space.needed(spare, &world.log.survey(), world.used_bytes))
            };
            if let Some(victim) = victim
                && compactions_left > 0
            {
                self.compact(victim).await?;
                compactions_left -= 1;
                continue;
            }
            self.commit().await?;
            let has_gained = self.world().log.spare() > spare;
            fruitless = if has_gained { 0 } else { fruitless + 1 };
        }
        Ok(())
    }

    /// Moves what a segment holds, so that it is empty.
    async fn compact(&mut self, victim: u32) -> Result<(), LogFull> {
        let Some(is_being_written) = self.world().log.begin_emptying(victim) else {
            return Ok(());
        };
        if is_being_written {
            self.pump(Pump::Durable).await;
        }
        if self.world().planted == Planted::NoCompaction {
            self.world().log.forget(victim);
            return Ok(());
        }
        let reads = self.world().log.table_reads(victim);
        for bytes in reads {
            let done_ns = {
                let mut world = self.world();
                let now_ns = world.now_ns;
                world.channel.read(now_ns, bytes)
            };
            self.wait_until(done_ns).await;
        }
        let runs = self.world().log.runs_of(victim);
        for (from, len) in runs {
            self.move_run(victim, from, len).await?;
        }
        Ok(())
    }

    async fn move_run(&mut self, victim: u32, from: u32, len: u32) -> Result<(), LogFull> {
        let has_moved = loop {
            if let Some(has_moved) = self.move_word(victim, from, len)? {
                break has_moved;
            }
            self.pump(Pump::One).await;
            self.serve_stores_nested().await?;
        };
        if !has_moved {
            return Ok(());
        }
        // Nobody has paid for the time to write these again: only so many.
        while self.world().log.buffers_in_use() > COMPACTION_FRAMES {
            let before = self.world().log.buffers_in_use();
            self.pump(Pump::One).await;
            if self.world().log.buffers_in_use() == before {
                self.pump(Pump::Durable).await;
                break;
            }
        }
        Ok(())
    }

    /// Moves what lives in `victim` of a run within one word. Returns whether anything does;
    /// `None`: no buffer, try again.
    fn move_word(&mut self, victim: u32, from: u32, len: u32) -> Result<Option<bool>, LogFull> {
        let mut world = self.world();
        let lives = world.log.living_in(victim, from, len);
        if lives == 0 {
            return Ok(Some(false));
        }
        let word = from as usize / WORD_PAGES;
        world.pages.close(word, lives);
        // A dirty page met here is cleaned: its bytes stay charged until they are durable.
        let dirty = world.pages.current().word(word) & lives;
        let (_, mut refusal) = world.append_dirty(false, word, dirty, Cause::Compaction);
        let mut clean = lives & !dirty;
        while clean != 0 && refusal.is_none() {
            refusal = world.append_run(word, &mut clean, false, Cause::Compaction).err();
        }
        world.note_space();
        world.pages.reopen(word, lives);
        world.unblocked_version += 1;
        match refusal {
            None => Ok(Some(true)),
            Some(Refusal::NoBuffer) => Ok(None),
            Some(Refusal::NoSegment) => Err(LogFull),
        }
    }
}
