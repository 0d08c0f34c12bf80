//! The error of a model against published figures.

use serde::{Deserialize, Serialize};

/// The error of a model over some cells.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FitError {
    /// Number of cells.
    pub cells: usize,
    /// Geometric mean of the factors by which figures are too high or too low, less 1: 0.1 is 10 %.
    pub mean: f64,
    /// Factor that nine cells in ten do not exceed, less 1.
    pub nine_in_ten: f64,
    /// Factor of the worst cell, less 1.
    pub worst: f64,
}

/// The error of cells, given the logarithms of modelled over published figures; none if there are
/// no cells.
pub fn error_of(logarithms: &[f64]) -> Option<FitError> {
    let mut sizes: Vec<f64> = logarithms.iter().map(|found| found.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let cells = sizes.len();
    let worst = *sizes.last()?;
    let nine_in_ten = sizes[(cells * 9).div_ceil(10) - 1];
    let mean = sizes.iter().sum::<f64>() / cells as f64;
    // Rounded to a thousandth, as in the files.
    let less_one = |logarithm: f64| (logarithm.exp_m1() * 1e3).round() / 1e3;
    Some(FitError {
        cells,
        mean: less_one(mean),
        nine_in_ten: less_one(nine_in_ten),
        worst: less_one(worst),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_high_and_too_low_count_alike() {
        let two = 2.0_f64.ln();
        let found = error_of(&[two, -two, 0.0, 0.0]).unwrap();
        assert_eq!((found.cells, found.mean, found.worst), (4, 0.414, 1.0));
        assert_eq!(error_of(&[]), None);
    }

    #[test]
    fn nine_in_ten_leave_the_worst_one_out() {
        let mut logarithms = vec![1.1_f64.ln(); 9];
        logarithms.push(3.0_f64.ln());
        assert_eq!(error_of(&logarithms).unwrap().nine_in_ten, 0.1);
    }
}
