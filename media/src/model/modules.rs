//! The times of the memory modules of a server whose measurements were published.
//!
//! Each module is *busy until* an instant with reads, and has a backlog of writes, which are
//! accepted before they are done. Other work of the module makes its reads wait.
//!
//! - A backlog shrinks while there are no reads. Beside reads it gets its share of the time, and
//!   the part that does not fit the buffer goes first. So reads and writes share a busy module, and
//!   neither starves.
//! - DRAM writes in batches: nothing, and then all of the backlog before the next read.
//! - A write that finds no room in the buffer is accepted when there is room. The more writes wait,
//!   the longer each takes, because granules leave the buffer before all of their lines are there.
//! - Both kinds of modules share channels, with one module of each kind on a channel.
//!
//! Times are nanoseconds since the caller's start. The rule is pure: it reads no clock.

use crate::profile::Modules as Rule;

/// Modules of one kind. Calls come in the order of their instants.
pub struct Modules {
    rule: Rule,
    modules: Vec<Module>,
}

/// The state of one module.
#[derive(Clone, Debug, Default)]
struct Module {
    /// Instant at which the reads so far are done.
    busy_until_ns: f64,
    /// Work on writes that are accepted and not done, ns.
    backlog_ns: f64,
    /// Work that found the module idle, and work that had to wait, ns, for the energy.
    worked_ns: [f64; 2],
}

/// The channels to the modules, each busy until an instant.
pub struct Channels {
    busy_until_ns: Vec<f64>,
}

/// Lines of 64 B in a row on one module before the next module.
const STRIPE_LINES: u64 = 64;
/// Stripes in a MiB.
const TURNED_STRIPES: u64 = 256;

/// The module of a line. Modules take turns; the address decides which is the first of each MiB, as
/// in memory controllers: otherwise threads a power of two apart would all meet at one module.
fn module_of(line: u64, modules: usize) -> usize {
    let (stripe, modules) = (line / STRIPE_LINES, modules as u64);
    let turned = (stripe / TURNED_STRIPES).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    ((stripe + turned) % modules) as usize
}

impl Channels {
    /// Idle channels.
    #[must_use]
    pub fn new(channels: u32) -> Self {
        Self { busy_until_ns: vec![0.0; channels as usize] }
    }

    /// Takes the channel of a line for `length_ns`; returns how long it had to wait.
    pub fn claim(&mut self, now_ns: f64, line: u64, length_ns: f64) -> f64 {
        let channel = module_of(line, self.busy_until_ns.len());
        let busy_until_ns = &mut self.busy_until_ns[channel];
        let start_ns = busy_until_ns.max(now_ns);
        *busy_until_ns = start_ns + length_ns;
        start_ns - now_ns
    }
}

impl Modules {
    /// Idle modules.
    #[must_use]
    pub fn new(rule: &Rule, modules: u32) -> Self {
        Self { rule: rule.clone(), modules: vec![Module::default(); modules as usize] }
    }

    /// The numbers of these modules.
    #[must_use]
    pub fn rule(&self) -> &Rule {
        &self.rule
    }

    /// Reads lines on one module; returns how long they had to wait for others. `follows` says that
    /// they follow the same thread's last read.
    pub fn read(&mut self, now_ns: f64, line: u64, lines: u64, follows: bool) -> f64 {
        let rule = &self.rule;
        let each = rule.granule_lines;
        let work_ns = if follows && lines < each {
            // The rest of a granule that the thread's last access has read.
            rule.read_cycle_ns * lines as f64 / each as f64
        } else {
            let granules = ((line + lines - 1) / each - line / each + 1) as f64;
            let unread_lines = granules * each as f64 - lines as f64;
            let apart_ns = if follows { 0.0 } else { rule.read_apart_ns };
            granules * rule.read_cycle_ns - unread_lines * rule.unread_line_ns + apart_ns
        };
        self.serve(now_ns, line, work_ns)
    }

    /// Reads lines behind an access that the prefetchers fetched in vain.
    pub fn overrun(&mut self, now_ns: f64, line: u64, lines: f64) {
        let work_ns = self.rule.read_cycle_ns * lines / self.rule.granule_lines as f64;
        self.serve(now_ns, line, work_ns);
    }

    /// Writes granules; returns the time until they were accepted.
    pub fn write(&mut self, now_ns: f64, line: u64, granules: f64, follows: bool) -> f64 {
        let room_ns = self.rule.write_buffer * self.rule.write_cycle_ns;
        let apart_ns = if follows { 0.0 } else { self.rule.write_apart_ns };
        let (cycle_ns, crowding) = (self.rule.write_cycle_ns, self.rule.crowding);
        let in_batches = self.rule.writes_in_batches;
        let module = self.settled(now_ns, line);
        let beyond = ((module.backlog_ns - room_ns) / room_ns).clamp(0.0, CROWD_MAX);
        self.add(now_ns, line, granules * cycle_ns * (1.0 + crowding * beyond) + apart_ns);
        let module = self.settled(now_ns, line);
        let busy_ns = module.busy_until_ns - now_ns;
        match module.backlog_ns - room_ns {
            excess_ns if excess_ns > 0.0 => busy_ns + excess_ns,
            _ if in_batches => (busy_ns - room_ns).max(0.0),
            _ => 0.0,
        }
    }

    /// Writes lines that leave the caches one by one: most take a granule each.
    pub fn write_back(&mut self, now_ns: f64, line: u64, lines: u64) {
        let rule = &self.rule;
        let (alone, apart_ns) = match rule.granule_lines {
            1 => (1.0, rule.write_apart_ns),
            _ => (1.0 - rule.merged, 0.0),
        };
        self.add(now_ns, line, lines as f64 * alone * rule.write_cycle_ns + apart_ns);
    }

