//! The file of `perdura guard --tenants`: what servers are entitled to of the battery.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use perdura_guard::{Tenant, Whose};
use perdura_media::parse_duration;
use serde::Deserialize;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    tenant: Vec<Entry>,
}

/// One `[[tenant]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    user_id: Option<u32>,
    directory: Option<PathBuf>,
    reservation: Option<String>,
    limit: Option<String>,
    weight: Option<u32>,
    trusted: Option<bool>,
}

/// Reads the file. The first entry that fits a region counts.
pub fn read(path: &Path) -> Result<Vec<Tenant>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("--tenants {} cannot be read", path.display()))?;
    parse(&text).with_context(|| format!("--tenants {}", path.display()))
}

fn parse(text: &str) -> Result<Vec<Tenant>> {
    let file: File = toml::from_str(text)?;
    let numbered = file.tenant.into_iter().enumerate();
    numbered
        .map(|(at, entry)| tenant(entry).with_context(|| format!("tenant {}", at + 1)))
        .collect()
}

fn tenant(entry: Entry) -> Result<Tenant> {
    let whose = match (entry.user_id, entry.directory) {
        (Some(id), None) => Whose::User(id),
        (None, Some(dir)) if dir.is_absolute() => Whose::Directory(dir),
        (None, Some(dir)) => bail!("directory {}: expected an absolute path", dir.display()),
        (None, None) => Whose::Anybody,
        (Some(_), Some(_)) => bail!("user_id and directory: expected one of them"),
    };
    let time = |name: &str, text: Option<String>| -> Result<Option<Duration>> {
        let Some(text) = text else { return Ok(None) };
        let time = parse_duration(&text).with_context(|| format!("{name} {text:?}"))?;
        Ok(Some(time))
    };
    let reservation = time("reservation", entry.reservation)?.unwrap_or_default();
    let limit = time("limit", entry.limit)?;
    if let Some(limit) = limit.filter(|limit| *limit < reservation) {
        bail!("limit {limit:?} is below the reservation of {reservation:?}");
    }
    let weight = entry.weight.unwrap_or(1);
    if !(1..=1_000).contains(&weight) {
        bail!("weight {weight}: expected 1 to 1000");
    }
    Ok(Tenant { whose, reservation, limit, weight, is_trusted: entry.trusted.unwrap_or(true) })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test's own failure
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_in_order() {
        let read = parse(
            "[[tenant]]\ndirectory = '/srv/cache'\nreservation = '2s'\nlimit = '8s'\nweight = 3\n\
             [[tenant]]\nuser_id = 1000\ntrusted = false\n[[tenant]]\nweight = 2\n",
        )
        .unwrap();
        let seconds = Duration::from_secs;
        let cache = Tenant {
            whose: Whose::Directory("/srv/cache".into()),
            reservation: seconds(2),
            limit: Some(seconds(8)),
            weight: 3,
            is_trusted: true,
        };
        let user = Tenant { whose: Whose::User(1000), is_trusted: false, ..Tenant::default() };
        assert_eq!(read, [cache, user, Tenant { weight: 2, ..Tenant::default() }]);
        assert_eq!(parse("").unwrap(), []);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, word) in [
            ("[[tenant]]\nwieght = 1", "wieght"),
            ("[[tenant]]\nweight = 0", "weight 0"),
            ("[[tenant]]\nlimit = '1s'\nreservation = '2s'", "below the reservation"),
            ("[[tenant]]\nlimit = 'soon'", "soon"),
            ("[[tenant]]\nuser_id = 1\ndirectory = '/a'", "expected one of them"),
            ("[[tenant]]\ndirectory = 'a'", "absolute"),
            ("[tenant]\nweight = 1", "sequence"),
        ] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(word), "{word:?} is missing in: {error}");
        }
    }
}
