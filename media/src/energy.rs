//! The time that the machine runs after a warning, as plain data.

use std::time::Duration;

use crate::units::{Joules, Watts};

/// The source that powers the machine during an emergency flush.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Energy {
    /// A promised time: a spot notice, a SIGTERM grace period, a UPS contract.
    Grace(Duration),
    /// A store of energy and the power the machine draws from it while flushing.
    Battery {
        /// Usable energy.
        joules: Joules,
        /// Power that the machine draws during the flush.
        watts: Watts,
    },
}

/// Why an energy source is not possible.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum EnergyError {
    /// The value is zero.
    #[error("{quantity} is zero; expected more")]
    Zero {
        /// The value's name: `grace (s)`, `energy (J)` or `power (W)`.
        quantity: &'static str,
    },
    /// The value is negative.
    #[error("{quantity} is negative: {value}")]
    Negative {
        /// The value's name and unit.
        quantity: &'static str,
        /// The value as given.
        value: f64,
    },
    /// The value is NaN or infinite.
    #[error("{quantity} is not a finite number: {value}")]
    NotFinite {
        /// The value's name and unit.
        quantity: &'static str,
        /// The value as given.
        value: f64,
    },
}

impl Energy {
    /// The time from the warning until the machine stops; `Duration::MAX` when that overflows.
    ///
    /// # Errors
    /// A value is zero, negative, NaN or infinite.
    pub fn warning_time(&self) -> Result<Duration, EnergyError> {
        match *self {
            Energy::Grace(Duration::ZERO) => Err(EnergyError::Zero { quantity: "grace (s)" }),
            Energy::Grace(grace) => Ok(grace),
            Energy::Battery { joules, watts } => {
                let energy = positive("energy (J)", joules.0)?;
                let power = positive("power (W)", watts.0)?;
                Ok(Duration::try_from_secs_f64(energy / power).unwrap_or(Duration::MAX))
            }
        }
    }
}

fn positive(quantity: &'static str, value: f64) -> Result<f64, EnergyError> {
    if !value.is_finite() {
        return Err(EnergyError::NotFinite { quantity, value });
    }
    if value < 0.0 {
        return Err(EnergyError::Negative { quantity, value });
    }
    if value == 0.0 {
        return Err(EnergyError::Zero { quantity });
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn battery(joules: f64, watts: f64) -> Energy {
        Energy::Battery { joules: Joules(joules), watts: Watts(watts) }
    }

    #[test]
    fn a_battery_lasts_its_energy_over_the_draw() {
        assert_eq!(battery(1500.0, 300.0).warning_time(), Ok(Duration::from_secs(5)));
        assert_eq!(
            Energy::Grace(Duration::from_secs(30)).warning_time(),
            Ok(Duration::from_secs(30))
        );
        assert_eq!(battery(f64::MAX, f64::MIN_POSITIVE).warning_time(), Ok(Duration::MAX));
    }

    #[test]
    fn impossible_sources_are_named() {
        let zero = Energy::Grace(Duration::ZERO).warning_time();
        assert_eq!(zero, Err(EnergyError::Zero { quantity: "grace (s)" }));
        let power = battery(1.0, 0.0).warning_time();
        assert_eq!(power, Err(EnergyError::Zero { quantity: "power (W)" }));
        let negative = battery(-5.0, 1.0).warning_time();
        assert_eq!(negative, Err(EnergyError::Negative { quantity: "energy (J)", value: -5.0 }));
        let Err(nan) = battery(f64::NAN, 1.0).warning_time() else { panic!("NaN accepted") };
        assert_eq!(nan.to_string(), "energy (J) is not a finite number: NaN");
    }
}
