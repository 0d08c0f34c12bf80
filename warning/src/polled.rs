//! A source that must be asked again and again, from a thread of its own.
//!
//! - The thread shares nothing with threads that write or wait for warnings, so a slow answer
//!   delays nobody.
//! - Each answer sets a timer again. When it runs out, the source is [lost](Reading::lost),
//!   although the thread may still wait for an answer.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use perdura_media::format_duration;
use rustix::event::{EventfdFlags, PollFd, PollFlags, epoll, eventfd, poll};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::error::WarningError;
use crate::reading::{Left, Reading, State};
use crate::source::WarningSource;

/// The part of the time that a battery lasts after which a silent source is lost: half of that time
/// is counted on, so what is left then is enough.
const SILENT_PART: u32 = 4;
/// The shortest silence after which a source is lost.
const SILENCE_MIN: Duration = Duration::from_secs(1);
/// The longest silence on a battery of which is not known how long it lasts.
const SILENCE_ON_BATTERY: Duration = Duration::from_secs(5);

/// How often a source is asked, and how long it may be silent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// Time between an answer and the next question.
    pub every: Duration,
    /// Time from one answer to the next after which the source is lost.
    pub silence_max: Duration,
}

/// Asks a source for its state.
pub(crate) trait Asker: Send + 'static {
    /// The source's name for people, such as `ups@localhost`.
    fn name(&self) -> String;

    /// Asks once, and waits as long as the answer takes.
    ///
    /// # Errors
    /// See [`NoAnswer`].
    fn ask(&mut self) -> Result<Reading, NoAnswer>;
}

/// Why a question has no answer.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// The source cannot be reached. If that lasts, it is lost.
    Unreached(String),
    /// The source refuses the question, and will refuse it next time, too. It then cannot be
    /// opened; one that is open already is lost at once.
    Refused(WarningError),
}

/// A source that a thread asks.
#[derive(Debug)]
struct Polled {
    shared: Arc<Shared>,
    /// Readable when there is an answer, or none for too long.
    ready: OwnedFd,
    /// Ends the thread when it is dropped.
    _stop: Sender<()>,
}

#[derive(Debug)]
struct Shared {
    name: String,
    silence_max: Duration,
    said: Mutex<Said>,
    /// Readable when there is such an answer.
    answered: OwnedFd,
    /// A timer that runs out when there was no answer for too long.
    silence: OwnedFd,
}

/// What the thread has heard and nobody has taken yet.
#[derive(Debug, Default)]
struct Said {
    answer: Option<Result<Reading, WarningError>>,
    /// Why the last question was not answered.
    unreached: Option<String>,
    /// The silence after the last answer for which the source is lost.
    silence_max: Duration,
}

/// Starts to ask, and returns when the first answer is there or is late.
///
/// # Errors
/// The source refuses what it is asked, or the system gives no descriptor or thread.
pub(crate) fn start(asker: impl Asker, pace: Pace) -> Result<Box<dyn WarningSource>, WarningError> {
    let shared = Arc::new(Shared::new(asker.name(), pace.silence_max)?);
    let ready = shared.either_ready()?;
    let (stop, stopped) = channel();
    let asked = Arc::clone(&shared);
    std::thread::Builder::new()
        .name("perdura-asks".into())
        .spawn(move || asked.ask(asker, pace.every, &stopped))
        .map_err(|error| WarningError::system("start a thread", error))?;
    while let Err(Errno::INTR) = poll(&mut [PollFd::new(&ready, PollFlags::IN)], None) {}
    let refused = shared.said().answer.take_if(|answer| answer.is_err());
    match refused {
        Some(Err(error)) => Err(error),
        _ => Ok(Box::new(Polled { shared, ready, _stop: stop })),
    }
}

