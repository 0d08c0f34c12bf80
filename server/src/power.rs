//! What the power lets the server do: told by the thread that heeds warnings, and looked at by the
//! event loops once a turn.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use perdura_media::battery::Lasts;
use perdura_warning::{Demand, Reading, State};

/// Time that the end of a turn is waited for. A turn can be longer: a command may take long, or
/// wait for budget.
const TURN_PATIENCE: Duration = Duration::from_millis(300);

/// What the power lets the server do.
#[derive(Debug)]
pub struct Power {
    is_refusing: AtomicBool,
    /// Whether the backup is so far behind that no write is accepted.
    is_backup_late: AtomicBool,
    said: Mutex<Said>,
    battery: Mutex<Option<BatteryState>>,
    /// Of each loop: the turns that have begun and seen that writes are refused.
    turns: Mutex<Vec<u64>>,
    /// Notified at the beginning of a turn while writes are refused.
    turned: Condvar,
}

/// What the sources of warnings say, and what follows from it.
#[derive(Debug, Clone)]
pub struct Said {
    /// What the most pessimistic source says.
    pub reading: Reading,
    /// What it demands.
    pub demand: Demand,
    /// Whether the demand is met.
    pub is_met: bool,
}

/// What is known of the battery.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatteryState {
    /// The time that is counted on.
    pub time: Duration,
    /// Whether nothing could be learnt of it for a while.
    pub is_lost: bool,
    /// What was learnt last, if anything was.
    pub lasts: Option<Lasts>,
}

impl Default for Power {
    fn default() -> Self {
        let reading = Reading::new(State::Steady, "");
        let (demand, is_met) = (Demand::Promise, true);
        Self {
            is_refusing: AtomicBool::new(false),
            is_backup_late: AtomicBool::new(false),
            said: Mutex::new(Said { reading, demand, is_met }),
            battery: Mutex::new(None),
            turns: Mutex::new(vec![0]),
            turned: Condvar::new(),
        }
    }
}

impl Power {
    /// Says what the power is like. Writes are refused at [`Demand::Clean`]. The end changes nothing
    /// of that: the loops stop a moment later, and clients that write meanwhile are to be
    /// disconnected, not told that the power is low.
    pub fn tell(&self, reading: &Reading, demand: Demand) {
        let mut said = self.lock();
        let is_met = said.is_met && said.demand == demand;
        *said = Said { reading: reading.clone(), demand, is_met };
        drop(said);
        if demand != Demand::End {
            self.is_refusing.store(demand == Demand::Clean, Ordering::SeqCst);
        }
    }

    /// Notes that a demand is met, if it is still in force.
    pub fn met(&self, demand: Demand) {
        let mut said = self.lock();
        said.is_met |= said.demand == demand;
    }

    /// Says whether the backup is so far behind that no write is accepted.
    pub fn set_backup_late(&self, is_late: bool) {
        self.is_backup_late.store(is_late, Ordering::Relaxed);
    }

    /// Whether the backup is so far behind that no write is accepted.
    pub fn is_backup_late(&self) -> bool {
        self.is_backup_late.load(Ordering::Relaxed)
    }

    /// What was told last.
    pub fn said(&self) -> Said {
        self.lock().clone()
    }

    /// Says what the battery is like.
    pub fn set_battery(&self, state: BatteryState) {
        *self.battery.lock().unwrap_or_else(PoisonError::into_inner) = Some(state);
    }

    /// What the battery is like, if there is one.
    pub fn battery(&self) -> Option<BatteryState> {
        *self.battery.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says how many event loops there are; one, until this is called.
    pub(crate) fn set_loops(&self, loops: usize) {
        *self.turns() = vec![0; loops];
    }

    /// Waits until a turn of each loop has begun after writes were refused, so that none is under
    /// way any more; returns whether they have, within a moment.
    pub fn have_writes_ended(&self) -> bool {
        let turns = self.turns();
        let seen = turns.clone();
        let is_one_missing =
            |turns: &mut Vec<u64>| turns.iter().zip(&seen).any(|(now, before)| now == before);
        let waited = self.turned.wait_timeout_while(turns, TURN_PATIENCE, is_one_missing);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Begins a turn of the loop with this number. Returns whether writes are refused in it.
    pub(crate) fn begin_turn(&self, number: usize) -> bool {
        let is_refusing = self.is_refusing.load(Ordering::SeqCst);
        if is_refusing {
            self.turns()[number] += 1;
            self.turned.notify_all();
        }
        is_refusing
    }

    fn turns(&self) -> MutexGuard<'_, Vec<u64>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    fn low() -> Reading {
        Reading::new(State::Low, "the test")
    }

    #[test]
    fn writes_are_refused_from_the_next_turn_on_and_let_in_again() {
        let power = Power::default();
        assert!(!power.begin_turn(0));
        power.tell(&low(), Demand::Clean);
        assert!(power.begin_turn(0) && power.begin_turn(0));
        power.tell(&Reading::new(State::Steady, ""), Demand::Promise);
        assert!(!power.begin_turn(0));
    }

    #[test]
    fn the_end_refuses_no_writes_that_were_not_refused_before() {
        let power = Power::default();
        let ending = Reading::new(State::Ending, "SIGTERM");
        power.tell(&ending, Demand::End);
        assert!(!power.begin_turn(0));
        assert_eq!(power.said().demand, Demand::End);
        power.tell(&low(), Demand::Clean);
        power.tell(&ending, Demand::End);
        assert!(power.begin_turn(0));
    }

    #[test]
    fn a_demand_is_met_until_another_one_comes() {
        let power = Power::default();
        assert!(power.said().is_met);
        power.tell(&low(), Demand::Clean);
        power.met(Demand::Promise);
        assert!(!power.said().is_met, "an older demand was met");
        power.met(Demand::Clean);
        power.tell(&low(), Demand::Clean);
        assert!(power.said().is_met && power.said().reading == low());
    }

    #[test]
    fn writes_have_ended_when_a_turn_has_begun_and_not_before() {
        let power = Power::default();
        power.set_loops(2);
        power.tell(&low(), Demand::Clean);
        assert!(!power.have_writes_ended(), "no turn has begun");
        let (stop, loops) = (AtomicBool::new(false), AtomicUsize::new(1));
        std::thread::scope(|scope| {
            let turns = scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    (0..loops.load(Ordering::Relaxed)).for_each(|number| {
                        power.begin_turn(number);
                    });
                    std::thread::yield_now();
                }
            });
            assert!(!power.have_writes_ended(), "the other loop has begun no turn");
            loops.store(2, Ordering::Relaxed);
            // It may be that no turn begins within the patience, but not each time.
            let has_ended = (0..100).any(|_| power.have_writes_ended());
            stop.store(true, Ordering::Relaxed);
            turns.join().unwrap();
            assert!(has_ended);
        });
    }
}
