//! The flush time of one battery, as pieces that can be handed on but not copied.
//!
//! A [`Piece`] comes from [`Pool::take`], which has no more than what is free, so all pieces
//! together are never longer than the pool. There are two exceptions, and both leave the pool *in
//! debt*: the pool becomes smaller than what is out, or somebody arrives who has time already.
//! While there is debt nothing is free, and what comes back pays it first.

/// Flush time that belongs to somebody, microseconds. It is neither copied nor made up.
#[derive(Debug, Default)]
#[must_use = "time that is dropped is lost to the pool"]
pub(super) struct Piece(u64);

impl Piece {
    pub(super) fn us(&self) -> u64 {
        self.0
    }

    /// Adds another piece to this one.
    pub(super) fn join(&mut self, other: Self) {
        self.0 += other.0;
    }

    /// Cuts off what is beyond `kept_us`.
    pub(super) fn cut_to(&mut self, kept_us: u64) -> Self {
        let rest = self.0.saturating_sub(kept_us);
        self.0 -= rest;
        Self(rest)
    }
}

/// The flush time that all share.
#[derive(Debug)]
pub(super) struct Pool {
    total_us: u64,
    free: Piece,
    /// What is out beyond the total.
    debt_us: u64,
}

impl Pool {
    pub(super) fn new(total_us: u64) -> Self {
        Self { total_us, free: Piece(total_us), debt_us: 0 }
    }

    pub(super) fn total_us(&self) -> u64 {
        self.total_us
    }

    pub(super) fn free_us(&self) -> u64 {
        self.free.0
    }

    pub(super) fn debt_us(&self) -> u64 {
        self.debt_us
    }

    /// Takes `wanted_us`, or as much as is free.
    pub(super) fn take(&mut self, wanted_us: u64) -> Piece {
        let left_us = self.free.0.saturating_sub(wanted_us);
        self.free.cut_to(left_us)
    }

    /// The time of somebody who has it already: what is not free becomes debt.
    pub(super) fn owe(&mut self, had_us: u64) -> Piece {
        let mut piece = self.take(had_us);
        let missing_us = had_us - piece.0;
        self.debt_us += missing_us;
        piece.0 += missing_us;
        piece
    }

    /// Takes a piece back.
    pub(super) fn put(&mut self, mut piece: Piece) {
        let paid_us = piece.0.min(self.debt_us);
        self.debt_us -= paid_us;
        piece.0 -= paid_us;
        self.free.join(piece);
    }

    /// Makes the pool longer or shorter.
    pub(super) fn resize(&mut self, total_us: u64) {
        if total_us < self.total_us {
            let less_us = self.total_us - total_us;
            self.debt_us += less_us - self.take(less_us).0;
        } else {
            self.put(Piece(total_us - self.total_us));
        }
        self.total_us = total_us;
    }

    /// Panics unless the books are right for pieces of `out_us` in all.
    pub(super) fn assert_right(&self, out_us: u64) {
        let (total_us, free_us, debt_us) = (self.total_us, self.free.0, self.debt_us);
        assert!(
            out_us + free_us == total_us + debt_us && (free_us == 0 || debt_us == 0),
            "flush time was made up or lost: {out_us} us are out and {free_us} us are free, of \
             {total_us} us and {debt_us} us of debt"
        );
    }
}
