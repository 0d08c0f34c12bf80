//! A UPS that Network UPS Tools looks after: `upsd`, asked over TCP (protocol 1.3).
//!
//! - A lost connection, data that the driver has not refreshed, a driver that is gone and a status
//!   without `OL` or `OB` are [lost](Reading::lost), never steady.
//! - An answer has bounded length, and bounded time for each of its pieces.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use crate::error::WarningError;
use crate::polled::{self, Asker, NoAnswer, Pace};
use crate::reading::{Left, Reading, State};
use crate::source::WarningSource;

/// The port of `upsd`, registered for it.
const PORT: u16 = 3493;
/// Five times a second: what the UPS reports is acted on within a second.
const EVERY: Duration = Duration::from_millis(200);
/// As long as `upsmon`'s DEADTIME.
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// Time for a connection, and for each piece of an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest line of an answer, bytes.
const LINE_BYTES_MAX: usize = 512;
/// Most pieces in which a line may arrive. One that comes byte by byte is a broken server's.
const PIECES_MAX: usize = 16;

/// A UPS, as `upsc` names it: `UPS@HOST:PORT`.
#[derive(Debug)]
struct Ups {
    ups: String,
    host: String,
    port: u16,
    connection: Option<TcpStream>,
}

/// Asks the UPS that `text` names: `UPS@HOST` or `UPS@HOST:PORT`, as `upsc` has it.
///
/// # Errors
/// The text names no UPS, or `upsd` knows none of that name.
pub(crate) fn open(text: &str) -> Result<Box<dyn WarningSource>, WarningError> {
    polled::start(Ups::parse(text)?, Pace { every: EVERY, silence_max: SILENCE_MAX })
}

impl Ups {
    fn parse(text: &str) -> Result<Self, WarningError> {
        let refused = || WarningError::Argument {
            // What stands between a colon and the last @ may be a password.
            found: match text.rsplit_once('@') {
                Some((before, host)) if before.contains([':', '@']) => format!("…@{host}"),
                _ => text.to_owned(),
            },
            expected: "UPS@HOST or UPS@HOST:PORT, such as nut:eaton@localhost; reading needs no \
                       user and no password",
        };
        let (ups, place) = text.split_once('@').ok_or_else(refused)?;
        // An IPv6 address stands in brackets where a port follows.
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
                (host, port.parse().map_err(|_| refused())?)
            }
            _ => (place, PORT),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let is_word = |word: &str| {
            !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"')
        };
        // A name and password, as `upsmon` wants them, would be sent nowhere and logged everywhere.
        let has_more = |word: &str| word.contains('@') || word.contains(':');
        if !is_word(ups) || !is_word(host) || has_more(ups) || host.contains('@') {
            return Err(refused());
        }
        Ok(Self { ups: ups.to_owned(), host: host.to_owned(), port, connection: None })
    }

    fn connect(&self) -> std::io::Result<TcpStream> {
        let mut last = std::io::Error::new(ErrorKind::NotFound, "the host has no address");
        for address in (self.host.as_str(), self.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Err(error) => last = error,
                Ok(connection) => {
                    connection.set_read_timeout(Some(PATIENCE))?;
                    connection.set_write_timeout(Some(PATIENCE))?;
                    connection.set_nodelay(true)?;
                    return Ok(connection);
                }
            }
        }
        Err(last)
    }

    /// Asks for one of the UPS's variables.
    fn variable(&mut self, name: &str) -> Result<Answer<String>, std::io::Error> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect()?,
        };
        let question = format!("GET VAR {} {name}\n", self.ups);
        connection.write_all(question.as_bytes())?;
        let line = read_line(&mut connection)?;
        let answer = Answer::parse(&line, &self.ups, name)?;
        self.connection = Some(connection);
        Ok(answer)
    }

    /// The seconds that the battery lasts, if the UPS knows them.
    fn runtime(&mut self) -> Result<Option<Left>, std::io::Error> {
        let Answer::Value(text) = self.variable("battery.runtime")? else { return Ok(None) };
        // Drivers write it with decimals, too.
        let seconds = text.parse().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
        Ok(seconds.map(Left::Time))
    }

    fn status(&mut self) -> Result<Answer<Reading>, std::io::Error> {
        let name = self.name();
        Ok(match self.variable("ups.status")? {
            Answer::Value(status) => {
                // A server that ends in between has told the state, which counts.
                let left = self.runtime().unwrap_or(None);
                Answer::Value(Reading { left, ..read_status(&status, &name) })
            }
            Answer::Refused(why) if is_transient(&why) => {
                Answer::Value(Reading::lost(format!("{name}: {why}")))
            }
            Answer::Refused(why) => Answer::Refused(why),
        })
    }
}

