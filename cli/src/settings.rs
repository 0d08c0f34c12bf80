//! Options become settings: each value is checked and named in its error, defaults are filled in.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use perdura_media::{Bytes, Energy, Joules, Percent, Watts, format_duration};
use perdura_region::directory::{self, Settings};
use perdura_region::holder::HeldBy;
use perdura_region::{BudgetWish, Config, REGION_MIN_BYTES, default_reserve, room};
use perdura_server::parameters::{self, inert};
use perdura_server::{Durability, EventQueue, ServerConfig};
use perdura_terminal::region::{checkpoint, compression, direct, engine, flush_threads, policy};
use perdura_terminal::{named, one_of, optional, time};
use perdura_warning::{Response, SETTLE};

use crate::battery;
use crate::password::password;
use crate::serve_args::{PlaceArgs, ServeArgs};
use crate::surroundings;
use crate::tls_args;

const DIR: &str = "perdura-data";
const MEMORY_BYTES: u64 = 1 << 30;
const GRACE: Duration = Duration::from_secs(30);
const LISTEN: &str = "127.0.0.1:6379";
const PORT: u16 = 6379;
const TLS_PORT: u16 = 6380;

/// The settings of the directory to open.
pub fn place(args: &PlaceArgs, holder: Option<HeldBy>) -> Result<Settings> {
    let dir = args.dir.clone().unwrap_or_else(|| PathBuf::from(DIR));
    let Bytes(memory) = match optional("memory", &args.memory)? {
        Some(bytes) => bytes,
        // An existing image keeps its size, because the smallest request never shrinks it.
        None if directory::has_image(&dir) => Bytes(REGION_MIN_BYTES),
        None => Bytes(MEMORY_BYTES),
    };
    let mut config = Config::new(memory, 0);
    config.log_percent = log_percent(&dir)?;
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
    config.key = args.key.key()?;
    if let (Some(_), Some(dir)) = (&config.key, &args.memory_dir) {
        surroundings::check_keeps_nothing(dir)?;
    }
    config.compression = compression("compress", &args.compress)?;
    let warning = warning(args)?;
    let reserve = time("reserve", &args.reserve)?;
    check_reserve(warning, reserve)?;
    let threads = flush_threads("flush-threads", args.flush_threads)?;
    Ok(Settings {
        dir,
        config,
        wish: wish(&args.budget)?,
        warning,
        reserve,
        engine: engine(&args.io)?,
        direct: direct(&args.direct)?,
        threads,
        holder,
        holder_wait: holder_wait(&args.holder_wait)?,
        memory_dir: args.memory_dir.clone(),
        prove_again: args.prove_again,
    })
}

/// The time from a warning to the end, as far as the options say.
fn warning(args: &PlaceArgs) -> Result<Duration> {
    let grace = time("grace", &args.grace)?;
    if let Some((_, lasts)) = battery::open(&args.battery)? {
        return Ok(grace.map_or(lasts, |grace| grace.min(lasts)));
    }
    match (grace, &args.joules, watts(args)?) {
        (Some(grace), _, _) => Ok(grace),
        (None, Some(joules), Some(watts)) => {
            let joules: Joules = named("joules", joules, joules.parse())?;
            Ok(Energy::Battery { joules, watts }.warning_time()?)
        }
        _ => Ok(GRACE),
    }
}

/// The power that the machine draws while it flushes, if that is given.
fn watts(args: &PlaceArgs) -> Result<Option<Watts>> {
    args.watts.as_ref().map(|watts| named("watts", watts, watts.parse())).transpose()
}

/// What readings of the power demand of the server.
pub fn response(args: &ServeArgs, grace: Duration) -> Result<Response> {
    let settle = time("power-settle", &args.power_settle)?.unwrap_or(SETTLE);
    Ok(Response::new(grace, watts(&args.place)?).settling(settle))
}

/// Refuses a memory that is too small, or larger than it may ever be.
pub fn check_memory(config: &Config) -> Result<()> {
    let memory = Bytes(config.region_bytes);
    if memory.0 < REGION_MIN_BYTES {
        bail!("--memory {memory}: expected at least {}", Bytes(REGION_MIN_BYTES));
    }
    match config.reserved_bytes {
        Some(bytes) if bytes < memory.0 => {
            bail!("--reserve-memory {}: expected at least the memory, {memory}", Bytes(bytes))
        }
        _ => Ok(()),
    }
}

