//! The commands of `perdura-lab`: words to settings, settings to a measurement, results to the
//! terminal and to files. Each command has its options in its own file.

mod access;
mod block;
mod caches;
mod compare;
mod haste;
mod heap;
mod insights;
mod media;
mod memory;
mod plan;
mod rivals;
mod run;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use perdura_terminal::LogFormat;
use perdura_warning::Warnings;
use tracing::level_filters::LevelFilter;

/// The laboratory of Perdura: measures memory, media, caches and heaps on this machine, and models
/// those that the machine lacks.
///
/// Sizes are written like 512MiB or 2GiB, times like 30s or 500ms, shares like 11%. Modelled
/// figures are labelled as modelled.
#[derive(Debug, Parser)]
#[command(name = "perdura-lab", version, max_term_width = 100, args_override_self = true)]
pub struct Lab {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Memory access as workload files describe it (the published format of PerMA-Bench).
    #[command(subcommand)]
    Access(AccessCommand),
    /// An emulated medium beside its own model: latency and bandwidth; and the time of the software
    /// on the way to it, by the steps of HASTE, beside today's ways to read a file.
    Media(Box<media::MediaArgs>),
    /// I/O-intensive work on fast memories (HASTE): raw requests, a file system, databases, matrix
    /// multiply and kernels; media modelled, software and computing measured.
    Haste(Box<haste::HasteArgs>),
    /// The heap beside libpmemobj, jemalloc, mimalloc and the C library's malloc: allocations and
    /// frees under churn, transactions, lines flushed, memory taken.
    Heap(Box<heap::HeapArgs>),
    /// How persistent and capacity memory in one heap disturb each other in the shared cache, step
    /// by step as in the pMem paper: page frames measured, a last-level cache modelled.
    Caches(Box<caches::CachesArgs>),
    /// Bare memory under stores of one size: each way of tracking, each victim policy, and how far
    /// each is from the least that any policy could write.
    Memory(Box<memory::MemoryArgs>),
    /// Predictions of `perdura plan trace` for budgets, beside a region that is fed the same
    /// writes: on a modelled device, and on a real one.
    Plan(Box<plan::PlanCheckArgs>),
    /// The embedded store beside LMDB, RocksDB, redb, fjall and a hash map; run by a program that
    /// is built apart.
    Rivals(rivals::RivalsArgs),
    /// Serve a modelled medium as a block device: over NBD, or as a file in a directory.
    Block(Box<block::BlockArgs>),
    /// Run another program with its files on a modelled medium.
    Run(run::RunArgs),
    /// Hold the objects of one contestant (started by `heap`, not by hand).
    #[command(hide = true)]
    HeapWorker,
}

#[derive(Debug, Subcommand)]
enum AccessCommand {
    /// Run workload files: bandwidth, operations and latency of DRAM, files, persistent memory, a
    /// region, or the model of a medium.
    Run(Box<access::RunArgs>),
    /// Compare two result files of `access run`: the ratio of each cell, and whether it is more
    /// than chance.
    Compare(compare::CompareArgs),
    /// List the workloads that `access run --suite` runs, or write their files.
    Suite(access::SuiteArgs),
    /// Measure the eight insights of PerMA-Bench on this machine: each in a sentence with figures,
    /// beside the published systems; and euro per GB and per GB/s.
    Insights(insights::InsightsArgs),
}

/// Folder for the images of a measurement, unless the caller names one.
const DIR: &str = "perdura-bench";

pub fn run(lab: Lab) -> Result<ExitCode> {
    perdura_terminal::log_to_stderr(LevelFilter::INFO, LogFormat::Plain);
    // `run` becomes another program, which keeps the signal settings of the caller.
    if !matches!(lab.command, Command::Run(_)) {
        perdura_terminal::ignore_file_size_signal();
    }
    match lab.command {
        Command::Access(AccessCommand::Run(args)) => access::run(&args),
        Command::Access(AccessCommand::Compare(args)) => compare::run(&args),
        Command::Access(AccessCommand::Suite(args)) => access::suite(&args),
        Command::Access(AccessCommand::Insights(args)) => insights::run(&args),
        Command::Media(args) => media::run(&args),
        Command::Haste(args) => haste::run(&args),
        Command::Heap(args) => heap::run(&args),
        Command::Caches(args) => caches::run(&args),
        Command::Memory(args) => memory::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Rivals(args) => rivals::run(&args),
        Command::Block(args) => {
            // Before any thread is started, which would take the signals.
            block::run(&args, Warnings::by_signals()?)
        }
        Command::Run(args) => run::run(&args),
        Command::HeapWorker => heap::work(),
    }
}
