//! `perdura-lab heap`: allocators in turn, the counts of each, and refusals.

use std::path::Path;

use crate::process::{lab, text};

fn heap(words: &[&str], json: &Path) -> serde_json::Value {
    let small = ["heap", "--objects", "3000", "--rounds", "2", "--round", "10ms", "--json"];
    let output = lab(&[&small[..], &[json.to_str().unwrap()], words].concat());
    assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
    let result: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    for key in ["kernel", "cpu", "revision"] {
        assert!(result["machine"][key].is_string(), "{key} in {result}");
    }
    assert_eq!(result["configuration"]["seed"], 1, "{result}");
    result
}

/// A positive number.
fn figure(of: &serde_json::Value, key: &str) -> f64 {
    let number = of[key].as_f64().unwrap_or_else(|| panic!("{key} in {of}"));
    assert!(number.is_finite() && number > 0.0, "{key} in {of}");
    number
}

#[test]
fn heaps_are_measured_in_turn_and_their_flushes_counted() {
    let dir = tempfile::tempdir().unwrap();
    let result = heap(&["--threads", "1,2"], &dir.path().join("json"));
    for threads in ["1", "2"] {
        let found = &result["threads"][threads];
        assert!(
            figure(found, "harness_pair_ns")
                < figure(&found["rivals"]["glibc"], "capacity_pair_ns")
        );
        for (name, pair) in [
            ("glibc", "capacity_pair_ns"),
            ("jemalloc", "capacity_pair_ns"),
            ("mimalloc", "capacity_pair_ns"),
            ("libpmemobj", "persistent_pair_ns"),
        ] {
            let rival = &found["rivals"][name];
            if let Some(missing) = rival["missing"].as_str() {
                println!("skipped: {name}: {missing}");
                assert!(missing.contains("apt install"), "{missing}");
                continue;
            }
            // A rival describes itself: another allocator would have another name.
            assert!(rival["allocator"].as_str().unwrap().contains(name), "{rival}");
            let spread = &rival["spread"][pair];
            assert_eq!(spread["rounds"].as_array().unwrap().len(), 2, "{rival}");
            assert!(figure(spread, "min") <= figure(rival, pair), "{rival}");
            assert!(figure(rival, pair) <= figure(spread, "max"), "{rival}");
            assert!(rival["memory"]["populated"]["asked_bytes"].as_u64() > Some(3000 * 400));
        }
        for key in [
            "persistent_pair_ns",
            "persistent_pair_strict_ns",
            "persistent_pair_published_ns",
            "persistent_pair_ordered_ns",
            "persistent_pair_conventional_ns",
            "capacity_pair_ns",
            "tx64_ns",
            "tx4x64_ns",
            "tx64_undo_ns",
            "recovery_objects_per_s",
        ] {
            figure(found, key);
        }
        // The line of the allocation, and what logs and runs need once in many allocations.
        let lines = figure(found, "lines_flushed_per_alloc");
        assert!((1.0..=2.0).contains(&lines), "{found}");
        // Exactly two lines, except those that a log needs once in thousands of transactions.
        let flushed = figure(found, "lines_flushed_per_tx64");
        assert!(flushed <= 2.01, "{found}");
        assert!(figure(found, "lines_per_tx64_total") >= flushed, "{found}");
        assert!((1.0..=2.0).contains(&figure(found, "fences_per_tx64")), "{found}");
        assert_eq!(found["bounds"]["fences_per_tx64"]["is_met"], true, "{found}");
        assert!(figure(found, "lines_flushed_per_alloc_conventional") >= 4.0, "{found}");
        let recovered: Vec<_> = found["recovery"].as_array().unwrap().iter().collect();
        let objects: Vec<_> = recovered.iter().map(|of| of["objects"].as_u64().unwrap()).collect();
        assert_eq!(objects, [1501, 3001, 6001], "{found}");
        assert_eq!(found["spread"]["tx64_ns"]["rounds"].as_array().unwrap().len(), 2, "{found}");
        for (name, ratio) in found["ratios"].as_object().unwrap() {
            // With tiny heaps and perhaps an unoptimised build, the ratio need only be plausible.
            let of_medians = figure(ratio, "of_medians");
            assert!((0.001..1000.0).contains(&of_medians), "{name}: {ratio}");
        }
        let pmemobj = &found["rivals"]["libpmemobj"];
        if pmemobj["missing"].is_null() {
            figure(pmemobj, "tx4x64_ns");
            // Overwriting 64 B in place flushes the bytes and a copy of them.
            assert!(figure(pmemobj, "lines_flushed_per_tx64") >= 3.0, "{pmemobj}");
            assert!(figure(pmemobj, "fences_per_tx64") >= 2.0, "{pmemobj}");
            let four = figure(pmemobj, "lines_flushed_per_tx4x64");
            assert!(four > figure(pmemobj, "lines_flushed_per_tx64"), "{pmemobj}");
        }
    }
}

#[test]
fn a_rival_that_is_not_installed_is_named_with_its_package() {
    let dir = tempfile::tempdir().unwrap();
    let nothing = dir.path().join("nothing");
    std::fs::create_dir(&nothing).unwrap();
    let words = ["--threads", "1", "--library-path", nothing.to_str().unwrap()];
    let result = heap(&words, &dir.path().join("json"));
    let rivals = &result["threads"]["1"]["rivals"];
    for (name, package) in [
        ("jemalloc", "libjemalloc2"),
        ("mimalloc", "libmimalloc2.0"),
        ("libpmemobj", "libpmemobj1"),
    ] {
        let missing = rivals[name]["missing"].as_str().unwrap();
        assert!(missing.contains(&format!("apt install {package}")), "{missing}");
    }
    assert!(rivals["glibc"]["missing"].is_null(), "{rivals}");
}

#[test]
fn what_no_heap_can_be_measured_with_is_refused() {
    for (words, expected) in [
        (["--sizes", "8-9"], "--sizes 8-9"),
        (["--threads", "1,0"], "--threads 1,0"),
        (["--touch", "none"], "--touch none"),
        (["--objects", "4000000000"], "give fewer objects"),
        (["--dir", "/nowhere"], "/nowhere"),
    ] {
        let output = lab(&["heap", words[0], words[1]]);
        assert!(!output.status.success(), "{words:?}");
        assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
    }
}
