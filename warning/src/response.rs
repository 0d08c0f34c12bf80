//! What a reading asks of whoever has data that are not saved: pure arithmetic over readings and
//! times.
//!
//! - A worse demand holds at once; a milder one when every reading for a while has allowed it. So
//!   power that comes and goes is not followed to and fro.
//! - [`Demand::End`] is never taken back.

use std::cmp::Reverse;
use std::time::Duration;

use perdura_media::Watts;

use crate::reading::{Confidence, Reading, State};

/// How long readings must usually be milder before the demand is.
pub const SETTLE: Duration = Duration::from_secs(10);
/// The share of the energy that is said to be left which is counted on: the first half. Batteries
/// age, and a UPS reckons with the load of the moment (Viyojit, section 5.1, discharges by 50 %).
const USABLE: f64 = 0.5;
/// The share of the grace within which data must be safe when a source is lost. A loss of power
/// would not be seen, and what comes then, such as SIGTERM, may be late.
const LOST: f64 = 0.1;
/// The share of the time in force by which the next step is shorter.
const STEP: f64 = 0.1;
/// The share of the grace below which the demand is to be clean.
const LEAST: f64 = 0.02;

/// What is demanded of whoever has data that are not saved. A later one demands more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Demand {
    /// Nothing beyond the promise: a flush within the grace.
    Promise,
    /// A flush must fit this time, which is shorter than the grace.
    Within(Reverse<Duration>),
    /// Save everything now, and change nothing until a milder demand comes.
    Clean,
    /// Save everything and end.
    End,
}

impl Demand {
    /// The word for this demand in reports.
    pub fn word(self) -> &'static str {
        match self {
            Self::Promise => "promise",
            Self::Within(_) => "shorter-flush",
            Self::Clean => "clean",
            Self::End => "end",
        }
    }
}

/// Turns readings into demands.
#[derive(Debug, Clone)]
pub struct Response {
    grace: Duration,
    power: Option<Watts>,
    settle: Duration,
    demand: Demand,
    /// The worst demand of the milder readings since then, nanoseconds.
    milder: Option<(Demand, u64)>,
}

impl Response {
    /// A response of one who promises a flush within `grace`, on a machine that draws `power`, if
    /// that is known. A source that says the energy that is left, and not the time, needs it.
    pub fn new(grace: Duration, power: Option<Watts>) -> Self {
        Self { grace, power, settle: SETTLE, demand: Demand::Promise, milder: None }
    }

    /// Sets how long readings must be milder before the demand is.
    #[must_use = "the response is returned, not changed in place"]
    pub fn settling(self, settle: Duration) -> Self {
        Self { settle, ..self }
    }

    /// The demand in force.
    pub fn demand(&self) -> Demand {
        self.demand
    }

    /// Heeds a reading at `now_ns`. Returns the demand if it has changed.
    pub fn heed(&mut self, reading: &Reading, now_ns: u64) -> Option<Demand> {
        let asked = self.asked_by(reading);
        let before = self.demand;
        if asked >= self.demand {
            self.milder = None;
            self.demand = asked;
        } else if self.demand != Demand::End {
            let (worst, since_ns) = self.milder.unwrap_or((asked, now_ns));
            let worst = worst.max(asked);
            self.milder = Some((worst, since_ns));
            if now_ns.saturating_sub(since_ns) >= self.settle.as_nanos() as u64 {
                self.demand = worst;
                self.milder = None;
            }
        }
        (self.demand != before).then_some(self.demand)
    }

    /// Time until a milder demand may come into force, if readings stay as they are.
    pub fn look_again_in(&self, now_ns: u64) -> Option<Duration> {
        let (_, since_ns) = self.milder?;
        let waited = Duration::from_nanos(now_ns.saturating_sub(since_ns));
        Some(self.settle.saturating_sub(waited))
    }

    fn asked_by(&self, reading: &Reading) -> Demand {
        let within = |time| self.within(time);
        match (reading.state, reading.confidence, reading.left) {
            (State::Steady, ..) => Demand::Promise,
            (State::OnBattery, Confidence::Lost, left) => {
                let left = left.map(|left| left.time(self.power).mul_f64(USABLE));
                let lost = self.grace.mul_f64(LOST);
                within(left.map_or(lost, |left| left.min(lost)))
            }
            (State::OnBattery, Confidence::Fresh, None) => Demand::Promise,
            (State::OnBattery, Confidence::Fresh, Some(left)) => {
                within(left.time(self.power).mul_f64(USABLE))
            }
            (State::Low, ..) => Demand::Clean,
            (State::Ending, ..) => Demand::End,
        }
    }

