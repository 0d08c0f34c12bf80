//! What the programs `perdura` and `perdura-lab` do alike with whoever calls them: words become
//! values, and results and errors become lines and files.
//!
//! `words` parses values and names the option in every error, `region` the options that say how a
//! region works. `say` prints, `progress` shows what takes long, `output` writes result files.
//! `program` starts another program with a library loaded before its own.

mod output;
mod program;
mod progress;
pub mod region;
mod say;
mod sys;
mod words;

pub use output::{Output, Outputs};
pub use program::{Preloaded, become_program, set};
pub use progress::LateBar;
pub use say::{Shown, all_said, complain, once, say};
pub use sys::{ignore_file_size_signal, warning_descriptor};
pub use words::{at_least_one, named, one_of, optional, percent, time};

/// Sends events to standard error: those that the environment's `PERDURA_LOG` names, or what a
/// person wants to see.
pub fn log_to_stderr() {
    tracing_subscriber::fmt()
        .with_ansi(is_coloured())
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("PERDURA_LOG")
                .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info,fuser=warn")),
        )
        .with_writer(std::io::stderr)
        .init();
}

/// Whether the log is for somebody who sees colours, and wants them (<https://no-color.org>).
fn is_coloured() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !refused && std::io::IsTerminal::is_terminal(&std::io::stderr())
}
