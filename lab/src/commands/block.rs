//! `perdura-lab block serve`: a modelled medium as a block device for other programs.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use perdura_block::fuse::Mount;
use perdura_block::nbd::{Address, Export, Listener, Report, Server, Settings, Stop};
use perdura_block::{Disk, ReadOnly};
use perdura_media::emulator::TimingError;
use perdura_media::model::EnergyUse;
use perdura_media::{Bytes, Emulator, Pace, RealClock, System, format_duration, parse_duration};
use perdura_warning::{State, Warnings};
use rustix::fs::FallocateFlags;

use perdura_terminal::say;

/// Block devices on modelled media.
#[derive(Debug, Args)]
pub struct BlockArgs {
    #[command(subcommand)]
    pub what: BlockCommand,
}

#[derive(Debug, Subcommand)]
pub enum BlockCommand {
    /// Serve a medium over NBD, and as a file in a directory (FUSE), until SIGTERM or SIGINT.
    Serve(ServeArgs),
}

#[derive(Debug, Args)]
pub struct ServeArgs {
    /// The medium: a built-in profile (pcm, pcie-pcm, disk-raid0, dram, …) or a TOML file.
    #[arg(long, value_name = "NAME|FILE")]
    pub media: String,
    /// Put the medium behind this link instead of the profile's own (pcie1x8, ddr3x6, …, or none).
    #[arg(long, value_name = "NAME")]
    pub link: Option<String>,
    /// Size of the medium, a multiple of 4096 [default: the size of --file, if it has one].
    #[arg(long, value_name = "SIZE")]
    pub size: Option<String>,
    /// Serve NBD at this address: unix:PATH or tcp:ADDRESS:PORT; may be repeated.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Vec<String>,
    /// Mount a directory with one file, `disk`, that has the bytes of the medium.
    #[arg(long, value_name = "DIR")]
    pub fuse: Option<PathBuf>,
    /// Let the page cache answer accesses to the file in --fuse; it hides the medium's time.
    #[arg(long, requires = "fuse")]
    pub fuse_cached: bool,
    /// Refuse writes to the medium.
    #[arg(long)]
    pub read_only: bool,
    /// Name of the NBD export; clients may also leave it empty.
    #[arg(long, value_name = "EXPORT", default_value = "")]
    pub name: String,
    /// NBD connections at a time; further ones are closed.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub connections: usize,
    /// Keep the bytes in this file, which outlives the server and may be shared. It should lie in
    /// memory (/dev/shm); it is created if missing.
    #[arg(long, value_name = "PATH")]
    pub file: Option<PathBuf>,
    /// Time for which a connection polls for its next request before it sleeps: trades processor
    /// time for latency. 0s: do not poll.
    #[arg(long, value_name = "TIME", default_value = "100us")]
    pub spin: String,
    /// Allow TCP addresses that other machines reach. NBD has no passwords: anyone who reaches the
    /// address may read and write.
    #[arg(long)]
    pub allow_remote: bool,
}

pub fn run(args: &BlockArgs, warnings: Warnings) -> Result<ExitCode> {
    match &args.what {
        BlockCommand::Serve(args) => serve(args, warnings),
    }
}

