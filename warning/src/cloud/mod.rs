//! Interruption notices of clouds: asked of the metadata service that each machine has at an
//! address of its own. The address is an argument, so that tests and proxies can serve it.
//!
//! - A service that hangs, fails or says something else has not answered; a notice that is there
//!   means the end.
//! - The end of the notice's time is not reckoned with: saving begins at once.

pub(crate) mod aws;
pub(crate) mod azure;
pub(crate) mod gcp;

use std::time::Duration;

use ureq::Agent;

use crate::error::WarningError;
use crate::polled::{self, Asker, NoAnswer, Pace};
use crate::reading::{Reading, State};
use crate::source::WarningSource;

/// Notices come 30 s before the end at the shortest.
const PACE: Pace = Pace { every: Duration::from_secs(1), silence_max: Duration::from_secs(15) };
/// Time for an answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Bytes of an answer that are read.
const ANSWER_BYTES: u64 = 64 << 10;

/// A metadata service.
struct Metadata {
    /// The cloud's name.
    cloud: &'static str,
    /// Such as `http://169.254.169.254`.
    base: String,
    agent: Agent,
}

/// An answer of the service.
#[derive(Debug, PartialEq)]
struct Answer {
    status: u16,
    text: String,
}

impl Metadata {
    /// The service at `base`, or at the cloud's own address if that is empty.
    fn new(cloud: &'static str, base: &str, usual: &str) -> Result<Self, WarningError> {
        let base = if base.is_empty() { usual } else { base };
        // Such a service speaks plain HTTP, and nobody else is to be asked for it.
        let host = base.strip_prefix("http://").map(|rest| rest.split('/').next());
        if host.flatten().is_none_or(str::is_empty) {
            let expected = "nothing, or an address such as http://169.254.169.254";
            return Err(WarningError::Argument { found: base.to_owned(), expected });
        }
        let config = Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .build();
        let base = base.trim_end_matches('/').to_owned();
        Ok(Self { cloud, base, agent: config.into() })
    }

    /// Asks for a path, with a header.
    fn get(&self, path: &str, header: (&str, &str)) -> Result<Answer, NoAnswer> {
        let request = self.agent.get(format!("{}{path}", self.base)).header(header.0, header.1);
        read(request.call())
    }

    /// Puts nothing to a path, with a header.
    fn put(&self, path: &str, header: (&str, &str)) -> Result<Answer, NoAnswer> {
        let request = self.agent.put(format!("{}{path}", self.base)).header(header.0, header.1);
        read(request.send_empty())
    }

    fn name(&self) -> String {
        format!("{} ({})", self.cloud, self.base)
    }

    fn steady(&self) -> Reading {
        Reading::new(State::Steady, format!("{}: no notice", self.cloud))
    }

    fn ending(&self, notice: &str) -> Reading {
        let notice: String = notice.chars().take(200).collect();
        Reading::new(
            State::Ending,
            format!("{}: {}", self.cloud, notice.replace(['\r', '\n'], " ")),
        )
    }
}

fn read(called: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Result<Answer, NoAnswer> {
    let unreached = |error: ureq::Error| NoAnswer::Unreached(error.to_string());
    let mut response = called.map_err(unreached)?;
    let status = response.status().as_u16();
    let body = response.body_mut().with_config().limit(ANSWER_BYTES);
    let text = body.read_to_string().map_err(unreached)?;
    Ok(Answer { status, text })
}

/// An answer that is none of those that the cloud documents.
fn strange(answer: &Answer) -> NoAnswer {
    let text: String = answer.text.chars().take(80).collect();
    NoAnswer::Unreached(format!("status {}, {text:?}", answer.status))
}

fn start(asker: impl Asker) -> Result<Box<dyn WarningSource>, WarningError> {
    polled::start(asker, PACE)
}

#[cfg(test)]
mod testing {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::sync::{Arc, Mutex};

    /// A metadata service on loopback. Returns its address, and where the requests that it got are
    /// noted. `answer` makes the status line's end and the body of each request.
    pub fn service(
        answer: impl Fn(&str) -> (&'static str, &'static str) + Send + 'static,
    ) -> (String, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&requests);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let mut client = BufReader::new(client.unwrap());
                let mut request = String::new();
                // Up to the empty line: no request has a body.
                while !request.ends_with("\r\n\r\n") && client.read_line(&mut request).unwrap() > 0
                {
                }
                let (status, body) = answer(&request);
                noted.lock().unwrap().push(request);
                let len = body.len();
                let head =
                    format!("HTTP/1.1 {status}\r\nContent-Length: {len}\r\nConnection: close");
                let _ = client.get_mut().write_all(format!("{head}\r\n\r\n{body}").as_bytes());
            }
        });
        (base, requests)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn only_plain_http_addresses_are_taken() {
        for base in
            ["169.254.169.254", "https://169.254.169.254", "file:///etc", "http://", "http:///a"]
        {
            assert!(matches!(Metadata::new("aws", base, ""), Err(WarningError::Argument { .. })));
        }
        let usual = Metadata::new("aws", "", "http://10.0.0.1/").unwrap();
        assert_eq!(usual.name(), "aws (http://10.0.0.1)");
    }

    #[test]
    fn a_service_that_is_not_there_or_answers_too_much_has_not_answered() {
        let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let metadata = Metadata::new("aws", &format!("http://{nobody}"), "").unwrap();
        assert!(matches!(metadata.get("/", ("a", "b")), Err(NoAnswer::Unreached(_))));
        let long: &str = Box::leak("x".repeat(ANSWER_BYTES as usize + 1).into_boxed_str());
        let (base, _) = testing::service(move |_| ("200 OK", long));
        let metadata = Metadata::new("aws", &base, "").unwrap();
        assert!(matches!(metadata.get("/", ("a", "b")), Err(NoAnswer::Unreached(_))));
    }
}
