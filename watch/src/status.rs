//! The promise of a server and whether it holds: one judgement for `perdura status`, `perdura top`,
//! the page and the metrics.

use perdura_media::Bytes;
use serde::Serialize;

use crate::fields::Fields;

/// The promise and the state of a store. The names of the fields are those of the JSON and stay.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Status {
    /// Whether the promise holds.
    pub holds: bool,
    /// The reasons for which the promise does not hold.
    pub broken_by: Vec<String>,
    /// When a write is acknowledged: `warned`, `fsync` or `none`.
    pub durability: String,
    /// Bytes that are not on the SSD yet.
    pub dirty_bytes: u64,
    /// Bytes that may be dirty.
    pub budget_bytes: u64,
    /// Time that a flush of the dirty bytes would take, seconds.
    pub time_to_safe_s: f64,
    /// The longest time to flush that there was since the start, seconds.
    pub time_to_safe_max_s: f64,
    /// Most time that a flush of a full budget takes, with the reserve, seconds.
    pub promised_s: f64,
    /// The part of that time that is kept back for all but the writing, seconds.
    pub reserve_s: f64,
    /// The warning that the store gets, seconds.
    pub warning_s: f64,
    /// Proven rate of a flush, bytes a second.
    pub proven_rate_bytes_per_s: u64,
    /// Time since the last checkpoint, seconds; `None`: there was none since the image was opened.
    pub last_checkpoint_s: Option<f64>,
    /// Whether another process keeps the memory if the server dies.
    pub holder: bool,
    /// How much of a filter of system calls the server has: `on`, `partly` or `off`; `None`: an
    /// older server does not say.
    pub seccomp: Option<String>,
    /// The error with which the SSD failed, if it did.
    pub failure: Option<String>,
    /// What the power is like: `steady`, `on-battery`, `low` or `ending`.
    pub power_state: String,
    /// The source that says so.
    pub power_told_by: String,
    /// State of the backup: `ok`, `late`, `failing` or `stopped`; `None`: none is made.
    pub backup_state: Option<String>,
    /// What was acknowledged longer ago is in the backup, seconds; `None`: nothing is yet.
    pub backup_lag_s: Option<f64>,
}

/// Why a text is not that of a server's promise.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// A field is missing.
    #[error("INFO has no field {0}: this is no Perdura server, or an older one")]
    Missing(&'static str),
    /// A field is no number.
    #[error("{name} of the server is {value:?}: expected a number")]
    NoNumber {
        /// The field.
        name: &'static str,
        /// Its words.
        value: String,
    },
}

impl Status {
    /// Reads the text of INFO perdura, and of INFO backup where it is there.
    ///
    /// # Errors
    /// A field is missing or no number.
    pub fn of(info: &str) -> Result<Self, StatusError> {
        Self::of_fields(&Fields::of(info))
    }

    /// Reads the fields of INFO perdura.
    ///
    /// # Errors
    /// A field is missing or no number.
    pub fn of_fields(fields: &Fields<'_>) -> Result<Self, StatusError> {
        let text = |name| fields.get(name).ok_or(StatusError::Missing(name));
        let failure = Some(text("failure")?.to_owned()).filter(|text| !text.is_empty());
        let age_s = number(text("last_checkpoint_seconds")?, "last_checkpoint_seconds")?;
        let seconds = |name| number::<f64>(text(name)?, name);
        let count = |name| number::<u64>(text(name)?, name);
        let lag = fields.get("backup_lag_seconds");
        let backup_lag_s = lag.map(|lag| number(lag, "backup_lag_seconds")).transpose()?;
        let mut status = Self {
            holds: false,
            broken_by: Vec::new(),
            durability: text("durability")?.to_owned(),
            dirty_bytes: count("dirty_bytes")?,
            budget_bytes: count("budget_bytes")?,
            time_to_safe_s: seconds("time_to_safe_seconds")?,
            time_to_safe_max_s: seconds("time_to_safe_max_seconds")?,
            promised_s: seconds("promised_seconds")?,
            reserve_s: seconds("reserve_seconds")?,
            warning_s: seconds("warning_seconds")?,
            proven_rate_bytes_per_s: count("proven_rate_bytes_per_s")?,
            last_checkpoint_s: Some(age_s).filter(|age| *age >= 0.0),
            holder: text("holder")? == "yes",
            seccomp: fields.get("seccomp").map(str::to_owned),
            failure,
            power_state: text("power_state")?.to_owned(),
            power_told_by: text("power_told_by")?.to_owned(),
            backup_state: fields.get("backup_state").map(str::to_owned),
            backup_lag_s: backup_lag_s.filter(|lag| *lag >= 0.0),
        };
        status.judge();
        Ok(status)
    }

