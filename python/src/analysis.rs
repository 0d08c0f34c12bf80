//! The analysis of a trace in one process, from records in the order of time.

use perdura_plan::skew::{Analyzer, Options};
use perdura_plan::trace::{Op, Record};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::columns::{Flags, Ints, Longs};
use crate::sys::Batch;
use crate::value_error;
use crate::words::options;

/// The analysis of a trace whose records come in the order of time.
#[pyclass(unsendable)]
pub struct Analysis {
    options: Options,
    /// `None` before the first record, whose time the analyzer needs, and after `finish`.
    analyzer: Option<Analyzer>,
    /// The records of the current batch, kept to reuse its memory.
    batch: Vec<Record>,
    /// The rows of all batches so far.
    rows: u64,
    /// The times of the first and the last record so far, nanoseconds.
    span_ns: Option<(u64, u64)>,
}

#[pymethods]
impl Analysis {
    /// Begins an analysis by its windows in nanoseconds and its shares of the writes in percent.
    #[new]
    fn new(windows_ns: Vec<u64>, shares: Vec<f64>) -> PyResult<Self> {
        let options = options(windows_ns, shares)?;
        Ok(Self { options, analyzer: None, batch: Vec::new(), rows: 0, span_ns: None })
    }

    /// Counts a batch with the columns time_ns, volume (its number), is_write, offset_bytes and
    /// len_bytes.
    fn add(&mut self, batch: &Bound<'_, PyAny>) -> PyResult<()> {
        let batch = Batch::of(batch).map_err(value_error)?;
        let rows = batch.rows().map_err(value_error)?;
        let longs = |name| Longs::of(&batch, name).map_err(value_error);
        let (times, offsets) = (longs("time_ns")?, longs("offset_bytes")?);
        let lens = longs("len_bytes")?;
        let volumes = Ints::of(&batch, "volume").map_err(value_error)?;
        let writes = Flags::of(&batch, "is_write").map_err(value_error)?;
        self.batch.clear();
        for row in 0..rows {
            let at = |error| value_error(format_args!("row {}: {error}", self.rows + row as u64));
            let record = Record {
                time_ns: times.get(row).map_err(|error| at(error.to_string()))?,
                offset_bytes: offsets.get(row).map_err(|error| at(error.to_string()))?,
                len_bytes: lens.get(row).map_err(|error| at(error.to_string()))?,
                volume: volumes.get(row).map_err(|error| at(error.to_string()))?,
                op: if writes.get(row) { Op::Write } else { Op::Read },
            };
            let last_ns = self.span_ns.map_or(0, |(_, last_ns)| last_ns);
            record.check(last_ns).map_err(|fault| at(fault.to_string()))?;
            let first_ns = self.span_ns.map_or(record.time_ns, |(first_ns, _)| first_ns);
            self.span_ns = Some((first_ns, record.time_ns));
            self.batch.push(record);
        }
        self.rows += rows as u64;
        let analyzer = match (&mut self.analyzer, self.span_ns) {
            (Some(analyzer), _) => analyzer,
            (none, Some((first_ns, _))) => {
                none.insert(Analyzer::new(&self.options, first_ns).map_err(value_error)?)
            }
            // There was no record yet.
            (None, None) => return Ok(()),
        };
        analyzer.add(&self.batch).map_err(value_error)
    }

    /// The parts of the volumes by number, and the part of all volumes; `None` if there was no
    /// record.
    #[allow(clippy::type_complexity)] // Python takes a tuple, which has no name.
    fn finish<'py>(
        &mut self,
        py: Python<'py>,
    ) -> PyResult<Option<(Vec<(u32, Bound<'py, PyBytes>)>, Bound<'py, PyBytes>)>> {
        let Some(analyzer) = self.analyzer.take() else { return Ok(None) };
        let found = analyzer.finish().map_err(value_error)?;
        let bytes = |part: &perdura_plan::skew::Part| {
            part.to_bytes().map(|bytes| PyBytes::new(py, &bytes)).map_err(value_error)
        };
        let all = bytes(&found.all().map_err(value_error)?)?;
        let volumes = found.volumes.iter().map(|(volume, part)| Ok((*volume, bytes(part)?)));
        Ok(Some((volumes.collect::<PyResult<_>>()?, all)))
    }
}
