//! Checks that the table of rooms in docs/architecture.md has each crate with the crates on which
//! it depends.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::markdown::Page;
use super::{Tree, Wrong};

/// The rooms by their folders, each with the folders of the rooms on which it depends.
type Rooms = BTreeMap<String, BTreeSet<String>>;

pub fn check(page: &Page, tree: &Tree, wrong: &mut Wrong) -> Result<()> {
    let drawn = drawn(page);
    let built = built(&tree.root)?;
    for (room, needs) in &built {
        match drawn.get(room) {
            None => wrong.push(format!("docs/architecture.md: the table of rooms lacks {room}")),
            Some(drawn) if drawn != needs => wrong.push(format!(
                "docs/architecture.md: {room} depends on {needs:?}, the table says {drawn:?}"
            )),
            Some(_) => {}
        }
    }
    for room in drawn.keys().filter(|room| !built.contains_key(*room)) {
        wrong.push(format!("docs/architecture.md: there is no crate in {room}"));
    }
    Ok(())
}

/// The rooms as the page's table has them, whose head is "room, owns, depends on".
fn drawn(page: &Page) -> Rooms {
    let rows = page.rows().skip_while(|(_, cells)| cells[0] != "room" || cells.len() != 3).skip(2);
    let rows = rows.scan(None, |before: &mut Option<usize>, (number, cells)| {
        let goes_on = before.is_none_or(|before| before + 1 == number);
        *before = Some(number);
        goes_on.then_some(cells)
    });
    let names = |cell: &str| {
        cell.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
    };
    rows.filter(|cells| cells.len() == 3).map(|cells| (cells[0].into(), names(cells[2]))).collect()
}

/// The rooms as the manifests of the workspace have them.
fn built(root: &Path) -> Result<Rooms> {
    let metadata = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root)
        .output()
        .context("cargo metadata")?;
    if !metadata.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&metadata.stderr));
    }
    let metadata: Value = serde_json::from_slice(&metadata.stdout).context("cargo metadata")?;
    let folder = |path: &str| {
        let path = Path::new(path).strip_prefix(root).ok()?;
        Some(path.to_string_lossy().trim_end_matches("/Cargo.toml").to_owned())
    };
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let room = |package: &Value| {
        let needs = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
        let needs = needs.iter().filter(|need| need["kind"].is_null());
        let needs = needs.filter_map(|need| folder(need["path"].as_str()?)).collect();
        Some((folder(package["manifest_path"].as_str()?)?, needs))
    };
    Ok(packages.iter().filter_map(room).collect())
}
