//! How far a backup is behind: the lag, its bound, and what INFO says of both.

use std::sync::{Arc, Weak};
use std::time::Duration;

use perdura_backup::{Figures, Progress};
use perdura_media::{Clock, format_duration};
use perdura_server::{Backup, Power};
use perdura_store::Store;

/// Time between two looks at the lag.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How far the backup of a server is behind.
pub(super) struct Lag {
    pub store: Weak<Store>,
    pub progress: Arc<Progress>,
    pub clock: Arc<dyn Clock>,
    /// When it began, by the clock that is never set.
    pub began_ns: u64,
    pub terms: Terms,
}

/// The settings of a backup that are shown beside its lag, or bound it.
pub(super) struct Terms {
    pub vault: String,
    pub lag_max: Option<Duration>,
    pub is_refusing: bool,
    pub every: Duration,
    pub keep: Option<Duration>,
    pub is_encrypted: bool,
}

impl std::fmt::Debug for Lag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lag").field("vault", &self.terms.vault).finish_non_exhaustive()
    }
}

impl Lag {
    /// The figures of the follower, the lag, and whether that is too much.
    fn look(&self) -> (Figures, Option<Duration>, bool) {
        // Taken first: what is acknowledged after it makes no difference.
        let (now_ms, now_ns) = (self.clock.unix_ms(), self.clock.now_ns());
        let figures = self.progress.figures();
        let lag = lag(&figures, now_ms, now_ns, |commit| {
            self.store.upgrade().is_some_and(|store| {
                let region = store.region();
                region.is_committed() && region.commits() == commit
            })
        });
        // The first restore point takes its time.
        let since_begin = Duration::from_nanos(now_ns.saturating_sub(self.began_ns));
        let is_late = self.terms.lag_max.is_some_and(|max| lag.unwrap_or(since_begin) > max);
        (figures, lag, is_late)
    }

