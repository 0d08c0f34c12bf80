//! From words to meaning: every value checked and named in the error, defaults filled in.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use perdura_media::{Bytes, Energy, Joules, Percent, Watts};
use perdura_region::Config;
use perdura_region::directory::{self, Settings};
use perdura_region::holder::HolderProgram;
use perdura_region::promise::BudgetWish;
use perdura_server::{Durability, EventQueue, ServerConfig};
use perdura_terminal::region::{checkpoint, compression, direct, engine, flush_threads, policy};
use perdura_terminal::{named, one_of, optional, time};

use crate::args::{PlaceArgs, ServeArgs};

const DIR: &str = "perdura-data";
const MEMORY_BYTES: u64 = 1 << 30;
const GRACE: Duration = Duration::from_secs(30);
const LISTEN: &str = "127.0.0.1:6379";
pub const PASSWORD_VARIABLE: &str = "PERDURA_PASSWORD";

/// The directory to open.
pub fn place(args: &PlaceArgs, holder: Option<HolderProgram>) -> Result<Settings> {
    let dir = args.dir.clone().unwrap_or_else(|| PathBuf::from(DIR));
    let Bytes(memory) = match optional("memory", &args.memory)? {
        Some(bytes) => bytes,
        // An image that is there keeps its size: the smallest request never shrinks it.
        None if directory::has_image(&dir) => Bytes(perdura_region::region::REGION_MIN_BYTES),
        None => Bytes(MEMORY_BYTES),
    };
    let mut config = Config::new(memory, 0);
    config.reserved_bytes =
        optional::<Bytes>("reserve-memory", &args.reserve_memory)?.map(|Bytes(bytes)| bytes);
    config.checkpoint_every = checkpoint("checkpoint", &args.checkpoint)?;
    if let Some(log) = &args.log {
        let percent = log.trim().strip_suffix('%').and_then(|number| number.trim().parse().ok());
        config.log_percent = percent.with_context(|| {
            format!("--log {log}: expected whole percent of the memory, such as 200%")
        })?;
    }
    config.policy = policy(&args.policy)?;
    config.compression = compression("compress", &args.compress)?;
    let warning = match (time("grace", &args.grace)?, &args.joules, &args.watts) {
        (Some(grace), _, _) => grace,
        (None, Some(joules), Some(watts)) => {
            let joules: Joules = named("joules", joules, joules.parse())?;
            let watts: Watts = named("watts", watts, watts.parse())?;
            Energy::Battery { joules, watts }.warning_time()?
        }
        _ => GRACE,
    };
    let threads = flush_threads(args.flush_threads)?;
    Ok(Settings {
        dir,
        config,
        wish: wish(&args.budget)?,
        warning,
        reserve: time("reserve", &args.reserve)?,
        engine: engine(&args.io)?,
        direct: direct(&args.direct)?,
        threads,
        holder,
        holder_wait: holder_wait(&args.holder_wait)?,
        prove_again: args.prove_again,
    })
}

fn holder_wait(value: &Option<String>) -> Result<Option<Duration>> {
    match value.as_deref() {
        Some("off") => Ok(None),
        _ => Ok(Some(time("holder-wait", value)?.unwrap_or(directory::HOLDER_WAIT))),
    }
}

fn wish(budget: &Option<String>) -> Result<BudgetWish> {
    let Some(value) = budget else { return Ok(BudgetWish::Derived) };
    if value.trim_end().ends_with('%') {
        let Percent(percent) = named("budget", value, value.parse())?;
        return Ok(BudgetWish::Percent(percent));
    }
    let Bytes(bytes) = named("budget", value, value.parse())?;
    Ok(BudgetWish::Bytes(bytes))
}

/// The server to run.
pub fn server(args: &ServeArgs, warning: Duration) -> Result<ServerConfig> {
    let listen = args.listen.as_deref().unwrap_or(LISTEN);
    let mut config = ServerConfig {
        bind: vec![named("listen", listen, listen.parse())?],
        unix_socket: args.unix_socket.clone(),
        requirepass: password(&args.password_file)?,
        durability: one_of(
            "durability",
            &args.durability,
            &[
                ("warned", Durability::Warned),
                ("fsync", Durability::Fsync),
                ("none", Durability::None),
            ],
        )?,
        events: one_of(
            "events",
            &args.events,
            &[
                ("auto", EventQueue::Auto),
                ("epoll", EventQueue::Epoll),
                ("uring", EventQueue::Uring),
            ],
        )?,
        warning_s: warning.as_secs_f64(),
        ..ServerConfig::default()
    };
    if let Some(clients) = args.max_clients {
        if clients == 0 {
            bail!("--max-clients 0: expected at least 1");
        }
        config.clients_max = clients;
    }
    if let Some(timeout) = time("client-timeout", &args.client_timeout)? {
        config.timeout_s = timeout.as_secs();
    }
    Ok(config)
}

/// The password from a file's first line, or from the environment; never from the command line,
/// where every user of the machine could read it.
pub fn password(file: &Option<PathBuf>) -> Result<Option<String>> {
    let Some(path) = file else { return Ok(std::env::var(PASSWORD_VARIABLE).ok()) };
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    match text.lines().next().filter(|line| !line.is_empty()) {
        Some(line) => Ok(Some(line.to_owned())),
        None => bail!("{}: the first line is empty, expected a password", path.display()),
    }
}
