//! Parquet files: those of this project, and those of other programs, whose columns have many
//! types.

use std::sync::Arc;

use parquet::basic::Compression;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use perdura_plan::trace::{
    Columns, Format, Op, ParquetWriter, ReadOptions, Record, TraceReader, WriteError, generate,
};

use crate::support::{all, read, refusal, says};

/// A file of one row group with three rows, as another program may write it.
fn foreign(compression: Compression, dictionary: bool) -> Vec<u8> {
    let schema = "message foreign {
        optional int64 ts (timestamp(micros,true));
        required double lba;
        required int32 blocks;
        optional binary rw (utf8);
        required int32 disk;
        required int64 plain;
    }";
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .set_dictionary_enabled(dictionary)
        .build();
    let mut file = SerializedFileWriter::new(
        Vec::new(),
        Arc::new(parse_message_type(schema).unwrap()),
        Arc::new(properties),
    )
    .unwrap();
    let mut rows = file.next_row_group().unwrap();
    let mut column = rows.next_column().unwrap().unwrap();
    column.typed::<Int64Type>().write_batch(&[5, 7], Some(&[1, 0, 1]), None).unwrap();
    column.close().unwrap();
    let mut column = rows.next_column().unwrap().unwrap();
    column.typed::<DoubleType>().write_batch(&[8.0, 9.0, 10.0], None, None).unwrap();
    column.close().unwrap();
    let mut column = rows.next_column().unwrap().unwrap();
    column.typed::<Int32Type>().write_batch(&[1, 2, 3], None, None).unwrap();
    column.close().unwrap();
    let mut column = rows.next_column().unwrap().unwrap();
    let words = ["Write", "read", "r"].map(ByteArray::from);
    column.typed::<ByteArrayType>().write_batch(&words, Some(&[1, 1, 1]), None).unwrap();
    column.close().unwrap();
    let mut column = rows.next_column().unwrap().unwrap();
    column.typed::<Int32Type>().write_batch(&[3, 3, 1], None, None).unwrap();
    column.close().unwrap();
    let mut column = rows.next_column().unwrap().unwrap();
    column.typed::<Int64Type>().write_batch(&[-1, 2, 3], None, None).unwrap();
    column.close().unwrap();
    rows.close().unwrap();
    file.into_inner().unwrap()
}

fn chosen(words: &str) -> ReadOptions {
    ReadOptions { columns: Some(Columns::parse(words).unwrap()), ..ReadOptions::default() }
}

#[test]
fn columns_of_other_types_are_read_whatever_their_coding_and_packing() {
    let packings = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(Default::default()),
        Compression::LZ4_RAW,
        Compression::ZSTD(Default::default()),
    ];
    for packing in packings {
        for dictionary in [false, true] {
            let options = chosen("time=ts,offset=lba:512,size=blocks:512,op=rw,volume=disk");
            let trace = foreign(packing, dictionary);
            says(&refusal(&trace, &options), &["row 1: time is \"null\""]);
            let read = read(&trace, &ReadOptions { skip_bad: 1, ..options }).unwrap();
            let at = |time_ns, offset_bytes, len_bytes, volume, op| Record {
                time_ns,
                offset_bytes,
                len_bytes,
                volume,
                op,
            };
            assert_eq!(
                read.records,
                [at(5_000, 4096, 512, 0, Op::Write), at(7_000, 5120, 1536, 1, Op::Read)]
            );
            assert_eq!(read.volumes, ["3", "1"]);
        }
    }
}

#[test]
fn what_a_table_does_not_say_is_asked_for() {
    let trace = foreign(Compression::SNAPPY, true);
    says(
        &refusal(&trace, &ReadOptions::default()),
        &["no plain column \"time_ns\"", "ts, lba, blocks, rw, disk, plain"],
    );
    let unit = refusal(&trace, &chosen("time=plain,offset=lba:1,size=blocks:1,op=rw"));
    says(&unit, &["column \"plain\" is INT64", "unit", "--columns time="]);
    let negative = refusal(&trace, &chosen("time=plain:us,offset=lba:1,size=blocks:1,op=rw"));
    says(&negative, &["row 0: time is \"-1\"", "negative"]);
    let op = refusal(&trace, &chosen("time=2:s,offset=lba:1,size=blocks:1,op=disk"));
    says(&op, &["row 0: op is \"3\"", "op=kind:1"]);
    let given = read(&trace, &chosen("time=2:s,offset=lba:1,size=blocks:1,op=disk:1")).unwrap();
    assert_eq!(
        given.records.iter().map(|record| record.op).collect::<Vec<_>>(),
        [Op::Read, Op::Read, Op::Write]
    );
    assert_eq!(given.volumes, ["trace"]);
}

/// A file of one row, whose time and offset are stored as `time` and `offset`.
fn typed(time: &str, offset: &str) -> Vec<u8> {
    stored(&[time, offset, "int64 len_bytes", "int64 op"])
}

/// A file of one row of ones.
fn stored(columns: &[&str]) -> Vec<u8> {
    let columns: String = columns.iter().map(|column| format!("required {column}; ")).collect();
    let schema = Arc::new(parse_message_type(&format!("message typed {{ {columns}}}")).unwrap());
    let mut file = SerializedFileWriter::new(Vec::new(), schema, Arc::default()).unwrap();
    let mut rows = file.next_row_group().unwrap();
    while let Some(mut column) = rows.next_column().unwrap() {
        match column.untyped() {
            ColumnWriter::Int64ColumnWriter(column) => column.write_batch(&[1], None, None),
            ColumnWriter::Int32ColumnWriter(column) => column.write_batch(&[1], None, None),
            ColumnWriter::BoolColumnWriter(column) => column.write_batch(&[true], None, None),
            ColumnWriter::DoubleColumnWriter(column) => column.write_batch(&[1.0], None, None),
            _ => panic!("a column of another type"),
        }
        .unwrap();
        column.close().unwrap();
    }
    rows.close().unwrap();
    file.into_inner().unwrap()
}

