//! `cargo xtask fuzz`: runs each fuzz target, beginning with the inputs that earlier runs kept.
//!
//! A target's kept inputs are in `fuzz/seeds/TARGET.hex`: one a line, in hexadecimal, the shortest
//! first. Ordinary tests check those of some targets, too.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run::cargo;

/// Most bytes of one target's file. The longest inputs beyond them are forgotten.
const KEPT_BYTES: usize = 128 << 10;

/// Runs each target in turn for so long, or `only` one, with the nightly toolchain, and keeps the
/// inputs that reach most.
pub fn run(seconds: u64, only: Option<&str>) -> Result<()> {
    let listed = Command::new("cargo")
        .args(["+nightly", "fuzz", "list"])
        .output()
        .context("cargo +nightly fuzz list (install cargo-fuzz and a nightly toolchain)")?;
    if !listed.status.success() {
        bail!("cargo fuzz list: {}", String::from_utf8_lossy(&listed.stderr));
    }
    let listed = String::from_utf8_lossy(&listed.stdout);
    if let Some(only) = only.filter(|only| !listed.lines().any(|target| target == *only)) {
        bail!("no fuzz target is called {only:?}; there are {}", listed.trim().replace('\n', ", "));
    }
    if only.is_none_or(|only| only == "trace") {
        let seeds =
            ["run", "--quiet", "--manifest-path", "fuzz/Cargo.toml", "--example", "trace_seeds"];
        cargo(&[&seeds[..], &["fuzz/corpus/trace"]].concat())?;
    }
    for target in listed.lines().filter(|target| only.is_none_or(|only| only == *target)) {
        let corpus = Path::new("fuzz/corpus").join(target);
        let kept = Path::new("fuzz/seeds").join(format!("{target}.hex"));
        fs::create_dir_all(&corpus)?;
        if kept.exists() {
            let text = fs::read_to_string(&kept)?;
            for (index, input) in text.lines().enumerate() {
                let bytes = decoded(input)
                    .with_context(|| format!("{}:{}: not bytes", kept.display(), index + 1))?;
                fs::write(corpus.join(format!("kept-{index}")), bytes)?;
            }
        }
        let time = format!("-max_total_time={seconds}");
        cargo(&["+nightly", "fuzz", "run", target, "--", &time, "-rss_limit_mb=4096"])?;
        cargo(&["+nightly", "fuzz", "cmin", target])?;
        let mut inputs = Vec::new();
        for entry in fs::read_dir(&corpus)? {
            inputs.push(fs::read(entry?.path())?);
        }
        fs::create_dir_all("fuzz/seeds")?;
        fs::write(&kept, packed(inputs))?;
    }
    Ok(())
}

/// The lines of the inputs, the shortest first, as many as may be kept.
fn packed(mut inputs: Vec<Vec<u8>>) -> String {
    inputs.retain(|input| !input.is_empty());
    inputs.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    inputs.dedup();
    let mut text = String::new();
    for input in inputs {
        let line: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
        if text.len() + line.len() < KEPT_BYTES {
            text += &line;
            text.push('\n');
        }
    }
    text
}

fn decoded(line: &str) -> Option<Vec<u8>> {
    let digits = line.as_bytes().chunks(2);
    digits.map(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_kept_as_lines_the_shortest_first_and_read_back() {
        let inputs = vec![b"longer".to_vec(), vec![0, 255], vec![], vec![0, 255]];
        let text = packed(inputs);
        assert_eq!(text, "00ff\n6c6f6e676572\n");
        let back: Vec<_> = text.lines().map(|line| decoded(line).unwrap()).collect();
        assert_eq!(back, [vec![0, 255], b"longer".to_vec()]);
        assert_eq!(decoded("0g"), None);
        let many = (0..200_000u32).map(|n| n.to_le_bytes().to_vec()).collect();
        assert!(packed(many).len() <= KEPT_BYTES);
    }
}
