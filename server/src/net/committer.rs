//! The thread that makes groups durable while the loops go on executing.
//!
//! Each loop numbers its groups from 1 in the order in which they are executed. A loop *orders* a
//! group when all of it and all groups before it are done in memory. The thread commits everything
//! that any loop has ordered, and stores the number of each loop's last durable group. One commit
//! is made at a time, so the groups that are ordered meanwhile, of all loops, share the next one.
//!
//! The thread wakes a loop only if the loop has announced that it is about to wait. A loop that
//! executes commands checks the number by itself.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::{Scope, ScopedJoinHandle, Thread};

use perdura_region::{Planted, Region};

use crate::shared::Bell;

/// The state that the loops and the thread share. All accesses are sequentially consistent: each
/// side writes its own word before it reads the other's, so that neither sleeps while the other
/// takes it to be awake.
#[derive(Debug)]
pub(super) struct Committer {
    desks: Box<[Desk]>,
    failed: AtomicBool,
    why: OnceLock<String>,
    ended: AtomicBool,
    /// Held by whoever makes a commit.
    committing: Mutex<()>,
    thread: OnceLock<Thread>,
}

/// What concerns one loop. The alignment keeps the loops' cache lines apart.
#[derive(Debug)]
#[repr(align(128))]
struct Desk {
    /// Whether the loop may be executing writes that no group which is ordered has.
    writes: AtomicBool,
    /// The number of the last group whose writes are all done in memory.
    ordered: AtomicU64,
    /// The number of the last group that is durable.
    durable: AtomicU64,
    bell: Arc<Bell>,
}

/// The progress of the commits that a loop has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Progress {
    pub durable: u64,
    pub failed: bool,
}

/// A loop's handle on the committing thread.
pub(super) struct Orders<'s> {
    committer: &'s Committer,
    /// Number of the loop.
    number: usize,
    region: &'s Region,
    /// Without a thread: brings a commit nearer to its end.
    helper: Option<&'s dyn Fn()>,
}

impl fmt::Debug for Orders<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Orders").field("committer", self.committer).finish_non_exhaustive()
    }
}

impl Committer {
    /// A committer for the loops that these bells wake.
    pub fn new(bells: impl Iterator<Item = Arc<Bell>>) -> Self {
        let desk = |bell| Desk {
            writes: AtomicBool::new(false),
            ordered: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            bell,
        };
        Self {
            desks: bells.map(desk).collect(),
            failed: AtomicBool::new(false),
            why: OnceLock::new(),
            ended: AtomicBool::new(false),
            committing: Mutex::new(()),
            thread: OnceLock::new(),
        }
    }

