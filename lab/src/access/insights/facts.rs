//! Facts about the machine's memory: modules, power limit, the prefetchers' switch. Many are shown
//! to root only, or not at all; then the reason is kept for the insight that lacks the fact.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// Facts about the machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// Memory modules that are plugged in.
    pub modules: Told<Vec<Module>>,
    /// Power limit of the memory.
    pub memory_limit: Told<PowerLimit>,
    /// Whether the prefetchers can be switched, by Intel's model-specific register 0x1a4.
    pub prefetch_switch: Told<String>,
    /// Size of the last-level cache.
    pub cache_bytes: Option<u64>,
}

/// A fact, or the reason why it is unknown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Told<T> {
    /// The fact.
    Known(T),
    /// The reason.
    NotTold(String),
}

/// A memory module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// Capacity of the module.
    pub bytes: u64,
    /// Configured speed, million transfers a second, which may be less than the module's own; 0:
    /// unknown.
    pub configured_mega_transfers_per_s: u64,
}

/// The limit of the power that memory may draw.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PowerLimit {
    /// Limit of all zones together, watts.
    pub watts: f64,
    /// Number of zones: one for each package.
    pub zones: usize,
}

const DMI: &str = "sys/firmware/dmi/tables/DMI";
const POWERCAP: &str = "sys/class/powercap";
const MSR: &str = "dev/cpu/0/msr";
const CACHES: &str = "sys/devices/system/cpu/cpu0/cache";

impl Facts {
    /// Reads the facts of the machine whose root folder this is.
    pub fn of(root: &Path) -> Self {
        Self {
            modules: modules(&root.join(DMI)),
            memory_limit: memory_limit(&root.join(POWERCAP)),
            prefetch_switch: prefetch_switch(&root.join(MSR)),
            cache_bytes: last_cache_bytes(&root.join(CACHES)),
        }
    }
}

/// Capacity of the file system of a folder, full or not.
pub fn folder_bytes(folder: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(folder).ok()?;
    Some(found.f_blocks * found.f_frsize)
}

fn not_told<T>(path: &Path, why: impl std::fmt::Display) -> Told<T> {
    Told::NotTold(format!("{}: {why}", path.display()))
}

fn modules(path: &Path) -> Told<Vec<Module>> {
    match std::fs::read(path) {
        Ok(table) => match in_table(&table) {
            modules if modules.is_empty() => not_told(path, "names no memory module"),
            modules => Told::Known(modules),
        },
        Err(error) => not_told(path, error),
    }
}

/// The memory devices of an SMBIOS table: structures of a kind, a length and a handle, each
/// followed by its texts and two zeros.
fn in_table(table: &[u8]) -> Vec<Module> {
    const MEMORY_DEVICE: u8 = 17;
    const HEADER_BYTES: usize = 4;
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some([kind, length, ..]) = table.get(at..at + HEADER_BYTES) {
        let length = usize::from(*length);
        let Some(structure) = table.get(at..at + length).filter(|_| length >= HEADER_BYTES) else {
            break;
        };
        if *kind == MEMORY_DEVICE {
            found.extend(module(structure));
        }
        let texts = &table[at + length..];
        let Some(end) = texts.windows(2).position(|pair| pair == [0, 0]) else { break };
        at += length + end + 2;
    }
    found
}

fn module(structure: &[u8]) -> Option<Module> {
    const SIZE: usize = 0x0c;
    const EXTENDED_SIZE: usize = 0x1c;
    // Offset 0x15 has the module's own speed, which may be higher.
    const CONFIGURED_SPEED: usize = 0x20;
    const IN_AN_EXTENSION: u16 = 0xffff;
    let word = |at: usize| Some(u16::from_le_bytes(structure.get(at..at + 2)?.try_into().ok()?));
    let size = word(SIZE)?;
    let bytes = match size {
        // Nothing is plugged in, or the size is unknown.
        0 | 0xffff => return None,
        0x7fff => {
            let mib = structure.get(EXTENDED_SIZE..EXTENDED_SIZE + 4)?;
            u64::from(u32::from_le_bytes(mib.try_into().ok()?) & 0x7fff_ffff) << 20
        }
        kib if kib & 0x8000 != 0 => u64::from(kib & 0x7fff) << 10,
        mib => u64::from(mib) << 20,
    };
    let speed = word(CONFIGURED_SPEED).filter(|speed| *speed != IN_AN_EXTENSION).unwrap_or(0);
    Some(Module { bytes, configured_mega_transfers_per_s: u64::from(speed) })
}

/// Power limit of all zones of memory; one unreadable zone makes the sum unknown.
fn memory_limit(folder: &Path) -> Told<PowerLimit> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => return not_told(folder, error),
    };
    let read = |path: &Path| Some(std::fs::read_to_string(path).ok()?.trim().to_owned());
    let mut limit = PowerLimit { watts: 0.0, zones: 0 };
    for entry in entries.flatten() {
        let zone = entry.path();
        // Newer processors show zones a second time, by another interface.
        let is_second = entry.file_name().to_string_lossy().contains("mmio");
        if is_second || read(&zone.join("name")).as_deref() != Some("dram") {
            continue;
        }
        if read(&zone.join("enabled")).as_deref() == Some("0") {
            return not_told(&zone, "its power limit is not enabled");
        }
        let microwatts = read(&zone.join("constraint_0_power_limit_uw"));
        match microwatts.and_then(|text| text.parse::<f64>().ok()) {
            Some(microwatts) if microwatts > 0.0 => limit.watts += microwatts / 1e6,
            Some(_) => return not_told(&zone, "its power limit is 0, which is none"),
            None => return not_told(&zone, "has no power limit"),
        }
        limit.zones += 1;
    }
    match limit.zones {
        0 => not_told(folder, "no zone of the memory"),
        _ => Told::Known(limit),
    }
}

