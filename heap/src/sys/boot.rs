//! The number of the boot, by which a heap knows whether the caches were lost.

/// Changes whenever the machine starts: then caches were lost.
pub fn boot_id() -> [u64; 2] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let hex: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let word = |range: std::ops::Range<usize>| {
        hex.get(range).and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or(0)
    };
    // Unknown is never equal to anything: all zeros is not compared.
    [word(0..16), word(16..32)]
}
