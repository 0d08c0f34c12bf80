//! Microsoft Azure: scheduled events. A spot machine gets its notice 30 s before it is evicted,
//! other events are announced minutes before.
//!
//! All machines of an availability set, or of a scale set's placement group, are told the events
//! of each of them. An event that names other machines only is not this one's; in every doubt it
//! is.

use serde::Deserialize;

use super::{Answer, Metadata, start, strange};
use crate::error::WarningError;
use crate::polled::{Asker, NoAnswer};
use crate::reading::Reading;
use crate::source::WarningSource;

const USUAL: &str = "http://169.254.169.254";
const EVENTS: &str = "/metadata/scheduledevents?api-version=2020-07-01";
/// The name of this machine, as events have it. It never changes.
const NAME: &str = "/metadata/instance/compute/name?api-version=2021-02-01&format=text";
/// What an event names that is about machines.
const MACHINES: &str = "VirtualMachine";
/// Without it the service refuses to answer.
const METADATA: (&str, &str) = ("Metadata", "true");

struct Azure {
    metadata: Metadata,
    /// The machine's name, once it was needed.
    machine: Option<String>,
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
    resource_type: Option<String>,
    /// Names of the machines that the event is about.
    resources: Option<Vec<String>>,
}

impl Event {
    /// Whether memory survives the event: a machine that is frozen goes on after some seconds.
    fn keeps_memory(&self) -> bool {
        self.event_type == "Freeze"
    }

    /// The names of the machines that the event is of; none if it does not say.
    fn machines(&self) -> &[String] {
        match &self.resource_type {
            Some(other) if other != MACHINES => &[],
            _ => self.resources.as_deref().unwrap_or_default(),
        }
    }

    /// Whether the event is of the machine with this name, as it is in every doubt. Azure tells no
    /// capitals apart in names.
    fn is_of(&self, machine: Option<&str>) -> bool {
        match (self.machines(), machine) {
            ([], _) | (_, None) => true,
            (named, Some(machine)) => named.iter().any(|it| it.eq_ignore_ascii_case(machine)),
        }
    }
}

/// Asks the metadata service at `base`, or at the usual address if that is empty.
///
/// # Errors
/// The address is none of plain HTTP.
pub(crate) fn open(base: &str) -> Result<Box<dyn WarningSource>, WarningError> {
    start(Azure { metadata: Metadata::new("azure", base, USUAL)?, machine: None })
}

impl Azure {
    /// The name of this machine. `None`: the service does not say, so that nobody knows whether an
    /// event is of another machine.
    fn machine(&mut self) -> Option<&str> {
        if self.machine.is_none() {
            let answer = self.metadata.get(NAME, METADATA).ok()?;
            let name = answer.text.trim();
            let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic());
            self.machine = (answer.status == 200 && is_name).then(|| name.to_owned());
        }
        self.machine.as_deref()
    }
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
        let ends: Vec<_> = events.into_iter().filter(|event| !event.keeps_memory()).collect();
        let is_needed = ends.iter().any(|event| !event.machines().is_empty());
        let machine = if is_needed { self.machine() } else { None };
        Ok(match ends.iter().find(|event| event.is_of(machine)) {
            Some(Event { event_type, not_before, .. }) => {
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

    fn azure(base: &str) -> Azure {
        Azure { metadata: Metadata::new("azure", base, "").unwrap(), machine: None }
    }

    fn asked(status: &'static str, text: &'static str) -> Result<Reading, NoAnswer> {
        let (base, requests) = service(move |_| (status, text));
        let outcome = azure(&base).ask();
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

    /// Asks twice while there is one event, which has `resources`. Returns both
    /// states, and how often the machine's name was asked for.
    fn named(name: (&'static str, &'static str), resources: &'static str) -> ([State; 2], usize) {
        let event = format!(r#"{{"Events": [{{"EventType": "Reboot", {resources}}}]}}"#);
        let event: &str = Box::leak(event.into_boxed_str());
        let (base, requests) = service(move |request| {
            let is_of_name = request.starts_with(&format!("GET {NAME} HTTP/1.1\r\n"));
            if is_of_name { name } else { ("200 OK", event) }
        });
        let mut azure = azure(&base);
        let states = [(); 2].map(|()| azure.ask().unwrap().state);
        let requests = requests.lock().unwrap();
        let of_name: Vec<_> = requests.iter().filter(|one| one.contains(NAME)).collect();
        assert!(of_name.iter().all(|one| one.to_lowercase().contains("metadata: true")));
        (states, of_name.len())
    }

    #[test]
    fn an_event_that_names_other_machines_only_is_not_the_end() {
        let db_2 = ("200 OK", "db-2\n");
        let [steady, ending] = [State::Steady, State::Ending].map(|state| [state; 2]);
        let others = r#""ResourceType": "VirtualMachine", "Resources": ["db-1", "db-22"]"#;
        assert_eq!(named(db_2, others), (steady, 1));
        let ours = r#""ResourceType": "VirtualMachine", "Resources": ["db-1", "DB-2"]"#;
        assert_eq!(named(db_2, ours), (ending, 1));
        // One that does not say of which machine it is.
        for unsaid in [
            r#""Resources": []"#,
            r#""Resources": null"#,
            r#""ResourceType": "AvailabilitySet", "Resources": ["db"]"#,
        ] {
            assert_eq!(named(db_2, unsaid), (ending, 0), "{unsaid}");
        }
        // The machine's name cannot be learnt.
        for none in [("404 Not Found", "db-2"), ("200 OK", ""), ("200 OK", "two words")] {
            assert_eq!(named(none, others), (ending, 2), "{none:?}");
        }
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