#[test]
fn the_unit_of_times_is_that_of_their_type_whatever_the_column_is_called() {
    let chosen = chosen("time=time_ns:s,offset=offset_bytes,size=len_bytes,op=op:1");
    for (kind, ns) in [("millis", 1_000_000), ("micros", 1_000), ("nanos", 1)] {
        let time = format!("int64 time_ns (timestamp({kind},true))");
        for options in [&chosen, &ReadOptions::default()] {
            let read = read(&typed(&time, "int64 offset_bytes"), options).unwrap();
            assert_eq!(read.records[0].time_ns, ns, "{kind}");
        }
    }
}

#[test]
fn numbers_that_stand_for_something_else_are_refused() {
    let plain = ("int64 time_ns", "int64 offset_bytes");
    assert_eq!(read(&typed(plain.0, plain.1), &ReadOptions::default()).unwrap().records.len(), 1);
    for (time, offset, said) in [
        ("int32 time_ns (date)", plain.1, "\"time_ns\" holds dates"),
        ("int64 time_ns (time(micros,true))", plain.1, "\"time_ns\" holds times of day"),
        ("int64 time_ns (decimal(18,2))", plain.1, "\"time_ns\" holds decimals"),
        (plain.0, "int64 offset_bytes (decimal(18,2))", "\"offset_bytes\" holds decimals"),
        (
            plain.0,
            "int64 offset_bytes (timestamp(nanos,true))",
            "\"offset_bytes\" holds timestamps",
        ),
    ] {
        says(&refusal(&typed(time, offset), &ReadOptions::default()), &[said, "--columns"]);
    }
}

#[test]
fn volumes_that_are_neither_text_nor_whole_numbers_are_refused() {
    let with = |volume| {
        stored(&["int64 time_ns", "int64 offset_bytes", "int64 len_bytes", "int64 op", volume])
    };
    let given = read(&with("int32 volume"), &ReadOptions::default()).unwrap();
    assert_eq!(given.volumes, ["1"]);
    for (volume, said) in [
        ("boolean volume", "\"volume\" holds yes or no"),
        ("double volume", "\"volume\" holds numbers with decimals"),
        ("int64 volume (timestamp(micros,true))", "\"volume\" holds timestamps"),
        ("int64 volume (decimal(18,2))", "\"volume\" holds decimals"),
    ] {
        says(&refusal(&with(volume), &ReadOptions::default()), &[said, "text for volumes"]);
    }
}

#[test]
fn a_file_of_several_row_groups_is_read_from_disk_with_its_progress() {
    let records = generate::records(Format::Parquet, 7, 600_000);
    let file = tempfile::NamedTempFile::new().unwrap();
    let trace = generate::render(Format::Parquet, &records);
    std::fs::write(file.path(), &trace).unwrap();
    let mut reader = TraceReader::open(file.path(), &ReadOptions::default()).unwrap();
    assert!(all(&mut reader).unwrap() == records);
    assert_eq!(reader.total_bytes(), Some(trace.len() as u64));
    assert!(reader.bytes_read() >= trace.len() as u64 * 9 / 10, "{}", reader.bytes_read());
}

#[test]
fn a_damaged_file_is_an_error_that_names_it() {
    let trace = foreign(Compression::SNAPPY, true);
    says(
        &refusal(&trace[..trace.len() / 2], &ReadOptions::default()),
        &["trace: this Parquet file cannot be read"],
    );
    says(&refusal(b"PAR1PAR1", &ReadOptions::default()), &["cannot be read"]);
}

#[test]
fn times_are_written_from_an_origin_on() {
    let record = Record {
        time_ns: 12_816_637_200_306_162_900,
        offset_bytes: 1,
        len_bytes: 2,
        volume: 0,
        op: Op::Write,
    };
    let mut writer = ParquetWriter::new(Vec::new(), 0).unwrap();
    writer.volume("hm_0").unwrap();
    assert!(matches!(writer.write(&record), Err(WriteError::Record(_))));
    let mut writer = ParquetWriter::new(Vec::new(), record.time_ns).unwrap();
    writer.volume("hm_0").unwrap();
    writer.write(&record).unwrap();
    assert!(writer.write(&Record { time_ns: 5, ..record }).is_err());
    let read = read(&writer.finish().unwrap(), &ReadOptions::default()).unwrap();
    assert_eq!(read.records, [Record { time_ns: 0, ..record }]);
}

#[test]
fn parts_of_nanoseconds_are_refused_as_in_text() {
    let schema = "message timed { required double t; required int64 at; required int64 len; }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut file = SerializedFileWriter::new(Vec::new(), schema, Default::default()).unwrap();
    let mut rows = file.next_row_group().unwrap();
    let mut column = rows.next_column().unwrap().unwrap();
    column.typed::<DoubleType>().write_batch(&[5.0, 7.5], None, None).unwrap();
    column.close().unwrap();
    for values in [[0, 8], [1, 1]] {
        let mut column = rows.next_column().unwrap().unwrap();
        column.typed::<Int64Type>().write_batch(&values, None, None).unwrap();
        column.close().unwrap();
    }
    rows.close().unwrap();
    let file = file.into_inner().unwrap();
    let said = refusal(&file, &chosen("time=t:ns,offset=at,size=len,op=*write"));
    says(&said, &["trace: row 1: time is \"7.5\"", "--time-unit"]);
    let micros = read(&file, &chosen("time=t:us,offset=at,size=len,op=*write")).unwrap();
    assert_eq!(micros.records[1].time_ns, 7_500);
}