impl Asker for Ups {
    fn name(&self) -> String {
        format!("{}@{}", self.ups, self.host)
    }

    fn ask(&mut self) -> Result<Reading, NoAnswer> {
        // A connection that was left open may have ended meanwhile, so the question is asked once
        // more over a new one.
        let was_open = self.connection.is_some();
        let outcome = match self.status() {
            Err(_) if was_open => self.status(),
            outcome => outcome,
        };
        match outcome {
            Ok(Answer::Value(reading)) => Ok(reading),
            Ok(Answer::Refused(why)) => {
                Err(NoAnswer::Refused(WarningError::Refused { name: self.name(), why }))
            }
            Err(error) => Err(NoAnswer::Unreached(format!("port {}: {error}", self.port))),
        }
    }
}

/// `upsd`'s answer to a question for a variable.
#[derive(Debug, PartialEq)]
enum Answer<Value> {
    Value(Value),
    Refused(String),
}

impl Answer<String> {
    fn parse(line: &str, ups: &str, name: &str) -> std::io::Result<Self> {
        if let Some(why) = line.strip_prefix("ERR ") {
            return Ok(Self::Refused(why.to_owned()));
        }
        let value = line
            .strip_prefix(&format!("VAR {ups} {name} \""))
            .and_then(|rest| rest.strip_suffix('"'));
        match value {
            Some(value) => Ok(Self::Value(value.replace("\\\"", "\"").replace("\\\\", "\\"))),
            None => {
                let why = format!("expected `VAR {ups} {name} \"...\"`, found {line:?}");
                Err(std::io::Error::new(ErrorKind::InvalidData, why))
            }
        }
    }
}

/// Whether a refusal may end by itself: the driver starts, or is gone, or its data are old.
fn is_transient(why: &str) -> bool {
    let word = why.split_whitespace().next().unwrap_or("");
    // A UPS that does not report its status, or a word of a later version, is not fine either.
    !matches!(word, "UNKNOWN-UPS" | "ACCESS-DENIED" | "VAR-NOT-SUPPORTED" | "UNKNOWN-COMMAND")
}

/// Reads the tokens of `ups.status`.
fn read_status(status: &str, name: &str) -> Reading {
    let has = |token: &str| status.split_whitespace().any(|word| word == token);
    let told_by = format!("{name}: {status}");
    let state = match (has("OL"), has("OB")) {
        _ if has("FSD") => State::Ending,
        (_, true) if has("LB") => State::Low,
        (_, true) => State::OnBattery,
        // In these the battery would not carry the load when the power goes.
        (true, false) if ["BYPASS", "OFF", "LB", "RB"].into_iter().any(has) => State::OnBattery,
        (true, false) => State::Steady,
        (false, false) => return Reading::lost(told_by),
    };
    Reading::new(state, told_by)
}

