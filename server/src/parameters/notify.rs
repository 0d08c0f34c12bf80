//! `notify-keyspace-events`: which events of keys are published, and on which channels.

use perdura_store::EventClass;

/// Which events of keys are published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Notify {
    /// The classes, as bits of [`EventClass`] and [`MODULE`].
    pub classes: u32,
    /// Whether a channel named for the key has the event.
    pub by_key: bool,
    /// Whether a channel named for the event has the key.
    pub by_event: bool,
}

/// The events of modules, of which there are none.
const MODULE: u32 = 1 << 31;

/// The letters of the classes, in the order in which they are shown; `A` stands for these.
const CLASSES: [(u8, u32); 10] = [
    (b'g', EventClass::GENERIC.0),
    (b'$', EventClass::STRING.0),
    (b'l', EventClass::LIST.0),
    (b's', EventClass::SET.0),
    (b'h', EventClass::HASH.0),
    (b'z', EventClass::SORTED.0),
    (b'x', EventClass::EXPIRED.0),
    (b'e', EventClass::EVICTED.0),
    (b't', EventClass::STREAM.0),
    (b'd', MODULE),
];

impl Notify {
    /// Reads the letters; `None` if there is another one among them.
    pub fn parse(letters: &[u8]) -> Option<Self> {
        let mut notify = Self::default();
        for letter in letters {
            match letter {
                b'A' => notify.classes |= all(),
                b'K' => notify.by_key = true,
                b'E' => notify.by_event = true,
                b'n' => notify.classes |= EventClass::NEW.0,
                b'm' => notify.classes |= EventClass::MISS.0,
                _ => notify.classes |= CLASSES.iter().find(|(known, _)| known == letter)?.1,
            }
        }
        Some(notify)
    }

    /// The letters, as Redis 7.2 shows them.
    pub fn letters(self) -> String {
        let has = |class: u32| self.classes & class == class;
        let mut letters = String::new();
        if has(all()) {
            letters.push('A');
        } else {
            let given = CLASSES.iter().filter(|(_, class)| has(*class));
            letters.extend(given.map(|(letter, _)| char::from(*letter)));
            // Redis shows this letter only where it does not show `A`.
            letters.extend(has(EventClass::NEW.0).then_some('n'));
        }
        letters.extend(self.by_key.then_some('K'));
        letters.extend(self.by_event.then_some('E'));
        letters.extend(has(EventClass::MISS.0).then_some('m'));
        letters
    }

    /// The classes of which anything is published.
    pub fn published(self) -> u32 {
        if self.by_key || self.by_event { self.classes & !MODULE } else { 0 }
    }
}

fn all() -> u32 {
    CLASSES.iter().fold(0, |all, (_, class)| all | class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_shown_in_one_order() {
        let shown = |letters: &str| Notify::parse(letters.as_bytes()).map(Notify::letters);
        for (given, expected) in [
            ("", ""),
            ("KEA", "AKE"),
            ("AEKmn", "AKEm"),
            ("K$lshzxeg", "g$lshzxeK"),
            ("Kg$lshzxetd", "AK"),
            ("Km$xE", "$xKEm"),
            ("nEz", "znE"),
            ("K", "K"),
        ] {
            assert_eq!(shown(given).as_deref(), Some(expected), "{given}");
        }
        assert_eq!(shown("KEq"), None);
        assert_eq!(Notify::parse(b"A").map(Notify::published), Some(0));
    }
}
