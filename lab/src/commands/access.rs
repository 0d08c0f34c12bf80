//! `perdura-lab access run`: workload files in, one result file for each out. `perdura-lab access suite`: the
//! files that come with the program.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use perdura_lab::access::economy::Economy;
use perdura_lab::access::kernel::Isa;
use perdura_lab::access::page::page;
use perdura_lab::access::place::Place;
use perdura_lab::access::result::{BenchmarkResult, Figures, Label, Results};
use perdura_lab::access::stock::STOCK;
use perdura_lab::access::suite::{Bounds, Settings, check, run_benchmark};
use perdura_lab::access::workload::{self, Benchmark};
use perdura_media::{Bytes, System, Watts};

use super::DIR;
use perdura_terminal::LateBar;
use perdura_terminal::Output;
use perdura_terminal::{all_said, say};
use perdura_terminal::{named, optional};

/// Options of `perdura-lab access run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// A workload file (YAML, the published format of PerMA-Bench), or a folder with such files.
    #[arg(value_name = "FILE|DIR", required_unless_present = "suite")]
    workloads: Option<PathBuf>,
    /// The suite that comes with the program instead (`perdura-lab access suite` has its files): about half an
    /// hour, and 3 GiB of memory.
    #[arg(long, conflicts_with = "workloads")]
    suite: bool,
    /// Measure DRAM [default, if nothing else is given].
    #[arg(long, help_heading = "Where")]
    dram: bool,
    /// Measure a file mapped from this folder: persistent memory on a DAX file system, memory on
    /// tmpfs, the page cache elsewhere.
    #[arg(long, value_name = "DIR", help_heading = "Where", conflicts_with = "dram")]
    path: Option<PathBuf>,
    /// Nothing but DAX (MAP_SYNC) will do for --path.
    #[arg(long, help_heading = "Where", requires = "path")]
    dax: bool,
    /// Run on the model of a medium: a built-in profile or the path of a TOML file. No time passes;
    /// all figures are modelled.
    #[arg(long, value_name = "NAME", help_heading = "Where", conflicts_with_all = ["dram", "path"])]
    model: Option<String>,
    /// Measure a region's memory of which so much may be dirty.
    #[arg(long, value_name = "SIZE", help_heading = "Where", conflicts_with_all = ["dram", "path", "model"])]
    region: Option<String>,
    /// Measure a block device, or a file that stands for one, by direct I/O of whole blocks of 4
    /// KiB.
    #[arg(long, value_name = "FILE", help_heading = "Where", conflicts_with_all = ["dram", "path", "model", "region"])]
    device: Option<PathBuf>,
    /// What is on the device may be destroyed: benchmarks that write are refused without it.
    #[arg(long, help_heading = "Where", requires = "device")]
    overwrite: bool,
    /// Folder of the region's image.
    #[arg(long, value_name = "DIR", help_heading = "Where", default_value = DIR)]
    dir: PathBuf,
    /// Loads and stores: avx512, avx2, sse2, portable [default: the widest the processor has].
    #[arg(long, value_name = "NAME")]
    isa: Option<String>,
    /// Folder for the results, one file for each workload file; made if it is not there, and empty
    /// if it is.
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    results: PathBuf,
    /// Also draw them: one page, a chart for every matrix, no script.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    html: Option<PathBuf>,
    /// Power that the machine draws, where the processor cannot count energy: nanojoules an
    /// operation follow.
    #[arg(long, value_name = "WATTS", help_heading = "Costs")]
    watts: Option<String>,
    /// Price of the machine, euro: spread over --years, an operation's share follows.
    #[arg(long, value_name = "EUR", help_heading = "Costs")]
    price: Option<f64>,
    /// Years that the machine serves.
    #[arg(long, value_name = "N", help_heading = "Costs", default_value_t = 4.0)]
    years: f64,
    /// No range larger than this, whatever the files say.
    #[arg(long, value_name = "SIZE", help_heading = "Bounds")]
    range_max: Option<String>,
    /// No more operations in a cell than this.
    #[arg(long, value_name = "N", help_heading = "Bounds")]
    operations_max: Option<u64>,
    /// No cell that goes by time longer than this.
    #[arg(long, value_name = "SECONDS", help_heading = "Bounds")]
    run_time_max: Option<u64>,
    /// No more threads in a benchmark than this.
    #[arg(long, value_name = "N", help_heading = "Bounds", value_parser = clap::value_parser!(u64).range(1..))]
    threads_max: Option<u64>,
}

