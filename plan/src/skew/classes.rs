//! The paper's four classes of workload (Viyojit, section 3), and what each should do.
//!
//! Two questions: is much of the volume written in the worst interval, and do few of the touched
//! pages take nearly all writes? The paper draws no line; those here are named and argued for, and
//! no verdict is given without its figures.

use serde::Serialize;

use super::Figures;

/// Above this share of the volume, written in the worst interval (each write as a new page), much
/// is written. The paper: "For a majority of the workloads, the fraction of data written is always
/// less than 15%", its ground for a battery of 15 %.
pub const WRITTEN_FRACTION_HIGH: f64 = 0.15;

/// Up to this share of the touched pages for [`SKEW_SHARE_PERCENT`] of the writes, writes are
/// skewed. The paper calls the volumes skewed that need about 30 % (Cosmos B and C) and about 10 %
/// (F); those it calls "mostly unique" need most of them.
pub const SKEWED_FRACTION: f64 = 0.35;

/// The share of writes by which skew is judged: the paper's examples are of 99 %.
pub const SKEW_SHARE_PERCENT: &str = "99";

/// Above this share of the volume, different pages in the worst interval, a small battery will not
/// do: it would have to be half of one for everything, and what is saved is less than what waiting
/// costs.
pub const SMALL_BATTERY_FRACTION: f64 = 0.5;

/// A class of workload, in the paper's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Little is written, to pages that are mostly written once.
    LowUnique,
    /// Little is written, and most of it to few pages.
    LowSkewed,
    /// Much is written, most of it to few pages.
    HighSkewed,
    /// Much is written, to pages that are mostly written once.
    HighUnique,
}

impl Class {
    /// In two words, for tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::LowUnique => "low, unique",
            Self::LowSkewed => "low, skewed",
            Self::HighSkewed => "high, skewed",
            Self::HighUnique => "high, unique",
        }
    }

    /// What the paper advises, in a sentence or two.
    pub fn advice(self) -> &'static str {
        match self {
            Self::LowUnique => {
                "Little is written, though mostly to pages that are not written again: a battery for what the worst interval writes is enough."
            }
            Self::LowSkewed => {
                "Little is written, and most of it to few pages: the best case for a small battery. Hot pages stay dirty, the rest is cleaned in time."
            }
            Self::HighSkewed => {
                "Much is written, but to few pages: a battery for the hot pages is enough; size it by the pages that take the writes, not by the volume."
            }
            Self::HighUnique => {
                "Much is written, mostly to pages that are not written again: a battery of a large part of the memory is needed, and decoupling the two saves little."
            }
        }
    }

    fn of(written_fraction: f64, skew_fraction: f64) -> Self {
        let skewed = skew_fraction <= SKEWED_FRACTION;
        match (written_fraction > WRITTEN_FRACTION_HIGH, skewed) {
            (false, false) => Self::LowUnique,
            (false, true) => Self::LowSkewed,
            (true, true) => Self::HighSkewed,
            (true, false) => Self::HighUnique,
        }
    }
}

/// How much of the volume one window writes at its worst (sliding).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WindowFraction {
    /// Seconds, as people write them.
    pub window_s: String,
    /// Each write as a new page; may exceed 1.
    pub adversarial: f64,
    /// Different pages.
    pub unique: f64,
}

/// How many pages take a share of the writes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SkewFraction {
    /// Percent of the writes.
    pub share_percent: String,
    /// Of the pages touched (the paper's figure 3).
    pub of_touched: f64,
    /// Of all pages of the volume (its figure 4).
    pub of_volume: f64,
}

/// What the figures of a volume mean.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Assessment {
    /// Pages that fractions are of: the volume's if its size was given, or those touched.
    pub volume_pages: u64,
    /// Whether the volume's size was given, and is not less than what is touched of it.
    pub volume_given: bool,
    /// The worst intervals, shortest first.
    pub windows: Vec<WindowFraction>,
    /// Pages that take the writes.
    pub skew: Vec<SkewFraction>,
    /// The class by the longest window; none of a trace that writes nothing or was not asked for 99
    /// %.
    pub class: Option<Class>,
    /// The class's advice, and what speaks against a small battery.
    pub advice: String,
    /// A battery much smaller than one for all pages is of use.
    pub small_battery: bool,
}

