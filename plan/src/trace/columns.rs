//! The columns of a table that hold the parts of a record:
//! `time=ts:us,offset=lba:512,size=len,op=rw,volume=disk`.
//!
//! Each word is `role=column`, where the column is a name or a number from 1. The unit follows a
//! colon: for `time` a unit of time, for `offset` and `size` a number of bytes. For `op` the value
//! that means a write follows the colon, if the column has no words for it. `*` before a value in
//! the place of a column gives that value to all records: `size=*4096`, `op=*write`.

use std::fmt;

use super::TimeUnit;

/// How a column of a table is chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Column {
    /// The column of this name in the header.
    Name(String),
    /// The column at this place, counted from 1.
    Number(usize),
}

impl fmt::Display for Column {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Column::Name(name) => write!(to, "{name:?}"),
            Column::Number(number) => write!(to, "{number}"),
        }
    }
}

/// Where the sizes of accesses come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sizes {
    /// The column that says it, one of whose units is this many bytes.
    Column(Column, u64),
    /// All accesses have this many bytes.
    All(u64),
}

/// How it is known whether an access reads or writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ops {
    /// A column of words (r, w, Read, Write), or of the value that means a write and others that do
    /// not.
    Column(Column, Option<String>),
    /// All accesses do the same.
    All(super::Op),
}

/// The columns of a table that hold the parts of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns {
    /// The column of times, and their unit where the user gives one.
    pub time: (Column, Option<TimeUnit>),
    /// The column of first bytes, and how many bytes one of its units is.
    pub offset: (Column, u64),
    /// The sizes of the accesses.
    pub size: Sizes,
    /// Whether accesses read or write.
    pub op: Ops,
    /// The column of volumes; without it there is one volume, named like the file.
    pub volume: Option<Column>,
}

/// The places of the chosen columns in a table, counted from 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places {
    pub time: usize,
    pub offset: usize,
    pub size: Option<usize>,
    pub op: Option<usize>,
    pub volume: Option<usize>,
}

/// Why the words of `--columns` choose no columns.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ColumnsError {
    /// A part of the words that is not `role=column`.
    #[error(
        "{part:?} in the columns is not role=column; roles are time, offset, size, op and volume, \
         as in time=ts:us,offset=lba:512,size=bytes,op=rw,volume=disk"
    )]
    Part {
        /// The part as it was given.
        part: String,
    },
    /// A unit that its role does not have.
    #[error("{unit:?}, the unit of {role} in the columns, is not {expected}")]
    Unit {
        /// The role whose unit it is.
        role: &'static str,
        /// The unit as it was given.
        unit: String,
        /// The units that the role has.
        expected: &'static str,
    },
    /// A column that by its name counts something else than bytes, without how many bytes that is.
    #[error(
        "column {column:?} does not count in bytes by its name: say how many bytes one is, as in \
         {role}={column}:512 ({role}={column}:1 if it does)"
    )]
    CountedIn {
        /// The role that the column is chosen for.
        role: &'static str,
        /// The column's name.
        column: String,
    },
    /// A role that is given no column, or two.
    #[error("the columns must name {role} once (as in time=ts:us,offset=lba:512,size=bytes,op=rw)")]
    Role {
        /// The role.
        role: &'static str,
    },
}

impl Columns {
    /// The place of each column that is chosen; `place` finds the place of one.
    pub(crate) fn places<E>(
        &self,
        place: impl Fn(&Column) -> Result<usize, E>,
    ) -> Result<Places, E> {
        Ok(Places {
            time: place(&self.time.0)?,
            offset: place(&self.offset.0)?,
            size: match &self.size {
                Sizes::Column(column, _) => Some(place(column)?),
                Sizes::All(_) => None,
            },
            op: match &self.op {
                Ops::Column(column, _) => Some(place(column)?),
                Ops::All(_) => None,
            },
            volume: self.volume.as_ref().map(place).transpose()?,
        })
    }

    /// The columns that this project writes, and looks for where the user chooses none.
    pub fn own() -> Columns {
        let named = |name: &str| Column::Name(name.to_owned());
        Columns {
            time: (named("time_ns"), Some(TimeUnit::Nanos)),
            offset: (named("offset_bytes"), 1),
            size: Sizes::Column(named("len_bytes"), 1),
            op: Ops::Column(named("op"), None),
            volume: Some(named("volume")),
        }
    }

