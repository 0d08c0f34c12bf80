//! Whether a small battery will do: said plainly, with the figures it rests on.

use std::time::Duration;

use perdura_media::{Bytes, format_duration};
use serde::Serialize;

use super::TraceReport;

/// A budget of more than this share of the memory is no small battery.
const SMALL: f64 = 0.5;

/// Whether a small battery will do.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Verdict {
    /// It will.
    pub small_battery_will_do: bool,
    /// Why, or why not, with figures.
    pub because: String,
}

/// Of a study that is otherwise complete.
///
/// The analysis decides, as in the paper (section 3): skew, or few writes, is what a small battery
/// lives on. A replay may show a device fast enough to take uniform writes as they come; that is
/// said, but not called small: whoever plans on it pays with a write to the SSD for nearly every
/// write to memory, and stalls when the rate rises.
pub fn verdict(report: &TraceReport) -> Verdict {
    if report.all.page_writes == 0 {
        let because = report.assessment.advice.clone();
        return Verdict { small_battery_will_do: true, because };
    }
    let mut because = report.assessment.advice.clone();
    let mut will_do = report.assessment.small_battery;
    if !report.assessment.volume_given {
        because += " Shares are of what the trace touches; the volumes' real size, if given, makes them smaller.";
    }
    let longer = report.windows_longer();
    if !longer.is_empty() {
        because += &format!(
            " The trace lasts {} only: what is written in {} may be more than it shows.",
            format_duration(Duration::from_nanos(report.duration_ns)),
            longer.join(" or ")
        );
    }
    if let Some(sizing) = &report.sizing {
        match &sizing.smallest {
            Some(row) if sizing.is_limited() => {
                will_do = false;
                let chosen = &sizing.chosen;
                because += &format!(
                    " But the warning or battery given allows {} only. Modelled, {:.3} % of the page writes wait then, and writers \
                     {:.3} % of the time; it takes {} until {}.",
                    Bytes(chosen.budget_bytes),
                    100.0 * chosen.stalls_per_write,
                    100.0 * chosen.stalled_share,
                    Bytes(row.budget_bytes),
                    sizing.target()
                );
            }
            Some(row) => {
                will_do &= row.share_of_memory <= SMALL;
                because += &format!(
                    " Modelled, with a budget of {} ({:.2} % of the memory) {}, and {:.2} bytes go to the SSD for each byte of \
                     the page writes.",
                    Bytes(row.budget_bytes),
                    100.0 * row.share_of_memory,
                    sizing.target(),
                    row.device_bytes_per_user_byte
                );
            }
            None => {
                will_do = false;
                because += &format!(" Modelled: {}.", sizing.choice());
            }
        }
    }
    Verdict { small_battery_will_do: will_do, because }
}
