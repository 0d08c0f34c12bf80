//! The options of `serve` about watching it, and the watcher that they ask for.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use perdura_server::Watcher;
use perdura_watch::{Readers, Settings, Watch, WatchError};

use crate::listen::patiently;
use crate::password::first_line;

const WATCHING: &str = "Watching";

#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Answer HTTP at this address: a live page (`/`), metrics for Prometheus (`/metrics`) and
    /// probes (`/healthz`, `/readyz`). Nothing can be changed there. An address that other machines
    /// reach needs --http-password-file or --http-open.
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = WATCHING)]
    pub http: Option<String>,
    /// File whose first line is the password for the page and the metrics; the user is `perdura`.
    #[arg(long, value_name = "FILE", requires = "http", help_heading = WATCHING)]
    pub http_password_file: Option<PathBuf>,
    /// Let everybody who reaches the address look, without a password.
    #[arg(
        long,
        requires = "http",
        conflicts_with = "http_password_file",
        help_heading = WATCHING
    )]
    pub http_open: bool,
    /// A name by which browsers and Prometheus call this machine, if it has a dot in it; may be
    /// given several times. Without a password, requests for other names are refused.
    #[arg(long, value_name = "NAME", requires = "http", help_heading = WATCHING)]
    pub http_name: Vec<String>,
}

/// The option of commands that log for a long time.
#[derive(Debug, Args)]
pub struct LogArgs {
    /// How the log on standard error is written: `plain` lines, or a `json` object in each line.
    /// The variable PERDURA_LOG chooses what is logged [default: plain].
    #[arg(long, value_name = "FORMAT", help_heading = WATCHING)]
    pub log_format: Option<String>,
}

/// Takes the address, if there is one.
pub fn watcher(args: &WatchArgs, guard: Option<PathBuf>) -> Result<Option<Arc<dyn Watcher>>> {
    let Some(text) = &args.http else { return Ok(None) };
    let addr: SocketAddr = text.parse().with_context(|| {
        format!("--http {text}: expected ADDRESS:PORT, such as 127.0.0.1:9121 or [::1]:9121")
    })?;
    let readers = match &args.http_password_file {
        Some(path) => Readers::Password(first_line("http-password-file", path)?),
        None if args.http_open => Readers::Everybody,
        None => Readers::ThisMachine,
    };
    let settings = Settings { addr, readers, names: args.http_name.clone(), guard };
    let watch = patiently(|| Watch::bind(settings.clone()), WatchError::is_address_in_use)?;
    tracing::info!("http://{}/ shows how the server is", watch.addr());
    Ok(Some(Arc::new(watch)))
}
