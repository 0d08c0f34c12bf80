//! The vertical axis of a chart: its range and its ticks.

/// The vertical axis of a chart.
pub(crate) struct Axis {
    pub low: f64,
    high: f64,
    step: f64,
    is_log: bool,
}

impl Axis {
    /// An axis that has all these values, and zero if it is linear.
    pub fn over(values: impl Iterator<Item = f64> + Clone, is_log: bool) -> Self {
        let values = values.filter(|value| value.is_finite());
        let top = values.clone().fold(0.0, f64::max);
        let bottom = values.clone().fold(0.0, f64::min);
        if is_log {
            let least = values.filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
            let low = if least.is_finite() { 10f64.powf(least.log10().floor()) } else { 1.0 };
            let high = 10f64.powf(top.max(low * 10.0).log10().ceil());
            return Self { low, high, step: 10.0, is_log: true };
        }
        // Values that are all zero give no scale.
        let span = if top > bottom { top - bottom } else { TICKS };
        let step = nice(span / TICKS);
        Self {
            low: (bottom / step).floor() * step,
            high: (top / step).ceil().max(1.0) * step,
            step,
            is_log: false,
        }
    }

    /// Position of a value on the axis, 0 to 1; a value beyond the axis is outside that range.
    pub fn share(&self, value: f64) -> f64 {
        if self.is_log {
            let value = value.max(self.low).log10();
            return (value - self.low.log10()) / (self.high.log10() - self.low.log10());
        }
        (value - self.low) / (self.high - self.low)
    }

    /// The values that get a line across the chart.
    pub fn ticks(&self) -> Vec<f64> {
        let (mut ticks, mut at) = (Vec::new(), self.low);
        while at <= self.high * 1.000_001 && ticks.len() < 20 {
            // Rounding leaves a tick at zero a little off.
            ticks.push(if at.abs() < self.step * 1e-6 && !self.is_log { 0.0 } else { at });
            at = if self.is_log { at * self.step } else { at + self.step };
        }
        ticks
    }
}

/// The smallest of 1, 2 or 5 times a power of ten that is at least `value`.
fn nice(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let step = [1.0, 2.0, 5.0].into_iter().find(|step| step * power >= value * 0.999_999);
    step.unwrap_or(10.0) * power
}

/// Approximate number of ticks of a linear axis.
const TICKS: f64 = 5.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_ones_twos_and_fives() {
        assert_eq!(
            [nice(0.9), nice(1.0), nice(1.1), nice(3.0), nice(7.0)],
            [1.0, 1.0, 2.0, 5.0, 10.0]
        );
    }

    #[test]
    fn an_axis_of_noughts_has_ticks_that_differ() {
        assert_eq!(Axis::over([0.0].into_iter(), false).ticks(), [0.0, 1.0]);
    }
}
