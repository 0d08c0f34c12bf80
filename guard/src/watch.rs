//! The two threads: one heeds warnings, the other meets demands.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use perdura_media::Clock;
use perdura_region::holder::Voice;
use perdura_region::{Region, RegionError};
use perdura_warning::{Confidence, Demand, Reading, Response, State, Warnings};

use crate::keeper::{Keeper, Most, Writers};

/// Time until what could not be met is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// Everything that the two threads need.
pub struct Watch {
    /// The sources to heed.
    pub warnings: Warnings,
    /// What readings demand.
    pub response: Response,
    /// The clock that `response` is given.
    pub clock: Arc<dyn Clock>,
    /// Those who write to the region.
    pub writers: Arc<dyn Writers>,
    /// Threads that a drill flushes with.
    pub flush_threads: usize,
    /// What is ordered beside the demands of the power; with a guard, that of
    /// [`crate::GuardEar::orders`].
    pub orders: Arc<Orders>,
    /// The way to answer a guard; without one, nobody hears it.
    pub voice: Voice,
}

impl Watch {
    /// Starts both threads. `with_region` calls what it is given with the region, or returns `None`
    /// if there is none any more. `end` is called once, at [`Demand::End`].
    ///
    /// # Errors
    /// The system starts no thread.
    pub fn start<W>(
        mut self,
        keeper: Keeper,
        with_region: W,
        end: impl FnOnce(&Reading) + Send + 'static,
    ) -> io::Result<()>
    where
        W: Fn(&dyn Fn(&Region) -> Result<(), RegionError>) -> Option<Result<(), RegionError>>
            + Send
            + 'static,
    {
        let (order, voice) = (Arc::clone(&self.orders), std::mem::take(&mut self.voice));
        let (taken, writers) = (Arc::clone(&order), Arc::clone(&self.writers));
        let flush_threads = self.flush_threads;
        let meet = move || {
            let (mut demand, mut most) = (Demand::Promise, Most::default());
            // What was tried and is not met.
            let mut unmet = Given::default();
            while let Some(given) = taken.next((unmet != Given::default()).then_some(AGAIN)) {
                let is_first = given != Given::default();
                demand = given.demand.unwrap_or(demand);
                most.share = given.share.map_or(most.share, |ordered| ordered.time);
                most.battery = given.battery.or(most.battery);
                if let Some(fills) = given.drill {
                    let drilled = with_region(&|region| {
                        voice.drilled(region.drill(fills, flush_threads));
                        Ok(())
                    });
                    if drilled.is_none() {
                        return;
                    }
                    if given == (Given { drill: given.drill, ..Given::default() }) {
                        continue;
                    }
                }
                let given = given.or(unmet);
                let met = with_region(&|region| keeper.meet(region, demand, most, &*writers));
                unmet = Given::default();
                match met {
                    // A closed region has everything on the SSD, and stays as it is.
                    None | Some(Err(RegionError::Closed)) => return,
                    Some(Ok(())) => {
                        // At the end the region is closed, with the budget that it has.
                        if let Some(ordered) = given.share.filter(|_| demand != Demand::End) {
                            voice.kept(ordered.serial);
                        }
                        if given.demand.is_some() {
                            writers.met(demand);
                            tracing::info!(?demand, "what the power asks for is met");
                        }
                    }
                    Some(Err(error)) => {
                        unmet = Given { drill: None, ..given };
                        if is_first {
                            tracing::error!(
                                %error, ?demand, "what the power asks for is not met; trying again"
                            );
                        }
                    }
                }
            }
        };
        std::thread::Builder::new().name("perdura-keeper".into()).spawn(meet)?;
        // What is known already counts before the first write.
        let (mut told, mut ended) = (None, None);
        self.look(&order, &mut told, &mut ended);
        let heed = move || {
            let _last = OnDrop(&order);
            let reading = loop {
                if let Some(reading) = ended {
                    break reading;
                }
                let again = self.response.look_again_in(self.clock.now_ns());
                self.warnings.wait(again);
                self.look(&order, &mut told, &mut ended);
            };
            end(&reading);
        };
        std::thread::Builder::new().name("perdura-warning".into()).spawn(heed).map(drop)
    }

