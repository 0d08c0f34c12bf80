//! The two threads: one heeds warnings, the other meets demands.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use perdura_media::Clock;
use perdura_region::{Region, RegionError};
use perdura_warning::{Confidence, Demand, Reading, Response, Warnings};

use crate::keeper::{Keeper, Writers};

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
        let order = Arc::new(Order::default());
        let (taken, writers) = (Arc::clone(&order), Arc::clone(&self.writers));
        let meet = move || {
            while let Some(demand) = taken.next() {
                let met = with_region(&|region| keeper.meet(region, demand, &*writers));
                match met {
                    None => return,
                    Some(Ok(())) => tracing::info!(?demand, "what the power asks for is met"),
                    Some(Err(error)) => {
                        tracing::error!(%error, ?demand, "what the power asks for is not met");
                    }
                }
            }
        };
        std::thread::Builder::new().name("perdura-keeper".into()).spawn(meet)?;
        let heed = move || {
            let _last = OnDrop(&order);
            let reading = self.heed(&order);
            end(&reading);
        };
        std::thread::Builder::new().name("perdura-warning".into()).spawn(heed).map(drop)
    }

    /// Heeds the sources until they say that the end is near, and returns their words.
    fn heed(&mut self, order: &Order) -> Reading {
        let mut told: Option<Reading> = None;
        loop {
            let now_ns = self.clock.now_ns();
            let reading = self.warnings.look().clone();
            let changed = self.response.heed(&reading, now_ns);
            let demand = self.response.demand();
            if told.as_ref() != Some(&reading) || changed.is_some() {
                self.writers.told(&reading, demand);
            }
            if told.as_ref().map(|told| (told.state, told.confidence))
                != Some((reading.state, reading.confidence))
            {
                log(&reading, told.is_none());
            }
            if demand == Demand::End {
                return reading;
            }
            if let Some(demand) = changed {
                order.give(demand);
            }
            told = Some(reading);
            let again = self.response.look_again_in(self.clock.now_ns());
            self.warnings.wait(again);
        }
    }
}

fn log(reading: &Reading, is_first: bool) {
    use perdura_warning::State;
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

/// The newest demand that nobody has met yet.
#[derive(Debug, Default)]
struct Order {
    state: Mutex<Ordered>,
    given: Condvar,
}

#[derive(Debug, Default)]
struct Ordered {
    demand: Option<Demand>,
    is_over: bool,
}

impl Order {
    fn lock(&self) -> MutexGuard<'_, Ordered> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a demand. It takes the place of one that nobody has begun to meet.
    fn give(&self, demand: Demand) {
        self.lock().demand = Some(demand);
        self.given.notify_one();
    }

    /// Waits for a demand; `None`: there will be none any more.
    fn next(&self) -> Option<Demand> {
        let is_quiet = |ordered: &mut Ordered| ordered.demand.is_none() && !ordered.is_over;
        let waited = self.given.wait_while(self.lock(), is_quiet);
        waited.unwrap_or_else(PoisonError::into_inner).demand.take()
    }
}

/// Ends the order, and so the thread that meets demands.
struct OnDrop<'o>(&'o Order);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        let mut ordered = self.0.lock();
        // The end needs nothing of what was ordered before it.
        *ordered = Ordered { demand: None, is_over: true };
        self.0.given.notify_one();
    }
}
