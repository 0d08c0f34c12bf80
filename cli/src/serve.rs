//! `perdura serve`: open, promise, serve, flush.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use perdura_guard::{Keeper, Watch, Writers};
use perdura_media::{Bytes, Clock, RealClock, format_duration};
use perdura_region::Region;
use perdura_region::directory::{self, Claim, Directory, DirectoryError};
use perdura_region::holder::{HeldBy, Holders};
use perdura_server::{Durability, Power, ServerConfig, StopFlag};
use perdura_slots::Heap;
use perdura_store::{Store, StoreOptions};
use perdura_tier::devices::Mover;
use perdura_warning::{Demand, Reading, Warnings};

use crate::listen::listen;
use crate::seccomp::Filter;
use crate::serve_args::ServeArgs;
use crate::{
    background, banner, battery, devices, first_start, holder, privacy, redis_conf, seccomp,
    service_manager, settings, ship, surroundings, watch,
};
use perdura_terminal::LateBar;
use perdura_terminal::say;

/// Time that the command under way has to end by itself after a warning.
const TURN_PATIENCE: Duration = Duration::from_millis(100);

pub fn run(args: &ServeArgs, mut warnings: Warnings) -> Result<ExitCode> {
    privacy::begin();
    let starts_programs = starts_programs(args);
    let filter = Filter::of_server(&args.seccomp, starts_programs.is_some())?;
    holder::add_sources(&mut warnings, &args.warning)?;
    let guard = args.guard.as_ref().map(|socket| holder::guard(socket, &mut warnings));
    let (held_by, ear) = match guard.transpose()? {
        Some((held_by, ear)) => (Some(held_by), Some(ear)),
        None if args.no_holder => (None, None),
        None => {
            let format = &args.log.log_format;
            let program = holder::program(&args.warning, format, filter.state());
            (Some(HeldBy::Holder(program)), None)
        }
    };
    let mut place = settings::place(&args.place, held_by)?;
    if let Some(size) = &args.maxmemory {
        place.config.region_bytes = settings::redis_size(size)?;
    }
    settings::check_memory(&place.config)?;
    // Clients are answered while memory is still being loaded.
    place.config.defer_load = true;
    let mut server = settings::server(args, place.warning)?;
    server.seccomp = filter.state().word();
    if place.config.key.is_some() {
        ensure!(
            args.device.is_empty(),
            "--device with a key: values on devices are not encrypted yet; leave one of both out"
        );
        // A copy for a client that asks for everything must not lie on a drive in the clear.
        server.spill_dir = Some(PathBuf::from("/dev/shm"));
    }
    server.device_watts = devices::watts(args)?;
    devices::primaries(args)?;
    let response = settings::response(args, place.warning)?;
    let shipping = ship::Shipping::new(args, &place.dir, place.config.key.clone())?;
    if server.durability == Durability::None {
        place.config.checkpoint_every = None;
    }
    let clients_wanted = server.clients_max;
    server.clients_max = perdura_server::clients_that_fit(clients_wanted);
    // Before anything is opened, because an address that is taken must change nothing.
    let listener = listen(&server)?;
    server.watcher = watch::watcher(&args.watch, args.guard.clone())?;
    let clock: Arc<dyn Clock> = Arc::new(RealClock);
    let (grace, threads) = (place.warning, place.threads);
    let memory_bytes = place.config.region_bytes;
    let mut own_dirs = vec![place.dir.clone()];
    own_dirs.extend(args.place.memory_dir.clone());
    let announcement = first_start::prepare(&mut place, args.place.log.is_some(), "--memory")?;
    let dir = place.dir.clone();
    let name_free = |error: DirectoryError| first_start::name_free(error.into(), &dir);
    let claim = Claim::new(place, Arc::clone(&clock)).map_err(name_free)?;
    if claim.makes_image() {
        surroundings::check_memory_fits(memory_bytes)?;
    }
    // Nothing is announced in a directory that another server has.
    if let Some(line) = announcement.filter(|_| claim.makes_image()) {
        say(line);
    }
    let bar = LateBar::new("proving the flush rate");
    let directory = claim.open(&|done, of| bar.bytes(done, of));
    bar.finish();
    let directory = directory.map_err(name_free)?;
    server.terms = Some(directory.terms);
    server.has_holder = directory.supervisor.is_some();
    server.has_guard = args.guard.is_some();
    server.flush_threads = threads;
    let power = Arc::new(Power::default());
    server.power = Some(Arc::clone(&power));
    let power_of_backup = Arc::clone(&power);
    let banner = banner::banner(&directory, &server, grace, args.guard.as_deref());
    let Directory { region, terms, promise, mut supervisor, link, .. } = directory;
    // A holder that dies is to be replaced also when this process can start nothing any more.
    if filter.state() == seccomp::State::On
        && let Some(supervisor) = &mut supervisor
    {
        supervisor.leave_starts_to(holder::starter).context("who starts holders")?;
    }
    let (orders, voice) = holder::listen(supervisor.as_mut(), ear);
    if let Some((file, _)) = battery::open(&args.place.battery)? {
        battery::follow(file, grace, Arc::clone(&orders), Arc::clone(&power))?;
    }
    let heap = Heap::open(region).context("the heap")?;
    let options = StoreOptions { defer_rebuild: true, ..StoreOptions::default() };
    let devices = match devices::open(args, &heap, &clock) {
        Ok(devices) => devices,
        Err(error) => {
            // Nothing has changed, so no process is to keep the memory.
            let mut holders = Holders::watch(supervisor, link)?;
            heap.region().close(threads).context("close the image again")?;
            holders.let_go().context("the holder did not go")?;
            directory::end(heap.region(), &dir);
            return Err(error);
        }
    };
    let store = match &devices {
        Some(far) => Store::open_with_far(heap, Arc::clone(&clock), options, far.clone()),
        None => Store::open(heap, Arc::clone(&clock), options),
    };
    let store = Arc::new(store.context("the store")?);
    let holders = Holders::watch(supervisor, link)?;
    say(banner);
    if let Some(devices) = devices {
        say(devices::describe(&devices));
        let mover = Mover::new(Arc::clone(&devices));
        mover.start(Arc::downgrade(&store)).context("start a thread")?;
        server.drives = Some(devices::keep_drives(args, &devices, &clock, &own_dirs)?);
        server.devices = Some(devices);
    }
    remark(args, clients_wanted, &server);
    if let Some(option) = starts_programs {
        tracing::info!(
            "{option} starts programs, so the filter of system calls refuses only what no program \
             needs"
        );
    }
    let secrets = [
        ("the hashes of passwords", server.acl_file.as_deref()),
        ("the password", args.password_file.as_deref()),
        ("the key of the certificate", args.tls.tls_key_file.as_deref()),
    ];
    privacy::remark(&dir, [args.config.as_deref(), args.redis_conf.as_deref()], &secrets);
    background::start(&store, server.has_holder)?;
    let shipping = shipping.map(|shipping| shipping.start(&store, &clock, power_of_backup));
    let shipping = shipping.transpose()?;
    server.backup = shipping.as_ref().map(ship::Running::figures);
    // Everything is open. Loops and a few threads start later, and have the filter from the start.
    filter.install()?;
    service_manager::tell("READY=1");

    let stop = Arc::new(StopFlag::new().context("stop flag")?);
    let (serving, ended) = channel();
    let warned = Arc::new(OnceLock::new());
    let stopper = Stopper {
        stop: Arc::clone(&stop),
        warned: Arc::clone(&warned),
        ended,
        store: Arc::downgrade(&store),
    };
    let (clock_of_watch, writers) = (Arc::clone(&clock), Arc::new(Clients(power)));
    let watch = Watch {
        warnings,
        response,
        clock: clock_of_watch,
        writers,
        flush_threads: threads,
        orders,
        voice,
    };
    let kept = Arc::downgrade(&store);
    watch
        .start(
            Keeper::new(terms, promise.budget_bytes),
            move |act| kept.upgrade().map(|store| act(store.region())),
            move |warning| stopper.stop(warning),
        )
        .context("start a thread")?;
    let report = perdura_server::run(listener, &store, &server, &*clock, &stop)?;
    // The time runs from the warning, also while a long command is still under way.
    let began = warned.get().copied().unwrap_or_else(Instant::now);
    drop(serving);
    service_manager::tell_stopping(grace);
    tracing::info!(commands = report.commands, "intake stopped; flushing");
    store.save_counts();
    let finished = finish(store.region(), &dir, holders, threads, grace, began);
    // After the flush, which must not wait for a drive.
    if let Some(drives) = &server.drives {
        drives.end();
    }
    if let Some(shipping) = shipping {
        shipping.finish();
    }
    finished
}

