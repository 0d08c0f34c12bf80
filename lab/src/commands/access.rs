//! `perdura-lab access run` runs workload files and writes one result file for each; `perdura-lab
//! access suite` lists or writes the files that come with the program.

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
    /// Run the suite that comes with the program instead (`perdura-lab access suite` lists its
    /// files): about half an hour, and 3 GiB of memory.
    #[arg(long, conflicts_with = "workloads")]
    suite: bool,
    /// Measure DRAM [default if no other memory is named].
    #[arg(long, help_heading = "Where")]
    dram: bool,
    /// Measure a file mapped from this folder: persistent memory on a DAX file system, memory on
    /// tmpfs, the page cache elsewhere.
    #[arg(long, value_name = "DIR", help_heading = "Where", conflicts_with = "dram")]
    path: Option<PathBuf>,
    /// Refuse a --path that is not on a DAX file system (mapped with MAP_SYNC).
    #[arg(long, help_heading = "Where", requires = "path")]
    dax: bool,
    /// Model a medium: the name of a built-in profile or the path of a TOML file. No time passes;
    /// all figures are modelled.
    #[arg(long, value_name = "NAME", help_heading = "Where", conflicts_with_all = ["dram", "path"])]
    model: Option<String>,
    /// Measure the memory of a region with a dirty budget of this size.
    #[arg(
        long,
        value_name = "SIZE",
        help_heading = "Where",
        conflicts_with_all = ["dram", "path", "model"]
    )]
    region: Option<String>,
    /// Measure a block device, or a file that stands for one, by direct I/O of whole blocks of 4
    /// KiB.
    #[arg(
        long,
        value_name = "FILE",
        help_heading = "Where",
        conflicts_with_all = ["dram", "path", "model", "region"]
    )]
    device: Option<PathBuf>,
    /// Allow benchmarks that write to destroy what is on the device; they are refused otherwise.
    #[arg(long, help_heading = "Where", requires = "device")]
    overwrite: bool,
    /// Folder for the region's image.
    #[arg(long, value_name = "DIR", help_heading = "Where", default_value = DIR)]
    dir: PathBuf,
    /// Instructions that load and store: avx512, avx2, sse2, portable [default: the widest that the
    /// processor has].
    #[arg(long, value_name = "NAME")]
    isa: Option<String>,
    /// Folder for the results, one file for each workload file; it is created, or has to be empty.
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    results: PathBuf,
    /// Also draw the results: one page with a chart for each matrix, without scripts.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    html: Option<PathBuf>,
    /// Power that the machine draws, where the processor cannot count energy; gives nanojoules an
    /// operation.
    #[arg(long, value_name = "WATTS", help_heading = "Costs")]
    watts: Option<String>,
    /// Price of the machine in euro; spread over --years, it gives the price of an operation.
    #[arg(long, value_name = "EUR", help_heading = "Costs")]
    price: Option<f64>,
    /// Years for which the machine serves.
    #[arg(long, value_name = "N", help_heading = "Costs", default_value_t = 4.0)]
    years: f64,
    /// Limit every range to this size, whatever the workload files say.
    #[arg(long, value_name = "SIZE", help_heading = "Bounds")]
    range_max: Option<String>,
    /// Limit every cell to this many operations.
    #[arg(long, value_name = "N", help_heading = "Bounds")]
    operations_max: Option<u64>,
    /// Limit cells that run for a time to this many seconds.
    #[arg(long, value_name = "SECONDS", help_heading = "Bounds")]
    run_time_max: Option<u64>,
    /// Limit every benchmark to this many threads.
    #[arg(
        long,
        value_name = "N",
        help_heading = "Bounds",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    threads_max: Option<u64>,
}

/// Options of `perdura-lab access suite`.
#[derive(Debug, Args)]
pub struct SuiteArgs {
    /// Write the files of the suite to this folder, which is created if missing; no existing file
    /// is overwritten.
    #[arg(long, value_name = "DIR")]
    write: Option<PathBuf>,
}

pub fn run(args: &RunArgs) -> Result<ExitCode> {
    let settings = resolve(args)?;
    // All files are checked before the first one runs.
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
    // The results of the finished files are reported even if a later file failed.
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

/// A workload file that was read and checked.
struct Loaded {
    source: String,
    /// Name of the file for its results.
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
        // Different workload files may have one result name: `a/b.yaml` and `a-b.yaml`, or `a.yaml`
        // and `a.yml`.
        if loaded.iter().any(|other| other.results == results) {
            bail!(
                "{source}: its results and another file's would both go to {results}; rename one \
                 of them"
            );
        }
        loaded.push(Loaded { source, results, benchmarks: workload::load(&file)? });
    }
    Ok(loaded)
}

/// Runs the files one after another. `all` has the results of the finished files even if a later
/// one fails.
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
            ensure!(path.is_dir(), "--path {}: expected a folder that exists", path.display());
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

/// Creates the folder, or checks that it is empty: the results of two runs in one folder would be
/// taken for those of one run.
fn prepare(folder: &Path) -> Result<()> {
    let name = || format!("--results {}", folder.display());
    match fs::read_dir(folder) {
        Ok(mut entries) => {
            if let Some(entry) = entries.next() {
                let entry = entry.with_context(name)?;
                bail!(
                    "{}: the folder is not empty (it has {}); give another folder",
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

/// The name of the result file: the workload file's name, with the folders in which it lies.
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
        // A model executes no instructions, so none are named.
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
    let energy = costs.and_then(|costs| costs.nj_per_operation.zip(costs.energy_from));
    let energy =
        energy.map_or(String::new(), |(nj, from)| format!("  {nj:.1} nJ/op ({})", from.name()));
    say(format_args!(
        "  {name:<60} {:>9.3} GiB/s {:>12.0} op/s{latency}{energy}{fit}",
        figures.bandwidth, figures.ops_per_second
    ));
}
