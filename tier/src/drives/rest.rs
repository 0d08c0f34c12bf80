//! When a drive is told to sleep, and when it is put back.

use perdura_media::drives::Requests;

/// What is to be done with a drive after a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Nothing.
    Nothing,
    /// It had no request for long enough: tell it to sleep.
    Sleep,
    /// It sleeps in a state that does requests, slowly, and is busy: put it back into this one.
    Restore(u8),
}

/// What is known of one drive's rest.
#[derive(Debug, Default)]
pub(super) struct Rest {
    seen: Option<Requests>,
    /// Since when there was no request, nanoseconds.
    quiet_since_ns: u64,
    standing: Standing,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Standing {
    #[default]
    Awake,
    Asleep {
        restores: Option<u8>,
        was: Option<u8>,
    },
    /// It refused; tried again after it was busy.
    Refused,
}

impl Rest {
    /// Notes what the kernel has counted, whoever asked for it. `after_ns`: how long a drive must
    /// have been quiet to be told to sleep; `None`: it is left alone.
    pub fn look(&mut self, now_ns: u64, requests: Requests, after_ns: Option<u64>) -> Order {
        let is_quiet = requests.under_way == 0 && self.seen == Some(requests);
        self.seen = Some(requests);
        if !is_quiet {
            self.quiet_since_ns = now_ns;
            let before = std::mem::take(&mut self.standing);
            return match before {
                Standing::Asleep { restores: Some(number), .. } => Order::Restore(number),
                _ => Order::Nothing,
            };
        }
        let is_due = after_ns.is_some_and(|ns| now_ns.saturating_sub(self.quiet_since_ns) >= ns);
        match self.standing {
            Standing::Awake if is_due => Order::Sleep,
            _ => Order::Nothing,
        }
    }

    /// Notes that the drive sleeps. It goes back to `restores` when it is busy, and to `was` at the
    /// end.
    pub fn slept(&mut self, restores: Option<u8>, was: Option<u8>) {
        self.standing = Standing::Asleep { restores, was };
    }

    /// Notes that the drive did not do what it was told.
    pub fn refused(&mut self) {
        self.standing = Standing::Refused;
    }

    /// Whether the drive was told to sleep and had no request since.
    pub fn is_asleep(&self) -> bool {
        matches!(self.standing, Standing::Asleep { .. })
    }

    /// Whether requests are slow until somebody puts the drive back.
    pub fn is_slow(&self) -> bool {
        matches!(self.standing, Standing::Asleep { restores: Some(_), .. })
    }

    /// The state to put the drive back into, because nobody keeps it any more.
    pub fn end(&mut self) -> Option<u8> {
        match std::mem::take(&mut self.standing) {
            Standing::Asleep { was, .. } => was,
            Standing::Awake | Standing::Refused => None,
        }
    }
}
