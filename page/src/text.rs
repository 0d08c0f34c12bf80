//! Text and numbers in the form that a page needs.

/// Text with the characters escaped that have a meaning in HTML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A number with two decimals at most, in thousands or millions where it is large.
pub fn short(value: f64) -> String {
    let size = value.abs();
    match () {
        () if size >= 1e6 => format!("{}M", trim(value / 1e6)),
        () if size >= 1e4 => format!("{}k", trim(value / 1e3)),
        () if size >= 100.0 => format!("{value:.0}"),
        () => trim(value),
    }
}

fn trim(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(short(1_234_567.0), "1.23M");
        assert_eq!([short(0.5), short(10.0), short(45_000.0)], ["0.5", "10", "45k"]);
    }
}