/// Refuses a warning that is all kept back, before anything is made for it.
fn check_reserve(warning: Duration, reserve: Option<Duration>) -> Result<()> {
    let reserve = reserve.unwrap_or_else(|| default_reserve(warning));
    if warning <= reserve {
        bail!(
            "a warning of {} leaves nothing after the reserve of {}: give more --grace (or \
             --joules), or less --reserve",
            format_duration(warning),
            format_duration(reserve)
        );
    }
    Ok(())
}

/// The usual size of the log; or the smallest, where there is an image and the disk could not hold
/// a second one. An image keeps the log that it was made with, and must open on a disk that is
/// full.
pub fn log_percent(dir: &Path) -> Result<u64> {
    let [usual, .., smallest] = room::LOG_PERCENTS;
    let Ok(image) = std::fs::metadata(dir.join(directory::IMAGE_NAME)) else { return Ok(usual) };
    let free_bytes = room::free_bytes(dir).with_context(|| dir.display().to_string())?;
    Ok(if free_bytes < image.len() { smallest } else { usual })
}

/// A size in Redis' units, such as 512mb or 2gb.
pub fn redis_size(value: &str) -> Result<u64> {
    match perdura_server::number::parse_memory(value.as_bytes()) {
        Some(bytes @ 1..) => Ok(bytes),
        _ => bail!("--maxmemory {value}: expected a size, such as 512mb or 2gb"),
    }
}

fn holder_wait(value: &Option<String>) -> Result<Option<Duration>> {
    match value.as_deref() {
        Some("off") => Ok(None),
        _ => Ok(Some(time("holder-wait", value)?.unwrap_or(directory::HOLDER_WAIT))),
    }
}

pub fn wish(budget: &Option<String>) -> Result<BudgetWish> {
    let Some(value) = budget else { return Ok(BudgetWish::Derived) };
    if value.trim_end().ends_with('%') {
        let Percent(percent) = named("budget", value, value.parse())?;
        if percent <= 0.0 {
            bail!("--budget {value}: expected a share of the memory above 0%");
        }
        return Ok(BudgetWish::Percent(percent));
    }
    let Bytes(bytes) = named("budget", value, value.parse())?;
    Ok(BudgetWish::Bytes(bytes))
}

/// The settings of the server to run.
pub fn server(args: &ServeArgs, warning: Duration) -> Result<ServerConfig> {
    let plain = addresses(args)?;
    let sealed = tls_addresses(args, &plain)?;
    let requirepass = match &args.requirepass {
        Some(password) => Some(password.clone()),
        None => password(&args.password_file)?,
    };
    let mut config = ServerConfig {
        bind: plain.bind,
        bind_if_there: plain.bind_if_there,
        tls_bind: sealed.bind,
        tls_bind_if_there: sealed.bind_if_there,
        unix_socket: args.unix_socket.clone(),
        requirepass,
        spill_dir: Some(args.place.dir.clone().unwrap_or_else(|| PathBuf::from(DIR))),
        config_file: config_file(args)?,
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
        threads: match args.threads {
            Some(threads) => threads.get(),
            // A system that does not say how many processors there are has one at least.
            None => std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
        },
        warning_s: warning.as_secs_f64(),
        ..ServerConfig::default()
    };
    config.acl_file = args.aclfile.clone();
    config.users = args.user.iter().map(|rules| format!("user {rules}")).collect();
    if let Some(seconds) = args.tcp_keepalive {
        config.tcp_keepalive_s = seconds;
    }
    if let Some(us) = args.slowlog_log_slower_than {
        config.slowlog_slower_than_us = us;
    }
    if let Some(ms) = args.busy_reply_threshold {
        config.script_limit_ms = ms;
    }
    if let Some(Bytes(max)) = optional("script-memory-limit", &args.script_memory_limit)? {
        config.script_memory_max = max as usize;
    }
    if let Some(entries) = args.slowlog_max_len {
        config.slowlog_len_max = entries;
    }
    if let Some(clients) = args.max_clients {
        if clients == 0 {
            bail!("--max-clients 0: expected at least 1");
        }
        config.clients_max = clients;
    }
    if let Some(timeout) = time("client-timeout", &args.client_timeout)? {
        config.timeout_s = timeout.as_secs();
    }
    if let Some(policy) = &args.maxmemory_policy {
        set_parameter(&mut config, "maxmemory-policy", policy)
            .map_err(|why| anyhow!("--maxmemory-policy {policy}: {why}"))?;
    }
    for setting in &args.set {
        let (name, value) = setting
            .split_once('=')
            .with_context(|| format!("--set {setting}: expected PARAMETER=VALUE"))?;
        set_parameter(&mut config, name, value).map_err(|why| anyhow!("--set {setting}: {why}"))?;
    }
    tls_args::apply(&args.tls, &mut config)?;
    Ok(config)
}

