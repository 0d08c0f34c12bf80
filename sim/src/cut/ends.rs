//! The ways in which a run ends, and the check of what must be found afterwards: one function for
//! each row of the fault model.

use std::fmt;
use std::mem::take;
use std::os::fd::OwnedFd;

use perdura_image::format::Layout;
use perdura_media::{BLOCK_BYTES, Clock};
use perdura_region::{Attachment, Compression, FlushOptions};
use perdura_store::Unreadable;
use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus as Random;

use super::battery::final_commit_bytes;
use super::broken::Broken;
use super::detected;
use super::oracle::Oracle;
use super::scenario::{Scenario, Shape};
use super::step::Step;
use super::world::{Kept, Went, World};

/// Number of bits that are flipped in turn, each in a copy of one image.
const FLIPS: usize = 4;
/// Most steps that are run after a failure of the device.
const STEPS_AFTER_FAILURE: usize = 25;
/// Steps that are run in the life after a loss.
const STEPS_AFTER_ALL: usize = 12;
/// Most losses of power that follow the first one.
const LOSSES_AFTER: u64 = 2;
/// Most durable operations between two losses.
const OPS_BETWEEN: u64 = 24;
/// Most durable operations of a flush before the power goes.
const FLUSH_OPS: u64 = 40;

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

/// What happens to the memory of a dead process.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Heir {
    /// A holder flushes it on the battery.
    Holder,
    /// Another process takes it over, and is stopped.
    Process,
    /// The power goes while a holder flushes it.
    LostHolder,
    /// The power goes while another process takes it over.
    LostProcess,
}

impl Heir {
    fn draw(random: &mut Random) -> Self {
        match random.random_range(0..6) {
            0..2 => Self::Holder,
            2..4 => Self::Process,
            4 => Self::LostHolder,
            _ => Self::LostProcess,
        }
    }
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
    /// The warning comes after the step that reached `at`; the battery is the one for which the
    /// budget was promised, or, if `is_lost`, it fails in the middle of the flush.
    Warned { at: u64, is_lost: bool },
    /// The process dies.
    Crashed { at: u64, death: Death, heir: Heir },
    /// Bits of the image of a stopped machine flip, or, if `is_cut`, bits of superblocks and commit
    /// slots of a machine that lost power.
    Flipped { at: u64, is_cut: bool },
    /// The device fails; then the power goes, or the machine is stopped.
    Latched { at: u64, fault: Fault, power_goes: bool },
}

