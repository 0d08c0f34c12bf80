//! `perdura run --dir`: a program whose mapped files are bounded-dirty memory.

use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use perdura_guard::{GuardEar, Keeper, Orders, Watch, Writers};
use perdura_mapped::{DIR_VARIABLE, Host, REGION_NAME, SOCKET_VARIABLE, Serving, region_config};
use perdura_media::file::{Direct, Engine};
use perdura_media::{Bytes, RealClock, format_duration};
use perdura_region::directory::{Directory, HOLDER_WAIT, Settings, has_image};
use perdura_region::holder::{HeldBy, Holders, Voice};
use perdura_region::{Config, Promise, REGION_MIN_BYTES, Terms, default_reserve};
use perdura_terminal::region::{checkpoint, flush_threads};
use perdura_terminal::{LateBar, optional, time, with_library};
use perdura_warning::{Demand, Reading, Response, SETTLE, Warnings, unblock_signals_of};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use tempfile::TempDir;

use crate::args::RunArgs;
use crate::{first_start, holder, seccomp, settings};

/// Begins the name of a socket where programs meet their host.
const MEETING_PREFIX: &str = "programs-";
/// Longest path of a socket, bytes: Linux has 108 for it, and its end is a zero.
const SOCKET_PATH_MAX: usize = 107;
/// The name of a region whose files are all written, until it is removed.
const WRITTEN_NAME: &str = ".perdura-written";
const SIZE: Bytes = Bytes(1 << 30);
const GRACE: Duration = Duration::from_secs(30);
/// After a checkpoint the first store to each page traps: with one each second that costs a
/// database in memory a quarter of its commits. Linux itself leaves mapped pages alone for 30 s.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(10);
/// One part in so many of the grace is the program's, to end by itself.
const PROGRAM_PART: u32 = 4;
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What happens while the program runs.
enum Event {
    /// The program has ended.
    Ended(std::io::Result<ExitStatus>),
    /// No process that has files mapped is left.
    AllGone,
    /// A warning came.
    Warned(Instant),
}

/// An opened directory.
struct Opened {
    host: Arc<Host>,
    holders: Holders,
    promise: Promise,
    terms: Terms,
    /// What a guard orders, and the way to answer it.
    orders: Arc<Orders>,
    voice: Voice,
}

pub fn run(args: &RunArgs, dir: &Path) -> Result<ExitCode> {
    let mut warnings = Warnings::by_signals()?;
    holder::add_sources(&mut warnings, &args.warning)?;
    let dir = dir.canonicalize().with_context(|| format!("--dir {}", dir.display()))?;
    if let Some(outer) = dir.ancestors().skip(1).find(|outer| outer.join(REGION_NAME).exists()) {
        bail!(
            "--dir {}: {outer} has a run of its own, or what one has left: give {outer}, or let \
             that run end (`perdura run --dir {outer} -- true` writes what is left)",
            dir.display(),
            outer = outer.display(),
        );
    }
    let grace = time("grace", &args.grace)?.unwrap_or(GRACE);
    let warning = grace - grace / PROGRAM_PART;
    let reserve = default_reserve(warning);
    if warning <= reserve {
        bail!(
            "--grace {}: leaves {} to save all, of which {} are kept back: give more",
            format_duration(grace),
            format_duration(warning),
            format_duration(reserve)
        );
    }
    let threads = flush_threads("flush-threads", None)?;
    let mut command = with_library(&args.program)?;
    if args.capacity.is_some() || args.numa_node.is_some() || args.report {
        super::set_heap(&mut command, args)?;
    }

    let guard = args.guard.as_ref().map(|socket| holder::guard(socket, &mut warnings));
    let ear = guard.transpose()?.map(|(_, ear)| ear);
    let place = dir.join(REGION_NAME);
    remove_written(&dir)?;
    if has_image(&place) {
        let left = open(args, &dir, grace, threads, None)?;
        if !left.host.is_empty() {
            tracing::info!(files = left.host.len(), "writing the files that an earlier run left");
            write_files(&left.host)?;
        }
        close(left, threads, &dir)?;
    }
    let mut opened = open(args, &dir, grace, threads, ear)?;
    tracing::info!(
        "at most {} dirty, safe {} after a warning; the program has {} of the {} to end",
        Bytes(opened.promise.budget_bytes),
        format_duration(opened.promise.flush_time),
        format_duration(grace / PROGRAM_PART),
        format_duration(grace),
    );
    let (socket, _elsewhere) = meeting_place(&place)?;
    let serving = Serving::start(Arc::clone(&opened.host), &socket)?;
    command.env(SOCKET_VARIABLE, &socket).env(DIR_VARIABLE, &dir);
    let (tell, events) = channel();
    let settle = time("power-settle", &args.power_settle)?.unwrap_or(SETTLE);
    let response = Response::new(grace, None).settling(settle);
    watch(warnings, response, threads, &mut opened, tell.clone())?;
    let child = start(command)?;
    // A descriptor for each file; not before the program, which may rely on its own limit.
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most })
        .context("RLIMIT_NOFILE")?;
    let pid = Pid::from_child(&child);
    wait_for(child, tell.clone())?;
    let (status, is_closed) = wait(&events, pid, grace, &opened.host, threads)?;
    if is_closed {
        serving.kill();
    }
    wait_for_others(serving, &events, tell, &opened.host, threads)?;
    write_files(&opened.host).with_context(|| {
        format!(
            "nothing is lost: the data are in {}; the next `perdura run --dir` writes the files",
            place.display()
        )
    })?;
    close(opened, threads, &dir)?;
    Ok(exit_code(status))
}

