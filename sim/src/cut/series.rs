//! The cuts of one scenario.
//!
//! Most cuts are losses of power without a warning. These need no run of their own: one run keeps a
//! copy of the device at the place of each, and the copies are powered on again. The other ends
//! follow a run of their own, because they depend on the memory of the process.

use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use perdura_media::SimDevice;
use perdura_store::Unreadable;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

use super::broken::Broken;
use super::ends::{End, copied, count_ops, keep_copies, killed};
use super::scenario::Scenario;
use super::served::{self, Served};
use super::world::{Kept, World};
use super::{Plan, mixed};

/// Cuts made of one scenario.
pub const CUTS_PER_SCENARIO: u64 = 40;
/// Cuts of a scenario that are made of copies; they come first.
const COPIES: u64 = 30;
/// One copy in so many is that of a whole machine whose process is killed.
const KILLED_ONE_IN: u64 = 3;

/// The way in which a cut is made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// The power goes without a warning; a copy of the device is powered on.
    Copied { at: u64 },
    /// The process is killed; a copy of its memory and of the device is taken over.
    Killed { at: u64 },
    /// A run of its own that comes to this end.
    Run(End),
    /// A server; the power goes without a warning, and a copy of the device is powered on.
    ServedCopy { at: u64 },
    /// A server with a run of its own that comes to this end.
    Served(served::End),
}

/// A cut that was made.
pub(crate) struct Made {
    /// `None` if the scenario fails without a cut.
    pub way: Option<Way>,
    pub durable_ops: u64,
    pub refused_ops: u64,
    /// The scenario with its end, and the broken promise, in words.
    pub failure: Option<(String, String)>,
}

/// Makes the cuts of scenario `number` whose places in the scenario are `places`, in their order.
/// If the scenario fails without a cut, the first one stands for all. Of four scenarios the first
/// has much dirty data, so that every seed comes to it soon, and the last is that of a server.
pub(crate) fn make(plan: &Plan, number: u64, places: Range<u64>) -> Vec<Made> {
    if number % 4 == 3 { make_served(plan, number, places) } else { make_own(plan, number, places) }
}

fn make_served(plan: &Plan, number: u64, places: Range<u64>) -> Vec<Made> {
    let served = Served::draw(mixed(plan.seed, number), plan.planted);
    let places_of = Places { plan, number };
    let new = |way| Made { way, durable_ops: 0, refused_ops: 0, failure: None };
    let failed = |made: Made, end: &str, broken: Broken| Made {
        failure: Some((format!("{served}; {end}"), broken.to_string())),
        ..made
    };
    let device = SimDevice::new(0, number);
    let ops = match catching(|| served.count_ops(&device)) {
        Ok(ops) => ops,
        Err(broken) => return vec![failed(new(None), "not cut", broken)],
    };
    let at: Vec<_> = (0..COPIES).map(|place| places_of.place_of_copy(ops, place)).collect();
    let device = SimDevice::new(0, number);
    let copies = match places.start < COPIES {
        false => None,
        true => match catching(|| served.copies(&device, &at)) {
            Ok(copies) => Some(copies),
            Err(broken) => return vec![failed(new(None), "copied", broken)],
        },
    };
    let cut = |place: u64| {
        let seed = places_of.seed_of(place);
        let mut random = Random::seed_from_u64(seed);
        let kept = copies.as_ref().and_then(|(kept, by)| Some((kept.get(place as usize)?, by)));
        let (way, checked, ops) = match (place.checked_sub(COPIES), kept) {
            (None, Some((kept, by))) => {
                let checked = catching(|| served.check_copy(kept, by, seed));
                (Way::ServedCopy { at: at[place as usize] }, checked, 0)
            }
            (None, None) => (Way::ServedCopy { at: 0 }, Err(Broken::NoCopy { ops }), 0),
            (Some(place), _) => {
                let (end, device) =
                    (served::End::draw(place, &mut random), SimDevice::new(0, seed));
                let checked = catching(|| served.check_end(end, &device, seed));
                (Way::Served(end), checked, device.ops())
            }
        };
        let made = Made { durable_ops: ops, ..new(Some(way)) };
        match checked {
            Ok(()) => made,
            Err(broken) => failed(made, &way.to_string(), broken),
        }
    };
    places.map(cut).collect()
}

fn make_own(plan: &Plan, number: u64, places: Range<u64>) -> Vec<Made> {
    let scenario = Scenario::draw(mixed(plan.seed, number), number.is_multiple_of(4));
    let series = Series { plan, scenario: &scenario, places: Places { plan, number } };
    let mut uncut = Made { way: None, durable_ops: 0, refused_ops: 0, failure: None };
    let ops = match series.attempt(number, &mut uncut, count_ops) {
        Ok(ops) => ops,
        Err(broken) => return vec![series.failed(uncut, "not cut", &broken)],
    };
    let mut copies = (Vec::new(), Vec::new());
    if places.start < COPIES {
        let of = |is_killed: bool| -> Vec<u64> {
            let own = (0..COPIES).filter(|place| is_of_a_kill(*place) == is_killed);
            own.map(|place| series.places.place_of_copy(ops, place)).collect()
        };
        let (lost, killed) = (of(false), of(true));
        match series.attempt(number, &mut uncut, |world| keep_copies(world, ops, &lost, &killed)) {
            Ok(kept) => copies = kept,
            Err(broken) => return vec![series.failed(uncut, "copied", &broken)],
        }
    }
    let copy_of = |place: u64| {
        let kills_before = place / KILLED_ONE_IN;
        match is_of_a_kill(place) {
            true => copies.1.get(kills_before as usize),
            false => copies.0.get((place - kills_before) as usize),
        }
    };
    let mut made: Vec<_> = places.map(|place| series.cut(ops, place, copy_of(place))).collect();
    if let Some(cut) = made.first_mut() {
        cut.durable_ops += uncut.durable_ops;
        cut.refused_ops += uncut.refused_ops;
    }
    made
}

