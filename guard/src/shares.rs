//! Tenants share one battery: who may have how much of its flush time.
//!
//! The unit is flush time in microseconds, because regions have different flush rates. A tenant
//! with a share of 2 s may have as much dirty as it can flush in 2 s with the device to itself; so
//! all tenants together need no longer than the sum of their shares.
//!
//! Battery time is a resource like memory, moved to those who use it as ballooning moves memory
//! (Viyojit, section 8):
//!
//! - Floors first (the reservation of a tenant that uses it, the minimum of one that does not),
//!   then by weight, up to each tenant's limit.
//! - Time moves when a tenant is *pressed*: it cleans because its share is full. A tenant that has
//!   not been pressed for a while is left with what it uses; one that writes nothing, with its
//!   minimum.
//! - A share is made smaller by an *order*. Its time is given to others only when the tenant has
//!   confirmed that order, and as far as no later one is larger: its dirty data fit the smaller
//!   share then. So the shares in force are never longer than the battery, and taking time back
//!   takes one flush of it at most.
//!
//! This is arithmetic only: nothing here reads a clock or sends a message.

mod fill;
mod pool;

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use fill::{Part, fill};
use pool::{Piece, Pool};

/// How long a tenant counts as pressed after it was seen to be.
const PRESSED_FOR_NS: u64 = 1_000_000_000;
/// Shares change by at least this part of the battery, so that small changes cause no traffic.
const STEP: u64 = 64;
/// Most orders that a tenant has not confirmed and that are told apart.
const UNCONFIRMED_MAX: usize = 16;
/// A tenant that is not pressed keeps this many times what it uses: a quarter more.
const ROOM: (u64, u64) = (5, 4);

/// What a tenant is entitled to. Times are flush times in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Needs {
    /// The least with which its writers can proceed at all.
    pub(crate) minimum_us: u64,
    /// What it gets whenever it uses it, whatever others want.
    pub(crate) reservation_us: u64,
    /// The most that it gets.
    pub(crate) limit_us: u64,
    /// Its part of what is beyond all reservations, relative to others.
    pub(crate) weight: u32,
}

impl Needs {
    /// What must never be lent to others for good.
    fn entitled_us(&self) -> u64 {
        self.minimum_us.max(self.reservation_us.min(self.limit_us))
    }

    fn cap_us(&self) -> u64 {
        self.limit_us.max(self.minimum_us)
    }
}

/// What is seen of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Use {
    /// Flush time of what is dirty.
    pub(crate) used_us: u64,
    /// Whether its share is full and it cleans for that reason.
    pub(crate) is_pressed: bool,
    /// Whether it has written anything since it was seen last.
    pub(crate) is_active: bool,
}

/// The share that a tenant is told to keep to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Order {
    /// Number of the order. A tenant that keeps to the share confirms this number.
    pub(crate) serial: u64,
    /// The share, microseconds.
    pub(crate) share_us: u64,
}

/// Why a tenant is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// What it and all others are entitled to is longer than the battery.
    TooMuch {
        /// What it is entitled to, microseconds.
        asked_us: u64,
        /// What the others are not entitled to, microseconds.
        left_us: u64,
    },
    /// What it has in force already is lent to others, and is being taken back.
    Lent {
        /// What it has, microseconds.
        asked_us: u64,
        /// What is free, microseconds.
        free_us: u64,
    },
}

/// The shares of all tenants. `Id` names a tenant.
#[derive(Debug)]
pub(crate) struct Shares<Id> {
    pool: Pool,
    tenants: BTreeMap<Id, Tenant>,
    next_serial: u64,
    /// What is kept free for the next tenant to begin with.
    seat_us: u64,
}

#[derive(Debug)]
struct Tenant {
    needs: Needs,
    /// What it may have in force: at least its last order's share.
    granted: Piece,
    order: Order,
    /// The orders that it has not confirmed, oldest first. It may follow any of them.
    sent: VecDeque<Order>,
    /// Whether it was told a share since it came.
    is_told: bool,
    used_us: u64,
    /// Until when it counts as pressed, and as active.
    pressed_until_ns: u64,
    active_until_ns: u64,
    /// False: its program is gone, so its dirty data only become less.
    is_there: bool,
}

