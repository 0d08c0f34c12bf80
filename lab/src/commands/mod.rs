//! The commands of `perdura-lab`: words to settings, settings to a measurement, results to the
//! terminal and to files. Each command has its words in its own file.

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
use perdura_warning::Warnings;

/// The laboratory of Perdura: what memory, media, caches and heaps do on this machine, and what
/// models say of those that it lacks.
///
/// Sizes are like 512MiB or 2GiB, times like 30s or 500ms, shares like 11%. What is modelled is
/// called modelled.
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
    /// A modelled medium beside its own model: latency and bandwidth; and what the software on the
    /// way to it takes, by the steps of HASTE, beside today's ways to a file.
    Media(Box<media::MediaArgs>),
    /// What fast memories do to I/O-intensive work (HASTE): raw requests, with a file system,
    /// databases, matrix multiply and kernels; media modelled, software and computing measured.
    Haste(Box<haste::HasteArgs>),
    /// The heap beside libpmemobj, jemalloc, mimalloc and the C library's malloc: allocations and
    /// frees under churn, transactions, lines flushed, memory taken.
    Heap(Box<heap::HeapArgs>),
    /// What persistent and capacity memory in one heap cost each other in the cache they share,
    /// step by step as in the pMem paper: page frames measured, a last-level cache modelled.
    Caches(Box<caches::CachesArgs>),
    /// Bare memory under stores of one size: each way of tracking, each victim policy, and how far
    /// they are from the least that any policy could write.
    Memory(Box<memory::MemoryArgs>),
    /// What `perdura plan trace` predicts of budgets beside a region that is fed the same writes:
    /// on a modelled device, and on this one.
    Plan(Box<plan::PlanCheckArgs>),
    /// The embedded store beside LMDB, RocksDB, redb, fjall and a hash map; by a program that is
    /// built apart.
    Rivals(rivals::RivalsArgs),
    /// Serve a modelled medium as a block device: NBD, a file in a directory.
    Block(Box<block::BlockArgs>),
    /// Run another program with its files on a modelled medium.
    Run(run::RunArgs),
    /// Hold a contestant's objects (started by `heap`, not by hand).
    #[command(hide = true)]
    HeapWorker,
}

#[derive(Debug, Subcommand)]
enum AccessCommand {
    /// Run workload files: bandwidth, operations and latency, of DRAM, files, persistent memory, a
    /// region, or the model of a medium.
    Run(Box<access::RunArgs>),
    /// Two result files of `access run` side by side: the ratio of each cell, and whether it is
    /// more than chance.
    Compare(compare::CompareArgs),
    /// The workloads that `access run --suite` runs: their names, or the files.
    Suite(access::SuiteArgs),
    /// What the eight insights of PerMA-Bench are on this machine: each in a sentence with figures,
    /// beside the published systems; and euro per GB and per GB/s.
    Insights(insights::InsightsArgs),
}

/// Where images lie while they are measured, unless the caller says otherwise.
const DIR: &str = "perdura-bench";

pub fn run(lab: Lab) -> Result<ExitCode> {
    perdura_terminal::log_to_stderr();
    // A program that `run` becomes has its signals as whoever called has set them.
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