    /// Warns when the backup is late, and refuses writes if that is asked for, until the server's
    /// end.
    pub(super) fn watch(&self, power: &Power) {
        let mut was_late = false;
        while self.store.strong_count() > 0 {
            was_late = self.heed(was_late, power);
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Says and does what follows from a look at the lag. Returns whether it is too much.
    fn heed(&self, was_late: bool, power: &Power) -> bool {
        let (_, lag, is_late) = self.look();
        if is_late != was_late {
            let refuses = is_late && self.terms.is_refusing;
            match is_late {
                true => tracing::error!(
                    lag = lag.map_or_else(|| "no restore point yet".to_owned(), format_duration),
                    "the backup is late: more than --ship-lag-max{}",
                    if refuses { "; no write is accepted" } else { "" }
                ),
                false => tracing::info!("the backup has caught up"),
            }
            power.set_backup_late(refuses);
        }
        is_late
    }
}

/// Every write that was acknowledged longer ago than this is in the vault; zero: all are. `None`:
/// there is no restore point yet. `is_whole` says whether the store has nothing that is not in a
/// commit.
fn lag(
    figures: &Figures,
    now_ms: u64,
    now_ns: u64,
    is_whole: impl FnOnce(u64) -> bool,
) -> Option<Duration> {
    let newest = figures.newest?;
    if is_whole(newest.commit) {
        return Some(Duration::ZERO);
    }
    // The clock may have been set back since the commit: then the lag is at least the time since
    // the point was put.
    let by_clock = Duration::from_millis(now_ms.saturating_sub(newest.unix_ms));
    Some(by_clock.max(Duration::from_nanos(now_ns.saturating_sub(figures.newest_at_ns))))
}

impl Backup for Lag {
    fn figures(&self) -> Vec<(&'static str, String)> {
        let (figures, lag, is_late) = self.look();
        self.terms.fields(figures, lag, is_late)
    }
}

impl Terms {
    /// The fields of INFO backup.
    fn fields(
        &self,
        figures: Figures,
        lag: Option<Duration>,
        is_late: bool,
    ) -> Vec<(&'static str, String)> {
        let state = match (&figures.error, is_late) {
            _ if figures.is_stopped => "stopped",
            (Some(_), _) => "failing",
            (None, true) => "late",
            (None, false) => "ok",
        };
        let seconds = |time: Duration| format!("{:.3}", time.as_secs_f64());
        let or_none = |time: Option<Duration>| time.map_or("-1".to_owned(), seconds);
        vec![
            ("backup_vault", self.vault.clone()),
            ("backup_state", state.to_owned()),
            ("backup_stopped", u8::from(figures.is_stopped).to_string()),
            ("backup_refuses_writes", u8::from(is_late && self.is_refusing).to_string()),
            ("backup_lag_seconds", or_none(lag)),
            ("backup_lag_max_seconds", or_none(self.lag_max)),
            ("backup_every_seconds", seconds(self.every)),
            ("backup_keep_seconds", or_none(self.keep)),
            ("backup_encrypted", u8::from(self.is_encrypted).to_string()),
            (
                "backup_newest_unix_ms",
                figures.newest.map_or(0, |newest| newest.unix_ms).to_string(),
            ),
            ("backup_points", figures.points.to_string()),
            ("backup_objects", figures.objects.to_string()),
            ("backup_bytes", figures.bytes.to_string()),
            ("backup_pass_seconds", seconds(figures.pass)),
            ("backup_failures", figures.failures.to_string()),
            ("backup_delete_failures", figures.delete_failures.to_string()),
            ("backup_error", figures.error.unwrap_or_default()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Instant;

    use perdura_backup::{Follower, Newest, Options, Seal, vault};
    use perdura_media::{SimClock, SimDevice};
    use perdura_region::{Config, Region};
    use perdura_slots::Heap;
    use perdura_store::{Key, StoreOptions};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Level, Metadata};

    use super::*;

    const BEGAN_MS: u64 = 1_000_000;

    fn terms(lag_max: Option<u64>, is_refusing: bool) -> Terms {
        Terms {
            vault: "/vault".to_owned(),
            lag_max: lag_max.map(Duration::from_millis),
            is_refusing,
            every: Duration::from_millis(250),
            keep: Some(Duration::from_secs(90)),
            is_encrypted: true,
        }
    }

    fn store(clock: &Arc<SimClock>) -> Arc<Store> {
        let config = Config {
            lanes: Some(3),
            thread: false,
            checkpoint_every: None,
            ..Config::new(16 << 20, 16 << 20)
        };
        let region = Region::open(Arc::new(SimDevice::new(0, 1)), clock.clone(), config).unwrap();
        let heap = Heap::open(region).unwrap();
        Arc::new(Store::open(heap, clock.clone(), StoreOptions::default()).unwrap())
    }

    fn lag_of(store: &Arc<Store>, clock: &Arc<SimClock>, terms: Terms) -> Lag {
        let progress = Arc::new(Progress::default());
        let (store, began_ns) = (Arc::downgrade(store), clock.now_ns());
        Lag { store, progress, clock: clock.clone(), began_ns, terms }
    }

    fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
        let began = Instant::now();
        while !is_there() {
            assert!(began.elapsed() < Duration::from_secs(30), "{what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The levels of what is logged.
    #[derive(Clone, Default)]
    struct Said(Arc<Mutex<Vec<Level>>>);

    impl tracing::Subscriber for Said {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            self.0.lock().unwrap().push(*event.metadata().level());
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn the_lag_is_what_a_loss_of_all_would_go_back() {
        let (clock, folder) = (Arc::new(SimClock::new(BEGAN_MS)), tempfile::tempdir().unwrap());
        let store = store(&clock);
        let lag = lag_of(&store, &clock, terms(Some(2_000), true));
        clock.advance_ns(3_000_000_000);
        let found = || {
            let (_, lag, is_late) = lag.look();
            // Before the first point it is late since a second.
            assert_eq!(is_late, lag.is_none_or(|lag| lag > Duration::from_secs(2)));
            lag
        };
        let ms = |ms| Some(Duration::from_millis(ms));
        assert_eq!(found(), None);
        let options = Options {
            every: Duration::from_millis(5),
            keep: None,
            key: None,
            dir: folder.path().to_owned(),
            is_taking_over: false,
        };
        let vault = vault::open(folder.path().join("vault").to_str().unwrap()).unwrap();
        let (device, progress) = (store.region().device(), Arc::clone(&lag.progress));
        let (of_follower, hold) = (clock.clone(), Box::new(|_| {}));
        let seal = Seal::default();
        let follower = Follower::start(device, vault, seal, options, of_follower, progress, hold);
        let follower = follower.unwrap();
        let put = |value: &[u8]| store.put(Key::new(b"k"), value).map(drop).unwrap();
        put(b"first");
        store.region().checkpoint().unwrap();
        let newest = || lag.progress.figures().newest.map(|newest| newest.commit);
        wait_for("the point", || newest() == Some(store.region().commits()));
        // However long ago: nothing was written since.
        clock.advance_ns(5_000_000_000);
        assert_eq!(found(), ms(0));
        put(b"second");
        assert_eq!(found(), ms(5_000));
        let failures = lag.progress.figures().failures;
        // A look that finds nothing new makes the point no younger.
        std::thread::sleep(Duration::from_millis(30));
        clock.set_unix_ms(BEGAN_MS - 100_000);
        assert_eq!(found(), ms(5_000), "the clock was set back");
        clock.set_unix_ms(BEGAN_MS + 63_000);
        assert_eq!(found(), ms(60_000), "or the machine slept");
        assert!(follower.finish(Duration::from_secs(30)));
        store.region().checkpoint().unwrap();
        assert_eq!(found(), ms(60_000), "what is on the SSD is not in the vault yet");
        assert_eq!(lag.progress.figures().failures, failures);
        drop(store);
        assert_eq!(found(), ms(60_000), "after the end of the store");
    }

    #[test]
    fn a_backup_is_late_beyond_its_bound_also_before_its_first_point_and_then_writes_are_refused() {
        for is_refusing in [false, true] {
            let clock = Arc::new(SimClock::new(BEGAN_MS));
            let store = store(&clock);
            clock.advance_ns(7_000_000_000);
            let lag = lag_of(&store, &clock, terms(Some(2_000), is_refusing));
            let power = Power::default();
            let said = Said::default();
            let _logging = tracing::subscriber::set_default(said.clone());
            let heed = |was_late| (lag.heed(was_late, &power), power.is_backup_late());
            assert_eq!(heed(false), (false, false));
            clock.advance_ns(2_000_000_000);
            assert_eq!(heed(false), (false, false), "just so long is not too long");
            clock.advance_ns(1_000_000);
            assert_eq!(heed(false), (true, is_refusing));
            assert_eq!(heed(true), (true, is_refusing));
            assert_eq!(*said.0.lock().unwrap(), [Level::ERROR], "once, though it is late still");
            let field = |name: &str| {
                let figures = lag.figures();
                figures.into_iter().find(|figure| figure.0 == name).unwrap().1
            };
            assert_eq!(field("backup_refuses_writes"), u8::from(is_refusing).to_string());
            assert_eq!(field("backup_state"), "late");
            let without = lag_of(&store, &clock, terms(None, is_refusing));
            clock.advance_ns(1 << 60);
            assert!(!without.heed(false, &power), "no bound is set");
            // As if a point had come: the bound is met again.
            let again = lag_of(&store, &clock, terms(Some(2_000), is_refusing));
            assert!(!again.heed(true, &power) && !power.is_backup_late());
            assert_eq!(*said.0.lock().unwrap(), [Level::ERROR, Level::INFO]);
        }
    }

    #[test]
    fn the_words_of_info_are_those_of_the_figures() {
        let lag = Some(Duration::from_micros(61_234_400));
        let newest = Some(Newest { unix_ms: BEGAN_MS, commit: 9 });
        let figures = Figures {
            newest,
            newest_at_ns: 1,
            points: 2,
            objects: 3,
            bytes: 4,
            failures: 5,
            delete_failures: 6,
            pass: Duration::from_millis(7),
            ..Figures::default()
        };
        let fields = terms(Some(2_500), true).fields(figures.clone(), lag, true);
        let expected = [
            ("backup_vault", "/vault"),
            ("backup_state", "late"),
            ("backup_stopped", "0"),
            ("backup_refuses_writes", "1"),
            ("backup_lag_seconds", "61.234"),
            ("backup_lag_max_seconds", "2.500"),
            ("backup_every_seconds", "0.250"),
            ("backup_keep_seconds", "90.000"),
            ("backup_encrypted", "1"),
            ("backup_newest_unix_ms", "1000000"),
            ("backup_points", "2"),
            ("backup_objects", "3"),
            ("backup_bytes", "4"),
            ("backup_pass_seconds", "0.007"),
            ("backup_failures", "5"),
            ("backup_delete_failures", "6"),
            ("backup_error", ""),
        ];
        assert_eq!(fields, expected.map(|(name, value)| (name, value.to_owned())));
        let state = |figures: Figures, is_late, is_refusing| {
            let fields = terms(None, is_refusing).fields(figures, None, is_late);
            assert_eq!(fields[4].1, "-1", "no restore point yet");
            (fields[1].1.clone(), fields[2].1.clone(), fields[3].1.clone())
        };
        let words = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
        assert_eq!(state(figures.clone(), false, true), words("ok", "0", "0"));
        assert_eq!(state(figures.clone(), true, false), words("late", "0", "0"));
        let failing = Figures { error: Some("why".to_owned()), ..figures };
        assert_eq!(state(failing.clone(), false, true), words("failing", "0", "0"));
        assert_eq!(state(failing.clone(), true, true), words("failing", "0", "1"));
        let stopped = Figures { is_stopped: true, ..failing };
        assert_eq!(state(stopped, false, true), words("stopped", "1", "0"));
    }
}
