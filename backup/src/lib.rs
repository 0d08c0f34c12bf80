//! Backup that never stops: copies of an image follow its commits.
//!
//! A [`Shipper`] reads the image as any other program could, and puts what a [`Vault`] does not
//! have yet: pieces of segments, then a restore point that names them. [`restore()`] makes an image
//! of a point, byte for byte. Writers never wait for any of this.

#![warn(unreachable_pub)]

mod error;
mod fate;
mod fetch;
mod follower;
mod names;
mod object;
mod point;
mod points;
mod restore;
mod retention;
mod ship;
mod urls;
pub mod vault;
mod warm;
mod writer;

pub use error::BackupError;
pub use fate::shared_fate;
pub use follower::{Figures, Follower, Options, Progress};
pub use object::Seal;
pub use perdura_media::time;
pub use points::{PointName, PointSizes, choose, list};
pub use restore::{UNFINISHED_SUFFIX, restore, restore_to, verify};
pub use retention::{Deleted, Retention};
pub use ship::{Newest, Pass, Planted, Shipper, Source};
pub use urls::without_password;
pub use vault::{Vault, VaultError};
pub use warm::WarmCopy;
pub use writer::{Owner, Writer};
