//! The inputs that fuzzing has kept, `fuzz/seeds/TARGET.hex`: one input a line, in hexadecimal.

/// Runs `check` on each kept input of a target.
pub fn each(target: &str, check: impl Fn(&[u8])) {
    let mut above = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let seeds = above.find_map(|dir| dir.join("fuzz/seeds").canonicalize().ok());
    let path = format!("{}/{target}.hex", seeds.unwrap_or_default().display());
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut count = 0;
    for (index, line) in text.lines().enumerate() {
        let input = decoded(line).unwrap_or_else(|| panic!("{path}:{}: not bytes", index + 1));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(&input)));
        assert!(outcome.is_ok(), "{path}:{}: the check failed", index + 1);
        count += 1;
    }
    println!("{count} kept inputs of {target}");
    assert!(count > 10, "{path} has only {count} inputs");
}

fn decoded(line: &str) -> Option<Vec<u8>> {
    let digits = line.as_bytes().chunks(2);
    digits.map(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok()).collect()
}
