//! The figures of an analysis, in the form that is shown and written as JSON.

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::tally::{Most, Worst};

/// A count, or an estimate between bars that hold in 95 of 100 cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// The count, or the estimate.
    pub pages: u64,
    /// The lower and the upper bar of an estimate; `None` for a count.
    pub bars: Option<(u64, u64)>,
}

impl Figure {
    /// A figure that was counted.
    pub fn exact(pages: u64) -> Self {
        Self { pages, bars: None }
    }

    /// Whether `pages` is the count, or lies between the bars.
    pub fn holds(&self, pages: u64) -> bool {
        let (low, high) = self.bars.unwrap_or((self.pages, self.pages));
        (low..=high).contains(&pages)
    }
}

/// The most that one window of a kind and length has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MostFigures {
    /// The page writes, each counted as one to a new page; exact in any case.
    pub adversarial_pages: u64,
    /// The different pages that are written.
    pub unique_pages: Figure,
}

/// The worst windows of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorstFigures {
    /// The worst of the windows `[kT, (k+1)T)`.
    pub tumbling: MostFigures,
    /// The worst of the windows `(t - T, t]` that end at a record.
    pub sliding: MostFigures,
}

/// All figures of a volume, or of all volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figures {
    /// The number of records.
    pub records: u64,
    /// The different pages that are read or written.
    pub touched_pages: Figure,
    /// The different pages that are written.
    pub written_pages: Figure,
    /// The pages of all writes, each as often as it is written.
    pub page_writes: u64,
    /// The worst windows by their seconds, as people write them, the shortest first.
    pub worst: Vec<(String, WorstFigures)>,
    /// The fewest hottest pages that receive a share of the page writes, by the share in percent.
    pub skew_pages: Vec<(String, Figure)>,
}

impl WorstFigures {
    pub(super) fn exact(worst: &Worst) -> Self {
        let of = |most: &Most| MostFigures {
            adversarial_pages: most.adversarial,
            unique_pages: Figure::exact(most.unique),
        };
        Self { tumbling: of(&worst.tumbling), sliding: of(&worst.sliding) }
    }
}

/// Writes `name`, and of an estimate `name_low` and `name_high` beside it.
fn entry<M: SerializeMap>(map: &mut M, name: &str, figure: Figure) -> Result<(), M::Error> {
    map.serialize_entry(name, &figure.pages)?;
    if let Some((low, high)) = figure.bars {
        map.serialize_entry(&format!("{name}_low"), &low)?;
        map.serialize_entry(&format!("{name}_high"), &high)?;
    }
    Ok(())
}

impl Serialize for MostFigures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("adversarial_pages", &self.adversarial_pages)?;
        entry(&mut map, "unique_pages", self.unique_pages)?;
        map.end()
    }
}

impl Serialize for WorstFigures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("tumbling", &self.tumbling)?;
        map.serialize_entry("sliding", &self.sliding)?;
        map.end()
    }
}

/// A list of pairs that is written as a map and keeps its order.
struct Ordered<'a, T>(&'a [(String, T)]);

impl<T: Serialize> Serialize for Ordered<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

impl Serialize for Figures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("records", &self.records)?;
        entry(&mut map, "touched_pages", self.touched_pages)?;
        entry(&mut map, "written_pages", self.written_pages)?;
        map.serialize_entry("page_writes", &self.page_writes)?;
        map.serialize_entry("worst", &Ordered(&self.worst))?;
        let of = |pick: fn(&Figure) -> Option<u64>| -> Vec<(String, u64)> {
            let picked = self.skew_pages.iter();
            picked.filter_map(|(key, figure)| Some((key.clone(), pick(figure)?))).collect()
        };
        map.serialize_entry("skew_pages", &Ordered(&of(|figure| Some(figure.pages))))?;
        let (low, high) = (of(|f| f.bars.map(|b| b.0)), of(|f| f.bars.map(|b| b.1)));
        if !low.is_empty() {
            map.serialize_entry("skew_pages_low", &Ordered(&low))?;
            map.serialize_entry("skew_pages_high", &Ordered(&high))?;
        }
        map.end()
    }
}
