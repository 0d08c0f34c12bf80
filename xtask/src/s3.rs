//! A real S3 server over a folder, for the tests of backups in a bucket.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::run::{run, target};

/// The server's package, and the version whose behaviour the tests were written with.
const GATEWAY: &str = "github.com/versity/versitygw/cmd/versitygw@v1.8.0";

/// Runs the tests that need a bucket.
pub fn test() -> Result<()> {
    let gateway = gateway()?;
    let mut cargo = Command::new("cargo");
    cargo.args(["test", "-p", "perdura-cli", "--test", "cli", "--", "of_an_s3_server"]);
    run(cargo.env("PERDURA_VERSITYGW", gateway))
}

/// Path of the server's program, which is built if this version was not built here before.
fn gateway() -> Result<PathBuf> {
    let (_, version) = GATEWAY.rsplit_once('@').context("the package has a version")?;
    let folder = target()?.join("tools").join(format!("versitygw-{version}"));
    let program = folder.join("versitygw");
    if !program.exists() {
        // Without symbols, which are half of its size.
        let mut go = Command::new("go");
        go.args(["install", "-ldflags", "-s -w", GATEWAY]).env("GOBIN", &folder);
        run(&mut go).context("versitygw was not built; install go")?;
    }
    Ok(program)
}
