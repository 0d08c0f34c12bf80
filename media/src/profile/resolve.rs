//! From the text of a profile to quantities: bases, defaults, and the search for contradictions.

use std::fmt::Display;
use std::str::FromStr;

use super::document::{Document, LinkDocument, LinkWords, MediumWords};
use super::{Cost, Link, Medium, Pays, Power, ProfileError, System, builtin};
use crate::units::{Bytes, BytesPerSecond, Picoseconds, Watts};

/// The profile with all its bases.
pub(super) fn system(name: &str, document: &Document) -> Result<System, ProfileError> {
    let whole = with_bases(name, document)?;
    let words = Words { name };
    let link = match &whole.link {
        None => None,
        Some(LinkWords::Name(link)) if link == "none" => None,
        Some(LinkWords::Name(link)) => Some(self::link(name, link)?),
        Some(LinkWords::Here(link)) => Some(words.link("link", link)?),
    };
    let (medium, modules) =
        (words.medium(&whole.medium)?, words.count("modules", whole.modules, 1)?);
    if modules.saturating_mul(medium.units) > UNITS_MAX {
        let text = format!("{modules} modules of {} units", medium.units);
        return Err(words.value("modules", text, format!("at most {UNITS_MAX} units in all")));
    }
    Ok(System {
        name: name.to_owned(),
        about: whole.about.clone().unwrap_or_default(),
        medium,
        link,
        modules,
        module_capacity: words.above_zero("module_capacity", &whole.module_capacity, None)?,
        power: words.power(&whole)?,
        cost: words.cost(&whole)?,
        server: match whole.server {
            None => None,
            Some(server) => {
                server.sound(name)?;
                Some(server)
            }
        },
        sources: whole.sources.into_iter().collect(),
    })
}

/// A built-in link by its name.
pub(super) fn link(profile: &str, name: &str) -> Result<Link, ProfileError> {
    let Some(text) = builtin::link_text(name) else {
        let known = builtin::links().join(", ");
        return Err(ProfileError::NoSuchLink {
            profile: profile.to_owned(),
            name: name.to_owned(),
            known,
        });
    };
    let place = format!("links/{name}");
    Words { name: &place }.link(name, &LinkDocument::parse(&place, text)?)
}

fn with_bases(name: &str, document: &Document) -> Result<Document, ProfileError> {
    let mut whole = document.clone();
    for _ in 0..BASES_MAX {
        let Some(base) = whole.base.take() else { return Ok(whole) };
        let Some(text) = builtin::text(&base) else {
            let known = builtin::names().join(", ");
            return Err(Words { name }.value("base", base, format!("one of {known}")));
        };
        whole = whole.over(Document::parse(&base, text)?);
    }
    // Bases are built in, and a test resolves each, so none goes in circles.
    panic!("the bases of profile {name} have no end")
}

/// Reads values of one profile; errors name it.
struct Words<'a> {
    name: &'a str,
}

