//! Writes records in each format.

#[cfg(feature = "formats")]
use super::super::ParquetWriter;
use super::super::{Format, Op, Record, TraceWriter};

/// The name that a volume has in a format.
fn volume_name(format: Format, volume: u32) -> String {
    match format {
        Format::Msr => format!("host_{volume}"),
        Format::Fio => format!("/data/file.{volume}"),
        Format::Blkparse => format!("8,{}", volume * 16),
        Format::Srt => format!("{:#010x}", 0x1f00_0000 + volume),
        Format::Ycsb => "usertable".to_owned(),
        _ => volume.to_string(),
    }
}

/// Writes the records as a trace of that format.
pub fn render(format: Format, records: &[Record]) -> Vec<u8> {
    let mut to = Vec::new();
    match format {
        Format::Ptrace => ptrace(records, &mut to),
        #[cfg(feature = "formats")]
        Format::Parquet => parquet(records, &mut to),
        Format::Vscsi => {
            records.iter().enumerate().for_each(|(n, record)| vscsi(n, record, &mut to))
        }
        Format::Srt => srt(records, &mut to),
        Format::Ramulator => ramulator(records, &mut to),
        _ => {
            let mut last_ns = 0;
            put(&mut to, first_line(format));
            for (n, record) in records.iter().enumerate() {
                line(format, n, record, last_ns, &mut to);
                last_ns = record.time_ns;
            }
        }
    }
    to
}

fn first_line(format: Format) -> &'static str {
    match format {
        Format::Csv => "time_ns,volume,op,offset_bytes,len_bytes\n",
        Format::Fio => "fio version 3 iolog\n",
        Format::Lackey => "==1== Lackey, an example Valgrind tool\n",
        _ => "",
    }
}

fn line(format: Format, n: usize, record: &Record, last_ns: u64, to: &mut Vec<u8>) {
    let Record { time_ns, offset_bytes: offset, len_bytes: len, volume, op } = *record;
    let is_write = op == Op::Write;
    let name = || volume_name(format, volume);
    let (sector, sectors, us) = (offset / 512, len / 512, time_ns / 1_000);
    let seconds = || format!("{}.{:09}", time_ns / 1_000_000_000, time_ns % 1_000_000_000);
    let letter = if is_write { 'W' } else { 'R' };
    let word = if is_write { "Write" } else { "Read" };
    let text = match format {
        Format::Csv => format!("{time_ns},{},{letter},{offset},{len}", name()),
        Format::Msr => {
            format!("{},host,{volume},{word},{offset},{len},{}", time_ns / 100, 1000 + n % 7)
        }
        Format::DiskSim => format!("{us} {volume} {sector} {sectors} {}", u8::from(!is_write)),
        Format::Spc => format!("{volume},{sector},{len},{letter},{}", seconds()),
        Format::Blkparse => {
            let before = format!("  {}    {}        {n}     {}   697", name(), n % 2, seconds());
            let place = format!("{sector} + {sectors}");
            format!("{before}  Q   {letter}S {place} [fio]\n{before}  G   {letter}S {place} [fio]")
        }
        Format::Fio => format!("{us} {} {} {offset} {len}", name(), word.to_lowercase()),
        Format::Alibaba => format!("{volume},{letter},{offset},{len},{us}"),
        Format::Tencent => {
            format!(
                "{},{sector},{sectors},{},{volume}",
                time_ns / 1_000_000_000,
                u8::from(is_write)
            )
        }
        Format::Ucsd => {
            format!("{} {offset:#x} {}", if is_write { 's' } else { 'l' }, time_ns - last_ns)
        }
        Format::Lackey => {
            let fetched = "I  04001000,3\n".repeat((time_ns - last_ns) as usize);
            format!("{fetched} {} {offset:08x},{len}", if is_write { 'S' } else { 'L' })
        }
        Format::LoadStore => format!("{letter} {offset:#x} {len}"),
        Format::Ycsb => {
            let operation = if is_write { "UPDATE" } else { "READ" };
            format!("{operation} usertable user{} [ field0=x ]", offset / 1024)
        }
        Format::Ptrace | Format::Parquet | Format::Vscsi | Format::Srt | Format::Ramulator => {
            return;
        }
    };
    put(to, &text);
    put(to, "\n");
}

fn put(to: &mut Vec<u8>, text: &str) {
    to.extend_from_slice(text.as_bytes());
}

fn ramulator(records: &[Record], to: &mut Vec<u8>) {
    let mut next_ns = 0;
    for (n, record) in records.iter().enumerate() {
        match record.op {
            Op::Read => {
                put(to, if n == 0 { "" } else { "\n" });
                put(to, &format!("{} {}", record.time_ns - next_ns, record.offset_bytes));
                next_ns = record.time_ns + 1;
            }
            Op::Write => put(to, &format!(" {}", record.offset_bytes)),
        }
    }
    put(to, "\n");
}

fn ptrace(records: &[Record], to: &mut Vec<u8>) {
    let volumes = records.iter().map(|record| record.volume + 1).max().unwrap_or(0);
    let written = TraceWriter::new(&mut *to).and_then(|mut writer| {
        for volume in 0..volumes {
            writer.volume(&volume_name(Format::Ptrace, volume))?;
        }
        for record in records {
            writer.write(record)?;
        }
        writer.finish().map(|_| ())
    });
    debug_assert!(written.is_ok(), "memory takes all that is written, and the records are sound");
}

#[cfg(feature = "formats")]
fn parquet(records: &[Record], to: &mut Vec<u8>) {
    let volumes = records.iter().map(|record| record.volume + 1).max().unwrap_or(0);
    let written = ParquetWriter::new(&mut *to, 0).and_then(|mut writer| {
        for volume in 0..volumes {
            writer.volume(&volume_name(Format::Parquet, volume))?;
        }
        for record in records {
            writer.write(record)?;
        }
        writer.finish().map(|_| ())
    });
    debug_assert!(written.is_ok(), "memory takes all that is written, and the records are sound");
}

fn vscsi(n: usize, record: &Record, to: &mut Vec<u8>) {
    let code: u16 = if record.op == Op::Write { 0x2a } else { 0x28 };
    to.extend_from_slice(&(n as u32).to_le_bytes());
    to.extend_from_slice(&(record.len_bytes as u32).to_le_bytes());
    to.extend_from_slice(&1u32.to_le_bytes());
    to.extend_from_slice(&code.to_le_bytes());
    to.extend_from_slice(&0x0100u16.to_le_bytes());
    to.extend_from_slice(&(record.offset_bytes / 512).to_le_bytes());
    to.extend_from_slice(&(record.time_ns / 1_000).to_le_bytes());
}

fn srt(records: &[Record], to: &mut Vec<u8>) {
    put(to, "version\t= \"1.3\";\ntracedate\t= \"Sun Apr 19 00:00:00 1992\";\n");
    put(to, "sectorsize\t= \"512\";\n\x0c");
    for record in records {
        let us = record.time_ns / 1_000;
        let words = [
            52,
            3 << 16 | 1,
            (us / 1_000_000) as u32,
            (us % 1_000_000) as u32,
            10,
            20,
            record.len_bytes as u32,
            (record.offset_bytes / 512) as u32,
            0x1f00_0000 + record.volume,
            0,
            0,
            u32::from(record.op == Op::Read),
            0,
        ];
        words.iter().for_each(|word: &u32| to.extend_from_slice(&word.to_be_bytes()));
    }
}
