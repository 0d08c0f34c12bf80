//! All simulated files as one value: names, contents, and the planned power cut or failure.

use std::path::Path;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::io::Errno;

use super::tree::{Node, Tree};
use crate::device::{BLOCK_BYTES, DeviceError};
use crate::sim::state::State;
use crate::sys::Source;

pub(super) struct Disk {
    tree: Tree,
    /// Contents of all files that ever had a name; a name says which of them it means.
    contents: Vec<State>,
    /// Whether `fallocate` is supported. Some file systems have no such call.
    can_reserve: bool,
    pub(super) ops: u64,
    pub(super) cut_after: Option<u64>,
    pub(super) fail_at: Option<u64>,
    pub(super) off: bool,
    pub(super) random: Xoshiro256PlusPlus,
}

impl Disk {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        Self {
            tree: Tree::new(),
            contents: Vec::new(),
            can_reserve: random.random_bool(0.75),
            ops: 0,
            cut_after: None,
            fail_at: None,
            off: false,
            random,
        }
    }

    /// The files after a power cut now, powered on again.
    pub(super) fn survivors(&self, seed: u64) -> Self {
        let mut new = Self::new(seed);
        new.tree = self.tree.survivors(&mut new.random);
        let contents = self.contents.iter();
        new.contents = contents.map(|state| state.survivors(new.random.random())).collect();
        new
    }

    pub(super) fn find(&self, path: &Path) -> Result<Option<Node>, Errno> {
        self.powered()?;
        Ok(self.tree.get(path))
    }

    pub(super) fn create(&mut self, path: &Path) -> Result<Node, Errno> {
        self.assert_folder_above(path)?;
        self.start_op()?;
        let node = Node::File(self.contents.len());
        self.contents.push(State::new(0, self.ops));
        self.tree.add(path, node);
        Ok(node)
    }

    pub(super) fn mkdir(&mut self, path: &Path) -> Result<(), Errno> {
        self.assert_folder_above(path)?;
        if self.tree.get(path).is_some() {
            return Err(Errno::EXIST);
        }
        self.start_op()?;
        self.tree.add(path, Node::Folder);
        Ok(())
    }

    /// Renames within one folder. Another rename would be a change of two folders, of which a power
    /// cut may leave a half; no code here needs one.
    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> Result<(), Errno> {
        if from.parent() != to.parent() {
            return Err(Errno::XDEV);
        }
        let node = self.find(from)?.ok_or(Errno::NOENT)?;
        self.start_op()?;
        self.tree.rename(from, to, node);
        Ok(())
    }

    pub(super) fn unlink(&mut self, path: &Path) -> Result<(), Errno> {
        match self.find(path)? {
            None => return Err(Errno::NOENT),
            Some(Node::Folder) => return Err(Errno::ISDIR),
            Some(Node::File(_)) => {}
        }
        self.start_op()?;
        self.tree.remove(path);
        Ok(())
    }

    pub(super) fn len_bytes(&self, file: usize) -> Result<u64, Errno> {
        self.powered()?;
        Ok(self.contents[file].capacity_bytes)
    }

    pub(super) fn fallocate(&mut self, file: usize, len_bytes: u64) -> Result<(), Errno> {
        self.powered()?;
        if !self.can_reserve {
            return Err(Errno::OPNOTSUPP);
        }
        self.interrupt()?;
        self.start_op()?;
        let state = &mut self.contents[file];
        state.capacity_bytes = state.capacity_bytes.max(len_bytes);
        Ok(())
    }

    pub(super) fn read(
        &mut self,
        file: usize,
        buf: &mut [u8],
        offset_bytes: u64,
    ) -> Result<usize, Errno> {
        self.powered()?;
        self.interrupt()?;
        let left = self.contents[file].capacity_bytes.saturating_sub(offset_bytes);
        let len = self.draw_taken(buf.len().min(usize::try_from(left).unwrap_or(usize::MAX)));
        self.contents[file].current.read(offset_bytes, &mut buf[..len]);
        Ok(len)
    }

    pub(super) fn write(
        &mut self,
        file: usize,
        source: Source<'_>,
        offset_bytes: u64,
        flags: i32,
    ) -> Result<usize, Errno> {
        if flags & !libc::RWF_DSYNC != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        self.interrupt()?;
        let (number, taken) = self.submit(file, offset_bytes, source)?;
        self.complete(file, number)?;
        if flags & libc::RWF_DSYNC != 0 {
            self.start_op()?;
            self.contents[file].flush_range(offset_bytes, taken as u64).map_err(io)?;
        }
        Ok(taken)
    }

    /// Accepts a write, of which perhaps only the first part is taken, in flight. Returns its
    /// number and the bytes taken.
    pub(super) fn submit(
        &mut self,
        file: usize,
        offset_bytes: u64,
        source: Source<'_>,
    ) -> Result<(u64, usize), Errno> {
        self.powered()?;
        let mut bytes = source.to_vec();
        bytes.truncate(self.draw_taken(bytes.len()));
        let (taken, state) = (bytes.len(), &mut self.contents[file]);
        state.capacity_bytes = state.capacity_bytes.max(offset_bytes + taken as u64);
        Ok((state.submit(offset_bytes, bytes), taken))
    }

    /// The durable operation in which a write in flight has reached the page cache. A write that is
    /// not completed remains in flight: a sync does not cover it, and it may survive.
    pub(super) fn complete(&mut self, file: usize, number: u64) -> Result<(), Errno> {
        self.start_op()?;
        self.contents[file].complete(number).map_err(io)
    }

    /// The bytes of a write in flight, as they were at submission.
    pub(super) fn submitted_bytes(&self, file: usize, number: u64) -> &[u8] {
        self.contents[file].submitted_bytes(number)
    }

    pub(super) fn sync_file(&mut self, file: usize) -> Result<(), Errno> {
        self.interrupt()?;
        self.start_op()?;
        self.contents[file].flush().map_err(io)
    }

    pub(super) fn sync_folder(&mut self, path: &Path) -> Result<(), Errno> {
        self.interrupt()?;
        self.start_op()?;
        self.tree.sync(path);
        Ok(())
    }

    fn assert_folder_above(&self, path: &Path) -> Result<(), Errno> {
        match path.parent().map(|above| self.find(above)).transpose()?.flatten() {
            Some(Node::Folder) => Ok(()),
            Some(Node::File(_)) => Err(Errno::NOTDIR),
            None => Err(Errno::NOENT),
        }
    }

    fn powered(&self) -> Result<(), Errno> {
        if self.off { Err(Errno::IO) } else { Ok(()) }
    }

    /// Counts a durable operation; cuts the power, or fails, if that is planned for it.
    fn start_op(&mut self) -> Result<(), Errno> {
        if self.cut_after.is_some_and(|ops| self.ops >= ops) {
            self.off = true;
        }
        self.powered()?;
        self.ops += 1;
        if self.fail_at == Some(self.ops - 1) { Err(Errno::IO) } else { Ok(()) }
    }

    /// Interrupts one call in sixteen.
    fn interrupt(&mut self) -> Result<(), Errno> {
        if self.random.random_ratio(1, 16) { Err(Errno::INTR) } else { Ok(()) }
    }

    /// The bytes that one call takes: now and then only some of the blocks.
    fn draw_taken(&mut self, len: usize) -> usize {
        let blocks = len / BLOCK_BYTES as usize;
        if blocks < 2 || self.random.random_ratio(3, 4) {
            return len;
        }
        self.random.random_range(1..blocks) * BLOCK_BYTES as usize
    }
}

/// The contents have power and no failures of their own, so this stands for none of them.
fn io(_: DeviceError) -> Errno {
    Errno::IO
}
