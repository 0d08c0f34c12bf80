//! The holder: a second process that keeps the memory when this one is killed.
//!
//! The holder has the descriptors of memory, ledger and image. It writes nothing unless a warning
//! comes when this process is gone; then it flushes. The next opening of the directory takes the
//! memory over, and nothing is read from the SSD.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::exit;
use std::sync::Arc;

use perdura_guard::HolderOptions;
use perdura_media::RealClock;
use perdura_region::holder::HolderProgram;
use perdura_warning::{WarningError, Warnings};

/// The first argument of a program that is executed again as a holder.
const ARGUMENT: &str = "perdura-holder";
const THREADS: usize = 2;

/// The program that is started to keep the memory when this process is killed.
///
/// ```
/// use perdura::{Holder, Options};
///
/// // The program `perdura`, which also heeds a file that a script of the UPS writes.
/// let holder = Holder::perdura("perdura").heeding("file:/run/ups/on-battery");
/// let options = Options::new().holder(holder.hiding("API_TOKEN"));
/// # drop(options);
/// ```
#[derive(Debug, Clone)]
pub struct Holder {
    program: HolderProgram,
}

/// The errors of a process that is to be a holder.
///
/// ```
/// use perdura::holder::{HoldError, hold_as_told};
///
/// let refused = hold_as_told(&["--colour".into()]);
/// assert!(matches!(refused, Err(HoldError::Arguments { .. })));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HoldError {
    /// The arguments are not those that a holder is started with.
    #[error(
        "{found:?}: expected --dir DIR [--threads N] [--warning SOURCE]; a holder is started by \
         the program that opens the directory"
    )]
    Arguments {
        /// The arguments after the first.
        found: Vec<OsString>,
    },
    /// Standard input, which is the link to the other process, cannot be taken.
    #[error("take standard input: {0}")]
    Link(#[source] std::io::Error),
    /// A source of warnings cannot be used.
    #[error(transparent)]
    Warning(#[from] WarningError),
    /// The memory could not be held or flushed.
    #[error(transparent)]
    Holder(#[from] perdura_guard::HoldError),
}

impl Holder {
    /// This program, executed a second time. Call it first in `main`, before any thread is started:
    /// in that second process it does not return but holds the memory, and exits when the memory is
    /// on the SSD.
    ///
    /// ```no_run
    /// use perdura::{Holder, Options, Store};
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let holder = Holder::this_program();
    ///     let store = Store::open_with("data", &Options::new().holder(holder))?;
    ///     store.set("survives", "kill -9")?;
    ///     store.close()?;
    ///     Ok(())
    /// }
    /// ```
    #[must_use = "pass it to Options::holder"]
    pub fn this_program() -> Self {
        let mut arguments = std::env::args_os().skip(1);
        if arguments.next().is_some_and(|first| first == ARGUMENT) {
            let arguments: Vec<_> = arguments.collect();
            exit(match hold_as_told(&arguments) {
                Ok(()) => 0,
                Err(error) => {
                    eprintln!("perdura: holder: {error}");
                    1
                }
            });
        }
        let path = std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
        let program =
            HolderProgram { arguments: vec![ARGUMENT.into()], ..HolderProgram::perdura(path) };
        Self { program }
    }

    /// The program `perdura` at `path`, for programs that must not be executed twice. A relative
    /// path without a slash is looked for in `PATH`.
    pub fn perdura(path: impl Into<PathBuf>) -> Self {
        Self { program: HolderProgram::perdura(path) }
    }

    /// Another program, started with `arguments` and then the words that [`hold_as_told`] takes:
    /// for a library that is loaded into an interpreter, whose program cannot be executed twice.
    ///
    /// ```
    /// let holder = perdura::Holder::program("/usr/bin/python3", ["-I", "/srv/app/holder.py"]);
    /// # drop(holder);
    /// ```
    pub fn program<A: Into<OsString>>(
        path: impl Into<PathBuf>,
        arguments: impl IntoIterator<Item = A>,
    ) -> Self {
        let arguments = arguments.into_iter().map(Into::into).collect();
        Self { program: HolderProgram { arguments, ..HolderProgram::perdura(path) } }
    }

    /// Lets the holder heed a source of warnings besides signals, such as
    /// `file:/run/ups/on-battery`: it flushes at that warning if this process is gone.
    #[must_use = "the holder is returned, not changed in place"]
    pub fn heeding(mut self, source: &str) -> Self {
        self.program.arguments.push(format!("--warning={source}").into());
        self
    }

    /// Keeps an environment variable that holds a secret from the holder.
    #[must_use = "the holder is returned, not changed in place"]
    pub fn hiding(mut self, variable: impl Into<OsString>) -> Self {
        self.program.hidden_variables.push(variable.into());
        self
    }

    pub(crate) fn program_to_start(&self) -> HolderProgram {
        self.program.clone()
    }
}

/// Runs a holder process: it holds the memory whose descriptors arrive on standard input, until the
/// memory is on the SSD or its owner says goodbye. `dir` is the directory to which the memory
/// belongs.
///
/// ```no_run
/// // A program of your own whose only work is to be the holder of "data".
/// let warnings = perdura::Warnings::by_signals()?;
/// perdura::holder::hold("data", 2, warnings)?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Nothing arrived, or the memory cannot be held.
pub fn hold(
    dir: impl Into<PathBuf>,
    flush_threads: usize,
    warnings: Warnings,
) -> Result<(), HoldError> {
    perdura_warning::ignore_hangup();
    let link = link().map_err(HoldError::Link)?;
    let options = HolderOptions { dir: dir.into(), threads: flush_threads.max(1) };
    Ok(perdura_guard::hold(link, warnings, Arc::new(RealClock), options)?)
}

/// Takes standard input away, so that no child of this process inherits it.
fn link() -> std::io::Result<OwnedFd> {
    let link = std::io::stdin().as_fd().try_clone_to_owned()?;
    let null = std::fs::File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    Ok(link)
}

/// Runs a holder process with the words that its program was started with, after its own
/// ([`Holder::program`]): `--dir DIR --threads N`, and a `--warning=SOURCE` for each source that it
/// heeds besides signals. No thread may have been started before.
///
/// ```no_run
/// // The whole of such a program.
/// let words: Vec<_> = std::env::args_os().skip(1).collect();
/// perdura::holder::hold_as_told(&words)?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The words are others, a source cannot be used, or the errors of [`hold`].
pub fn hold_as_told(arguments: &[OsString]) -> Result<(), HoldError> {
    let mut warnings = Warnings::by_signals()?;
    let refused = || HoldError::Arguments { found: arguments.to_vec() };
    let (mut dir, mut threads) = (None, THREADS);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let source = argument.to_str().and_then(|text| text.strip_prefix("--warning="));
        match argument.to_str() {
            _ if source.is_some() => {
                source.map(perdura_warning::open).transpose()?.into_iter().for_each(|source| {
                    warnings.add(source);
                });
            }
            Some("--dir") => dir = rest.next().map(PathBuf::from),
            Some("--threads") => {
                let number = rest.next().and_then(|text| text.to_str()?.parse().ok());
                threads = number.ok_or_else(refused)?;
            }
            _ => return Err(refused()),
        }
    }
    hold(dir.ok_or_else(refused)?, threads, warnings)
}
