//! The volume of a written page in the trace: its name, its number, and the page's offset in it.
//!
//! Private pages of a process lie in volumes by their purpose, at their virtual addresses. Shared
//! pages lie in the volume of their file, at their place in the file, whichever process writes them
//! and wherever it has mapped them.

use std::collections::HashMap;

use super::maps::Area;

#[derive(Debug, PartialEq, Eq, Hash)]
enum Key {
    Own { pid: i32, purpose: String },
    Shared { device: (u32, u32), inode: u64 },
}

/// The volumes of a recording, whose number only grows.
#[derive(Debug, Default)]
pub struct Volumes {
    names: Vec<String>,
    numbers: HashMap<Key, u32>,
    processes: HashMap<i32, String>,
}

impl Volumes {
    /// Puts a name before those of a process's volumes, from now on.
    pub fn name_process(&mut self, pid: i32, name: String) {
        self.processes.insert(pid, name);
    }

    /// The names of the volumes, by number.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The volume of a process's mapping, and what to add to an address to have an offset in it.
    pub fn place(&mut self, pid: i32, area: &Area) -> (u32, u64) {
        let purpose = purpose(area);
        let prefix = self.processes.get(&pid).map(|name| format!("{name} ")).unwrap_or_default();
        let (key, name, shift) = if area.shared {
            let key = Key::Shared { device: area.device, inode: area.inode };
            (key, purpose, area.file_offset.wrapping_sub(area.start))
        } else {
            (Key::Own { pid, purpose: purpose.clone() }, format!("{prefix}{purpose}"), 0)
        };
        if let Some(number) = self.numbers.get(&key) {
            return (*number, shift);
        }
        // Files by one name: deleted and made anew, or of different file systems.
        let name = match &key {
            Key::Shared { device, inode } if self.names.contains(&name) => {
                format!("{name} ({:x}:{:x} inode {inode})", device.0, device.1)
            }
            _ => name,
        };
        let name = self.unique(name);
        let number = self.names.len() as u32;
        self.names.push(name);
        self.numbers.insert(key, number);
        (number, shift)
    }
}

impl Volumes {
    /// A name that no other volume has and that is not too long: readers know volumes by name.
    fn unique(&self, mut name: String) -> String {
        const NAME_BYTES: usize = 4000;
        let end = (0..=NAME_BYTES.min(name.len())).rev().find(|at| name.is_char_boundary(*at));
        name.truncate(end.unwrap_or(0));
        while self.names.contains(&name) {
            name.push('+');
        }
        name
    }
}

fn purpose(area: &Area) -> String {
    let name = area.name.as_str();
    match name {
        _ if area.shared => format!("shared {name}"),
        "[heap]" => "heap".to_owned(),
        "[stack]" => "stack".to_owned(),
        "" => "anonymous".to_owned(),
        // Given a name by `prctl`.
        _ if name.starts_with("[anon:") => "anonymous".to_owned(),
        _ => format!("data {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(start: u64, shared: bool, file_offset: u64, inode: u64, name: &str) -> Area {
        Area {
            start,
            end: start + 0x1000,
            writable: true,
            executable: false,
            shared,
            file_offset,
            device: (0, 1),
            inode,
            name: name.to_owned(),
        }
    }

    #[test]
    fn own_pages_keep_their_addresses_and_shared_ones_their_place_in_the_file() {
        let mut volumes = Volumes::default();
        volumes.name_process(2, "b[2]".to_owned());
        assert_eq!(volumes.place(1, &area(0x5000, false, 0, 0, "[heap]")), (0, 0));
        assert_eq!(volumes.place(2, &area(0x5000, false, 0, 0, "[heap]")), (1, 0));
        let (number, shift) = volumes.place(1, &area(0x7000, true, 0x2000, 9, "/f"));
        assert_eq!((number, 0x7010_u64.wrapping_add(shift)), (2, 0x2010));
        let (number, shift) = volumes.place(2, &area(0x1000, true, 0x2000, 9, "/f"));
        assert_eq!((number, 0x1010_u64.wrapping_add(shift)), (2, 0x2010));
        assert_eq!(volumes.place(1, &area(0x7000, true, 0, 10, "/f")).0, 3);
        assert_eq!(volumes.names(), ["heap", "b[2] heap", "shared /f", "shared /f (0:1 inode 10)"]);
    }
}
