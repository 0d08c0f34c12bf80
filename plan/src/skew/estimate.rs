//! From a sample of pages to estimates with bars.
//!
//! A hash of its number decides whether a page is in the sample, with the same probability for each
//! page, the *rate*. The figures of sampled pages are exact. A number of pages is estimated as the
//! sample's number divided by the rate. Its bars are the numbers for which a sample so large, or so
//! small, is just unlikely enough. The bound of that probability is the inequality of Zubkov and
//! Serov (2013, "A complete proof of universal inequalities for the distribution function of the
//! binomial law"), which holds for few pages as for many. Two cases need more:
//!
//! - **The worst window** is the largest of many estimates, so it tends to be one that came out too
//!   high. Its lower bar allows for this in any of the windows: it takes a stricter quantile. The
//!   upper bar does not need that: the estimate of the truly worst window is at most the largest
//!   one, and only that window would have to be too low.
//! - **Skew.** Hot pages are few and may be missed, so they are not added up. The number of page
//!   writes is known exactly, and the cold pages, which are many, are estimated; the hot pages get
//!   the rest. Their number jumps where cold pages end and much hotter ones begin, so the bars ask
//!   for the number if the sample had, by chance, more of the cold writes, or fewer.

use super::Figure;
use super::options::Share;

/// The probability that each side of the bars leaves out.
const TAIL: f64 = 0.025;
/// The quantile of the normal distribution that leaves out `TAIL`.
const QUANTILE: f64 = 1.96;
/// Parts of a quantile that two chances, of which neither tells of the other, have when both
/// together are as unlikely as it.
const TOGETHER: [(f64, f64); 4] = [(1.0, 0.0), (0.9, 0.52), (0.52, 0.9), (0.0, 1.0)];
/// How often the range in which a bar is looked for is halved.
const HALVINGS: usize = 50;

/// The largest estimate of a window: pages of the sample, and the rate when they were counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Peak {
    pub pages: u64,
    pub rate: f64,
}

impl Peak {
    fn estimate(self) -> f64 {
        if self.pages == 0 { 0.0 } else { self.pages as f64 / self.rate }
    }

    /// Takes the other peak if it estimates more pages.
    #[inline]
    pub fn rise(&mut self, pages: u64, rate: f64) {
        if pages > 0 && pages as f64 / rate > self.estimate() {
            *self = Self { pages, rate };
        }
    }
}

/// The figures of a sample, for one volume or for all.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    /// The share of pages that are in the sample at the end.
    pub rate: f64,
    /// The pages of the sample that were read or written.
    pub touched: u64,
    /// The peaks of each window: of the clock, and ending at a record.
    pub worst: Vec<[Peak; 2]>,
    /// How often each window fits the trace, and once more.
    pub lengths: Vec<f64>,
}

impl Sampled {
    /// How often a window fits a span, and once more.
    pub fn lengths_in(span_ns: u64, window_ns: u64) -> f64 {
        1.0 + span_ns as f64 / window_ns as f64
    }

    /// The estimate for pages of which so many are in the sample.
    pub fn pages(&self, sampled: u64) -> Figure {
        if self.rate >= 1.0 {
            return Figure::exact(sampled);
        }
        let count = sampled as f64;
        let bars = [least(count, self.rate, QUANTILE), most(count, self.rate, QUANTILE)];
        figure(count / self.rate, bars, sampled, u64::MAX)
    }

    /// The worst window's different pages, of which there are not more than page writes.
    pub fn worst(&self, window: usize, kind: Kind, adversarial: u64) -> Figure {
        let peak = self.worst[window][kind as usize];
        if self.rate >= 1.0 {
            return Figure::exact(peak.pages);
        }
        let low = match peak.rate < 1.0 {
            true => least(peak.pages as f64, peak.rate, self.strict(window, kind)),
            false => peak.pages as f64,
        };
        // Another window, at the last rate, may have been larger than it seemed.
        let high = most(peak.estimate() * self.rate, self.rate, QUANTILE);
        figure(peak.estimate(), [low, high], peak.pages, adversarial)
    }

    /// The quantile beyond which none of the windows comes out in 97.5 of 100 cases.
    fn strict(&self, window: usize, kind: Kind) -> f64 {
        // A window is looked at again when the rate falls.
        let looks = self.lengths[window] - self.rate.log2();
        let strict = normal_quantile(TAIL / looks);
        match kind {
            Kind::Tumbling => strict,
            // One that slides comes out so as often as `strict` squared that lie side by side
            // (Alm's estimate for scan statistics).
            Kind::Sliding => normal_quantile(TAIL / (looks * strict * strict)),
        }
    }

    /// The fewest hottest pages that receive this share of `writes`, from the counts of the
    /// sample's pages.
    pub fn skew(&self, share: Share, writes: u64, histogram: &[(u64, u64)]) -> Figure {
        let cold = (writes - share.of(writes)) as f64 * self.rate;
        let Left { hot, squares } = Left::of(histogram, cold);
        let shift = ((1.0 - self.rate) * squares).sqrt();
        let estimate = hot / self.rate;
        let [mut low, mut high] = [estimate; 2];
        for (by_cold, by_hot) in TOGETHER {
            let (by_cold, by_hot) = (by_cold * QUANTILE * shift, by_hot * QUANTILE);
            low = low.min(least(Left::of(histogram, cold + by_cold).hot, self.rate, by_hot));
            high = high.max(most(Left::of(histogram, cold - by_cold).hot, self.rate, by_hot));
        }
        figure(estimate, [low, high], u64::from(writes > 0), writes)
    }
}

/// The two kinds of windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Windows of the clock.
    Tumbling,
    /// Windows that end at a record.
    Sliding,
}

