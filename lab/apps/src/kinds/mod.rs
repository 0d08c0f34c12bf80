//! The applications.
//!
//! Names of inputs begin with `in-`, of results with `out-`. Results are compared between ways, and
//! removed before the next run.

mod faces;
mod mails;
mod pictures;
mod snappy;
mod table;
mod video;
mod words;

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::access::Access;
use crate::error::Result;

pub use faces::Faces;
pub use mails::Mails;
pub use pictures::Pictures;
pub use snappy::Snappy;
pub use table::Table;
pub use video::Video;
pub use words::Words;

/// The generator of all inputs.
pub type Random = Xoshiro256PlusPlus;

/// Data with their name.
pub type Named = (String, Vec<u8>);

/// Beginning of each input's name.
pub const INPUT: &str = "in-";
/// Beginning of each result's name.
pub const RESULT: &str = "out-";

/// A program of the same kind as one of the paper's applications.
pub trait App {
    /// The application's name on the command line.
    fn name(&self) -> &'static str;
    /// A text for people: the work and its amount.
    fn about(&self) -> String;
    /// Makes the inputs from the seed.
    ///
    /// # Errors
    /// An encoder refuses.
    fn inputs(&self) -> Result<Vec<Named>>;
    /// Reads the inputs, does the work, and puts the results.
    ///
    /// # Errors
    /// The way fails, or an input is malformed.
    fn run(&self, access: &dyn Access) -> Result<()>;
}

/// Amount of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// A second for all applications together, for tests.
    Small,
    /// About a second for each way of each application.
    Medium,
    /// The paper's counts: minutes for each application, gigabytes.
    Paper,
}

/// All applications.
pub fn all(size: Size, seed: u64) -> Vec<Box<dyn App>> {
    vec![
        Box::new(Table::new(size, seed)),
        Box::new(Pictures::new(size, seed)),
        Box::new(Faces::new(size, seed)),
        Box::new(Snappy::new(size, seed)),
        Box::new(Mails::new(size, seed)),
        Box::new(Video::new(size, seed)),
        Box::new(Words::new(size, seed)),
    ]
}

/// The random stream of one input of an application. An input does not depend on how many there
/// are.
fn random(seed: u64, app: &str, number: usize) -> Random {
    let app = xxhash_rust::xxh3::xxh3_64_with_seed(app.as_bytes(), seed);
    Random::seed_from_u64(app.wrapping_add((number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::ways::Dram;

    /// Runs an application over plain memory.
    pub fn run_in_memory(app: &dyn App) -> Dram {
        let access = Dram::default();
        for (name, bytes) in app.inputs().unwrap() {
            let mut output = access.put(&name, bytes.len()).unwrap();
            output.write(&bytes).unwrap();
            output.finish().unwrap();
        }
        app.run(&access).unwrap();
        access
    }

    /// Reads a result of an application.
    pub fn result(access: &dyn Access, name: &str) -> Vec<u8> {
        access.get(name).unwrap().whole(usize::MAX).unwrap().to_vec()
    }

    #[test]
    fn inputs_depend_on_the_seed_alone() {
        for (app, again) in all(Size::Small, 3).iter().zip(all(Size::Small, 3)) {
            assert!(app.inputs().unwrap() == again.inputs().unwrap(), "{} of seed 3", app.name());
        }
    }
}
