//! Built-in profiles are valid; profiles of users are refused with place and value.

use super::*;

fn refusal(text: &str) -> String {
    System::from_toml("mine", text).expect_err("a profile that cannot be").to_string()
}

const WHOLE: &str = "module_capacity = \"1GiB\"\n[medium]\ngranule = \"64B\"\n\
                     read_latency = \"65ns\"\nwrite_latency = \"215ns\"\n";

#[test]
fn every_built_in_profile_is_one_and_each_number_has_its_source() {
    for name in names() {
        let system = System::find(name).unwrap();
        assert!(!system.about.is_empty(), "{name}");
        // Only this profile's own sources count: a base's source does not hold for a number given
        // anew.
        let own = Document::parse(name, builtin::text(name).unwrap()).unwrap().sources;
        let keys = keys_of(builtin::text(name).unwrap());
        for key in &keys {
            assert!(own.contains_key(key), "{name}: {key} has no source");
        }
        for key in own.keys() {
            assert!(keys.contains(key), "{name}: a source of {key}, which is not said here");
        }
    }
    for name in links() {
        let text = builtin::link_text(name).unwrap();
        let link = document::LinkDocument::parse(name, text).unwrap();
        assert!(resolve::link("test", name).is_ok(), "{name}");
        for key in keys_of(text) {
            assert!(link.sources.contains_key(&key), "{name}: {key} has no source");
        }
    }
}

/// Keys with numbers in a text, as the sources name them.
fn keys_of(text: &str) -> Vec<String> {
    document::said("", &text.parse().unwrap())
}

#[test]
fn a_link_can_be_changed_and_taken_away() {
    let system = System::find("pcm").unwrap();
    assert_eq!(system.link, None);
    let linked = system.clone().with_link("pcie1x8").unwrap();
    assert_eq!(linked.link.as_ref().unwrap().to_device, BytesPerSecond(2_000_000_000));
    assert_eq!(linked.name, "pcm+pcie1x8");
    assert_eq!(linked.with_link("none").unwrap().link, None);
    let error = system.with_link("pcie9").unwrap_err().to_string();
    assert!(error.contains("no link is called \"pcie9\"") && error.contains("sata2"), "{error}");
}

#[test]
fn timings_of_a_chip_add_up_to_its_latency() {
    let pcm = System::find("pcm").unwrap().medium;
    assert_eq!((pcm.read_latency, pcm.write_latency), (Picoseconds(65_000), Picoseconds(215_000)));
    let sttm = System::find("sttm").unwrap().medium;
    assert_eq!((sttm.read_latency, sttm.write_latency), (Picoseconds(29_500), Picoseconds(95_000)));
    let both = refusal(&format!("{WHOLE}t_rcd = \"50ns\"\n"));
    assert!(both.contains("either it, or both medium.t_rcd and medium.t_cl"), "{both}");
}