impl Tenant {
    /// What it could use, by what is seen of it.
    fn wanted_us(&self, now_ns: u64) -> u64 {
        let minimum_us = self.needs.minimum_us;
        let wanted_us = if now_ns < self.pressed_until_ns {
            self.needs.cap_us()
        } else if now_ns < self.active_until_ns {
            self.used_us.saturating_mul(ROOM.0) / ROOM.1
        } else {
            minimum_us
        };
        wanted_us.max(minimum_us).min(self.needs.cap_us())
    }

    fn part(&self, floor: u64, cap: u64) -> Part {
        Part { floor, cap, weight: self.needs.weight.max(1) }
    }
}

impl<Id: Ord + Copy> Shares<Id> {
    /// Shares of a battery that lasts `total_us` for flushing, of which `seat_us` or more are kept
    /// free for the next tenant to begin with.
    pub(crate) fn new(total_us: u64, seat_us: u64) -> Self {
        Self { pool: Pool::new(total_us), tenants: BTreeMap::new(), next_serial: 1, seat_us }
    }

    /// The battery's flush time, microseconds.
    pub(crate) fn total_us(&self) -> u64 {
        self.pool.total_us()
    }

    /// By how much the shares in force are longer than the battery, because it became shorter or
    /// because tenants came who had time already; microseconds.
    pub(crate) fn debt_us(&self) -> u64 {
        self.pool.debt_us()
    }

    /// What a tenant may have in force, microseconds.
    pub(crate) fn granted_us(&self, id: Id) -> Option<u64> {
        self.tenants.get(&id).map(|tenant| tenant.granted.us())
    }

    /// Whether a tenant with these needs fits beside what all others are entitled to.
    pub(crate) fn check_entitled(&self, id: Id, needs: Needs) -> Result<(), Refused> {
        let others = self.tenants.iter().filter(|(other, _)| **other != id);
        let entitled_us: u64 = others.map(|(_, tenant)| tenant.needs.entitled_us()).sum();
        let left_us = self.pool.total_us().saturating_sub(entitled_us);
        let asked_us = needs.entitled_us();
        match asked_us > left_us {
            true => Err(Refused::TooMuch { asked_us, left_us }),
            false => Ok(()),
        }
    }

    /// What is kept free for the next tenant: at most a quarter of the battery as it is now.
    fn seat_us(&self) -> u64 {
        self.seat_us.min(self.pool.total_us() / 4)
    }

    /// Admits a tenant that has `had_us` in force already, or changes what it is entitled to.
    pub(crate) fn admit(&mut self, id: Id, needs: Needs, had_us: u64) -> Result<(), Refused> {
        self.check_entitled(id, needs)?;
        let free_us = self.pool.free_us();
        if !self.tenants.contains_key(&id) && had_us > free_us {
            // As much is taken back for when it asks again, and kept free for others like it.
            self.seat_us = self.seat_us.max(had_us);
            return Err(Refused::Lent { asked_us: had_us, free_us });
        }
        self.settle(id, needs, had_us);
        Ok(())
    }

    /// Takes a tenant as it is, entitled or not: its data are there, and must be reckoned with.
    pub(crate) fn settle(&mut self, id: Id, needs: Needs, had_us: u64) {
        let order = Order { serial: self.serial(), share_us: 0 };
        let tenant = self.tenants.entry(id).or_insert_with(|| Tenant {
            needs,
            granted: Piece::default(),
            order,
            sent: VecDeque::new(),
            is_told: false,
            used_us: 0,
            pressed_until_ns: 0,
            active_until_ns: 0,
            is_there: true,
        });
        tenant.needs = needs;
        tenant.is_there = true;
        let more_us = had_us.saturating_sub(tenant.granted.us());
        tenant.granted.join(self.pool.owe(more_us));
        // It has not read what was ordered before it came.
        (tenant.order, tenant.is_told) = (order, false);
        tenant.sent.clear();
        self.check();
    }

