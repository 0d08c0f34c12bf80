//! The devices with values: INFO's `# Devices`, and PERDURA DEVICE.

use std::fmt::Write;
use std::path::Path;

use perdura_tier::devices::{
    DeviceState, DeviceStatus, Devices, DevicesStatus, Named, Primaries, RolesStatus,
};

use super::call::Outcome;
use super::context::{Clients, Context, Server};
use super::error::CommandError;
use super::options::is;
use crate::number::parse_i64;
use crate::resp::Args;
use crate::session::Peer;

pub(super) fn devices_section(
    server: &Server<'_>,
    _: Clients,
    out: &mut String,
) -> std::fmt::Result {
    let Some(devices) = &server.config.devices else { return write!(out, "devices:0\r\n") };
    let (status, far) = (devices.status(), server.store.far_stats());
    let hits = server.shared.stats().keyspace_hits.get();
    let drives = server.config.drives.as_ref().map(|keeper| keeper.status());
    write!(
        out,
        "devices:{}\r\nfar_reads:{}\r\nfar_reads_kept:{}\r\nfar_reads_per_keyspace_hit:{:.4}\r\n\
         memory_hit_rate:{:.4}\r\nfar_uses_to_return:{}\r\nfar_moved_values:{}\r\n\
         far_moved_bytes:{}\r\nfar_moved_on_values:{}\r\nfar_emptied_segments:{}\r\nfar_error:{}\r\n{}",
        status.devices.len(),
        far.reads,
        far.kept,
        far.reads as f64 / hits.max(1) as f64,
        memory_hit_rate(hits, far.reads),
        status.uses_to_return,
        status.moved_values,
        status.moved_bytes,
        status.moved_on_values,
        status.emptied_segments,
        one_line(status.last_error.as_deref().unwrap_or_default()),
        roles(&status),
    )?;
    for device in &status.devices {
        let (fields, share) = (fields(device), share_of_hits(hits, device.reads));
        let modelled = modelled(server, device);
        write!(out, "device{}:{fields},share_of_hits={share:.4}", device.number)?;
        if let Some((joules, watts)) = modelled {
            write!(out, ",modelled_joules={joules:.1},modelled_watts={watts:.3}")?;
        }
        if let Some(drives) = &drives {
            let modelled = modelled.map(|(_, watts)| watts);
            out.push_str(&super::drives::of_device(drives, device, modelled));
        }
        out.push_str("\r\n");
    }
    drives.map_or(Ok(()), |drives| super::drives::lines(&drives, server.now_ns, out))
}

/// The share of keys found that memory answered. Reads of devices are also those of commands that
/// find no key for INFO, such as APPEND's, so there may be more of them than keys found.
fn memory_hit_rate(hits: u64, far_reads: u64) -> f64 {
    if hits == 0 { 0.0 } else { hits.saturating_sub(far_reads) as f64 / hits as f64 }
}

/// The share of keys found that one device answered.
fn share_of_hits(hits: u64, reads: u64) -> f64 {
    if hits == 0 { 0.0 } else { reads.min(hits) as f64 / hits as f64 }
}

/// How many devices are primaries, and what trials have found.
fn roles(status: &DevicesStatus) -> String {
    let primaries = status.devices.iter().filter(|one| !one.is_idle).count();
    let RolesStatus { wish, trials, trials_kept, activations, last_trial } = &status.roles;
    let last = last_trial.map_or(String::new(), |last| {
        let tried = if last.is_up { "more" } else { "fewer" };
        let end = if last.stays { "kept" } else { "undone" };
        format!("one {tried},gain={:.4},{end}", last.gain)
    });
    format!(
        "device_primaries:{primaries}\r\ndevice_primaries_asked:{wish}\r\n\
         device_trials:{trials}\r\ndevice_trials_kept:{trials_kept}\r\n\
         device_activations:{activations}\r\ndevice_last_trial:{last}\r\n"
    )
}

/// What is told of one device, in the form of INFO's other lines with several values.
fn fields(device: &DeviceStatus) -> String {
    let state = match &device.state {
        DeviceState::Online if device.is_full => "full",
        DeviceState::Online => "online",
        DeviceState::Leaving => "leaving",
        DeviceState::Failed(_) => "failed",
    };
    let why = match &device.state {
        DeviceState::Failed(why) => format!(",failure={}", one_line(why).replace(',', ";")),
        _ => String::new(),
    };
    let role = if device.is_idle { "idle" } else { "primary" };
    format!(
        "state={state},role={role},path={},live_bytes={},used_bytes={},suspect_segments={},\
         reads={},failed_reads={},read_bytes={},writes={},written_bytes={},busy_seconds={:.3},\
         quiet_seconds={:.3},wakeups={}{why}",
        device.place.replace(',', ";"),
        device.live_bytes,
        device.used_bytes,
        device.suspect_segments,
        device.reads,
        device.failed_reads,
        device.read_bytes,
        device.writes,
        device.written_bytes,
        device.busy_ns as f64 / 1e9,
        device.quiet_ns as f64 / 1e9,
        device.wakeups,
    )
}

