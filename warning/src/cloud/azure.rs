//! Microsoft Azure: scheduled events. A spot machine gets its notice 30 s before it is evicted,
//! other events are announced minutes before.

use serde::Deserialize;

use super::{Answer, Metadata, start, strange};
use crate::error::WarningError;
use crate::polled::{Asker, NoAnswer};
use crate::reading::Reading;
use crate::source::WarningSource;

const USUAL: &str = "http://169.254.169.254";
const EVENTS: &str = "/metadata/scheduledevents?api-version=2020-07-01";
/// Without it the service refuses to answer.
const METADATA: (&str, &str) = ("Metadata", "true");

struct Azure {
    metadata: Metadata,
}

/// The events, as the service documents them; what is not needed is left out.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Events {
    events: Vec<Event>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Event {
    event_type: String,
    #[serde(default)]
    not_before: String,
}

impl Event {
    /// Whether memory survives the event: a machine that is frozen goes on after some seconds.
    fn keeps_memory(&self) -> bool {
        self.event_type == "Freeze"
    }
}

/// Asks the metadata service at `base`, or at the usual address if that is empty.
///
/// # Errors
/// The address is none of plain HTTP.
pub(crate) fn open(base: &str) -> Result<Box<dyn WarningSource>, WarningError> {
    start(Azure { metadata: Metadata::new("azure", base, USUAL)? })
}

impl Asker for Azure {
    fn name(&self) -> String {
        self.metadata.name()
    }

    fn ask(&mut self) -> Result<Reading, NoAnswer> {
        let answer = self.metadata.get(EVENTS, METADATA)?;
        let Answer { status: 200, text } = &answer else { return Err(strange(&answer)) };
        let Ok(Events { events }) = serde_json::from_str(text) else {
            return Err(strange(&answer));
        };
        Ok(match events.iter().find(|event| !event.keeps_memory()) {
            Some(Event { event_type, not_before }) => {
                self.metadata.ending(format!("{event_type} {not_before}").trim())
            }
            None => self.metadata.steady(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::service;
    use super::*;
    use crate::reading::State;

    fn asked(status: &'static str, text: &'static str) -> Result<Reading, NoAnswer> {
        let (base, requests) = service(move |_| (status, text));
        let outcome = Azure { metadata: Metadata::new("azure", &base, "").unwrap() }.ask();
        let requests = requests.lock().unwrap();
        assert!(requests[0].starts_with(&format!("GET {EVENTS} HTTP/1.1\r\n")), "{requests:?}");
        assert!(requests[0].to_lowercase().contains("metadata: true"), "{requests:?}");
        outcome
    }

    #[test]
    fn an_event_that_ends_the_machine_is_the_end() {
        let none = r#"{"DocumentIncarnation": 1, "Events": []}"#;
        assert_eq!(asked("200 OK", none).unwrap().state, State::Steady);
        let frozen = r#"{"Events": [{"EventType": "Freeze", "NotBefore": ""}]}"#;
        assert_eq!(asked("200 OK", frozen).unwrap().state, State::Steady);
        let evicted = r#"{"Events": [{"EventType": "Freeze"},
            {"EventType": "Preempt", "NotBefore": "Thu, 26 Nov 2026 18:29:47 GMT"}]}"#;
        let end = asked("200 OK", evicted).unwrap();
        assert_eq!(end.state, State::Ending);
        assert_eq!(end.to_string(), "azure: Preempt Thu, 26 Nov 2026 18:29:47 GMT");
        let unknown = r#"{"Events": [{"EventType": "OfLater"}]}"#;
        assert_eq!(asked("200 OK", unknown).unwrap().state, State::Ending);
    }

    #[test]
    fn what_is_no_list_of_events_is_no_answer() {
        for (status, text) in [
            ("200 OK", ""),
            ("200 OK", "{}"),
            ("200 OK", r#"{"Events": [{}]}"#),
            ("400 Bad Request", r#"{"Events": []}"#),
            ("500 Internal Server Error", "oops"),
        ] {
            assert!(matches!(asked(status, text), Err(NoAnswer::Unreached(_))), "{status} {text}");
        }
    }
}
