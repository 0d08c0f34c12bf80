//! What can be relied on of a battery, and the battery that must be bought so that a given energy
//! can be relied on. Every result is modelled.

mod file;

use serde::Serialize;

pub use file::{BatteryFile, BatteryFileError, Lasts};

/// Cells and what is taken off their rating. Shares are 0 to 1.
///
/// [`Cells::default`] is the paper's battery (section 2.2) with ageing added: half is discharged at
/// most, cells for data centres are 30 % less dense than a phone's, 4 years.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cells {
    /// The share of the energy that may be taken out, so that the cells last.
    pub depth_of_discharge: f64,
    /// The years that the battery must last.
    pub years: f64,
    /// The share of the capacity that is lost in a year at 25 degrees.
    pub fade_per_year: f64,
    /// The temperature of the cells, degrees Celsius.
    pub temperature_c: f64,
    /// Cells bought beyond what is needed, so that some may fail: 0.25 is a spare for four.
    pub spare_share: f64,
    /// Share of the usable energy kept for other uses of the battery, such as shaving peaks.
    pub other_uses_share: f64,
    /// The energy in a litre relative to a phone's cell.
    pub density_share: f64,
    /// Price of rated energy, packaging and charging included, US dollars a kilojoule.
    pub usd_per_kj: f64,
}

impl Cells {
    /// A phone's battery: 2000 mAh (Viyojit, section 2.2) at 3.8 V, the usual voltage of such a
    /// cell.
    pub const PHONE_JOULES: f64 = 2.0 * 3600.0 * 3.8;
    /// Energy a litre of a phone's cell. Assumed: 550 Wh/l; the paper gives volumes in phone cells
    /// only.
    pub const PHONE_JOULES_PER_LITRE: f64 = 550.0 * 3600.0;
    /// "Over 250 $" for a server of 4 TB (Viyojit, section 2.2), of which half the rating is used:
    /// 614 kJ.
    pub const PAPER_USD_PER_KJ: f64 = 250.0 / 614.4;
    /// Below 25 degrees a cell gives less, by about so much a degree. Assumed; data sheets have 0.5
    /// to 1 %.
    const COLD_SHARE_PER_DEGREE: f64 = 0.008;
    /// Above 25 degrees it ages faster: twice as fast every so many degrees (the usual rule after
    /// Arrhenius).
    const AGEING_DOUBLES_DEGREES: f64 = 10.0;

    /// The paper's cells: no ageing beyond the depth of discharge that avoids it.
    pub fn paper() -> Self {
        Self { fade_per_year: 0.0, ..Self::default() }
    }

    /// Share of the rating that can be relied on.
    ///
    /// # Errors
    /// A value outside its range, or nothing left.
    pub fn reliable_share(&self) -> Result<f64, BatteryError> {
        self.validate()?;
        let share =
            self.depth_of_discharge * self.aged() * self.cold() * (1.0 - self.other_uses_share);
        if share > 0.0 { Ok(share) } else { Err(BatteryError::NothingLeft { years: self.years }) }
    }

    /// The battery that still gives `joules` at the end of its life.
    ///
    /// # Errors
    /// The errors of [`Cells::reliable_share`].
    pub fn battery_for(&self, joules: f64) -> Result<Battery, BatteryError> {
        let rated_joules = joules / self.reliable_share()? * (1.0 + self.spare_share);
        let phones = rated_joules / Self::PHONE_JOULES / self.density_share;
        Ok(Battery {
            needed_joules: joules,
            rated_joules,
            litres: phones * Self::PHONE_JOULES / Self::PHONE_JOULES_PER_LITRE,
            phone_cells: phones,
            usd: rated_joules / 1e3 * self.usd_per_kj,
        })
    }

    /// The energy that a battery rated at `rated_joules` reliably gives, joules.
    ///
    /// # Errors
    /// The errors of [`Cells::reliable_share`].
    pub fn reliable_joules(&self, rated_joules: f64) -> Result<f64, BatteryError> {
        Ok(rated_joules * self.reliable_share()? / (1.0 + self.spare_share))
    }

    fn aged(&self) -> f64 {
        let hot = (self.temperature_c - 25.0).max(0.0);
        let faster = 2f64.powf(hot / Self::AGEING_DOUBLES_DEGREES);
        (1.0 - self.fade_per_year * faster * self.years).max(0.0)
    }

    fn cold(&self) -> f64 {
        (1.0 - Self::COLD_SHARE_PER_DEGREE * (25.0 - self.temperature_c).max(0.0)).max(0.0)
    }