/// Reads up to the end of a line, which is not returned.
fn read_line(connection: &mut impl Read) -> std::io::Result<String> {
    let mut line = Vec::new();
    for _ in 0..PIECES_MAX {
        let mut piece = [0; LINE_BYTES_MAX];
        let count = match connection.read(&mut piece) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        line.extend_from_slice(&piece[..count]);
        if line.len() > LINE_BYTES_MAX {
            break;
        }
        if let Some(text) = line.strip_suffix(b"\n") {
            let text = String::from_utf8_lossy(text);
            // Two answers to one question would shift all later ones.
            return match text.contains('\n') {
                true => Err(std::io::Error::new(ErrorKind::InvalidData, "more than one line")),
                false => Ok(text.trim_end_matches('\r').to_owned()),
            };
        }
    }
    Err(std::io::Error::new(ErrorKind::InvalidData, "no line came that could be an answer"))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::{SocketAddr, TcpListener};
    use std::thread::JoinHandle;

    use super::*;
    use crate::reading::Confidence;

    /// A server that answers each question with the next of these lines, then closes; an empty line
    /// closes at once.
    fn upsd(answers: &'static [&'static str]) -> (SocketAddr, JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let mut questions = Vec::new();
            let mut client = None;
            for answer in answers {
                let stream: &mut BufReader<TcpStream> =
                    client.get_or_insert_with(|| BufReader::new(listener.accept().unwrap().0));
                let mut question = String::new();
                stream.read_line(&mut question).unwrap();
                questions.push(question);
                stream.get_mut().write_all(answer.as_bytes()).unwrap();
                if answer.is_empty() {
                    client = None;
                }
            }
            questions
        });
        (address, server)
    }

    fn ups_at(address: SocketAddr) -> Ups {
        Ups::parse(&format!("sim@{address}")).unwrap()
    }

    #[test]
    fn status_and_runtime_are_asked_for_over_one_connection_and_a_new_one_when_it_has_ended() {
        let (address, server) = upsd(&[
            "VAR sim ups.status \"OL CHRG\"\n",
            "VAR sim battery.runtime \"1800\"\n",
            "",
            "VAR sim ups.status \"OB DISCHRG LB\"\r\n",
            "VAR sim battery.runtime \"61.5\"\n",
            "VAR sim ups.status \"OB DISCHRG\"\n",
            "ERR VAR-NOT-SUPPORTED\n",
        ]);
        let mut ups = ups_at(address);
        let first = ups.ask().unwrap();
        assert_eq!(first.state, State::Steady);
        assert_eq!(first.to_string(), "sim@127.0.0.1: OL CHRG (30m left)");
        let second = ups.ask().unwrap();
        assert_eq!((second.state, second.confidence), (State::Low, Confidence::Fresh));
        assert_eq!(second.left, Some(Left::Time(Duration::from_millis(61_500))));
        let third = ups.ask().unwrap();
        assert_eq!((third.state, third.left), (State::OnBattery, None));
        let questions = server.join().unwrap();
        assert_eq!(questions[0], "GET VAR sim ups.status\n");
        assert_eq!(questions[1], "GET VAR sim battery.runtime\n");
    }

    #[test]
    fn a_server_that_ends_after_its_status_has_told_it() {
        let (address, server) = upsd(&["VAR sim ups.status \"FSD OB LB\"\n"]);
        let told = ups_at(address).ask().unwrap();
        assert!(told.state >= State::Low && told.left.is_none(), "{told:?}");
        server.join().unwrap();
    }

    #[test]
    fn no_server_is_no_answer_and_neither_is_one_that_speaks_otherwise() {
        let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert!(matches!(ups_at(nobody).ask(), Err(NoAnswer::Unreached(_))));
        for answer in [
            "HTTP/1.1 400 Bad Request\n",
            "VAR sim ups.status OL\n",
            "VAR other ups.status \"OL\"\n",
            "VAR sim ups.status \"OL\"\nVAR sim ups.status \"OL\"\n",
            "\u{0}\u{1}\n",
        ] {
            let (address, _server) = upsd(Vec::leak(vec![answer]));
            let outcome = ups_at(address).ask();
            assert!(matches!(outcome, Err(NoAnswer::Unreached(_))), "{answer:?}: {outcome:?}");
        }
    }

    /// Gives its bytes one by one.
    struct Drip<'b>(&'b [u8]);

    impl Read for Drip<'_> {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            let count = self.0.len().min(1);
            into[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    #[test]
    fn a_line_has_bounded_length_and_a_bounded_number_of_pieces() {
        assert_eq!(read_line(&mut Drip(b"short one\r\n")).unwrap(), "short one");
        assert!(read_line(&mut Drip(b"a line of far more than so many pieces\n")).is_err());
        let long = [b'x'; 2 * LINE_BYTES_MAX];
        assert!(read_line(&mut &long[..]).is_err());
        let end = read_line(&mut &b"no end"[..]).unwrap_err();
        assert_eq!(end.kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_user_and_a_password_are_refused_and_not_repeated() {
        for text in ["mon:secret@sim@localhost", "sim:secret@localhost", "a@secret@b@localhost:1"] {
            let error = Ups::parse(text).unwrap_err().to_string();
            assert!(error.contains("no password"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
        assert!(Ups::parse("sim@[::1]:3493").is_ok() && Ups::parse("sim@::1").is_ok());
    }

    #[test]
    fn a_refusal_that_may_end_is_a_lost_source_and_another_one_is_an_error() {
        for why in ["DRIVER-NOT-CONNECTED", "DATA-STALE", "A-WORD-OF-LATER"] {
            let (address, _server) = upsd(Vec::leak(vec![&*format!("ERR {why}\n").leak()]));
            let reading = ups_at(address).ask().unwrap();
            assert_eq!((reading.state, reading.confidence), (State::OnBattery, Confidence::Lost));
            assert!(reading.told_by.ends_with(why), "{reading}");
        }
        for why in ["UNKNOWN-UPS", "ACCESS-DENIED"] {
            let (address, _server) = upsd(Vec::leak(vec![&*format!("ERR {why}\n").leak()]));
            let error = open(&format!("sim@{address}")).err().unwrap().to_string();
            assert!(error.starts_with("sim@127.0.0.1 refuses") && error.ends_with(why), "{error}");
        }
    }

    #[test]
    fn every_set_of_tokens_has_its_state() {
        for (status, state) in [
            ("OL", State::Steady),
            ("OL CHRG", State::Steady),
            ("ALARM OL TRIM", State::Steady),
            ("OL BYPASS", State::OnBattery),
            ("OL OFF", State::OnBattery),
            ("OL LB CHRG", State::OnBattery),
            ("OL RB", State::OnBattery),
            ("OB", State::OnBattery),
            ("OB DISCHRG CAL", State::OnBattery),
            ("OL OB", State::OnBattery),
            ("LB OB", State::Low),
            ("FSD OB LB", State::Ending),
            ("FSD OL", State::Ending),
        ] {
            let reading = read_status(status, "ups");
            assert_eq!((reading.state, reading.confidence), (state, Confidence::Fresh), "{status}");
        }
        for status in ["", "WAIT", "ALARM", "OLD", "ol", "LB", "CHRG"] {
            assert_eq!(read_status(status, "ups").confidence, Confidence::Lost, "{status}");
        }
    }

    #[test]
    fn a_ups_is_named_as_upsc_names_it() {
        let parts = |text: &str| {
            let Ups { ups, host, port, .. } = Ups::parse(text).unwrap();
            (ups, host, port)
        };
        assert_eq!(parts("eaton@localhost"), ("eaton".into(), "localhost".into(), 3493));
        assert_eq!(parts("e@10.0.0.1:77"), ("e".into(), "10.0.0.1".into(), 77));
        assert_eq!(parts("e@[::1]:77"), ("e".into(), "::1".into(), 77));
        assert_eq!(parts("e@::1"), ("e".into(), "::1".into(), 3493));
        for text in ["", "eaton", "@host", "e@", "e@host:", "e@host:x", "e@host:70000", "a b@host"]
        {
            let error = Ups::parse(text).unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }
}
