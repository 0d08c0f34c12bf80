//! `perdura import`: the data of a Redis or Valkey, from its files or from the running server, into
//! a running server.

mod files;
mod follow;
mod keys;
mod promote;
mod source;
mod target;
mod wire;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use perdura_media::format_duration;
use perdura_terminal::{say, time};

use crate::connection::{Address, TlsOptions};
use crate::password::{password, source_password};
use keys::Taken;
use promote::Promotion;
use source::Source;
pub use target::Target;

/// Options of `import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Where the data come from: a dump (`dump.rdb`), a directory of append-only files
    /// (`appendonlydir`), one such file, or a running Redis or Valkey:
    /// `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]`, or the same with `rediss://` for TLS.
    #[arg(value_name = "SOURCE")]
    source: String,
    /// Address of the running server that takes the data: ADDRESS:PORT or a URL, such as
    /// `rediss://HOST:PORT`. --tls is about this server; the other options of TLS are about both.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6379")]
    to: String,
    /// File with that server's password; or set PERDURA_PASSWORD.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// File with the password of the running source; or set PERDURA_SOURCE_PASSWORD. One in the URL
    /// goes before, but other users of the machine see it in `ps`.
    #[arg(long, value_name = "FILE")]
    source_password_file: Option<PathBuf>,
    /// Remove everything that the server has before the import.
    #[arg(long, conflicts_with = "merge")]
    flush: bool,
    /// Keep what the server has; keys of the source replace those of the same name.
    #[arg(long)]
    merge: bool,
    /// From a running server: end as soon as everything is here. The source's writers are stopped
    /// for the last moment, so that nothing is missing; without this option its changes are
    /// followed until Ctrl-C.
    #[arg(long)]
    promote: bool,
    /// With --promote, how long the source's writers are stopped, from shortly before the end; 0s:
    /// not at all, for a source that nobody writes to any more [default: 10s].
    #[arg(long, value_name = "TIME", requires = "promote")]
    pause: Option<String>,
    #[command(flatten)]
    tls: TlsOptions,
}

const PAUSE: Duration = Duration::from_secs(10);
/// How often a line says how far following is.
const SAY_EVERY: Duration = Duration::from_secs(10);

pub fn run(args: &ImportArgs) -> Result<ExitCode> {
    let mut source = Address::of_url(&args.source)?;
    if let Some(source) = &mut source
        && source.password.is_none()
    {
        source.password = source_password(&args.source_password_file)?;
    }
    let pause = match args.pause.as_deref() {
        Some("0" | "0s") => Duration::ZERO,
        _ => time("pause", &args.pause)?.unwrap_or(PAUSE),
    };
    if args.promote && source.is_none() {
        bail!("--promote: {} is not a running server: there is nothing to follow", args.source);
    }
    let password = password(&args.password_file)?;
    let to = args.tls.address("--to", &args.to)?;
    args.tls.check(&source.iter().chain([&to]).collect::<Vec<_>>())?;
    let mut target = Target::connect(&to, &args.tls, password.as_deref())?;
    prepare(args, &to.place, &mut target)?;
    // A key whose time is over here may be prolonged by a change that is still to come.
    target.ask(&["PERDURA", "IMPORT", "BEGIN"])?;
    let began = Instant::now();
    let mut taken = Taken::default();
    match source {
        None => {
            let only = None;
            let outcome = files::import(Path::new(&args.source), only, &mut target, &mut taken);
            let (follower, tail) = outcome.map_err(|error| {
                error.context(format!("{}; begin anew with --flush", taken.so_far(&mut target)))
            })?;
            report(&taken, began.elapsed());
            if follower.commands > 0 {
                say(format_args!("carried out {} commands behind them", follower.commands));
            }
            if tail.cut_bytes > 0 {
                say(format_args!(
                    "left out the last {} bytes of the file: a command, or a transaction, that is \
                     not whole, because the source was stopped while it wrote",
                    tail.cut_bytes
                ));
            }
            Ok(ExitCode::SUCCESS)
        }
        Some(address) => {
            let is_over = ended_by_signal()?;
            let mut source = Source::sync(&address, &args.tls, &mut target, &mut taken)?;
            report(&taken, began.elapsed());
            follow(args, (&address, &to.place), &mut source, &mut target, &is_over, pause)
        }
    }
}

