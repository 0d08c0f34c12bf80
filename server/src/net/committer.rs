//! The thread that makes groups durable while the loop goes on executing.
//!
//! Groups are numbered from 1 in the order in which they are executed. The loop *orders* a group
//! when all of it and all groups before it are done in memory. The thread commits everything up to
//! the last ordered group, and stores the number of the last durable group. It makes one commit at
//! a time, so the groups that are ordered meanwhile share the next one.
//!
//! The thread wakes the loop only if the loop has announced that it is about to wait. A loop that
//! executes commands checks the number by itself.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::{Scope, ScopedJoinHandle};

use perdura_region::{Planted, Region};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

/// The state that the loop and the thread share. All accesses are sequentially consistent: each
/// side writes its own word before it reads the other's, so that neither sleeps while the other
/// takes it to be awake.
#[derive(Debug)]
pub(super) struct Committer {
    /// The number of the last group whose writes are all done in memory.
    ordered: AtomicU64,
    /// The number of the last group that is durable; with [`FAILED`] set no later one will be.
    durable: AtomicU64,
    why: OnceLock<String>,
    ended: AtomicBool,
    loop_waits: AtomicBool,
    news: OwnedFd,
}

/// The progress of the commits that the loop has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Progress {
    pub durable: u64,
    pub failed: bool,
}

/// The loop's handle on the committing thread. When it is dropped the thread is told to end, and
/// begins no other commit.
pub(super) struct Orders<'s> {
    committer: &'s Committer,
    region: &'s Region,
    thread: Option<ScopedJoinHandle<'s, ()>>,
    /// Without a thread: brings a commit nearer to its end.
    helper: Option<&'s dyn Fn()>,
}

impl fmt::Debug for Orders<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Orders").field("committer", self.committer).finish_non_exhaustive()
    }
}

impl Committer {
    /// # Errors
    /// The system has no event file descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            ordered: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            why: OnceLock::new(),
            ended: AtomicBool::new(false),
            loop_waits: AtomicBool::new(false),
            news: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// # Errors
    /// The system refuses a thread.
    pub fn start<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        region: &'s Region,
    ) -> io::Result<Orders<'s>> {
        let thread = std::thread::Builder::new().name("perdura-commit".into());
        let thread = thread.spawn_scoped(scope, || self.serve(region))?;
        Ok(Orders { committer: self, region, thread: Some(thread), helper: None })
    }

    /// Gives the loop its handle without a thread: whoever has the committer makes the commits, by
    /// [`Committer::step`]. A loop that would wait for a commit calls `helper` until there is news.
    pub fn without_thread<'s>(&'s self, region: &'s Region, helper: &'s dyn Fn()) -> Orders<'s> {
        Orders { committer: self, region, thread: None, helper: Some(helper) }
    }

    /// Commits until the end is ordered. The thread ends with the first failure, because nobody
    /// knows then what the device has.
    fn serve(&self, region: &Region) {
        while let Some(group) = self.next() {
            self.commit_and_tell(region, group);
            if self.progress().failed {
                return;
            }
        }
    }

    /// Makes the commit that the thread would make next. Returns false if none is ordered, or one
    /// has failed.
    pub fn step(&self, region: &Region) -> bool {
        let (progress, ordered) = (self.progress(), self.ordered.load(SeqCst));
        let is_due = !progress.failed && ordered > progress.durable;
        if is_due {
            self.commit_and_tell(region, ordered);
        }
        is_due
    }

    fn commit_and_tell(&self, region: &Region, group: u64) {
        self.commit(region, group);
        if self.loop_waits.swap(false, SeqCst) {
            // Fails only when the counter is full: then the loop is awake already.
            let _ = rustix::io::write(&self.news, &1u64.to_ne_bytes());
        }
    }

    fn commit(&self, region: &Region, group: u64) {
        let planted = region.planted();
        if planted.is(Planted::ReplyBeforeGroup) {
            self.durable.store(group, SeqCst);
        }
        match region.commit_group() {
            Ok(()) if planted.is(Planted::CountLateGroups) => {
                self.durable.store(group.max(self.ordered.load(SeqCst)), SeqCst);
            }
            Ok(()) => self.durable.store(group, SeqCst),
            Err(_) if planted.is(Planted::ReplyThoughFailed) => self.durable.store(group, SeqCst),
            Err(error) => {
                tracing::error!(%error, "a group commit failed; no more writes are accepted");
                self.why.get_or_init(|| error.to_string());
                self.durable.fetch_or(FAILED, SeqCst);
            }
        }
    }

    /// Waits for an order and returns the last group ordered; `None` at the end.
    fn next(&self) -> Option<u64> {
        let mut spins = SPINS;
        while !self.ended.load(SeqCst) {
            let ordered = self.ordered.load(SeqCst);
            if ordered > self.progress().durable {
                return Some(ordered);
            }
            if spins > 0 {
                spins -= 1;
                std::hint::spin_loop();
            } else {
                std::thread::park();
            }
        }
        None
    }

    fn progress(&self) -> Progress {
        let word = self.durable.load(SeqCst);
        Progress { durable: word & !FAILED, failed: word & FAILED != 0 }
    }
}

