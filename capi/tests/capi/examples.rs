//! The examples in docs/heap.md and docs/mapped.md do what they say: these are they.

use std::process::Command;

const HEAP: &str = include_str!("../../../docs/heap.md");
const MAPPED: &str = include_str!("../../../docs/mapped.md");

/// The block of the page in this language.
fn block(page: &'static str, language: &str) -> &'static str {
    let begin = format!("```{language}\n");
    let mut blocks = page.split(begin.as_str()).skip(1);
    let block = blocks.next().unwrap().split("```\n").next().unwrap();
    assert!(blocks.next().is_none(), "one block of {language}, or this takes the wrong one");
    let lines = block.lines().count();
    assert!((10..=30).contains(&lines), "{lines} lines of {language}");
    block
}

#[test]
fn the_c_example_compiles_and_keeps_its_accounts_across_runs() {
    let Some((folder, program)) = crate::programs::program("c", block(HEAP, "c")) else { return };
    for run in 1..=3 {
        let said = crate::programs::run_well(&program, &[], folder.path());
        assert_eq!(said, format!("difference: {}\n", run * 10));
    }
}

#[test]
fn the_c_example_of_a_mapping_counts_its_runs() {
    let Some((folder, program)) = crate::programs::program("c", block(MAPPED, "c")) else { return };
    for run in 1..=3 {
        let said = crate::programs::run_well(&program, &[], folder.path());
        assert_eq!(said, format!("run {run}\n"));
    }
}

#[test]
fn the_rust_example_compiles_and_counts_its_visits() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("example.rs");
    std::fs::write(&source, block(HEAP, "rust")).unwrap();
    let program = folder.path().join("example");
    let libraries = crate::programs::library();
    // The library this test was built with.
    let heap = std::fs::read_dir(&libraries)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.starts_with("libperdura_heap-") && name.ends_with(".rlib")
        })
        .max_by_key(|path| std::fs::metadata(path).unwrap().modified().unwrap())
        .unwrap();
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let output = Command::new(rustc)
        .args(["--edition", "2024", "-o"])
        .arg(&program)
        .arg("--extern")
        .arg(format!("perdura_heap={}", heap.display()))
        .arg("-L")
        .arg(format!("dependency={}", libraries.display()))
        .arg(&source)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for visit in 1..=3 {
        let said = crate::programs::run_well(&program, &[], folder.path());
        assert_eq!(said, format!("visit {visit}\n"));
    }
}