    /// Heeds what the sources say now. `told` is what they said before; `ended` is set when the end
    /// is near.
    fn look(&mut self, order: &Orders, told: &mut Option<Reading>, ended: &mut Option<Reading>) {
        let reading = self.warnings.look().clone();
        let changed = self.response.heed(&reading, self.clock.now_ns());
        let demand = self.response.demand();
        if told.as_ref() != Some(&reading) || changed.is_some() {
            self.writers.told(&reading, demand);
        }
        let known = told.as_ref().map(|told| (told.state, told.confidence));
        if known != Some((reading.state, reading.confidence)) {
            log(&reading, told.is_none());
        }
        match changed {
            Some(Demand::End) => *ended = Some(reading.clone()),
            Some(demand) => order.give(demand),
            None => {}
        }
        *told = Some(reading);
    }
}

fn log(reading: &Reading, is_first: bool) {
    let state = reading.state.word();
    match (reading.confidence, reading.state) {
        (Confidence::Lost, _) => {
            tracing::error!(state, %reading, "a source of warnings is lost, so an outage might not \
             be seen");
        }
        (_, State::Steady) if is_first => {}
        (_, State::Steady) => tracing::info!(state, %reading, "the power is back"),
        (_, State::OnBattery | State::Low | State::Ending) => {
            tracing::warn!(state, %reading, "a warning");
        }
    }
}

/// The newest demand of the power and the newest share of the battery that nobody has met yet.
#[derive(Debug, Default)]
pub struct Orders {
    state: Mutex<Ordered>,
    given: Condvar,
}

#[derive(Debug, Default)]
struct Ordered {
    given: Given,
    is_over: bool,
}

/// What is to be met.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Given {
    demand: Option<Demand>,
    share: Option<Ration>,
    /// The time that a battery lasts.
    battery: Option<Duration>,
    /// A drill, and whether it fills the budget.
    drill: Option<bool>,
}

impl Given {
    /// This, and of `former` what this says nothing of.
    fn or(self, former: Self) -> Self {
        Self {
            demand: self.demand.or(former.demand),
            share: self.share.or(former.share),
            battery: self.battery.or(former.battery),
            drill: self.drill,
        }
    }
}

/// A share of a battery.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Ration {
    /// The guard's number of the order.
    serial: u64,
    /// Flush time that may be dirty; `None`: no battery is shared.
    time: Option<Duration>,
}

impl Orders {
    fn lock(&self) -> MutexGuard<'_, Ordered> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a demand. It takes the place of one that nobody has begun to meet.
    fn give(&self, demand: Demand) {
        self.lock().given.demand = Some(demand);
        self.given.notify_one();
    }

    /// Gives a share, in the place of one that nobody has begun to keep.
    pub(crate) fn share(&self, serial: u64, time: Option<Duration>) {
        self.lock().given.share = Some(Ration { serial, time });
        self.given.notify_one();
    }

    /// Gives the time that a battery lasts from now on.
    pub fn battery(&self, time: Duration) {
        self.lock().given.battery = Some(time);
        self.given.notify_one();
    }

    /// Whether nobody keeps to orders any more.
    pub fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// Gives a drill.
    pub(crate) fn drill(&self, fills: bool) {
        self.lock().given.drill = Some(fills);
        self.given.notify_one();
    }

    /// Waits for something to meet, at most so long; `None`: there will be nothing any more.
    fn next(&self, at_most: Option<Duration>) -> Option<Given> {
        let is_quiet = |it: &mut Ordered| it.given == Given::default() && !it.is_over;
        let at_most = at_most.unwrap_or(Duration::MAX);
        let waited = self.given.wait_timeout_while(self.lock(), at_most, is_quiet);
        let (mut ordered, _) = waited.unwrap_or_else(PoisonError::into_inner);
        (!ordered.is_over).then(|| std::mem::take(&mut ordered.given))
    }
}

