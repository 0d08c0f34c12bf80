//! The machine of a measurement, as every page of results shows it.

use crate::machine::Machine;
use perdura_page::escape;

/// The paragraph of a page about the machine, the build, and the load when the run began.
pub fn machine_paragraph(machine: &Machine) -> String {
    format!(
        "<p>{}, {} processors, {} of memory, {}, load {} at the beginning; perdura {} {}.{}</p>",
        escape(&machine.cpu),
        machine.cpus,
        perdura_media::Bytes(machine.memory_bytes),
        escape(&machine.kernel),
        escape(machine.load_1m.as_deref().unwrap_or("unknown")),
        escape(&machine.version),
        escape(&machine.revision),
        if machine.is_release { "" } else { " <b>Not a release build.</b>" },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paragraph_names_machine_and_build_and_warns_of_a_debug_build() {
        let machine = Machine {
            cpu: "a <fast> one".into(),
            memory_bytes: 1 << 30,
            load_1m: None,
            is_release: false,
            ..Machine::here()
        };
        let slow = machine_paragraph(&machine);
        for wanted in ["a &lt;fast&gt; one", "1 GiB of memory", "load unknown", "Not a release"] {
            assert!(slow.contains(wanted), "{wanted} in {slow}");
        }
        let fast = machine_paragraph(&Machine { is_release: true, ..machine });
        assert!(!fast.contains("Not a release"), "{fast}");
    }
}
