//! What systemd is told, if it started this process. Its absence is no error.

use std::ffi::OsString;
use std::os::unix::net::UnixDatagram;

const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";

/// Tells systemd a state, such as `READY=1`.
pub fn tell(state: &str) {
    let Some(path) = std::env::var_os(NOTIFY_SOCKET) else { return };
    if let Err(error) = send(&path, state) {
        tracing::warn!(%error, "the service manager could not be told {state}");
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
