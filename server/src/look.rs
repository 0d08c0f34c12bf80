//! A look at a running server from a thread beside its loops: what INFO says, and how long commands
//! took. It reads counters, and takes only locks that nobody holds while something slow happens: no
//! shard of the store, so that neither has to wait for the other.

use std::fmt;

use perdura_media::Clock;

use crate::commands::{self, Server};
use crate::shared::{Shared, Times};

/// A thread that watches the server while it serves.
pub trait Watcher: fmt::Debug + Send + Sync {
    /// Watches until [`Watcher::end`] is called.
    fn watch(&self, looker: &mut Looker<'_, '_>);
    /// Makes [`Watcher::watch`] return, also one that begins later.
    fn end(&self);
}

/// Looks at one server. It belongs to one thread.
pub struct Looker<'s, 'a>(&'s mut Server<'a>);

/// What one look has seen.
#[derive(Debug, Clone)]
pub struct Look {
    /// The sections of INFO that tell of the whole server, as INFO writes them.
    pub info: String,
    /// The commands that were called or refused, in the order of their names.
    pub commands: Vec<CommandLook>,
    /// Errors that were answered, by their first words.
    pub errors: Vec<(String, u64)>,
}

/// The counters of one command since the start, or since the last CONFIG RESETSTAT.
#[derive(Debug, Clone)]
pub struct CommandLook {
    /// Its name; a subcommand's has a bar in it.
    pub name: &'static str,
    /// Calls that were carried out.
    pub calls: u64,
    /// Time that these took, nanoseconds.
    pub time_ns: u64,
    /// Calls that were refused before they began.
    pub rejected: u64,
    /// Calls that were answered with an error.
    pub failed: u64,
    /// How long they took.
    pub spread: Spread,
}

/// How many calls took how long, to a sixteenth of the time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spread(Vec<u64>);

impl Spread {
    /// Number of calls.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The calls since `before`. Without calls if the counters were set back meanwhile.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let then = |at: usize| before.0.get(at).copied().unwrap_or(0);
        let counts = self.0.iter().enumerate().map(|(at, now)| now.checked_sub(then(at)));
        Self(counts.collect::<Option<_>>().unwrap_or_default())
    }

    /// Adds the calls of another command.
    pub fn add(&mut self, other: &Self) {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        self.0.iter_mut().zip(&other.0).for_each(|(sum, count)| *sum += count);
    }

    /// The longest time of the shortest `percent` of all calls, nanoseconds; `None` without any.
    pub fn percentile(&self, percent: f64) -> Option<u64> {
        let wanted = (self.count() as f64 * percent / 100.0).ceil().max(1.0) as u64;
        let mut seen = 0;
        let at = self.0.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        at.map(Times::longest)
    }

    /// The number of calls that took less than each power of two of nanoseconds, from `2^from` to
    /// `2^to`.
    pub fn doublings(&self, from: u32, to: u32) -> impl Iterator<Item = (u64, u64)> {
        let (mut begin, mut calls) = (0, 0);
        (from..=to).map(move |power| {
            let end = Times::begin_of_doubling(power).min(self.0.len());
            calls += self.0[begin..end].iter().sum::<u64>();
            begin = end;
            (1 << power, calls)
        })
    }
}

/// Calls `f` with a looker at the server.
pub(crate) fn with_looker(shared: &Shared<'_>, f: impl FnOnce(&mut Looker<'_, '_>)) {
    f(&mut Looker(&mut Server::new(shared, 0)));
}

impl Looker<'_, '_> {
    /// Looks at the server.
    pub fn look(&mut self) -> Look {
        let server = &mut *self.0;
        server.begin_look();
        let (stats, specs) = (server.shared.stats(), server.index.specs());
        let all = specs.iter().zip(&stats.by_command);
        let was_asked = all.filter(|(_, s)| s.calls.get() + s.rejected.get() > 0);
        let commands = was_asked.map(|(spec, s)| CommandLook {
            name: spec.name,
            calls: s.calls.get(),
            time_ns: s.time_ns.get(),
            rejected: s.rejected.get(),
            failed: s.failed.get(),
            spread: Spread(s.times.get().map_or_else(Vec::new, Times::counts)),
        });
        let errors = server.shared.errors();
        let word = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
        Look {
            commands: commands.collect(),
            errors: errors.iter().map(|(name, count)| (word(name), *count)).collect(),
            info: commands::info_for_look(server),
        }
    }

    /// About how often each of so many equal parts of the memory was used lately, on the scale of
    /// [`perdura_region::Region::heat`].
    pub fn heat(&self, parts: usize) -> Vec<u8> {
        self.0.store.region().heat_of_parts(parts)
    }

    /// The server's clock.
    pub fn clock(&self) -> &dyn Clock {
        self.0.clock
    }
}

impl fmt::Debug for Looker<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Looker").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_between_two_looks() {
        let times = Times::default();
        (1..=100).for_each(|us| times.add(us * 1000));
        let before = Spread(times.counts());
        assert_eq!(before.since(&Spread::default()), before);
        assert_eq!(Spread::default().percentile(99.0), None);
        assert_eq!(before.since(&before).percentile(99.0), None);
        (0..10).for_each(|_| times.add(5_000_000));
        let mut lately = Spread(times.counts()).since(&before);
        assert_eq!(lately.count(), 10);
        let median = lately.percentile(50.0).unwrap();
        assert!((5_000_000..=5_320_000).contains(&median), "{median}");
        assert_eq!(before.since(&Spread(times.counts())).count(), 0, "the counters were set back");
        lately.add(&before);
        assert_eq!(lately, Spread(times.counts()));
    }

    #[test]
    fn buckets_hold_all_shorter_times() {
        let times = Times::default();
        [1, 1023, 1024, 1_000_000, u64::MAX].into_iter().for_each(|ns| times.add(ns));
        let spread = Spread(times.counts());
        let buckets: Vec<_> = spread.doublings(10, 20).collect();
        assert_eq!((buckets[0], buckets[1]), ((1024, 2), (2048, 3)));
        assert_eq!(buckets.last(), Some(&(1 << 20, 4)));
        assert_eq!(Spread::default().doublings(10, 12).map(|(_, n)| n).sum::<u64>(), 0);
    }
}
