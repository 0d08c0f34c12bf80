//! The four classes of workload in the Viyojit paper (section 3), and the advice for each.
//!
//! Two questions decide: is a large part of the volume written in the worst interval, and do few of
//! the touched pages take nearly all writes? The paper names no thresholds. The thresholds here are
//! named constants with their reasons, and every verdict shows its figures.

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

/// Above this share of the volume, counted in different pages of the worst interval, the pages that
/// take the writes are not few: a battery for them would be half of one for everything.
pub const SMALL_BATTERY_FRACTION: f64 = 0.5;

/// The classes of workload, in the paper's order.
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
    /// The class in two words, for tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::LowUnique => "low, unique",
            Self::LowSkewed => "low, skewed",
            Self::HighSkewed => "high, skewed",
            Self::HighUnique => "high, unique",
        }
    }

    /// The class in a sentence.
    pub fn finding(self) -> &'static str {
        match self {
            Self::LowUnique => {
                "Little is written, though mostly to pages that are not written again."
            }
            Self::LowSkewed => "Little is written, and most of it to few pages.",
            Self::HighSkewed => "Much is written, but most of it to few pages.",
            Self::HighUnique => "Much is written, mostly to pages that are not written again.",
        }
    }

    /// The paper's advice where nothing is known of the SSD.
    pub fn advice(self) -> &'static str {
        match self {
            Self::LowUnique => "a battery for what the worst interval writes is enough",
            Self::LowSkewed => {
                "hot pages stay dirty, and the rest is cleaned in time, the best case there is"
            }
            Self::HighSkewed => {
                "a battery for the pages that take the writes is enough, however large the volume"
            }
            Self::HighUnique => {
                "it takes a battery for a large part of the memory, unless the SSD can write as \
                 fast as the memory is written, which only a replay shows"
            }
        }
    }

    /// Whether the paper advises a small battery.
    pub fn is_for_small(self) -> bool {
        self != Self::HighUnique
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
    /// The length of the window in seconds, as people write it.
    pub window_s: String,
    /// The share of the volume's pages if each write is taken for one to a new page; it may exceed
    /// 1.
    pub adversarial: f64,
    /// The share of the volume's pages that are different pages written.
    pub unique: f64,
}

/// How many pages take a share of the writes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SkewFraction {
    /// The share of the writes, percent.
    pub share_percent: String,
    /// The pages as a share of those touched (the paper's figure 3), 0 to 1.
    pub of_touched: f64,
    /// The pages as a share of all in the volume (the paper's figure 4), 0 to 1.
    pub of_volume: f64,
}

/// The meaning of a volume's figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Assessment {
    /// Pages that fractions are of: the volume's if its size was given, or those touched.
    pub volume_pages: u64,
    /// Whether the volume's size was given, and is not less than what is touched of it.
    pub volume_given: bool,
    /// The worst windows, the shortest first.
    pub windows: Vec<WindowFraction>,
    /// The pages that take shares of the writes.
    pub skew: Vec<SkewFraction>,
    /// The class by the longest window; none of a trace that writes nothing or was not asked for 99
    /// %.
    pub class: Option<Class>,
    /// The finding in words, with its figures.
    pub finding: String,
    /// Whether few pages take the writes, by the class and the worst of the longest windows: then
    /// a small battery does on any SSD. Otherwise it depends on the SSD, and a replay decides.
    pub few_pages: bool,
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
        let few_pages = needed <= SMALL_BATTERY_FRACTION && class.is_none_or(Class::is_for_small);
        let finding = finding(figures, class, few_pages, longest, judged);
        Self {
            volume_pages,
            volume_given: given.is_some_and(|given| given >= touched),
            windows,
            skew,
            class,
            finding,
            few_pages,
        }
    }
}

fn finding(
    figures: &Figures,
    class: Option<Class>,
    few_pages: bool,
    longest: Option<&WindowFraction>,
    judged: Option<&SkewFraction>,
) -> String {
    let Some(window) = longest else {
        return "Nothing is written.".to_string();
    };
    let Some((class, skew)) = class.zip(judged) else {
        return format!("Ask for {SKEW_SHARE_PERCENT} % of the writes, by which skew is judged.");
    };
    let percent = |fraction: f64| format!("{:.0} %", fraction * 100.0);
    let mut text = class.finding().to_string();
    if !few_pages {
        text += &format!(
            " The worst {} s write {} of the volume's pages, and {} % of the writes need {} of the \
             pages touched.",
            window.window_s,
            percent(window.unique),
            skew.share_percent,
            percent(skew.of_touched),
        );
    }
    if figures.touched_pages.bars.is_some() {
        text += " (Estimated from a sample of the pages.)";
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
        assert!(!told.few_pages);
        assert!(told.finding.contains("The worst 3600 s write 99 %"), "{}", told.finding);
        assert!(told.finding.contains("need 98 % of the pages touched"), "{}", told.finding);
        // Skewed, but nearly all of the volume in an interval: neither.
        assert!(!Assessment::of(&figures(1000, 90_000, 900, 200), None).few_pages);
        assert!(Assessment::of(&figures(1000, 700, 90, 100), None).few_pages);
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
        assert!(told.few_pages && told.finding.contains("Nothing is written"));
    }
}