fn serve(args: &ServeArgs, warnings: Warnings) -> Result<ExitCode> {
    if args.listen.is_empty() && args.fuse.is_none() {
        bail!(
            "no client could reach the medium: give --listen unix:PATH, --listen tcp:ADDRESS:PORT \
             or --fuse DIR"
        );
    }
    let addresses = args.listen.iter().map(|text| text.parse::<Address>());
    let addresses = addresses.collect::<Result<Vec<_>, _>>().context("--listen")?;
    let settings = settings(args)?;
    let mut system = System::find(&args.media).context("--media")?;
    if let Some(link) = &args.link {
        system = system.with_link(link).context("--link")?;
    }
    let size =
        args.size.as_ref().map(|text| text.parse::<Bytes>()).transpose().context("--size")?;
    if let Some(Bytes(bytes)) = size.filter(|size| size.0 == 0 || size.0 % SIZE_STEP_BYTES != 0) {
        bail!("--size {bytes}: expected a multiple of {SIZE_STEP_BYTES} above zero");
    }

    // Addresses are bound before memory is taken: a failed start must change nothing.
    let listeners = addresses.iter().map(|address| Listener::bind(address, args.allow_remote));
    let listeners = listeners.collect::<Result<Vec<_>, _>>().context("--listen")?;
    let mut made = None;
    let emulator = match (&args.file, size) {
        (Some(path), size) => {
            let file = open_or_make(path, args.read_only, &mut made)?;
            with_room(path, &file, size, args.read_only)?;
            Emulator::over_file(&system, &file, Pace::Real)
                .with_context(|| format!("--file {}", path.display()))?
        }
        (None, Some(size)) => Emulator::anonymous(&system, size.0, Pace::Real).context("--size")?,
        (None, None) => bail!("--size is missing: give the size of the medium, such as 4GiB"),
    };
    let medium = Arc::new(emulator);
    let mut disk: Arc<dyn Disk> = Arc::clone(&medium) as Arc<dyn Disk>;
    if args.read_only {
        disk = Arc::new(ReadOnly(disk));
    }
    let mount = args.fuse.as_ref();
    let mount = mount.map(|path| Mount::new(path, Arc::clone(&disk), args.fuse_cached));
    let mount = mount.transpose().context("--fuse")?;
    if let Some(made) = made {
        made.keep();
    }
    say(banner(&system, &*disk, args, &listeners, mount.as_ref()));

    let stop = Arc::new(Stop::new().context("stop flag")?);
    watch(warnings, Arc::clone(&stop))?;
    let export = Export { name: args.name.clone(), disk };
    let report = Server::new(export, settings, Arc::new(RealClock), stop).serve(listeners);
    // The mount is ended even if serving failed.
    let unmounted = mount.map(Mount::unmount).transpose();
    say(account("nbd", &report?));
    say(drawn(&medium.energy()));
    if let Some(unmounted) = unmounted.context("--fuse")? {
        say(format_args!("fuse: {}", lateness(&unmounted.timing_error)));
        if unmounted.was_busy {
            eprintln!(
                "perdura: the file was still in use (by a loop device or a file system): its users \
                 get errors now"
            );
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn settings(args: &ServeArgs) -> Result<Settings> {
    if args.connections == 0 {
        bail!("--connections 0: expected at least 1");
    }
    let fitting = perdura_server::clients_that_fit(args.connections);
    if fitting < args.connections {
        bail!(
            "--connections {}: the system allows descriptors for {fitting} (ulimit -Hn)",
            args.connections
        );
    }
    let spin = parse_duration(&args.spin).context("--spin")?;
    if spin > SPIN_MAX {
        bail!("--spin {}: at most {}", args.spin, format_duration(SPIN_MAX));
    }
    let spin_ns = spin.as_nanos() as u64;
    Ok(Settings { connections_max: args.connections, spin_ns, ..Settings::default() })
}

/// A file that this start created. It is removed on drop unless it is kept.
struct Made<'a>(&'a Path);

impl Made<'_> {
    /// Keeps the file: the start has succeeded.
    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(self.0) {
            tracing::warn!(
                "--file {}: this start created the file and could not remove it: \
                            {error}",
                self.0.display()
            );
        }
    }
}

/// Opens or creates the file with the bytes. `made` is set if the file was created, so that a
/// failed start removes it.
fn open_or_make<'a>(path: &'a Path, read_only: bool, made: &mut Option<Made<'a>>) -> Result<File> {
    let place = || format!("--file {}", path.display());
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    match options.open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !read_only => {
            let file = options.create_new(true).open(path).with_context(place)?;
            *made = Some(Made(path));
            Ok(file)
        }
        opened => opened.with_context(place),
    }
}