/// The option because of which programs are started while the server runs, if there is one.
fn starts_programs(args: &ServeArgs) -> Option<&'static str> {
    if holder::start_programs(&args.warning) {
        return Some("--warning command:…");
    }
    let to_a_host = args.ship.ship.as_ref().is_some_and(|url| url.starts_with("ssh://"));
    to_a_host.then_some("--ship ssh://…")
}

/// Logs what the given options cannot do or give away. It comes after the banner, which is read
/// first.
fn remark(args: &ServeArgs, clients_wanted: usize, server: &ServerConfig) {
    let clients_max = server.clients_max;
    if clients_max < clients_wanted {
        tracing::warn!(
            "--max-clients {clients_wanted} is lowered to {clients_max}: the system allows no more \
             descriptors (ulimit -Hn)"
        );
    }
    let without_meaning = args.redis_conf.as_deref().map(redis_conf::without_meaning);
    for (why, directives) in without_meaning.and_then(Result::ok).into_iter().flatten() {
        tracing::info!("{} changed nothing: {why}", directives.join(", "));
    }
    if std::env::args_os().any(|word| word.to_string_lossy().starts_with("--requirepass"))
        && args.requirepass.is_some()
    {
        tracing::warn!(
            "--requirepass shows the password to every user of the machine (ps); --password-file \
             FILE or PERDURA_PASSWORD do not"
        );
    }
}

