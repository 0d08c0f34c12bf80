//! What systemd is told, if it started this process. Its absence is no error.

use std::ffi::OsString;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";
/// Time of a stop beside the flush: files are closed, memory is given back.
const STOP_MARGIN: Duration = Duration::from_secs(30);
/// Time between two attempts of a server that cannot start.
const PAUSE: Duration = Duration::from_secs(1);

/// Tells systemd a state, such as `READY=1`.
pub fn tell(state: &str) {
    let Some(path) = std::env::var_os(NOTIFY_SOCKET) else { return };
    if let Err(error) = send(&path, state) {
        tracing::warn!(%error, "the service manager could not be told {state}");
    }
}

/// Tells systemd that this process stops, and to wait for a flush that takes twice the warning: the
/// device may have become slower, and a flush that is late is better than none. A longer
/// `TimeoutStopSec=` stays as it is.
pub fn tell_stopping(warning: Duration) {
    let patience = warning.saturating_mul(2).saturating_add(STOP_MARGIN);
    let patience = u64::try_from(patience.as_micros()).unwrap_or(u64::MAX);
    tell(&format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={patience}"));
}

/// Waits for a moment, if systemd may start this process again at once: a server that cannot start
/// would keep a processor busy.
pub fn pause_before_another_start() {
    if std::env::var_os(NOTIFY_SOCKET).is_some() {
        std::thread::sleep(PAUSE);
    }
}

/// Tells systemd that this process is alive, as `WatchdogSec=` wants it. A failure is not logged:
/// systemd itself acts on the silence.
pub fn tell_alive() {
    if let Some(path) = std::env::var_os(NOTIFY_SOCKET) {
        let _ = send(&path, "WATCHDOG=1");
    }
}

fn send(path: &OsString, state: &str) -> std::io::Result<usize> {
    UnixDatagram::unbound()?.send_to(state.as_bytes(), path)
}
