//! Packed traces: detected by their first bytes, read like plain traces, and an error if they are
//! truncated.

use std::io::Write;

use perdura_plan::trace::{Format, Packing, ReadOptions, generate};

use crate::support::{all, open, read, refusal, says};

fn packed(packing: Packing, bytes: &[u8]) -> Vec<u8> {
    let mut to = Vec::new();
    match packing {
        Packing::Gzip => {
            let mut packer = flate2::write::GzEncoder::new(&mut to, flate2::Compression::fast());
            packer.write_all(bytes).unwrap();
            packer.finish().unwrap();
        }
        Packing::Zstd => to = zstd::encode_all(bytes, 1).unwrap(),
        Packing::Bzip2 => {
            let mut packer = bzip2::write::BzEncoder::new(&mut to, bzip2::Compression::fast());
            packer.write_all(bytes).unwrap();
            packer.finish().unwrap();
        }
        Packing::Xz => {
            let options = lzma_rust2::XzOptions::with_preset(1);
            let mut packer = lzma_rust2::XzWriter::new(&mut to, options).unwrap();
            packer.write_all(bytes).unwrap();
            packer.finish().unwrap();
        }
    }
    to
}

const ALL: [Packing; 4] = [Packing::Gzip, Packing::Zstd, Packing::Bzip2, Packing::Xz];

#[test]
fn packed_traces_are_read_as_what_is_in_them() {
    for format in [Format::Msr, Format::Ptrace, Format::Vscsi, Format::Parquet] {
        let records = generate::records(format, 3, 20_000);
        let trace = generate::render(format, &records);
        for packing in ALL {
            let packed = packed(packing, &trace);
            let mut reader = open(&packed, &ReadOptions::default()).unwrap();
            assert!(all(&mut reader).unwrap() == records, "{packing} {format}");
            assert_eq!((reader.packing(), reader.format()), (Some(packing), format));
            assert_eq!(Some(reader.bytes_read()), reader.total_bytes());
        }
    }
}

#[test]
fn parts_that_were_packed_one_by_one_are_one_trace() {
    let records = generate::records(Format::Msr, 4, 2_000);
    let halves = records.split_at(1_000);
    for packing in ALL {
        let part = |records| packed(packing, &generate::render(Format::Msr, records));
        let trace = [part(halves.0), part(halves.1)].concat();
        let read = read(&trace, &ReadOptions::default()).unwrap();
        assert_eq!(read.records.len(), 2_000, "{packing}");
    }
}

#[test]
fn half_of_a_packed_trace_is_an_error_that_says_so() {
    let trace = generate::render(Format::Msr, &generate::records(Format::Msr, 5, 20_000));
    for packing in ALL {
        let packed = packed(packing, &trace);
        for len in [packed.len() / 2, packed.len() - 1, 20] {
            let lenient = ReadOptions {
                skip_bad: 1_000_000,
                format: Some(Format::Msr),
                ..ReadOptions::default()
            };
            let said = refusal(&packed[..len], &lenient);
            says(
                &said,
                &["trace: the ", &packing.to_string(), "cut off or damaged", "fetch it again"],
            );
        }
    }
}

#[test]
fn a_changed_byte_in_a_packed_trace_is_an_error() {
    let trace = generate::render(Format::Msr, &generate::records(Format::Msr, 6, 2_000));
    for packing in [Packing::Gzip, Packing::Bzip2, Packing::Xz] {
        let mut packed = packed(packing, &trace);
        let middle = packed.len() / 2;
        packed[middle] ^= 0x10;
        let lenient = ReadOptions { skip_bad: 1_000_000, ..ReadOptions::default() };
        says(&refusal(&packed, &lenient), &["cut off or damaged"]);
    }
}