    fn validate(&self) -> Result<(), BatteryError> {
        let check = |name, value: f64, low: f64, high: f64| {
            if (low..=high).contains(&value) {
                Ok(())
            } else {
                Err(BatteryError::Range { name, value, low, high })
            }
        };
        check("depth of discharge", self.depth_of_discharge, 0.01, 1.0)?;
        check("years", self.years, 0.0, 50.0)?;
        check("fade a year", self.fade_per_year, 0.0, 1.0)?;
        check("temperature in degrees Celsius", self.temperature_c, -20.0, 60.0)?;
        check("share of spare cells", self.spare_share, 0.0, 10.0)?;
        check("share for other uses", self.other_uses_share, 0.0, 0.99)?;
        check("density against a phone's cell", self.density_share, 0.01, 2.0)?;
        // A kilowatt-hour is what people ask for, and buy.
        check("price in USD a kWh", self.usd_per_kj * 3600.0, 0.0, 1e6)
    }
}

impl Default for Cells {
    fn default() -> Self {
        Self {
            depth_of_discharge: 0.5,
            years: 4.0,
            // A fifth lost over four years: where makers say that a cell's life ends.
            fade_per_year: 0.05,
            temperature_c: 25.0,
            spare_share: 0.0,
            other_uses_share: 0.0,
            density_share: 0.7,
            usd_per_kj: Self::PAPER_USD_PER_KJ,
        }
    }
}

/// A battery. Every figure is modelled.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Battery {
    /// The energy that must come out of it, joules.
    pub needed_joules: f64,
    /// The energy that is to be bought, as rated, joules.
    pub rated_joules: f64,
    /// The volume of its cells, litres.
    pub litres: f64,
    /// How many phone cells of 2000 mAh have the same volume.
    pub phone_cells: f64,
    /// The price, US dollars.
    pub usd: f64,
}

/// Why there are no such cells.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum BatteryError {
    /// A value is outside what makes sense.
    #[error("{name} of {value}: expected {low} to {high}")]
    Range {
        /// The name of the value.
        name: &'static str,
        /// The value that was given.
        value: f64,
        /// The lowest value allowed.
        low: f64,
        /// The highest value allowed.
        high: f64,
    },
    /// Nothing of the battery is left before its years are over.
    #[error(
        "after {years} years nothing of the battery is left: plan for fewer years, cooler cells or \
         less fade a year"
    )]
    NothingLeft {
        /// The years that were given.
        years: f64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_factor_makes_the_battery_larger_by_itself() {
        let ideal = Cells { depth_of_discharge: 1.0, density_share: 1.0, ..Cells::paper() };
        let rated = |cells: Cells| cells.battery_for(1000.0).unwrap().rated_joules;
        assert_eq!(rated(ideal), 1000.0);
        assert_eq!(rated(Cells { depth_of_discharge: 0.5, ..ideal }), 2000.0);
        assert!((rated(Cells { fade_per_year: 0.05, ..ideal }) - 1250.0).abs() < 1e-9);
        assert_eq!(rated(Cells { spare_share: 0.25, ..ideal }), 1250.0);
        assert_eq!(rated(Cells { other_uses_share: 0.5, ..ideal }), 2000.0);
        assert!((rated(Cells { temperature_c: 0.0, ..ideal }) - 1250.0).abs() < 1e-9);
        // Twice the fade at 35 degrees.
        let hot = Cells { fade_per_year: 0.05, temperature_c: 35.0, ..ideal };
        assert!((rated(hot) - 1000.0 / 0.6).abs() < 1e-9);
        assert_eq!(rated(Cells { density_share: 0.5, ..ideal }), 1000.0);
    }

    #[test]
    fn what_is_bought_for_an_energy_gives_that_energy() {
        let cells = Cells { spare_share: 0.2, other_uses_share: 0.3, ..Cells::default() };
        let battery = cells.battery_for(5000.0).unwrap();
        assert!((cells.reliable_joules(battery.rated_joules).unwrap() - 5000.0).abs() < 1e-6);
    }

    #[test]
    fn nonsense_is_named() {
        let error = |cells: Cells| cells.battery_for(1.0).unwrap_err().to_string();
        let deep = error(Cells { depth_of_discharge: 1.5, ..Cells::default() });
        assert_eq!(deep, "depth of discharge of 1.5: expected 0.01 to 1");
        let dear = error(Cells { usd_per_kj: -1.0, ..Cells::default() });
        assert_eq!(dear, "price in USD a kWh of -3600: expected 0 to 1000000");
        assert!(error(Cells { years: f64::NAN, ..Cells::default() }).contains("NaN"));
        assert!(
            error(Cells { years: 20.0, ..Cells::default() }).contains("nothing of the battery")
        );
    }
}
