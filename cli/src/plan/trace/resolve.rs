//! From options of `plan trace` to a question.

use anyhow::{Context, Result, ensure};
use perdura_media::{Bytes, BytesPerSecond, Percent, parse_duration};
use perdura_plan::power::Machine;
use perdura_plan::report::{BudgetWish, Question, SizingQuestion};
use perdura_plan::skew::{Options, SKEW_SHARE_PERCENT, Sampling, Share};
use perdura_plan::trace::{Columns, Format, ReadOptions, TimeUnit};
use perdura_region::BUDGET_MIN_BYTES;

use super::args::{AnalysisArgs, ReadingArgs, TraceArgs};
use crate::plan::rate;
use perdura_terminal::region::{checkpoint, policy};
use perdura_terminal::{named, optional, time};

/// The flush rate where none is given or measured: an ordinary NVMe SSD sustains it.
const FLUSH_RATE: BytesPerSecond = BytesPerSecond(1_000_000_000);

/// The question to the crate `perdura-plan`, and the machine that it is about.
pub struct Resolved {
    pub question: Question,
    pub machine: Machine,
    /// Where the flush rate comes from.
    pub rate_is: RateIs,
    pub jobs: usize,
}

/// Where the flush rate comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateIs {
    Measured,
    Given,
    Assumed,
}

impl RateIs {
    /// How many times slower the server may find the rate: more where nobody measured the SSD.
    fn margin(self) -> f64 {
        match self {
            Self::Measured | Self::Given => 1.25,
            Self::Assumed => 2.0,
        }
    }
}

pub fn of(args: &TraceArgs) -> Result<Resolved> {
    let (read, skew) = (reading(&args.reading)?, analysis(&args.analysis)?);
    let (rate, rate_is) = match (&args.sizing.measure, &args.power.flush_rate) {
        (Some(dir), _) => (rate::measure(dir)?, RateIs::Measured),
        (None, Some(_)) => (FLUSH_RATE, RateIs::Given),
        (None, None) => (FLUSH_RATE, RateIs::Assumed),
    };
    let machine = args.power.resolve(rate, rate_is.margin())?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = args.jobs.map_or(processors, usize::from);
    let sizing = match args.sizing.no_sizing || args.analysis.approximate {
        true => None,
        false => Some(sizing(args, machine)?),
    };
    let volume_bytes = optional("volume-size", &args.analysis.volume_size)?;
    let volume_bytes = volume_bytes.map(|Bytes(bytes)| bytes);
    let question = Question { read, skew, volume_bytes, sizing, threads: jobs };
    Ok(Resolved { question, machine, rate_is, jobs })
}

fn reading(args: &ReadingArgs) -> Result<ReadOptions> {
    let format = args.format.as_ref().map(|name| {
        let names: Vec<_> = Format::ALL.iter().map(|format| format.name()).collect();
        Format::parse(name)
            .with_context(|| format!("--format {name}: expected one of {}", names.join(", ")))
    });
    let time_unit = args.time_unit.as_ref().map(|name| {
        let names: Vec<_> = TimeUnit::ALL.iter().map(|unit| unit.name()).collect();
        TimeUnit::parse(name)
            .with_context(|| format!("--time-unit {name}: expected one of {}", names.join(", ")))
    });
    let sector = |Bytes(bytes): Bytes| -> Result<u64> {
        ensure!((1..=65_536).contains(&bytes), "--sector-size {bytes}: expected 1 to 65536");
        Ok(bytes)
    };
    let usual = ReadOptions::default();
    Ok(ReadOptions {
        format: format.transpose()?,
        time_unit: time_unit.transpose()?,
        sector_bytes: optional("sector-size", &args.sector_size)?.map(sector).transpose()?,
        skip_bad: args.skip_bad,
        reorder_ns: time("reorder", &args.reorder)?.map_or(0, |span| span.as_nanos() as u64),
        columns: args
            .columns
            .as_ref()
            .map(|text| named("columns", text, Columns::parse(text)))
            .transpose()?,
        record_bytes: optional("record-size", &args.record_size)?
            .map_or(usual.record_bytes, |Bytes(bytes)| bytes),
        operations_per_s: args.operations_per_s.unwrap_or(usual.operations_per_s),
        instructions_per_s: args.instructions_per_s.unwrap_or(usual.instructions_per_s),
        block_action: args.block_action,
    })
}

fn analysis(args: &AnalysisArgs) -> Result<Options> {
    let window = |text: &String| -> Result<u64> {
        let window = named("windows", text, parse_duration(text))?;
        u64::try_from(window.as_nanos()).with_context(|| format!("--windows {text}: too long"))
    };
    let share =
        |percent: &f64| Share::percent(*percent).with_context(|| format!("--shares {percent}"));
    let windows = args.windows.iter().map(window).collect::<Result<_>>()?;
    // The report judges skew, and whether a small battery will do, by this share.
    let judged: f64 = SKEW_SHARE_PERCENT.parse().context("a share")?;
    let shares = args.shares.iter().chain([&judged]).map(share).collect::<Result<_>>()?;
    let mut options = Options::new(windows, shares).context("--windows")?;
    if args.approximate {
        options.sampling = Some(Sampling::default());
    }
    Ok(options)
}

fn sizing(args: &TraceArgs, machine: Machine) -> Result<SizingQuestion> {
    let sizing = &args.sizing;
    let budget = |text: &String| -> Result<BudgetWish> {
        if text.trim_end().ends_with('%') {
            let Percent(percent) = named("budgets", text, text.parse())?;
            ensure!(percent > 0.0, "--budgets {text}: expected more than 0%");
            return Ok(BudgetWish::Percent(percent));
        }
        let Bytes(bytes) = named("budgets", text, text.parse())?;
        ensure!(
            bytes >= BUDGET_MIN_BYTES,
            "--budgets {text}: expected {} or more, the smallest that a region can have",
            Bytes(BUDGET_MIN_BYTES)
        );
        Ok(BudgetWish::Bytes(bytes))
    };
    let Percent(stalls) = named("stalls", &sizing.stalls, sizing.stalls.parse())?;
    let Percent(stalled) =
        named("stalled-time", &sizing.stalled_time, sizing.stalled_time.parse())?;
    Ok(SizingQuestion {
        budgets: sizing.budgets.iter().map(budget).collect::<Result<_>>()?,
        stalls_max: stalls / 100.0,
        stalled_max: stalled / 100.0,
        policy: policy(&sizing.policy)?,
        checkpoint_every: checkpoint("checkpoint", &sizing.checkpoint)?,
        rated_bytes: optional::<Bytes>("tbw", &sizing.tbw)?.map(|Bytes(bytes)| bytes),
        machine,
    })
}
