//! Those who hold the memory of an opened directory, until everything is on the SSD.

use super::error::LinkError;
use super::link::Link;
use super::supervisor::{Supervisor, Watch};

/// The holders, or the guard, that keep the memory of an opened region. The region's owner closes
/// the region first; then it lets them go.
#[derive(Debug, Default)]
pub struct Holders {
    /// The holder or guard that was asked for. A thread replaces a holder that dies, and looks for
    /// a guard that is gone.
    watched: Option<Watch>,
    /// A holder that an earlier process left, where another one or none was asked for. It waits,
    /// and does not flush, as long as this link lives.
    found: Option<Link>,
}

impl Holders {
    /// Watches the holder that was asked for, and keeps the link to one that was found.
    ///
    /// # Errors
    /// The thread that watches cannot be started.
    pub fn watch(supervisor: Option<Supervisor>, found: Option<Link>) -> Result<Self, LinkError> {
        let watched = supervisor.map(Supervisor::watch).transpose()?;
        Ok(Self { watched, found })
    }

    /// Whether a holder that is alive has the memory, too.
    pub fn keep_the_memory(&self) -> bool {
        self.watched.as_ref().is_some_and(Watch::is_held)
            || self.found.as_ref().is_some_and(Link::is_live)
    }

    /// Tells the holders that everything is on the SSD, and returns when they have ended. A second
    /// call finds none.
    ///
    /// # Errors
    /// A holder did not end. What is on the SSD stays complete.
    pub fn let_go(&mut self) -> Result<(), LinkError> {
        let watched = self.watched.take().map_or(Ok(()), Watch::goodbye);
        let found = self.found.take().map_or(Ok(()), Link::goodbye);
        watched.and(found)
    }
}

#[cfg(test)]
mod tests {
    use super::super::socket::socket_pair;
    use super::*;

    #[test]
    fn a_found_holder_keeps_the_memory_until_it_dies() {
        let (ours, theirs) = socket_pair().unwrap();
        let holders = Holders { watched: None, found: Some(Link::over(ours)) };
        assert!(holders.keep_the_memory());
        drop(theirs);
        assert!(!holders.keep_the_memory());
    }
}