/// Whether the copy for this place is that of a whole machine. The others follow in groups.
fn is_of_a_kill(place: u64) -> bool {
    place % KILLED_ONE_IN == KILLED_ONE_IN - 1
}

/// The places of a scenario's cuts.
struct Places<'a> {
    plan: &'a Plan,
    number: u64,
}

impl Places<'_> {
    /// The seed of everything that is drawn for a cut.
    fn seed_of(&self, place: u64) -> u64 {
        mixed(!self.plan.seed, self.number * CUTS_PER_SCENARIO + place)
    }

    /// The durable operation before which the copy is made for a cut. Each of equal parts of the
    /// run has one.
    fn place_of_copy(&self, ops: u64, place: u64) -> u64 {
        let (from, to) = (ops * place / COPIES, ops * (place + 1) / COPIES);
        let mut random = Random::seed_from_u64(!self.seed_of(place));
        if from < to { random.random_range(from..to) } else { from }
    }
}

struct Series<'a> {
    plan: &'a Plan,
    scenario: &'a Scenario,
    places: Places<'a>,
}

impl Series<'_> {
    fn cut(&self, ops: u64, place: u64, kept: Option<&Kept>) -> Made {
        let seed = self.places.seed_of(place);
        let mut random = Random::seed_from_u64(seed);
        let way = match place.checked_sub(COPIES) {
            None if is_of_a_kill(place) => {
                Way::Killed { at: self.places.place_of_copy(ops, place) }
            }
            None => Way::Copied { at: self.places.place_of_copy(ops, place) },
            Some(place) => {
                let of = CUTS_PER_SCENARIO - COPIES;
                Way::Run(End::draw(self.scenario, ops, place, of, &mut random))
            }
        };
        let mut made = Made { way: Some(way), durable_ops: 0, refused_ops: 0, failure: None };
        let checked = match (way, kept) {
            (Way::Run(end), _) => {
                self.attempt(seed, &mut made, |world| end.check(world, &mut random))
            }
            (_, Some(kept)) => {
                let world = World::of_copy(self.scenario, self.plan.planted, kept);
                self.attempt_in(world, &mut made, |world| match kept.held {
                    Some(_) => killed(world, kept, &mut random),
                    None => copied(world, &mut random),
                })
            }
            (_, None) => Err(Broken::NoCopy { ops }),
        };
        match checked {
            Ok(()) => made,
            Err(broken) => self.failed(made, &way.to_string(), &broken),
        }
    }

    fn failed(&self, made: Made, end: &str, broken: &Broken) -> Made {
        Made { failure: Some((format!("{}; {end}", self.scenario), broken.to_string())), ..made }
    }

    /// Gives `f` a new machine; a panic on it is a failure like others.
    fn attempt<R>(
        &self,
        seed: u64,
        made: &mut Made,
        f: impl FnOnce(&mut World<'_>) -> Result<R, Broken>,
    ) -> Result<R, Broken> {
        let device = SimDevice::new(0, seed);
        self.attempt_in(World::new(self.scenario, self.plan.planted, device), made, f)
    }

    fn attempt_in<R>(
        &self,
        mut world: World<'_>,
        made: &mut Made,
        f: impl FnOnce(&mut World<'_>) -> Result<R, Broken>,
    ) -> Result<R, Broken> {
        let before = world.durable_ops();
        let result = catching(|| f(&mut world));
        made.durable_ops += world.durable_ops() - before;
        made.refused_ops += world.refused;
        result
    }
}

/// Runs `f`; a panic is a failure like others.
fn catching<R>(f: impl FnOnce() -> Result<R, Broken>) -> Result<R, Broken> {
    let result = catch_unwind(AssertUnwindSafe(|| Unreadable::catch(f)));
    let refused = |error| Err(Broken::Unreadable { error });
    result.map(|done| done.unwrap_or_else(refused)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied());
        Err(Broken::Panicked(text.unwrap_or("without a message").to_owned()))
    })
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Copied { at } => write!(f, "copied and cut at durable operation {at}"),
            Self::Killed { at } => write!(f, "copied and killed at durable operation {at}"),
            Self::Run(end) => end.fmt(f),
            Self::ServedCopy { at } => write!(f, "copied and cut at durable operation {at}"),
            Self::Served(end) => write!(f, "{end:?}"),
        }
    }
}
