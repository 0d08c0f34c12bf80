//! Following a battery: how long it lasts is looked at again and again, because it ages, warms, and
//! feeds a machine whose load changes.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use perdura_media::Clock;
use perdura_media::battery::{BatteryFile, BatteryFileError, Lasts};

/// Time between two looks.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time for which the guard's loop waits for a look.
const WITHIN: Duration = Duration::from_millis(20);
/// Time for which a guard or server that starts waits for its first look.
const FIRST_WITHIN: Duration = Duration::from_secs(1);
/// Time for which nothing can be learnt of a battery before less of it is counted on. A program
/// that writes its file anew takes less.
const PATIENCE: Duration = Duration::from_secs(10);
/// The part of what a battery lasted that is counted on when nothing can be learnt of it, as with a
/// source of warnings that is lost.
const LOST: f64 = 0.1;
/// The share by which the time must grow to be followed. A shorter one is followed at once.
const GROWTH: f64 = 0.02;

/// How long the battery lasts by its file, or why the file does not say.
type Found = Result<Lasts, BatteryFileError>;

/// Looks at a file on a thread of its own, or goes on waiting for a look that has not come back:
/// a sensor or a file system may be slow, or never answer. `None`: it has not come back in time.
fn ask(
    file: &BatteryFile,
    asked: &mut Option<Receiver<Found>>,
    unix_ms: u64,
    within: Duration,
) -> Option<Found> {
    let look = asked.take().unwrap_or_else(|| {
        let (file, (tell, told)) = (file.clone(), channel());
        let look = move || tell.send(file.lasts(unix_ms));
        // Without a thread, the receiver says that nobody answers.
        drop(std::thread::Builder::new().name("perdura-battery".into()).spawn(look));
        told
    });
    match look.recv_timeout(within) {
        Ok(found) => Some(found),
        Err(RecvTimeoutError::Disconnected) => Some(Err(no_answer(file))),
        Err(RecvTimeoutError::Timeout) => {
            *asked = Some(look);
            None
        }
    }
}

fn no_answer(file: &BatteryFile) -> BatteryFileError {
    BatteryFileError::NoAnswer { path: file.path().to_owned() }
}

/// A battery, and the time that is counted on.
#[derive(Debug)]
pub struct BatteryWatch {
    file: BatteryFile,
    /// Time in which a look must come back.
    within: Duration,
    /// A look that has not come back yet.
    asked: Option<Receiver<Found>>,
    /// What was learnt last, if anything was.
    lasts: Option<Lasts>,
    /// The most time that is counted on.
    most: Duration,
    /// The time that is counted on.
    time: Duration,
    /// When nothing could be learnt for the first time, nanoseconds.
    failing_since_ns: Option<u64>,
    is_lost: bool,
    looked_ns: u64,
}

impl BatteryWatch {
    /// Follows a battery, of which at most the time `most` is counted on. If nothing can be learnt
    /// of it now, a tenth of that is.
    pub fn new(file: BatteryFile, most: Duration, clock: &dyn Clock) -> Self {
        let looked_ns = clock.now_ns();
        let mut asked = None;
        let first = ask(&file, &mut asked, clock.unix_ms(), FIRST_WITHIN);
        let first = first.unwrap_or_else(|| Err(no_answer(&file)));
        let (lasts, time, is_lost) = match first {
            Ok(lasts) => (Some(lasts), lasts.time.min(most), false),
            Err(error) => {
                tracing::error!(%error, "the battery cannot be followed");
                (None, most.mul_f64(LOST), true)
            }
        };
        let (within, failing_since_ns) = (WITHIN, None);
        Self { file, within, asked, lasts, most, time, failing_since_ns, is_lost, looked_ns }
    }

    /// The time that is counted on.
    pub fn time(&self) -> Duration {
        self.time
    }

    /// What was learnt last, if anything was.
    pub fn lasts(&self) -> Option<&Lasts> {
        self.lasts.as_ref()
    }

    /// Whether nothing could be learnt for a while.
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Looks again, if it is time. Returns the time that is counted on, if that has changed.
    pub fn look(&mut self, clock: &dyn Clock) -> Option<Duration> {
        let now_ns = clock.now_ns();
        if u128::from(now_ns.saturating_sub(self.looked_ns)) < LOOK_EVERY.as_nanos() {
            return None;
        }
        self.looked_ns = now_ns;
        let before = self.time;
        let was_asked = self.asked.is_some();
        match ask(&self.file, &mut self.asked, clock.unix_ms(), self.within) {
            Some(Ok(lasts)) => self.learn(lasts),
            Some(Err(error)) => self.miss(&error, now_ns),
            None if was_asked => self.miss(&no_answer(&self.file), now_ns),
            // It may be slow this time only.
            None => {}
        }
        (self.time != before).then_some(self.time)
    }

    fn learn(&mut self, lasts: Lasts) {
        if self.failing_since_ns.take().is_some() || self.is_lost {
            tracing::info!("the battery can be followed again");
        }
        self.is_lost = false;
        self.lasts = Some(lasts);
        let time = lasts.time.min(self.most);
        if time < self.time || time > self.time.mul_f64(1.0 + GROWTH) {
            self.time = time;
        }
    }

