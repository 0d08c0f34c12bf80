//! `perdura check`: whether a heap is sound, and its repair.
//!
//! Exit codes: 0 if it is sound, 1 if it is damaged, 2 if it could not be checked, because it is
//! not there, is in use, or is neither a heap nor an image. An image is only read, and so is a heap
//! file without `--repair`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use perdura_heap::check::{self, CheckReport, RepairOptions, Repaired};
use perdura_heap::{HeapError, Memory};
use perdura_image::inspect::{Believe, image_bytes};
use perdura_media::FileDevice;
use perdura_media::file::{Direct, Engine, OpenMode};
use perdura_region::directory::{IMAGE_NAME, memory_files_of};
use perdura_region::{ImageError, OpenError};
use perdura_slots::check::{SlotsReport, is_slots_heap, region_bytes};
use serde_json::{Value, json};

use crate::args::CheckArgs;
use perdura_terminal::say;

const DAMAGED: u8 = 1;
const NOT_CHECKED: u8 = 2;

/// The result, for a heap file and for a directory alike.
struct Outcome {
    is_sound: bool,
    text: String,
    json: Value,
}

pub fn run(args: &CheckArgs) -> ExitCode {
    let outcome = if args.place.is_dir() { directory(args) } else { heap_file(args) };
    match outcome {
        Ok(outcome) => {
            match args.json {
                true => say(&outcome.json),
                false => say(&outcome.text),
            }
            if outcome.is_sound { ExitCode::SUCCESS } else { ExitCode::from(DAMAGED) }
        }
        Err(error) => {
            eprintln!(
                "perdura: {} was not checked: {}",
                args.place.display(),
                perdura_terminal::once(&error)
            );
            ExitCode::from(NOT_CHECKED)
        }
    }
}

fn heap_file(args: &CheckArgs) -> Result<Outcome> {
    if !args.repair {
        let report = check::heap_file(&args.place).map_err(name_a_heap)?;
        return Ok(Outcome {
            is_sound: report.is_sound(),
            text: report.to_string(),
            json: json!({ "heap": of_report(&report) }),
        });
    }
    let options = RepairOptions { reclaim_leaks: args.reclaim_leaks };
    let done = check::repair(&args.place, options).map_err(name_a_heap)?;
    Ok(repaired(&done))
}

/// Says of a file that is no heap what can be checked.
fn name_a_heap(error: HeapError) -> anyhow::Error {
    match error {
        HeapError::NotAHeap { found } => anyhow!(
            "it is not a Perdura heap: it begins with {found:#018x}, a heap with \"PERDDUAL\"; \
             name a heap file, or the directory that holds {IMAGE_NAME}"
        ),
        error => error.into(),
    }
}

fn repaired(done: &Repaired) -> Outcome {
    let Some(after) = &done.after else {
        return Outcome {
            is_sound: false,
            text: format!("{}\nnothing was changed: not all of it can be repaired", done.before),
            json: json!({ "before": of_report(&done.before), "repaired": false }),
        };
    };
    let reclaimed = done.reclaimed;
    let text = format!(
        "before: {}\nafter: {after}\n{} findings mended, {} leaks of {} bytes freed",
        done.before,
        done.before.damage.len(),
        reclaimed.objects,
        reclaimed.bytes
    );
    let json = json!({
        "before": of_report(&done.before),
        "heap": of_report(after),
        "repaired": true,
        "reclaimed_objects": reclaimed.objects,
        "reclaimed_bytes": reclaimed.bytes,
    });
    Outcome { is_sound: after.is_sound(), text, json }
}

