//! Reads several files as one trace: their records in the order of time, with one volume for each
//! name.
//!
//! Each file must be in order, which its reader checks. Files may follow each other (the days of a
//! month) or cover the same time (the disks of a machine). A single file passes through unchanged.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::{ReadOptions, Record, TraceError, TraceReader};

/// How many records a batch has that is made of several files.
const BATCH_RECORDS: usize = 8192;

/// One or more files that are read as one trace.
pub struct Together {
    files: Vec<Open>,
    /// The time of each file's next record, the earliest first; empty where there is one file.
    next: BinaryHeap<Reverse<(u64, usize)>>,
    names: Vec<String>,
    numbers: HashMap<String, u32>,
}

struct Open {
    reader: TraceReader,
    batch: Vec<Record>,
    at: usize,
    /// For each volume of the file its number in the whole trace.
    volumes: Vec<u32>,
}

impl Together {
    /// Opens all files and reads the beginning of each.
    ///
    /// # Errors
    /// A file that cannot be read, or is no trace.
    pub fn open(paths: &[PathBuf], options: &ReadOptions) -> Result<Self, TraceError> {
        let readers = paths.iter().map(|path| TraceReader::open(Path::new(path), options));
        Self::new(readers.collect::<Result<_, _>>()?)
    }

    /// Takes readers that are open.
    ///
    /// # Errors
    /// Where several are given, the beginning of one cannot be read.
    pub fn new(readers: Vec<TraceReader>) -> Result<Self, TraceError> {
        let open = |reader| Open { reader, batch: Vec::new(), at: 0, volumes: Vec::new() };
        let mut together = Self {
            files: readers.into_iter().map(open).collect(),
            next: BinaryHeap::new(),
            names: Vec::new(),
            numbers: HashMap::new(),
        };
        if together.files.len() > 1 {
            for file in 0..together.files.len() {
                together.refill(file)?;
            }
        }
        Ok(together)
    }

    /// Clears `into` and fills it with the next records; false, and none, at the end.
    ///
    /// # Errors
    /// The error of a reader, after the records before it were handed out.
    pub fn next_batch(&mut self, into: &mut Vec<Record>) -> Result<bool, TraceError> {
        if let [only] = &mut self.files[..] {
            return only.reader.next_batch(into);
        }
        into.clear();
        while into.len() < BATCH_RECORDS {
            let Some(Reverse((_, file))) = self.next.pop() else { break };
            // As long as no other file has an earlier record, this one's go out in a row.
            let until_ns = self.next.peek().map_or(u64::MAX, |Reverse((time_ns, _))| *time_ns);
            let open = &mut self.files[file];
            while into.len() < BATCH_RECORDS
                && let Some(record) = open.batch.get(open.at).filter(|r| r.time_ns <= until_ns)
            {
                into.push(Record { volume: open.volumes[record.volume as usize], ..*record });
                open.at += 1;
            }
            match self.files[file].batch.get(self.files[file].at) {
                Some(record) => self.next.push(Reverse((record.time_ns, file))),
                None => self.refill(file)?,
            }
        }
        Ok(!into.is_empty())
    }

    /// The names of the volumes seen so far, by number.
    pub fn volumes(&self) -> &[String] {
        match &self.files[..] {
            [only] => only.reader.volumes(),
            _ => &self.names,
        }
    }

    /// The readers of the files, for what they tell beside records.
    pub fn readers(&self) -> impl Iterator<Item = &TraceReader> {
        self.files.iter().map(|open| &open.reader)
    }

    fn refill(&mut self, file: usize) -> Result<(), TraceError> {
        let open = &mut self.files[file];
        open.at = 0;
        if !open.reader.next_batch(&mut open.batch)? {
            return Ok(());
        }
        for name in &open.reader.volumes()[open.volumes.len()..] {
            let next = self.names.len() as u32;
            let number = *self.numbers.entry(name.clone()).or_insert(next);
            if number == next {
                self.names.push(name.clone());
            }
            open.volumes.push(number);
        }
        self.next.push(Reverse((open.batch[0].time_ns, file)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn reader(text: &'static str) -> TraceReader {
        let options = ReadOptions::default();
        TraceReader::new("t", Box::new(Cursor::new(text)), None, &options).unwrap()
    }

    fn all(mut together: Together) -> (Vec<(u64, u64, String)>, Vec<String>) {
        let (mut batch, mut records) = (Vec::new(), Vec::new());
        while together.next_batch(&mut batch).unwrap() {
            records.extend(batch.iter().map(|record| {
                let volume = together.volumes()[record.volume as usize].clone();
                (record.time_ns / 100, record.offset_bytes, volume)
            }));
        }
        (records, together.volumes().to_vec())
    }

    const ONE: &str = "100,a,0,Write,0,512,9\n300,a,0,Write,4096,512,9\n300,b,0,Read,4096,512,9\n";
    const TWO: &str = "200,b,0,Write,0,512,9\n300,a,0,Write,8192,512,9\n500,c,0,Write,8192,512,9\n";

    #[test]
    fn records_of_several_files_come_in_order_of_time() {
        let (records, volumes) = all(Together::new(vec![reader(ONE), reader(TWO)]).unwrap());
        let times: Vec<u64> = records.iter().map(|record| record.0).collect();
        assert_eq!(times, [100, 200, 300, 300, 300, 500]);
        assert_eq!(volumes.len(), 3, "{volumes:?}");
        let on = |name: &str| records.iter().filter(|record| record.2 == name).count();
        assert_eq!((on("a_0"), on("b_0"), on("c_0")), (3, 2, 1));
    }

    #[test]
    fn one_file_passes_through() {
        let (records, volumes) = all(Together::new(vec![reader(ONE)]).unwrap());
        assert_eq!(records.len(), 3);
        assert_eq!(volumes, ["a_0", "b_0"]);
    }
}
