//! Who keeps the memory besides a server or a run: a guard, or a holder. `perdura holder` is the
//! process that is started for that; its standard input is the link to the server.

use anyhow::{Context, Result};
use perdura_guard::{GuardEar, Guarded, HolderOptions, Orders};
use perdura_media::RealClock;
use perdura_region::holder::{HeldBy, HolderProgram, Supervisor, Voice};
use perdura_warning::Warnings;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::args::HolderArgs;
use crate::key::KEY_VARIABLE;
use crate::password::PASSWORD_VARIABLE;
use crate::seccomp::{self, Filter};

/// The program that `serve` starts as its holder, which is this one. The holder heeds the same
/// sources of warnings, because it flushes when the server is gone, and logs to the same place. It
/// has a filter of system calls if the server has one.
pub fn program(
    sources: &[String],
    log_format: &Option<String>,
    seccomp: seccomp::State,
) -> HolderProgram {
    let this = std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
    let mut program = HolderProgram::perdura(this);
    program.arguments.extend(sources.iter().map(|source| format!("--warning={source}").into()));
    if seccomp == seccomp::State::Off {
        program.arguments.push("--seccomp=off".into());
    }
    program.hidden_variables.extend([PASSWORD_VARIABLE.into(), KEY_VARIABLE.into()]);
    program.arguments.extend(log_format.iter().map(|f| format!("--log-format={f}").into()));
    program
}

/// The program that starts holders like `holder` for a server whose filter lets it start none.
pub fn starter(holder: &HolderProgram) -> HolderProgram {
    let mut starter = holder.clone();
    starter.arguments[0] = "start-holders".into();
    starter
}

/// The process of such a program: a holder gets the words that it was given itself.
pub fn start_holders() -> Result<()> {
    perdura_warning::ignore_hangup();
    let this = std::env::current_exe().context("the path of this program")?;
    let requests = take_stdin()?;
    perdura_region::holder::start_holders(requests, || {
        let mut holder = Command::new(&this);
        holder.arg("holder").args(std::env::args_os().skip(2)).stdout(Stdio::null());
        holder
    })?;
    Ok(())
}

/// The connection that this process was started with as its standard input.
fn take_stdin() -> Result<OwnedFd> {
    let link = std::io::stdin().as_fd().try_clone_to_owned().context("standard input")?;
    let null = std::fs::File::open("/dev/null").context("/dev/null")?;
    rustix::stdio::dup2_stdin(&null).context("give up standard input")?;
    Ok(link)
}

/// The guard at a socket, and its ear. It is also a source of warnings, which hears through the
/// link.
pub fn guard(socket: &Path, warnings: &mut Warnings) -> Result<(HeldBy, GuardEar)> {
    let (guarded, ear) = Guarded::new(socket.to_owned())?;
    warnings.add(Box::new(guarded));
    Ok((HeldBy::Guard(socket.to_owned()), ear))
}

/// Lets the guard's words arrive at its ear. Returns its orders, and the way to answer.
pub fn listen(supervisor: Option<&mut Supervisor>, ear: Option<GuardEar>) -> (Arc<Orders>, Voice) {
    let Some((supervisor, ear)) = supervisor.zip(ear) else { return Default::default() };
    let heard = (ear.orders(), supervisor.voice());
    supervisor.tell(Box::new(ear));
    heard
}

/// Adds the sources that `--warning` names.
pub fn add_sources(warnings: &mut Warnings, sources: &[String]) -> Result<()> {
    for text in sources {
        let source = perdura_warning::open(text).with_context(|| format!("--warning {text}"))?;
        warnings.add(source);
    }
    Ok(())
}

/// Whether one of these sources is a command.
pub fn start_programs(sources: &[String]) -> bool {
    sources.iter().any(|source| source.starts_with("command:"))
}

pub fn run(args: HolderArgs, mut warnings: Warnings) -> Result<()> {
    perdura_warning::ignore_hangup();
    let filter = Filter::of_holder(&args.seccomp, start_programs(&args.warning))?;
    add_sources(&mut warnings, &args.warning)?;
    filter.install()?;
    let link = take_stdin()?;
    let options = HolderOptions { dir: args.dir, threads: args.threads };
    perdura_guard::hold(link, warnings, Arc::new(RealClock), options)?;
    Ok(())
}