fn directory(args: &CheckArgs) -> Result<Outcome> {
    let path = args.place.join(IMAGE_NAME);
    if args.repair {
        bail!("--repair mends heap files; an image repairs itself when a server opens it");
    }
    let device = open_image(&path)?;
    let key = args.key.key()?;
    let bytes = match image_bytes(&device, Believe::Committed, key.as_ref()) {
        Ok(bytes) => bytes,
        Err(OpenError::Image(ImageError::NotAnImage { found })) => bail!(
            "{} is not a Perdura image: it begins with {found:#018x}; name a heap file, or the \
             directory of a server or of a heap",
            path.display()
        ),
        Err(
            error @ OpenError::Image(
                ImageError::Encrypted { .. }
                | ImageError::NotEncrypted { .. }
                | ImageError::WrongKey,
            ),
        ) => bail!("{}: {error}", path.display()),
        Err(error @ OpenError::Image(_)) => {
            let text = format!("damage: image: {error}\ndamaged: the image cannot be read");
            let json = json!({ "image": { "sound": false, "error": error.to_string() } });
            return Ok(Outcome { is_sound: false, text, json });
        }
        Err(error) => return Err(error).context("the image"),
    };
    let mut image = format!("image: sound, {} bytes of region", bytes.len());
    let memory = memory_files_of(&args.place)?.map(|place| place.display().to_string());
    if let Some(place) = &memory {
        image += &format!("\nmemory: in files, in {place}: newer than the image, and not checked");
    }
    let of_image = json!({ "sound": true, "memory_in_files": memory });
    if is_slots_heap(&bytes) {
        let report = region_bytes(&bytes);
        return Ok(Outcome {
            is_sound: report.damage.is_empty(),
            text: format!("{image}\n{}", slots_text(&report)),
            json: json!({ "image": of_image, "store": of_slots(&report) }),
        });
    }
    let report = check::memory(Memory::copy_of_bytes(&bytes).map_err(HeapError::from)?);
    Ok(Outcome {
        is_sound: report.is_sound(),
        text: format!("{image}\n{report}"),
        json: json!({ "image": of_image, "heap": of_report(&report) }),
    })
}

fn open_image(path: &Path) -> Result<FileDevice> {
    let place = || path.display().to_string();
    if !path.try_exists().with_context(place)? {
        let dir = path.parent().unwrap_or(path).display();
        bail!(
            "no image in {dir} ({IMAGE_NAME}): name a heap file, or the directory of a server or \
             of a heap"
        );
    }
    let device = FileDevice::open(path, OpenMode::ReadOnly, Engine::Pwrite, Direct::Off)
        .with_context(place)?;
    if !device.try_lock_shared().with_context(place)? {
        bail!(
            "{} is in use: end the server first; if it died, `perdura flush` lets its memory \
             be written and let go (with --guard where a guard keeps it)",
            path.display()
        );
    }
    Ok(device)
}

fn slots_text(report: &SlotsReport) -> String {
    let mut text = format!(
        "heap of the store: {} lanes; spans of 8 KiB: {} of slots, {} of large objects, {} free; \
         {} operations to undo",
        report.lanes, report.small_spans, report.large_spans, report.free_spans, report.unfinished
    );
    for damage in &report.damage {
        text += &format!("\ndamage: {damage}");
    }
    text += match report.damage.is_empty() {
        true => "\nsound",
        false => "\ndamaged: take a copy of it from before the damage",
    };
    text
}

fn of_slots(report: &SlotsReport) -> Value {
    json!({
        "sound": report.damage.is_empty(),
        "lanes": report.lanes,
        "slot_spans": report.small_spans,
        "large_spans": report.large_spans,
        "free_spans": report.free_spans,
        "unfinished_operations": report.unfinished,
        "damage": report.damage.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

fn of_report(report: &CheckReport) -> Value {
    let damage = report.damage.iter().map(|damage| {
        json!({
            "what": damage.to_string(),
            "repairable": damage.is_repairable(),
            "repair": damage.remedy(),
        })
    });
    let classes = report.classes.iter().map(|class| {
        json!({
            "slot_bytes": class.slot_bytes,
            "runs": class.runs,
            "slots": class.slots,
            "used": class.used,
        })
    });
    let leaks = report.leaks.as_ref().map(|leaks| {
        let listed = leaks.listed.iter();
        let listed =
            listed.map(|leak| json!({ "offset": leak.object.get(), "bytes": leak.len_bytes }));
        json!({
            "objects": leaks.objects,
            "bytes": leaks.bytes,
            "listed": listed.collect::<Vec<_>>(),
        })
    });
    let roots = report
        .roots
        .iter()
        .map(|root| json!({ "name": root.name, "object": root.object.map(|object| object.get()) }));
    json!({
        "sound": report.is_sound(),
        "len_bytes": report.len_bytes,
        "objects": report.objects,
        "object_bytes": report.object_bytes,
        "large_objects": report.large_objects,
        "compartments": report.compartments,
        "spans": {
            "total": report.spans.total,
            "tables": report.spans.tables,
            "slots": report.spans.slots,
            "large": report.spans.large,
            "compartments": report.spans.compartments,
            "logs": report.spans.logs,
            "free": report.spans.free,
        },
        "classes": classes.collect::<Vec<_>>(),
        "roots": roots.collect::<Vec<_>>(),
        "leaks": leaks,
        "damage": damage.collect::<Vec<_>>(),
        "damage_more": report.damage_more,
        "remarks": report.remarks.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}
