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
    /// Whether there are elements left that the command is to take.
    pub is_more: bool,
}

/// Elements of the first step after a whole command was refused.
const FIRST_STEP: u64 = 1 << 16;

impl Steps {
    /// All in one step.
    pub fn whole() -> Self {
        Self { most: u64::MAX, done: 0, taken: Vec::new(), now: Step::default() }
    }

    /// Keeps what the present step has done, which has committed. Returns whether there is more to
    /// do.
    pub fn keep(&mut self) -> bool {
        let Step { done, mut taken, is_more } = std::mem::take(&mut self.now);
        self.done += done;
        self.taken.append(&mut taken);
        is_more
    }

    /// Makes the steps smaller. Returns false if they cannot be.
    pub fn shrink(&mut self) -> bool {
        let smaller = (self.most / 2).min(FIRST_STEP);
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
    }

    #[test]
    fn what_a_step_has_done_counts_once_it_is_kept() {
        let mut steps = Steps::whole();
        steps.now = Step { done: 2, taken: vec![b"a".to_vec(), b"b".to_vec()], is_more: true };
        assert!(steps.keep());
        steps.now = Step { done: 1, taken: vec![b"c".to_vec()], is_more: false };
        assert!(!steps.keep());
        assert_eq!((steps.done, steps.taken.concat()), (3, b"abc".to_vec()));
    }
}
