//! `perdura serve`: open, promise, serve, flush.

use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use perdura_media::{Bytes, BytesPerSecond, Clock, RealClock, format_duration};
use perdura_region::directory::Directory;
use perdura_region::holder::Watch;
use perdura_region::region::Origin;
use perdura_region::{Compression, Region};
use perdura_server::{Durability, Listener, ServerConfig, StopFlag};
use perdura_slots::Heap;
use perdura_store::{Store, StoreOptions};
use perdura_warning::Warnings;

use crate::args::ServeArgs;
use crate::{background, holder, settings};
use perdura_terminal::LateBar;
use perdura_terminal::say;

/// After a warning, how long what is being executed may take to end by itself.
const TURN_PATIENCE: Duration = Duration::from_millis(100);

pub fn run(args: &ServeArgs, mut warnings: Warnings) -> Result<ExitCode> {
    holder::add_sources(&mut warnings, &args.warning)?;
    let program = (!args.no_holder).then(|| holder::program(&args.warning));
    let mut place = settings::place(&args.place, program)?;
    // Clients are answered while memory is still being loaded.
    place.config.defer_load = true;
    let mut server = settings::server(args, place.warning)?;
    if server.durability == Durability::None {
        place.config.checkpoint_every = None;
    }
    let fitting = perdura_server::clients_that_fit(server.clients_max);
    if fitting < server.clients_max {
        tracing::warn!(
            "--max-clients {} is lowered to {fitting}: the system allows no more descriptors (ulimit -Hn)",
            server.clients_max
        );
        server.clients_max = fitting;
    }
    // Before anything is opened: an address that cannot be had must change nothing.
    let listener = Listener::bind(&server)?;
    let clock: Arc<dyn Clock> = Arc::new(RealClock);
    let (grace, threads) = (place.warning, place.threads);
    let bar = LateBar::new("proving the flush rate");
    let directory = Directory::open(place, Arc::clone(&clock), &|done, of| bar.bytes(done, of));
    bar.finish();
    let directory = directory?;
    server.terms = Some(directory.terms);
    server.has_holder = directory.keeper.is_some();
    server.flush_threads = threads;
    let banner = banner(&directory, &server, grace);
    let Directory { region, keeper, link, .. } = directory;
    let heap = Heap::open(region).context("the heap")?;
    let options = StoreOptions { defer_rebuild: true, ..StoreOptions::default() };
    let store = Store::open(heap, Arc::clone(&clock), options);
    let store = Arc::new(store.context("the store")?);
    background::start(&store)?;
    let watch = keeper.map(|keeper| keeper.watch(Arc::clone(&clock))).transpose()?;
    say(banner);
    tell_service_manager("READY=1");

    let stop = Arc::new(StopFlag::new().context("stop flag")?);
    let (serving, ended) = channel();
    let warned = Arc::new(OnceLock::new());
    let watcher = Watcher { stop: Arc::clone(&stop), warned: Arc::clone(&warned), ended };
    watcher.start(warnings, Arc::downgrade(&store))?;
    let report = perdura_server::run(listener, &store, &server, &*clock, &stop)?;
    // The time runs from the warning, also while a long command was still being carried out.
    let began = warned.get().copied().unwrap_or_else(Instant::now);
    drop(serving);
    tell_service_manager("STOPPING=1");
    tracing::info!(commands = report.commands, "intake stopped; flushing");
    let code = finish(store.region(), watch, threads, grace, began)?;
    if let Some(link) = link.filter(|_| code == ExitCode::SUCCESS) {
        link.goodbye().context("everything is on the SSD, but the old holder did not go")?;
    }
    Ok(code)
}

