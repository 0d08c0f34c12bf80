//! `include/perdura.h` is what the source says.

const HEADER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include/perdura.h");
const PREAMBLE: &str = "\
// Perdura's heap: persistent and capacity memory, named roots, transactions; and mapped regions,
// which are durable bytes without a heap. See docs/heap.md.
//
// Who owns what: a heap is the caller's, from perdura_open until perdura_close, and a mapping from
// perdura_map until perdura_unmap. Memory is the heap's; what a call returns is taken until it is
// given back. Strings and buffers that are passed in stay the caller's and are not used after the
// call. A call that fails changes nothing and keeps nothing; perdura_error() says why.
//
// Made by cbindgen from capi/src; to make it again:
// PERDURA_BLESS=1 cargo test -p perdura-capi --test capi header";

fn generated() -> String {
    let mut config = cbindgen::Config {
        language: cbindgen::Language::C,
        cpp_compat: true,
        header: Some(PREAMBLE.to_owned()),
        include_guard: Some("PERDURA_H".to_owned()),
        style: cbindgen::Style::Both,
        documentation_style: cbindgen::DocumentationStyle::C99,
        usize_is_size_t: true,
        line_length: 100,
        no_includes: true,
        sys_includes: vec!["stddef.h".into(), "stdint.h".into()],
        ..cbindgen::Config::default()
    };
    // They are passed as numbers: a value that C makes up must be refused, not be an impossible
    // enum.
    config.export.include = vec!["perdura_kind".into(), "perdura_durability".into()];
    let bindings = cbindgen::Builder::new()
        .with_crate(env!("CARGO_MANIFEST_DIR"))
        .with_config(config)
        .generate()
        .unwrap();
    let mut bytes = Vec::new();
    bindings.write(&mut bytes);
    // What Rust calls safety is what C's caller must see to.
    let text = String::from_utf8(bytes).unwrap().replace("// # Safety\n", "// What it needs:\n");
    text.replace(" \n", "\n")
}

#[test]
fn the_header_is_what_the_source_says() {
    let made = generated();
    if std::env::var_os("PERDURA_BLESS").is_some() {
        std::fs::write(HEADER, &made).unwrap();
    }
    let committed = std::fs::read_to_string(HEADER).unwrap_or_default();
    assert!(
        made == committed,
        "{HEADER} is not what the source says; make it again with\n\
         PERDURA_BLESS=1 cargo test -p perdura-capi --test capi header"
    );
}
