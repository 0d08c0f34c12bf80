//! The order in which waiting requests go to the device, as pure code.
//!
//! Invariants: requests are sorted by offset (equal offsets by arrival), at most `request_max` of
//! them. The head moves up over them and begins again at the bottom (C-SCAN), so no request waits
//! for more than one sweep of the present ones. Requests that arrive just before a busy head could
//! delay the others without end; therefore a request whose expiry has passed goes first, the oldest
//! before the others.
//!
//! A command takes along the waiting requests of its direction that follow it without a gap, up to
//! a length. A request that ends where the command begins lies behind the head and waits for the
//! next sweep.

use super::{Access, PlantedPath};

/// A request that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Waiting {
    pub access: Access,
    pub offset_bytes: u64,
    pub len_bytes: u64,
    /// The instant from which the request goes first.
    pub expires_ps: u64,
    /// Ticket of the thread that waits.
    pub ticket: usize,
}

impl Waiting {
    fn end_bytes(&self) -> u64 {
        self.offset_bytes + self.len_bytes
    }
}

/// A command for the device, made from one or several requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Command {
    pub access: Access,
    pub offset_bytes: u64,
    pub len_bytes: u64,
}

#[derive(Debug)]
pub(super) struct Elevator {
    /// Requests by offset, each with its number of arrival.
    waiting: Vec<(Waiting, u64)>,
    arrivals: u64,
    head_bytes: u64,
    merge_bytes_max: u64,
    planted: PlantedPath,
}

