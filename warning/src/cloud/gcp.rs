//! Google Compute Engine: a spot machine gets its notice 30 s before it is stopped, and one that is
//! not moved at host maintenance 60 s before it is terminated.

use super::{Answer, Metadata, start, strange};
use crate::error::WarningError;
use crate::polled::{Asker, NoAnswer};
use crate::reading::Reading;
use crate::source::WarningSource;

const USUAL: &str = "http://169.254.169.254";
const PREEMPTED: &str = "/computeMetadata/v1/instance/preempted";
const MAINTENANCE: &str = "/computeMetadata/v1/instance/maintenance-event";
/// Without it the service refuses to answer.
const FLAVOR: (&str, &str) = ("Metadata-Flavor", "Google");

struct Gcp {
    metadata: Metadata,
}

/// Asks the metadata service at `base`, or at the usual address if that is empty.
///
/// # Errors
/// The address is none of plain HTTP.
pub(crate) fn open(base: &str) -> Result<Box<dyn WarningSource>, WarningError> {
    start(Gcp { metadata: Metadata::new("gcp", base, USUAL)? })
}

impl Asker for Gcp {
    fn name(&self) -> String {
        self.metadata.name()
    }

    fn ask(&mut self) -> Result<Reading, NoAnswer> {
        let preempted = self.metadata.get(PREEMPTED, FLAVOR)?;
        match &preempted {
            Answer { status: 200, text } if text.trim() == "FALSE" => {}
            Answer { status: 200, text } if text.trim() == "TRUE" => {
                return Ok(self.metadata.ending("preempted"));
            }
            _ => return Err(strange(&preempted)),
        }
        let maintenance = self.metadata.get(MAINTENANCE, FLAVOR)?;
        match &maintenance {
            // A machine that is moved goes on.
            Answer { status: 200, text }
                if matches!(text.trim(), "NONE" | "MIGRATE_ON_HOST_MAINTENANCE") =>
            {
                Ok(self.metadata.steady())
            }
            Answer { status: 200, text } if text.trim() == "TERMINATE_ON_HOST_MAINTENANCE" => {
                Ok(self.metadata.ending(text.trim()))
            }
            _ => Err(strange(&maintenance)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::service;
    use super::*;
    use crate::reading::State;

    fn asked(preempted: &'static str, maintenance: &'static str) -> Result<Reading, NoAnswer> {
        let (base, requests) = service(move |request| match request.contains(PREEMPTED) {
            true => ("200 OK", preempted),
            false => ("200 OK", maintenance),
        });
        let outcome = Gcp { metadata: Metadata::new("gcp", &base, "").unwrap() }.ask();
        for request in &*requests.lock().unwrap() {
            assert!(request.to_lowercase().contains("metadata-flavor: google"), "{request}");
        }
        outcome
    }

    #[test]
    fn each_answer_has_its_state() {
        assert_eq!(asked("FALSE\n", "NONE").unwrap().state, State::Steady);
        let moved = asked("FALSE", "MIGRATE_ON_HOST_MAINTENANCE");
        assert_eq!(moved.unwrap().state, State::Steady);
        assert_eq!(asked("TRUE", "").unwrap().to_string(), "gcp: preempted");
        let ended = asked("FALSE", "TERMINATE_ON_HOST_MAINTENANCE").unwrap();
        assert_eq!(ended.state, State::Ending);
        for (preempted, maintenance) in [("", "NONE"), ("maybe", "NONE"), ("FALSE", "SOON")] {
            assert!(matches!(asked(preempted, maintenance), Err(NoAnswer::Unreached(_))));
        }
    }
}
