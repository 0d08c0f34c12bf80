//! A command that prints how the power is, run again and again.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::error::WarningError;
use crate::polled::{self, Asker, NoAnswer, Pace};
use crate::reading::Reading;
use crate::source::WarningSource;

/// A command may start programs and ask the network, so it is not run as often as others are asked.
const PACE: Pace = Pace { every: Duration::from_secs(2), silence_max: Duration::from_secs(15) };
/// Bytes of the output that are read.
const LINE_BYTES: u64 = 256;

/// A shell command whose first line of output is a [status line](Reading::parse). One that fails
/// has not answered.
struct Shell {
    command: String,
}

/// Runs `command` by `/bin/sh` every two seconds.
///
/// # Errors
/// There is no command.
pub(crate) fn open(command: &str) -> Result<Box<dyn WarningSource>, WarningError> {
    if command.trim().is_empty() {
        let (found, expected) = (command.to_owned(), "a shell command that prints the state");
        return Err(WarningError::Argument { found, expected });
    }
    polled::start(Shell { command: command.to_owned() }, PACE)
}

impl Shell {
    /// Runs the command once, and returns the beginning of what it printed.
    fn run(&self) -> Result<Vec<u8>, String> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &self.command]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let mut printed = Vec::new();
        if let Some(output) = child.stdout.take() {
            // The rest is not read: a command that goes on printing gets SIGPIPE.
            output.take(LINE_BYTES).read_to_end(&mut printed).map_err(|error| error.to_string())?;
        }
        let status = child.wait().map_err(|error| error.to_string())?;
        if status.success() { Ok(printed) } else { Err(status.to_string()) }
    }
}

impl Asker for Shell {
    fn name(&self) -> String {
        format!("`{}`", self.command)
    }

    fn ask(&mut self) -> Result<Reading, NoAnswer> {
        let printed = self.run().map_err(NoAnswer::Unreached)?;
        let text = String::from_utf8_lossy(&printed);
        let Some(line) = text.lines().next() else {
            return Err(NoAnswer::Unreached("it printed nothing".into()));
        };
        Ok(Reading::parse(line, &self.name())
            .unwrap_or_else(|error| Reading::lost(error.to_string())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::{Confidence, State};

    fn ask(command: &str) -> Result<Reading, NoAnswer> {
        Shell { command: command.to_owned() }.ask()
    }

    #[test]
    fn the_first_line_that_a_command_prints_is_its_answer() {
        let reading = ask("echo on-battery 5m; echo more").unwrap();
        assert_eq!(reading.state, State::OnBattery);
        assert_eq!(reading.to_string(), "`echo on-battery 5m; echo more`: on-battery 5m (5m left)");
        assert_eq!(ask("echo; echo low").unwrap().state, State::Ending);
        assert_eq!(ask("echo fine").unwrap().confidence, Confidence::Lost);
        assert_eq!(ask("echo steady; yes").err().map(|_| ()), Some(()));
    }

    #[test]
    fn a_command_that_fails_or_says_nothing_has_not_answered() {
        for (command, why) in [
            ("exit 3", "exit status: 3"),
            ("echo steady; exit 1", "exit status: 1"),
            ("true", "it printed nothing"),
            ("kill -9 $$", "signal: 9"),
        ] {
            let Err(NoAnswer::Unreached(said)) = ask(command) else { panic!("{command}") };
            assert!(said.contains(why), "{command}: {said}");
        }
        assert!(open(" ").is_err());
    }
}