/// Follows the changes of a source until they are all here, or until a signal.
fn follow(
    args: &ImportArgs,
    (address, to): (&Address, &str),
    source: &mut Source,
    target: &mut Target,
    is_over: &AtomicBool,
    pause: Duration,
) -> Result<ExitCode> {
    let from = &address.place;
    let mut promotion =
        if args.promote { Some(Promotion::begin(address, &args.tls, pause)?) } else { None };
    if promotion.is_none() {
        say(format_args!("following {from} from offset {}; Ctrl-C ends", source.offset));
    }
    let (mut said, mut last) = (Instant::now(), source.commands());
    loop {
        source.step(target).with_context(|| {
            format!(
                "{to} has everything up to offset {} and nothing behind it; begin anew with --flush",
                source.offset
            )
        })?;
        if let Some(promotion) = &mut promotion
            && let Some(promoted) = promotion.look(source)?
        {
            say(format_args!(
                "promoted at offset {}: {to} has everything that {from} has, {} commands after the \
                 full sync",
                promoted.offset,
                source.commands()
            ));
            match (promoted.pause_left, promoted.refused) {
                (Some(left), _) => say(format_args!(
                    "{from} takes no writes for another {}: let its clients go to {to} now",
                    format_duration(left)
                )),
                (None, Some(why)) => say(format_args!(
                    "{from} could not be told to take no writes ({why}): what was written since is \
                     not here"
                )),
                (None, None) => {}
            }
            return Ok(ExitCode::SUCCESS);
        }
        if is_over.load(Relaxed) {
            say(format_args!(
                "stopped at offset {}: {} commands after the full sync were carried out. What {from} \
                 does from now on is not here; a later import begins anew (--flush)",
                source.offset,
                source.commands()
            ));
            return Ok(if args.promote { ExitCode::FAILURE } else { ExitCode::SUCCESS });
        }
        if said.elapsed() > SAY_EVERY {
            let commands = source.commands();
            let rate = (commands - last) as f64 / said.elapsed().as_secs_f64();
            say(format_args!("offset {}: {commands} commands, {rate:.0}/s", source.offset));
            (said, last) = (Instant::now(), commands);
        }
    }
}

/// Looks at what the target has, and removes it if that is asked for.
fn prepare(args: &ImportArgs, to: &str, target: &mut Target) -> Result<()> {
    if args.flush {
        // A library that is loaded again without REPLACE would be refused.
        target.ask(&["FUNCTION", "FLUSH"])?;
        return target.ask(&["FLUSHALL"]).map(drop);
    }
    let info = target.ask(&["INFO", "keyspace"])?;
    let databases: Vec<String> = info
        .lines()
        .filter_map(|line| line.strip_prefix("db")?.split_once(":keys="))
        .map(|(db, rest)| format!("{} in database {db}", rest.split(',').next().unwrap_or("?")))
        .collect();
    if args.merge || databases.is_empty() {
        return Ok(());
    }
    bail!(
        "{to} has keys already ({}), perhaps of an import that did not end: --flush removes them \
         first, --merge keeps those that the source does not have",
        databases.join(", ")
    );
}

fn report(taken: &Taken, elapsed: Duration) {
    let rate = taken.keys as f64 / elapsed.as_secs_f64().max(1e-3);
    say(format_args!("imported {} keys in {} ({rate:.0}/s)", taken.keys, format_duration(elapsed)));
    for (count, what) in [
        (taken.expired, "of them expire with the import's end, unless they are prolonged"),
        (taken.empty, "keys without an element were left out"),
        (taken.elsewhere, "keys of other databases were left out"),
        (taken.functions, "libraries of functions were loaded"),
    ] {
        if count > 0 {
            say(format_args!("{count} {what}"));
        }
    }
    taken.left_out.iter().for_each(|what| say(format_args!("left out: {what}")));
}

fn ended_by_signal() -> Result<Arc<AtomicBool>> {
    let is_over = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&is_over)).context("catch a signal")?;
    }
    Ok(is_over)
}
