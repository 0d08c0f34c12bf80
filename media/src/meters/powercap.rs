//! The kernel's powercap: counts of energy of processors (RAPL) and what else has such.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use super::{Look, Meter};
use crate::drives::{kernel_names, kernel_number, kernel_text};

struct Zone {
    source: String,
    dir: PathBuf,
}

impl Meter for Zone {
    fn source(&self) -> &str {
        &self.source
    }

    fn look(&mut self) -> Result<Look, String> {
        let read = |name: &str| {
            kernel_number(&self.dir.join(name)).map_err(|error| format!("{name}: {error}"))
        };
        let microjoules = read("energy_uj")?;
        Ok(Look::Counted { microjoules, range: Some(read("max_energy_range_uj")?) })
    }
}

/// The zones that count energy. A zone in another has the name of that before its own:
/// `package-0/core`.
pub(super) fn find(sys: &Path) -> io::Result<Vec<Box<dyn Meter>>> {
    let all = sys.join("class/powercap");
    let (mut taken, mut zones) = (HashSet::new(), Vec::<Box<dyn Meter>>::new());
    for zone in kernel_names(&all)? {
        let dir = all.join(&zone);
        if !dir.join("energy_uj").exists() {
            continue;
        }
        let mut name = kernel_text(&dir.join("name"))?;
        // `intel-rapl:0:1` is a part of `intel-rapl:0`, and that of a control type `intel-rapl`.
        if let Some((outer, _)) = zone.rsplit_once(':').filter(|(outer, _)| outer.contains(':')) {
            name = format!("{}/{name}", kernel_text(&all.join(outer).join("name"))?);
        }
        // The same package may be there twice, by two interfaces.
        let mut source = format!("powercap:{name}");
        if !taken.insert(source.clone()) {
            source = format!("powercap:{name}({zone})");
        }
        zones.push(Box::new(Zone { source, dir }));
    }
    Ok(zones)
}