    fn judge(&mut self) {
        let Self { dirty_bytes, budget_bytes, promised_s, warning_s, .. } = *self;
        if let Some(failure) = &self.failure {
            self.broken_by.push(format!("the SSD failed: {failure}"));
        }
        if dirty_bytes > budget_bytes {
            let (dirty, budget) = (Bytes(dirty_bytes), Bytes(budget_bytes));
            self.broken_by.push(format!("{dirty} are dirty, the budget is {budget}"));
        }
        if promised_s > warning_s {
            let why = format!("a flush takes {promised_s:.3} s, the warning is {warning_s:.3} s");
            self.broken_by.push(why);
        }
        self.holds = self.broken_by.is_empty();
    }
}

/// Reads a number of the server.
fn number<N: std::str::FromStr>(text: &str, name: &'static str) -> Result<N, StatusError> {
    text.parse().map_err(|_| StatusError::NoNumber { name, value: text.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(dirty: u64, promised: &str, failure: &str) -> String {
        format!(
            "# Perdura\r\ndurability:warned\r\nwarning_seconds:30\r\nfailure:{failure}\r\n\
             holder:yes\r\nlast_checkpoint_seconds:-1.000\r\n\
             proven_rate_bytes_per_s:1000000000\r\nreserve_seconds:2.000\r\n\
             promised_seconds:{promised}\r\ntime_to_safe_seconds:0.100\r\n\
             time_to_safe_max_seconds:0.200\r\npower_state:steady\r\npower_told_by:\r\n\
             budget_bytes:1000\r\ndirty_bytes:{dirty}\r\n"
        )
    }

    #[test]
    fn the_promise_holds_within_the_budget_and_the_warning_on_a_sound_ssd() {
        let status = Status::of(&info(1000, "2.300", "")).unwrap();
        assert!(status.holds && status.holder, "{status:?}");
        assert_eq!((status.last_checkpoint_s, status.failure), (None, None));
    }

    #[test]
    fn a_backup_has_a_state_and_a_lag_once_there_is_a_restore_point() {
        let of = |more: &str| {
            let status = Status::of(&format!("{}{more}", info(1, "2.300", ""))).unwrap();
            (status.backup_state, status.backup_lag_s)
        };
        assert_eq!(of(""), (None, None));
        for (lag, found) in [("-1", None), ("0.000", Some(0.0)), ("2.500", Some(2.5))] {
            let more = format!("backup_state:late\r\nbackup_lag_seconds:{lag}\r\n");
            assert_eq!(of(&more), (Some("late".to_owned()), found));
        }
    }

    #[test]
    fn each_way_to_break_the_promise_is_named() {
        for (text, why) in [
            (info(1001, "2.300", ""), "the budget is 1000"),
            (info(1, "30.500", ""), "a flush takes 30.500 s, the warning is 30.000 s"),
            (info(1, "2.300", "write at 4096: EIO"), "the SSD failed: write at 4096: EIO"),
        ] {
            let status = Status::of(&text).unwrap();
            assert!(!status.holds && status.broken_by[0].contains(why), "{status:?}");
        }
    }

    #[test]
    fn what_is_no_perdura_server_is_said_to_be_none() {
        let error = Status::of("# Server\r\nredis_version:7.2.4\r\n").unwrap_err();
        assert!(error.to_string().contains("no Perdura server"), "{error}");
    }
}
