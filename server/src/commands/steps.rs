//! Commands that change more than the budget has room for, in steps.
//!
//! Such a command is tried as one transaction first, and almost always that is what it is. If the
//! store refuses it because it would dirty more than the whole budget at once, it goes on in steps:
//! each is a transaction, so a crash leaves whole steps, and other clients see the value between
//! them. Inside EXEC and in scripts there are no steps, and the command is refused.

/// What a command in steps has done, and what it may do.
#[derive(Debug)]
pub(crate) struct Steps {
    /// Most elements that the present step may take.
    pub most: u64,
    /// Elements that the steps before have taken.
    pub done: u64,
    /// These elements, of a command that replies with them.
    pub taken: Vec<Vec<u8>>,
    /// Elements that the steps before have counted, of a command that replies with their number.
    pub counted: i64,
    /// The step in progress, which may be rolled back.
    pub now: Step,
}

/// One step.
#[derive(Debug, Default)]
pub(crate) struct Step {
    /// Elements that the step has taken.
    pub done: u64,
    /// These elements, of a command that replies with them.
    pub taken: Vec<Vec<u8>>,
    /// Elements that the step has counted.
    pub counted: i64,
    /// Whether the reply goes on behind that of the step.
    pub is_answered: bool,
    /// Whether there are elements left that the command is to take.
    pub is_more: bool,
}

/// Elements of the first step after a whole command was refused.
const FIRST_STEP: u64 = 1 << 16;

impl Steps {
    /// All in one step.
    pub fn whole() -> Self {
        let (most, done, taken, counted) = (u64::MAX, 0, Vec::new(), 0);
        Self { most, done, taken, counted, now: Step::default() }
    }

    /// Keeps what the present step has done, which has committed.
    pub fn keep(&mut self) {
        let Step { done, mut taken, counted, .. } = std::mem::take(&mut self.now);
        self.done += done;
        self.counted += counted;
        self.taken.append(&mut taken);
    }

    /// Counts elements in the present step. Returns the number so far.
    pub fn count(&mut self, elements: i64) -> i64 {
        self.now.counted += elements;
        self.counted + self.now.counted
    }

    /// Makes the steps smaller, after one that did not fit. Returns false if they cannot be.
    pub fn shrink(&mut self) -> bool {
        let tried = match self.now.done {
            0 => self.most,
            done => done.min(self.most),
        };
        let smaller = (tried / 2).min(FIRST_STEP);
        if smaller > 0 {
            self.most = smaller;
        }
        smaller > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_become_smaller_down_to_one_element() {
        let mut steps = Steps::whole();
        let mut sizes = vec![steps.most];
        while steps.shrink() {
            sizes.push(steps.most);
        }
        assert_eq!((sizes[0], sizes[1], sizes.len()), (u64::MAX, FIRST_STEP, 18));
        assert_eq!(sizes.last(), Some(&1));
        let mut steps = Steps::whole();
        steps.now.done = 1_001;
        assert!(steps.shrink());
        assert_eq!(steps.most, 500);
    }

    #[test]
    fn what_a_step_has_done_counts_once_it_is_kept() {
        let mut steps = Steps::whole();
        let taken = vec![b"a".to_vec(), b"b".to_vec()];
        steps.now = Step { done: 2, taken, ..Step::default() };
        assert_eq!(steps.count(5), 5);
        steps.keep();
        steps.now = Step { done: 1, taken: vec![b"c".to_vec()], ..Step::default() };
        assert_eq!(steps.count(2), 7);
        steps.keep();
        assert_eq!((steps.done, steps.taken.concat(), steps.counted), (3, b"abc".to_vec(), 7));
    }
}
