//! How many devices are primaries: found by trials (Sprint-AEP, section III-A).
//!
//! Under pressure one more device is made a primary for a while. It stays one if the gain of the
//! reads and the gain of the writes, added up, reach alpha. The paper leaves the way down open:
//! here it is the mirror image. Without pressure one primary fewer is tried, and stays away if the
//! loss is less than half of alpha, so that the next trial upwards would not bring it back. A trial
//! that failed is not repeated until the rates have changed by alpha.

/// The gain that keeps one more primary awake (the paper's alpha).
pub const ALPHA: f64 = 0.1;
/// Primaries that are busy for more of the time are pressed, a share. With much time left, one more
/// would gain little, and a trial costs energy.
pub const PRESSED_ABOVE: f64 = 0.8;
/// Most idle devices behind one primary (the paper's M).
pub const BEHIND_MAX: u16 = 3;

/// What is seen of a period.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Rates {
    /// Reads a second.
    pub reads_per_s: f64,
    /// Writes a second.
    pub writes_per_s: f64,
    /// Whether the primaries were busy for most of the time.
    pub is_pressed: bool,
}

impl Rates {
    /// The gains of reads and writes over `base`, added up.
    fn gain_over(&self, base: &Self) -> f64 {
        let gain = |now: f64, base: f64| if base > 0.0 { now / base - 1.0 } else { 0.0 };
        gain(self.reads_per_s, base.reads_per_s) + gain(self.writes_per_s, base.writes_per_s)
    }

    /// Whether either rate differs by this part.
    fn differs_from(&self, base: &Self, part: f64) -> bool {
        let differs = |now: f64, base: f64| (now - base).abs() > part * now.max(base);
        differs(self.reads_per_s, base.reads_per_s) || differs(self.writes_per_s, base.writes_per_s)
    }
}

/// What to do after a period.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decision {
    /// Number of primaries from now on.
    pub primaries: u16,
    /// Whether that is a trial: the next period decides.
    pub is_trial: bool,
    /// The outcome of the trial that the period was, if it was one.
    pub judged: Option<Judged>,
}

/// The outcome of a trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Judged {
    /// The gains of reads and writes, added up: shares, negative for a loss.
    pub gain: f64,
    /// Whether one more was tried, and not one fewer.
    pub is_up: bool,
    /// Whether the number that was tried stays.
    pub stays: bool,
}

/// Chooses the number of primaries.
#[derive(Debug, Clone)]
pub struct Activation {
    alpha: f64,
    least: u16,
    most: u16,
    primaries: u16,
    trial: Option<Trial>,
    /// The rates at which one more, and one fewer, was no use.
    failed_up: Option<Rates>,
    failed_down: Option<Rates>,
}

#[derive(Debug, Clone, Copy)]
struct Trial {
    /// The number before.
    from: u16,
    base: Rates,
}

impl Activation {
    /// Begins with `least` primaries of at most `most`. `alpha` is the gain that keeps one more, a
    /// share such as 0.1.
    pub fn new(least: u16, most: u16, alpha: f64) -> Self {
        let (trial, failed_up, failed_down) = (None, None, None);
        Self { alpha, least, most, primaries: least, trial, failed_up, failed_down }
    }

    /// The number of primaries now.
    pub fn primaries(&self) -> u16 {
        self.primaries
    }

    /// Goes on between other bounds, because a device has come or gone. What was learned with
    /// other devices is forgotten.
    pub fn set_bounds(&mut self, least: u16, most: u16) {
        if (least, most) == (self.least, self.most) {
            return;
        }
        self.end_trial();
        (self.least, self.most) = (least, most);
        (self.failed_up, self.failed_down) = (None, None);
        self.primaries = self.primaries.clamp(least, most.max(least));
    }

    /// Ends a trial without an outcome: something else has changed the rates meanwhile.
    pub fn end_trial(&mut self) {
        if let Some(trial) = self.trial.take() {
            self.primaries = trial.from;
        }
    }

    /// Decides after a period with these rates.
    pub fn decide(&mut self, rates: Rates) -> Decision {
        let judged = self.trial.take().map(|trial| self.judge(&trial, rates));
        if judged.is_none() {
            self.consider(rates);
        }
        Decision { primaries: self.primaries, is_trial: self.trial.is_some(), judged }
    }

    fn judge(&mut self, trial: &Trial, rates: Rates) -> Judged {
        let gain = rates.gain_over(&trial.base);
        let is_up = self.primaries > trial.from;
        let stays = if is_up { gain >= self.alpha } else { gain > -self.alpha / 2.0 };
        match (stays, is_up) {
            // More may help more, or fewer harm no more.
            (true, true) => self.failed_up = None,
            (true, false) => self.failed_down = None,
            (false, true) => self.failed_up = Some(trial.base),
            (false, false) => self.failed_down = Some(trial.base),
        }
        if stays {
            // What is known of the way back is from another number of primaries, and was measured
            // just now: it would fail.
            let back = if is_up { &mut self.failed_down } else { &mut self.failed_up };
            *back = Some(rates);
            self.consider(rates);
        } else {
            self.primaries = trial.from;
        }
        Judged { gain, is_up, stays }
    }

