//! Values over several devices, of which as few as possible are awake (Sprint-AEP, section III).
//!
//! A *primary* device is always active. An *idle* one sleeps until it must be used, and a primary
//! stands before it: writes gather in the primary's *buffer* until they are written to the idle
//! device in one go (*sync*), and what is read often is fetched in advance to the primary's *cache*
//! (*prefetch*).
//!
//! That part decides and does nothing: it is told of requests and says which devices to use. Who
//! calls it reads and writes, on modelled or real devices, and reads the clock. `ranges` orders
//! entries by how often they are used, `front` is what a primary has of one idle device and of all
//! of them, `tier` is the whole, and `activation` chooses the number of primaries. `dram` is a
//! battery-backed front before all devices, primaries too. `devices` are the real ones of a store,
//! and `drives` what lies behind them.

mod activation;
pub mod devices;
mod dram;
pub mod drives;
mod front;
mod ranges;
mod tier;

pub use activation::{ALPHA, Activation, BEHIND_MAX, Decision, Judged, PRESSED_ABOVE, Rates};
pub use dram::{Destage, Dram, DramCapacity, Missed};
pub use front::{Capacity, Fetched};
pub use tier::{DeviceId, Key, Prefetch, Request, Served, Settings, Synced, Tier};