impl Words<'_> {
    fn medium(&self, words: &MediumWords) -> Result<Medium, ProfileError> {
        let granule = self.above_zero("medium.granule", &words.granule, None)?;
        let positioning = match &words.positioning {
            None => (Picoseconds(0), Picoseconds(0)),
            Some([near, far]) => {
                let near = self.time("medium.positioning", near)?;
                (near, self.time("medium.positioning", far)?)
            }
        };
        if positioning.1 < positioning.0 {
            return Err(self.value(
                "medium.positioning",
                positioning.1,
                "the farthest is not nearer than the nearest",
            ));
        }
        let is_disk = positioning.1.0 > 0;
        let read_latency = self.latency(
            ("medium.read_latency", &words.read_latency),
            [("medium.t_rcd", &words.t_rcd), ("medium.t_cl", &words.t_cl)],
            is_disk,
        )?;
        let write_latency = self.latency(
            ("medium.write_latency", &words.write_latency),
            [("medium.t_cwl", &words.t_cwl), ("medium.t_wr", &words.t_wr)],
            is_disk,
        )?;
        let behind = |key, words: &Option<String>, first| self.time_or(key, words, first);
        let sequential_read_latency =
            behind("medium.sequential_read_latency", &words.sequential_read_latency, read_latency)?;
        let sequential_write_latency = behind(
            "medium.sequential_write_latency",
            &words.sequential_write_latency,
            write_latency,
        )?;
        let contention = match &words.write_contention {
            None => None,
            Some(given)
                if given.streams >= 2 && given.slowdown >= 1.0 && given.slowdown <= 100.0 =>
            {
                let streams =
                    self.count("medium.write_contention.streams", Some(given.streams), 2)?;
                Some((streams, given.slowdown))
            }
            Some(given) => {
                let text = format!("{} streams, slowdown {}", given.streams, given.slowdown);
                return Err(self.value(
                    "medium.write_contention",
                    text,
                    "at least 2 streams and a factor of 1 to 100",
                ));
            }
        };
        let read_bandwidth =
            self.rate("medium.read_bandwidth", &words.read_bandwidth, granule, read_latency)?;
        let write_bandwidth =
            self.rate("medium.write_bandwidth", &words.write_bandwidth, granule, write_latency)?;
        Ok(Medium {
            granule,
            read_latency,
            write_latency,
            sequential_read_latency,
            sequential_write_latency,
            positioning,
            units: self.count("medium.units", words.units, 1)?,
            interleave: self.above_zero(
                "medium.interleave",
                &words.interleave,
                Some(Bytes(4096)),
            )?,
            read_bandwidth,
            write_bandwidth,
            random_read_bandwidth: self.random_rate(
                "medium.random_read_bandwidth",
                &words.random_read_bandwidth,
                read_bandwidth,
            )?,
            random_write_bandwidth: self.random_rate(
                "medium.random_write_bandwidth",
                &words.random_write_bandwidth,
                write_bandwidth,
            )?,
            write_buffer: self.or("medium.write_buffer", &words.write_buffer, Bytes(0))?,
            write_contention: contention,
        })
    }

    /// A latency given as a total, or as the two timings of a DRAM chip whose sum it is. A disk may
    /// have none.
    fn latency(
        &self,
        total: (&str, &Option<String>),
        parts: [(&str, &Option<String>); 2],
        is_disk: bool,
    ) -> Result<Picoseconds, ProfileError> {
        let [(first_key, first), (second_key, second)] = parts;
        let latency = match (total.1, first, second) {
            (Some(text), None, None) => self.parse(total.0, text)?,
            (None, Some(first), Some(second)) => {
                let first = self.parse::<Picoseconds>(first_key, first)?;
                let second = self.parse::<Picoseconds>(second_key, second)?;
                Picoseconds(first.0.saturating_add(second.0))
            }
            (None, None, None) if is_disk => Picoseconds(0),
            (None, None, None) => return Err(self.missing(total.0, "a time, such as 65ns")),
            _ => {
                let expected = format!("either it, or both {first_key} and {second_key}");
                let text = total.1.clone().unwrap_or_else(|| "not given".to_owned());
                return Err(self.value(total.0, text, expected));
            }
        };
        let latency = self.bounded(total.0, latency)?;
        if latency.0 == 0 && !is_disk {
            return Err(self.value(total.0, latency, "above zero"));
        }
        Ok(latency)
    }

    /// A bandwidth as given, or one granule per latency.
    fn rate(
        &self,
        key: &str,
        words: &Option<String>,
        granule: Bytes,
        latency: Picoseconds,
    ) -> Result<BytesPerSecond, ProfileError> {
        let rate = match words {
            Some(text) => self.parse::<BytesPerSecond>(key, text)?,
            None if latency.0 == 0 => return Err(self.missing(key, "a rate, such as 138MB/s")),
            None => {
                BytesPerSecond((u128::from(granule.0) * PS_PER_S / u128::from(latency.0)) as u64)
            }
        };
        if rate.0 == 0 {
            return Err(self.value(key, rate, "above zero"));
        }
        Ok(rate)
    }

    /// A random bandwidth as given, at most the sequential one.
    fn random_rate(
        &self,
        key: &str,
        words: &Option<String>,
        sequential: BytesPerSecond,
    ) -> Result<BytesPerSecond, ProfileError> {
        let rate = self.or(key, words, sequential)?;
        if rate.0 == 0 || rate > sequential {
            return Err(self.value(key, rate, "above zero, and no more than in sequence"));
        }
        Ok(rate)
    }

    fn link(&self, link_name: &str, words: &LinkDocument) -> Result<Link, ProfileError> {
        let to_device = self.rate("link.to_device", &words.to_device, Bytes(0), Picoseconds(0))?;
        let from_device =
            self.rate("link.from_device", &words.from_device, Bytes(0), Picoseconds(0))?;
        let request = self.time_or("link.request", &words.request, Picoseconds(0))?;
        let command = self.time_or("link.command", &words.command, Picoseconds(0))?;
        if command > request {
            return Err(self.value(
                "link.command",
                command,
                "at most link.request, of which it is a part",
            ));
        }
        let pays = match words.pays.as_deref() {
            None | Some("request") => Pays::Request,
            Some("line") => Pays::Line {
                line: self.above_zero("link.line", &words.line, Some(Bytes(64)))?,
                in_flight: self.count("link.lines_in_flight", words.lines_in_flight, 1)?,
            },
            Some(other) => return Err(self.value("link.pays", other, "\"request\" or \"line\"")),
        };
        Ok(Link {
            name: link_name.to_owned(),
            about: words.about.clone().unwrap_or_default(),
            to_device,
            from_device,
            half_duplex: words.half_duplex,
            latency: self.time_or("link.latency", &words.latency, Picoseconds(0))?,
            request,
            command,
            pays,
        })
    }

    fn power(&self, whole: &Document) -> Result<Power, ProfileError> {
        let words = &whole.power;
        let idle = self.or("power.idle", &words.idle, Watts(0.0))?;
        let active = self.or("power.active", &words.active, idle)?;
        let peak = self.or("power.peak", &words.peak, active)?;
        if active < idle || peak < active {
            let text = format!("{idle}, {active}, {peak}");
            return Err(self.value("power.idle, active, peak", text, "none below the one before"));
        }
        let mut by_interval: Vec<(Picoseconds, Watts)> = Vec::new();
        for [interval, watts] in words.by_interval.iter().flatten() {
            let interval = self.parse::<Picoseconds>("power.by_interval", interval)?;
            let watts = self.parse::<Watts>("power.by_interval", watts)?;
            if by_interval.last().is_some_and(|(before, _)| *before >= interval) {
                return Err(self.value(
                    "power.by_interval",
                    interval,
                    "longer than the interval before it",
                ));
            }
            by_interval.push((interval, watts));
        }
        Ok(Power { idle, active, peak, by_interval })
    }

    fn cost(&self, whole: &Document) -> Result<Cost, ProfileError> {
        let mut eur_per_gb = Vec::new();
        for (year, eur) in whole.cost.eur_per_gb.iter().flatten() {
            let key = "cost.eur_per_gb";
            let of: u16 = match year.parse() {
                Ok(of) if (1950..=2200).contains(&of) => of,
                _ => return Err(self.value(key, year, "a year as key")),
            };
            eur_per_gb.push((of, self.positive(key, *eur)?));
        }
        eur_per_gb.sort_by_key(|(year, _)| *year);
        let endurance = whole.cost.endurance_writes;
        let endurance_writes =
            endurance.map(|writes| self.positive("cost.endurance_writes", writes)).transpose()?;
        Ok(Cost { eur_per_gb, endurance_writes })
    }

    fn positive(&self, key: &str, value: f64) -> Result<f64, ProfileError> {
        if value.is_finite() && value > 0.0 {
            Ok(value)
        } else {
            Err(self.value(key, value, "above zero"))
        }
    }

    fn count(&self, key: &str, value: Option<i64>, default: u32) -> Result<u32, ProfileError> {
        match value {
            None => Ok(default),
            Some(given) => match u32::try_from(given) {
                Ok(count) if (1..=COUNT_MAX).contains(&count) => Ok(count),
                _ => Err(self.value(key, given, format!("1 to {COUNT_MAX}"))),
            },
        }
    }

    fn above_zero(
        &self,
        key: &str,
        words: &Option<String>,
        default: Option<Bytes>,
    ) -> Result<Bytes, ProfileError> {
        let bytes = match (words, default) {
            (Some(text), _) => self.parse::<Bytes>(key, text)?,
            (None, Some(default)) => default,
            (None, None) => return Err(self.missing(key, "a size, such as 64B")),
        };
        if bytes.0 == 0 { Err(self.value(key, bytes, "above zero")) } else { Ok(bytes) }
    }

    fn or<T: FromStr<Err: Display>>(
        &self,
        key: &str,
        words: &Option<String>,
        default: T,
    ) -> Result<T, ProfileError> {
        words.as_ref().map_or(Ok(default), |text| self.parse(key, text))
    }

    /// Parses a time. Its limit keeps sums of times from overflowing.
    fn time(&self, key: &str, text: &str) -> Result<Picoseconds, ProfileError> {
        self.bounded(key, self.parse(key, text)?)
    }

    fn time_or(
        &self,
        key: &str,
        words: &Option<String>,
        default: Picoseconds,
    ) -> Result<Picoseconds, ProfileError> {
        words.as_ref().map_or(Ok(default), |text| self.time(key, text))
    }

    fn bounded(&self, key: &str, time: Picoseconds) -> Result<Picoseconds, ProfileError> {
        if time.0 > TIME_PS_MAX { Err(self.value(key, time, "at most 1000 s")) } else { Ok(time) }
    }

    fn parse<T: FromStr<Err: Display>>(&self, key: &str, text: &str) -> Result<T, ProfileError> {
        text.parse().map_err(|error: T::Err| self.value(key, text, error))
    }

    fn value(&self, key: &str, value: impl Display, expected: impl Display) -> ProfileError {
        ProfileError::Value {
            name: self.name.to_owned(),
            key: key.to_owned(),
            value: value.to_string(),
            expected: expected.to_string(),
        }
    }

    fn missing(&self, key: &str, expected: &'static str) -> ProfileError {
        ProfileError::Missing { name: self.name.to_owned(), key: key.to_owned(), expected }
    }
}

const BASES_MAX: usize = 4;
const COUNT_MAX: u32 = 4096;
/// Most units: a model keeps a cache line for each.
const UNITS_MAX: u32 = 65_536;
const TIME_PS_MAX: u64 = 1_000_000_000_000_000;
const PS_PER_S: u128 = 1_000_000_000_000;
