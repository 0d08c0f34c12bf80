//! The figures in the text of the paper (Kateja et al., Viyojit, ISCA 2017, section 6). Figures
//! that only its curves show are not here.

/// Loss of throughput at a budget of 11 %, percent, by workload (section 6.2).
pub(super) const LOSS_AT_11: [(char, f64); 5] =
    [('a', 25.0), ('b', 8.0), ('c', 7.0), ('d', 10.0), ('f', 17.0)];

/// Highest write rate, with the whole heap written at the end: A at about 11 % (section 6.2, figure
/// 9).
pub(super) const WRITE_RATE_A_AT_11_MB_PER_S: f64 = 200.0;

/// The budget of both figures.
pub(super) const BUDGET_PERCENT: f64 = 11.0;

/// Other statements of the paper.
pub(super) const IN_WORDS: [&str; 5] = [
    "C at about 45 %: throughput roughly that of the full budget.",
    "Write-heavy workloads need more than 50 % to stay within 10 % of the full budget, read-heavy \
     ones about 11 %.",
    "99th percentiles are always above the baseline's, mean latencies close to it once the budget \
     is large (A: 12 of 17.5 GB).",
    "Without the upkeep of recency throughput fell by more than half at 2 or 3 GB of 17.5 GB.",
    "Losses are smaller with 52.5 GB of data than with 17.5 GB.",
];

pub(super) fn loss_at_11(workload: &str) -> Option<f64> {
    LOSS_AT_11.iter().find(|(letter, _)| workload == letter.to_string()).map(|(_, loss)| *loss)
}
