//! The machine and its battery, as options that several plans take.

use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use perdura_media::{Bytes, BytesPerSecond, Joules, Percent, Watts, format_duration};
use perdura_plan::power::{Backup, Cells, Comparison, Limit, Machine};

use perdura_terminal::say;
use perdura_terminal::{optional, time};

/// Power drawn during a flush if none is given: the paper's server (Viyojit, section 2.2).
const WATTS: f64 = 300.0;

/// The lowest rate that is accepted, bytes a second: below it a flush would take years.
const RATE_MIN: u64 = 1000;

/// The options about the machine's power and its battery.
#[derive(Debug, Args)]
pub struct PowerArgs {
    /// Rate at which dirty data reach the SSD in an emergency; `perdura serve` prints the rate that
    /// it proved.
    #[arg(long, value_name = "RATE", help_heading = "Power")]
    pub flush_rate: Option<String>,
    /// Rate at which an image is read again after a restart [default: the flush rate].
    #[arg(long, value_name = "RATE", help_heading = "Power")]
    pub load_rate: Option<String>,
    /// Power that the machine draws while it flushes [default: 300W, the paper's server].
    #[arg(long, value_name = "WATTS", help_heading = "Power")]
    pub watts: Option<String>,
    /// Time kept for everything but the writing [default: 2s].
    #[arg(long, value_name = "TIME", help_heading = "Power")]
    pub reserve: Option<String>,
    /// Length of the warning (a spot notice, SIGTERM's grace period), which limits the budget.
    #[arg(long, value_name = "TIME", help_heading = "Power")]
    pub grace: Option<String>,
    /// Rated energy of the battery, which limits the budget.
    #[arg(long, value_name = "JOULES", help_heading = "Power", conflicts_with = "grace")]
    pub battery: Option<String>,
    /// Share of a battery that may be discharged.
    #[arg(long, value_name = "PERCENT", help_heading = "Battery", default_value = "50%")]
    pub depth_of_discharge: String,
    /// Years the battery must last.
    #[arg(long, value_name = "N", help_heading = "Battery", default_value_t = 4.0)]
    pub years: f64,
    /// Capacity lost in a year at 25 degrees; twice as much every 10 degrees above.
    #[arg(long, value_name = "PERCENT", help_heading = "Battery", default_value = "5%")]
    pub fade: String,
    /// Temperature of the battery, degrees Celsius; 0.8 % of its energy is missing for each degree
    /// below 25.
    #[arg(
        long,
        value_name = "CELSIUS",
        help_heading = "Battery",
        default_value_t = 25.0,
        allow_negative_numbers = true
    )]
    pub temperature: f64,
    /// Spare cells, so that some may fail.
    #[arg(long, value_name = "PERCENT", help_heading = "Battery", default_value = "0%")]
    pub spare: String,
    /// Share of the usable energy kept for other uses, such as shaving peaks.
    #[arg(long, value_name = "PERCENT", help_heading = "Battery", default_value = "0%")]
    pub other_uses: String,
    /// Energy in a litre as a share of a phone cell's; cells in data centres have 30 % less.
    #[arg(long, value_name = "PERCENT", help_heading = "Battery", default_value = "70%")]
    pub density: String,
    /// Price of a rated kWh, US dollars, packaging and charging included [default: the paper's,
    /// 1465].
    #[arg(long, value_name = "USD", help_heading = "Battery")]
    pub usd_per_kwh: Option<f64>,
}

impl PowerArgs {
    /// The machine that the options describe. `flush_rate` is taken where no rate is given, and the
    /// server may prove a rate that is `rate_margin` times lower.
    pub fn resolve(&self, flush_rate: BytesPerSecond, rate_margin: f64) -> Result<Machine> {
        let BytesPerSecond(flush_bytes_per_s) =
            optional("flush-rate", &self.flush_rate)?.unwrap_or(flush_rate);
        let BytesPerSecond(load_bytes_per_s) =
            optional("load-rate", &self.load_rate)?.unwrap_or(BytesPerSecond(flush_bytes_per_s));
        let Watts(watts) = optional("watts", &self.watts)?.unwrap_or(Watts(WATTS));
        for (option, rate) in [("flush", flush_bytes_per_s), ("load", load_bytes_per_s)] {
            let shown = BytesPerSecond(rate);
            anyhow::ensure!(rate >= RATE_MIN, "--{option}-rate {shown}: expected 1 KB/s or more");
        }
        anyhow::ensure!(watts > 0.0, "--watts 0: expected more");
        let reserve = time("reserve", &self.reserve)?.unwrap_or(Duration::from_secs(2));
        let limit = match (time("grace", &self.grace)?, &self.battery) {
            (Some(grace), _) => Limit::Grace(grace.as_secs_f64()),
            (None, Some(text)) => {
                let Joules(joules) = text.parse().with_context(|| format!("--battery {text}"))?;
                Limit::Battery(joules)
            }
            (None, None) => Limit::Open,
        };
        let cells = self.cells()?;
        // The values are the user's, so the error must come while the options are known.
        cells.reliable_share()?;
        let reserve_s = reserve.as_secs_f64();
        Ok(Machine {
            flush_bytes_per_s,
            load_bytes_per_s,
            watts,
            reserve_s,
            rate_margin,
            cells,
            limit,
        })
    }

    fn cells(&self) -> Result<Cells> {
        let share = |name: &str, text: &str| -> Result<f64> {
            let Percent(percent) = text.parse().with_context(|| format!("--{name} {text}"))?;
            Ok(percent / 100.0)
        };
        Ok(Cells {
            depth_of_discharge: share("depth-of-discharge", &self.depth_of_discharge)?,
            years: self.years,
            fade_per_year: share("fade", &self.fade)?,
            temperature_c: self.temperature,
            spare_share: share("spare", &self.spare)?,
            other_uses_share: share("other-uses", &self.other_uses)?,
            density_share: share("density", &self.density)?,
            usd_per_kj: self.usd_per_kwh.map_or(Cells::PAPER_USD_PER_KJ, |usd| usd / 3600.0),
        })
    }
}

/// Shows what a flush of all memory takes beside one of the budget, as a table.
pub fn show(comparison: &Comparison) {
    say(format_args!("\n{:<22} {:>16} {:>16}", "modelled", "all memory", "the budget"));
    let (all, some) = (&comparison.all_memory, &comparison.budget);
    let row = |name: &str, of: &dyn Fn(&Backup) -> String| {
        say(format_args!("{name:<22} {:>16} {:>16}", of(all), of(some)));
    };
    let seconds = |s: f64| Duration::try_from_secs_f64(s).map_or("-".to_owned(), format_duration);
    row("to flush", &|one| Bytes(one.dirty_bytes).to_string());
    row("time to flush", &|one| seconds(one.flush_s));
    row("energy to flush", &|one| Joules(one.battery.needed_joules).to_string());
    row("battery, rated", &|one| Joules(one.battery.rated_joules).to_string());
    row("battery, volume", &|one| format!("{:.3} l", one.battery.litres));
    row("battery, phone cells", &|one| format!("{:.1}", one.battery.phone_cells));
    row("battery, price", &|one| format!("{:.0} USD", one.battery.usd));
    say(format_args!(
        "restart                loads for {} either way (modelled); Perdura answers before it has \
         loaded",
        seconds(comparison.load_s)
    ));
}
