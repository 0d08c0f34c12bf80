//! The errors in the file are the models' errors.

use super::super::reference::published::{cells, systems};
use super::*;

#[test]
fn the_errors_that_results_tell_are_those_of_the_models() {
    for name in systems() {
        let (system, cells) = (System::find(name).unwrap(), cells(name).unwrap());
        let found = fit(&system, &cells, ACCESSES);
        assert_eq!(fit_of(name), found, "{name}: cargo run --example fit_published -- {name}");
    }
}

/// The error over cells to which no model was fitted. The aim is a mean of 10 % and nine cells in
/// ten within 25 %; docs/media.md says which systems miss it, and why.
#[test]
fn held_out_cells_are_within_a_seventh_and_nine_in_ten_within_two_fifths() {
    for name in systems() {
        let FitError { mean, nine_in_ten, .. } = fit_of(name).unwrap().held_out;
        assert!(mean <= 0.14 && nine_in_ten <= 0.40, "{name}: {mean} {nine_in_ten}");
    }
}