impl End {
    /// Draws the end of cut `index` of the `of` cuts of a scenario, in a run of `ops` durable
    /// operations.
    pub fn draw(scenario: &Scenario, ops: u64, index: u64, of: u64, random: &mut Random) -> Self {
        let at = if ops < of {
            index % (ops + 1)
        } else {
            // Each of `of` equal parts of the run has one cut.
            let from = ops * index / of;
            random.random_range(from..=(ops * (index + 1) / of).max(from))
        };
        let kind = match scenario.shape {
            // Half of the processes with much dirty data are killed.
            Shape::Large if random.random() => 45,
            _ => random.random_range(0..100),
        };
        match kind {
            // Few, because copies are cut without a warning at many places of every scenario.
            0..10 => Self::Unwarned { at },
            10..40 => Self::Warned { at, is_lost: random.random_ratio(1, 4) },
            40..62 => {
                // With compression more processes die with frames written that are not durable:
                // such frames are written again from their compressed form.
                let inside = if scenario.compression == Compression::Off { 2 } else { 1 };
                let death = match random.random_range(0..4) {
                    kind if kind < inside => Death::Inside(random.random_range(1..60)),
                    2 => Death::AtWrite(random.random_range(1..12)),
                    _ => Death::AtFlush(random.random_range(1..5)),
                };
                let heir = Heir::draw(random);
                Self::Crashed { at, death, heir }
            }
            62..80 => Self::Flipped { at, is_cut: random.random_ratio(1, 3) },
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
            Self::Warned { at, is_lost } => warned(world, at, is_lost, random)?,
            Self::Crashed { at, death, heir } => crashed(world, at, death, heir, random)?,
            Self::Flipped { at, is_cut: false } => return flipped(world, at, random),
            Self::Flipped { at, is_cut: true } => return head_flipped(world, at, random),
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
    run_through(world)?;
    let ops = world.device.ops();
    world.look_closely("at the end")?;
    world.prove()?;
    Ok(ops)
}

/// Runs all steps undisturbed once more, and keeps copies before these of its `ops` durable
/// operations.
pub(crate) fn keep_copies(
    world: &mut World<'_>,
    ops: u64,
    lost: &[u64],
    killed: &[u64],
) -> Result<(Vec<Kept>, Vec<Kept>), Broken> {
    world.copy_before(lost, killed);
    run_through(world)?;
    if world.device.ops() != ops {
        return Err(Broken::OtherRun { ops, again: world.device.ops() });
    }
    world.see_kills();
    Ok(world.take_copies())
}

/// Boots, and runs all steps undisturbed: the same durable operations each time.
fn run_through(world: &mut World<'_>) -> Result<(), Broken> {
    world.boot("creating")?;
    for step in &world.scenario.steps {
        if world.step(step)? != Went::On {
            break;
        }
        if matches!(step, Step::Attach(_)) {
            // Frames that were written again are clean, and so must be durable. The proof loads
            // all memory, which changes when segments are emptied afterwards.
            world.prove()?;
        }
    }
    Ok(())
}

/// Lets an heir take over the memory of a copied machine whose process was killed.
pub(crate) fn killed(
    world: &mut World<'_>,
    kept: &Kept,
    random: &mut Random,
) -> Result<(), Broken> {
    let Some((memory, ledger)) = &kept.held else { unreachable!("a copy of a kill") };
    let held = (memory.try_clone()?, ledger.try_clone()?);
    inherit(world, held, &kept.in_memory, Heir::draw(random), random)?;
    if random.random_bool(0.1) { live_on(world, random) } else { Ok(()) }
}

/// Switches a copied machine on, and checks what an unwarned loss of power promises.
pub(crate) fn copied(world: &mut World<'_>, random: &mut Random) -> Result<(), Broken> {
    after_power_cut(world, random)?;
    if random.random_bool(0.2) {
        lose_again(world, random)?;
    }
    if random.random_bool(0.1) { live_on(world, random) } else { Ok(()) }
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
    after_power_cut(world, random)?;
    lose_again(world, random)
}

/// Loses power once more in each of some lives that follow.
fn lose_again(world: &mut World<'_>, random: &mut Random) -> Result<(), Broken> {
    for _ in 0..random.random_range(0..=LOSSES_AFTER) {
        // Frames of the lives before lie behind those of this one.
        lose_soon(world, random)?;
    }
    Ok(())
}

/// Goes on from any step, and loses power some durable operations later.
fn lose_soon(world: &mut World<'_>, random: &mut Random) -> Result<(), Broken> {
    world.device.cut_after(world.device.ops() + random.random_range(0..OPS_BETWEEN));
    play(world, random.random_range(0..world.scenario.steps.len()), u64::MAX)?;
    world.device.power_off();
    after_power_cut(world, random)
}

fn after_power_cut(world: &mut World<'_>, random: &mut Random) -> Result<(), Broken> {
    let states = take(&mut world.allowed);
    world.power_cycle(random.random());
    world.boot("after a power cut")?;
    world.believe_one_of(&states, "after a power cut")?;
    // Opening an image commits.
    world.allowed = vec![world.oracle.clone()];
    Ok(())
}

fn warned(
    world: &mut World<'_>,
    at: u64,
    is_lost: bool,
    random: &mut Random,
) -> Result<(), Broken> {
    world.boot("creating")?;
    play(world, 0, at)?;
    if random.random_bool(0.1) {
        world.prove()?;
    }
    if is_lost {
        world.device.cut_after(world.device.ops() + random.random_range(0..FLUSH_OPS));
        return match world.stop() {
            Ok(_) => come_up_whole(world, random, "stopped before the power went"),
            Err(_) if !world.device.is_powered() => {
                world.allowed.push(world.oracle.clone());
                after_power_cut(world, random)
            }
            Err(error) => Err(Broken::WarnedFlush { error }),
        };
    }
    run_on_battery(world);
    world.stop().map_err(|error| Broken::WarnedFlush { error })?;
    come_up_whole(world, random, "after a warned loss")
}

fn crashed(
    world: &mut World<'_>,
    at: u64,
    death: Death,
    heir: Heir,
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
    let held = world.held()?;
    world.die();
    inherit(world, held, &states, heir, random)
}

/// Lets an heir take over what a dead process left, whose memory is in one of `states`.
fn inherit(
    world: &mut World<'_>,
    held: (OwnedFd, OwnedFd),
    states: &[Oracle],
    heir: Heir,
    random: &mut Random,
) -> Result<(), Broken> {
    let energy_bytes = world.energy_bytes()?;
    let when = match heir {
        Heir::Holder => "flushed by the holder after a crash",
        Heir::Process => "attached after a crash",
        Heir::LostHolder | Heir::LostProcess => "lost after a crash",
    };
    if let Heir::LostHolder | Heir::LostProcess = heir {
        world.device.cut_after(world.device.ops() + random.random_range(0..FLUSH_OPS));
        world.allowed.extend(states.iter().cloned());
    }
    if let Some(state) = states.first() {
        world.oracle = state.clone();
    }
    if let Heir::Process | Heir::LostProcess = heir {
        if world.attach(held, when)? == Went::On {
            if matches!(heir, Heir::Process) && random.random_bool(0.3) {
                // Frames that were written again are clean, and so must be durable.
                world.prove()?;
            }
            world.believe_one_of(states, when)?;
            if world.commits > 0 {
                // Taking the memory over has committed what was found in it.
                world.allowed = vec![world.oracle.clone()];
            }
            if matches!(heir, Heir::Process) && random.random_bool(0.25) {
                // The process goes on with the memory, and the power goes later.
                return lose_soon(world, random);
            }
            // The frames that were written again, and what the dead process owed, are read from
            // the image after the next stop.
            match world.stop() {
                Ok(_) => return come_up_whole(world, random, "stopped after a crash"),
                Err(error) if world.device.is_powered() => {
                    return Err(Broken::Region { step: "stopping after a crash".into(), error });
                }
                Err(_) => {}
            }
        }
        return after_power_cut(world, random);
    }
    let holder = Attachment::new(held.0, held.1).map_err(|error| Broken::Open { when, error })?;
    if let Heir::Holder = heir {
        // The warning's reserve pays for what the dead process left half done.
        world.device.set_energy_bytes(Some(energy_bytes));
    }
    let options = FlushOptions { threads: 1, unix_ms: world.clock.unix_ms() };
    match holder.flush(&world.device, options) {
        Ok(_) => {}
        Err(_) if matches!(heir, Heir::LostHolder) && !world.device.is_powered() => {
            return after_power_cut(world, random);
        }
        Err(error) => return Err(Broken::WarnedFlush { error }),
    }
    world.power_cycle(random.random());
    world.boot(when)?;
    if !world.was_final() {
        return Err(Broken::NotFinal { when });
    }
    world.believe_one_of(states, when)
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
        flip_near(world, &image, block * block_bytes + random.random_range(0..block_bytes), random);
        let when = "after a bit flipped";
        // Damage is met when the image is opened, or when the damaged block is first used.
        let outcome = Unreadable::catch(|| world.boot(when).and_then(|_| world.look_closely(when)));
        detected::accept(outcome)?;
        world.die();
    }
    Ok(())
}

/// Flips a bit of a byte that is not zero: of the byte at `from`, or of the first one behind it.
fn flip_near(world: &World<'_>, image: &[u8], from: usize, random: &mut Random) {
    let found = image[from..].iter().position(|byte| *byte != 0);
    let byte = from + found.unwrap_or(0);
    world.device.flip_bit(byte as u64, random.random_range(0..8));
}

/// Flips bits of superblocks and commit slots, each of which has a copy, after a loss of power. No
/// flip may be noticed.
fn head_flipped(world: &mut World<'_>, at: u64, random: &mut Random) -> Result<(), Broken> {
    world.boot("creating")?;
    play(world, 0, at)?;
    let head_bytes = Layout::of(world.region().geometry()).segment_at(0) as usize;
    let states = take(&mut world.allowed);
    world.power_cycle(random.random());
    let (stopped, image) = (world.device.clone(), world.device.snapshot());
    let written: Vec<_> = (0..head_bytes).filter(|byte| image[*byte] != 0).collect();
    for _ in 0..FLIPS {
        world.device = stopped.power_cycle(0);
        flip_near(world, &image, written[random.random_range(0..written.len())], random);
        let when = "after a bit of a commit flipped";
        world.boot(when)?;
        world.believe_one_of(&states, when)?;
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

/// The flush for which the budget was promised, and its commit in both slots.
fn energy_bytes(world: &World<'_>) -> u64 {
    world.battery.flush_bytes + final_commit_bytes(world.region().geometry())
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unwarned { at } => write!(f, "power lost at durable operation {at}"),
            Self::Warned { at, is_lost } => {
                write!(f, "warned after durable operation {at}")?;
                f.write_str(if *is_lost { ", power lost in the flush" } else { "" })
            }
            Self::Crashed { at, death, heir } => {
                write!(f, "killed after durable operation {at} ({death:?}), ")?;
                f.write_str(match heir {
                    Heir::Holder => "flushed by the holder",
                    Heir::Process => "attached again",
                    Heir::LostHolder => "power lost while the holder flushed",
                    Heir::LostProcess => "power lost while another process attached",
                })
            }
            Self::Flipped { at, is_cut } => {
                let place = if *is_cut { "head of the image, cut" } else { "image made" };
                write!(f, "bits flipped in the {place} after durable operation {at}")
            }
            Self::Latched { at, fault, power_goes } => {
                write!(f, "device failure ({fault:?}) after durable operation {at}")?;
                f.write_str(if *power_goes { ", then power lost" } else { ", then stopped" })
            }
        }
    }
}
