//! A store for tests: on a simulated device unless told otherwise.

use std::sync::Arc;

use perdura_media::device::Device;
use perdura_media::sim::SimDevice;
use perdura_media::{Clock, RealClock};
use perdura_region::{Config, Planted, Region};
use perdura_store::{Heap, Store, StoreOptions};

/// An open store and its clock.
pub struct Opened {
    pub store: Arc<Store>,
    pub clock: Arc<dyn Clock>,
}

/// Makes a store of 64 MiB with a budget of 16 MiB.
pub fn open() -> Opened {
    open_on(Arc::new(SimDevice::new(0, 1)), true)
}

/// Makes a store of 64 MiB with this budget.
pub fn open_with_budget(budget_bytes: u64) -> Opened {
    let clock: Arc<dyn Clock> = Arc::new(RealClock);
    let settings = Config { lanes: Some(3), ..Config::new(64 << 20, budget_bytes) };
    let region = Region::open(Arc::new(SimDevice::new(0, 1)), Arc::clone(&clock), settings);
    let heap = Heap::open(region.unwrap()).unwrap();
    let store = Store::open(heap, Arc::clone(&clock), StoreOptions::default()).unwrap();
    Opened { store: Arc::new(store), clock }
}

/// Opens the store on `device`, or makes it if the device is empty. Without the cleaner's thread,
/// nothing is written unless a test asks for it.
pub fn open_on(device: Arc<dyn Device>, thread: bool) -> Opened {
    open_planted(device, thread, Planted::None)
}

/// Opens as [`open_on`] does, with a planted bug.
pub fn open_planted(device: Arc<dyn Device>, thread: bool, planted: Planted) -> Opened {
    let clock: Arc<dyn Clock> = Arc::new(RealClock);
    let config = Config { thread, planted, lanes: Some(5), ..Config::new(64 << 20, 16 << 20) };
    let region = Region::open(device, Arc::clone(&clock), config).unwrap();
    let heap = Heap::open(region).unwrap();
    let store = Store::open(heap, Arc::clone(&clock), StoreOptions::default()).unwrap();
    Opened { store: Arc::new(store), clock }
}

/// Opens the memory of a store whose process has been killed, as a holder keeps it.
pub fn attach(store: Arc<Store>, device: Arc<dyn Device>) -> Opened {
    let (memory, ledger) = store.region().fds();
    let fds = (memory.try_clone_to_owned().unwrap(), ledger.try_clone_to_owned().unwrap());
    drop(store);
    let clock: Arc<dyn Clock> = Arc::new(RealClock);
    let config = Config { thread: false, lanes: Some(5), ..Config::new(64 << 20, 16 << 20) };
    let region = Region::attach(fds.0, fds.1, device, Arc::clone(&clock), config).unwrap();
    let heap = Heap::open(region).unwrap();
    let store = Store::open(heap, Arc::clone(&clock), StoreOptions::default()).unwrap();
    Opened { store: Arc::new(store), clock }
}
