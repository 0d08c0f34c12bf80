//! A small run of `perdura-lab media`: its figures must be consistent.

use std::path::PathBuf;

use perdura_block::path::Step;
use perdura_lab::media::page::page;
use perdura_lab::media::result::{MediaResult, PathResult};
use perdura_lab::media::{MediaBenchError, MediaSettings, run};
use perdura_media::profile::System;

use crate::process::{lab, text};

fn settings(profile: &str, dir: &tempfile::TempDir) -> MediaSettings {
    MediaSettings {
        size_bytes: 8 << 20,
        file_bytes: 4 << 20,
        seconds: 0.8,
        dir: dir.path().to_owned(),
        ..MediaSettings::usual(System::find(profile).unwrap(), profile)
    }
}

fn paths_of<'r>(result: &'r MediaResult, name: &str) -> Vec<&'r PathResult> {
    result.paths.iter().filter(|path| path.path == name).collect()
}

#[test]
fn a_small_run_of_pcm_has_its_targets_its_paths_and_its_page() {
    let dir = tempfile::tempdir().unwrap();
    let result = run(&settings("pcm", &dir), &|_, _, _| ()).unwrap();
    // These are the slides' projected latencies, not this machine's.
    assert_eq!([result.target_read_ns, result.target_write_ns], [65.0, 215.0]);
    assert!(result.measured_read_ns_p50 >= 60.0, "{}", result.measured_read_ns_p50);
    for latency in [&result.read, &result.write].into_iter().chain(&result.accesses) {
        assert!(latency.measured_ns_p50 >= latency.target_ns * 0.94, "{latency:?}");
        assert_eq!(latency.is_within, latency.limited_by.is_none(), "{latency:?}");
    }
    for stream in [&result.read_stream, &result.write_stream].into_iter().chain(&result.streams) {
        assert_eq!(stream.is_within, stream.limited_by.is_none(), "{stream:?}");
        assert!(stream.measured_bytes_per_s > 0.0, "{stream:?}");
    }
    for step in ["base", "unscheduled", "atomic", "spin"] {
        let paths = paths_of(&result, step);
        assert_eq!(paths.iter().map(|path| path.threads).collect::<Vec<_>>(), [1, 2, 4]);
        for path in paths {
            let parts: f64 = path.parts_ns.values().sum();
            assert!((parts - path.software_ns).abs() < 1.0, "{path:?}");
            assert!(path.hardware_ns.unwrap() > 1_000.0, "{path:?}");
            assert!(path.requests > 0 && path.slices_ns.len() >= 10, "{path:?}");
        }
        assert!(result.software_ns_per_4k.contains_key(step), "{step}");
    }
    assert_eq!(result.verdicts.len(), 3 * 3);
    assert_eq!((result.alone.len(), result.verdicts_alone.len()), (4 * 3, 3 * 3));
    for path in &result.alone {
        assert!(path.hardware_ns.unwrap() < 1_000.0 && path.requests > 0, "{path:?}");
    }
    assert_eq!(result.findings.len(), 3, "{:?}", result.findings);
    assert!(result.findings[0].starts_with("Found: ") && result.findings[1].contains("waking up"));
    assert!(result.software_ns_per_4k.contains_key("direct"));
    for way in ["pread", "io_uring", "io_uring_polled", "mmap"] {
        for place in ["ssd", "tmpfs"] {
            let name = format!("{way}_{place}");
            let is_refused = result.refused.iter().any(|refused| refused.starts_with(&name));
            assert!(is_refused != result.software_ns_per_4k.contains_key(&name), "{name}");
        }
    }
    let page = page(&result);
    for wanted in ["four steps of HASTE", "takes no time", "modelled", "8.2", "io_uring_tmpfs"] {
        assert!(page.contains(wanted), "{wanted}");
    }
    assert!(!page.contains("http://") && !page.contains("https://"));
    let text = serde_json::to_string(&result).unwrap();
    let again: MediaResult = serde_json::from_str(&text).unwrap();
    // Fractions may lose their last digit in JSON.
    assert_eq!(again.paths.len(), result.paths.len());
    assert_eq!(again.target_read_ns, result.target_read_ns);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "the file is left");
}

