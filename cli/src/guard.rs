//! `perdura guard`: the process that keeps the memory of many servers, and its parent.

use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use perdura_guard::{
    Battery, Guard, GuardOptions, GuardSocket, Parent, REGIONS_MAX, open_many_files,
};
use perdura_media::battery::BatteryFile;
use perdura_media::{RealClock, Watts, format_duration};
use perdura_region::default_reserve;
use perdura_terminal::region::flush_threads;
use perdura_terminal::say;
use perdura_terminal::time;
use perdura_warning::{Response, Signals, Warnings};

use crate::args::GuardArgs;
use crate::{battery, holder, privacy, service_manager, tenants};

/// The option by which the parent tells its child what it is.
const IS_CHILD: &str = "--is-child";
/// A source of warnings that is not open after this time counts as lost until it is.
const SOURCES_WITHIN: Duration = Duration::from_secs(1);
/// The permission bits of the socket by default: its user only.
const SOCKET_MODE: u32 = 0o600;

pub fn run(args: &GuardArgs) -> Result<()> {
    privacy::begin();
    let options = options(args)?;
    open_many_files();
    if args.is_child { guard(args, options) } else { parent(args, &options) }
}

fn options(args: &GuardArgs) -> Result<GuardOptions> {
    let regions_max = args.regions_max.unwrap_or(REGIONS_MAX);
    if regions_max == 0 {
        bail!("--regions-max 0: expected at least 1");
    }
    let threads = flush_threads("threads", args.threads)?;
    Ok(GuardOptions {
        socket: args.socket.clone(),
        regions_max,
        battery: shared(args)?,
        threads,
        memory_dir: args.memory_dir.clone(),
    })
}

/// The battery that the servers share, if they share one.
fn shared(args: &GuardArgs) -> Result<Option<Battery>> {
    let opened = match args.is_child {
        // The parent has looked, and says how long the battery lasts: a guard must start whatever
        // has become of the file.
        true => args.battery.as_ref().map(|path| (BatteryFile::new(path), Duration::MAX)),
        false => battery::open(&args.battery)?,
    };
    let (file, lasts) = opened.map_or((None, None), |(file, lasts)| (Some(file), Some(lasts)));
    let times = [time("grace", &args.grace)?, lasts];
    let Some(grace) = times.into_iter().flatten().min() else {
        let watts = args.watts.map(|watts| format!("--watts {watts}"));
        let tenants = args.tenants.as_ref().map(|path| format!("--tenants {}", path.display()));
        if let Some(option) = tenants.or(watts) {
            bail!("{option}: expected --grace or --battery, too: the battery that servers share");
        }
        return Ok(None);
    };
    let least = default_reserve(grace) * 2;
    if grace < least {
        bail!("--grace {}: expected at least {}", format_duration(grace), format_duration(least));
    }
    let watts = match args.watts {
        Some(watts) if !(watts.is_finite() && watts > 0.0) => {
            bail!("--watts {watts}: expected more than 0")
        }
        watts => watts.map(Watts),
    };
    let tenants = args.tenants.as_deref().map_or(Ok(Vec::new()), tenants::read)?;
    let mut numbered = tenants.iter().enumerate();
    if let Some((at, tenant)) = numbered.find(|(_, tenant)| tenant.reservation > grace) {
        bail!(
            "--tenants: tenant {}: a reservation of {} is longer than the battery lasts, {}",
            at + 1,
            format_duration(tenant.reservation),
            format_duration(grace)
        );
    }
    Ok(Some(Battery { grace, file, response: Response::new(grace, watts), tenants }))
}

/// Keeps the descriptors, and starts the guard again if it is killed.
fn parent(args: &GuardArgs, options: &GuardOptions) -> Result<()> {
    // Called before any thread is started.
    let signals = Signals::block()?;
    perdura_warning::ignore_hangup();
    // A source that cannot be used is refused here, and not by one guard after the other.
    let mut probe = Warnings::default();
    holder::add_sources(&mut probe, &args.warning)?;
    drop(probe);
    let mode = args.socket_mode.as_deref().map_or(Ok(SOCKET_MODE), socket_mode)?;
    let socket = GuardSocket::listen(&args.socket, mode)?;
    let this = std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
    let mut words: Vec<_> = std::env::args_os().skip(1).collect();
    if let Some(battery) = &options.battery {
        words.push(format!("--grace={}ms", battery.grace.as_millis()).into());
    }
    let program = move || {
        let mut command = Command::new(&this);
        command.args(&words).arg(IS_CHILD);
        command
    };
    say(format_args!(
        "perdura {}: guarding memory at {}, of at most {} servers (perdura serve --guard {})",
        env!("CARGO_PKG_VERSION"),
        args.socket.display(),
        options.regions_max,
        args.socket.display(),
    ));
    service_manager::tell("READY=1");
    let listener = socket.listener.try_clone().context("copy a descriptor")?;
    Parent {
        program: Box::new(program),
        listener,
        signals,
        clock: Arc::new(RealClock),
        alive: Box::new(service_manager::tell_alive),
    }
    .run()?;
    service_manager::tell("STOPPING=1");
    Ok(())
}

/// The guard itself, whose standard input is the connection to its parent.
fn guard(args: &GuardArgs, options: GuardOptions) -> Result<()> {
    let mut warnings = Warnings::by_signals()?;
    perdura_warning::ignore_hangup();
    let parent = std::io::stdin().as_fd().try_clone_to_owned().context("standard input")?;
    // The parent has looked at them already. Memory may be kept for this guard, so no source, slow
    // or gone by now, may keep it from its work.
    let sources = perdura_warning::open_within(&args.warning, SOURCES_WITHIN)?;
    sources.into_iter().for_each(|source| warnings.add(source));
    let null = std::fs::File::open("/dev/null").context("/dev/null")?;
    rustix::stdio::dup2_stdin(&null).context("give up standard input")?;
    let guard = Guard::inherit(parent, warnings, Arc::new(RealClock), options)
        .context("--is-child is for guards that a guard's parent starts")?;
    Ok(guard.run()?)
}

fn socket_mode(text: &str) -> Result<u32> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode & !0o777 == 0 && mode & 0o600 == 0o600 => Ok(mode),
        _ => bail!("--socket-mode {text}: expected permissions such as 600, 660 or 666"),
    }
}
