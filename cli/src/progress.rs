//! A bar for what takes longer than two seconds.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// A bar that shows itself only once the work has lasted.
pub struct LateBar {
    what: &'static str,
    began: Instant,
    bar: OnceLock<ProgressBar>,
}

impl LateBar {
    pub fn new(what: &'static str) -> Self {
        Self { what, began: Instant::now(), bar: OnceLock::new() }
    }

    /// `done` of `total` bytes.
    pub fn bytes(&self, done: u64, total: u64) {
        self.show(
            done,
            total,
            "{msg} [{wide_bar}] {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}",
        );
    }

    /// `done` of `total` of something counted.
    pub fn count(&self, done: u64, total: u64) {
        self.show(done, total, "{msg} [{wide_bar}] {human_pos}/{human_len} {per_sec} {eta}");
    }

    /// `done` of `total` of a step that has its own name.
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
            ProgressBar::new(total).with_style(style).with_message(self.what)
        });
        bar.set_length(total);
        bar.set_position(done);
    }

    pub fn finish(&self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }
}