/// Flushes within the grace, or says what is at risk.
///
/// The embedded library closes otherwise: there a call of `close` begins the time, several threads
/// and forked children may call it, and a call whose flush failed may be repeated.
fn finish(
    region: &Region,
    dir: &Path,
    mut holders: Holders,
    threads: usize,
    grace: Duration,
    began: Instant,
) -> Result<ExitCode> {
    let at_risk = Bytes(region.used_bytes());
    match region.close(threads) {
        Ok(report) => {
            let took = began.elapsed();
            let late = took > grace;
            say(banner::account(region));
            say(format_args!(
                "flushed {} in {}{}",
                Bytes(report.dirty_bytes),
                format_duration(took),
                if late { ": later than promised, but safe" } else { "" }
            ));
            holders.let_go().context("everything is on the SSD, but the holder did not go")?;
            directory::end(region, dir);
            Ok(if late { ExitCode::from(3) } else { ExitCode::SUCCESS })
        }
        Err(error) => {
            eprintln!("perdura: the flush failed: {error}");
            eprintln!(
                "perdura: {at_risk} at risk; the SSD holds the last checkpoint{}",
                if holders.keep_the_memory() {
                    ", the memory is still held: repair the device and run `perdura flush`"
                } else {
                    ", and no holder keeps the memory"
                }
            );
            Ok(ExitCode::FAILURE)
        }
    }
}

/// The server's writers, as the keeper of its region sees them.
struct Clients(Arc<Power>);

impl Writers for Clients {
    fn told(&self, reading: &Reading, demand: Demand) {
        self.0.tell(reading, demand);
    }

    fn met(&self, demand: Demand) {
        self.0.met(demand);
    }

    fn have_ended(&self) -> bool {
        self.0.have_writes_ended()
    }
}

/// Stops the server at the end of its time.
struct Stopper {
    stop: Arc<StopFlag>,
    /// Set to the time of the warning.
    warned: Arc<OnceLock<Instant>>,
    /// Disconnected when serving has ended.
    ended: Receiver<()>,
    store: Weak<Store>,
}

impl Stopper {
    /// A writer that still waits for budget a moment after the warning is refused, because the
    /// promised time does not include its wait.
    fn stop(self, warning: &Reading) {
        self.warned.get_or_init(Instant::now);
        self.stop.trigger();
        tracing::info!(%warning, "stopping and flushing");
        if self.ended.recv_timeout(TURN_PATIENCE) == Err(RecvTimeoutError::Timeout)
            && let Some(store) = self.store.upgrade()
        {
            store.region().refuse_writers();
        }
    }
}
