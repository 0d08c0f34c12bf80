//! Which columns of a table are what: `time=ts:us,offset=lba:512,size=len,op=rw,volume=disk`.
//!
//! Each part is `role=column`, the column by name or by number from 1. Behind a colon stands what
//! one unit is: of `time` a time unit, of `offset` and `size` how many bytes; of `op` the value
//! that means a write, where it is no word for it. `*` before a value in place of a column is that
//! value for all records: `size=*4096`, `op=*write`.

use std::fmt;

use super::TimeUnit;

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Column {
    /// By its name in the header.
    Name(String),
    /// By its place, from 1.
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

/// Where sizes come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sizes {
    /// A column, and how many bytes one is.
    Column(Column, u64),
    /// All are of that many bytes.
    All(u64),
}

/// Where it comes from what an access does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ops {
    /// A column of words (r, w, Read, Write), or of the value that means a write and others that do
    /// not.
    Column(Column, Option<String>),
    /// All do the same.
    All(super::Op),
}

/// Which columns of a table are what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns {
    /// When; the unit, where it was given.
    pub time: (Column, Option<TimeUnit>),
    /// The first byte, and how many bytes one is.
    pub offset: (Column, u64),
    /// How much.
    pub size: Sizes,
    /// What it does.
    pub op: Ops,
    /// Which volume; without it there is one, named like the file.
    pub volume: Option<Column>,
}

/// The chosen columns' places in a table, from 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places {
    pub time: usize,
    pub offset: usize,
    pub size: Option<usize>,
    pub op: Option<usize>,
    pub volume: Option<usize>,
}

/// Why words are no choice of columns.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ColumnsError {
    /// A part that is none.
    #[error(
        "{part:?} in the columns is not role=column; roles are time, offset, size, op and volume, as in \
         time=ts:us,offset=lba:512,size=bytes,op=rw,volume=disk"
    )]
    Part {
        /// The part.
        part: String,
    },
    /// A unit that is none.
    #[error("{unit:?}, the unit of {role} in the columns, is not {expected}")]
    Unit {
        /// Of what.
        role: &'static str,
        /// What was given.
        unit: String,
        /// What it could be.
        expected: &'static str,
    },
    /// A role that no column has, or two have.
    #[error("the columns must name {role} once (as in time=ts:us,offset=lba:512,size=bytes,op=rw)")]
    Role {
        /// Which.
        role: &'static str,
    },
}

impl Columns {
    /// Where they are, `place` being where one is.
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

    /// The columns that this project writes, and looks for where none are given.
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

    /// By words, as `--columns` takes them.
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
                    offset.replace((column(name), bytes("offset", unit)?)).is_none()
                }
                ("size", None) => {
                    size.replace(Sizes::Column(column(name), bytes("size", unit)?)).is_none()
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