    /// Notes what is seen of a tenant.
    pub(crate) fn observe(&mut self, id: Id, seen: Use, now_ns: u64) {
        let Some(tenant) = self.tenants.get_mut(&id) else { return };
        tenant.used_us = seen.used_us;
        if seen.is_pressed {
            tenant.pressed_until_ns = now_ns + PRESSED_FOR_NS;
        }
        if seen.is_active {
            tenant.active_until_ns = now_ns + PRESSED_FOR_NS;
        }
    }

    /// Reckons with a tenant that has `had_us` in force, more than it was granted.
    pub(crate) fn overdraw(&mut self, id: Id, had_us: u64) {
        let Some(tenant) = self.tenants.get_mut(&id) else { return };
        let more_us = had_us.saturating_sub(tenant.granted.us());
        tenant.granted.join(self.pool.owe(more_us));
        self.check();
    }

    /// Notes that a tenant keeps to an order. It may follow later ones by and by; what it had
    /// beyond all of them is free.
    pub(crate) fn confirm(&mut self, id: Id, serial: u64) {
        let Some(tenant) = self.tenants.get_mut(&id) else { return };
        if tenant.sent.iter().any(|order| order.serial == serial) {
            tenant.sent.retain(|order| order.serial >= serial);
            let most_us = tenant.sent.iter().map(|order| order.share_us).max().unwrap_or(0);
            self.pool.put(tenant.granted.cut_to(most_us));
        }
        self.check();
    }

    /// Notes that a tenant's program is gone, with dirty data that take `dirty_us` to flush.
    pub(crate) fn lose(&mut self, id: Id, dirty_us: u64) {
        let serial = self.serial();
        let Some(tenant) = self.tenants.get_mut(&id) else { return };
        tenant.is_there = false;
        tenant.order = Order { serial, share_us: dirty_us };
        tenant.sent.clear();
        let more_us = dirty_us.saturating_sub(tenant.granted.us());
        tenant.granted.join(self.pool.owe(more_us));
        self.pool.put(tenant.granted.cut_to(dirty_us));
        self.check();
    }

    /// Lets a tenant go, whose data are on the SSD.
    pub(crate) fn leave(&mut self, id: Id) {
        if let Some(tenant) = self.tenants.remove(&id) {
            self.pool.put(tenant.granted);
        }
        self.check();
    }

    /// Follows the battery, which lasts longer or shorter now.
    pub(crate) fn set_total(&mut self, total_us: u64) {
        self.pool.resize(total_us);
        self.check();
    }

    /// Divides the battery anew. Returns the orders to give.
    pub(crate) fn divide(&mut self, now_ns: u64) -> Vec<(Id, Order)> {
        let targets = self.targets(now_ns);
        let step_us = self.pool.total_us() / STEP;
        let is_short = |id: &Id, tenant: &Tenant| {
            let is_pressed = now_ns < tenant.pressed_until_ns;
            !tenant.is_told || (is_pressed && targets[id] > tenant.granted.us() + step_us)
        };
        // Time is taken from nobody unless somebody lacks it; what is free goes to whoever can use
        // it.
        let somebody_lacks = self.pool.free_us() < self.seat_us()
            || self.there().any(|(id, tenant)| is_short(id, tenant));
        let mut orders = Vec::new();
        if somebody_lacks {
            orders = self.shrink(&targets, step_us);
        }
        orders.extend(self.grow(&targets, step_us));
        self.check();
        orders
    }

    /// Orders those to shrink who have more than their target.
    fn shrink(&mut self, targets: &BTreeMap<Id, u64>, step_us: u64) -> Vec<(Id, Order)> {
        let step_us = if self.pool.free_us() < self.seat_us() { 0 } else { step_us };
        let too_long: Vec<_> = self
            .there()
            .filter(|(id, tenant)| targets[id] + step_us < tenant.order.share_us)
            .map(|(id, _)| (*id, targets[id]))
            .collect();
        too_long.into_iter().filter_map(|(id, target_us)| self.order(id, target_us)).collect()
    }

