//! A program whose memory a guard keeps ([`Options::guard`](crate::Options::guard)): two threads of
//! this library do what the guard says, without the program.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use perdura_guard::{GuardEar, Guarded, Keeper, Watch, Writers};
use perdura_media::RealClock;
use perdura_region::Region;
use perdura_region::holder::Supervisor;
use perdura_warning::{Demand, Reading, Response, Warnings};

use crate::closing::Closing;
use crate::error::OpenError;

/// A guard's words, before anybody listens.
pub(crate) struct Heard {
    warnings: Warnings,
    ear: GuardEar,
}

impl Heard {
    /// Listens to the guard at `socket`, which need not be there yet.
    pub fn new(socket: PathBuf) -> Result<Self, OpenError> {
        let (guarded, ear) = Guarded::new(socket)?;
        let mut warnings = Warnings::default();
        warnings.add(Box::new(guarded));
        Ok(Self { warnings, ear })
    }

    /// Lets the words of a region's guard arrive, before its link is watched.
    pub fn listen(
        self,
        supervisor: &mut Supervisor,
        keeper: Keeper,
        settle: Duration,
    ) -> Following {
        let (orders, voice) = (self.ear.orders(), supervisor.voice());
        supervisor.tell(Box::new(self.ear));
        Following { warnings: self.warnings, orders, voice, keeper, settle }
    }
}

/// A guard's words, which nobody follows yet.
pub(crate) struct Following {
    warnings: Warnings,
    orders: Arc<perdura_guard::Orders>,
    voice: perdura_region::holder::Voice,
    keeper: Keeper,
    settle: Duration,
}

/// Follows the guard, if there is one, as long as `owner` lives: its share of a battery is the most
/// that may be dirty, changes wait while the power is low, and at the end everything is closed.
pub(crate) fn follow<T: HasRegion>(
    following: Option<Following>,
    owner: &Arc<T>,
    closing: &Arc<Closing>,
) -> Result<(), OpenError> {
    let Some(Following { warnings, orders, voice, keeper, settle }) = following else {
        return Ok(());
    };
    let watch = Watch {
        warnings,
        response: Response::new(closing.warning(), None).settling(settle),
        clock: Arc::new(RealClock),
        writers: Arc::new(Changes(Arc::downgrade(owner))),
        flush_threads: closing.threads(),
        orders,
        voice,
    };
    let (kept, closed) = (Arc::downgrade(owner), Arc::downgrade(owner));
    let closing = Arc::clone(closing);
    let end = move |warning: &Reading| {
        let Some(owner) = closed.upgrade() else { return };
        match closing.close(owner.region()) {
            Ok(flushed) => tracing::warn!(%warning, ?flushed, "everything is on the SSD"),
            Err(error) => tracing::error!(%warning, %error, "not everything is on the SSD"),
        }
    };
    watch
        .start(keeper, move |act| kept.upgrade().map(|owner| act(owner.region())), end)
        .map_err(OpenError::Thread)
}

/// A store or a region, whose region a guard keeps.
pub(crate) trait HasRegion: Send + Sync + 'static {
    fn region(&self) -> &Region;
}

impl HasRegion for Region {
    fn region(&self) -> &Region {
        self
    }
}

impl HasRegion for perdura_store::Store {
    fn region(&self) -> &Region {
        self.region()
    }
}

/// The writers of a guarded region. A plain store cannot be refused, so all changes wait while the
/// power is low.
struct Changes<T>(Weak<T>);

impl<T: HasRegion> Writers for Changes<T> {
    fn told(&self, _: &Reading, demand: Demand) {
        if let Some(owner) = self.0.upgrade() {
            owner.region().hold_writers(demand == Demand::Clean);
        }
    }

    fn met(&self, _: Demand) {}

    /// Always: changes wait once a checkpoint has begun.
    fn have_ended(&self) -> bool {
        true
    }
}