/// The rest of the sample without its coldest pages.
struct Left {
    hot: f64,
    /// The sum of the squares of the cold pages' writes, by which their estimate varies.
    squares: f64,
}

impl Left {
    /// The rest without the coldest pages, which receive `cold` writes.
    fn of(histogram: &[(u64, u64)], cold: f64) -> Self {
        let sampled: u64 = histogram.iter().map(|(_, pages)| pages).sum();
        let (mut used, mut squares, mut colder) = (0.0, 0.0, 0.0);
        for &(count, pages) in histogram {
            let (count, pages) = (count as f64, pages as f64);
            let fit = ((cold - used) / count).clamp(0.0, pages);
            (used, squares, colder) =
                (used + fit * count, squares + fit * count * count, colder + fit);
            if fit < pages {
                break;
            }
        }
        Self { hot: (sampled as f64 - colder).max(0.0), squares }
    }
}

/// An estimate between bars, all of which lie in a range that is known.
fn figure(estimate: f64, bars: [f64; 2], least: u64, most: u64) -> Figure {
    let least = least.min(most);
    let low = (bars[0].floor() as u64).clamp(least, most);
    let high = (bars[1].ceil() as u64).clamp(low, most);
    let pages = (estimate.round() as u64).clamp(low, high);
    Figure { pages, bars: Some((low, high)) }
}

/// The most pages of which a sample has `sampled` or more no oftener than the quantile says;
/// `sampled`, if that is so of none.
fn least(sampled: f64, rate: f64, quantile: f64) -> f64 {
    let known = sampled - 1.0;
    if known <= 0.0 || deviation(known, known, rate) <= quantile {
        return sampled;
    }
    let (mut low, mut high) = (known, known / rate);
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        match deviation(known, middle, rate) > quantile {
            true => low = middle,
            false => high = middle,
        }
    }
    low.max(sampled)
}

/// The fewest pages of which a sample has `sampled` or fewer no oftener than the quantile says.
fn most(sampled: f64, rate: f64, quantile: f64) -> f64 {
    let known = sampled + 1.0;
    let (mut low, mut high) = (known / rate, 2.0 * known / rate);
    while deviation(known, high, rate) < quantile {
        high *= 2.0;
    }
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        match deviation(known, middle, rate) < quantile {
            true => low = middle,
            false => high = middle,
        }
    }
    high
}

/// How far from what is expected a sample of `known` out of `pages` is, as a quantile: the root of
/// twice the logarithm of how much likelier another rate makes it.
fn deviation(known: f64, pages: f64, rate: f64) -> f64 {
    let others = pages - known;
    let missed = match others > 0.0 {
        true => others * ((rate - known / pages) / (1.0 - rate)).ln_1p(),
        false => 0.0,
    };
    (2.0 * (known * (known / (pages * rate)).ln() + missed)).max(0.0).sqrt()
}

/// The normal distribution's quantile that leaves out a tail of a half or less (Abramowitz and
/// Stegun 26.2.23; off by less than 0.00045).
fn normal_quantile(tail: f64) -> f64 {
    let t = (-2.0 * tail.clamp(f64::MIN_POSITIVE, 0.5).ln()).sqrt();
    t - (2.515_517 + t * (0.802_853 + t * 0.010_328))
        / (1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (tail, quantile) in [(0.5, 0.0), (0.025, 1.96), (0.001, 3.0902), (1e-6, 4.7534)] {
            assert!((normal_quantile(tail) - quantile).abs() < 1e-3, "{tail}");
        }
    }

    #[test]
    fn a_sample_of_everything_is_a_count() {
        let all = Sampled {
            rate: 1.0,
            touched: 7,
            worst: vec![[Peak { pages: 3, rate: 1.0 }; 2]],
            lengths: vec![9.0],
        };
        assert_eq!(all.pages(7), Figure::exact(7));
        assert_eq!(all.worst(0, Kind::Sliding, 5), Figure::exact(3));
    }

    #[test]
    fn what_was_not_sampled_at_all_may_still_be_there() {
        let none = Sampled { rate: 0.01, touched: 0, worst: vec![], lengths: vec![] };
        let Figure { pages, bars } = none.pages(0);
        assert_eq!((pages, bars.unwrap().0), (0, 0));
        assert!((300..500).contains(&bars.unwrap().1), "{bars:?}");
    }

    /// The probability of at least `sampled` pages in a sample of `pages` pages, summed over the
    /// binomial distribution.
    fn at_least(sampled: u64, pages: u64, rate: f64) -> f64 {
        let mut chance = (pages as f64 * (-rate).ln_1p()).exp();
        let mut below = 0.0;
        for known in 0..sampled {
            below += chance;
            chance *= (pages - known) as f64 / (known + 1) as f64 * rate / (1.0 - rate);
        }
        1.0 - below
    }

    #[test]
    fn bars_leave_out_no_more_than_they_say_of_few_pages_and_little_less_of_many() {
        for rate in [0.5, 1.0 / 64.0] {
            for sampled in [0u64, 1, 2, 3, 5, 10, 40, 300] {
                let [low, high] = [least, most].map(|bar| bar(sampled as f64, rate, QUANTILE));
                let (low, high) = (low.floor() as u64, high.ceil() as u64);
                assert!(low == sampled || at_least(sampled, low, rate) <= TAIL, "{sampled}");
                assert!(1.0 - at_least(sampled + 1, high, rate) <= TAIL, "{sampled}");
                if sampled >= 40 {
                    let (estimate, spread) =
                        (sampled as f64 / rate, (sampled as f64 * (1.0 - rate)).sqrt() / rate);
                    let wide = (high as f64 - estimate).max(estimate - low as f64);
                    assert!(wide < 2.4 * spread + 2.0 / rate, "{sampled}: {low} to {high}");
                }
            }
        }
    }
}
