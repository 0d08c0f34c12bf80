//! The text of a profile, key by key, before anything is known to make sense.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::ProfileError;

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
    pub sources: BTreeMap<String, String>,
}

/// A link by its name, or in place.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum LinkWords {
    Name(String),
    Here(Box<LinkDocument>),
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
        toml::from_str(text).map_err(|source| syntax(name, source))
    }

    /// This one, and what it leaves out from `base`.
    pub(super) fn over(self, base: Document) -> Document {
        let (medium, power, cost) = (base.medium, base.power, base.cost);
        let mut sources = base.sources;
        sources.extend(self.sources);
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
            sources,
        }
    }
}

impl MediumWords {
    /// A total latency and the timings it is made of say the same: who gives one hides the base's other.
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
            // What is said anew of all granules says nothing of the base's first ones.
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
