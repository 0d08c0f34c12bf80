//! Keeps packages of the laboratory out of the product's default build.

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// Packages that only the laboratory, or formats of traces other than text, need.
const NOT_IN_THE_PRODUCT: [&str; 12] = [
    "bzip2",
    "flate2",
    "fuser",
    "lzma-rust2",
    "matrixmultiply",
    "parquet",
    "perdura-block",
    "perdura-lab",
    "saphyr-parser",
    "snap",
    "zstd",
    "zstd-sys",
];

/// Fails if the default build of `perdura` compiles one of these packages.
pub fn check() -> Result<()> {
    let words = ["tree", "-p", "perdura-cli", "-e", "normal,build", "--prefix", "none"];
    eprintln!("+ cargo {}", words.join(" "));
    let output = Command::new("cargo").args(words).output().context("cargo tree")?;
    ensure!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8_lossy(&output.stdout);
    match unwanted(&tree).as_slice() {
        [] => Ok(()),
        found => bail!(
            "the default build of perdura compiles {}: make them a feature (plan has `formats`), \
             or move the code that needs them to lab/; `cargo tree -p perdura-cli -i NAME` shows \
             which package needs NAME",
            found.join(", ")
        ),
    }
}

fn unwanted(tree: &str) -> Vec<&'static str> {
    let names: Vec<_> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    NOT_IN_THE_PRODUCT.into_iter().filter(|name| names.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_of_the_laboratory_in_the_products_tree_is_found() {
        let tree = "perdura-cli v0.1.0 (/w/cli)\nanyhow v1.0.0\nzstd v0.14.0\nlz4_flex v0.11.6\n";
        assert_eq!(unwanted(tree), ["zstd"]);
        assert_eq!(unwanted("perdura-cli v0.1.0\nanyhow v1.0.0\n"), [""; 0]);
    }
}