/// Gives the file the size asked for and reserves its space: a store into a mapped file without
/// space on its medium ends the process.
fn with_room(path: &Path, file: &File, size: Option<Bytes>, read_only: bool) -> Result<()> {
    let place = || format!("--file {}", path.display());
    let found = file.metadata().with_context(place)?;
    if !found.is_file() {
        bail!("{}: not a regular file", place());
    }
    let size = match (Bytes(found.len()), size) {
        (Bytes(0), None) => bail!("{} is empty: give --size", place()),
        (Bytes(0), Some(size)) => size,
        (found, Some(size)) if size != found => bail!(
            "{} has {} bytes and --size says {}: leave --size out, or choose another file",
            place(),
            found.0,
            size.0
        ),
        (found, _) => found,
    };
    if size.0 % SIZE_STEP_BYTES != 0 {
        bail!("{}: {} bytes, expected a multiple of {SIZE_STEP_BYTES}", place(), size.0);
    }
    if !read_only {
        let reserved = rustix::fs::fallocate(file, FallocateFlags::empty(), 0, size.0);
        reserved.with_context(|| format!("{}: reserving {size}", place()))?;
    }
    Ok(())
}

/// Stops the server at the first warning signal.
fn watch(mut warnings: Warnings, stop: Arc<Stop>) -> Result<()> {
    let watcher = std::thread::Builder::new().name("signals".to_owned());
    watcher
        .spawn(move || {
            let warning = warnings.wait_for(State::Ending);
            if let Err(error) = stop.set() {
                tracing::error!("stop at {warning}: {error}; end the server with SIGKILL");
            }
        })
        .context("thread for signals")?;
    Ok(())
}

fn banner(
    system: &System,
    disk: &dyn Disk,
    args: &ServeArgs,
    listeners: &[Listener],
    mount: Option<&Mount>,
) -> String {
    let link = match &system.link {
        Some(link) => format!("behind {}", link.name),
        None => "without a link".to_owned(),
    };
    let mut text = format!(
        "perdura {} block device, {}{}\nmodelled: {} ({}), {link}; bytes are in {}, times are \
         computed and waited for",
        env!("CARGO_PKG_VERSION"),
        Bytes(disk.capacity_bytes()),
        if args.read_only { ", read-only" } else { "" },
        system.name,
        system.about,
        args.file.as_ref().map_or("private memory".to_owned(), |path| path.display().to_string()),
    );
    for address in listeners.iter().filter_map(Listener::address) {
        text += &format!("\nnbd: {}", uri(&address, &args.name));
    }
    if let Some(mount) = mount {
        let cached = if args.fuse_cached { "through the page cache" } else { "direct" };
        text += &format!("\nfuse: {} ({cached})", mount.file().display());
    }
    text + "\nserving; the bytes end with the server unless --file keeps them"
}

/// The address as a URI that NBD clients accept.
fn uri(address: &Address, name: &str) -> String {
    match address {
        Address::Unix(path) => format!("nbd+unix:///{name}?socket={}", path.display()),
        Address::Tcp(address) => format!("nbd://{address}/{name}"),
    }
}

fn account(what: &str, report: &Report) -> String {
    let Report { connections, turned_away, violations, tally } = report;
    format!(
        "{what}: {connections} connections ({turned_away} refused, {violations} closed for \
         breaking the protocol), {} requests, {} read, {} written, {} refused, {} failed; {}",
        tally.requests,
        Bytes(tally.read_bytes),
        Bytes(tally.written_bytes),
        tally.refused,
        tally.failed,
        lateness(&tally.timing_error),
    )
}

/// The energy that the modelled medium would have drawn, in words.
fn drawn(energy: &EnergyUse) -> String {
    format!(
        "modelled energy of the medium: {} until the last request was done, {} until the end",
        energy.execution, energy.equal_time
    )
}

/// Modelled against measured time of the requests, in words.
fn lateness(timing_error: &TimingError) -> String {
    let Some(error) = timing_error.error() else { return "no time was modelled".to_owned() };
    let mean = |ps: u64| format_duration(Duration::from_nanos(ps / timing_error.requests / 1000));
    format!(
        "modelled {} a request, measured {} later ({:+.1} %), at worst {} later",
        mean(timing_error.modelled_ps),
        mean(timing_error.late_ps),
        error * 100.0,
        format_duration(Duration::from_nanos(timing_error.late_max_ps / 1000)),
    )
}

const SIZE_STEP_BYTES: u64 = 4096;

/// Longest time for which a connection may poll; more only wastes a processor.
const SPIN_MAX: Duration = Duration::from_millis(100);
