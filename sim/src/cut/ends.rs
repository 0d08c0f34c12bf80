//! The ways in which a run ends, and the check of what must be found afterwards: one function for
//! each row of the fault model.

use std::fmt;
use std::mem::take;

use perdura_image::format::Layout;
use perdura_media::{BLOCK_BYTES, Clock};
use perdura_region::{Attachment, Compression, FlushOptions};
use perdura_store::Unreadable;
use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus as Random;

use super::broken::Broken;
use super::detected;
use super::scenario::{Scenario, Shape};
use super::world::{Went, World};

/// Number of bits that are flipped in turn, each in a copy of one image.
const FLIPS: usize = 4;
/// Most steps that are run after a failure of the device.
const STEPS_AFTER_FAILURE: usize = 25;
/// Steps that are run in the life after a loss.
const STEPS_AFTER_ALL: usize = 12;

/// How a process dies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Death {
    /// Inside an operation, after so many more steps of the heap.
    Inside(u64),
    /// In the region, at the write with this number, counted from now.
    AtWrite(u64),
    /// In the region, at the device flush with this number, counted from now.
    AtFlush(u64),
}

/// A fault of the device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Write(u64),
    Flush(u64),
    FullFromWrite(u64),
    FullFromGrowth,
}

/// The end of a run. `at` counts durable operations.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    /// The power goes without a warning.
    Unwarned { at: u64 },
    /// The warning comes after the step that reached `at`; the battery is exactly as large as
    /// promised.
    Warned { at: u64 },
    /// The process dies; its memory is flushed by a holder on the battery, or taken over by another
    /// process.
    Crashed { at: u64, death: Death, by_holder: bool },
    /// Bits of the image of a stopped machine flip.
    Flipped { at: u64 },
    /// The device fails; then the power goes, or the machine is stopped.
    Latched { at: u64, fault: Fault, power_goes: bool },
}

impl End {
    /// Draws the end of cut `index` of the `of` cuts of a scenario, in a run of `ops` durable
    /// operations.
    pub fn draw(scenario: &Scenario, ops: u64, index: u64, of: u64, random: &mut Random) -> Self {
        let few = scenario.shape == Shape::Small;
        let at = if ops < of {
            index % (ops + 1)
        } else {
            // Each of `of` equal parts of the run has one cut.
            let from = ops * index / of;
            random.random_range(from..=(ops * (index + 1) / of).max(from))
        };
        // All cuts of a small run are of one kind, so that there is one at every operation.
        let kind = if few { scenario.seed % 86 } else { random.random_range(0..100) };
        match kind {
            0..56 => Self::Unwarned { at },
            56..72 => Self::Warned { at },
            72..86 => {
                // With compression more processes die with frames written that are not durable:
                // such frames are written again from their compressed form.
                let inside = if scenario.compression == Compression::Off { 2 } else { 1 };
                let death = match random.random_range(0..4) {
                    kind if kind < inside => Death::Inside(random.random_range(1..60)),
                    2 => Death::AtWrite(random.random_range(1..12)),
                    _ => Death::AtFlush(random.random_range(1..5)),
                };
                Self::Crashed { at, death, by_holder: random.random_bool(0.5) }
            }
            86..92 => Self::Flipped { at },
            _ => {
                let fault = match random.random_range(0..4) {
                    0 => Fault::Write(random.random_range(1..10)),
                    1 => Fault::Flush(random.random_range(1..5)),
                    2 => Fault::FullFromWrite(random.random_range(1..10)),
                    _ => Fault::FullFromGrowth,
                };
                Self::Latched { at, fault, power_goes: random.random_bool(0.4) }
            }
        }
    }

    /// Runs the scenario to this end and checks what the fault model promises.
    pub fn check(self, world: &mut World<'_>, random: &mut Random) -> Result<(), Broken> {
        match self {
            Self::Unwarned { at } => unwarned(world, at, random)?,
            Self::Warned { at } => warned(world, at, random)?,
            Self::Crashed { at, death, by_holder } => crashed(world, at, death, by_holder, random)?,
            Self::Flipped { at } => return flipped(world, at, random),
            Self::Latched { at, fault, power_goes } => {
                latched(world, at, fault, power_goes, random)?;
            }
        }
        if random.random_bool(0.25) { live_on(world, random) } else { Ok(()) }
    }
}

