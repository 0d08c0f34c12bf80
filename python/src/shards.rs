//! Counting and merging the shards of a trace, as Spark's workers do.

use perdura_plan::shards::{Shard, ShardPiece, Shards as Counter};
use perdura_plan::skew::{Join, Part};
use perdura_plan::trace::Op;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::columns::{Flags, Longs, Texts};
use crate::sys::Batch;
use crate::value_error;
use crate::words::options;

/// A shard for Python: volume, range, slice and the part's bytes. The slice is [`REST`] for the
/// part without its slices, and the slice's number otherwise.
type Done<'py> = (String, u64, i64, Bound<'py, PyBytes>);

/// Stands in the place of a slice's number for the part without its slices.
pub const REST: i64 = -1;

/// Counts the shards of a stream that is sorted by volume, range and time.
#[pyclass(unsendable)]
pub struct Shards {
    counter: Counter,
    bounds_ns: Vec<u64>,
}

#[pymethods]
impl Shards {
    /// Begins to count with windows in nanoseconds. `start_ns` is the time of the trace's first
    /// record; `bounds_ns` are the times since then at which parts are cut, in rising order.
    #[new]
    fn new(windows_ns: Vec<u64>, start_ns: u64, bounds_ns: Vec<u64>) -> PyResult<Self> {
        if !bounds_ns.is_sorted() {
            return Err(value_error(format_args!("bounds {bounds_ns:?} do not rise")));
        }
        let counter = Counter::new(options(windows_ns, Vec::new())?, start_ns);
        Ok(Self { counter, bounds_ns })
    }

    /// Counts a batch with the columns volume, range, time_ns, first_page, pages, is_write and
    /// is_first; gives the shards that are complete.
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
                done.extend(self.cut(py, shard)?);
            }
        }
        Ok(done)
    }

    /// Ends the stream and gives the last shard, if there is one.
    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<Vec<Done<'py>>> {
        match self.counter.finish().map_err(value_error)? {
            Some(last) => self.cut(py, last),
            None => Ok(Vec::new()),
        }
    }
}

impl Shards {
    fn cut<'py>(&self, py: Python<'py>, shard: Shard) -> PyResult<Vec<Done<'py>>> {
        let Shard { volume, range, part } = shard;
        let (rest, slices) = part.cut(&self.bounds_ns).map_err(value_error)?;
        let slices = slices.into_iter().map(|(number, slice)| (number as i64, slice));
        let all = std::iter::once((REST, rest)).chain(slices);
        all.map(|(number, part)| Ok((volume.clone(), range, number, bytes_of(py, &part)?)))
            .collect()
    }
}

fn bytes_of<'py>(py: Python<'py>, part: &Part) -> PyResult<Bound<'py, PyBytes>> {
    Ok(PyBytes::new(py, &part.to_bytes().map_err(value_error)?))
}

/// Merges the parts of disjoint sets of pages to one part.
#[pyfunction]
pub fn merge<'py>(
    py: Python<'py>,
    parts: Vec<Bound<'py, PyBytes>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let parts = parts.iter().map(|bytes| Part::from_bytes(bytes.as_bytes()));
    let parts: Vec<Part> = parts.collect::<Result<_, _>>().map_err(value_error)?;
    bytes_of(py, &Part::merge(&parts).map_err(value_error)?)
}

/// Joins a part and its slices, in the order of time.
#[pyclass(unsendable)]
pub struct Joined {
    join: Option<Join>,
}

#[pymethods]
impl Joined {
    /// Begins with the part without its slices.
    #[new]
    fn new(rest: &Bound<'_, PyBytes>) -> PyResult<Self> {
        let rest = Part::from_bytes(rest.as_bytes()).map_err(value_error)?;
        Ok(Self { join: Some(Join::new(rest).map_err(value_error)?) })
    }

    /// Joins the next slice.
    fn push(&mut self, slice: &Bound<'_, PyBytes>) -> PyResult<()> {
        let slice = Part::from_bytes(slice.as_bytes()).map_err(value_error)?;
        let join = self.join.as_mut().ok_or_else(|| value_error("joined already"))?;
        join.push(slice).map_err(value_error)
    }

    /// Ends the joining and returns the part with its figures and without sums by instant.
    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let join = self.join.take().ok_or_else(|| value_error("joined already"))?;
        bytes_of(py, &join.finish().map_err(value_error)?)
    }
}