    fn consider(&mut self, rates: Rates) {
        let alpha = self.alpha;
        for failed in [&mut self.failed_up, &mut self.failed_down] {
            failed.take_if(|base| rates.differs_from(base, alpha));
        }
        let next = match rates.is_pressed {
            true if self.failed_up.is_none() && self.primaries < self.most => self.primaries + 1,
            false if self.failed_down.is_none() && self.primaries > self.least => {
                self.primaries - 1
            }
            _ => return,
        };
        self.trial = Some(Trial { from: self.primaries, base: rates });
        self.primaries = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rates of a load that asks for so much, where each primary can do so much.
    fn rates(primaries: u16, asked_per_s: f64, each_per_s: f64) -> Rates {
        let possible = f64::from(primaries) * each_per_s;
        let done = asked_per_s.min(possible);
        let is_pressed = asked_per_s > 0.8 * possible;
        Rates { reads_per_s: done / 2.0, writes_per_s: done / 2.0, is_pressed }
    }

    /// Runs until nothing is tried for ten periods. Returns the number of primaries and of trials.
    fn settle(activation: &mut Activation, rates: impl Fn(u16) -> Rates) -> (u16, u32) {
        let (mut trials, mut quiet, mut primaries) = (0, 0, activation.primaries);
        while quiet < 10 {
            let decision = activation.decide(rates(primaries));
            trials += u32::from(decision.is_trial);
            quiet = if decision.is_trial { 0 } else { quiet + 1 };
            primaries = decision.primaries;
            assert!(trials < 50, "it never settles");
        }
        (primaries, trials)
    }

    #[test]
    fn as_many_stay_as_help_and_it_settles_within_three_trials() {
        for (asked, best) in [(10.0, 1), (150.0, 2), (250.0, 3), (350.0, 4), (900.0, 4)] {
            let mut activation = Activation::new(1, 4, 0.1);
            let (primaries, trials) = settle(&mut activation, |n| rates(n, asked, 100.0));
            assert_eq!(primaries, best, "{asked} asked for");
            assert!(trials <= 3, "{trials} trials for {asked}");
        }
    }

    #[test]
    fn it_follows_the_load_both_ways_within_three_trials() {
        let mut activation = Activation::new(1, 4, 0.1);
        for (asked, best) in [(350.0, 4), (50.0, 1), (900.0, 4), (150.0, 2), (20.0, 1)] {
            let (primaries, trials) = settle(&mut activation, |n| rates(n, asked, 100.0));
            assert_eq!(primaries, best, "{asked} asked for");
            assert!(trials <= 3, "{trials} trials for {asked}");
        }
    }

    #[test]
    fn a_gain_just_below_alpha_is_no_reason_and_just_at_alpha_is() {
        for (gain, expected) in [(0.0999, 1), (0.1001, 2)] {
            let mut activation = Activation::new(1, 2, 0.1);
            let of = |n: u16| Rates {
                reads_per_s: 100.0,
                writes_per_s: 100.0 * (1.0 + gain * f64::from(n - 1)),
                is_pressed: true,
            };
            assert_eq!(settle(&mut activation, of).0, expected, "gain {gain}");
        }
    }

    #[test]
    fn one_fewer_stays_away_if_half_of_alpha_is_lost_at_most_and_is_not_brought_back_at_once() {
        for (loss, expected) in [(0.049, 1), (0.051, 2)] {
            let mut activation = Activation::new(1, 2, 0.1);
            let of = |n: u16, is_pressed| Rates {
                reads_per_s: 60.0 * (1.0 - loss * f64::from(2 - n)),
                writes_per_s: 0.0,
                is_pressed,
            };
            // Two help at first.
            let helps = |n: u16| Rates { reads_per_s: 50.0 * f64::from(n), ..of(n, true) };
            assert_eq!(settle(&mut activation, helps).0, 2);
            assert_eq!(settle(&mut activation, |n| of(n, false)).0, expected, "loss {loss}");
            // The pressure that comes with fewer is no reason for another trial.
            let (primaries, trials) = settle(&mut activation, |n| of(n, true));
            assert_eq!((primaries, trials), (expected, 0), "loss {loss}");
        }
    }

    #[test]
    fn a_failed_trial_is_repeated_only_when_the_rates_have_changed() {
        let mut activation = Activation::new(1, 2, 0.1);
        let of = |reads_per_s: f64| Rates { reads_per_s, writes_per_s: 0.0, is_pressed: true };
        assert!(activation.decide(of(100.0)).is_trial);
        let judged = Some(Judged { gain: 0.0, is_up: true, stays: false });
        let expected = Decision { primaries: 1, is_trial: false, judged };
        assert_eq!(activation.decide(of(100.0)), expected);
        assert!(!activation.decide(of(109.0)).is_trial);
        assert!(activation.decide(of(120.0)).is_trial);
    }

    #[test]
    fn what_was_learned_ends_with_the_bounds_and_a_trial_that_was_disturbed_has_no_outcome() {
        let mut activation = Activation::new(1, 4, 0.1);
        let pressed = Rates { reads_per_s: 100.0, writes_per_s: 0.0, is_pressed: true };
        assert!(activation.decide(pressed).is_trial);
        activation.end_trial();
        assert_eq!(activation.primaries(), 1);
        assert!(activation.decide(pressed).is_trial, "it was not a failure");
        activation.set_bounds(1, 4);
        assert_eq!(activation.primaries(), 2, "nothing has changed");
        assert!(!activation.decide(pressed).is_trial, "it gained nothing");
        activation.set_bounds(2, 5);
        assert_eq!(activation.primaries(), 2);
        assert!(activation.decide(pressed).is_trial, "with other devices it may gain");
        activation.set_bounds(1, 2);
        assert_eq!(activation.primaries(), 2);
        activation.set_bounds(1, 1);
        assert_eq!(activation.primaries(), 1);
    }
}