    /// Reads the words of `--columns`.
    pub fn parse(words: &str) -> Result<Columns, ColumnsError> {
        let (mut time, mut offset, mut size, mut op, mut volume) = (None, None, None, None, None);
        for part in words.split(',') {
            let odd = || ColumnsError::Part { part: part.to_owned() };
            let (role, value) = part.split_once('=').ok_or_else(odd)?;
            let (name, unit) = match value.rsplit_once(':') {
                Some((name, unit)) => (name, Some(unit)),
                None => (value, None),
            };
            let name = name.trim();
            if name.is_empty() || name == "*" {
                return Err(odd());
            }
            let constant = name.strip_prefix('*');
            let is_new = match (role.trim(), constant) {
                ("time", None) => {
                    time.replace((column(name), unit.map(time_unit).transpose()?)).is_none()
                }
                ("offset", None) => {
                    offset.replace((column(name), bytes_of("offset", name, unit)?)).is_none()
                }
                ("size", None) => {
                    let each = bytes_of("size", name, unit)?;
                    size.replace(Sizes::Column(column(name), each)).is_none()
                }
                ("size", Some(all)) => {
                    size.replace(Sizes::All(bytes("size", Some(all))?)).is_none()
                }
                ("op", None) => {
                    op.replace(Ops::Column(column(name), unit.map(str::to_owned))).is_none()
                }
                ("op", Some(all)) => op.replace(Ops::All(one_op(all)?)).is_none(),
                ("volume", None) => volume.replace(column(name)).is_none(),
                _ => return Err(odd()),
            };
            if !is_new {
                return Err(odd());
            }
        }
        Ok(Columns {
            time: time.ok_or(ColumnsError::Role { role: "time" })?,
            offset: offset.ok_or(ColumnsError::Role { role: "offset" })?,
            size: size.ok_or(ColumnsError::Role { role: "size" })?,
            op: op.ok_or(ColumnsError::Role { role: "op" })?,
            volume,
        })
    }
}

fn column(name: &str) -> Column {
    match name.parse::<usize>() {
        Ok(number) if number > 0 => Column::Number(number),
        _ => Column::Name(name.to_owned()),
    }
}

fn time_unit(unit: &str) -> Result<TimeUnit, ColumnsError> {
    let expected = "s, ms, us, 100ns or ns";
    TimeUnit::parse(unit).ok_or_else(|| ColumnsError::Unit {
        role: "time",
        unit: unit.to_owned(),
        expected,
    })
}

/// How many bytes one unit of a column is. Where that is not given the unit is a byte, unless the
/// column's name says that it is something larger.
fn bytes_of(role: &'static str, name: &str, unit: Option<&str>) -> Result<u64, ColumnsError> {
    const LARGER: [&str; 12] = [
        "lba", "lbn", "sector", "sectors", "block", "blocks", "page", "pages", "kb", "kib", "mb",
        "mib",
    ];
    let last = name.rsplit(|letter: char| !letter.is_ascii_alphanumeric()).next().unwrap_or(name);
    if unit.is_none() && LARGER.iter().any(|larger| last.eq_ignore_ascii_case(larger)) {
        return Err(ColumnsError::CountedIn { role, column: name.to_owned() });
    }
    bytes(role, unit)
}

fn bytes(role: &'static str, unit: Option<&str>) -> Result<u64, ColumnsError> {
    let Some(unit) = unit else { return Ok(1) };
    let bytes = unit.parse().ok().filter(|&bytes| bytes > 0);
    bytes.ok_or_else(|| ColumnsError::Unit {
        role,
        unit: unit.to_owned(),
        expected: "a number of bytes",
    })
}

fn one_op(word: &str) -> Result<super::Op, ColumnsError> {
    let op = super::text::fields::known_op(word.as_bytes());
    op.ok_or_else(|| ColumnsError::Unit {
        role: "op",
        unit: word.to_owned(),
        expected: "read or write",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_by_name_or_number_with_their_units() {
        let columns =
            Columns::parse("time=ts:us,offset=3:512,size=*4096,op=kind:1,volume=disk").unwrap();
        let named = |name: &str| Column::Name(name.to_owned());
        assert_eq!(columns.time, (named("ts"), Some(TimeUnit::Micros)));
        assert_eq!(columns.offset, (Column::Number(3), 512));
        assert_eq!(columns.size, Sizes::All(4096));
        assert_eq!(columns.op, Ops::Column(named("kind"), Some("1".to_owned())));
        assert_eq!(columns.volume, Some(named("disk")));
    }

    #[test]
    fn what_is_no_choice_of_columns_is_refused_with_what_it_should_be() {
        let says = |words| Columns::parse(words).unwrap_err().to_string();
        assert!(says("time=ts").contains("must name offset once"));
        assert!(
            says("time=ts,offset=a,op=b,size=c,x=d")
                .contains("\"x=d\" in the columns is not role=column")
        );
        assert!(says("time=ts,time=b").contains("\"time=b\""));
        assert!(says("time=ts:hours").contains("\"hours\", the unit of time"));
        assert!(says("offset=lba:0").contains("\"0\", the unit of offset"));
        assert!(says("op=*both").contains("\"both\", the unit of op"));
        assert!(says("time=").contains("\"time=\""));
    }
}
