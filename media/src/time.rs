//! Times as people write them: RFC 3339 in UTC or with an offset, to milliseconds.

const DAY_MS: u64 = 86_400_000;

/// Milliseconds since 1970 as RFC 3339 in UTC: `2026-11-29T15:54:21.123Z`.
pub fn rfc3339(unix_ms: u64) -> String {
    let [year, month, day, hour, minute, second, ms] = fields(unix_ms);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// A time as RFC 3339 without `-` and `:`: `20261129T155421.123Z`. Such names sort by time.
pub fn compact(unix_ms: u64) -> String {
    rfc3339(unix_ms).replace(['-', ':'], "")
}

/// Reads a time; `None` if it is none. A fraction of a second may follow, and then `Z` or an
/// offset such as `+01:00`, which must be there.
pub fn parse(text: &str) -> Option<u64> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let mut date = date.splitn(3, '-').map(number);
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let zone_at = time.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = time.split_at(zone_at);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let mut clock = clock.splitn(3, ':').map(number);
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    let digits = fraction.bytes().all(|digit| digit.is_ascii_digit());
    let ms = number(format!("{fraction:0<3}").get(..3)?)?;
    let real = (1..=12).contains(&month)
        && (1..=days_of(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60
        && (1970..10_000).contains(&year);
    if !real || !digits {
        return None;
    }
    let days = days_before(year) + (1..month).map(|month| days_of(year, month)).sum::<u64>();
    let local = (days + day - 1) * DAY_MS + ((hour * 60 + minute) * 60 + second) * 1000 + ms;
    if matches!(zone, "Z" | "z") {
        return Some(local);
    }
    let (hours, minutes) = zone[1..].split_once(':')?;
    let offset = (number(hours)? * 60 + number(minutes)?) * 60_000;
    match zone.as_bytes()[0] {
        b'+' => local.checked_sub(offset),
        _ => local.checked_add(offset),
    }
}

/// Reads a time that [`compact`] has written.
pub fn parse_compact(text: &str) -> Option<u64> {
    let part = |from: usize, to: usize| text.get(from..to).filter(|part| part.is_ascii());
    let spread = format!(
        "{}-{}-{}{}:{}:{}",
        part(0, 4)?,
        part(4, 6)?,
        part(6, 11)?,
        "",
        part(11, 13)?,
        text.get(13..)?
    );
    parse(&spread).filter(|unix_ms| compact(*unix_ms) == text)
}

fn number(text: &str) -> Option<u64> {
    text.bytes().all(|digit| digit.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_of(year: u64, month: u64) -> u64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 => 28 + u64::from(is_leap(year)),
        _ => 31,
    }
}

/// Days from 1970 to the beginning of a year.
fn days_before(year: u64) -> u64 {
    let leaps = |year: u64| year / 4 - year / 100 + year / 400;
    (year - 1970) * 365 + leaps(year - 1) - leaps(1969)
}

fn fields(unix_ms: u64) -> [u64; 7] {
    let (mut days, ms) = (unix_ms / DAY_MS, unix_ms % DAY_MS);
    // At most a year too late.
    let mut year = 1970 + days / 365;
    while days_before(year) > days {
        year -= 1;
    }
    days -= days_before(year);
    let mut month = 1;
    while days >= days_of(year, month) {
        days -= days_of(year, month);
        month += 1;
    }
    [year, month, days + 1, ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60, ms % 1000]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_and_read() {
        for (unix_ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_000_000_000_123, "2001-09-09T01:46:40.123Z"),
            (4_107_542_399_999, "2100-02-28T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(unix_ms), text);
            assert_eq!(parse(text), Some(unix_ms), "{text}");
            assert_eq!(parse_compact(&compact(unix_ms)), Some(unix_ms), "{}", compact(unix_ms));
        }
        assert_eq!(parse("2001-09-09T03:46:40.12+02:00"), Some(1_000_000_000_120));
        assert_eq!(parse("2001-09-08 20:16:40-05:30"), Some(1_000_000_000_000));
        let step = 86_399_999 * 13;
        for unix_ms in (0..5_000_000_000_000).step_by(step) {
            assert_eq!(parse(&rfc3339(unix_ms)), Some(unix_ms));
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "2001-09-09",
            "2001-09-09T01:46:40",
            "2001-13-09T01:46:40Z",
            "2001-02-29T01:46:40Z",
            "2001-09-09T24:00:00Z",
            "1969-12-31T23:59:59Z",
            "2001-09-09T01:46:4xZ",
            "2001-09-09T01:46:40+01",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse_compact("20010909T014640.123"), None);
        assert_eq!(parse_compact("ü0010909T014640.123Z"), None);
    }
}
