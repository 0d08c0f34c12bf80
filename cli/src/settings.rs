//! From words to meaning: every value checked and named in the error, defaults filled in.

use std::path::PathBuf;
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use perdura_media::{Bytes, Direct, Energy, Engine, Joules, Percent, Watts, parse_duration};
use perdura_region::directory::{self, Settings};
use perdura_region::promise::BudgetWish;
use perdura_region::{Compression, Config, PolicyKind};
use perdura_server::{Durability, EventQueue, ServerConfig};

use crate::args::{PlaceArgs, ServeArgs};

const DIR: &str = "perdura-data";
const MEMORY_BYTES: u64 = 1 << 30;
const GRACE: Duration = Duration::from_secs(30);
const LISTEN: &str = "127.0.0.1:6379";
const PASSWORD_VARIABLE: &str = "PERDURA_PASSWORD";

pub fn named<T, E>(name: &str, value: &str, parsed: Result<T, E>) -> Result<T>
where
    E: std::error::Error + Send + Sync + 'static,
{
    parsed.with_context(|| format!("--{name} {value}"))
}

pub fn optional<T: FromStr>(name: &str, value: &Option<String>) -> Result<Option<T>>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    value.as_ref().map(|value| named(name, value, value.parse())).transpose()
}

pub fn time(name: &str, value: &Option<String>) -> Result<Option<Duration>> {
    value.as_ref().map(|value| named(name, value, parse_duration(value))).transpose()
}

pub fn one_of<T: Copy>(name: &str, value: &Option<String>, choices: &[(&str, T)]) -> Result<T> {
    let Some(value) = value else { return Ok(choices[0].1) };
    match choices.iter().find(|(word, _)| word == value) {
        Some((_, choice)) => Ok(*choice),
        None => {
            let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
            bail!("--{name} {value}: expected one of {}", words.join(", "))
        }
    }
}

/// The directory to open.
pub fn place(args: &PlaceArgs, holder: Option<fn() -> Command>) -> Result<Settings> {
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

/// The victim policy of that name.
pub fn policy(name: &Option<String>) -> Result<PolicyKind> {
    let Some(name) = name else { return Ok(PolicyKind::default()) };
    PolicyKind::parse(name).with_context(|| {
        let names: Vec<_> = PolicyKind::ALL.iter().map(|kind| kind.name()).collect();
        format!("--policy {name}: expected one of {}", names.join(", "))
    })
}

/// Whether what is written is compressed.
pub fn compression(option: &str, name: &Option<String>) -> Result<Compression> {
    one_of(option, name, &Compression::ALL)
}

/// Time between checkpoints.
pub fn checkpoint(option: &str, value: &Option<String>) -> Result<Option<Duration>> {
    match value.as_deref() {
        Some("off") => Ok(None),
        None => Ok(Some(Duration::from_secs(1))),
        Some(value) => Ok(Some(named(option, value, parse_duration(value))?)),
    }
}

fn holder_wait(value: &Option<String>) -> Result<Option<Duration>> {
    match value.as_deref() {
        Some("off") => Ok(None),
        _ => Ok(Some(time("holder-wait", value)?.unwrap_or(directory::HOLDER_WAIT))),
    }
}

/// How the image is written.
pub fn engine(name: &Option<String>) -> Result<Engine> {
    let engines = [("auto", Engine::Auto), ("uring", Engine::Uring), ("pwrite", Engine::Pwrite)];
    one_of("io", name, &engines)
}

/// Whether the page cache is bypassed.
pub fn direct(name: &Option<String>) -> Result<Direct> {
    one_of("direct", name, &[("auto", Direct::Auto), ("on", Direct::On), ("off", Direct::Off)])
}

/// Threads of a flush.
pub fn flush_threads(wanted: Option<usize>) -> Result<usize> {
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    let threads = wanted.unwrap_or(processors.min(4));
    if threads == 0 || threads > 64 {
        bail!("--flush-threads {threads}: expected 1 to 64");
    }
    Ok(threads)
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