    fn miss(&mut self, error: &BatteryFileError, now_ns: u64) {
        let since_ns = *self.failing_since_ns.get_or_insert_with(|| {
            tracing::error!(%error, "the battery cannot be followed");
            now_ns
        });
        let waited = Duration::from_nanos(now_ns.saturating_sub(since_ns));
        if waited >= PATIENCE && !self.is_lost {
            tracing::error!("a tenth of what the battery lasted is counted on");
            self.is_lost = true;
            self.time = self.time.mul_f64(LOST);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test's own failure
mod tests {
    use perdura_media::SimClock;

    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    /// Writes a battery that lasts so many seconds.
    fn write(path: &std::path::Path, seconds: u64) {
        let text = format!(
            "nameplate = '{}J'\ninstalled = 1970-01-01\nfade_per_year = '0%'\n[watts]\nall = 10\n",
            seconds * 20
        );
        std::fs::write(path, text).unwrap();
    }

    /// Follows a battery, and waits for each look however busy the machine is.
    fn follow(path: &std::path::Path, most: Duration, clock: &SimClock) -> BatteryWatch {
        let watch = BatteryWatch::new(BatteryFile::new(path), most, clock);
        BatteryWatch { within: Duration::from_secs(60), ..watch }
    }

    fn after(clock: &SimClock, watch: &mut BatteryWatch, seconds: u64) -> Option<u64> {
        clock.sleep_ns(seconds * SECOND_NS);
        watch.look(clock).map(|time| time.as_secs())
    }

    #[test]
    fn a_battery_is_followed_and_counted_on_less_when_it_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("battery.toml");
        let clock = SimClock::new(1);
        write(&path, 300);
        let most = Duration::from_secs(350);
        let mut watch = follow(&path, most, &clock);
        assert_eq!((watch.time().as_secs(), after(&clock, &mut watch, 1)), (300, None));
        write(&path, 299);
        assert_eq!(watch.look(&clock), None, "it is not time yet");
        assert_eq!(after(&clock, &mut watch, 1), Some(299));
        write(&path, 303);
        assert_eq!(after(&clock, &mut watch, 1), None, "noise is not followed upwards");
        write(&path, 400);
        assert_eq!(after(&clock, &mut watch, 1), Some(350), "never more than the most");
        std::fs::write(&path, "").unwrap();
        assert_eq!(after(&clock, &mut watch, 1), None);
        assert_eq!(after(&clock, &mut watch, 9), None);
        assert!(!watch.is_lost());
        assert_eq!(after(&clock, &mut watch, 1), Some(35));
        assert!(watch.is_lost());
        assert_eq!(after(&clock, &mut watch, 100), None, "and not less and less");
        write(&path, 400);
        assert_eq!(after(&clock, &mut watch, 1), Some(350));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(after(&clock, &mut watch, 1), None);
        let mut late = follow(&path, most, &clock);
        assert!(late.is_lost() && late.time().as_secs() == 35);
        write(&path, 300);
        assert_eq!(after(&clock, &mut late, 1), Some(300));
    }

    #[test]
    fn a_look_that_never_comes_back_is_not_waited_for_and_the_battery_is_lost_until_it_does() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("battery.toml");
        let clock = SimClock::new(1);
        write(&path, 300);
        let mut watch = follow(&path, Duration::MAX, &clock);
        let (answers, asked) = channel();
        (watch.asked, watch.within) = (Some(asked), Duration::from_millis(1));
        assert_eq!(after(&clock, &mut watch, 1), None);
        assert_eq!(after(&clock, &mut watch, 10), Some(30));
        assert!(watch.is_lost());
        answers.send(watch.file.lasts(clock.unix_ms())).unwrap();
        assert_eq!(after(&clock, &mut watch, 1), Some(300));
        // And one that comes back a little late is no loss.
        let (answers, asked) = channel();
        watch.asked = Some(asked);
        answers.send(watch.file.lasts(clock.unix_ms())).unwrap();
        assert_eq!(after(&clock, &mut watch, 1), None);
        assert!(!watch.is_lost() && watch.failing_since_ns.is_none());
    }

    /// The machine's clock steps, and the battery's age with it.
    #[test]
    fn a_clock_that_steps_never_makes_a_battery_last_longer_than_at_the_start() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("battery.toml");
        let text = "nameplate = '12000J'\ninstalled = 2024-01-01\nfade_per_year = '10%'\n\
                    [watts]\nall = 10\n";
        std::fs::write(&path, text).unwrap();
        let unix_ms = |year: u64| (year - 1970) * 31_557_600_000;
        let clock = SimClock::new(unix_ms(2026));
        // As a server and a guard choose it.
        let most = BatteryFile::new(&path).lasts(clock.unix_ms()).unwrap().time;
        let mut watch = follow(&path, most, &clock);
        let start = watch.time();
        let mut most_after = |year: u64, seconds: u64| {
            clock.set_unix_ms(unix_ms(year));
            for _ in 0..seconds {
                after(&clock, &mut watch, 1);
            }
            (watch.time(), watch.is_lost())
        };
        let (aged, is_lost) = most_after(2030, 1);
        assert!(aged < start && !is_lost, "{aged:?} of {start:?} is left after four years");
        let (before_it_was_made, is_lost) = most_after(2020, 30);
        assert!(before_it_was_made <= aged.mul_f64(0.11) && is_lost, "{before_it_was_made:?}");
        let (back, is_lost) = most_after(2026, 1);
        assert!(back <= start && back > aged && !is_lost, "{back:?} of {start:?}");
        let (younger, _) = most_after(2024, 1);
        assert!(younger <= start, "{younger:?} of {start:?}");
    }
}