impl Orders<'_> {
    /// Orders the commit of everything up to `group`, which has been executed. A group that
    /// `is_small` is durable, or has failed, when this returns, unless a commit is on its way.
    pub fn order(&self, group: u64, is_small: bool) {
        let (progress, ordered) = (self.progress(), self.committer.ordered.load(SeqCst));
        let is_small = is_small && !self.region.planted().is(Planted::ReplyBeforeGroup);
        if is_small && !progress.failed && progress.durable == ordered {
            // The group is made durable before it is ordered, so the idle thread finds nothing to
            // do.
            if self.region.planted().is(Planted::SkipSmallGroups) {
                self.committer.durable.store(group, SeqCst);
            } else {
                self.committer.commit(self.region, group);
            }
            if !self.progress().failed {
                self.committer.ordered.store(group, SeqCst);
            }
            return;
        }
        self.committer.ordered.store(group, SeqCst);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }

    pub fn progress(&self) -> Progress {
        self.committer.progress()
    }

    /// The error of the first commit that failed, if one has.
    pub fn why(&self) -> &str {
        self.committer.why.get().map_or("", String::as_str)
    }

    /// Asks to be woken by news beyond `seen`. True: there are some already.
    pub fn call_me(&self, seen: Progress) -> bool {
        self.committer.loop_waits.store(true, SeqCst);
        self.progress() != seen
    }

    /// Notes that the loop is awake for another reason and need not be woken.
    pub fn awake(&self) {
        self.committer.loop_waits.store(false, SeqCst);
    }

    /// Empties the event descriptor that the loop was woken by.
    pub fn heard(&self) {
        // An empty descriptor is no error: the event was read before.
        let _ = rustix::io::read(&self.committer.news, &mut [0; 8]);
    }

    /// Waits for news beyond `seen`.
    ///
    /// # Errors
    /// The system cannot wait.
    pub fn wait(&self, seen: Progress) -> io::Result<()> {
        while !self.call_me(seen) {
            if let Some(helper) = self.helper {
                helper();
                continue;
            }
            match poll(&mut [PollFd::new(&self.committer.news, PollFlags::IN)], None) {
                Ok(_) => self.heard(),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.awake();
        Ok(())
    }

    /// Ends the thread: when this returns the commit that was on its way is over, and no other will
    /// begin.
    pub fn end(&mut self) {
        self.committer.ended.store(true, SeqCst);
        let Some(thread) = self.thread.take() else { return };
        thread.thread().unpark();
        if thread.join().is_err() {
            tracing::error!("the committing thread panicked");
        }
    }
}

impl Drop for Orders<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

impl AsFd for Orders<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.committer.news.as_fd()
    }
}