#[test]
fn steps_that_were_not_chosen_are_not_run() {
    let dir = tempfile::tempdir().unwrap();
    let usual = settings("pcm", &dir);
    let result =
        run(&MediaSettings { steps: vec![Step::Base, Step::Spin], ..usual }, &|_, _, _| ())
            .unwrap();
    assert!(paths_of(&result, "atomic").is_empty() && paths_of(&result, "base").len() == 3);
    assert_eq!(result.verdicts.len(), 3);
    assert!(
        result
            .verdicts
            .iter()
            .all(|verdict| (verdict.before.as_str(), verdict.step.as_str()) == ("base", "spin"))
    );
}

#[test]
fn a_size_that_cannot_be_is_refused_before_anything_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let usual = settings("dram", &dir);
    for size_bytes in [0, 4096, (8 << 20) + 1] {
        let error = run(&MediaSettings { size_bytes, ..usual.clone() }, &|_, _, _| ()).unwrap_err();
        assert!(matches!(error, MediaBenchError::Size { .. }), "{error}");
    }
    let huge = MediaSettings { size_bytes: 1 << 60, ..usual.clone() };
    let error = run(&huge, &|_, _, _| ()).unwrap_err();
    assert!(matches!(error, MediaBenchError::NoRoom { .. }), "{error}");
    let nowhere = MediaSettings { dir: PathBuf::from("/proc/none"), ..usual };
    let error = run(&nowhere, &|_, _, _| ()).unwrap_err();
    assert!(
        matches!(error, MediaBenchError::Make { .. } | MediaBenchError::NoRoom { .. }),
        "{error}"
    );
}

#[test]
fn a_medium_is_measured_and_what_makes_no_sense_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (json, html) = (dir.path().join("media.json"), dir.path().join("media.html"));
    let small = ["media", "--profile", "pcm", "--size", "8MiB", "--seconds", "0.8"];
    let places = ["--json", json.to_str().unwrap(), "--html", html.to_str().unwrap()];
    let output = lab(&[&small[..], &places[..], &["--dir", dir.path().to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let result: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    for key in [
        "target_read_ns",
        "measured_read_ns_p50",
        "target_write_ns",
        "measured_write_ns_p50",
        "target_read_bandwidth_bytes_per_s",
        "measured_read_bandwidth_bytes_per_s",
        "target_write_bandwidth_bytes_per_s",
        "measured_write_bandwidth_bytes_per_s",
        "modelled_requests_per_s",
    ] {
        assert!(result[key].as_f64().is_some_and(|value| value > 0.0), "{key}: {}", result[key]);
    }
    assert!(result["machine"]["cpus"].is_u64());
    for path in ["base", "unscheduled", "atomic", "spin", "direct", "pread_ssd", "mmap_tmpfs"] {
        assert!(result["software_ns_per_4k"][path].is_f64(), "{path}");
    }
    assert!(std::fs::read_to_string(html).unwrap().contains("The four steps of HASTE"));
    let refused = lab(&[&small[..], &["--steps", "base,fast"]].concat());
    let error = text(&refused.stderr);
    assert!(
        !refused.status.success()
            && error.contains("--steps fast")
            && error.contains("unscheduled"),
        "{error}"
    );
    for (words, expected) in [
        (["--profile", "bubble"], "no profile is called \"bubble\""),
        (["--link", "string"], "no link is called \"string\""),
        (["--size", "-4GiB"], "--size -4GiB"),
        (["--size", "5000000"], "a medium of 5000000 bytes: expected a multiple of 4096"),
        (["--size", "900TiB"], "give a smaller --size"),
        (["--seconds", "0"], "--seconds 0: expected"),
        (["--dir", "/nowhere"], "/nowhere"),
    ] {
        let usual = if words[0] == "--size" { &[][..] } else { &["--size", "8MiB"][..] };
        let output = lab(&[&["media"], &words[..], usual].concat());
        assert!(!output.status.success(), "{words:?}");
        assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
    }
}