/// PERDURA DEVICE LIST | ADD directory [bytes] | REMOVE number [FORCE] | PRIMARIES [all|auto|n]. A
/// device is added by a client of this machine only: a directory's name is about this machine's
/// files. FORCE gives a device up that has failed or is missing, and the values there with it.
pub(super) fn device(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let devices = ctx.server.config.devices.clone().ok_or(CommandError::NoDevices)?;
    match args.len() {
        3 if is(args.get(2), "LIST") => {
            let status = devices.status();
            ctx.reply.array(status.devices.len());
            for device in &status.devices {
                let line = format!("device{}:{}", device.number, fields(device));
                ctx.reply.bulk(line.as_bytes());
            }
            Ok(())
        }
        4 | 5 if is(args.get(2), "ADD") => {
            let number = add(ctx, &devices, args)?;
            ctx.reply.len(u64::from(number));
            Ok(())
        }
        3 if is(args.get(2), "PRIMARIES") => {
            ctx.reply.bulk(devices.roles().wish.to_string().as_bytes());
            Ok(())
        }
        4 if is(args.get(2), "PRIMARIES") => {
            let text = String::from_utf8_lossy(args.get(3));
            let wish: Result<Primaries, _> = text.parse();
            let wish = wish.map_err(|error| CommandError::Device(one_line(&error.to_string())))?;
            let set = devices.set_primaries(wish);
            set.map_err(|error| CommandError::Device(error.to_string()))?;
            ctx.reply.ok();
            Ok(())
        }
        4 | 5 if is(args.get(2), "REMOVE") => {
            if args.len() == 5 && !is(args.get(4), "FORCE") {
                return Err(CommandError::Syntax);
            }
            let number = parse_i64(args.get(3)).and_then(|number| u16::try_from(number).ok());
            let number = number.ok_or(CommandError::NotInteger)?;
            let removed = match args.len() {
                4 => devices.remove(number),
                _ => devices.give_up(ctx.server.store, number),
            };
            removed.map_err(|error| CommandError::Device(error.to_string()))?;
            ctx.reply.ok();
            Ok(())
        }
        _ => Err(CommandError::Syntax),
    }
}

fn add(ctx: &Context<'_, '_, '_>, devices: &Devices, args: Args<'_>) -> Result<u16, CommandError> {
    let is_here = match &ctx.session.card.peer {
        Peer::Unix => true,
        Peer::Tcp { addr, .. } => addr.ip().to_canonical().is_loopback(),
    };
    if !is_here {
        return Err(CommandError::Device("ADD is for clients on the server's machine".into()));
    }
    let limit_bytes = match args.len() {
        4 => u64::MAX,
        _ => {
            let bytes = parse_i64(args.get(4)).and_then(|bytes| u64::try_from(bytes).ok());
            bytes.ok_or(CommandError::NotInteger)?
        }
    };
    let dir = std::str::from_utf8(args.get(3)).map_err(|_| CommandError::Syntax)?;
    if dir.is_empty() {
        return Err(CommandError::Syntax);
    }
    devices.let_go_failed(dir);
    let added = Named::in_directory(Path::new(dir), limit_bytes);
    let added = added.and_then(|named| devices.add(ctx.server.store, named));
    added.map_err(|error| CommandError::Device(error.to_string()))
}

/// The energy and the mean power of a device as they are modelled, if the power of devices was
/// given.
fn modelled(server: &Server<'_>, device: &DeviceStatus) -> Option<(f64, f64)> {
    let joules = server.config.device_watts?.joules(device.busy_ns, device.open_ns);
    Some((joules, joules / (device.open_ns.max(1) as f64 / 1e9)))
}

fn one_line(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_divided_between_memory_and_devices() {
        assert_eq!((memory_hit_rate(0, 0), share_of_hits(0, 0)), (0.0, 0.0));
        assert_eq!((memory_hit_rate(100, 25), share_of_hits(100, 25)), (0.75, 0.25));
        assert_eq!((memory_hit_rate(100, 125), share_of_hits(100, 125)), (0.0, 1.0));
    }
}