    /// The demand that data can be saved within `time`. A time that shrinks with each reading is
    /// followed in steps, each a tenth shorter than the one before.
    fn within(&self, time: Duration) -> Demand {
        if time >= self.grace {
            return Demand::Promise;
        }
        let mut step = self.grace;
        while step > time {
            step = step.mul_f64(1.0 - STEP);
            if step < self.grace.mul_f64(LEAST) {
                return Demand::Clean;
            }
        }
        Demand::Within(Reverse(step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Left;
    use perdura_media::Joules;

    const GRACE: Duration = Duration::from_secs(100);
    const SECOND_NS: u64 = 1_000_000_000;

    fn response() -> Response {
        Response::new(GRACE, None)
    }

    fn on_battery(left_s: u64) -> Reading {
        let left = Some(Left::Time(Duration::from_secs(left_s)));
        Reading { left, ..Reading::new(State::OnBattery, "") }
    }

    fn within_s(demand: Demand) -> f64 {
        let Demand::Within(Reverse(time)) = demand else { panic!("{demand:?}") };
        time.as_secs_f64()
    }

    #[test]
    fn each_reading_has_its_demand() {
        let of = |reading: Reading| {
            let mut response = response();
            response.heed(&reading, 0);
            response.demand()
        };
        assert_eq!(of(Reading::new(State::Steady, "")), Demand::Promise);
        assert_eq!(of(Reading::new(State::OnBattery, "")), Demand::Promise);
        assert_eq!(of(on_battery(200)), Demand::Promise);
        assert_eq!(of(Reading::new(State::Low, "")), Demand::Clean);
        assert_eq!(of(Reading::new(State::Ending, "")), Demand::End);
        assert!((9.0..=10.0).contains(&within_s(of(Reading::lost("")))));
        assert_eq!(of(on_battery(1)), Demand::Clean);
        let energy = Reading { left: Some(Left::Energy(Joules(3_000.0))), ..on_battery(0) };
        assert_eq!(of(energy.clone()), Demand::Clean, "a machine of unknown power");
        let mut known = Response::new(GRACE, Some(Watts(100.0)));
        known.heed(&energy, 0);
        assert!((13.5..=15.0).contains(&within_s(known.demand())));
    }

    #[test]
    fn what_several_sources_say_demands_no_less_than_what_any_of_them_does() {
        let readings = [
            Reading::new(State::Steady, ""),
            Reading { left: Some(Left::Time(Duration::ZERO)), ..Reading::new(State::Steady, "") },
            Reading::new(State::OnBattery, ""),
            on_battery(200),
            on_battery(20),
            on_battery(5),
            on_battery(1),
            Reading { left: Some(Left::Energy(Joules(1e6))), ..on_battery(0) },
            Reading { left: Some(Left::Energy(Joules(900.0))), ..on_battery(0) },
            Reading::lost(""),
            Reading::new(State::Low, ""),
            Reading::new(State::Ending, ""),
        ];
        for power in [None, Some(Watts(100.0))] {
            let of = |reading: &Reading| {
                let mut response = Response::new(GRACE, power);
                response.heed(reading, 0);
                response.demand()
            };
            for (one, two, three) in readings
                .iter()
                .flat_map(|one| readings.iter().map(move |two| (one, two)))
                .flat_map(|(one, two)| readings.iter().map(move |three| (one, two, three)))
            {
                let worst = of(one).max(of(two)).max(of(three));
                assert_eq!(of(&one.joined(two).joined(three)), worst, "{one:?} {two:?} {three:?}");
            }
        }
    }

    #[test]
    fn no_step_is_longer_than_half_of_what_is_left_nor_shorter_by_more_than_a_tenth() {
        for left_s in 5..200 {
            let mut response = response();
            response.heed(&on_battery(left_s), 0);
            let (time, allowed) = (within_s(response.demand()), left_s as f64 / 2.0);
            assert!(time <= allowed && time >= allowed * 0.9 - 1e-6, "{left_s}: {time}");
        }
    }

    #[test]
    fn a_battery_that_runs_down_is_followed_in_few_steps() {
        let mut response = response();
        let left = (0..=300).rev();
        let changes = left.enumerate().filter_map(|(second, left_s)| {
            response.heed(&on_battery(left_s), second as u64 * SECOND_NS)
        });
        assert!(changes.count() < 45);
        assert_eq!(response.demand(), Demand::Clean);
    }

    #[test]
    fn a_worse_demand_holds_at_once_and_a_milder_one_when_it_has_lasted() {
        let mut response = response();
        let (steady, low) = (Reading::new(State::Steady, ""), Reading::new(State::Low, ""));
        assert_eq!(response.heed(&low, 0), Some(Demand::Clean));
        assert_eq!(response.look_again_in(0), None);
        let at = |tenths: u64| tenths * SECOND_NS / 10;
        assert_eq!(response.heed(&steady, at(10)), None);
        assert_eq!(response.look_again_in(at(40)), Some(Duration::from_secs(7)));
        assert_eq!(response.heed(&steady, at(109)), None);
        assert_eq!(response.heed(&steady, at(110)), Some(Demand::Promise));
        assert_eq!(response.look_again_in(at(110)), None);
    }

    #[test]
    fn power_that_comes_and_goes_is_not_followed() {
        let mut response = response();
        let blip = |second: u64| match second % 7 {
            0 => Reading::new(State::Low, ""),
            _ => Reading::new(State::Steady, ""),
        };
        let changes = (0..1_000).filter(|s| response.heed(&blip(*s), s * SECOND_NS).is_some());
        assert_eq!(changes.count(), 1);
    }

    #[test]
    fn the_milder_demand_is_the_worst_of_those_that_lasted() {
        let mut response = response();
        response.heed(&Reading::new(State::Low, ""), 0);
        response.heed(&Reading::new(State::Steady, ""), SECOND_NS);
        response.heed(&on_battery(100), 5 * SECOND_NS);
        response.heed(&Reading::new(State::Steady, ""), 11 * SECOND_NS);
        assert!(within_s(response.demand()) <= 50.0);
        response.heed(&Reading::new(State::Steady, ""), 12 * SECOND_NS);
        response.heed(&Reading::new(State::Steady, ""), 22 * SECOND_NS);
        assert_eq!(response.demand(), Demand::Promise);
    }

    #[test]
    fn an_end_is_never_taken_back() {
        let mut response = response();
        response.heed(&Reading::new(State::Ending, ""), 0);
        for second in 1..100 {
            assert_eq!(response.heed(&Reading::new(State::Steady, ""), second * SECOND_NS), None);
        }
        assert_eq!((response.demand(), response.look_again_in(0)), (Demand::End, None));
    }
}
