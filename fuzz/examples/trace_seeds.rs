//! Writes the seeds for fuzzing of traces to a folder: generated traces of every format, plain,
//! packed where packed traces take another way through the readers, and without a given format.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use perdura_plan::trace::{Format, generate};

/// Records of a trace, few enough that a mutation often meets one that matters.
const RECORDS: usize = 12;

fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1) else {
        eprintln!("expected a folder to write to");
        return ExitCode::FAILURE;
    };
    match write_all(Path::new(&folder)) {
        Ok(written) => {
            println!("{written} seeds in {}", folder.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{}: {error}", folder.display());
            ExitCode::FAILURE
        }
    }
}

fn write_all(folder: &Path) -> std::io::Result<usize> {
    std::fs::create_dir_all(folder)?;
    let mut written = 0;
    let mut write = |name: String, head: [u8; 3], trace: &[u8]| {
        written += 1;
        std::fs::write(folder.join(name), [&head[..], trace].concat())
    };
    for (choice, &format) in (0..).zip(Format::ALL) {
        let trace = generate::render(format, &generate::records(format, 1, RECORDS));
        // The target's first three bytes: format (an unknown number stands for any), bad records
        // passed over, seed.
        write(format!("{format}"), [choice, 0, 0], &trace)?;
        write(format!("{format}-lenient"), [choice, 100, 0], &trace)?;
        write(format!("{format}-found"), [u8::MAX, 1, 0], &trace)?;
        write(format!("{format}-changed"), [choice, 2, 1], &[0; 8])?;
    }
    let trace = generate::render(Format::Msr, &generate::records(Format::Msr, 1, RECORDS));
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&trace)?;
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    bzip2.write_all(&trace)?;
    let mut xz = lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::with_preset(1))?;
    xz.write_all(&trace)?;
    let packed = [
        ("gzip", gzip.finish()?),
        ("bzip2", bzip2.finish()?),
        ("xz", xz.finish()?),
        ("zstd", zstd::encode_all(&trace[..], 1)?),
    ];
    for (name, packed) in packed {
        write(format!("packed-{name}"), [u8::MAX, 1, 0], &packed)?;
    }
    Ok(written)
}
