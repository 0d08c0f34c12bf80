//! Comparisons of this program's files and files of the published shape.

use super::*;

/// A benchmark with one cell for each number of threads, and the repetitions of each cell.
fn ours(label: &str, place: &str, cells: &[(u64, &[f64])]) -> String {
    let cells: Vec<String> = cells
        .iter()
        .map(|(threads, repetitions)| {
            let bandwidth = repetitions[0];
            format!(
                r#"{{"config": {{"number_threads": {threads}, "access_size": 64,
                                 "seed": {threads}, "repetitions": {}}},
                    "results": {{"bandwidth": {bandwidth}, "ops_per_second": {},
                                 "repetitions": {repetitions:?}}}}}"#,
                repetitions.len(),
                bandwidth * 1e6,
            )
        })
        .collect();
    format!(
        r#"[{{"bm_name": "reads", "bm_type": "single", "matrix_args": ["number_threads"],
             "label": "{label}", "place": "{place}", "instructions": "avx2",
             "benchmarks": [{}]}}]"#,
        cells.join(",")
    )
}

fn file(text: &str) -> Result<ResultFile, CompareError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.json");
    std::fs::write(&path, text).unwrap();
    read(&path)
}

fn of(a: &str, b: &str) -> Comparison {
    compare(&file(a).unwrap(), &file(b).unwrap())
}

#[test]
fn cells_meet_by_their_settings_and_are_tested() {
    let a = ours(
        "measured",
        "DRAM",
        &[(1, &[1.0, 1.01, 0.99]), (2, &[2.0, 2.1, 1.9]), (4, &[4.0, 4.1, 3.9]), (8, &[8.0, 8.0])],
    );
    let b = ours(
        "measured",
        "DRAM",
        &[
            (4, &[2.0, 2.05, 1.95]),
            (2, &[2.05, 1.95, 2.1]),
            (1, &[3.0, 3.1, 2.9]),
            (16, &[8.0, 8.0]),
        ],
    );
    let found = of(&a, &b);
    let verdicts: Vec<_> = found.cells.iter().map(|cell| cell.verdict).collect();
    assert_eq!(verdicts, [Verdict::Faster, Verdict::NoDifferenceShown, Verdict::Slower]);
    assert_eq!(found.cells[0].settings, "number_threads 1");
    let ratio = found.cells[2].bandwidth.as_ref().unwrap();
    assert!((ratio.ratio.unwrap() - 0.5).abs() < 1e-3, "{ratio:?}");
    let [low, high] = ratio.ci95.unwrap();
    assert!(low < 0.5 && 0.5 < high && high < 0.6, "{ratio:?}");
    assert_eq!(found.cells[2].ops_per_second.as_ref().unwrap().ratio, ratio.ratio);
    assert!(found.cells[2].p.unwrap() < 0.01);
    assert_eq!(found.only_in_a, ["reads: number_threads 8"]);
    assert_eq!(found.only_in_b, ["reads: number_threads 16"]);
    assert_eq!(found.differences, [], "the machine is told by neither");
}

#[test]
fn one_measurement_is_no_sample() {
    let one = ours("measured", "DRAM", &[(1, &[1.0])]);
    let three = ours("measured", "DRAM", &[(1, &[2.0, 2.1, 1.9])]);
    let found = of(&one, &three);
    assert_eq!(found.cells[0].verdict, Verdict::NoTest);
    assert!(found.cells[0].why_no_test.as_ref().unwrap().contains("one measurement in A"));
    let pair = found.cells[0].bandwidth.as_ref().unwrap();
    assert_eq!((pair.ratio, pair.ci95), (Some(2.0), None));
    assert!(of(&three, &one).cells[0].why_no_test.as_ref().unwrap().contains("in B"));
}

#[test]
fn what_else_differs_is_said_and_models_are_not_tested() {
    let a = ours("modelled", "apache-256, modelled", &[(1, &[1.0, 1.0])]);
    let b = ours("measured", "DRAM", &[(1, &[2.0, 2.1])]);
    let found = of(&a, &b);
    let said: Vec<_> = found.differences.iter().map(|one| one.what.as_str()).collect();
    assert_eq!(said, ["figures", "place"]);
    assert_eq!(found.differences[0].a, ["modelled"]);
    assert_eq!(found.cells[0].labels, [Some(Label::Modelled), Some(Label::Measured)]);
    assert!(found.cells[0].why_no_test.as_ref().unwrap().contains("modelled"));
}

