//! A trace in shards, as Spark's workers count and merge them.

use perdura_plan::shards::{Shard, ShardPiece, Shards as Counter};
use perdura_plan::skew::Part;
use perdura_plan::trace::Op;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::columns::{Flags, Longs, Texts};
use crate::sys::Batch;
use crate::value_error;
use crate::words::options;

/// Volume, range, and the part's bytes.
type Done<'py> = (String, u64, Bound<'py, PyBytes>);

/// Counts the shards of a stream that is sorted by volume, range and time.
#[pyclass(unsendable)]
pub struct Shards {
    counter: Counter,
}

#[pymethods]
impl Shards {
    /// Windows in nanoseconds, and the time of the trace's first record.
    #[new]
    fn new(windows_ns: Vec<u64>, origin_ns: u64) -> PyResult<Self> {
        Ok(Self { counter: Counter::new(options(windows_ns, Vec::new())?, origin_ns) })
    }

    /// Counts a batch with the columns volume, range, time_ns, first_page, pages, is_write and is_first; gives the shards that
    /// are complete.
    fn add<'py>(&mut self, batch: &Bound<'py, PyAny>) -> PyResult<Vec<Done<'py>>> {
        let py = batch.py();
        let batch = Batch::of(batch).map_err(value_error)?;
        let rows = batch.rows().map_err(value_error)?;
        let longs = |name| Longs::of(&batch, name).map_err(value_error);
        let (ranges, times) = (longs("range")?, longs("time_ns")?);
        let (firsts, counts) = (longs("first_page")?, longs("pages")?);
        let volumes = Texts::of(&batch, "volume").map_err(value_error)?;
        let flags = |name| Flags::of(&batch, name).map_err(value_error);
        let (writes, are_first) = (flags("is_write")?, flags("is_first")?);
        let mut done = Vec::new();
        for row in 0..rows {
            let piece = ShardPiece {
                time_ns: times.get(row).map_err(value_error)?,
                op: if writes.get(row) { Op::Write } else { Op::Read },
                first_page: firsts.get(row).map_err(value_error)?,
                pages: counts.get(row).map_err(value_error)?,
                is_first: are_first.get(row),
            };
            let volume = volumes.get(row).map_err(value_error)?;
            let range = ranges.get(row).map_err(value_error)?;
            if let Some(shard) = self.counter.add(volume, range, &piece).map_err(value_error)? {
                done.push(bytes_of(py, shard)?);
            }
        }
        Ok(done)
    }

    /// The last shard, if there is one.
    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Done<'py>>> {
        let last = self.counter.finish().map_err(value_error)?;
        last.map(|shard| bytes_of(py, shard)).transpose()
    }
}

fn bytes_of(py: Python<'_>, shard: Shard) -> PyResult<Done<'_>> {
    let bytes = shard.part.to_bytes().map_err(value_error)?;
    Ok((shard.volume, shard.range, PyBytes::new(py, &bytes)))
}

/// Merges parts of different pages.
#[pyfunction]
pub fn merge<'py>(
    py: Python<'py>,
    parts: Vec<Bound<'py, PyBytes>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let parts = parts.iter().map(|bytes| Part::from_bytes(bytes.as_bytes()));
    let parts: Vec<Part> = parts.collect::<Result<_, _>>().map_err(value_error)?;
    let merged = Part::merge(&parts).and_then(|part| part.to_bytes()).map_err(value_error)?;
    Ok(PyBytes::new(py, &merged))
}

/// A part without what merging needs: as small as what is shown of it.
#[pyfunction]
pub fn settle<'py>(part: &Bound<'py, PyBytes>) -> PyResult<Bound<'py, PyBytes>> {
    let settled = Part::from_bytes(part.as_bytes()).and_then(Part::settled);
    let bytes = settled.and_then(|part| part.to_bytes()).map_err(value_error)?;
    Ok(PyBytes::new(part.py(), &bytes))
}