    /// Gives what is free to those who have less than their target: to those first who lack what
    /// they are entitled to, then to those who lack most.
    fn grow(&mut self, targets: &BTreeMap<Id, u64>, step_us: u64) -> Vec<(Id, Order)> {
        let mut too_short: Vec<_> = self
            .there()
            .filter(|(id, tenant)| targets[id] > tenant.order.share_us + step_us || !tenant.is_told)
            .map(|(id, tenant)| {
                let share_us = tenant.order.share_us;
                let entitled_us = targets[id].min(tenant.needs.entitled_us());
                let lacks_us = entitled_us.saturating_sub(share_us);
                (lacks_us, targets[id].saturating_sub(share_us), *id)
            })
            .collect();
        too_short.sort_by_key(|(entitled_us, lacks_us, _)| Reverse((*entitled_us, *lacks_us)));
        let is_in_debt = self.pool.debt_us() > 0;
        let mut orders = Vec::new();
        for (_, _, id) in too_short {
            let target_us = targets[&id];
            let free_us = self.pool.free_us().saturating_sub(self.seat_us());
            let Some(tenant) = self.tenants.get_mut(&id) else { continue };
            let reach_us = target_us.min(tenant.granted.us() + free_us);
            // With debt nothing grows, not even back to what a tenant has not given up yet; and a
            // small part of what it lacks is not worth an order.
            let is_worth_it = !is_in_debt
                && (reach_us == target_us || reach_us >= tenant.order.share_us + step_us);
            if is_worth_it || !tenant.is_told {
                let more_us = reach_us.saturating_sub(tenant.granted.us());
                tenant.granted.join(self.pool.take(more_us));
                orders.extend(self.order(id, reach_us));
            }
        }
        orders
    }

    /// The order for a share that is covered by what the tenant is granted.
    fn order(&mut self, id: Id, share_us: u64) -> Option<(Id, Order)> {
        let serial = self.serial();
        let tenant = self.tenants.get_mut(&id)?;
        let share_us = share_us.min(tenant.granted.us());
        tenant.is_told = true;
        tenant.order = Order { serial, share_us };
        tenant.sent.push_back(tenant.order);
        if tenant.sent.len() > UNCONFIRMED_MAX {
            // To confirm the oldest changes nothing any more; to confirm a later one frees more.
            tenant.sent.pop_front();
        }
        Some((id, tenant.order))
    }

    /// What each tenant that is there should have.
    fn targets(&self, now_ns: u64) -> BTreeMap<Id, u64> {
        let gone = self.tenants.values().filter(|tenant| !tenant.is_there);
        let gone_us: u64 = gone.map(|tenant| tenant.granted.us()).sum();
        let total_us = self.pool.total_us().saturating_sub(gone_us + self.seat_us());
        let by_want = |tenant: &Tenant| {
            let wanted_us = tenant.wanted_us(now_ns);
            tenant.part(wanted_us.min(tenant.needs.entitled_us()), wanted_us)
        };
        let wants: Vec<_> = self.there().map(|(_, tenant)| by_want(tenant)).collect();
        // What nobody wants is spread, so that a burst does not begin with waiting.
        let spread = |((_, tenant), got_us): ((_, &Tenant), u64)| {
            tenant.part(got_us, tenant.needs.cap_us().max(got_us))
        };
        let wanted = fill(total_us, &wants);
        let parts: Vec<_> = self.there().zip(wanted).map(spread).collect();
        // A battery that is too short for all minimums cannot change them: debt says so.
        let least = |((id, it), us): ((&Id, &Tenant), u64)| (*id, us.max(it.needs.minimum_us));
        self.there().zip(fill(total_us, &parts)).map(least).collect()
    }

    fn there(&self) -> impl Iterator<Item = (&Id, &Tenant)> {
        self.tenants.iter().filter(|(_, tenant)| tenant.is_there)
    }

    fn serial(&mut self) -> u64 {
        self.next_serial += 1;
        self.next_serial
    }

    /// Panics unless all shares together are covered by the battery, but for the debt. It guards
    /// what the product promises, so it stays in release.
    fn check(&self) {
        let out_us = self.tenants.values().map(|tenant| tenant.granted.us()).sum();
        self.pool.assert_right(out_us);
        for tenant in self.tenants.values() {
            assert!(tenant.order.share_us <= tenant.granted.us(), "a share without cover");
        }
    }
}

#[cfg(test)]
mod hunt;
