//! A hunt for divisions that promise more than the battery has: tenants that obey late, die, come
//! back and burst, on a battery that changes; and the battery's sum reckoned naively beside it.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000;
const TICK_NS: u64 = 50_000_000;
const MINIMUM_US: u64 = 10 * MS;

/// A tenant as it is: what its budget allows and what is dirty, as flush times.
#[derive(Debug, Default)]
struct Program {
    limit_us: u64,
    dirty_us: u64,
    inbox: VecDeque<Order>,
    is_there: bool,
    /// Whether it has written since the last tick.
    has_written: bool,
}

/// Mistakes that a division could make. Each must be caught.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Planted {
    Nothing,
    /// A tenant's confirmation is believed whatever order it is for.
    AnyConfirmation,
    /// A dead tenant's whole share is free at once.
    DeadIsFree,
    /// One who comes back starts with nothing on the books.
    ReturnsWithNothing,
    /// A battery that becomes shorter is not noticed.
    ShorterUnnoticed,
}

struct Hunt {
    shares: Shares<u8>,
    programs: BTreeMap<u8, Program>,
    now_ns: u64,
    planted: Planted,
    /// The battery, as it really is.
    total_us: u64,
    /// What programs could have had out after the step before.
    worst_us: u64,
    failures: Vec<String>,
}

#[derive(Debug, Clone)]
enum Step {
    Tick,
    Join {
        id: u8,
        reservation_ms: u64,
        limit_ms: u64,
        weight: u32,
    },
    /// The program reads one order, and obeys it.
    Obey(u8),
    Write(u8, u64),
    /// It flushes some of what is dirty.
    Flush(u8, u64),
    Die(u8),
    Return(u8),
    /// The guard flushes what a dead program left.
    Saved(u8),
    Battery(u64),
}

impl Hunt {
    fn new(total_us: u64, planted: Planted) -> Self {
        Self {
            shares: Shares::new(total_us, MINIMUM_US),
            programs: BTreeMap::new(),
            now_ns: 0,
            planted,
            total_us,
            worst_us: 0,
            failures: Vec::new(),
        }
    }

    fn needs(reservation_ms: u64, limit_ms: u64, weight: u32) -> Needs {
        Needs {
            minimum_us: MINIMUM_US,
            reservation_us: reservation_ms * MS,
            limit_us: limit_ms * MS,
            weight,
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Tick => self.tick(),
            Step::Join { id, reservation_ms, limit_ms, weight } => {
                let needs = Self::needs(reservation_ms, limit_ms, weight);
                if !self.programs.contains_key(&id)
                    && self.shares.admit(id, needs, MINIMUM_US).is_ok()
                {
                    let program =
                        Program { limit_us: MINIMUM_US, is_there: true, ..Program::default() };
                    self.programs.insert(id, program);
                }
            }
            Step::Obey(id) => self.obey(id),
            Step::Write(id, us) => {
                if let Some(program) = self.programs.get_mut(&id).filter(|it| it.is_there) {
                    program.dirty_us = (program.dirty_us + us).min(program.limit_us);
                    program.has_written = true;
                }
            }
            Step::Flush(id, us) => {
                if let Some(program) = self.programs.get_mut(&id).filter(|it| it.is_there) {
                    program.dirty_us = program.dirty_us.saturating_sub(us);
                }
            }
            Step::Die(id) => {
                let Some(program) = self.programs.get_mut(&id).filter(|it| it.is_there) else {
                    return;
                };
                program.is_there = false;
                program.inbox.clear();
                // The next program begins with a budget of what is dirty.
                program.limit_us = program.dirty_us.max(MINIMUM_US);
                let dirty_us = program.limit_us;
                self.shares
                    .lose(id, if self.planted == Planted::DeadIsFree { 0 } else { dirty_us });
            }
            Step::Return(id) => {
                let Some(program) = self.programs.get_mut(&id).filter(|it| !it.is_there) else {
                    return;
                };
                program.is_there = true;
                let had_us = program.limit_us;
                let needs = Self::needs(0, 1_000, 1);
                if self.planted == Planted::ReturnsWithNothing {
                    self.shares.leave(id);
                    self.shares.settle(id, needs, 0);
                } else {
                    self.shares.settle(id, needs, had_us);
                }
            }
            Step::Saved(id) => {
                if self.programs.get(&id).is_some_and(|program| !program.is_there) {
                    self.programs.remove(&id);
                    self.shares.leave(id);
                }
            }
            Step::Battery(total_us) => {
                self.total_us = total_us;
                if self.planted != Planted::ShorterUnnoticed || total_us > self.shares.total_us() {
                    self.shares.set_total(total_us);
                }
            }
        }
        self.judge(step);
    }