const FAILED: u64 = 1 << 63;
/// Times that the thread looks for a new order before it sleeps. After a commit the next order
/// often comes within a moment, and to sleep and be woken costs more than that moment.
const SPINS: u32 = 1000;

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use perdura_media::faulty::{FaultPlan, FaultyDevice};
    use perdura_media::sim::SimDevice;
    use perdura_media::{BlockBuf, Device, SimClock};
    use perdura_region::{Config, LaneId};

    use super::*;

    struct World {
        device: SimDevice,
        plan: Arc<FaultPlan>,
        region: Region,
    }

    fn config() -> Config {
        Config {
            segment_bytes: Some(64 << 10),
            reserved_bytes: Some(1 << 20),
            lanes: Some(1),
            thread: false,
            checkpoint_every: None,
            ..Config::new(1 << 20, 128 << 10)
        }
    }

    impl World {
        fn new() -> Self {
            let (device, plan) = (SimDevice::new(0, 1), Arc::new(FaultPlan::new()));
            let clock = Arc::new(SimClock::new(1));
            let faulty = FaultyDevice::new(device.clone(), Arc::clone(&plan), clock.clone());
            let region = Region::open(Arc::new(faulty), clock, config()).unwrap();
            Self { device, plan, region }
        }

        fn write(&self, value: u64) {
            self.region.lock(LaneId(0)).store(0, value).unwrap();
        }

        /// What is there if the power fails now.
        fn durable(&self) -> u64 {
            let found = self.device.snapshot_durable();
            let mut bytes = BlockBuf::zeroed(found.len());
            bytes.copy_from_slice(&found);
            let copy = SimDevice::new(found.len() as u64, 0);
            copy.write_at(0, &bytes).unwrap();
            let clock = Arc::new(SimClock::new(1));
            Region::open(Arc::new(copy), clock, config()).unwrap().peek(0)
        }
    }

    fn progress(durable: u64, failed: bool) -> Progress {
        Progress { durable, failed }
    }

    #[test]
    fn a_small_group_is_durable_at_once_unless_one_before_it_is_not() {
        let (world, committer) = (World::new(), Committer::new().unwrap());
        let orders = committer.without_thread(&world.region, &|| {});
        world.write(1);
        orders.order(1, true);
        assert_eq!((orders.progress(), world.durable()), (progress(1, false), 1));
        assert!(!committer.step(&world.region), "a group that is durable is committed again");
        world.write(2);
        orders.order(2, false);
        world.write(3);
        orders.order(3, true);
        assert_eq!((orders.progress(), world.durable()), (progress(1, false), 1));
        // The groups that were ordered meanwhile share a commit.
        let before = world.region.stats().group_commits;
        assert!(committer.step(&world.region) && !committer.step(&world.region));
        assert_eq!(world.region.stats().group_commits, before + 1);
        assert_eq!((orders.progress(), world.durable()), (progress(3, false), 3));
        world.write(4);
        orders.order(4, true);
        assert_eq!((orders.progress(), world.durable()), (progress(4, false), 4));
        assert_eq!(orders.why(), "");
    }

    #[test]
    fn after_a_failed_commit_no_group_is_durable_and_the_first_error_is_told() {
        for is_small in [true, false] {
            let (world, committer) = (World::new(), Committer::new().unwrap());
            let orders = committer.without_thread(&world.region, &|| {});
            world.write(1);
            orders.order(1, true);
            world.plan.fail_flush(1);
            world.write(2);
            orders.order(2, is_small);
            assert_eq!(committer.step(&world.region), !is_small);
            assert_eq!(orders.progress(), progress(1, true));
            let why = orders.why().to_owned();
            assert!(!why.is_empty());
            orders.order(3, is_small);
            assert!(!committer.step(&world.region), "a commit after one that failed");
            assert_eq!((orders.progress(), orders.why()), (progress(1, true), why.as_str()));
        }
    }

    #[test]
    fn a_loop_that_waits_is_woken_by_news_and_one_that_is_awake_is_not() {
        let (world, committer) = (World::new(), Committer::new().unwrap());
        let orders = committer.without_thread(&world.region, &|| {});
        let is_woken = || {
            let mut fds = [PollFd::new(&committer.news, PollFlags::IN)];
            let slice = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            let woken = poll(&mut fds, Some(&slice)).unwrap() > 0;
            orders.heard();
            woken
        };
        for (number, waits) in [(1, false), (2, true), (3, false), (4, true)] {
            let seen = orders.progress();
            if waits {
                assert!(!orders.call_me(seen), "there is no news");
            }
            orders.order(number, false);
            assert!(!is_woken());
            assert!(committer.step(&world.region));
            assert_eq!(is_woken(), waits, "group {number}");
            assert!(!is_woken(), "woken twice");
            assert!(orders.call_me(seen), "news is there before the wait");
            orders.awake();
        }
    }

    #[test]
    fn who_waits_without_a_thread_helps_until_there_is_news() {
        let (world, committer) = (World::new(), Committer::new().unwrap());
        let calls = Cell::new(0);
        let helper = || {
            calls.set(calls.get() + 1);
            if calls.get() == 3 {
                assert!(committer.step(&world.region));
            }
        };
        let orders = committer.without_thread(&world.region, &helper);
        orders.order(1, false);
        orders.wait(progress(0, false)).unwrap();
        assert_eq!((calls.get(), orders.progress()), (3, progress(1, false)));
        assert!(!committer.loop_waits.load(SeqCst));
    }

    #[test]
    fn the_thread_makes_what_is_ordered_durable_and_nothing_after_its_end() {
        let (world, committer) = (World::new(), Committer::new().unwrap());
        std::thread::scope(|scope| {
            let mut orders = committer.start(scope, &world.region).unwrap();
            for group in 1..5 {
                world.write(group);
                let seen = orders.progress();
                orders.order(group, false);
                orders.wait(seen).unwrap();
                assert_eq!((orders.progress(), world.durable()), (progress(group, false), group));
            }
            orders.end();
            world.write(5);
            orders.order(5, false);
            assert_eq!((orders.progress(), world.durable()), (progress(4, false), 4));
        });
    }
}
