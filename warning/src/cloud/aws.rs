//! Amazon EC2: a spot instance gets its notice two minutes before it is stopped or terminated
//! (instance metadata, version 2: a token is asked for first).

use super::{Answer, Metadata, start, strange};
use crate::error::WarningError;
use crate::polled::{Asker, NoAnswer};
use crate::reading::Reading;
use crate::source::WarningSource;

const USUAL: &str = "http://169.254.169.254";
const TOKEN: &str = "/latest/api/token";
const ACTION: &str = "/latest/meta-data/spot/instance-action";
/// Seconds for which a token is good, the longest there are.
const TOKEN_SECONDS: &str = "21600";

struct Aws {
    metadata: Metadata,
    token: Option<String>,
}

/// Asks the metadata service at `base`, or at the usual address if that is empty.
///
/// # Errors
/// The address is none of plain HTTP.
pub(crate) fn open(base: &str) -> Result<Box<dyn WarningSource>, WarningError> {
    start(Aws { metadata: Metadata::new("aws", base, USUAL)?, token: None })
}

impl Aws {
    fn token(&self) -> Result<String, NoAnswer> {
        let answer =
            self.metadata.put(TOKEN, ("X-aws-ec2-metadata-token-ttl-seconds", TOKEN_SECONDS))?;
        let is_token = !answer.text.is_empty() && answer.text.bytes().all(|b| b.is_ascii_graphic());
        if answer.status == 200 && is_token { Ok(answer.text) } else { Err(strange(&answer)) }
    }
}

impl Asker for Aws {
    fn name(&self) -> String {
        self.metadata.name()
    }

    fn ask(&mut self) -> Result<Reading, NoAnswer> {
        let token = match self.token.take() {
            Some(token) => token,
            None => self.token()?,
        };
        let answer = self.metadata.get(ACTION, ("X-aws-ec2-metadata-token", &token))?;
        let reading = match &answer {
            // No action is planned.
            Answer { status: 404, .. } => self.metadata.steady(),
            Answer { status: 200, text } if text.contains("\"action\"") => {
                self.metadata.ending(text)
            }
            // A token that is no longer good is asked for anew next time.
            _ => return Err(strange(&answer)),
        };
        self.token = Some(token);
        Ok(reading)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::service;
    use super::*;
    use crate::reading::State;

    const NOTICE: &str = r#"{"action": "terminate", "time": "2026-11-26T08:22:00Z"}"#;

    fn aws(base: &str) -> Aws {
        Aws { metadata: Metadata::new("aws", base, "").unwrap(), token: None }
    }

    #[test]
    fn a_token_is_asked_for_once_and_a_notice_is_the_end() {
        let noticed = std::sync::atomic::AtomicU32::new(0);
        let (base, requests) = service(move |request| match request.starts_with("PUT") {
            true => ("200 OK", "TOKEN=="),
            false if noticed.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < 2 => {
                ("404 Not Found", "<html>none</html>")
            }
            false => ("200 OK", NOTICE),
        });
        let mut aws = aws(&base);
        assert_eq!(aws.ask().unwrap().state, State::Steady);
        assert_eq!(aws.ask().unwrap().to_string(), "aws: no notice");
        let end = aws.ask().unwrap();
        assert_eq!((end.state, end.told_by), (State::Ending, format!("aws: {NOTICE}")));
        let requests = requests.lock().unwrap();
        assert_eq!(requests.len(), 4, "{requests:?}");
        assert!(requests[0].starts_with("PUT /latest/api/token HTTP/1.1\r\n"), "{requests:?}");
        let header = |request: &str, header: &str| request.to_lowercase().contains(header);
        assert!(header(&requests[0], "x-aws-ec2-metadata-token-ttl-seconds: 21600"));
        let action = "GET /latest/meta-data/spot/instance-action HTTP/1.1\r\n";
        for request in &requests[1..] {
            assert!(request.starts_with(action) && header(request, "metadata-token: token=="));
        }
    }

    #[test]
    fn a_service_that_fails_has_not_answered_and_the_token_is_asked_for_anew() {
        let (base, requests) = service(|request| match request.starts_with("PUT") {
            true => ("200 OK", "T"),
            false => ("401 Unauthorized", ""),
        });
        let mut aws = aws(&base);
        for _ in 0..2 {
            let Err(NoAnswer::Unreached(why)) = aws.ask() else { panic!("answered") };
            assert!(why.contains("401"), "{why}");
        }
        let puts = requests.lock().unwrap().iter().filter(|one| one.starts_with("PUT")).count();
        assert_eq!(puts, 2);
        for answer in
            [("500 Internal Server Error", "oops"), ("200 OK", "two words"), ("200 OK", "")]
        {
            let (base, _) = service(move |_| answer);
            assert!(matches!(self::aws(&base).ask(), Err(NoAnswer::Unreached(_))), "{answer:?}");
        }
    }
}
