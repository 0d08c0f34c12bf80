//! The addresses of `serve`, and a short wait for one that a dying server still has.

use std::time::{Duration, Instant};

use anyhow::Context;
use perdura_media::format_duration;
use perdura_server::{Listener, ServerConfig, StartError};

/// Longest wait for an address. A killed process has its addresses until its memory is unmapped;
/// the caller may not have waited for the end.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Binds the addresses.
pub fn listen(config: &ServerConfig) -> anyhow::Result<Listener> {
    patiently(|| Listener::bind(config), StartError::is_address_in_use)
}

/// Binds an address. Waits for one that is in use, for that may be the address of a server that was
/// killed and has not ended yet.
pub fn patiently<T, E>(
    bind: impl Fn() -> Result<T, E>,
    is_address_in_use: impl Fn(&E) -> bool,
) -> anyhow::Result<T>
where
    E: std::error::Error + Send + Sync + 'static,
{
    let began = Instant::now();
    let mut is_waiting = false;
    loop {
        let error = match bind() {
            Err(error) if is_address_in_use(&error) => error,
            bound => {
                if is_waiting && bound.is_ok() {
                    tracing::info!(
                        "the address is free, after {}",
                        format_duration(began.elapsed())
                    );
                }
                return Ok(bound?);
            }
        };
        if began.elapsed() > PATIENCE {
            let waited = format_duration(PATIENCE);
            return Err(error).with_context(|| {
                format!("waited {waited} in vain for the end of the process that has the address")
            });
        }
        if !std::mem::replace(&mut is_waiting, true) {
            let most = format_duration(PATIENCE);
            tracing::warn!(%error, "waiting {most} at most, in case the process there is ending");
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}