impl Assessment {
    /// Judges figures; `volume_bytes` is the volume's size, where it is known. A volume that is
    /// smaller than what was touched in it is taken to be as large as that.
    pub fn of(figures: &Figures, volume_bytes: Option<u64>) -> Self {
        let touched = figures.touched_pages.pages;
        let given = volume_bytes.map(|bytes| bytes.div_ceil(crate::trace::PAGE_BYTES));
        let volume_pages = given.unwrap_or(touched).max(touched);
        let fraction =
            |pages: u64, all: u64| if all == 0 { 0.0 } else { pages as f64 / all as f64 };
        let windows = figures.worst.iter().map(|(key, worst)| WindowFraction {
            window_s: key.clone(),
            adversarial: fraction(worst.sliding.adversarial_pages, volume_pages),
            unique: fraction(worst.sliding.unique_pages.pages, volume_pages),
        });
        let windows: Vec<_> = windows.collect();
        let skew = figures.skew_pages.iter().map(|(key, pages)| SkewFraction {
            share_percent: key.clone(),
            of_touched: fraction(pages.pages, touched),
            of_volume: fraction(pages.pages, volume_pages),
        });
        let skew: Vec<_> = skew.collect();
        let judged = skew.iter().find(|skew| skew.share_percent == SKEW_SHARE_PERCENT);
        let longest = windows.last().filter(|_| figures.page_writes > 0);
        let class = longest
            .zip(judged)
            .map(|(window, skew)| Class::of(window.adversarial, skew.of_touched));
        let needed = longest.map_or(0.0, |window| window.unique);
        let small_battery = needed <= SMALL_BATTERY_FRACTION && class != Some(Class::HighUnique);
        let advice = advice(figures, class, small_battery, longest, judged);
        Self {
            volume_pages,
            volume_given: given.is_some_and(|given| given >= touched),
            windows,
            skew,
            class,
            advice,
            small_battery,
        }
    }
}

fn advice(
    figures: &Figures,
    class: Option<Class>,
    small_battery: bool,
    longest: Option<&WindowFraction>,
    judged: Option<&SkewFraction>,
) -> String {
    let Some(window) = longest else {
        return "Nothing is written: no battery is needed for this volume.".to_string();
    };
    let Some((class, skew)) = class.zip(judged) else {
        return format!("Ask for {SKEW_SHARE_PERCENT} % of the writes, by which skew is judged.");
    };
    let percent = |fraction: f64| format!("{:.0} %", fraction * 100.0);
    let mut text = class.advice().to_string();
    if !small_battery {
        text += &format!(
            " The worst {} s write {} of the volume's pages, and {} % of the writes need {} of the pages touched.",
            window.window_s,
            percent(window.unique),
            skew.share_percent,
            percent(skew.of_touched),
        );
    }
    if figures.touched_pages.bars.is_some() {
        text += " (From a sample: see the bars.)";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skew::{Figure, MostFigures, WorstFigures};

    fn figures(touched: u64, adversarial: u64, unique: u64, skew: u64) -> Figures {
        let most =
            MostFigures { adversarial_pages: adversarial, unique_pages: Figure::exact(unique) };
        Figures {
            records: adversarial,
            touched_pages: Figure::exact(touched),
            written_pages: Figure::exact(unique),
            page_writes: adversarial,
            worst: vec![("3600".into(), WorstFigures { tumbling: most, sliding: most })],
            skew_pages: vec![("99".into(), Figure::exact(skew))],
        }
    }

    #[test]
    fn the_papers_examples_fall_into_its_classes() {
        let class = |f: &Figures, bytes| Assessment::of(f, bytes).class;
        // Blob storage A: little written, nearly all pages needed for 99 %.
        assert_eq!(class(&figures(1000, 100, 90, 900), None), Some(Class::LowUnique));
        // Cosmos B and C: little written, 30 % of the pages.
        assert_eq!(class(&figures(1000, 100, 60, 300), None), Some(Class::LowSkewed));
        // Cosmos F: 70 % written, 10 % of the pages.
        assert_eq!(class(&figures(1000, 700, 90, 100), None), Some(Class::HighSkewed));
        // Cosmos E: much written, to mostly unique pages.
        assert_eq!(class(&figures(1000, 700, 650, 900), None), Some(Class::HighUnique));
    }

    #[test]
    fn uniform_writes_are_told_that_a_small_battery_will_not_do() {
        let told = Assessment::of(&figures(1000, 5000, 990, 980), None);
        assert!(!told.small_battery);
        assert!(told.advice.contains("The worst 3600 s write 99 %"), "{}", told.advice);
        assert!(told.advice.contains("need 98 % of the pages touched"), "{}", told.advice);
        // Skewed, but nearly all of the volume in an interval: neither.
        assert!(!Assessment::of(&figures(1000, 90_000, 900, 200), None).small_battery);
        assert!(Assessment::of(&figures(1000, 700, 90, 100), None).small_battery);
    }

    #[test]
    fn fractions_are_of_the_volume_if_its_size_is_known() {
        let told = Assessment::of(&figures(1000, 700, 650, 900), Some(4096 * 10_000));
        assert_eq!((told.volume_pages, told.class), (10_000, Some(Class::LowUnique)));
        assert_eq!((told.skew[0].of_touched, told.skew[0].of_volume), (0.9, 0.09));
        // A size below what was touched cannot be.
        assert_eq!(Assessment::of(&figures(1000, 7, 6, 9), Some(1)).volume_pages, 1000);
    }

    #[test]
    fn a_trace_without_writes_has_no_class() {
        let told = Assessment::of(&figures(1000, 0, 0, 0), None);
        assert_eq!(told.class, None);
        assert!(told.small_battery && told.advice.contains("Nothing is written"));
    }
}