    /// # Errors
    /// The system refuses a thread.
    pub fn start<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        region: &'s Region,
    ) -> io::Result<ScopedJoinHandle<'s, ()>> {
        let thread = std::thread::Builder::new().name("perdura-commit".into());
        let thread = thread.spawn_scoped(scope, || self.serve(region))?;
        self.thread.get_or_init(|| thread.thread().clone());
        Ok(thread)
    }

    /// Gives a loop its handle. Without a `helper` there is a thread; with one, whoever has the
    /// committer makes the commits, by [`Committer::step`], and a loop that would wait for a commit
    /// calls `helper` until there is news.
    pub fn orders<'s>(
        &'s self,
        number: usize,
        region: &'s Region,
        helper: Option<&'s dyn Fn()>,
    ) -> Orders<'s> {
        Orders { committer: self, number, region, helper }
    }

    /// Commits until the end is ordered. The thread ends with the first failure, because nobody
    /// knows then what the device has.
    fn serve(&self, region: &Region) {
        let mut spins = SPINS;
        while !self.ended.load(SeqCst) && !self.failed.load(SeqCst) {
            if self.step(region) {
                spins = SPINS;
            } else if spins > 0 {
                spins -= 1;
                std::hint::spin_loop();
            } else {
                std::thread::park();
                spins = SPINS;
            }
        }
    }

    /// Makes the commit that the thread would make next. Returns false if none is ordered, or one
    /// has failed.
    pub fn step(&self, region: &Region) -> bool {
        if !self.is_due() {
            return false;
        }
        let _held = self.lock();
        // A loop may have made the commit meanwhile, or the end may have been ordered.
        let is_due = self.is_due() && !self.ended.load(SeqCst);
        if is_due {
            self.commit(region, None);
        }
        is_due
    }

    fn is_due(&self) -> bool {
        let is_due = |desk: &Desk| desk.ordered.load(SeqCst) > desk.durable.load(SeqCst);
        !self.failed.load(SeqCst) && self.desks.iter().any(is_due)
    }

    /// Commits all that is ordered, and `own`, a loop's number and its group that is not ordered
    /// yet. The caller holds `committing`.
    fn commit(&self, region: &Region, own: Option<(usize, u64)>) {
        let planted = region.planted();
        let ordered = |desk: &Desk| desk.ordered.load(SeqCst);
        let mut groups: Vec<u64> = self.desks.iter().map(ordered).collect();
        if let Some((number, group)) = own {
            groups[number] = group;
        }
        if planted.is(Planted::ReplyBeforeGroup) {
            self.tell(&groups, own);
        }
        match region.commit_group() {
            Ok(()) if planted.is(Planted::CountLateGroups) => {
                let late = |(group, desk): (u64, &Desk)| group.max(ordered(desk));
                let groups: Vec<u64> = groups.into_iter().zip(&self.desks).map(late).collect();
                self.tell(&groups, own);
            }
            Ok(()) => self.tell(&groups, own),
            Err(_) if planted.is(Planted::ReplyThoughFailed) => self.tell(&groups, own),
            Err(error) => {
                tracing::error!(%error, "a group commit failed; no more writes are accepted");
                self.why.get_or_init(|| error.to_string());
                self.failed.store(true, SeqCst);
                self.desks.iter().for_each(|desk| desk.bell.ring_if_waited_for());
            }
        }
    }

    /// Stores which groups are durable, and wakes the loops that wait for them.
    fn tell(&self, groups: &[u64], own: Option<(usize, u64)>) {
        for (number, (desk, group)) in self.desks.iter().zip(groups).enumerate() {
            if desk.durable.load(SeqCst) < *group {
                desk.durable.store(*group, SeqCst);
                if own.is_none_or(|(own, _)| own != number) {
                    desk.bell.ring_if_waited_for();
                }
            }
        }
    }

    fn progress(&self, number: usize) -> Progress {
        let durable = self.desks[number].durable.load(SeqCst);
        Progress { durable, failed: self.failed.load(SeqCst) }
    }

    /// Begins no other commit. When this returns, the one that was on its way is over.
    pub fn end(&self) {
        self.ended.store(true, SeqCst);
        // A loop may wait for a commit that is not made any more.
        self.desks.iter().for_each(|desk| desk.bell.ring());
        if let Some(thread) = self.thread.get() {
            thread.unpark();
            drop(self.lock());
        }
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.committing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Orders<'_> {
    fn desk(&self) -> &Desk {
        &self.committer.desks[self.number]
    }

    /// Says that the loop may execute writes from now on: other loops may read them.
    pub fn begin_writes(&self) {
        self.desk().writes.store(true, SeqCst);
    }

    /// Says that all writes which the loop has executed are in a group that is ordered.
    pub fn end_writes(&self) {
        self.desk().writes.store(false, SeqCst);
    }

    /// Whether another loop has executed writes that are not durable, or may have. What this loop
    /// has read before it asks is counted.
    pub fn others_have_writes(&self) -> bool {
        if self.region.planted().is(Planted::ReadOthersWrites) {
            return false;
        }
        let others = self.committer.desks.iter().enumerate().filter(|(at, _)| *at != self.number);
        // A loop orders its group before it says that it writes no more.
        others.map(|(_, desk)| desk).any(|desk| {
            desk.writes.load(SeqCst) || desk.ordered.load(SeqCst) > desk.durable.load(SeqCst)
        })
    }

    /// Orders the commit of everything up to `group`, which has been executed. A group that
    /// `is_small` is durable, or has failed, when this returns, unless a commit is on its way.
    pub fn order(&self, group: u64, is_small: bool) {
        if !(is_small && self.commit_at_once(group)) {
            self.desk().ordered.store(group, SeqCst);
            if let Some(thread) = self.committer.thread.get() {
                thread.unpark();
            }
        }
    }

    /// Commits a group on the loop's own thread, unless a commit is on its way. True if nothing is
    /// left to be ordered.
    fn commit_at_once(&self, group: u64) -> bool {
        let (committer, desk) = (self.committer, self.desk());
        let progress = self.progress();
        let is_free = !progress.failed
            && progress.durable == desk.ordered.load(SeqCst)
            && !committer.ended.load(SeqCst)
            && !self.region.planted().is(Planted::ReplyBeforeGroup);
        if !is_free {
            return false;
        }
        let _held = match committer.committing.try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(held)) => held.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        if committer.ended.load(SeqCst) {
            // Another loop has ended the commits since this one looked.
            return false;
        }
        // The group is made durable before it is ordered, so the idle thread finds nothing to do.
        if self.region.planted().is(Planted::SkipSmallGroups) {
            desk.durable.store(group, SeqCst);
        } else {
            committer.commit(self.region, Some((self.number, group)));
        }
        if !self.progress().failed {
            desk.ordered.store(group, SeqCst);
        }
        true
    }

    pub fn progress(&self) -> Progress {
        self.committer.progress(self.number)
    }

    /// The error of the first commit that failed, if one has.
    pub fn why(&self) -> &str {
        self.committer.why.get().map_or("", String::as_str)
    }

    /// Asks to be woken by news beyond `seen`. True: there are some already.
    pub fn call_me(&self, seen: Progress) -> bool {
        self.desk().bell.call_me();
        self.progress() != seen
    }

    /// Notes that the loop is awake for another reason and need not be woken.
    pub fn awake(&self) {
        self.desk().bell.awake();
    }

    /// Waits for news beyond `seen`, or for the end of commits.
    ///
    /// # Errors
    /// The system cannot wait.
    pub fn wait(&self, seen: Progress) -> io::Result<()> {
        while !self.call_me(seen) && !self.has_ended() {
            match self.helper {
                Some(helper) => helper(),
                None => self.desk().bell.wait()?,
            }
        }
        self.awake();
        Ok(())
    }

    /// Whether no other commit will be begun.
    pub fn has_ended(&self) -> bool {
        self.committer.ended.load(SeqCst)
    }

    /// Begins no other commit, of any loop. When this returns, the one that was on its way is over.
    pub fn end(&self) {
        self.committer.end();
    }
}

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

    use rustix::event::{PollFd, PollFlags, poll};

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

    fn of_loops(count: usize) -> Committer {
        Committer::new((0..count).map(|_| Arc::new(Bell::new().unwrap())))
    }

    fn one_loop() -> Committer {
        of_loops(1)
    }

    fn progress(durable: u64, failed: bool) -> Progress {
        Progress { durable, failed }
    }

    #[test]
    fn a_small_group_is_durable_at_once_unless_one_before_it_is_not() {
        let (world, committer) = (World::new(), one_loop());
        let orders = committer.orders(0, &world.region, Some(&|| {}));
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
            let (world, committer) = (World::new(), one_loop());
            let orders = committer.orders(0, &world.region, Some(&|| {}));
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
        let (world, committer) = (World::new(), one_loop());
        let orders = committer.orders(0, &world.region, Some(&|| {}));
        let is_woken = || {
            let bell = &committer.desks[0].bell;
            let mut fds = [PollFd::new(bell, PollFlags::IN)];
            let slice = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            let woken = poll(&mut fds, Some(&slice)).unwrap() > 0;
            bell.heard();
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
        let (world, committer) = (World::new(), one_loop());
        let calls = Cell::new(0);
        let helper = || {
            calls.set(calls.get() + 1);
            if calls.get() == 3 {
                assert!(committer.step(&world.region));
            }
        };
        let orders = committer.orders(0, &world.region, Some(&helper));
        orders.order(1, false);
        orders.wait(progress(0, false)).unwrap();
        assert_eq!((calls.get(), orders.progress()), (3, progress(1, false)));
        assert!(!committer.desks[0].bell.is_waited_for());
    }

    #[test]
    fn the_thread_makes_what_is_ordered_durable_and_nothing_after_its_end() {
        let (world, committer) = (World::new(), one_loop());
        std::thread::scope(|scope| {
            committer.start(scope, &world.region).unwrap();
            let orders = committer.orders(0, &world.region, None);
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

    #[test]
    fn groups_of_several_loops_share_a_commit_and_each_loop_is_told_of_its_own() {
        let (world, committer) = (World::new(), of_loops(3));
        let orders = [0, 1, 2].map(|number| committer.orders(number, &world.region, Some(&|| {})));
        world.write(1);
        orders[0].order(1, false);
        orders[2].order(7, false);
        let before = world.region.stats().group_commits;
        assert!(committer.step(&world.region) && !committer.step(&world.region));
        assert_eq!(world.region.stats().group_commits, before + 1);
        let durable = |orders: &[Orders<'_>; 3]| orders.each_ref().map(|o| o.progress().durable);
        assert_eq!((durable(&orders), world.durable()), ([1, 0, 7], 1));
        // A commit that a loop makes itself is one for all that is ordered, too.
        world.write(2);
        orders[0].order(2, false);
        orders[1].order(1, true);
        assert!(!committer.step(&world.region));
        assert_eq!((durable(&orders), world.durable()), ([2, 1, 7], 2));
    }

    #[test]
    fn a_loop_knows_of_writes_of_others_until_they_are_durable() {
        let (world, committer) = (World::new(), of_loops(2));
        let [one, other] =
            [0, 1].map(|number| committer.orders(number, &world.region, Some(&|| {})));
        let seen = || (one.others_have_writes(), other.others_have_writes());
        assert_eq!(seen(), (false, false));
        one.begin_writes();
        assert_eq!(seen(), (false, true));
        one.order(1, false);
        one.end_writes();
        assert_eq!(seen(), (false, true), "the group is ordered and not durable");
        assert!(committer.step(&world.region));
        assert_eq!(seen(), (false, false));
    }

    #[test]
    fn no_commit_is_begun_after_the_end() {
        let (world, committer) = (World::new(), of_loops(2));
        let orders = committer.orders(1, &world.region, Some(&|| {}));
        orders.end();
        world.write(1);
        orders.order(1, true);
        assert!(!committer.step(&world.region));
        assert_eq!((orders.progress(), world.durable()), (progress(0, false), 0));
    }
}