/// Flushes within the grace, or says what is at risk.
fn finish(
    region: &Region,
    watch: Option<Watch>,
    threads: usize,
    grace: Duration,
    began: Instant,
) -> Result<ExitCode> {
    let at_risk = Bytes(region.used_bytes());
    match region.close(threads) {
        Ok(report) => {
            let took = began.elapsed();
            if let Some(watch) = watch {
                watch.goodbye().context("everything is on the SSD, but the holder did not go")?;
            }
            let late = took > grace;
            say(account(region));
            say(format_args!(
                "flushed {} in {}{}",
                Bytes(report.dirty_bytes),
                format_duration(took),
                if late { ": later than promised, but safe" } else { "" }
            ));
            Ok(if late { ExitCode::from(3) } else { ExitCode::SUCCESS })
        }
        Err(error) => {
            eprintln!("perdura: the flush failed: {error}");
            eprintln!(
                "perdura: {at_risk} at risk; the SSD holds the last checkpoint{}",
                if watch.is_some() {
                    ", the holder still has the memory: repair the device and run `perdura flush`"
                } else {
                    ", and no holder keeps the memory"
                }
            );
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Where this run's bytes on the SSD came from, and whether writers had to wait.
fn account(region: &Region) -> String {
    let stats = region.stats();
    let time = |ns| format_duration(Duration::from_nanos(ns));
    let compressed = match region.compression() {
        Compression::Off => String::new(),
        Compression::Lz4 => format!(
            "compressed {} to {} in {} of processor time\n",
            Bytes(stats.compression_in_bytes),
            Bytes(stats.compression_out_bytes),
            time(stats.compression_cpu_ns),
        ),
    };
    let ahead = match stats.written_ahead_bytes {
        0 => String::new(),
        bytes => format!("wrote {} of zeros ahead of the log\n", Bytes(bytes)),
    };
    format!(
        "wrote {} to the SSD: {} cleaned, {} for {} checkpoints and {} group commits, {} captured, {} compacted\n\
         {ahead}{compressed}{} stalls, {} together, {} the longest; at most {} dirty",
        Bytes(stats.device_bytes),
        Bytes(stats.cleaned_bytes),
        Bytes(stats.drained_bytes),
        stats.checkpoints,
        stats.group_commits,
        Bytes(stats.captured_bytes),
        Bytes(stats.compacted_bytes),
        stats.stalls,
        time(stats.stall_ns),
        time(stats.stall_ns_max),
        Bytes(region.used_bytes_max()),
    )
}

fn banner(directory: &Directory, server: &ServerConfig, grace: Duration) -> String {
    let (region, promise) = (&directory.region, &directory.promise);
    let origin = match region.origin() {
        Origin::Created => "new image".to_owned(),
        Origin::Attached => "memory kept by the holder; nothing was read".to_owned(),
        Origin::Recovered { was_final: true, .. } => "loaded after a complete flush".to_owned(),
        Origin::Recovered { tail_frames, .. } => format!(
            "loaded from the last checkpoint{} (the last run did not end with a flush)",
            if tail_frames > 0 { " and later group commits" } else { "" }
        ),
    };
    let origin = match region.origin() {
        Origin::Recovered { flawed_commit_at: Some(at), .. } => format!(
            "{origin}; one of the two copies of its newest commit, at offset {at}, was torn or is damaged"
        ),
        _ => origin,
    };
    let covered = match server.durability {
        Durability::Fsync => "every acknowledged write is on the SSD before its reply",
        Durability::Warned | Durability::None => "every acknowledged write, if the warning comes",
    };
    let unwarned = match server.durability {
        Durability::Fsync => "covered",
        Durability::Warned => "back to the last checkpoint",
        Durability::None => "back to the last complete flush or space-making checkpoint",
    };
    let held = if directory.keeper.is_some() {
        "covered: a holder keeps the memory"
    } else {
        "NOT covered: started without a holder"
    };
    let addresses: Vec<_> = server.bind.iter().map(ToString::to_string).collect();
    format!(
        "perdura {version}: {memory} of durable memory on {addresses}\n\
         image            {origin}; {device}\n\
         memory           {locked}\n\
         tracking         {tracking}\n\
         compression      {compression}\n\
         promise          at most {budget} dirty{cap}, flushed in {time} (warning {grace})\n\
         proven rate      {rate} (slowest part of {proof} written in the flush's own layout)\n\
         covered          {covered}\n\
         process crash    {held}\n\
         unwarned loss    {unwarned}\n\
         not covered      loss of the SSD itself; a machine that dies within the warning",
        version = env!("CARGO_PKG_VERSION"),
        memory = Bytes(region.len_bytes()),
        addresses = addresses.join(", "),
        device = region.describe_device(),
        locked = region.describe_memory(),
        tracking = region.describe_tracking(),
        compression = region.compression().name(),
        budget = Bytes(promise.budget_bytes),
        cap = if promise.covers_whole_region { " (all of the memory)" } else { "" },
        time = format_duration(promise.flush_time),
        grace = format_duration(grace),
        rate = BytesPerSecond(directory.rate.rate_bytes_per_s),
        proof = Bytes(directory.rate.bytes),
    )
}

/// What the thread that waits for the warning needs.
struct Watcher {
    stop: Arc<StopFlag>,
    warned: Arc<OnceLock<Instant>>,
    /// Closed when serving has ended.
    ended: Receiver<()>,
}

impl Watcher {
    /// A thread of its own: it shares nothing with writers, so that a stalled writer cannot delay a
    /// warning. One that is still waiting for budget a moment later is refused: it has no place in
    /// the promised time.
    fn start(self, mut warnings: Warnings, store: Weak<Store>) -> Result<()> {
        std::thread::Builder::new()
            .name("perdura-warning".into())
            .spawn(move || {
                let warning = warnings.wait();
                self.warned.get_or_init(Instant::now);
                self.stop.trigger();
                tracing::info!(%warning, "warned");
                if self.ended.recv_timeout(TURN_PATIENCE) == Err(RecvTimeoutError::Timeout)
                    && let Some(store) = store.upgrade()
                {
                    store.region().refuse_writers();
                }
            })
            .context("start a thread")?;
        Ok(())
    }
}

/// Tells systemd, if it started us; its absence is no error.
fn tell_service_manager(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let sent = std::os::unix::net::UnixDatagram::unbound()
        .and_then(|socket| socket.send_to(state.as_bytes(), path));
    if let Err(error) = sent {
        tracing::warn!(%error, "the service manager could not be told {state}");
    }
}
