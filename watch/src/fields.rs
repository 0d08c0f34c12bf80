//! The text of INFO as fields.

use std::collections::HashMap;

/// The fields of a text of INFO, by their names.
#[derive(Debug, Clone, Default)]
pub struct Fields<'i>(HashMap<&'i str, &'i str>);

impl<'i> Fields<'i> {
    /// Reads a text of INFO. What is no field is passed over.
    pub fn of(info: &'i str) -> Self {
        Self(info.lines().filter_map(|line| line.split_once(':')).collect())
    }

    /// The words of a field, if there is one of this name.
    pub fn get(&self, name: &str) -> Option<&'i str> {
        self.0.get(name).map(|value| value.trim())
    }

    /// The number in a field.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.get(name)?.parse().ok().filter(|number: &f64| number.is_finite())
    }

    /// The fields whose names are `prefix` and a number, such as `device0`, in the order of the
    /// numbers.
    pub fn numbered(&self, prefix: &str) -> Vec<(u32, Parts<'i>)> {
        let number = |name: &str| {
            let digits = name.strip_prefix(prefix)?;
            digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
        };
        let all = self.0.iter().filter_map(|(name, value)| Some((number(name)?, Parts(value))));
        let mut all: Vec<_> = all.collect();
        all.sort_unstable_by_key(|(number, _)| *number);
        all
    }
}

/// A field with several values: `keys=1,expires=0`.
#[derive(Debug, Clone, Copy)]
pub struct Parts<'i>(&'i str);

impl<'i> Parts<'i> {
    /// The words of one of the values.
    pub fn get(&self, name: &str) -> Option<&'i str> {
        let mut parts = self.0.trim_end().split(',');
        parts.find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_name_and_numbered_ones_in_order() {
        let fields = Fields::of("# A\r\na:1.5\r\nb: x:y \r\ndb10:keys=3\r\ndb2:keys=4,e=\r\ndb:1");
        assert_eq!((fields.number("a"), fields.get("b")), (Some(1.5), Some("x:y")));
        assert_eq!((fields.number("b"), fields.get("c")), (None, None));
        let numbered = fields.numbered("db");
        assert_eq!(numbered.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [2, 10]);
        assert_eq!((numbered[0].1.get("keys"), numbered[0].1.get("e")), (Some("4"), Some("")));
        assert_eq!(numbered[0].1.get("key"), None);
    }
}
