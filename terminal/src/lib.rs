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

pub use output::{Output, Outputs};
pub use program::{Preloaded, become_program, set};
pub use progress::LateBar;
pub use say::{Shown, all_said, complain, once, say};
pub use sys::ignore_file_size_signal;
pub use words::{at_least_one, named, one_of, optional, percent, time};

/// Writes log events to standard error: those that the environment variable `PERDURA_LOG` chooses,
/// by default the level `info` and worse.
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

/// Whether the log goes to a terminal, and colours are not refused (<https://no-color.org>).
fn is_coloured() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !refused && std::io::IsTerminal::is_terminal(&std::io::stderr())
}