    fn obey(&mut self, id: u8) {
        let Some(program) = self.programs.get_mut(&id).filter(|it| it.is_there) else { return };
        let Some(order) = program.inbox.pop_front() else { return };
        // It cleans until its data fit.
        program.dirty_us = program.dirty_us.min(order.share_us);
        program.limit_us = order.share_us;
        let serial = match self.planted {
            Planted::AnyConfirmation => program.inbox.back().map_or(order.serial, |it| it.serial),
            _ => order.serial,
        };
        self.shares.confirm(id, serial);
    }

    fn tick(&mut self) {
        self.now_ns += TICK_NS;
        for (id, program) in self.programs.iter_mut().filter(|(_, program)| program.is_there) {
            let is_active = std::mem::take(&mut program.has_written);
            let is_pressed = is_active && program.dirty_us >= program.limit_us / 4 * 3;
            let seen = Use { used_us: program.dirty_us, is_pressed, is_active };
            self.shares.observe(*id, seen, self.now_ns);
        }
        for (id, order) in self.shares.divide(self.now_ns) {
            self.programs.get_mut(&id).unwrap().inbox.push_back(order);
        }
    }

    /// The naive sum: whatever programs do from now on, before the guard acts again, must fit.
    fn judge(&mut self, step: &Step) {
        let at_worst_us: u64 = self
            .programs
            .values()
            .map(|program| {
                let ordered = program.inbox.iter().map(|order| order.share_us).max().unwrap_or(0);
                if program.is_there { program.limit_us.max(ordered) } else { program.limit_us }
            })
            .sum();
        // Only a battery that becomes shorter leaves more out than there is, and then what is out
        // must not grow.
        let is_excused = matches!(step, Step::Battery(_));
        if at_worst_us > self.total_us.max(self.worst_us) && !is_excused {
            self.failures.push(format!(
                "{at_worst_us} us after {step:?}, of a battery of {} us",
                self.total_us
            ));
        }
        self.worst_us = at_worst_us;
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let id = 0..6u8;
    let join = (id.clone(), 0..400u64, 20..2_000u64, 1..10u32).prop_map(
        |(id, reservation_ms, limit_ms, weight)| Step::Join {
            id,
            reservation_ms,
            limit_ms,
            weight,
        },
    );
    let step = prop_oneof![
        3 => Just(Step::Tick),
        2 => join,
        6 => id.clone().prop_map(Step::Obey),
        5 => (id.clone(), 0..800_000u64).prop_map(|(id, us)| Step::Write(id, us)),
        1 => (id.clone(), 0..800_000u64).prop_map(|(id, us)| Step::Flush(id, us)),
        1 => id.clone().prop_map(Step::Die),
        1 => id.clone().prop_map(Step::Return),
        1 => id.prop_map(Step::Saved),
        1 => (200_000..2_000_000u64).prop_map(Step::Battery),
    ];
    prop::collection::vec(step, 1..300)
}

fn hunt(steps: &[Step], planted: Planted) -> Vec<String> {
    let mut hunt = Hunt::new(1_000 * MS, planted);
    steps.iter().for_each(|step| hunt.step(step));
    hunt.failures
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_division_promises_more_than_the_battery_has(steps in steps()) {
        prop_assert_eq!(hunt(&steps, Planted::Nothing), Vec::<String>::new());
    }
}

#[test]
fn the_hunt_finds_every_planted_mistake() {
    let planted = [
        Planted::AnyConfirmation,
        Planted::DeadIsFree,
        Planted::ReturnsWithNothing,
        Planted::ShorterUnnoticed,
    ];
    for planted in planted {
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let found = runner.run(&steps(), |steps| {
            prop_assert!(hunt(&steps, planted).is_empty());
            Ok(())
        });
        assert!(found.is_err(), "{planted:?} is not found");
    }
}

/// A battery of `total_ms` for tenants that burst in turn, each of which would use `want_ms`.
struct Bursts {
    hunt: Hunt,
    want_us: u64,
}

impl Bursts {
    fn new(tenants: u8, total_ms: u64, want_ms: u64) -> Self {
        let mut hunt = Hunt::new(total_ms * MS, Planted::Nothing);
        for id in 0..tenants {
            hunt.step(&Step::Join { id, reservation_ms: 0, limit_ms: want_ms, weight: 1 });
        }
        Self { hunt, want_us: want_ms * MS }
    }

    /// A write, unless the program cleans for an order: its writers wait then.
    fn write(&mut self, id: u8, us: u64) {
        let program = &self.hunt.programs[&id];
        if program.inbox.front().is_none_or(|order| order.share_us >= program.dirty_us) {
            self.hunt.step(&Step::Write(id, us));
        }
    }