/// Options of `perdura-lab access suite`.
#[derive(Debug, Args)]
pub struct SuiteArgs {
    /// Write its files to this folder, which is made if it is not there; none that is there is
    /// written over.
    #[arg(long, value_name = "DIR")]
    write: Option<PathBuf>,
}

pub fn run(args: &RunArgs) -> Result<ExitCode> {
    let settings = resolve(args)?;
    // All are judged before any runs.
    let files = load(args)?;
    for file in &files {
        for benchmark in &file.benchmarks {
            check(benchmark, &settings).with_context(|| file.source.clone())?;
        }
    }
    prepare(&args.results)?;
    let html = Output::of("html", args.html.as_deref())?;
    let mut all = Vec::new();
    let outcome = measure(&files, &settings, &args.results, &mut all);
    // What was measured is told, whatever happened to the rest.
    all.iter().flat_map(|(_, results)| results).for_each(show);
    if let Some(html) = html {
        html.write(page(&all).as_bytes())?;
    }
    outcome?;
    say(format_args!("\nresults: {}", args.results.display()));
    all_said()?;
    Ok(ExitCode::SUCCESS)
}

pub fn suite(args: &SuiteArgs) -> Result<ExitCode> {
    if let Some(folder) = &args.write {
        let name = |path: &Path| format!("--write {}", path.display());
        fs::create_dir_all(folder).with_context(|| name(folder))?;
        for stock in STOCK {
            let path = folder.join(stock.name);
            let mut file = File::create_new(&path).with_context(|| name(&path))?;
            file.write_all(stock.text.as_bytes()).with_context(|| name(&path))?;
        }
    }
    for stock in STOCK {
        for benchmark in stock.load()? {
            let cells = benchmark.runs().count();
            say(format_args!("{:<18} {:<32} {cells:>3} cells", stock.name, benchmark.name));
        }
    }
    all_said()?;
    Ok(ExitCode::SUCCESS)
}

/// A workload file.
struct Loaded {
    source: String,
    /// Name of the file that its results go to.
    results: String,
    benchmarks: Vec<Benchmark>,
}

fn load(args: &RunArgs) -> Result<Vec<Loaded>> {
    let Some(root) = &args.workloads else {
        let stock = STOCK.iter().map(|stock| {
            let (source, results) = (stock.name.to_owned(), result_name(Path::new(stock.name)));
            Ok(Loaded { source, results, benchmarks: stock.load()? })
        });
        return stock.collect();
    };
    let mut loaded: Vec<Loaded> = Vec::new();
    for file in workload::files(root)? {
        let within = match file.strip_prefix(root) {
            Ok(within) if !within.as_os_str().is_empty() => within,
            _ => Path::new(file.file_name().unwrap_or_default()),
        };
        let (source, results) = (file.display().to_string(), result_name(within));
        // `a/b.yaml` and `a-b.yaml`, `a.yaml` and `a.yml`.
        if loaded.iter().any(|other| other.results == results) {
            bail!(
                "{source}: its results would go to {results}, as those of another file; rename it"
            );
        }
        loaded.push(Loaded { source, results, benchmarks: workload::load(&file)? });
    }
    Ok(loaded)
}

/// Runs one after another; `all` has what was measured even where it ends in an error.
fn measure(
    files: &[Loaded],
    settings: &Settings,
    folder: &Path,
    all: &mut Vec<(String, Vec<BenchmarkResult>)>,
) -> Result<()> {
    let total: usize =
        files.iter().flat_map(|file| &file.benchmarks).map(|one| one.runs().count()).sum();
    let bar = LateBar::new("cells");
    let mut before = 0;
    for file in files {
        all.push((file.results.clone(), Vec::new()));
        for benchmark in &file.benchmarks {
            let told = |done: usize, _| {
                bar.step(&benchmark.name, (before + done) as u64, total as u64);
            };
            let result = run_benchmark(benchmark, settings, &told);
            let result = result.with_context(|| file.source.clone());
            if result.is_err() {
                bar.finish();
            }
            before += benchmark.runs().count();
            if let Some((_, results)) = all.last_mut() {
                results.push(result?);
                keep(&folder.join(&file.results), results)?;
            }
        }
    }
    bar.finish();
    Ok(())
}

