//! Tables in text whose columns are chosen by name or number (`columns`).
//!
//! The separator is the one of `,`, `;`, tab and `|` that occurs most in the first line, or else
//! white space. Columns that are chosen by name need a header, which is the first line. If all
//! columns are chosen by number, a first line whose time is not a number is taken for a header.
//! Quotes around a value are removed; a separator inside quotes is not understood.

use super::super::columns::{Column, Columns, Ops, Places, Sizes};
use super::super::sink::{Seen, Sink};
use super::super::{Fault, Op, TimeUnit};
use super::Parse;
use super::fields::{columns, known_op, number, op, scaled, shown, time_ns};

/// How many columns of a line are read; a column that is chosen beyond them is refused.
pub(crate) const COLUMNS_MAX: usize = 256;

const SEPARATORS: [u8; 4] = [b',', b';', b'\t', b'|'];

pub(crate) struct Table {
    columns: Columns,
    unit: TimeUnit,
    volume: u32,
    /// The separator and the places of the columns, which the first line tells.
    shape: Option<(Option<u8>, Places)>,
    /// Where each column of the line starts and ends.
    bounds: Vec<(usize, usize)>,
    count: usize,
}

/// Whether a line looks like the header that this project writes.
pub(crate) fn looks_own(line: &[u8]) -> bool {
    let mut bounds = Vec::new();
    split(line, separator(line), &mut bounds);
    places(&Columns::own(), line, &bounds).is_ok()
}

/// Whether a line looks like anybody's header: words, and at least for time, place and size or op.
pub(crate) fn looks_header(line: &[u8]) -> bool {
    let mut bounds = Vec::new();
    split(line, separator(line), &mut bounds);
    let is_word = |word: &[u8]| {
        word.first().is_some_and(|first| first.is_ascii_alphabetic() || *first == b'_')
            && std::str::from_utf8(word).is_ok_and(|word| !word.contains(char::is_control))
    };
    bounds.len() >= 3 && (0..bounds.len()).all(|place| is_word(field(line, &bounds, place)))
}

impl Table {
    pub(crate) fn new(columns: Columns, unit: TimeUnit, volume: u32) -> Table {
        Table { columns, unit, volume, shape: None, bounds: Vec::new(), count: 0 }
    }

    /// Learns the shape of the table from its first line; true when that is a header.
    fn begin(&mut self, line: &[u8]) -> Result<bool, Box<Fault>> {
        let separator = separator(line);
        split(line, separator, &mut self.bounds);
        let places = places(&self.columns, line, &self.bounds)?;
        self.shape = Some((separator, places));
        self.count = self.bounds.len();
        let time = field(line, &self.bounds, places.time);
        Ok(is_by_name(&self.columns)
            || time_ns("time", time, self.unit).is_err()
                && time.first().is_some_and(u8::is_ascii_alphabetic))
    }
}

impl Parse for Table {
    fn line(&mut self, line: &[u8], sink: &mut Sink) -> Seen {
        let (separator, places) = match self.shape {
            Some(shape) => shape,
            None => match (self.begin(line)?, self.shape) {
                (false, Some(shape)) => shape,
                _ => return Ok(()),
            },
        };
        split(line, separator, &mut self.bounds);
        if self.bounds.len() != self.count {
            return Err(columns("as many as in the first line", self.bounds.len(), line));
        }
        let at = |place| field(line, &self.bounds, place);
        let time_ns = time_ns("time", at(places.time), self.unit)?;
        let offset = at(places.offset);
        let offset_bytes =
            scaled("offset", offset, number("offset", offset)?, self.columns.offset.1, "bytes")?;
        let len_bytes = match (&self.columns.size, places.size) {
            (Sizes::Column(_, each), Some(place)) => {
                scaled("size", at(place), number("size", at(place))?, *each, "bytes")?
            }
            (Sizes::All(bytes), _) => *bytes,
            (Sizes::Column(..), None) => return Err(columns("a size", self.count, line)),
        };
        let op = match (&self.columns.op, places.op) {
            (Ops::Column(_, Some(write)), Some(place)) if at(place) == write.as_bytes() => {
                Op::Write
            }
            (Ops::Column(_, Some(_)), Some(place)) => known_op(at(place)).unwrap_or(Op::Read),
            (Ops::Column(_, None), Some(place)) => op("op", at(place))?,
            (Ops::All(op), _) => *op,
            (Ops::Column(..), None) => return Err(columns("an op", self.count, line)),
        };
        let volume = match places.volume {
            Some(place) => sink.volumes.named(at(place))?,
            None => self.volume,
        };
        sink.access(time_ns, volume, op, offset_bytes, len_bytes)
    }
}

fn is_by_name(columns: &Columns) -> bool {
    let size = match &columns.size {
        Sizes::Column(column, _) => Some(column),
        Sizes::All(_) => None,
    };
    let op = match &columns.op {
        Ops::Column(column, _) => Some(column),
        Ops::All(_) => None,
    };
    let all = [Some(&columns.time.0), Some(&columns.offset.0), size, op, columns.volume.as_ref()];
    all.into_iter().flatten().any(|column| matches!(column, Column::Name(_)))
}

/// The places of the chosen columns, by the first line.
fn places(columns: &Columns, line: &[u8], bounds: &[(usize, usize)]) -> Result<Places, Box<Fault>> {
    let place = |column: &Column| {
        let found = match column {
            Column::Number(number) => Some(number - 1).filter(|&place| place < bounds.len()),
            Column::Name(name) => (0..bounds.len())
                .find(|&place| field(line, bounds, place).eq_ignore_ascii_case(name.as_bytes())),
        };
        found.ok_or_else(|| {
            Box::new(Fault::NoColumn { column: column.to_string(), value: shown(line) })
        })
    };
    columns.places(place)
}

/// The separator of a line: the one that it has most of, or white space.
fn separator(line: &[u8]) -> Option<u8> {
    let count = |byte: u8| memchr::memchr_iter(byte, line).count();
    let (most, byte) =
        SEPARATORS.iter().rev().map(|&byte| (count(byte), byte)).max_by_key(|found| found.0)?;
    (most > 0).then_some(byte)
}

fn split(line: &[u8], separator: Option<u8>, bounds: &mut Vec<(usize, usize)>) {
    bounds.clear();
    let mut from = 0;
    match separator {
        Some(byte) => {
            for end in memchr::memchr_iter(byte, line).chain([line.len()]).take(COLUMNS_MAX) {
                bounds.push((from, end));
                from = end + 1;
            }
        }
        None => {
            for end in
                (0..=line.len()).filter(|&at| line.get(at).is_none_or(u8::is_ascii_whitespace))
            {
                if end > from && bounds.len() < COLUMNS_MAX {
                    bounds.push((from, end));
                }
                from = end + 1;
            }
        }
    }
}

#[inline]
fn field<'a>(line: &'a [u8], bounds: &[(usize, usize)], place: usize) -> &'a [u8] {
    let (from, end) = bounds[place];
    match line[from..end].trim_ascii() {
        [b'"', inner @ .., b'"'] => inner,
        field => field,
    }
}