#[test]
fn what_no_profile_can_be_is_named_with_its_place() {
    let cases = [
        ("read_latency = \"65ns\"", "read_latency = \"-65ns\"", "medium.read_latency = -65ns"),
        ("read_latency = \"65ns\"", "read_latency = \"65\"", "a number with a unit"),
        ("read_latency = \"65ns\"", "read_latency = \"0ns\"", "above zero"),
        ("read_latency = \"65ns\"", "", "medium.read_latency is missing"),
        ("granule = \"64B\"", "granule = \"0B\"", "medium.granule = 0 B"),
        ("granule = \"64B\"", "granule = \"64B\"\nspeed = 3", "unknown field `speed`"),
        ("granule = \"64B\"", "granule = 64", "invalid type"),
        ("granule = \"64B\"", "granule = \"64B\"\nunits = -1", "medium.units = -1"),
        ("granule = \"64B\"", "granule = \"64B\"\nunits = 70000", "medium.units = 70000"),
        ("[medium]", "base = \"nothing\"\n[medium]", "base = nothing: one of disk"),
        ("[medium]", "link = \"pcie9\"\n[medium]", "no link is called \"pcie9\""),
        ("[medium]", "modules = 0\n[medium]", "modules = 0"),
        ("[medium]", "[cost]\neur_per_gb = { 2010 = nan }\n[medium]", "cost.eur_per_gb = NaN"),
        (
            "[medium]",
            "[power]\nidle = \"3W\"\nactive = \"2W\"\n[medium]",
            "none below the one before",
        ),
        (
            "[medium]",
            "[link]\nto_device = \"1GB/s\"\nspeed = 3\n[medium]",
            "unknown field `speed`, expected one of",
        ),
        ("[medium]", "link = 3\n[medium]", "expected the name of a link, or a table [link]"),
        (
            "[medium]",
            "[link]\nto_device = \"1GB/s\"\nfrom_device = \"1GB/s\"\n\
             request = \"18000000s\"\n[medium]",
            "link.request = 18000000 s: at most 1000 s",
        ),
        (
            "granule = \"64B\"",
            "granule = \"64B\"\nsequential_read_latency = \"1001s\"",
            "medium.sequential_read_latency = 1001 s: at most 1000 s",
        ),
        ("[medium]", "[medium", "TOML parse error"),
        (
            "granule = \"64B\"",
            "granule = \"64B\"\npositioning = [\"9ms\", \"5ms\"]",
            "the farthest is not nearer",
        ),
    ];
    for (from, to, expected) in cases {
        let error = refusal(&WHOLE.replacen(from, to, 1));
        assert!(error.contains("mine") && error.contains(expected), "{error}\nlacks: {expected}");
    }
    assert!(System::from_toml("mine", WHOLE).is_ok());
}

#[test]
fn the_examples_in_the_documentation_are_profiles() {
    let page = include_str!("../../../docs/media.md");
    let mut blocks = page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let whole = blocks.next().unwrap();
    let system = System::from_toml("docs/media.md", whole).unwrap();
    assert_eq!((system.modules, system.medium.units), (2, 256));
    // The keys of the second block are a link's, which belong to a profile without `link = ...`.
    let link = whole.replace("link = \"pcie5x4\"", "") + blocks.next().unwrap();
    assert_eq!(
        System::from_toml("docs/media.md", &link).unwrap().link.unwrap().command,
        Picoseconds(400_000)
    );
    for name in names() {
        assert!(page.contains(&format!("`{name}`")), "{name} is not in docs/media.md");
    }
    for name in links() {
        assert!(page.contains(&format!("`{name}`")), "{name} is not in docs/media.md");
    }
}

#[test]
fn a_name_that_is_none_is_answered_with_those_there_are() {
    let error = System::find("quartz").unwrap_err().to_string();
    assert!(error.contains("\"quartz\"") && error.contains("pcie-pcm"), "{error}");
    let error = System::find("/nowhere/profile.toml").unwrap_err().to_string();
    assert!(error.contains("/nowhere/profile.toml cannot be read"), "{error}");
}

#[test]
fn what_a_profile_leaves_out_is_its_bases() {
    let text = format!("base = \"pcm\"\n{}", WHOLE.replace("module_capacity = \"1GiB\"\n", ""));
    assert_eq!(System::from_toml("mine", &text).unwrap().module_capacity, Bytes(16 << 30));
}

#[test]
fn a_number_said_anew_does_not_keep_the_bases_source() {
    let text = "base = \"pcm\"\n[medium]\nread_latency = \"1us\"\n\
                [cost]\neur_per_gb = { 2026 = 1.0 }\n\
                [sources]\n\"cost.eur_per_gb\" = \"an offer\"\n";
    let sources = System::from_toml("mine", text).unwrap().sources;
    let of =
        |key: &str| sources.iter().find(|(of, _)| of == key).map(|(_, source)| source.as_str());
    assert_eq!(of("medium.read_latency"), None);
    assert_eq!(of("medium.t_rcd"), None, "the timings are not this profile's");
    assert_eq!(of("cost.eur_per_gb"), Some("an offer"));
    assert!(of("medium.t_wr").is_some() && of("power.idle").is_some(), "{sources:?}");
}

#[test]
fn the_price_is_the_newest_known_by_the_year() {
    let disk = System::find("disk").unwrap();
    assert_eq!(disk.eur_per_gb(2009), None);
    assert_eq!(disk.eur_per_gb(2020), Some((2010, 0.08)));
    assert_eq!(disk.eur_per_gb(2030), Some((2026, 0.02)));
}