#[test]
fn a_published_file_is_compared_by_what_it_tells() {
    let published = r#"[
      {"bm_name": "reads", "bm_type": "single", "matrix_args": ["number_threads"], "benchmarks": [
        {"config": {"access_size": 64, "memory_type": "pmem", "number_threads": 1},
         "results": {"accessed_bytes": 64, "bandwidth": 0.5, "execution_time": 1.0,
                     "threads": []}}]},
      {"bm_name": "chains", "bm_type": "single", "matrix_args": ["custom_operations"],
       "benchmarks": [
        {"config": {"custom_operations": "r_64,w_64_cache_0"},
         "results": {"ops_per_second": 100.0}}]},
      {"bm_name": "both", "bm_type": "parallel", "matrix_args": {"x": ["access_size"], "y": []},
       "benchmarks": [
        {"config": {"x": {"access_size": 64}, "y": {"access_size": 256}},
         "results": {"x": {"results": {"bandwidth": 1.0}},
                     "y": {"results": {"bandwidth": 2.0}}}}]}]"#;
    let found = of(published, &ours("measured", "DRAM", &[(1, &[1.0, 1.1])]));
    let pair = found.cells[0].bandwidth.as_ref().unwrap();
    assert_eq!((pair.a, pair.b, pair.ratio), (0.5, 1.0, Some(2.0)));
    assert_eq!(found.cells[0].ops_per_second, None, "told by one only");
    assert_eq!(found.differences[0].what, "figures");
    assert_eq!(found.differences[0].a, Vec::<String>::new());
    assert_eq!(found.only_in_a.len(), 2);
    let itself = of(published, published);
    let cells: Vec<_> =
        itself.cells.iter().map(|cell| (cell.part.as_deref(), &*cell.settings)).collect();
    assert_eq!(
        cells,
        [
            (None, "number_threads 1"),
            (None, "custom_operations rp_64,wp_64_cache"),
            (Some("x"), "x.access_size 64"),
            (Some("y"), "x.access_size 64"),
        ]
    );
    assert_eq!(itself.cells[1].ops_per_second.as_ref().unwrap().ratio, Some(1.0));
}

#[test]
fn settings_that_keep_all_cells_apart_are_named() {
    let a = ours("measured", "DRAM", &[(1, &[1.0]), (2, &[1.0])]);
    let b = a.replace("\"access_size\": 64", "\"access_size\": 256");
    let found = of(&a, &b);
    assert_eq!((found.cells.len(), found.only_in_a.len(), found.only_in_b.len()), (0, 2, 2));
    assert_eq!(found.unmatched_by, ["reads: access_size: 64 in A, 256 in B"]);
}

#[test]
fn cells_that_are_the_same_meet_in_their_order() {
    let a = ours("measured", "DRAM", &[(2, &[1.0]), (2, &[2.0])]);
    let b = ours("measured", "DRAM", &[(2, &[1.0]), (2, &[4.0]), (2, &[9.0])]);
    let found = of(&a, &b);
    let ratios: Vec<_> =
        found.cells.iter().filter_map(|cell| cell.bandwidth.as_ref()?.ratio).collect();
    assert_eq!(ratios, [1.0, 2.0]);
    assert_eq!(found.only_in_b.len(), 1);
}

#[test]
fn what_is_no_result_is_refused_by_its_name() {
    for text in
        ["", "{", "{}", "[1]", "[{\"bm_name\": 1}]", "[{\"bm_name\": \"b\", \"benchmarks\": [{}]}]"]
    {
        let said = file(text).unwrap_err().to_string();
        assert!(said.contains("a.json: not a result file"), "{text}: {said}");
    }
    for text in ["[]", "[{\"bm_name\": \"b\", \"benchmarks\": []}]"] {
        let said = file(text).unwrap_err().to_string();
        assert!(said.ends_with("a.json: the file has no benchmarks"), "{text}: {said}");
    }
    let said = read(std::path::Path::new("/nowhere/a.json")).unwrap_err().to_string();
    assert!(said.starts_with("/nowhere/a.json: "), "{said}");
}
