//! Runs models in all their schedules, and proves that they find what is planted.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use loom::thread::JoinHandle;

use crate::planted::{self, Fences, Line};

/// Most steps of one schedule: more is a loop that no other thread ends.
const STEPS_MAX: usize = 20_000;

/// One model: threads that use the checked code, and what must hold.
#[derive(Debug, Clone, Copy)]
pub struct Model {
    /// What must hold, as a name.
    pub name: &'static str,
    /// Begins the threads, joins them, and asserts.
    pub run: fn(),
    /// Most times that a thread is interrupted in one schedule, where it could have gone on.
    pub preemptions: usize,
}

/// A line whose ordering is weakened, and the model that must find it.
#[derive(Debug, Clone, Copy)]
pub struct Planted {
    /// The file of the line, from the root of the repository.
    pub file: &'static str,
    /// A text that only this line of the file has.
    pub text: &'static str,
    /// The name of the model.
    pub found_by: &'static str,
}

/// What is checked together.
#[derive(Debug, Clone, Copy)]
pub struct Subject {
    /// All models.
    pub models: &'static [Model],
    /// The lines that are weakened.
    pub planted: &'static [Planted],
}

/// Whether more is explored than there is time for in every run of the tests.
pub fn is_long() -> bool {
    std::env::var_os("PERDURA_MODEL_LONG").is_some()
}

/// Begins a thread of a model. Either it or its maker goes on first, which loom does not find out
/// by itself where a thread looks at a word before it changes the word.
pub(crate) fn spawn<T: 'static>(run: impl FnOnce() -> T + 'static) -> JoinHandle<T> {
    let begun = Arc::new(AtomicUsize::new(0));
    let other = Arc::clone(&begun);
    let thread = loom::thread::spawn(move || {
        other.fetch_add(1, Relaxed);
        run()
    });
    begun.fetch_add(1, Relaxed);
    thread
}

impl Subject {
    /// Asserts that every model holds, and that each planted ordering is found.
    ///
    /// # Panics
    /// A model fails, or a planted ordering is not found.
    pub fn prove(&self) {
        let mut strong = BTreeSet::new();
        for model in self.models {
            let began = std::time::Instant::now();
            if let Err(why) = model.fails_with(None) {
                panic!("{}: {why}", model.name);
            }
            println!("{}: {:.2} s", model.name, began.elapsed().as_secs_f64());
            strong.extend(planted::take_strong());
        }
        for planted in self.planted {
            let line = planted::line_of(planted.file, planted.text);
            let model = self.models.iter().find(|model| model.name == planted.found_by);
            let model = model.unwrap_or_else(|| panic!("no model {}", planted.found_by));
            match model.fails_with(Some(line)) {
                Err(why) => println!("{} | {} | {why}", planted.text, model.name),
                Ok(()) => panic!("{}: relaxed, and {} holds", planted.text, model.name),
            }
        }
        if is_long() {
            strong.iter().for_each(|line| self.weaken(line));
        }
    }

    /// Prints which model finds the line weakened, if any.
    fn weaken(&self, line: &Line) {
        let code = planted::code(line.file);
        let text = code.lines().nth(line.number as usize - 1).unwrap_or_default().trim();
        let finds = |model: &&Model| model.fails_with(Some(line.clone())).is_err();
        let found_by = self.models.iter().find(finds).map_or("nothing", |model| model.name);
        println!("{}:{}: {text} | found by {found_by}", line.file, line.number);
    }
}

impl Model {
    /// Runs the model in all schedules, with the line weakened. `Err` says how it failed.
    fn fails_with(&self, weakened: Option<Line>) -> Result<(), String> {
        for fences in [Fences::AfterStores, Fences::BeforeLoads] {
            planted::set(weakened.clone(), fences);
            let mut explored = loom::model::Builder::new();
            explored.max_branches = STEPS_MAX;
            explored.preemption_bound = Some(self.preemptions + usize::from(is_long()));
            let run = self.run;
            let explored = catch_unwind(AssertUnwindSafe(|| explored.check(run)));
            planted::set(None, Fences::AfterStores);
            if let Err(panic) = explored {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).into()));
                let text = text.unwrap_or_else(|| "a panic without a text".into());
                return Err(text.lines().next().unwrap_or_default().to_owned());
            }
        }
        Ok(())
    }
}
