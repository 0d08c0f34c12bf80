//! The filter of system calls: what a server that has started never needs, the kernel refuses it.
//!
//! - A call that is [allowed](table::ALLOWED), or whose arguments are within [`bounded`], is made.
//! - A call of [`table::KILLED`] ends the process. Its holder keeps the memory.
//! - Any other call fails with `ENOSYS`, as on an older kernel. C libraries have other ways then.
//!
//! A process that is to start programs passes its filter on to them, and nobody knows what they
//! need. It gets a filter that refuses the calls of [`table::KILLED`] only, without `execve`, and
//! kills nobody.

mod table;

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use libc::c_long;
use perdura_terminal::one_of;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen::Dword, SeccompCmpOp,
    SeccompCondition, SeccompFilter, SeccompRule, TargetArch, sock_filter,
};

/// The option of processes that have a filter.
#[derive(Debug, Args)]
pub struct SeccompArgs {
    /// Once everything is open, let the kernel refuse all system calls that a server does not need
    /// (seccomp), such as those that start a program. `auto`: where the kernel can; `on`: or do not
    /// start; `off`: never. With `--warning command:…` or `--ship ssh://…`, which start programs,
    /// less is refused [default: auto].
    #[arg(long, value_name = "auto|on|off", help_heading = "Security")]
    pub seccomp: Option<String>,
}

impl SeccompArgs {
    fn wish(&self) -> Result<Wish> {
        one_of(
            "seccomp",
            &self.seccomp,
            &[("auto", Wish::Auto), ("on", Wish::On), ("off", Wish::Off)],
        )
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Auto,
    On,
    Off,
}

/// Whose filter it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Server,
    Holder,
}

/// A filter that is not installed yet.
#[derive(Debug)]
pub struct Filter {
    /// In the order in which they are installed: the last one may refuse to install more.
    programs: Vec<BpfProgram>,
    state: State,
}

/// How much of a filter a process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Only what is needed is allowed.
    On,
    /// Only what no program needs is refused.
    Partly,
    /// There is none.
    Off,
}

impl State {
    /// The word for it in INFO.
    pub fn word(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Partly => "partly",
            Self::Off => "off",
        }
    }
}

impl Filter {
    /// The filter that the option asks for. Whether the kernel takes it is tried on a thread that
    /// ends at once, so that a server that insists on it has changed nothing when it is refused.
    ///
    /// `starts_programs`: whether the process starts programs later.
    pub fn of_server(args: &SeccompArgs, starts_programs: bool) -> Result<Self> {
        Self::wished(args, Role::Server, starts_programs)
    }

    /// The filter of a holder. Its server has mostly tried it already; a program of another
    /// language starts a holder without.
    pub fn of_holder(args: &SeccompArgs, starts_programs: bool) -> Result<Self> {
        Self::wished(args, Role::Holder, starts_programs)
    }

    fn wished(args: &SeccompArgs, role: Role, starts_programs: bool) -> Result<Self> {
        let wish = args.wish()?;
        if wish == Wish::Off {
            return Ok(Self::none());
        }
        let filter =
            Self::build(role, starts_programs).and_then(|filter| filter.try_out().map(|()| filter));
        match filter {
            Err(error) if wish == Wish::Auto => {
                tracing::warn!(
                    "there is no filter of system calls (seccomp): {error:#}. Who takes this \
                     process over can make every call that its user may; --seccomp off, if that \
                     is meant"
                );
                Ok(Self::none())
            }
            outcome => outcome.context(
                "--seccomp on: the filter of system calls cannot be installed, and nothing was \
                 opened; --seccomp auto starts without it",
            ),
        }
    }

    /// How much is refused once it is installed.
    pub fn state(&self) -> State {
        self.state
    }

    /// Installs the filter in all threads, for ever: threads that are started later have it, too.
    pub fn install(self) -> Result<()> {
        for program in &self.programs {
            seccompiler::apply_filter_all_threads(program)
                .map_err(|error| anyhow!(describe(&error)))
                .context("install the filter of system calls")?;
        }
        Ok(())
    }

    fn none() -> Self {
        Self { programs: Vec::new(), state: State::Off }
    }

