//! A progress bar for work that takes longer than a second.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// A bar that shows itself only when the work has lasted for a second.
pub struct LateBar {
    what: &'static str,
    began: Instant,
    bar: OnceLock<ProgressBar>,
    pass: Mutex<Pass>,
}

/// One pass over the records. A number of records below the last one begins the next pass.
struct Pass {
    began: Instant,
    /// Number of records at its beginning.
    from: u64,
    /// Number of records told last.
    so_far: u64,
    /// When they were shown last.
    shown: Instant,
}

/// Time between two moments at which records are shown. Each record may be told, and to show it
/// takes longer than to read it.
const SHOW_EVERY: Duration = Duration::from_millis(50);

impl Pass {
    /// The rate since the beginning of the pass, in records a second; `None` if it was shown just
    /// now.
    fn rate(&mut self, records: u64) -> Option<f64> {
        let now = Instant::now();
        let is_next = records < self.so_far;
        if is_next {
            (self.began, self.from) = (now, records);
        }
        self.so_far = records;
        if !is_next && now - self.shown < SHOW_EVERY {
            return None;
        }
        self.shown = now;
        Some((records - self.from) as f64 / (now - self.began).as_secs_f64().max(1e-3))
    }
}

impl LateBar {
    /// Makes a bar with this label.
    pub fn new(what: &'static str) -> Self {
        let began = Instant::now();
        let pass = Mutex::new(Pass { began, from: 0, so_far: 0, shown: began });
        Self { what, began, bar: OnceLock::new(), pass }
    }

    /// Shows that `done` of `total` bytes are done.
    pub fn bytes(&self, done: u64, total: u64) {
        self.show(
            done,
            total,
            "{msg} [{wide_bar}] {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}",
        );
    }

    /// Shows that `done` of `total` bytes are done, in a step with this name and after so many
    /// records.
    pub fn bytes_of(&self, step: &str, records: u64, done: u64, total: u64) {
        let mut pass = self.pass.lock().unwrap_or_else(PoisonError::into_inner);
        let rate = pass.rate(records);
        drop(pass);
        let Some(rate) = rate else { return };
        self.bytes(done, total);
        if let Some(bar) = self.bar.get() {
            bar.set_message(format!(
                "{step}: {:.1} M records, {:.1} M/s",
                records as f64 / 1e6,
                rate / 1e6
            ));
        }
    }

    /// Shows that `done` of `total` things are done.
    pub fn count(&self, done: u64, total: u64) {
        self.show(done, total, "{msg} [{wide_bar}] {human_pos}/{human_len} {per_sec} {eta}");
    }

    /// Shows that `done` of `total` things are done in a step with this name.
    pub fn step(&self, what: &str, done: u64, total: u64) {
        self.count(done, total);
        if let Some(bar) = self.bar.get()
            && bar.message() != what
        {
            bar.set_message(what.to_owned());
            bar.reset_eta();
        }
    }

    fn show(&self, done: u64, total: u64, template: &str) {
        if self.began.elapsed() < Duration::from_secs(1) {
            return;
        }
        let bar = self.bar.get_or_init(|| {
            let style = ProgressStyle::with_template(template)
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            let bar = ProgressBar::new(total).with_style(style).with_message(self.what);
            // The work before the bar showed itself must not count as done in no time.
            bar.update(|state| state.set_pos(done));
            bar.reset_eta();
            bar
        });
        bar.set_length(total);
        bar.set_position(done);
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }
}