/// Runs steps from number `from` until the process does not go on, or `at` durable operations are
/// done.
/// Returns the number of the next step.
fn play(world: &mut World<'_>, from: usize, at: u64) -> Result<(usize, Went), Broken> {
    let scenario = world.scenario;
    for (number, step) in scenario.steps.iter().enumerate().skip(from) {
        if world.device.ops() >= at {
            return Ok((number, Went::On));
        }
        let went = world.step(step)?;
        if went != Went::On {
            return Ok((number + 1, went));
        }
    }
    Ok((scenario.steps.len(), Went::On))
}

/// Runs all steps undisturbed. Returns the number of durable operations, at which cuts are made.
pub(crate) fn count_ops(world: &mut World<'_>) -> Result<u64, Broken> {
    world.boot("creating")?;
    play(world, 0, u64::MAX)?;
    world.look_closely("at the end")?;
    world.prove()?;
    Ok(world.device.ops())
}

fn unwarned(world: &mut World<'_>, at: u64, random: &mut Random) -> Result<(), Broken> {
    world.device.cut_after(at);
    if world.boot("creating")? == Went::On {
        play(world, 0, u64::MAX)?;
        world.device.power_off();
        if random.random_bool(0.15) && world.is_alive() {
            world.prove()?;
        }
    }
    after_power_cut(world, random)
}

fn after_power_cut(world: &mut World<'_>, random: &mut Random) -> Result<(), Broken> {
    let states = take(&mut world.allowed);
    world.power_cycle(random.random());
    world.boot("after a power cut")?;
    world.believe_one_of(&states, "after a power cut")
}

fn warned(world: &mut World<'_>, at: u64, random: &mut Random) -> Result<(), Broken> {
    world.boot("creating")?;
    play(world, 0, at)?;
    if random.random_bool(0.1) {
        world.prove()?;
    }
    run_on_battery(world);
    world.stop().map_err(|error| Broken::WarnedFlush { error })?;
    come_up_whole(world, random, "after a warned loss")
}

fn crashed(
    world: &mut World<'_>,
    at: u64,
    death: Death,
    by_holder: bool,
    random: &mut Random,
) -> Result<(), Broken> {
    world.boot("creating")?;
    let (next, _) = play(world, 0, at)?;
    match death {
        Death::Inside(fuse) => world.store().heap().kill_after(fuse),
        Death::AtWrite(nth) => world.faults.fail_write(nth),
        Death::AtFlush(nth) => world.faults.fail_flush(nth),
    }
    for step in world.scenario.steps[next..].iter().take_while(|step| !step.ends_life()) {
        if world.step(step)? != Went::On {
            break;
        }
    }
    let mut states = vec![world.oracle.clone()];
    states.extend(world.in_doubt.take());
    if random.random_bool(0.15) {
        world.prove()?;
    }
    // The warning's reserve pays for what the dead process left half done.
    let energy_bytes =
        energy_bytes(world) + world.region().geometry().redo_bytes(world.region().budget_bytes());
    let held = world.held()?;
    world.die();
    if !by_holder {
        world.attach(held, "attaching after a crash")?;
        world.believe_one_of(&states, "attached after a crash")?;
        if world.scenario.compression == Compression::Off {
            return Ok(());
        }
        // Frames that were written again are checked when the image is read.
        let step = "stopping after a crash".to_string();
        world.stop().map_err(|error| Broken::Region { step, error })?;
        return come_up_whole(world, random, "stopped after a crash");
    }
    let when = "flushed by the holder after a crash";
    let holder = Attachment::new(held.0, held.1).map_err(|error| Broken::Open { when, error })?;
    world.device.set_energy_bytes(Some(energy_bytes));
    let options = FlushOptions { threads: 1, unix_ms: world.clock.unix_ms() };
    holder.flush(&world.device, options).map_err(|error| Broken::WarnedFlush { error })?;
    world.power_cycle(random.random());
    world.boot(when)?;
    if !world.was_final() {
        return Err(Broken::NotFinal { when });
    }
    world.believe_one_of(&states, when)
}