/// The absolute path of the settings file, for INFO.
fn config_file(args: &ServeArgs) -> Result<Option<PathBuf>> {
    let path = args.config.as_ref().or(args.redis_conf.as_ref());
    let absolute = |path: &PathBuf| path.canonicalize().with_context(|| path.display().to_string());
    path.map(absolute).transpose()
}

/// Sets a parameter as CONFIG SET does.
fn set_parameter(config: &mut ServerConfig, name: &str, value: &str) -> Result<(), String> {
    let name = name.to_ascii_lowercase();
    if let Some(outcome) = parameters::set(config, &name, value.as_bytes()) {
        return outcome.map_err(Cow::into_owned);
    }
    let parameter = inert::find(&name).ok_or("CONFIG SET has no such parameter")?;
    parameter.check(value)?;
    config.inert.insert(parameter.name, value.to_owned());
    Ok(())
}

#[derive(Default)]
struct Addresses {
    bind: Vec<SocketAddr>,
    bind_if_there: Vec<SocketAddr>,
}

/// The addresses of `--listen`, or of `--bind` and `--port`.
fn addresses(args: &ServeArgs) -> Result<Addresses> {
    if args.port.is_none() && args.bind.is_none() {
        let address = address("listen", args.listen.as_deref().unwrap_or(LISTEN), PORT)?;
        return Ok(Addresses { bind: vec![address], bind_if_there: Vec::new() });
    }
    bound(args, args.port.unwrap_or(PORT))
}

/// The addresses at which clients speak TLS.
fn tls_addresses(args: &ServeArgs, plain: &Addresses) -> Result<Addresses> {
    match (&args.tls.tls_listen, args.tls.tls_port) {
        (Some(listen), _) => {
            let bind = vec![address("tls-listen", listen, TLS_PORT)?];
            Ok(Addresses { bind, bind_if_there: Vec::new() })
        }
        (None, None | Some(0)) => Ok(Addresses::default()),
        (None, Some(port)) if args.port.is_none() && args.bind.is_none() => {
            let bind = plain.bind.iter().map(|addr| SocketAddr::new(addr.ip(), port)).collect();
            Ok(Addresses { bind, bind_if_there: Vec::new() })
        }
        (None, Some(port)) => bound(args, port),
    }
}

/// The address of an option. Users of Redis give it without a port.
fn address(option: &str, text: &str, port: u16) -> Result<SocketAddr> {
    let alone = text.parse().ok().map(|ip: IpAddr| SocketAddr::new(ip, port));
    alone.or_else(|| text.parse().ok()).with_context(|| {
        format!("--{option} {text}: expected ADDRESS:PORT, such as 127.0.0.1:{port}")
    })
}

/// The addresses of `--bind` with this port; 0: none.
fn bound(args: &ServeArgs, port: u16) -> Result<Addresses> {
    let mut found = Addresses::default();
    if port == 0 {
        return Ok(found);
    }
    let words = args.bind.as_deref().unwrap_or("127.0.0.1");
    for word in words.split([' ', ',']).filter(|word| !word.is_empty()) {
        let (may_miss, word) = match word.strip_prefix('-') {
            Some(word) => (true, word),
            None => (false, word),
        };
        let ip = match word {
            "*" => IpAddr::from([0, 0, 0, 0]),
            "::*" => IpAddr::from([0u16; 8]),
            _ => word.parse().ok().with_context(|| {
                format!("--bind {words}: {word:?} is no address, such as 127.0.0.1 or ::1")
            })?,
        };
        let list = if may_miss { &mut found.bind_if_there } else { &mut found.bind };
        list.push(SocketAddr::new(ip, port));
    }
    Ok(found)
}