    fn build(role: Role, starts_programs: bool) -> Result<Self> {
        let arch = TargetArch::try_from(std::env::consts::ARCH)?;
        let compile = |calls, matched, otherwise| {
            SeccompFilter::new(calls, otherwise, matched, arch).and_then(BpfProgram::try_from)
        };
        let (allow, refuse) = (SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32));
        let unconditional =
            |groups: &[&[c_long]]| groups.concat().into_iter().map(|call| (call, Vec::new()));
        let mut killed: Calls = unconditional(table::KILLED).collect();
        let types = table::TYPING.iter().map(|&control| is(1, control as u32));
        killed.insert(libc::SYS_ioctl, types.collect::<Result<_, _>>()?);
        if starts_programs {
            killed.retain(|call, _| !table::PROGRAMS.contains(call));
            // Each namespace is another way to the parts of the kernel that users do not need.
            let enters = NAMESPACES.map(|namespace| has(0, namespace, namespace));
            killed.insert(libc::SYS_clone, enters.into_iter().collect::<Result<_, _>>()?);
            // Its flags cannot be seen, and C libraries take `clone` then.
            let clone3 = Calls::from([(libc::SYS_clone3, Vec::new())]);
            let eperm = SeccompAction::Errno(libc::EPERM as u32);
            let mut programs =
                vec![compile(clone3, refuse, allow.clone())?, compile(killed, eperm, allow)?];
            programs.extend(refuse_x32());
            return Ok(Self { programs, state: State::Partly });
        }
        let mut allowed: Calls = unconditional(table::ALLOWED).chain(bounded()?).collect();
        if role == Role::Holder {
            allowed.extend(unconditional(&[table::HOLDER]));
        }
        let programs = vec![
            compile(killed, SeccompAction::KillProcess, allow.clone())?,
            compile(allowed, allow, refuse)?,
        ];
        Ok(Self { programs, state: State::On })
    }

    fn try_out(&self) -> Result<()> {
        let install = || {
            let installed = self.programs.iter().try_for_each(|p| seccompiler::apply_filter(p));
            (rustix::thread::gettid(), installed)
        };
        let (id, installed) = thread::scope(|scope| {
            let trial = thread::Builder::new().name("perdura-seccomp".into());
            let trial = trial.spawn_scoped(scope, install).context("start a thread")?;
            trial.join().map_err(|_| anyhow!("the trial ended by a panic"))
        })?;
        // A thread that ends still counts for a moment, and a filter for all threads is refused
        // while one has another.
        let task = format!("/proc/self/task/{}", id.as_raw_nonzero());
        while Path::new(&task).exists() {
            thread::yield_now();
        }
        installed.map_err(|error| anyhow!(describe(&error)))
    }
}

/// The `prctl` by which the C library reads the auxiliary vector, from Linux 6.4 on. The crate
/// `libc` does not have it yet.
const PR_GET_AUXV: i32 = 0x4155_5856;

type Calls = BTreeMap<c_long, Vec<SeccompRule>>;

/// The namespaces that `clone` enters.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWUTS,
];

/// An argument is `value`.
fn is(argument: u8, value: u32) -> Result<SeccompRule, BackendError> {
    rule(argument, SeccompCmpOp::Eq, value)
}

/// A rule for calls of whose argument, of the bits in `mask`, exactly those of `value` are set.
fn has(argument: u8, mask: i32, value: i32) -> Result<SeccompRule, BackendError> {
    rule(argument, SeccompCmpOp::MaskedEq(u64::from(mask as u32)), value as u32)
}

fn rule(argument: u8, op: SeccompCmpOp, value: u32) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(argument, Dword, op, u64::from(value))?])
}

/// On x86_64 most calls have a second number, for programs with short pointers (x32), which a table
/// of what is refused does not have.
#[cfg(target_arch = "x86_64")]
fn refuse_x32() -> Option<BpfProgram> {
    const X32: u32 = 1 << 30;
    let step = |code: u32, jt, jf, k| sock_filter { code: code as u16, jt, jf, k };
    Some(vec![
        // The call's number is the first word of what the filter is given.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, X32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ])
}
#[cfg(not(target_arch = "x86_64"))]
fn refuse_x32() -> Option<BpfProgram> {
    None
}

/// The calls that are allowed with certain arguments only. A call may match one of several rules.
fn bounded() -> Result<Calls, BackendError> {
    let is = |argument, value: i32| is(argument, value as u32);
    let namespaces = NAMESPACES.into_iter().fold(0, |all, namespace| all | namespace);
    Ok(Calls::from([
        // A thread, and no process. `clone3`, whose flags a filter cannot see, is refused, and C
        // libraries take `clone` then.
        (libc::SYS_clone, vec![has(0, namespaces | libc::CLONE_THREAD, libc::CLONE_THREAD)?]),
        // Memory is never both written and executed. A library that the C library loads late, for
        // the names of hosts, is mapped to be executed.
        (libc::SYS_mmap, vec![has(2, libc::PROT_EXEC, 0)?, has(2, libc::PROT_WRITE, 0)?]),
        (libc::SYS_mprotect, vec![has(2, libc::PROT_EXEC, 0)?]),
        // A thread's name, and what the kernel told the process at its start, such as the size of
        // its pages.
        (
            libc::SYS_prctl,
            vec![is(0, libc::PR_SET_NAME)?, is(0, libc::PR_GET_NAME)?, is(0, PR_GET_AUXV)?],
        ),
        // Where protocols of other families have mistakes, they cannot be reached.
        (
            libc::SYS_socket,
            vec![is(0, libc::AF_UNIX)?, is(0, libc::AF_INET)?, is(0, libc::AF_INET6)?],
        ),
    ]))
}

/// The cause alone: the crate's own words repeat it.
fn describe(error: &seccompiler::Error) -> String {
    match error {
        seccompiler::Error::Seccomp(cause) => format!("the kernel refuses seccomp: {cause}"),
        seccompiler::Error::Prctl(cause) => format!("the kernel refuses no_new_privs: {cause}"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
