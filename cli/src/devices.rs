//! `serve --device`: the devices on which values lie that are not in memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use perdura_media::drives::Roots;
use perdura_media::meters::Meters;
use perdura_media::{Bytes, Clock};
use perdura_slots::Heap;
use perdura_store::{FAR_ROOT_NAME, OpenError, Unreadable};
use perdura_tier::devices::{Devices, Named, Policy, Primaries, Watts};
use perdura_tier::drives::{DriveKeeper, Keeper, Lookup, Sleep};

use crate::serve_args::ServeArgs;

/// Opens the devices that were named; `None` if none was.
pub fn open(args: &ServeArgs, heap: &Heap, clock: &Arc<dyn Clock>) -> Result<Option<Arc<Devices>>> {
    if args.device.is_empty() {
        // Asked here, and not left to the store, so that the holder is let go.
        return match Unreadable::catch(|| heap.root(FAR_ROOT_NAME))? {
            Some(_) => Err(OpenError::NeedsDevices.into()),
            None => Ok(None),
        };
    }
    let named = args.device.iter().map(|text| named(text)).collect::<Result<Vec<_>>>()?;
    let (clock, policy) = (Arc::clone(clock), Policy::default());
    let devices = Devices::open(heap, named, clock, policy, args.allow_missing_devices);
    let devices = devices.context("--device")?;
    devices.set_primaries(primaries(args)?).context("--device-primaries")?;
    Ok(Some(devices))
}

/// How many devices are to be primaries, as it was given.
pub fn primaries(args: &ServeArgs) -> Result<Primaries> {
    let text = args.device_primaries.as_deref().unwrap_or("all");
    text.parse().context("--device-primaries")
}

/// The device that is named by a directory, or by a directory and the most that may lie there.
fn named(text: &str) -> Result<Named> {
    let (dir, limit_bytes) = match text.rsplit_once(',') {
        Some((dir, size)) => {
            let size: Bytes = size.parse().with_context(|| format!("--device {text}"))?;
            (dir, size.0)
        }
        None => (text, u64::MAX),
    };
    if dir.is_empty() {
        bail!("--device {text}: expected a directory, or DIR,SIZE");
    }
    let dir = Path::new(dir);
    std::fs::create_dir_all(dir).with_context(|| format!("--device {}", dir.display()))?;
    Named::in_directory(dir, limit_bytes).context("--device")
}

/// Starts looking at the drives behind the devices. Those of `never` are not told to sleep.
pub fn keep_drives(
    args: &ServeArgs,
    devices: &Arc<Devices>,
    clock: &Arc<dyn Clock>,
    never: &[PathBuf],
) -> Result<Arc<DriveKeeper>> {
    let after = args.device_sleep.filter(|seconds| *seconds > 0).map(Duration::from_secs);
    let never = never.iter().map(|dir| dir.display().to_string()).collect();
    let roots = Roots::default();
    let meters = Meters::find(&roots);
    let keeper =
        Keeper::new(Sleep { after, never }, meters, move |place| Lookup::real(&roots, place));
    let followed = Arc::downgrade(devices);
    let places = move || followed.upgrade().map(|devices| devices.places()).unwrap_or_default();
    let keeper = DriveKeeper::start(keeper, Arc::clone(clock), places);
    keeper.map(Arc::new).context("start a thread that looks at drives")
}

/// The power of a device, as it was given.
pub fn watts(args: &ServeArgs) -> Result<Option<Watts>> {
    let Some(text) = &args.device_watts else { return Ok(None) };
    let watts = |text: &str| text.parse::<f64>().ok().filter(|watts| (0.0..1e6).contains(watts));
    match text.split_once(',').map(|(idle, busy)| (watts(idle), watts(busy))) {
        Some((Some(idle), Some(busy))) if idle <= busy => Ok(Some(Watts { idle, busy })),
        _ => bail!("--device-watts {text}: expected two numbers of watts, such as 1.91,3.64"),
    }
}

/// The line of the banner about the devices.
pub fn describe(devices: &Devices) -> String {
    let status = devices.status();
    let of = |device: &perdura_tier::devices::DeviceStatus| {
        format!("{} ({} in use)", device.place, Bytes(device.used_bytes))
    };
    let all: Vec<_> = status.devices.iter().map(of).collect();
    format!("values beyond    {}", all.join(", "))
}