/// Ends the order, and so the thread that meets demands.
struct OnDrop<'o>(&'o Orders);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        let mut ordered = self.0.lock();
        // The end needs nothing of what was ordered before it.
        *ordered = Ordered { given: Given::default(), is_over: true };
        self.0.given.notify_one();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test's own failure
mod tests {
    use std::path::Path;
    use std::sync::atomic::Ordering::{Acquire, Release};
    use std::sync::atomic::{AtomicBool, AtomicU32};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Instant;

    use perdura_media::{Device, DeviceError, RealClock, SimClock, SimDevice, WriteQueue};
    use perdura_region::{BLOCK_BYTES, Config, Terms};
    use perdura_warning::StatusFile;

    use super::*;

    const BUDGET_BYTES: u64 = 2 << 20;

    /// Notes what they are told.
    struct Writers(Mutex<Sender<Demand>>);

    impl super::Writers for Writers {
        fn told(&self, _: &Reading, demand: Demand) {
            self.0.lock().unwrap().send(demand).unwrap();
        }

        fn met(&self, _: Demand) {}

        fn have_ended(&self) -> bool {
            true
        }
    }

    fn region() -> Arc<Region> {
        region_on(Arc::new(SimDevice::new(0, 1)), BUDGET_BYTES)
    }

    fn region_on(device: Arc<dyn Device>, budget_bytes: u64) -> Arc<Region> {
        let config = Config { lanes: Some(1), ..Config::new(64 * BLOCK_BYTES, budget_bytes) };
        Arc::new(Region::open(device, Arc::new(SimClock::new(1_000)), config).unwrap())
    }

    /// Watches a region by a file. Returns what the writers are told, and the reading at the end.
    fn watched(region: &Arc<Region>, file: &Path) -> (Receiver<Demand>, Receiver<Reading>) {
        watched_with(region, file, Arc::default())
    }

    fn watched_with(
        region: &Arc<Region>,
        file: &Path,
        orders: Arc<Orders>,
    ) -> (Receiver<Demand>, Receiver<Reading>) {
        let (tell, told) = channel();
        let (end, ended) = channel();
        let grace = Duration::from_secs(10);
        let terms = Terms {
            warning: grace,
            reserve: Duration::from_secs(1),
            rate_bytes_per_s: 1 << 20,
            region_bytes: region.len_bytes(),
        };
        let watch = Watch {
            warnings: StatusFile::open(file).unwrap().into(),
            response: Response::new(grace, None).settling(Duration::from_millis(20)),
            clock: Arc::new(RealClock),
            writers: Arc::new(Writers(Mutex::new(tell))),
            flush_threads: 1,
            orders,
            voice: Voice::default(),
        };
        let kept = Arc::downgrade(region);
        let with_region = move |act: &dyn Fn(&Region) -> Result<(), RegionError>| {
            kept.upgrade().map(|region| act(&region))
        };
        let keeper = Keeper::new(terms, BUDGET_BYTES);
        watch.start(keeper, with_region, move |last| end.send(last.clone()).unwrap()).unwrap();
        (told, ended)
    }

