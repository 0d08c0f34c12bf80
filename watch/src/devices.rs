//! The devices with values that are not in memory, as INFO tells of them.

use serde::Serialize;

use crate::fields::{Fields, Parts};

/// The fields of one device in INFO.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Device {
    /// The name of its line: `device0`.
    pub name: String,
    /// `online`, `full`, `leaving` or `failed`.
    pub state: String,
    /// The directory.
    pub path: String,
    /// Bytes that are taken.
    pub used_bytes: u64,
    /// Bytes read since the start.
    pub read_bytes: u64,
    /// Bytes written since the start.
    pub written_bytes: u64,
    /// Time for which a request was under way, seconds.
    pub busy_s: f64,
    /// The power states of its drives; empty where nobody knows.
    pub power_state: String,
    /// Watts and their source; `None` where there is none.
    pub watts: Option<(f64, String)>,
}

/// The devices in a text of INFO, in their order; none if it has none.
pub fn devices(info: &str) -> Vec<Device> {
    of_fields(&Fields::of(info))
}

/// The devices in the fields of INFO.
pub fn of_fields(fields: &Fields<'_>) -> Vec<Device> {
    let all = fields.numbered("device");
    all.into_iter().filter_map(|(number, parts)| of_parts(number, parts)).collect()
}

fn of_parts(number: u32, parts: Parts<'_>) -> Option<Device> {
    let count = |name| parts.get(name)?.parse::<u64>().ok();
    let watts = parts.get("watts").and_then(|watts| watts.parse().ok());
    Some(Device {
        name: format!("device{number}"),
        state: parts.get("state")?.to_owned(),
        path: parts.get("path")?.to_owned(),
        used_bytes: count("used_bytes")?,
        read_bytes: count("read_bytes")?,
        written_bytes: count("written_bytes")?,
        busy_s: parts.get("busy_seconds")?.parse().ok()?,
        power_state: parts.get("power_state").unwrap_or_default().to_owned(),
        watts: watts.zip(parts.get("watts_source").map(str::to_owned)),
    })
}