impl Elevator {
    pub(super) fn new(requests_max: usize, merge_bytes_max: u64, planted: PlantedPath) -> Self {
        // Reserved at once, for inserting happens under a lock and must not allocate.
        let waiting = Vec::with_capacity(requests_max);
        Self { waiting, arrivals: 0, head_bytes: 0, merge_bytes_max, planted }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn insert(&mut self, request: Waiting) {
        assert!(self.waiting.len() < self.waiting.capacity(), "more requests than tickets");
        let at =
            self.waiting.partition_point(|(other, _)| other.offset_bytes <= request.offset_bytes);
        self.waiting.insert(at, (request, self.arrivals));
        self.arrivals += 1;
    }

    /// Returns the next command, and puts the tickets of its requests into `tickets` (emptied
    /// first); `None` if no request waits.
    pub(super) fn take(&mut self, now_ps: u64, tickets: &mut Vec<usize>) -> Option<Command> {
        tickets.clear();
        let first = self.first(now_ps)?;
        let (Waiting { access, offset_bytes, len_bytes, ticket, .. }, _) = self.waiting[first];
        let mut command = Command { access, offset_bytes, len_bytes };
        tickets.push(ticket);
        let mut end = first + 1;
        while let Some((next, _)) = self.waiting.get(end)
            && self.merges(&command, next)
        {
            command.len_bytes = next.end_bytes() - command.offset_bytes;
            tickets.push(next.ticket);
            end += 1;
        }
        self.waiting.drain(first..end);
        self.head_bytes = command.offset_bytes + command.len_bytes;
        Some(command)
    }

    fn merges(&self, command: &Command, next: &Waiting) -> bool {
        let end_bytes = command.offset_bytes + command.len_bytes;
        let follows = match self.planted {
            PlantedPath::MergeOverGap => next.offset_bytes >= end_bytes,
            _ => next.offset_bytes == end_bytes,
        };
        let is_same = next.access == command.access || self.planted == PlantedPath::MergeDirections;
        follows && is_same && next.end_bytes() - command.offset_bytes <= self.merge_bytes_max
    }

    fn first(&self, now_ps: u64) -> Option<usize> {
        if self.waiting.len() < 2 {
            return (!self.waiting.is_empty()).then_some(0);
        }
        // All requests are looked at: queues are short, and no second order has to be kept in step.
        let expired = |(_, (request, _)): &(usize, &(Waiting, u64))| {
            request.expires_ps <= now_ps && self.planted != PlantedPath::ForgetExpiry
        };
        let oldest = self
            .waiting
            .iter()
            .enumerate()
            .filter(expired)
            .min_by_key(|(_, (_, arrival))| *arrival);
        if let Some((index, _)) = oldest {
            return Some(index);
        }
        let above = self.waiting.partition_point(|(r, _)| r.offset_bytes < self.head_bytes);
        Some(if above == self.waiting.len() { 0 } else { above })
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus as Random;

    use super::*;

    const REQUESTS_MAX: usize = 64;
    const MERGE_BYTES_MAX: u64 = 6;

    /// The naive oracle: looks at all requests each time, in order of arrival.
    struct Naive {
        waiting: Vec<Waiting>,
        head_bytes: u64,
    }

    impl Naive {
        fn take(&mut self, now_ps: u64) -> Option<(Command, Vec<usize>)> {
            let expired = self.waiting.iter().find(|request| request.expires_ps <= now_ps);
            // Both sorts keep the order of arrival among equals.
            let ahead = self.waiting.iter().filter(|r| r.offset_bytes >= self.head_bytes);
            let first = expired
                .or_else(|| ahead.min_by_key(|request| request.offset_bytes))
                .or_else(|| self.waiting.iter().min_by_key(|request| request.offset_bytes))
                .copied()?;
            let mut sorted = self.waiting.clone();
            sorted.sort_by_key(|request| (request.offset_bytes, request.ticket));
            let behind = sorted.into_iter().skip_while(|request| request.ticket != first.ticket);
            let (mut carried, mut end) = (vec![first.ticket], first.end_bytes());
            for next in behind.skip(1) {
                let is_short = next.end_bytes() - first.offset_bytes <= MERGE_BYTES_MAX;
                if next.offset_bytes != end || next.access != first.access || !is_short {
                    break;
                }
                end = next.end_bytes();
                carried.push(next.ticket);
            }
            self.waiting.retain(|request| !carried.contains(&request.ticket));
            self.head_bytes = end;
            let len_bytes = end - first.offset_bytes;
            let command =
                Command { access: first.access, offset_bytes: first.offset_bytes, len_bytes };
            Some((command, carried))
        }
    }

    fn requests(random: &mut Random, ticket: usize, now_ps: u64) -> Waiting {
        Waiting {
            access: if random.random_bool(0.5) { Access::Read } else { Access::Write },
            offset_bytes: random.random_range(0..40),
            len_bytes: random.random_range(1..4),
            expires_ps: now_ps + random.random_range(5..60),
            ticket,
        }
    }

    /// Whether an elevator agrees with the naive one.
    fn agrees(seed: u64, planted: PlantedPath) -> bool {
        let mut random = Random::seed_from_u64(seed);
        let mut elevator = Elevator::new(REQUESTS_MAX, MERGE_BYTES_MAX, planted);
        let mut naive = Naive { waiting: Vec::new(), head_bytes: 0 };
        let mut tickets = Vec::new();
        for now_ps in 0..400 {
            if random.random_bool(0.6) && naive.waiting.len() < REQUESTS_MAX {
                let request = requests(&mut random, now_ps as usize, now_ps);
                elevator.insert(request);
                naive.waiting.push(request);
            } else {
                let taken = elevator.take(now_ps, &mut tickets);
                if taken.map(|command| (command, tickets.clone())) != naive.take(now_ps) {
                    return false;
                }
            }
        }
        true
    }

    #[test]
    fn commands_leave_in_the_order_of_the_naive_sweep() {
        for seed in 0..300 {
            assert!(agrees(seed, PlantedPath::None), "seed {seed}");
        }
    }

    #[test]
    fn planted_bugs_of_the_order_are_caught() {
        for planted in
            [PlantedPath::MergeDirections, PlantedPath::MergeOverGap, PlantedPath::ForgetExpiry]
        {
            assert!((0..300).any(|seed| !agrees(seed, planted)), "{planted:?} is not caught");
        }
    }

    /// Commands until the request behind the head is served, while others keep arriving before the
    /// head.
    fn commands_until_served(planted: PlantedPath) -> Option<usize> {
        const EXPIRY_PS: u64 = 100;
        let mut elevator = Elevator::new(REQUESTS_MAX, MERGE_BYTES_MAX, planted);
        let ahead = |at: u64| Waiting {
            access: Access::Read,
            offset_bytes: 1000 + 10 * at,
            len_bytes: 1,
            expires_ps: at + EXPIRY_PS,
            ticket: 1,
        };
        let mut tickets = Vec::new();
        (0..10).for_each(|at| elevator.insert(ahead(at)));
        elevator.take(10, &mut tickets);
        elevator.insert(Waiting { offset_bytes: 0, ticket: 0, ..ahead(10) });
        for at in 10..5000 {
            elevator.insert(ahead(at));
            elevator.take(at, &mut tickets);
            if tickets.contains(&0) {
                return Some((at - 10) as usize);
            }
        }
        None
    }

    #[test]
    fn no_request_waits_longer_than_its_expiry_and_those_that_expired_before_it() {
        // One request arrives and one leaves in each round. At most the ten that were there are
        // older.
        let rounds = commands_until_served(PlantedPath::None);
        assert!(rounds.is_some_and(|rounds| rounds <= 100 + 10), "{rounds:?}");
        assert_eq!(commands_until_served(PlantedPath::ForgetExpiry), None);
    }
}
