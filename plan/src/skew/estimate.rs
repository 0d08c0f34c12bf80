//! From a sample of pages to estimates with bars.
//!
//! Pages are in the sample or not by a hash of their number, each with the same probability, the *rate*; what is known of those
//! that are in it is exact. A number of pages is the sample's divided by the rate, and its bars are the score interval of a
//! binomial count. Two cases need more:
//!
//! - **The worst window** is the largest of many estimates, so it tends to be one that came out high. Its lower bar allows
//!   for as many independent windows as the trace had (four a length of the window): a stricter quantile. The upper bar need not:
//!   the truly worst window's estimate is at most the largest, and it alone would have to be low.
//! - **Skew.** Hot pages are few and may be missed, so they are not added up: page writes are known exactly, and the cold pages,
//!   which are many, are estimated; hot is who is left over. A sampled page then counts 1 if it is hot, and its writes
//!   over those of a page at the border if it is cold (as many more hot pages could do without). The sum of the squares is the variance.

use super::Figure;
use super::options::Share;

/// Quantile of 97.5 %, both sides of which leave 95 %.
const QUANTILE: f64 = 1.96;
/// Windows a length of the window that are as good as independent.
const WINDOWS_A_LENGTH: f64 = 4.0;

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

    /// Takes the other if it estimates more.
    #[inline]
    pub fn rise(&mut self, pages: u64, rate: f64) {
        if pages > 0 && pages as f64 / rate > self.estimate() {
            *self = Self { pages, rate };
        }
    }
}

/// What the sample knows of a volume, or of all.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    /// The share of pages in the sample at the end.
    pub rate: f64,
    /// Pages of the sample that were read or written.
    pub touched: u64,
    /// By window: of the clock, and ending at a record.
    pub worst: Vec<[Peak; 2]>,
    /// How many independent windows there were, by window.
    pub windows: Vec<f64>,
}

impl Sampled {
    /// Independent windows of this length in a span.
    pub fn windows_in(span_ns: u64, window_ns: u64) -> f64 {
        1.0 + WINDOWS_A_LENGTH * span_ns as f64 / window_ns as f64
    }

    /// Pages of which so many are in the sample.
    pub fn pages(&self, sampled: u64) -> Figure {
        if self.rate >= 1.0 {
            return Figure::exact(sampled);
        }
        figure(sampled as f64, sampled as f64, self.rate, [QUANTILE; 2], sampled, u64::MAX)
    }

    /// The worst window's different pages, of which there are not more than page writes.
    pub fn worst(&self, window: usize, kind: usize, adversarial: u64) -> Figure {
        let peak = self.worst[window][kind];
        if self.rate >= 1.0 {
            return Figure::exact(peak.pages);
        }
        let strict = normal_quantile(1.0 - 0.025 / self.windows[window]);
        let known = peak.pages as f64;
        let low = match peak.rate < 1.0 {
            true => figure(known, known, peak.rate, [strict, 0.0], peak.pages, adversarial),
            false => Figure::exact(peak.pages),
        };
        // Another window, at the last rate, may have been larger than it seemed.
        let last = peak.estimate() * self.rate;
        let high = figure(last, last, self.rate, [0.0, QUANTILE], peak.pages, adversarial);
        let (low, high) = (
            low.bars.map_or(low.pages, |bars| bars.0),
            high.bars.map_or(high.pages, |bars| bars.1),
        );
        let pages = (peak.estimate().round() as u64).clamp(low, high);
        Figure { pages, bars: Some((low, high)) }
    }

    /// The fewest hottest pages that receive this share of `writes`, from the counts of the sample's pages.
    pub fn skew(&self, share: Share, writes: u64, histogram: &[(u64, u64)]) -> Figure {
        let sampled: u64 = histogram.iter().map(|(_, pages)| pages).sum();
        let cold = (writes - share.of(writes)) as f64 * self.rate;
        let (mut used, mut squares, mut colder, mut border) = (0.0, 0.0, 0.0, 1.0);
        for &(count, pages) in histogram {
            let (count, pages) = (count as f64, pages as f64);
            border = count;
            let fit = ((cold - used) / count).clamp(0.0, pages);
            (used, squares, colder) =
                (used + fit * count, squares + fit * count * count, colder + fit);
            if fit < pages {
                break;
            }
        }
        let hot = (sampled as f64 - colder).max(0.0);
        let spread = hot + squares / (border * border);
        let least = u64::from(writes > 0);
        figure(hot, spread, self.rate, [QUANTILE; 2], least, writes)
    }
}

/// `pages` of the sample whose sum of squares is `spread`, scaled by the rate, with bars between `least` and `most`.
fn figure(
    pages: f64,
    spread: f64,
    rate: f64,
    quantiles: [f64; 2],
    least: u64,
    most: u64,
) -> Figure {
    let missed = 1.0 - rate;
    let bar = |quantile: f64, sign: f64| {
        let square = quantile * quantile * missed;
        let reach = quantile * (missed * (spread + square / 4.0)).sqrt();
        ((pages + square / 2.0 + sign * reach) / rate).max(0.0)
    };
    let (least, most) = (least.min(most), most);
    let low = (bar(quantiles[0], -1.0).floor() as u64).clamp(least, most);
    let high = (bar(quantiles[1], 1.0).ceil() as u64).clamp(low, most);
    let pages = ((pages / rate).round() as u64).clamp(low, high);
    Figure { pages, bars: Some((low, high)) }
}

/// The normal distribution's quantile for probabilities of a half and more (Abramowitz and Stegun 26.2.23; off by less than
/// 0.00045).
fn normal_quantile(probability: f64) -> f64 {
    let tail = (1.0 - probability).clamp(f64::MIN_POSITIVE, 0.5);
    let t = (-2.0 * tail.ln()).sqrt();
    t - (2.515_517 + t * (0.802_853 + t * 0.010_328))
        / (1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (probability, quantile) in
            [(0.5, 0.0), (0.975, 1.96), (0.999, 3.0902), (1.0 - 1e-6, 4.7534)]
        {
            assert!((normal_quantile(probability) - quantile).abs() < 1e-3, "{probability}");
        }
    }

    #[test]
    fn a_sample_of_everything_is_a_count() {
        let all = Sampled {
            rate: 1.0,
            touched: 7,
            worst: vec![[Peak { pages: 3, rate: 1.0 }; 2]],
            windows: vec![9.0],
        };
        assert_eq!(all.pages(7), Figure::exact(7));
        assert_eq!(all.worst(0, 1, 5), Figure::exact(3));
    }

    #[test]
    fn what_was_not_sampled_at_all_may_still_be_there() {
        let none = Sampled { rate: 0.01, touched: 0, worst: vec![], windows: vec![] };
        let Figure { pages, bars } = none.pages(0);
        assert_eq!((pages, bars.unwrap().0), (0, 0));
        assert!((300..500).contains(&bars.unwrap().1), "{bars:?}");
    }
}