    /// Work of all modules that found them idle, and work that had to wait, ns.
    #[must_use]
    pub fn worked_ns(&self) -> [f64; 2] {
        let sum = |which: usize| self.modules.iter().map(|module| module.worked_ns[which]).sum();
        [sum(0), sum(1)]
    }

    /// A line's module, brought up to an instant.
    fn settled(&mut self, now_ns: f64, line: u64) -> &mut Module {
        let which = module_of(line, self.modules.len());
        let module = &mut self.modules[which];
        let idle_ns = now_ns - module.busy_until_ns;
        if idle_ns > 0.0 {
            if !self.rule.writes_in_batches {
                module.backlog_ns = (module.backlog_ns - idle_ns).max(0.0);
            }
            module.busy_until_ns = now_ns;
        }
        module
    }

    fn serve(&mut self, now_ns: f64, line: u64, work_ns: f64) -> f64 {
        let room_ns = self.rule.write_buffer * self.rule.write_cycle_ns;
        let (in_batches, share) = (self.rule.writes_in_batches, self.rule.write_share);
        let module = self.settled(now_ns, line);
        let wait_ns = module.busy_until_ns - now_ns;
        let written_ns = match in_batches {
            true => 0.0,
            false => (work_ns * share).max(module.backlog_ns - room_ns).min(module.backlog_ns),
        };
        module.backlog_ns -= written_ns;
        module.busy_until_ns += work_ns + written_ns;
        module.worked_ns[usize::from(wait_ns > 0.0)] += work_ns;
        wait_ns + written_ns
    }

    fn add(&mut self, now_ns: f64, line: u64, work_ns: f64) {
        let room_ns = self.rule.write_buffer * self.rule.write_cycle_ns;
        let in_batches = self.rule.writes_in_batches;
        let module = self.settled(now_ns, line);
        module.worked_ns[usize::from(module.backlog_ns > 0.0)] += work_ns;
        module.backlog_ns += work_ns;
        if in_batches && module.backlog_ns >= room_ns {
            module.busy_until_ns += module.backlog_ns;
            module.backlog_ns = 0.0;
        }
    }
}

/// Waiting writes beyond this make a write no longer.
const CROWD_MAX: f64 = 1.5;

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(granule_lines: u64, writes_in_batches: bool) -> Rule {
        Rule {
            granule_lines,
            read_ns: 400.0,
            behind_ns: 200.0,
            stream_ns: 160.0,
            read_cycle_ns: 30.0,
            read_apart_ns: 5.0,
            unread_line_ns: 3.0,
            write_cycle_ns: 90.0,
            write_apart_ns: 0.0,
            flush_ns: 50.0,
            merged: 0.2,
            write_buffer: 4.0,
            writes_in_batches,
            write_share: 1.0,
            crowding: 1.0,
            overrun: 1.0,
            channel_ns: 6.0,
        }
    }

    #[test]
    fn reads_of_one_module_wait_for_each_other_and_others_do_not() {
        let mut modules = Modules::new(&rule(4, false), 2);
        assert_eq!(modules.read(0.0, 0, 4, false), 0.0);
        assert_eq!(modules.read(0.0, 8, 4, false), 35.0);
        assert_eq!(modules.read(0.0, STRIPE_LINES, 4, false), 0.0);
        // A single line of a granule takes a little less work than the whole granule.
        assert_eq!(modules.read(100.0, 16, 1, false), 0.0);
        assert_eq!(modules.read(100.0, 24, 4, false), 30.0 + 5.0 - 3.0 * 3.0);
    }

    #[test]
    fn a_write_waits_only_where_the_buffer_is_full_and_then_for_its_own_excess() {
        let mut modules = Modules::new(&rule(4, false), 1);
        let waits: Vec<f64> =
            (0..5).map(|number| modules.write(0.0, 4 * number, 1.0, false)).collect();
        assert_eq!(waits, [0.0, 0.0, 0.0, 0.0, 90.0]);
        // The idle module writes all of it.
        assert_eq!(modules.write(5.0 * 90.0, 0, 1.0, false), 0.0);
        assert_eq!(modules.read(6.0 * 90.0, 0, 4, false), 0.0);
    }

    #[test]
    fn reads_give_writes_their_share_and_all_that_finds_no_room() {
        let mut modules = Modules::new(&rule(4, false), 1);
        modules.write(0.0, 0, 1.0, false);
        // Writes get as long as the read itself takes.
        assert_eq!(modules.read(0.0, 8, 4, false), 35.0);
        let mut full = Modules::new(&rule(4, false), 1);
        (0..8).for_each(|number| full.write_back(0.0, 4 * number, 1));
        let beyond_ns = 8.0 * 0.8 * 90.0 - 4.0 * 90.0;
        assert!((full.read(0.0, 64, 4, false) - beyond_ns).abs() < 1e-6);
    }

    #[test]
    fn dram_writes_nothing_and_then_all_of_it() {
        let mut modules = Modules::new(&rule(1, true), 1);
        for line in 0..3 {
            modules.write_back(0.0, line, 1);
            assert_eq!(modules.read(1e4 * (1.0 + line as f64), 0, 1, false), 0.0);
        }
        modules.write_back(1e5, 3, 1);
        assert_eq!(modules.read(1e5, 0, 1, false), 4.0 * 90.0);
    }

    #[test]
    fn modules_on_a_channel_wait_for_its_lines() {
        let mut channels = Channels::new(2);
        assert_eq!(channels.claim(0.0, 0, 10.0), 0.0);
        assert_eq!(channels.claim(4.0, 2 * STRIPE_LINES, 10.0), 6.0);
        assert_eq!(channels.claim(4.0, STRIPE_LINES, 10.0), 0.0);
    }
}