/// The path of a socket where programs meet this process: in the region's own folder, which a later
/// run clears, or in one for temporary files, where the path would be too long for a socket. No two
/// processes have the same, so that a program meets nobody but its own host.
fn meeting_place(place: &Path) -> Result<(PathBuf, Option<TempDir>)> {
    let entries = std::fs::read_dir(place).with_context(|| place.display().to_string())?;
    for entry in entries {
        let entry = entry.with_context(|| place.display().to_string())?;
        if entry.file_name().to_string_lossy().starts_with(MEETING_PREFIX) {
            std::fs::remove_file(entry.path())
                .with_context(|| entry.path().display().to_string())?;
        }
    }
    let socket = place.join(format!("{MEETING_PREFIX}{}", std::process::id()));
    if socket.as_os_str().len() <= SOCKET_PATH_MAX {
        return Ok((socket, None));
    }
    let elsewhere =
        tempfile::Builder::new().prefix("perdura-run-").tempdir().context("a socket")?;
    Ok((elsewhere.path().join("socket"), Some(elsewhere)))
}

/// Opens the region of a directory. A guard's words arrive at `ear`.
fn open(
    args: &RunArgs,
    dir: &Path,
    grace: Duration,
    threads: usize,
    ear: Option<GuardEar>,
) -> Result<Opened> {
    let place = dir.join(REGION_NAME);
    let size = match optional("size", &args.size)? {
        Some(size) => size,
        // What an earlier run left keeps its size, because the smallest request never shrinks it.
        None if has_image(&place) => Bytes(REGION_MIN_BYTES),
        None => SIZE,
    };
    let mut settings = Settings {
        config: Config {
            log_percent: settings::log_percent(&place)?,
            checkpoint_every: match args.checkpoint {
                None => Some(CHECKPOINT_EVERY),
                Some(_) => checkpoint("checkpoint", &args.checkpoint)?,
            },
            ..region_config(size.0)
        },
        dir: place,
        wish: settings::wish(&args.budget)?,
        warning: grace - grace / PROGRAM_PART,
        reserve: None,
        engine: Engine::Auto,
        direct: Direct::Auto,
        threads,
        holder: Some(match &args.guard {
            Some(socket) => HeldBy::Guard(socket.clone()),
            None => HeldBy::Holder(holder::program(&args.warning, &None, seccomp::State::Off)),
        }),
        holder_wait: Some(HOLDER_WAIT),
        memory_dir: None,
        prove_again: false,
    };
    if let Some(announcement) = first_start::prepare(&mut settings, false, "--size")? {
        tracing::info!("{announcement}");
    }
    let place = settings.dir.clone();
    let bar = LateBar::new("proving the flush rate");
    let opened = Directory::open(settings, Arc::new(RealClock), &|done, of| bar.bytes(done, of));
    bar.finish();
    let Directory { region, promise, terms, mut supervisor, link, .. } =
        opened.map_err(|error| first_start::name_free(error.into(), &place))?;
    let (orders, voice) = holder::listen(supervisor.as_mut(), ear);
    let holders = Holders::watch(supervisor, link)?;
    let host = Arc::new(Host::new(region, dir.to_owned())?);
    Ok(Opened { host, holders, promise, terms, orders, voice })
}

/// Ends the memory, whose files are all written.
///
/// The region gets another name first, which is one durable step. From then on nobody writes the
/// files again over what others may have made of them.
fn close(opened: Opened, threads: usize, dir: &Path) -> Result<()> {
    let Opened { host, mut holders, .. } = opened;
    // After a warning it is closed already.
    if host.region().check_open().is_ok() {
        host.region().close(threads)?;
    }
    holders.let_go().context("everything is on the SSD, but the holder did not go")?;
    drop(host);
    let place = dir.join(REGION_NAME);
    let renamed = std::fs::rename(&place, dir.join(WRITTEN_NAME));
    renamed
        .and_then(|()| std::fs::File::open(dir)?.sync_all())
        .with_context(|| place.display().to_string())?;
    remove_written(dir)
}

