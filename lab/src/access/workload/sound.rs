//! Properties that hold for any text: for tests and fuzzing.

use super::{Benchmark, CELLS_MAX, Chain, WorkloadError, parse};

/// Calls [`parse`] and checks its promises.
///
/// # Errors
/// As for `parse`.
///
/// # Panics
/// If a promise is broken: a fault has a line within the text; accepted benchmarks have cells, each
/// keeps every rule, and chains parse as they are printed.
pub fn parse_soundly(text: &str) -> Result<Vec<Benchmark>, WorkloadError> {
    let benchmarks = parse("w.yaml", text).inspect_err(|error| {
        // A text that ends too early has its fault on the line behind the last; YAML takes `\r`
        // alone for a line end, too.
        let lines = text.matches(['\n', '\r']).count() + 2;
        assert!((1..=lines).contains(&error.line), "{error}: of {lines} lines");
        assert!(!error.fault.to_string().is_empty());
    })?;
    let parts = || benchmarks.iter().flat_map(|benchmark| &benchmark.parts);
    let cells: usize = parts().map(|part| part.cells.len()).sum();
    assert!((1..=CELLS_MAX).contains(&cells), "{cells} cells");
    for benchmark in &benchmarks {
        let product: usize = benchmark.parts.iter().map(|part| part.cells.len()).product();
        assert!((1..=CELLS_MAX).contains(&product), "{}: {product} runs", benchmark.name);
    }
    for part in parts() {
        for cell in &part.cells {
            assert_eq!(cell.varied.len(), part.matrix.len());
            assert_eq!(cell.config.broken_rule(), None);
            if let Some(chain) = &cell.config.custom_operations {
                assert_eq!(chain.to_string().parse::<Chain>().as_ref(), Ok(chain));
            }
        }
    }
    Ok(benchmarks)
}