    fn until(what: impl Fn() -> bool) {
        let began = Instant::now();
        while !what() {
            assert!(began.elapsed() < Duration::from_secs(20), "it does not come");
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_budget_and_the_writers_follow_what_the_file_says_until_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("power");
        let region = region();
        let (told, ended) = watched(&region, &file);
        assert_eq!(told.recv().unwrap(), Demand::Promise);
        std::fs::write(&file, "on-battery 2s").unwrap();
        assert!(matches!(told.recv().unwrap(), Demand::Within(_)));
        until(|| region.budget_bytes() < BUDGET_BYTES);
        std::fs::write(&file, "low").unwrap();
        assert_eq!(told.recv().unwrap(), Demand::Clean);
        std::fs::remove_file(&file).unwrap();
        // At first the old demand, then the new one when it has lasted.
        while told.recv().unwrap() != Demand::Promise {}
        until(|| region.budget_bytes() == BUDGET_BYTES);
        std::fs::write(&file, "ending").unwrap();
        assert_eq!(ended.recv().unwrap().told_by, format!("{}: ending", file.display()));
        assert_eq!(told.recv().unwrap(), Demand::End);
        // Nobody watches any more.
        assert!(told.recv().is_err());
    }

    #[test]
    fn what_the_file_says_at_the_start_counts() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("power");
        std::fs::write(&file, "on-battery 2s").unwrap();
        let region = region();
        let (told, _ended) = watched(&region, &file);
        assert!(matches!(told.recv().unwrap(), Demand::Within(_)));
        until(|| region.budget_bytes() < BUDGET_BYTES);
        std::fs::remove_dir_all(dir.path()).unwrap();
        while told.recv().unwrap() != Demand::End {}
    }

    /// A device that has no room for more while it is said to be full.
    struct Full(SimDevice, AtomicBool, AtomicU32);

    impl Device for Full {
        fn grow(&self, capacity_bytes: u64) -> Result<(), DeviceError> {
            if self.1.load(Acquire) {
                self.2.fetch_add(1, Release);
                let (op, offset_bytes) = ("grow", self.0.capacity_bytes());
                return Err(DeviceError::NoSpace { op, offset_bytes, len_bytes: capacity_bytes });
            }
            self.0.grow(capacity_bytes)
        }

        fn capacity_bytes(&self) -> u64 {
            self.0.capacity_bytes()
        }
        fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
            self.0.read_at(offset_bytes, buf)
        }
        fn write_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<(), DeviceError> {
            self.0.write_at(offset_bytes, buf)
        }
        fn write_durable_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<(), DeviceError> {
            self.0.write_durable_at(offset_bytes, buf)
        }
        fn flush(&self) -> Result<(), DeviceError> {
            self.0.flush()
        }
        fn queue(&self, depth: usize) -> Result<Box<dyn WriteQueue>, DeviceError> {
            self.0.queue(depth)
        }
        fn describe(&self) -> String {
            self.0.describe()
        }
    }

    #[test]
    fn what_cannot_be_met_now_is_tried_again_without_another_order() {
        let dir = tempfile::tempdir().unwrap();
        let device =
            Arc::new(Full(SimDevice::new(0, 1), AtomicBool::new(false), AtomicU32::new(0)));
        let region = region_on(Arc::clone(&device) as Arc<dyn Device>, BUDGET_BYTES / 8);
        device.1.store(true, Release);
        let orders = Arc::new(Orders::default());
        let _watched = watched_with(&region, &dir.path().join("power"), Arc::clone(&orders));
        orders.share(1, None);
        // The first time, and once more.
        until(|| device.2.load(Acquire) >= 2);
        assert_eq!(region.budget_bytes(), BUDGET_BYTES / 8);
        device.1.store(false, Release);
        until(|| region.budget_bytes() == BUDGET_BYTES);
    }

    #[test]
    fn a_newer_demand_takes_the_place_of_one_that_nobody_has_begun_to_meet() {
        let order = Orders::default();
        order.give(Demand::Clean);
        order.give(Demand::Promise);
        order.share(1, None);
        let time = Some(Duration::from_secs(1));
        order.share(2, time);
        let share = Some(Ration { serial: 2, time });
        order.battery(Duration::from_secs(2));
        order.battery(Duration::from_secs(3));
        let battery = Some(Duration::from_secs(3));
        let expected = Given { demand: Some(Demand::Promise), share, battery, drill: None };
        assert_eq!(order.next(None), Some(expected));
        order.give(Demand::Clean);
        drop(OnDrop(&order));
        assert_eq!(order.next(None), None);
        order.battery(Duration::from_secs(4));
        assert!(order.is_over() && order.next(None).is_none());
    }
}
