//! Reads the rows of the chosen columns as records.

use ::parquet::basic::{ConvertedType, LogicalType, TimeUnit as StoredUnit, Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::schema::types::ColumnDescriptor;

use super::super::columns::{Column, Columns, Ops, Places, Sizes};
use super::super::sink::{BATCH_RECORDS, Seen, Sink};
use super::super::source::{Source, stem};
use super::super::text::fields::known_op;
use super::super::{Fault, Op, Place, ReadOptions, TimeUnit, TraceError};
use super::guarded::guarded;
use super::leaf::{Leaf, Value, odd};
use super::source::Stored;

/// The chosen columns of the row group that is being read.
struct Leaves {
    time: Leaf,
    offset: Leaf,
    size: Option<Leaf>,
    op: Option<Leaf>,
    volume: Option<Leaf>,
}

pub(crate) struct Rows {
    file: SerializedFileReader<Stored>,
    columns: Columns,
    places: Places,
    unit: TimeUnit,
    /// Whether numbers stand for reads and writes as this project writes them: 0 reads, 1 writes.
    has_own_ops: bool,
    file_volume: u32,
    group: usize,
    leaves: Option<Leaves>,
    /// The number of rows that are held, and how many of them were taken.
    held: usize,
    taken: usize,
    row: u64,
}

impl Rows {
    pub(crate) fn open(
        stored: Stored,
        options: &ReadOptions,
        sink: &mut Sink,
    ) -> Result<Rows, TraceError> {
        let name = sink.file().to_owned();
        let failed = |source: ParquetError| TraceError::Parquet {
            file: name.clone(),
            source: source.into(),
        };
        let file = guarded(|| SerializedFileReader::new(stored)).map_err(failed)?;
        let columns = options.columns.clone().unwrap_or_else(Columns::own);
        let is_own = options.columns.is_none();
        let places = places(&file, &columns, is_own, &name)?;
        let schema = file.metadata().file_metadata().schema_descr();
        let about_time = schema.column(places.time);
        // What a column's type says is no matter of choice.
        let unit = stored_unit(&about_time).or(columns.time.1).or(options.time_unit);
        let unit = unit.ok_or_else(|| TraceError::ColumnUnit {
            file: name.clone(),
            column: columns.time.0.to_string(),
            kind: about_time.physical_type().to_string(),
        })?;
        check_type(&name, &about_time, true)?;
        for place in [Some(places.offset), places.size, places.op].into_iter().flatten() {
            check_type(&name, &schema.column(place), false)?;
        }
        if let Some(place) = places.volume {
            check_volume(&name, &schema.column(place))?;
        }
        let file_volume = match places.volume {
            None => sink.volumes.named(stem(&name).as_bytes()).unwrap_or_default(),
            Some(_) => 0,
        };
        Ok(Rows {
            file,
            columns,
            places,
            unit,
            has_own_ops: is_own,
            file_volume,
            group: 0,
            leaves: None,
            held: 0,
            taken: 0,
            row: 0,
        })
    }

    /// Reads the next rows; false when there are no more.
    fn next_rows(&mut self) -> Result<bool, ParquetError> {
        loop {
            let leaves = match &mut self.leaves {
                Some(leaves) => leaves,
                None if self.group == self.file.num_row_groups() => return Ok(false),
                None => {
                    let leaves = self.leaves(self.group)?;
                    self.group += 1;
                    self.leaves.insert(leaves)
                }
            };
            let rows = leaves.time.read(BATCH_RECORDS)?;
            let others = [
                Some(&mut leaves.offset),
                leaves.size.as_mut(),
                leaves.op.as_mut(),
                leaves.volume.as_mut(),
            ];
            for leaf in others.into_iter().flatten() {
                let found = leaf.read(rows.max(1))?;
                if found != rows {
                    let uneven = format!("one column has {rows} more rows and another {found}");
                    return Err(ParquetError::General(uneven));
                }
            }
            if rows > 0 {
                (self.held, self.taken) = (rows, 0);
                return Ok(true);
            }
            self.leaves = None;
        }
    }

    fn leaves(&self, group: usize) -> Result<Leaves, ParquetError> {
        let group = self.file.get_row_group(group)?;
        let schema = self.file.metadata().file_metadata().schema_descr();
        let leaf = |place: usize| -> Result<Leaf, ParquetError> {
            let about = schema.column(place);
            let reader = group.get_column_reader(place)?;
            Ok(Leaf::new(reader, is_signed(&about), about.max_def_level() > 0))
        };
        Ok(Leaves {
            time: leaf(self.places.time)?,
            offset: leaf(self.places.offset)?,
            size: self.places.size.map(leaf).transpose()?,
            op: self.places.op.map(leaf).transpose()?,
            volume: self.places.volume.map(leaf).transpose()?,
        })
    }

    /// Makes a record of one of the rows that are held.
    #[inline]
    fn record(&self, row: usize, sink: &mut Sink) -> Seen {
        let Some(leaves) = &self.leaves else { return Ok(()) };
        let time_ns = leaves.time.time_ns(row, self.unit)?;
        let in_bytes = |column, number: u64, each: u64| {
            let too_large =
                || Box::new(Fault::TooLarge { column, value: number.to_string(), unit: "bytes" });
            number.checked_mul(each).ok_or_else(too_large)
        };
        let offset = leaves.offset.number("offset", row)?;
        let offset_bytes = in_bytes("offset", offset, self.columns.offset.1)?;
        let len_bytes = match (&self.columns.size, &leaves.size) {
            (Sizes::Column(_, each), Some(leaf)) => {
                in_bytes("size", leaf.number("size", row)?, *each)?
            }
            (Sizes::All(bytes), _) => *bytes,
            (Sizes::Column(..), None) => return Err(odd("size", None, "a column")),
        };
        let op = match (&self.columns.op, &leaves.op) {
            (Ops::All(op), _) => *op,
            (Ops::Column(_, write), Some(leaf)) => self.op(leaf, row, write.as_deref())?,
            (Ops::Column(..), None) => return Err(odd("op", None, "a column")),
        };
        let volume = match &leaves.volume {
            None => self.file_volume,
            Some(leaf) => match leaf.value(row) {
                Some(Value::Bytes(name)) => sink.volumes.named(name)?,
                Some(Value::Whole(number)) => sink.volumes.numbered(number)?,
                value => return Err(odd("volume", value, "a name or a number")),
            },
        };
        sink.access(time_ns, volume, op, offset_bytes, len_bytes)
    }

    #[inline]
    fn op(&self, leaf: &Leaf, row: usize, write: Option<&str>) -> Result<Op, Box<Fault>> {
        match (leaf.value(row), write) {
            (Some(Value::Whole(number @ 0..=1)), None) if self.has_own_ops => {
                Ok(if number == 1 { Op::Write } else { Op::Read })
            }
            (Some(Value::Whole(number)), Some(write)) => {
                Ok(if write.parse() == Ok(number) { Op::Write } else { Op::Read })
            }
            (Some(Value::Bytes(word)), Some(write)) if word == write.as_bytes() => Ok(Op::Write),
            (Some(Value::Bytes(word)), Some(_)) => Ok(known_op(word).unwrap_or(Op::Read)),
            (Some(Value::Bytes(word)), None) => known_op(word).ok_or_else(|| {
                odd("op", Some(Value::Bytes(word)), "read or write (r, w, Read, Write)")
            }),
            (value, _) => Err(odd(
                "op",
                value,
                "a word; which number writes is to be given, as in --columns op=kind:1",
            )),
        }
    }
}

impl Source for Rows {
    fn fill(&mut self, sink: &mut Sink) -> Result<bool, TraceError> {
        while !sink.is_full() {
            if self.taken == self.held {
                match guarded(|| self.next_rows()) {
                    Ok(true) => {}
                    Ok(false) => return Ok(false),
                    Err(source) => {
                        let source = source.into();
                        return Err(TraceError::Parquet { file: sink.file().to_owned(), source });
                    }
                }
            }
            if let Err(fault) = self.record(self.taken, sink) {
                sink.bad(Place::Row(self.row), fault)?;
            }
            self.taken += 1;
            self.row += 1;
        }
        Ok(true)
    }
}

/// The places of the chosen columns; the column of volumes that this project writes may be missing.
fn places(
    file: &SerializedFileReader<Stored>,
    columns: &Columns,
    is_own: bool,
    name: &str,
) -> Result<Places, TraceError> {
    let schema = file.metadata().file_metadata().schema_descr();
    let all = || {
        schema.columns().iter().map(|column| column.path().string()).collect::<Vec<_>>().join(", ")
    };
    let find = |column: &Column| match column {
        Column::Number(number) => Some(number - 1).filter(|&place| place < schema.num_columns()),
        Column::Name(name) => {
            let is_named =
                |place: &usize| schema.column(*place).path().string().eq_ignore_ascii_case(name);
            (0..schema.num_columns()).find(is_named)
        }
    };
    let place = |column: &Column| {
        let found = find(column).filter(|&place| schema.column(place).max_rep_level() == 0);
        found.ok_or_else(|| {
            let (file, column) = (name.to_owned(), column.to_string());
            TraceError::NoColumn { file, column, columns: all() }
        })
    };
    let is_missing = |column: &Column| is_own && find(column).is_none();
    match columns.volume.as_ref().filter(|column| is_missing(column)) {
        Some(_) => Columns { volume: None, ..columns.clone() }.places(place),
        None => columns.places(place),
    }
}

fn is_signed(about: &ColumnDescriptor) -> bool {
    let unsigned = [
        ConvertedType::UINT_8,
        ConvertedType::UINT_16,
        ConvertedType::UINT_32,
        ConvertedType::UINT_64,
    ];
    match about.logical_type_ref() {
        Some(LogicalType::Integer(kind)) => kind.is_signed,
        _ => !unsigned.contains(&about.converted_type()),
    }
}

/// Refuses volumes that are neither text nor whole numbers: what else there is has a name on no two
/// machines alike.
fn check_volume(file: &str, about: &ColumnDescriptor) -> Result<(), TraceError> {
    let kind = match about.physical_type() {
        Type::BOOLEAN => "yes or no",
        Type::FLOAT | Type::DOUBLE => "numbers with decimals",
        Type::INT96 => "timestamps",
        _ => return check_type(file, about, false),
    };
    let column = about.path().string();
    Err(TraceError::ColumnType { file: file.to_owned(), column, kind })
}

/// Refuses numbers that stand for something else than themselves: of a decimal the digits are
/// stored, of a date the days.
fn check_type(file: &str, about: &ColumnDescriptor, is_time: bool) -> Result<(), TraceError> {
    let kind = match (about.logical_type_ref(), about.converted_type()) {
        (Some(LogicalType::Decimal(_)), _) | (_, ConvertedType::DECIMAL) => "decimals",
        (Some(LogicalType::Date), _) | (_, ConvertedType::DATE) => "dates",
        (Some(LogicalType::Time(_)), _)
        | (_, ConvertedType::TIME_MILLIS | ConvertedType::TIME_MICROS) => "times of day",
        _ if !is_time && stored_unit(about).is_some() => "timestamps",
        _ => return Ok(()),
    };
    let column = about.path().string();
    Err(TraceError::ColumnType { file: file.to_owned(), column, kind })
}

/// The unit of a column's times, where its type says one.
fn stored_unit(about: &ColumnDescriptor) -> Option<TimeUnit> {
    match (about.logical_type_ref(), about.converted_type()) {
        (Some(LogicalType::Timestamp(kind)), _) => Some(match kind.unit {
            StoredUnit::MILLIS => TimeUnit::Millis,
            StoredUnit::MICROS => TimeUnit::Micros,
            StoredUnit::NANOS => TimeUnit::Nanos,
        }),
        (_, ConvertedType::TIMESTAMP_MILLIS) => Some(TimeUnit::Millis),
        (_, ConvertedType::TIMESTAMP_MICROS) => Some(TimeUnit::Micros),
        _ => (about.physical_type() == Type::INT96).then_some(TimeUnit::Nanos),
    }
}
