//! Tests of the image's parts through a region: prezeroing, checkpoints, compaction, compression.

mod beside;
mod checkpoint;
mod compact;
mod hottest_first;
mod notified;
mod prezero;
mod schedules;
mod seal;