fn resolve(args: &RunArgs) -> Result<Settings> {
    let place = match (&args.path, &args.model, &args.region) {
        (Some(path), ..) => {
            ensure!(path.is_dir(), "--path {}: expected a folder that is there", path.display());
            Place::Folder { path: path.clone(), dax_only: args.dax }
        }
        (_, Some(name), _) => {
            Place::Model(Box::new(System::find(name).with_context(|| format!("--model {name}"))?))
        }
        (_, _, Some(text)) => {
            let Bytes(budget_bytes) = named("region", text, text.parse())?;
            Place::Region { budget_bytes, dir: args.dir.clone() }
        }
        _ => match &args.device {
            Some(path) => Place::Device { path: path.clone(), overwrite: args.overwrite },
            None => Place::Dram,
        },
    };
    let isa = args.isa.as_ref().map(|text| {
        text.parse::<Isa>().map_err(|expected| anyhow::anyhow!("--isa {text}: {expected}"))
    });
    let bounds = Bounds {
        range_max: optional::<Bytes>("range-max", &args.range_max)?.map(|Bytes(bytes)| bytes),
        operations_max: args.operations_max,
        run_time_max: args.run_time_max,
        threads_max: args.threads_max,
    };
    ensure!(
        args.years > 0.0 && args.years.is_finite(),
        "--years {}: expected more than 0",
        args.years
    );
    if let Some(price) = args.price {
        ensure!(price >= 0.0 && price.is_finite(), "--price {price}: expected 0 or more");
    }
    let watts = optional::<Watts>("watts", &args.watts)?.map(|Watts(watts)| watts);
    let economy = Economy { watts, price_eur: args.price, years: args.years };
    Ok(Settings { place, isa: isa.transpose()?, bounds, economy })
}

/// Makes the folder, or sees that it is empty: results of two runs in one folder are taken for one
/// run's.
fn prepare(folder: &Path) -> Result<()> {
    let name = || format!("--results {}", folder.display());
    match fs::read_dir(folder) {
        Ok(mut entries) => {
            if let Some(entry) = entries.next() {
                let entry = entry.with_context(name)?;
                bail!(
                    "{}: not empty ({} is there); give another folder",
                    name(),
                    entry.path().display()
                );
            }
            Ok(())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            fs::create_dir_all(folder).with_context(name)
        }
        Err(error) => Err(error).with_context(name),
    }
}

/// A name for a file's results: its own, with the folders it lies in.
fn result_name(within: &Path) -> String {
    let parts: Vec<_> = within.iter().map(|part| part.to_string_lossy()).collect();
    let joined = parts.join("-");
    let stem = joined.strip_suffix(".yaml").or_else(|| joined.strip_suffix(".yml"));
    format!("{}.json", stem.unwrap_or(&joined))
}

fn keep(path: &Path, results: &[BenchmarkResult]) -> Result<()> {
    let Some(output) = Output::of("results", Some(path))? else { return Ok(()) };
    output.write((serde_json::to_string_pretty(results)? + "\n").as_bytes())
}

fn show(result: &BenchmarkResult) {
    let how = match result.label {
        // No instructions.
        Label::Modelled => format!("modelled, {}", result.place),
        Label::Measured => format!("measured, {}, {}", result.place, result.instructions),
    };
    say(format_args!("\n{}: {how}", result.bm_name));
    if let Some(fit) = &result.fit {
        say(format_args!("{fit}"));
    }
    if !result.bounded.is_empty() {
        say(format_args!("bounded: {}", result.bounded.join("; ")));
    }
    for cell in &result.benchmarks {
        let varied = |config: &serde_json::Value, keys: &serde_json::Value| {
            let keys = keys.as_array().into_iter().flatten().filter_map(|key| key.as_str());
            let shown = |key: &str| {
                let value = config[key].as_str().map_or(config[key].to_string(), str::to_owned);
                format!("{key} {value}")
            };
            keys.map(shown).collect::<Vec<_>>().join(", ")
        };
        match &cell.results {
            Results::One(figures) => {
                row(&varied(&cell.config, &result.matrix_args), figures);
            }
            Results::Parallel(parts) => {
                for (name, part) in parts {
                    let varied = varied(&cell.config[name], &result.matrix_args[name]);
                    row(&format!("{name}: {varied}"), &part.results);
                }
            }
        }
    }
}

fn row(name: &str, figures: &Figures) {
    let latency = figures.latency.as_ref().map_or(String::new(), |latency| {
        format!("  median {} ns, p99 {} ns", latency.median, latency.percentile_99)
    });
    let fit = figures.fit.as_ref().map_or(String::new(), |fit| format!("  {fit}"));
    let costs = figures.costs.as_ref();
    let energy = costs.and_then(|costs| costs.nj_per_operation);
    let energy = energy.map_or(String::new(), |nj| format!("  {nj:.1} nJ/op"));
    say(format_args!(
        "  {name:<60} {:>9.3} GiB/s {:>12.0} op/s{latency}{energy}{fit}",
        figures.bandwidth, figures.ops_per_second
    ));
}
