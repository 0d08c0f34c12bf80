//! The end of following: once everything is here, and the source takes no more.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::connection::{Address, TlsOptions};

use super::source::Source;
use super::target::Target;

/// Bytes that may be missing when the source's writers are stopped: these come in a moment.
const NEAR_BYTES: u64 = 4 << 20;
/// How often the source is asked how far it is.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// Waits until everything is here, and stops the source's writers for the last part.
pub struct Promotion {
    /// A connection beside that of the stream.
    control: Target,
    pause: Duration,
    asked: Instant,
    /// When the writers were stopped, and the offset at which they were.
    paused: Option<(Instant, u64)>,
    /// Why the writers could not be stopped.
    refused: Option<String>,
}

/// The end of an import that was promoted.
pub struct Promoted {
    /// Offset at which everything was here.
    pub offset: u64,
    /// For how long the source still takes no writes; nothing if it does.
    pub pause_left: Option<Duration>,
    /// Why the source's writers could not be stopped.
    pub refused: Option<String>,
}

impl Promotion {
    /// Connects to the source once more. `pause` is how long its writers may be stopped; zero: not
    /// at all.
    pub fn begin(source: &Address, tls: &TlsOptions, pause: Duration) -> Result<Self> {
        let control = Target::connect(source, tls, None)?;
        let long_ago = Instant::now() - ASK_EVERY;
        Ok(Self { control, pause, asked: long_ago, paused: None, refused: None })
    }

    /// Looks whether everything is here.
    pub fn look(&mut self, source: &Source) -> Result<Option<Promoted>> {
        if let Some((since, offset)) = self.paused {
            if source.offset >= offset {
                return Ok(Some(self.reached(source)));
            }
            if since.elapsed() > self.pause {
                bail!(
                    "the source's writers were stopped for {} s, and its last commands had not come \
                     by then: at offset {} of {offset}; run again with a longer --pause",
                    self.pause.as_secs(),
                    source.offset
                );
            }
            return Ok(None);
        }
        if self.asked.elapsed() < ASK_EVERY {
            return Ok(None);
        }
        self.asked = Instant::now();
        let offset = self.offset()?;
        if offset.saturating_sub(source.offset) > NEAR_BYTES {
            return Ok(None);
        }
        if self.refused.is_some() || self.pause.is_zero() {
            let is_here = source.offset >= offset;
            return Ok(is_here.then(|| self.reached(source)));
        }
        let pause_ms = self.pause.as_millis().to_string();
        match self.control.ask(&["CLIENT", "PAUSE", &pause_ms, "WRITE"]) {
            Ok(_) => self.paused = Some((Instant::now(), self.offset()?)),
            Err(error) => self.refused = Some(error.to_string()),
        }
        Ok(None)
    }

    fn reached(&self, source: &Source) -> Promoted {
        Promoted {
            offset: source.offset,
            pause_left: self.paused.map(|(since, _)| self.pause.saturating_sub(since.elapsed())),
            refused: self.refused.clone(),
        }
    }

    /// How far the source is.
    fn offset(&mut self) -> Result<u64> {
        let info = self.control.ask(&["INFO", "replication"])?;
        let offset = info.lines().find_map(|line| line.strip_prefix("master_repl_offset:"));
        let offset = offset.and_then(|offset| offset.trim().parse().ok());
        offset.context("the source does not say how far it is (INFO replication)")
    }
}