fn prefetch_switch(path: &Path) -> Told<String> {
    match std::fs::File::options().read(true).write(true).open(path) {
        Ok(_) => Told::Known(format!("{} can be written", path.display())),
        Err(error) => not_told(path, error),
    }
}

fn last_cache_bytes(folder: &Path) -> Option<u64> {
    let size = |entry: std::fs::DirEntry| {
        let text = std::fs::read_to_string(entry.path().join("size")).ok()?;
        Some(text.trim().strip_suffix('K')?.parse::<u64>().ok()? << 10)
    };
    std::fs::read_dir(folder).ok()?.flatten().filter_map(size).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device whose own speed is higher than its configured speed.
    fn device(size: u16, speed: u16, extended_mib: u32) -> Vec<u8> {
        let mut structure = vec![0; 0x28];
        structure[0] = 17;
        structure[1] = 0x28;
        structure[0x0c..0x0e].copy_from_slice(&size.to_le_bytes());
        structure[0x15..0x17].copy_from_slice(&4800u16.to_le_bytes());
        structure[0x20..0x22].copy_from_slice(&speed.to_le_bytes());
        structure[0x1c..0x20].copy_from_slice(&extended_mib.to_le_bytes());
        structure.extend_from_slice(b"DIMM 0\0\0");
        structure
    }

    #[test]
    fn modules_are_read_from_the_firmwares_table() {
        let bios = [&[0u8, 4, 0, 0][..], b"a maker\0\0"].concat();
        let table = [
            bios,
            device(16384, 3200, 0),
            device(0, 0, 0),
            device(0x7fff, 2666, 65536),
            device(0x8200, 0xffff, 0),
            vec![127, 4, 0, 0, 0, 0],
        ]
        .concat();
        let module = |bytes, configured_mega_transfers_per_s| Module {
            bytes,
            configured_mega_transfers_per_s,
        };
        let expected = [module(16 << 30, 3200), module(64 << 30, 2666), module(512 << 10, 0)];
        assert_eq!(in_table(&table), expected);
        // A table that is cut anywhere gives no more devices than it has.
        for end in 0..table.len() {
            assert!(in_table(&table[..end]).len() <= expected.len());
        }
        assert!(in_table(&[17, 0, 0, 0, 0, 0]).is_empty(), "a length of nothing has no end");
    }

    #[test]
    fn what_a_machine_does_not_tell_comes_with_the_place_it_was_sought() {
        let root = tempfile::tempdir().unwrap();
        let facts = Facts::of(root.path());
        let Told::NotTold(why) = &facts.modules else { panic!("{facts:?}") };
        assert!(why.contains("dmi/tables/DMI"), "{why}");
        assert!(matches!(facts.prefetch_switch, Told::NotTold(_)) && facts.cache_bytes.is_none());
    }

    #[test]
    fn what_a_machine_tells_is_known() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, bytes: &[u8]| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        };
        write(DMI, &device(16384, 3200, 0));
        write("sys/class/powercap/intel-rapl:0/name", b"package-0\n");
        write("sys/class/powercap/intel-rapl:0:0/name", b"dram\n");
        write("sys/class/powercap/intel-rapl:0:0/constraint_0_power_limit_uw", b"18000000\n");
        write(MSR, b"");
        write("sys/devices/system/cpu/cpu0/cache/index0/size", b"48K\n");
        write("sys/devices/system/cpu/cpu0/cache/index3/size", b"32768K\n");
        let facts = Facts::of(root.path());
        assert_eq!(facts.memory_limit, Told::Known(PowerLimit { watts: 18.0, zones: 1 }));
        assert!(matches!(&facts.modules, Told::Known(modules) if modules.len() == 1));
        assert!(matches!(facts.prefetch_switch, Told::Known(_)));
        assert_eq!(facts.cache_bytes, Some(32 << 20));
    }
    #[test]
    fn a_power_limit_is_that_of_all_zones_or_none() {
        let root = tempfile::tempdir().unwrap();
        let write = |zone: &str, file: &str, text: &str| {
            let zone = root.path().join(zone);
            std::fs::create_dir_all(&zone).unwrap();
            std::fs::write(zone.join(file), format!("{text}\n")).unwrap();
        };
        let limited = |zone: &str, microwatts: &str| {
            write(zone, "name", "dram");
            write(zone, "constraint_0_power_limit_uw", microwatts);
        };
        limited("intel-rapl:0:1", "18000000");
        limited("intel-rapl:1:1", "20000000");
        limited("intel-rapl-mmio:0:1", "18000000");
        write("intel-rapl:0:1", "enabled", "1");
        assert_eq!(memory_limit(root.path()), Told::Known(PowerLimit { watts: 38.0, zones: 2 }));
        let why = || match memory_limit(root.path()) {
            Told::NotTold(why) => why,
            Told::Known(limit) => panic!("{limit:?}"),
        };
        limited("intel-rapl:1:1", "0");
        assert!(why().contains("intel-rapl:1:1: its power limit is 0"), "{}", why());
        limited("intel-rapl:1:1", "20000000");
        write("intel-rapl:1:1", "enabled", "0");
        assert!(why().contains("not enabled"), "{}", why());
    }
}
