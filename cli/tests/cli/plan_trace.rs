//! `perdura plan trace` as people call it: its figures, its refusals, and that a plan holds when it
//! is carried out.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::running::*;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::Value;

/// Time of the first record, as a Windows FILETIME.
const FIRST: u64 = 128_166_386_783_582_371;

fn plan(words: &[&str]) -> Output {
    Command::new(PERDURA).args(["plan", "trace"]).args(words).output().unwrap()
}

fn planned(words: &[&str]) -> String {
    let output = plan(words);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn refused(words: &[&str]) -> String {
    let output = plan(words);
    assert!(!output.status.success(), "{words:?} was not refused");
    String::from_utf8(output.stderr).unwrap()
}

/// An MSR trace: 20,000 accesses, 1 ms apart; two thirds write, `page` chooses where.
fn trace(
    dir: &Path,
    name: &str,
    mut page: impl FnMut(&mut Xoshiro256PlusPlus, bool) -> u64,
) -> PathBuf {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
    let mut text = String::new();
    for number in 0..20_000u64 {
        let is_read = number % 3 == 2;
        let op = if is_read { "Read" } else { "Write" };
        let (at, offset) = (FIRST + number * 10_000, page(&mut random, is_read) * 4096);
        writeln!(text, "{at},srv,0,{op},{offset},4096,900").unwrap();
    }
    let path = dir.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// Reads everywhere in 8,192 pages, writes nearly always to 100 of them.
fn skewed(random: &mut Xoshiro256PlusPlus, is_read: bool) -> u64 {
    let is_cold = is_read || random.random_range(0..200) == 0;
    random.random_range(0..if is_cold { 8192 } else { 100 })
}

fn uniform(random: &mut Xoshiro256PlusPlus, _is_read: bool) -> u64 {
    random.random_range(0..8192)
}

#[test]
fn traces_become_a_table_a_json_and_a_page() {
    let dir = TestDir::new();
    let at = |name: &str| dir.path().join(name);
    let (first, second) = (trace(dir.path(), "a.csv", skewed), trace(dir.path(), "b.csv", uniform));
    let (json, html) = (at("plan.json"), at("plan.html"));
    let paths = [&first, &second, &json, &html].map(|path| path.to_str().unwrap());
    let text = planned(&[paths[0], paths[1], "--json", paths[2], "--html", paths[3]]);
    assert!(text.contains("20000 records over 20s"), "{text}");
    assert!(text.contains("modelled"), "{text}");

    let plan: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let traces = plan["traces"].as_array().unwrap();
    assert_eq!(traces.len(), 2);
    for (one, path) in traces.iter().zip(&paths) {
        assert_eq!(one["trace"], *path);
        assert_eq!((&one["records"], &one["page_writes"]), (&20_000.into(), &13_334.into()));
        for window in ["60", "600", "3600"] {
            for kind in ["tumbling", "sliding"] {
                let worst = &one["worst"][window][kind];
                // The whole trace is shorter than any of the windows.
                assert_eq!(worst["adversarial_pages"], one["page_writes"]);
                assert_eq!(worst["unique_pages"], one["written_pages"]);
            }
        }
        let skew = |share: &str| one["skew_pages"][share].as_u64().unwrap();
        assert!(skew("90") < skew("95") && skew("95") < skew("99"));
        assert_eq!(one["sizing"]["label"], "modelled");
        // The smallest budget and all larger ones keep to the target; the next smaller one, asked
        // for or tried, does not.
        let sizing = &one["sizing"];
        let (budgets, most) = (sizing["budgets"].as_array().unwrap(), &sizing["stalls_max"]);
        let met = |row: &Value| {
            row["stalls_per_write"].as_f64() <= most.as_f64()
                && row["stalled_share"].as_f64() <= sizing["stalled_max"].as_f64()
        };
        let smallest = budgets.iter().position(|row| *row == sizing["smallest"]);
        let smallest = smallest.unwrap();
        assert!(budgets[smallest..].iter().all(met), "{sizing}");
        assert!(smallest == 0 || !met(&budgets[smallest - 1]), "{sizing}");
    }
    let page = std::fs::read_to_string(html).unwrap();
    for one in traces {
        // There is one verdict, about the budget that was found.
        let (verdict, smallest) = (&one["verdict"], &one["sizing"]["smallest"]);
        assert!(smallest["share_of_memory"].as_f64().unwrap() <= 0.5, "{smallest}");
        assert_eq!(verdict["small_battery_will_do"], true, "{verdict}");
        let sentence = verdict["sentence"].as_str().unwrap();
        assert!(sentence.starts_with("A small battery will do (modelled): with a budget of "));
        assert!(text.contains(sentence) && page.contains(sentence), "{sentence} in {text}");
    }
    assert!(!text.contains("will not do") && !page.contains("will not do"), "{text}");
    let uniform = traces[1]["verdict"]["because"].as_str().unwrap();
    assert!(uniform.contains("rests on the SSD"), "{uniform}");

    for part in ["Figure 1, published", "Figure 2", "Figure 3", "Figure 4", "Figure 5, computed"] {
        assert!(page.contains(part), "{part} is missing");
    }
    assert!(page.ends_with("</html>\n") && !page.contains("http://") && !page.contains("<script"));
}

#[test]
fn files_together_are_one_trace() {
    let dir = TestDir::new();
    let (first, second) = (trace(dir.path(), "a.csv", skewed), trace(dir.path(), "b.csv", uniform));
    let json = dir.path().join("plan.json");
    let paths = [&first, &second, &json].map(|path| path.to_str().unwrap());
    planned(&[paths[0], paths[1], "--together", "--no-sizing", "--json", paths[2]]);
    let plan: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let traces = plan["traces"].as_array().unwrap();
    assert_eq!((traces.len(), &traces[0]["records"]), (1, &40_000.into()));
    // Both files have the same volume.
    assert_eq!(traces[0]["volumes"].as_array().unwrap().len(), 1);
    assert_eq!(traces[0]["sizing"], Value::Null);
}

#[test]
fn a_plan_is_carried_out_and_the_drill_confirms_it() {
    let dir = TestDir::new();
    let trace = trace(dir.path(), "a.csv", skewed);
    // The warning follows from the budget; or it follows from a warning, or a battery, that leave 2
    // ms beside the reserve.
    let here = dir.path().to_str().unwrap();
    let rate = ["--flush-rate", "400MB/s"];
    for (rate, limit) in [
        (["--measure", here], &[][..]),
        (rate, &["--grace", "2002ms"]),
        (rate, &["--battery", "1502J"]),
    ] {
        let settings = dir.path().join("config.toml");
        let words = [trace.to_str().unwrap(), "--emit", settings.to_str().unwrap()];
        let text = planned(&[&words[..], &rate, limit].concat());
        assert!(text.contains("A small battery will do"), "{text}");
        let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(left.len(), 2, "what was made to measure the rate is still there: {left:?}");

        let data = TestDir::new();
        let mut server = Server::start(data.path(), &["--config", settings.to_str().unwrap()]);
        assert!(server.banner.contains("dirty, safe "), "{}", server.banner);
        let drill = Command::new(PERDURA)
            .args(["drill", "--connect", &format!("127.0.0.1:{}", server.port)])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&drill.stdout);
        assert!(drill.status.success() && said.contains("PASS"), "{limit:?}: {said}");
        server.signal("TERM");
        assert_eq!(server.wait(), Some(0));
    }
}

#[test]
fn a_warning_limits_the_budget() {
    let dir = TestDir::new();
    let (trace, json) = (trace(dir.path(), "a.csv", skewed), dir.path().join("plan.json"));
    let words = ["--flush-rate", "100MB/s", "--reserve", "0s", "--grace", "10ms", "--json"];
    let words = [&[trace.to_str().unwrap()], &words[..], &[json.to_str().unwrap()]].concat();
    planned(&words);
    let plan: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let sizing = &plan["traces"][0]["sizing"];
    let (most, chosen) = (&sizing["budget_max_bytes"], &sizing["chosen"]["budget_bytes"]);
    assert!(most.as_u64().unwrap() < 1_000_000 && chosen.as_u64() <= most.as_u64(), "{sizing}");
    assert!(
        refused(&[words[0], "--reserve", "5s", "--grace", "2s"]).contains("allows a budget of")
    );
}

/// The sizing and the verdict of the first trace, and the page.
fn plan_of(trace: &str, words: &[&str]) -> (Value, String, String) {
    let dir = TestDir::new();
    let (json, html) = (dir.path().join("plan.json"), dir.path().join("plan.html"));
    let outputs = ["--json", json.to_str().unwrap(), "--html", html.to_str().unwrap()];
    let said = planned(&[&[trace][..], words, &outputs].concat());
    let plan: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    (plan["traces"][0].clone(), std::fs::read_to_string(&html).unwrap(), said)
}

/// The verdict of each published trace, where there are any, is that of its sizing, and is the same
/// in the table, the JSON and the page.
#[test]
fn on_published_traces_the_verdict_is_that_of_the_sizing() {
    let Some(place) = crate::plan_figures::plain::real_traces() else { return };
    for (name, more) in [
        ("msr_wdev_1.csv", &[][..]),
        ("msr_wdev_3.csv", &[]),
        ("msr_hm_1_part_write.csv", &[]),
        ("umass_fin1_prefix_example.ascii", &["--time-unit", "ns"]),
        ("msr_wdev_1.csv", &["--flush-rate", "1KB/s"]),
    ] {
        let trace = place.join(name);
        let (one, page, said) = plan_of(trace.to_str().unwrap(), more);
        let (verdict, sizing) = (&one["verdict"], &one["sizing"]);
        let sentence = verdict["sentence"].as_str().unwrap();
        let share = sizing["smallest"]["share_of_memory"].as_f64();
        let will_do = share.is_some_and(|share| share <= 0.5);
        assert_eq!(verdict["small_battery_will_do"], will_do, "{name}: {verdict} {sizing}");
        let begins = match share {
            Some(_) if will_do => "A small battery will do (modelled): with a budget of ",
            Some(_) => "A small battery will not do (modelled): it takes a budget of ",
            None => "No battery will do (modelled): the SSD is too slow",
        };
        assert!(sentence.starts_with(begins), "{name}: {sentence}");
        assert!(page.contains(sentence), "{name}: {sentence} is not on the page");
        // The verdict comes first, right under the trace's name.
        assert_eq!(said.lines().nth(2), Some(sentence), "{name}: {said}");
        assert_eq!(said.matches("will not do").count(), sentence.matches("will not do").count());
    }
}

/// Without a replay the pattern of the writes decides: nearly all pages take part in the writes.
#[test]
fn without_a_replay_the_pattern_of_the_writes_decides() {
    let dir = TestDir::new();
    let pages = [skewed as fn(&mut Xoshiro256PlusPlus, bool) -> u64, uniform];
    for (page, will_do) in pages.into_iter().zip([true, false]) {
        let trace = trace(dir.path(), "a.csv", page);
        let (one, page, said) = plan_of(trace.to_str().unwrap(), &["--no-sizing"]);
        assert_eq!(one["verdict"]["small_battery_will_do"], will_do, "{}", one["verdict"]);
        let answer = if will_do { "will do" } else { "will not do" };
        let sentence = format!("A small battery {answer}, by the pattern of the writes alone: ");
        assert!(said.contains(&sentence) && page.contains(&sentence), "{said}");
    }
}

/// One wait may be as long as thousands of writes: counted alone, waits hide an SSD that falls
/// behind.
#[test]
fn a_budget_keeps_to_the_waits_and_to_the_time_waited() {
    let dir = TestDir::new();
    let trace = trace(dir.path(), "a.csv", skewed);
    let trace = trace.to_str().unwrap();
    let slow = ["--flush-rate", "1MB/s", "--checkpoint", "off", "--stalls", "5%"];
    let (any, ..) = plan_of(trace, &[&slow[..], &["--stalled-time", "100%"]].concat());
    let lax = &any["sizing"]["smallest"];
    assert!(lax["stalled_share"].as_f64().unwrap() > 0.01, "{lax}");
    let (kept, ..) = plan_of(trace, &slow);
    let strict = &kept["sizing"]["smallest"];
    assert!(strict["stalled_share"].as_f64().unwrap() <= 0.01, "{strict}");
    assert!(strict["budget_bytes"].as_u64() > lax["budget_bytes"].as_u64());
}

/// What is on its way to a slow SSD and written again counts twice: a budget of all that is written
/// may not do where a larger one does.
#[test]
fn a_budget_larger_than_all_that_is_written_may_be_what_it_takes() {
    let dir = TestDir::new();
    let trace = trace(dir.path(), "a.csv", skewed);
    let slow = ["--flush-rate", "100KB/s", "--volume-size", "1GiB"];
    let (one, ..) = plan_of(trace.to_str().unwrap(), &slow);
    let written = one["written_pages"].as_u64().unwrap() * 4096;
    let sizing = &one["sizing"];
    let bytes = |row: &Value| row["budget_bytes"].as_u64().unwrap();
    assert!(bytes(&sizing["smallest"]) > 2 * written, "{sizing}");
    let budgets = sizing["budgets"].as_array().unwrap();
    let of_written = budgets.iter().rfind(|row| bytes(row) < 2 * written).unwrap();
    assert!(bytes(of_written) >= written && of_written["stalled_share"].as_f64() > Some(0.01));
}

#[test]
fn a_warning_too_short_for_the_target_is_said_wherever_the_plan_goes() {
    let dir = TestDir::new();
    let trace = trace(dir.path(), "a.csv", uniform);
    let settings = dir.path().join("config.toml");
    let limit = ["--flush-rate", "4MB/s", "--reserve", "0s", "--grace", "200ms", "--volume-size"];
    let emit = ["1GiB", "--emit", settings.to_str().unwrap()];
    let words = [&limit[..], &emit].concat();
    let (one, page, said) = plan_of(trace.to_str().unwrap(), &words);
    assert_eq!(one["verdict"]["small_battery_will_do"], false, "{}", one["verdict"]);
    let because = one["verdict"]["because"].as_str().unwrap();
    let stated = "But the warning or battery given allows ";
    assert!(because.contains(stated) && said.contains(stated) && page.contains(stated), "{said}");
    assert!(said.contains("> what the warning or battery allows; it takes "), "{said}");
    assert!(page.contains("the budget chosen: what the warning or battery allows; it takes "));
    let settings = std::fs::read_to_string(settings).unwrap();
    assert!(settings.contains("# The target is missed: what the warning"), "{settings}");
}

#[test]
fn what_a_trace_is_too_short_to_show_is_said() {
    let dir = TestDir::new();
    let trace = trace(dir.path(), "a.csv", skewed);
    let (one, page, said) = plan_of(trace.to_str().unwrap(), &["--windows", "10s,1m,1h"]);
    let note = "The trace lasts 20s only: what is written in 1m or 1h may be more than it shows.";
    assert!(one["verdict"]["because"].as_str().unwrap().contains(note), "{}", one["verdict"]);
    assert!(said.contains(note) && page.contains(note), "{said}");
    let (all, ..) = plan_of(trace.to_str().unwrap(), &["--windows", "10s"]);
    assert!(!all["verdict"]["because"].as_str().unwrap().contains("lasts"));
}

#[test]
fn a_size_less_than_what_is_touched_is_not_believed() {
    let dir = TestDir::new();
    let trace = trace(dir.path(), "a.csv", skewed);
    let (one, page, _) = plan_of(trace.to_str().unwrap(), &["--volume-size", "4KiB"]);
    assert_eq!(one["assessment"]["volume_given"], false);
    let because = one["verdict"]["because"].as_str().unwrap();
    assert!(
        because.contains("The size given is less than what is touched of 1 volume:"),
        "{because}"
    );
    assert!(because.contains("Shares are of what the trace touches"), "{because}");
    assert!(page.contains("No size of the volumes was given"));
    let (one, ..) = plan_of(trace.to_str().unwrap(), &["--volume-size", "1GiB"]);
    assert_eq!(one["assessment"]["volume_given"], true);
}

#[test]
fn the_modelled_ssd_writes_no_faster_than_it_can() {
    let dir = TestDir::new();
    let trace = trace(dir.path(), "a.csv", uniform);
    let words = ["--flush-rate", "1MB/s", "--budgets", "20MiB"];
    let (one, page, said) = plan_of(trace.to_str().unwrap(), &words);
    for row in one["sizing"]["budgets"].as_array().unwrap() {
        assert!(row["device_bytes_per_s"].as_f64().unwrap() <= 1_000_100.0, "{row}");
        assert!(row["device_bytes_worst_second"].as_u64().unwrap() <= 1_000_100, "{row}");
    }
    let slow = "the SSD is too slow: there is no budget with which at most 0.1 %";
    assert!(said.contains(slow) && page.contains(slow), "{said}");
}

#[test]
fn what_needs_sizing_is_refused_without_it() {
    let dir = TestDir::new();
    let trace = trace(dir.path(), "a.csv", skewed);
    for without in ["--no-sizing", "--approximate"] {
        for (option, value) in [("--budgets", "5%"), ("--battery", "5kJ"), ("--stalls", "1%")] {
            let said = refused(&[trace.to_str().unwrap(), without, option, value]);
            assert!(said.contains(without) && said.contains(option), "{said}");
        }
    }
}

#[test]
fn bad_input_is_named_with_place_and_value() {
    let dir = TestDir::new();
    let path = dir.path().join("bad.csv");
    let of = |text: &str| {
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap()
    };
    let good = format!("{FIRST},srv,0,Write,0,4096,9\n");
    let bad = format!("{good}{},srv,0,Write,-5,4096,9\n{good}", FIRST + 1);
    let error = refused(&[of(&bad)]);
    assert!(error.contains("bad.csv") && error.contains("2") && error.contains("-5"), "{error}");
    let earlier = format!("{good}{},srv,0,Write,0,4096,9\n", FIRST - 30);
    assert!(refused(&[of(&earlier)]).contains("--reorder"));
    planned(&[of(&earlier), "--reorder", "1s"]);
    assert!(planned(&[of(&bad), "--skip-bad", "1"]).contains("1 bad records passed over"));
    assert!(plan_of(of(&bad), &["--skip-bad", "1"]).1.contains("; 1 bad records passed over)"));
    refused(&[of(&bad), "--skip-bad", "0"]);
    assert!(refused(&[of("")]).contains("bad.csv"));
    assert!(refused(&[dir.path().to_str().unwrap()]).contains("directory"));
    assert!(refused(&["/nowhere/at/all.csv"]).contains("/nowhere/at/all.csv"));
    for (words, part) in [
        (["--windows", "0s"], "--windows"),
        (["--shares", "101"], "--shares"),
        (["--format", "papyrus"], "--format papyrus"),
        (["--budgets", "lots"], "--budgets lots"),
        (["--budgets", "0%"], "--budgets 0%: expected more"),
        (["--budgets", "4KiB"], "--budgets 4KiB: expected 128 KiB or more"),
        (["--budgets", "5%,101%"], "--budgets 101%"),
        (["--measure", "/nowhere"], "--measure /nowhere"),
        (["--emit", "/nowhere/config.toml"], "/nowhere/config.toml"),
    ] {
        let error = refused(&[&[of(&good)], &words[..]].concat());
        assert!(error.contains(part), "{words:?}: {error}");
    }
}

#[test]
fn results_replace_neither_traces_nor_each_other_nor_anything_when_there_is_no_plan() {
    let dir = TestDir::new();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (good, bad, old) = (path("good.csv"), path("bad.csv"), path("plan.json"));
    let text = format!("{FIRST},srv,0,Write,0,4096,9\n");
    std::fs::write(&good, &text).unwrap();
    std::fs::write(&bad, "nothing of the sort\n").unwrap();
    std::fs::write(&old, "old").unwrap();
    assert!(refused(&[&good, "--json", &good]).contains("that is to be read"));
    assert_eq!(std::fs::read_to_string(&good).unwrap(), text);
    assert!(refused(&[&good, "--json", &old, "--html", &old]).contains("the file of --json"));
    refused(&[&bad, "--json", &old]);
    assert_eq!(std::fs::read_to_string(&old).unwrap(), "old");
    planned(&[&good, "--json", &old]);
    assert!(std::fs::read_to_string(&old).unwrap().contains("page_writes"));
}

#[test]
fn what_one_result_has_no_room_for_is_shown_and_written_elsewhere() {
    let dir = TestDir::new();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (good, page) = (path("good.csv"), path("plan.html"));
    std::fs::write(&good, format!("{FIRST},srv,0,Write,0,4096,9\n")).unwrap();
    let words = [&good, "--no-sizing", "--json", "/dev/full", "--html", &page];
    let output = plan(&words);
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("--json /dev/full: No space left"), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("A small battery"));
    assert!(std::fs::read_to_string(&page).unwrap().ends_with("</html>\n"));
    // A table that nobody can read is a failure, too.
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(PERDURA);
    let output = command.args(["plan", "trace", &good, "--no-sizing"]).stdout(full).output();
    let output = output.unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("standard output: No space left"), "{said}");
}

