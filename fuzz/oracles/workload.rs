//! Any text is read as a workload file, and any change to a file of the stock suite: the result is
//! benchmarks that keep every rule, or an error with its line.

use perdura_lab::access::stock::STOCK;
use perdura_lab::access::workload::parse_soundly;

/// The first byte chooses a file of the suite. The rest is a list of changes to that file's text,
/// each with two bytes of place and one of value. Beyond the last file the rest is the text itself.
pub fn check(data: &[u8]) {
    let [choice, rest @ ..] = data else { return };
    let Some(stock) = STOCK.get(usize::from(*choice)) else {
        let _ = parse_soundly(&String::from_utf8_lossy(rest));
        return;
    };
    let mut text = stock.text.as_bytes().to_vec();
    for change in rest.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % text.len();
        text[at] = change[2];
    }
    let _ = parse_soundly(&String::from_utf8_lossy(&text));
}