/// Removes a region whose files are all written.
fn remove_written(dir: &Path) -> Result<()> {
    let place = dir.join(WRITTEN_NAME);
    match std::fs::remove_dir_all(&place) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| place.display().to_string())
        }
        _ => Ok(()),
    }
}

fn write_files(host: &Host) -> Result<()> {
    let bar = LateBar::new("writing the files");
    let written = host.write_files(&|done, of| bar.bytes(done, of));
    bar.finish();
    Ok(written?)
}

/// Starts the program, which is killed if this process is.
fn start(mut command: Command) -> Result<Child> {
    unblock_signals_of(&mut command);
    let child = command.spawn();
    child.with_context(|| command.get_program().display().to_string())
}

fn wait_for(mut child: Child, tell: Sender<Event>) -> Result<()> {
    let wait = move || {
        // The receiver is there as long as the program is waited for.
        let _ = tell.send(Event::Ended(child.wait()));
    };
    std::thread::Builder::new()
        .name("perdura-child".into())
        .spawn(wait)
        .context("start a thread")?;
    Ok(())
}

/// Waits for the programs that the program has left behind. They go on until they end, or until a
/// warning: then everything is flushed, and they are killed.
fn wait_for_others(
    serving: Serving,
    events: &Receiver<Event>,
    tell: Sender<Event>,
    host: &Host,
    threads: usize,
) -> Result<()> {
    let serving = Arc::new(serving);
    let waited = Arc::clone(&serving);
    let wait = move || {
        waited.wait();
        // The receiver is there until it hears this.
        let _ = tell.send(Event::AllGone);
    };
    std::thread::Builder::new()
        .name("perdura-others".into())
        .spawn(wait)
        .context("start a thread")?;
    loop {
        match events.recv().context("the programs")? {
            Event::AllGone => return Ok(()),
            Event::Warned(at) if host.region().check_open().is_ok() => {
                flush(host, threads, at)?;
                serving.kill();
            }
            Event::Warned(_) | Event::Ended(_) => {}
        }
    }
}

/// Flushes everything. No store happens any more.
fn flush(host: &Host, threads: usize, warned: Instant) -> Result<()> {
    let at_risk = Bytes(host.region().used_bytes());
    host.region().close(threads).with_context(|| format!("the flush failed: {at_risk} at risk"))?;
    let took = format_duration(warned.elapsed());
    tracing::info!("everything is on the SSD {took} after the warning");
    Ok(())
}

/// Waits for the program's end. After a warning it gets its part of the grace; then everything is
/// flushed, whatever it does. Returns whether that was done.
fn wait(
    events: &Receiver<Event>,
    pid: Pid,
    grace: Duration,
    host: &Host,
    threads: usize,
) -> Result<(ExitStatus, bool)> {
    let warned = loop {
        match events.recv().context("the program")? {
            Event::Ended(status) => return Ok((status?, false)),
            Event::Warned(at) => break at,
            Event::AllGone => {}
        }
    };
    // It may have ended.
    let _ = kill_process(pid, Signal::TERM);
    let mut status = None;
    while warned.elapsed() < grace / PROGRAM_PART && status.is_none() {
        if let Ok(Event::Ended(ended)) = events.recv_timeout(LOOK_EVERY) {
            status = Some(ended?);
        }
    }
    flush(host, threads, warned)?;
    let status = match status {
        Some(status) => status,
        None => loop {
            // Nobody has heard of its end.
            let _ = kill_process(pid, Signal::KILL);
            if let Event::Ended(ended) = events.recv().context("the program")? {
                break ended?;
            }
        },
    };
    Ok((status, true))
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}

/// The program stores without asking, so it cannot be refused. While the power is low its stores
/// wait.
struct Program(Weak<Host>);

impl Writers for Program {
    fn told(&self, _: &Reading, demand: Demand) {
        if let Some(host) = self.0.upgrade() {
            host.region().hold_writers(demand == Demand::Clean);
        }
    }

    fn met(&self, _: Demand) {}

    /// Always: stores wait once a checkpoint has begun.
    fn have_ended(&self) -> bool {
        true
    }
}

fn watch(
    warnings: Warnings,
    response: Response,
    threads: usize,
    opened: &mut Opened,
    tell: Sender<Event>,
) -> Result<()> {
    let watch = Watch {
        warnings,
        response,
        clock: Arc::new(RealClock),
        writers: Arc::new(Program(Arc::downgrade(&opened.host))),
        flush_threads: threads,
        orders: Arc::clone(&opened.orders),
        voice: std::mem::take(&mut opened.voice),
    };
    let kept = Arc::downgrade(&opened.host);
    watch
        .start(
            Keeper::new(opened.terms, opened.promise.budget_bytes),
            move |act| kept.upgrade().map(|host| act(host.region())),
            move |_| {
                let _ = tell.send(Event::Warned(Instant::now()));
            },
        )
        .context("start a thread")
}
