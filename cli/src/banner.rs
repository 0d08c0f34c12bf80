//! The lines that `serve` prints: first what it serves and promises, at the end what it wrote.

use std::path::Path;
use std::time::Duration;

use perdura_media::{Bytes, BytesPerSecond, format_duration};
use perdura_region::directory::Directory;
use perdura_region::{Compression, Origin, Region};
use perdura_server::{Durability, ServerConfig};

/// The lines that a server prints first.
pub fn banner(
    directory: &Directory,
    server: &ServerConfig,
    grace: Duration,
    guard: Option<&Path>,
) -> String {
    let region = &directory.region;
    let unwarned = match server.durability {
        Durability::Fsync => "covered: every acknowledged write is on the SSD before its reply",
        Durability::Warned => "back to the last checkpoint",
        Durability::None => "back to the last complete flush or space-making checkpoint",
    };
    let held = match (&directory.supervisor, guard) {
        (Some(_), Some(guard)) => {
            format!("covered: the guard at {} keeps the memory", guard.display())
        }
        (Some(_), None) => "covered: a holder process keeps the memory".into(),
        (None, _) => "NOT covered: started without a holder".into(),
    };
    format!(
        "perdura {version}: {memory} of durable memory on {addresses}\n\
         image            {origin}; {device}\n\
         memory           {locked}\n\
         tracking         {tracking}\n\
         compression      {compression}\n\
         encryption       {encryption}\n\
         promise          {promise}\n\
         proven rate      {rate} (slowest part of {proof} written in the flush's own layout)\n\
         warned loss      covered: every acknowledged write\n\
         process crash    {held}\n\
         unwarned loss    {unwarned}\n\
         not covered      loss of the SSD itself; a machine that dies within the warning",
        version = env!("CARGO_PKG_VERSION"),
        memory = Bytes(region.len_bytes()),
        addresses = addresses(server),
        origin = origin(directory),
        device = region.describe_device(),
        locked = region.describe_memory(),
        tracking = region.describe_tracking(),
        compression = region.compression().name(),
        encryption = region.encryption(),
        promise = promise(directory, grace),
        rate = BytesPerSecond(directory.rate.rate_bytes_per_s),
        proof = Bytes(directory.rate.bytes),
    )
}

fn addresses(server: &ServerConfig) -> String {
    let tcp = server.bind.iter().chain(&server.bind_if_there).map(ToString::to_string);
    let unix = server.unix_socket.iter().map(|path| path.display().to_string());
    let sealed = server.tls_bind.iter().chain(&server.tls_bind_if_there);
    let sealed = sealed.map(|address| format!("{address} (TLS)"));
    tcp.chain(sealed).chain(unix).collect::<Vec<_>>().join(", ")
}

/// The promise in words: the budget, the time of the writing, the time kept back for all else.
fn promise(directory: &Directory, grace: Duration) -> String {
    let (made, reserve) = (&directory.promise, directory.terms.reserve);
    let limit = match (made.covers_whole_region, directory.is_short_of_room) {
        (true, _) => " (all of the memory)",
        (false, true) => " (no more room for the log on this disk)",
        (false, false) => "",
    };
    format!(
        "at most {} dirty{limit}, safe {} after a warning: {} of writing, {} kept back; the \
         warning is {}",
        Bytes(made.budget_bytes),
        format_duration(made.flush_time),
        format_duration(made.flush_time.saturating_sub(reserve)),
        format_duration(reserve),
        format_duration(grace),
    )
}

fn origin(directory: &Directory) -> String {
    let origin = directory.region.origin();
    let Origin::Recovered { was_final, tail_frames, flawed_commit_at, .. } = origin else {
        return match (origin, directory.was_in_files) {
            (Origin::Created, _) => "new".to_owned(),
            (_, true) => "memory kept in files; nothing was read".to_owned(),
            (_, false) => "memory kept by the holder; nothing was read".to_owned(),
        };
    };
    let from = match (was_final, tail_frames) {
        (true, _) => "loaded after a complete flush",
        (false, 0) => "loaded from the last checkpoint (the last run did not end with a flush)",
        (false, _) => {
            "loaded from the last checkpoint and later group commits (the last run did not end \
             with a flush)"
        }
    };
    match flawed_commit_at {
        None => from.to_owned(),
        Some(at) => format!(
            "{from}; one of the two copies of its newest commit, at offset {at}, was torn or is \
             damaged"
        ),
    }
}

/// The causes of the bytes that this run wrote to the SSD, and how long writers had to wait.
pub fn account(region: &Region) -> String {
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
    let prezeroed = match stats.prezeroed_bytes {
        0 => String::new(),
        bytes => format!("prezeroed {} of the log\n", Bytes(bytes)),
    };
    format!(
        "wrote {} to the SSD: {} cleaned, {} for {} checkpoints and {} group commits, {} copied by \
         writers for a checkpoint, {} compacted\n\
         {prezeroed}{compressed}writers waited {} times, {} together, {} the longest; at most {} \
         dirty",
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
