//! The command line of the programs `perdura` and `perdura-lab`: options become values, and results
//! and errors become lines and files.
//!
//! `words` parses values and names the option in every error; `region` does so for the options of a
//! region. `say` prints, `progress` shows the progress of long work, `output` writes result files.
//! `program` starts another program with a library loaded before its own.

mod output;
mod program;
mod progress;
pub mod region;
mod say;
mod sys;
mod words;

use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

pub use output::{Output, Outputs};
pub use program::{become_program, set, with_library};
pub use progress::LateBar;
pub use say::{Shown, all_said, complain, once, say};
pub use sys::ignore_file_size_signal;
pub use words::{at_least_one, named, one_of, optional, percent, time};

/// How a line of the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people; in colours where it goes to a terminal.
    Plain,
    /// A JSON object, for programs.
    Json,
}

impl LogFormat {
    /// The format of `--log-format`.
    pub fn of(option: &Option<String>) -> anyhow::Result<Self> {
        one_of("log-format", option, &[("plain", Self::Plain), ("json", Self::Json)])
    }
}

/// Writes log events to standard error: those that the environment variable `PERDURA_LOG` chooses
/// (a level, or `TARGET=LEVEL` for parts of the program, separated by commas). Without the variable
/// the level `by_default` and worse are written; if nobody understands it, `info` and worse.
pub fn log_to_stderr(by_default: LevelFilter, format: LogFormat) {
    let asked = std::env::var("PERDURA_LOG").ok();
    let chosen = asked.as_deref().map(str::parse::<Targets>).transpose();
    let level = if chosen.is_ok() { by_default } else { LevelFilter::INFO };
    let usual =
        || Targets::new().with_default(level).with_target("fuser", LevelFilter::WARN.min(level));
    let targets = chosen.as_ref().ok().cloned().flatten().unwrap_or_else(usual);
    let lines = fmt::layer().with_writer(std::io::stderr);
    let lines = match format {
        LogFormat::Plain => lines.with_ansi(is_coloured()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_current_span(false).boxed(),
    };
    tracing_subscriber::registry().with(lines).with(targets).init();
    if let (Err(error), Some(asked)) = (chosen, asked) {
        tracing::warn!(
            "PERDURA_LOG={asked:?} is ignored: {error}; \
             a level (off, error, warn, info, debug, trace) or TARGET=LEVEL,... would do"
        );
    }
}

/// Whether the log goes to a terminal, and colours are not refused (<https://no-color.org>).
fn is_coloured() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !refused && std::io::IsTerminal::is_terminal(&std::io::stderr())
}