fn flipped(world: &mut World<'_>, at: u64, random: &mut Random) -> Result<(), Broken> {
    world.boot("creating")?;
    play(world, 0, at)?;
    let step = "stopping".to_string();
    world.stop().map_err(|error| Broken::Region { step, error })?;
    world.die();
    let image = world.device.snapshot();
    let block_bytes = BLOCK_BYTES as usize;
    let written: Vec<_> = (0..image.len() / block_bytes)
        .filter(|block| image[block * block_bytes..][..block_bytes].iter().any(|byte| *byte != 0))
        .collect();
    let stopped = world.device.clone();
    for _ in 0..FLIPS {
        // Nothing is unflushed: this is a plain copy.
        world.device = stopped.power_cycle(0);
        let block = written[random.random_range(0..written.len())];
        let byte = block * block_bytes + random.random_range(0..block_bytes);
        world.device.flip_bit(byte as u64, random.random_range(0..8));
        let when = "after a bit flipped";
        // Damage is met when the image is opened, or when the damaged block is first used.
        let outcome = Unreadable::catch(|| world.boot(when).and_then(|_| world.look_closely(when)));
        detected::accept(outcome)?;
        world.die();
    }
    Ok(())
}

fn latched(
    world: &mut World<'_>,
    at: u64,
    fault: Fault,
    power_goes: bool,
    random: &mut Random,
) -> Result<(), Broken> {
    world.boot("creating")?;
    let (next, _) = play(world, 0, at)?;
    match fault {
        Fault::Write(nth) => world.faults.fail_write(nth),
        Fault::Flush(nth) => world.faults.fail_flush(nth),
        Fault::FullFromWrite(nth) => world.faults.no_space_from_write(nth),
        Fault::FullFromGrowth => world.faults.no_space_from_grow(1),
    }
    let later = world.scenario.steps[next..].iter().filter(|step| !step.ends_life());
    for step in later.take(STEPS_AFTER_FAILURE) {
        world.step(step)?;
    }
    world.look("after the device failed")?;
    if power_goes {
        return after_power_cut(world, random);
    }
    let had_failed = world.has_failed();
    match world.stop() {
        // A frame whose write failed once is durable if it was written again.
        Ok(_) => {}
        Err(error) if !had_failed && !world.has_failed() => {
            return Err(Broken::Region { step: "stopping".into(), error });
        }
        Err(_) => {
            let held = world.held()?;
            world.attach(held, "attaching with another device")?;
            world.look_closely("attached with another device")?;
            run_on_battery(world);
            world.stop().map_err(|error| Broken::WarnedFlush { error })?;
        }
    }
    come_up_whole(world, random, "after the device failed and another took over")
}

/// Checks that the image can be used on: more steps, a clean end, and all contents are there.
fn live_on(world: &mut World<'_>, random: &mut Random) -> Result<(), Broken> {
    let scenario = world.scenario;
    let from = random.random_range(0..scenario.steps.len());
    for step in scenario.steps.iter().cycle().skip(from).take(STEPS_AFTER_ALL) {
        world.step(step)?;
    }
    world.look_closely("in the life after")?;
    let step = "the last stop".to_string();
    world.stop().map_err(|error| Broken::Region { step, error })?;
    come_up_whole(world, random, "after the last stop")
}

fn come_up_whole(
    world: &mut World<'_>,
    random: &mut Random,
    when: &'static str,
) -> Result<(), Broken> {
    world.power_cycle(random.random());
    world.boot(when)?;
    if !world.was_final() {
        return Err(Broken::NotFinal { when });
    }
    world.look_closely(when)
}

/// From now on the power lasts for the bytes of the promise, and not for one more.
fn run_on_battery(world: &World<'_>) {
    world.device.set_energy_bytes(Some(energy_bytes(world)));
}

/// The flush of the whole budget in force, and its commit in both slots.
fn energy_bytes(world: &World<'_>) -> u64 {
    let (geometry, budget_bytes) = (world.region().geometry(), world.region().budget_bytes());
    geometry.flush_bytes(budget_bytes) + Layout::of(geometry).final_commit_bytes()
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unwarned { at } => write!(f, "power lost at durable operation {at}"),
            Self::Warned { at } => write!(f, "warned after durable operation {at}"),
            Self::Crashed { at, death, by_holder } => {
                write!(f, "killed after durable operation {at} ({death:?}), ")?;
                f.write_str(if *by_holder { "flushed by the holder" } else { "attached again" })
            }
            Self::Flipped { at } => {
                write!(f, "bits flipped in the image made after durable operation {at}")
            }
            Self::Latched { at, fault, power_goes } => {
                write!(f, "device failure ({fault:?}) after durable operation {at}")?;
                f.write_str(if *power_goes { ", then power lost" } else { ", then stopped" })
            }
        }
    }
}
