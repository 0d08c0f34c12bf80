//! The text of a profile, key by key, before its values are checked.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::ProfileError;
use super::server::Server;

/// A profile as written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Document {
    pub about: Option<String>,
    pub base: Option<String>,
    pub link: Option<LinkWords>,
    pub modules: Option<i64>,
    pub module_capacity: Option<String>,
    pub medium: MediumWords,
    pub power: PowerWords,
    pub cost: CostWords,
    pub server: Option<Server>,
    pub sources: BTreeMap<String, String>,
    /// Keys of this text, as its sources name them.
    #[serde(skip)]
    pub said: Vec<String>,
}

/// A link by its name, or described in place.
#[derive(Clone, Debug)]
pub(super) enum LinkWords {
    Name(String),
    Here(Box<LinkDocument>),
}

/// Written by hand: a derived untagged enum would report any wrong key in `[link]` only as "nothing
/// matched".
impl<'de> Deserialize<'de> for LinkWords {
    fn deserialize<D: Deserializer<'de>>(words: D) -> Result<Self, D::Error> {
        struct NameOrTable;
        impl<'de> Visitor<'de> for NameOrTable {
            type Value = LinkWords;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a link, or a table [link]")
            }

            fn visit_str<E>(self, name: &str) -> Result<LinkWords, E> {
                Ok(LinkWords::Name(name.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<LinkWords, A::Error> {
                let link = LinkDocument::deserialize(MapAccessDeserializer::new(table))?;
                Ok(LinkWords::Here(Box::new(link)))
            }
        }
        words.deserialize_any(NameOrTable)
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct MediumWords {
    pub granule: Option<String>,
    pub read_latency: Option<String>,
    pub write_latency: Option<String>,
    pub sequential_read_latency: Option<String>,
    pub sequential_write_latency: Option<String>,
    pub t_rcd: Option<String>,
    pub t_cl: Option<String>,
    pub t_cwl: Option<String>,
    pub t_wr: Option<String>,
    pub positioning: Option<[String; 2]>,
    pub units: Option<i64>,
    pub interleave: Option<String>,
    pub read_bandwidth: Option<String>,
    pub write_bandwidth: Option<String>,
    pub random_read_bandwidth: Option<String>,
    pub random_write_bandwidth: Option<String>,
    pub write_buffer: Option<String>,
    pub write_contention: Option<ContentionWords>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ContentionWords {
    pub streams: i64,
    pub slowdown: f64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PowerWords {
    pub idle: Option<String>,
    pub active: Option<String>,
    pub peak: Option<String>,
    pub by_interval: Option<Vec<[String; 2]>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct CostWords {
    pub eur_per_gb: Option<BTreeMap<String, f64>>,
    pub endurance_writes: Option<f64>,
}

/// A link as written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LinkDocument {
    pub about: Option<String>,
    pub to_device: Option<String>,
    pub from_device: Option<String>,
    pub half_duplex: bool,
    pub latency: Option<String>,
    pub request: Option<String>,
    pub command: Option<String>,
    pub pays: Option<String>,
    pub line: Option<String>,
    pub lines_in_flight: Option<i64>,
    pub sources: BTreeMap<String, String>,
}

impl Document {
    pub(super) fn parse(name: &str, text: &str) -> Result<Self, ProfileError> {
        let document: Self = toml::from_str(text).map_err(|source| syntax(name, source))?;
        let table = text.parse().map_err(|source| syntax(name, source))?;
        Ok(Self { said: said("", &table), ..document })
    }

    /// This profile, with the keys that it leaves out from `base`.
    pub(super) fn over(self, base: Document) -> Document {
        let (medium, power, cost) = (base.medium, base.power, base.cost);
        // The base's source does not hold for a number that is given anew.
        let mut sources = base.sources;
        let hidden = self.medium.hides();
        sources.retain(|key, _| !self.said.contains(key) && !hidden.contains(&key.as_str()));
        sources.extend(self.sources);
        // The base's server was measured with its own medium and link.
        let is_same = self.link.is_none()
            && !self.said.iter().any(|key| key == "modules" || key.starts_with("medium."));
        let mut said = base.said;
        said.extend(self.said);
        Document {
            about: self.about.or(base.about),
            base: base.base,
            link: self.link.or(base.link),
            modules: self.modules.or(base.modules),
            module_capacity: self.module_capacity.or(base.module_capacity),
            medium: self.medium.over(medium),
            power: PowerWords {
                idle: self.power.idle.or(power.idle),
                active: self.power.active.or(power.active),
                peak: self.power.peak.or(power.peak),
                by_interval: self.power.by_interval.or(power.by_interval),
            },
            cost: CostWords {
                eur_per_gb: self.cost.eur_per_gb.or(cost.eur_per_gb),
                endurance_writes: self.cost.endurance_writes.or(cost.endurance_writes),
            },
            server: self.server.or(if is_same { base.server } else { None }),
            sources,
            said,
        }
    }
}

/// Keys with values in a table. A link's keys are listed by the link itself.
pub(super) fn said(prefix: &str, table: &toml::Table) -> Vec<String> {
    let mut keys = Vec::new();
    for (key, value) in table {
        let whole = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match value {
            _ if ["about", "base", "link", "sources"].contains(&whole.as_str()) => {}
            // A table of numbers that were fitted together has one source.
            toml::Value::Table(inner)
                if whole != "cost.eur_per_gb" && !whole.starts_with("server.") =>
            {
                keys.extend(said(&whole, inner))
            }
            _ => keys.push(whole),
        }
    }
    keys
}

impl MediumWords {
    /// Keys of a base that have no meaning beside the keys given here; see [`MediumWords::over`].
    fn hides(&self) -> Vec<&'static str> {
        let reads = self.read_latency.is_some() || self.t_rcd.is_some() || self.t_cl.is_some();
        let writes = self.write_latency.is_some() || self.t_wr.is_some() || self.t_cwl.is_some();
        let rules: [(bool, &[&'static str]); 4] = [
            (reads, &["medium.read_latency", "medium.t_rcd", "medium.t_cl"]),
            (writes, &["medium.write_latency", "medium.t_cwl", "medium.t_wr"]),
            (self.read_bandwidth.is_some(), &["medium.random_read_bandwidth"]),
            (self.write_bandwidth.is_some(), &["medium.random_write_bandwidth"]),
        ];
        rules
            .iter()
            .filter(|(hides, _)| *hides)
            .flat_map(|(_, keys)| keys.iter().copied())
            .collect()
    }

    /// Joins two tables. A total latency and its two timings mean the same, so giving one form
    /// hides the base's other form.
    fn over(self, base: MediumWords) -> MediumWords {
        let reads = self.read_latency.is_some() || self.t_rcd.is_some() || self.t_cl.is_some();
        let writes = self.write_latency.is_some() || self.t_wr.is_some() || self.t_cwl.is_some();
        let read = |own: Option<String>, base| if reads { own } else { base };
        let write = |own: Option<String>, base| if writes { own } else { base };
        MediumWords {
            granule: self.granule.or(base.granule),
            read_latency: read(self.read_latency, base.read_latency),
            t_rcd: read(self.t_rcd, base.t_rcd),
            t_cl: read(self.t_cl, base.t_cl),
            write_latency: write(self.write_latency, base.write_latency),
            t_cwl: write(self.t_cwl, base.t_cwl),
            t_wr: write(self.t_wr, base.t_wr),
            sequential_read_latency: self.sequential_read_latency.or(base.sequential_read_latency),
            sequential_write_latency: self
                .sequential_write_latency
                .or(base.sequential_write_latency),
            positioning: self.positioning.or(base.positioning),
            units: self.units.or(base.units),
            interleave: self.interleave.or(base.interleave),
            // A bandwidth given anew replaces the base's random one, too.
            random_read_bandwidth: match &self.read_bandwidth {
                None => self.random_read_bandwidth.or(base.random_read_bandwidth),
                Some(_) => self.random_read_bandwidth,
            },
            random_write_bandwidth: match &self.write_bandwidth {
                None => self.random_write_bandwidth.or(base.random_write_bandwidth),
                Some(_) => self.random_write_bandwidth,
            },
            read_bandwidth: self.read_bandwidth.or(base.read_bandwidth),
            write_bandwidth: self.write_bandwidth.or(base.write_bandwidth),
            write_buffer: self.write_buffer.or(base.write_buffer),
            write_contention: self.write_contention.or(base.write_contention),
        }
    }
}

impl LinkDocument {
    pub(super) fn parse(name: &str, text: &str) -> Result<Self, ProfileError> {
        toml::from_str(text).map_err(|source| syntax(name, source))
    }
}

fn syntax(name: &str, source: toml::de::Error) -> ProfileError {
    ProfileError::Syntax { name: name.to_owned(), source: Box::new(source) }
}