#[test]
fn json_to_standard_output_is_all_that_is_there() {
    let dir = TestDir::new();
    let path = dir.path().join("good.csv");
    std::fs::write(&path, format!("{FIRST},srv,0,Write,0,4096,9\n")).unwrap();
    let output = Command::new(PERDURA)
        .args(["plan", "trace", "good.csv", "--no-sizing", "--json", "-"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["traces"][0]["page_writes"], 1);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no file is called -");
    let both = ["--no-sizing", "--json", "-", "--html", "-"];
    let said = refused(&[&[path.to_str().unwrap()], &both[..]].concat());
    assert!(said.contains("the file of --json"), "{said}");
}

#[test]
fn what_no_replay_can_be_made_of_is_refused_with_what_to_do() {
    let dir = TestDir::new();
    let file = dir.path().join("t.csv");
    std::fs::write(&file, format!("{FIRST},srv,0,Write,0,4096,9\n")).unwrap();
    let file = file.to_str().unwrap();
    assert!(refused(&[file, "--volume-size", "100TB"]).contains("--volume-size"));
    planned(&[file, "--volume-size", "100TB", "--no-sizing"]);
    let mut piped = Command::new(PERDURA)
        .args(["plan", "trace", "/dev/stdin"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(piped.stdin.take());
    let output = piped.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("is a pipe") && said.contains("--no-sizing"), "{said}");
    let large = format!("{FIRST},srv,0,Write,0,1099511627776,9\n");
    std::fs::write(file, large).unwrap();
    let said = refused(&[file]);
    assert!(said.contains("line 1") && said.contains("1099511627776"), "{said}");
}

/// The result of `plan trace` with these bytes on standard input.
fn fed(words: &[&str], input: impl Into<Stdio>, bytes: &[u8]) -> Output {
    let mut child = Command::new(PERDURA)
        .args(["plan", "trace"])
        .args(words)
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    if let Some(mut pipe) = child.stdin.take() {
        // A command that refuses its options reads nothing.
        let _ = pipe.write_all(bytes);
    }
    child.wait_with_output().unwrap()
}

#[test]
fn standard_input_is_a_trace_like_a_file_and_is_kept_only_for_sizing() {
    let dir = TestDir::new();
    let json = dir.path().join("plan.json");
    let json = json.to_str().unwrap();
    let path = trace(dir.path(), "a.csv", skewed);
    let bytes = std::fs::read(&path).unwrap();
    let figures = |output: Output| {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let plan: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
        let mut one = plan["traces"][0].clone();
        for name in ["trace", "files"] {
            one.as_object_mut().unwrap().remove(name);
        }
        one
    };
    let one_pass = ["--no-sizing", "--json", json];
    let of_file = |more: &[&str]| figures(plan(&[&[path.to_str().unwrap()], more].concat()));
    let (sized, counted) = (of_file(&["--json", json]), of_file(&one_pass));
    assert!(sized["sizing"]["chosen"].is_object());
    let opened = || std::fs::File::open(&path).unwrap();
    for (more, expected) in [(&["--json", json][..], &sized), (&one_pass, &counted)] {
        let words = [&["-"], more].concat();
        assert_eq!(figures(fed(&words, Stdio::piped(), &bytes)), *expected, "{words:?}");
        assert_eq!(figures(fed(&words, opened(), &[])), *expected, "{words:?}");
    }
    // If standard input cannot be kept anywhere, the error says so and what to do.
    let nowhere = |words: &[&str]| {
        let script = "TMPDIR=/nowhere exec \"$0\" plan trace \"$@\"";
        let mut shell = Command::new("sh");
        shell.args(["-c", script, PERDURA]).args(words).stdin(Stdio::piped());
        let mut child = shell.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let _ = child.stdin.take().unwrap().write_all(&bytes);
        child.wait_with_output().unwrap()
    };
    let said = String::from_utf8_lossy(&nowhere(&["-"]).stderr).into_owned();
    for part in ["standard input", "/nowhere", "TMPDIR", "--no-sizing"] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    assert!(nowhere(&["-", "--no-sizing"]).status.success());
}

#[test]
fn standard_input_is_read_once_named_in_errors_and_never_written_over() {
    let dir = TestDir::new();
    let said = |output: Output| {
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(said(fed(&["-", "-"], Stdio::piped(), b"")).contains("given twice"));
    let bad = format!("{FIRST},srv,0,Write,0,4096,9\n{},srv,0,Write,-5,4096,9\n", FIRST + 1);
    for more in [&[][..], &["--no-sizing"]] {
        let words = [&["-"], more].concat();
        let error = said(fed(&words, Stdio::piped(), bad.as_bytes()));
        for part in ["/dev/stdin", "line 2", "-5"] {
            assert!(error.contains(part), "{part} is not in {error}");
        }
        assert!(said(fed(&words, Stdio::piped(), b"")).contains("/dev/stdin"));
    }
    let path = trace(dir.path(), "a.csv", uniform);
    let before = std::fs::read(&path).unwrap();
    let words = ["-", "--json", path.to_str().unwrap()];
    let input = std::fs::File::open(&path).unwrap();
    assert!(said(fed(&words, input, b"")).contains("that is to be read"));
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn a_budget_that_the_memory_of_a_trace_cannot_have_is_told_beside_what_was_replayed() {
    let dir = TestDir::new();
    let file = trace(dir.path(), "t.csv", skewed);
    let (json, html) = (dir.path().join("plan.json"), dir.path().join("plan.html"));
    let [file, json, html] = [&file, &json, &html].map(|path| path.to_str().unwrap());
    let words = ["--budgets", "0.1%,1MiB,5GiB", "--json", json, "--html", html];
    let said = planned(&[&[file][..], &words].concat());
    for text in [said, std::fs::read_to_string(html).unwrap()] {
        let of_all = "5 GiB was asked for, more than the memory: replayed with all of it,";
        let of_least = "was asked for, less than the smallest budget there can be: replayed with \
                        that, 128 KiB";
        assert!(text.contains(of_all) && text.contains(of_least), "{text}");
    }
    let plan: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let sizing = &plan["traces"][0]["sizing"];
    let replaced = sizing["replaced"].as_array().unwrap();
    assert_eq!(replaced.len(), 2, "{replaced:?}");
    assert_eq!(replaced[0]["replayed_bytes"], 128 << 10);
    assert_eq!(replaced[1]["asked_bytes"], 5u64 << 30);
    assert_eq!(replaced[1]["replayed_bytes"], sizing["memory_bytes"]);
    assert!(!planned(&[file]).contains("was asked for"));
}

#[test]
fn formats_are_listed() {
    let output = Command::new(PERDURA).args(["plan", "formats"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for name in ["msr", "spc", "disksim", "blkparse", "vscsi", "fio", "parquet", "ycsb"] {
        let mut lines =
            text.lines().map(|line| line.split_whitespace().take(2).collect::<Vec<_>>());
        // These tests are compiled with all formats, as a release is.
        assert!(lines.any(|line| line == [name, "yes"]), "{name} is not in {text}");
    }
}