impl Shared {
    fn new(name: String, silence_max: Duration) -> Result<Self, WarningError> {
        let refused = |errno: Errno| WarningError::system(format!("watch {name}"), errno);
        let answered = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let timer_flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let silence = timerfd_create(TimerfdClockId::Monotonic, timer_flags);
        let (answered, silence) = (answered.map_err(refused)?, silence.map_err(refused)?);
        let said = Mutex::new(Said { silence_max, ..Said::default() });
        let shared = Self { silence_max, said, answered, silence, name };
        shared
            .set_timer(silence_max)
            .map_err(|errno| WarningError::system("set a timer", errno))?;
        Ok(shared)
    }

    /// A descriptor that is readable when one of both others is.
    fn either_ready(&self) -> Result<OwnedFd, WarningError> {
        let refused = |errno: Errno| WarningError::system(format!("watch {}", self.name), errno);
        let ready = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(refused)?;
        for descriptor in [&self.answered, &self.silence] {
            let nobody_reads_it = epoll::EventData::new_u64(0);
            epoll::add(&ready, descriptor, nobody_reads_it, epoll::EventFlags::IN)
                .map_err(refused)?;
        }
        Ok(ready)
    }

    /// The thread that asks, until `stopped` is closed.
    fn ask(&self, mut asker: impl Asker, every: Duration, stopped: &Receiver<()>) {
        let mut was_reached = false;
        loop {
            let began = Instant::now();
            let asked = asker.ask();
            // A source that is asked in vain once is not lost for that.
            let two_rounds = 2 * (every + began.elapsed());
            match asked {
                Ok(reading) => {
                    let is_end = reading.state == State::Ending;
                    self.answer(Ok(reading), two_rounds);
                    if is_end {
                        // It is never taken back, so nothing that follows matters.
                        let _ = self.set_timer(Duration::ZERO);
                        return;
                    }
                }
                Err(NoAnswer::Refused(error)) => self.answer(Err(error), two_rounds),
                Err(NoAnswer::Unreached(why)) if was_reached => self.said().unreached = Some(why),
                // There was no contact that could last.
                Err(NoAnswer::Unreached(why)) => self.answer(Ok(self.lost(&why)), two_rounds),
            }
            was_reached = true;
            match stopped.recv_timeout(every) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Notes an answer. The source is not lost before another is late by `least`.
    fn answer(&self, answer: Result<Reading, WarningError>, least: Duration) {
        let by_reading = answer.as_ref().map_or(self.silence_max, |it| self.silence_after(it));
        let silence_max = by_reading.max(least.min(self.silence_max));
        *self.said() = Said { answer: Some(answer), unreached: None, silence_max };
        // The counter is never full: it is emptied whenever an answer is taken, and would otherwise
        // be readable all the same.
        let _ = rustix::io::write(&self.answered, &1_u64.to_ne_bytes());
        // A timer that is not set again runs out, and the source is lost: the safe side.
        let _ = self.set_timer(silence_max);
    }

    /// How long the source may be silent after a reading. A battery goes on emptying meanwhile.
    fn silence_after(&self, reading: &Reading) -> Duration {
        let longest = match (reading.state, reading.left) {
            (State::OnBattery, Some(Left::Time(time))) => (time / SILENT_PART).max(SILENCE_MIN),
            (State::OnBattery, _) => SILENCE_ON_BATTERY,
            _ => Duration::MAX,
        };
        longest.min(self.silence_max)
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lost(&self, why: &str) -> Reading {
        Reading::lost(format!("{}: {why}", self.name))
    }

    /// Lets the timer run out after `time`, or never if that is zero.
    fn set_timer(&self, time: Duration) -> Result<(), Errno> {
        let once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let after =
            Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
        let timer = Itimerspec { it_interval: once, it_value: after };
        timerfd_settime(&self.silence, TimerfdTimerFlags::empty(), &timer).map(drop)
    }
}

impl WarningSource for Polled {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    fn take(&mut self) -> Result<Option<Reading>, WarningError> {
        let mut count = [0; 8];
        // Emptied before the look, so that a later answer makes it readable again.
        let _ = rustix::io::read(&self.shared.answered, &mut count);
        let is_silent = rustix::io::read(&self.shared.silence, &mut count).is_ok();
        let mut said = self.shared.said();
        Ok(match said.answer.take() {
            Some(Ok(reading)) => Some(reading),
            Some(Err(error)) => Some(self.shared.lost(&error.to_string())),
            None => is_silent.then(|| {
                let why = said.unreached.as_ref().map_or(String::new(), |why| format!(" ({why})"));
                let time = format_duration(said.silence_max);
                self.shared.lost(&format!("no answer for {time}{why}"))
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;
    use crate::reading::Confidence;
    use crate::warnings::Warnings;

    /// Answers what the test sends, and waits for it as a slow source does.
    struct Told(Receiver<Result<Reading, NoAnswer>>);

    impl Asker for Told {
        fn name(&self) -> String {
            "the test".into()
        }

        fn ask(&mut self) -> Result<Reading, NoAnswer> {
            self.0.recv().unwrap_or_else(|_| Ok(Reading::lost("the test is over")))
        }
    }

    const AT_ONCE: Duration = Duration::ZERO;

    fn told() -> (Sender<Result<Reading, NoAnswer>>, Told) {
        let (tell, told) = channel();
        (tell, Told(told))
    }

    fn refusal() -> NoAnswer {
        NoAnswer::Refused(WarningError::PlaceGone { path: "/there".into() })
    }

    #[test]
    fn what_is_told_is_taken_once_and_in_its_order() {
        let (tell, told) = told();
        tell.send(Ok(Reading::new(State::Steady, "fine"))).unwrap();
        let pace = Pace { every: AT_ONCE, silence_max: Duration::from_secs(60) };
        let mut warnings = Warnings::from(start(told, pace).unwrap());
        assert_eq!(*warnings.look(), Reading::new(State::Steady, "fine"));
        for state in [State::OnBattery, State::Steady, State::Low] {
            tell.send(Ok(Reading::new(state, "next"))).unwrap();
            warnings.wait(None);
            assert_eq!(warnings.look().state, state);
        }
        tell.send(Err(refusal())).unwrap();
        warnings.wait(None);
        let reading = warnings.look();
        assert_eq!((reading.state, reading.confidence), (State::Low, Confidence::Lost));
        assert!(reading.told_by.starts_with("the test: /there was removed"), "{reading}");
    }

    #[test]
    fn a_source_that_has_told_the_end_is_not_asked_any_more() {
        let (tell, told) = told();
        tell.send(Ok(Reading::new(State::Ending, "the end"))).unwrap();
        let pace = Pace { every: AT_ONCE, silence_max: Duration::from_millis(20) };
        let mut warnings = Warnings::from(start(told, pace).unwrap());
        assert_eq!(warnings.wait_for(State::Ending).told_by, "the end");
        // The thread has ended, and what it was told by has gone with it.
        while tell.send(Ok(Reading::new(State::Steady, "fine"))).is_ok() {
            std::thread::yield_now();
        }
        // Longer than a silence that would count.
        warnings.wait(Some(Duration::from_millis(30)));
        assert_eq!(warnings.news(), None);
        assert_eq!(warnings.look().told_by, "the end");
    }

    #[test]
    fn a_source_that_refuses_what_it_is_asked_is_not_opened() {
        let (tell, told) = told();
        tell.send(Err(refusal())).unwrap();
        let pace = Pace { every: AT_ONCE, silence_max: Duration::from_secs(60) };
        assert!(matches!(start(told, pace), Err(WarningError::PlaceGone { .. })));
    }

    #[test]
    fn a_source_that_does_not_answer_is_lost_until_it_does() {
        let (tell, told) = told();
        let pace = Pace { every: AT_ONCE, silence_max: Duration::from_millis(20) };
        // It is opened although it is silent from the start.
        let mut warnings = Warnings::from(start(told, pace).unwrap());
        let reading = warnings.look();
        assert_eq!((reading.state, reading.confidence), (State::OnBattery, Confidence::Lost));
        assert!(reading.told_by.contains("no answer for 20ms"), "{reading}");
        tell.send(Ok(Reading::new(State::Steady, "fine"))).unwrap();
        warnings.wait(None);
        // It is lost again where the machine is so slow that the next silence is over by now.
        while warnings.look().told_by != "fine" {
            tell.send(Ok(Reading::new(State::Steady, "fine"))).unwrap();
            warnings.wait(None);
        }
        let lost = warnings.wait_for(State::OnBattery);
        assert_eq!(lost.confidence, Confidence::Lost);
    }

    #[test]
    fn the_silence_of_a_source_on_battery_counts_before_half_of_the_time_is_over() {
        let (_, told) = told();
        let shared = Shared::new(told.name(), Duration::from_secs(15)).unwrap();
        let after = |state, left: Option<u64>| {
            let left = left.map(|s| Left::Time(Duration::from_secs(s)));
            shared.silence_after(&Reading { left, ..Reading::new(state, "") }).as_millis()
        };
        assert_eq!(after(State::Steady, None), 15_000);
        assert_eq!(after(State::Low, Some(1)), 15_000, "all is being saved");
        assert_eq!(after(State::OnBattery, None), 5_000);
        for (left, silence) in [(0, 1_000), (4, 1_000), (25, 6_250), (60, 15_000), (900, 15_000)] {
            assert_eq!(after(State::OnBattery, Some(left)), silence, "{left} s left");
        }
    }

    #[test]
    fn a_battery_that_is_not_heard_of_is_lost_early() {
        let (tell, told) = told();
        let pace = Pace { every: AT_ONCE, silence_max: Duration::from_secs(600) };
        let left = Some(Left::Time(Duration::from_secs(2)));
        tell.send(Ok(Reading { left, ..Reading::new(State::OnBattery, "battery") })).unwrap();
        let mut warnings = Warnings::from(start(told, pace).unwrap());
        assert_eq!(warnings.look().confidence, Confidence::Fresh);
        warnings.wait(Some(Duration::from_secs(60)));
        let reading = warnings.look();
        // One that is lost on battery is as one that is low.
        assert_eq!((reading.state, reading.confidence), (State::Low, Confidence::Lost));
        assert!(reading.told_by.contains("no answer for 1s"), "{reading}");
    }

    #[test]
    fn a_source_that_is_slow_but_regular_is_not_lost_on_battery() {
        let (tell, told) = told();
        let every = Duration::from_millis(900);
        let pace = Pace { every, silence_max: Duration::from_secs(60) };
        let left = Some(Left::Time(Duration::from_secs(1)));
        let on_battery = || Ok(Reading { left, ..Reading::new(State::OnBattery, "battery") });
        tell.send(on_battery()).unwrap();
        let mut warnings = Warnings::from(start(told, pace).unwrap());
        for _ in 0..2 {
            // Longer than a quarter of the time left, and than a second.
            std::thread::sleep(Duration::from_millis(1_200));
            assert_eq!(warnings.look().confidence, Confidence::Fresh);
            tell.send(on_battery()).unwrap();
        }
    }

    #[test]
    fn a_source_that_is_not_reached_is_lost_when_that_has_lasted_and_at_once_from_the_start() {
        let unreached = || Err(NoAnswer::Unreached("connection refused".into()));
        let (tell, told) = self::told();
        tell.send(unreached()).unwrap();
        let long = Pace { every: AT_ONCE, silence_max: Duration::from_secs(60) };
        let lost = Warnings::from(start(told, long).unwrap()).wait_for(State::OnBattery);
        assert_eq!(lost, Reading::lost("the test: connection refused"));

        let (tell, told) = self::told();
        tell.send(Ok(Reading::new(State::OnBattery, "fine"))).unwrap();
        let short = Pace { every: AT_ONCE, silence_max: Duration::from_millis(50) };
        let mut warnings = Warnings::from(start(told, short).unwrap());
        assert_eq!(warnings.look().state, State::OnBattery);
        tell.send(unreached()).unwrap();
        let lost = warnings.wait_for(State::Low);
        assert_eq!(lost.to_string(), "the test: no answer for 50ms (connection refused)");
    }
}