    /// One tick in which `busy` writes as much as it may and all flush what they have to, at the
    /// speed of one device: a tick's worth.
    fn tick(&mut self, busy: u8) {
        self.write(busy, self.want_us);
        self.hunt.step(&Step::Tick);
        let mut left_us = TICK_NS / 1_000;
        for id in 0..self.hunt.programs.len() as u8 {
            let program = &self.hunt.programs[&id];
            let Some(order) = program.inbox.front() else { continue };
            let excess_us = program.dirty_us.saturating_sub(order.share_us);
            let flushed_us = excess_us.min(left_us);
            left_us -= flushed_us;
            self.hunt.step(&Step::Flush(id, flushed_us));
            if excess_us == flushed_us {
                self.hunt.step(&Step::Obey(id));
            }
        }
    }

    fn limit_us(&self, id: u8) -> u64 {
        self.hunt.programs[&id].limit_us
    }
}

#[test]
fn eight_tenants_that_burst_in_turn_get_what_they_want_of_a_battery_for_one_and_a_half() {
    let mut bursts = Bursts::new(8, 1_500, 1_000);
    for busy in (0..8).cycle().take(24) {
        let mut ticks = 0;
        // The one before counts as pressed for a second; then its share is flushed, and goes on.
        while bursts.limit_us(busy) < 950 * MS {
            bursts.tick(busy);
            ticks += 1;
            assert!(ticks <= 45, "tenant {busy} has {} us", bursts.limit_us(busy));
        }
        (0..40).for_each(|_| bursts.tick(busy));
        assert!(bursts.limit_us(busy) >= 950 * MS);
        assert_eq!(bursts.hunt.failures, Vec::<String>::new());
    }
}

#[test]
fn a_reservation_comes_back_from_a_tenant_that_stays_pressed() {
    let mut bursts = Bursts::new(1, 1_000, 1_000);
    bursts.hunt.step(&Step::Join { id: 1, reservation_ms: 400, limit_ms: 1_000, weight: 1 });
    (0..100).for_each(|_| bursts.tick(0));
    assert!(bursts.limit_us(0) >= 980 * MS, "idle share moves: {}", bursts.limit_us(0));
    for _ in 0..40 {
        bursts.write(1, 400 * MS);
        bursts.tick(0);
    }
    assert!(bursts.limit_us(1) >= 400 * MS, "{}", bursts.limit_us(1));
}

#[test]
fn weights_divide_what_all_want() {
    let mut bursts = Bursts::new(1, 1_000, 1_000);
    bursts.hunt.step(&Step::Join { id: 1, reservation_ms: 0, limit_ms: 1_000, weight: 3 });
    for _ in 0..60 {
        bursts.write(1, 1_000 * MS);
        bursts.tick(0);
    }
    let shares = [bursts.limit_us(0), bursts.limit_us(1)];
    assert!(shares[0].abs_diff(250 * MS) < 20 * MS && shares[1].abs_diff(750 * MS) < 20 * MS);
}

#[test]
fn entitlements_beyond_the_battery_are_refused() {
    let mut shares = Shares::new(1_000, 0);
    let needs = |reservation_us| Needs { minimum_us: 10, reservation_us, limit_us: 900, weight: 1 };
    shares.admit(1, needs(600), 0).unwrap();
    let refused = shares.admit(2, needs(500), 0).unwrap_err();
    assert_eq!(refused, Refused::TooMuch { asked_us: 500, left_us: 400 });
    shares.admit(2, needs(380), 0).unwrap();
    // What a new tenant has already must be free.
    let lent = Refused::Lent { asked_us: 10, free_us: 0 };
    shares.divide(0);
    assert_eq!(shares.admit(3, needs(0), 10), Err(lent));
    // One that is there already may change what it is entitled to.
    shares.admit(1, needs(500), 0).unwrap();
    shares.leave(1);
    shares.admit(3, needs(600), 0).unwrap();
}

#[test]
fn what_is_kept_for_the_next_tenant_is_at_most_a_quarter_of_the_battery_as_it_is_now() {
    let mut shares = Shares::new(8_000, 0);
    let needs = Needs { minimum_us: 10, reservation_us: 0, limit_us: 8_000, weight: 1 };
    shares.admit(1, needs, 0).unwrap();
    shares.divide(0);
    assert!(matches!(shares.admit(2, needs, 4_000), Err(Refused::Lent { .. })));
    for total_us in [8_000, 1_000, 8_000] {
        shares.set_total(total_us);
        assert_eq!(shares.seat_us(), total_us / 4);
    }
}
