//! The inputs that fuzzing has kept, in every run of the tests.

#[path = "../../fuzz/oracles/kept.rs"]
mod kept;
#[path = "../../fuzz/oracles/rdb.rs"]
mod oracle;

#[test]
fn what_fuzzing_has_kept_breaks_no_promise() {
    kept::each("rdb", oracle::check);
}
