//! Values go to bytes and come back; bytes that nobody wrote are refused at bounded cost.

#![allow(clippy::unwrap_used)] // tests, though not every helper is inside one

mod sys;

use std::sync::atomic::Ordering::Relaxed;

use perdura_rdb::{
    Consumer, Encoder, Group, Item, KeyItem, PayloadError, Pending, RdbError, Reader, Stream,
    StreamEntry, StreamId, Strings, Value, Writer, crc64, open_payload, seal_payload,
};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;
use sys::LARGEST;

const MAX_BYTES: u64 = 8 << 20;

fn string() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..40),
        any::<i64>().prop_map(|int| int.to_string().into_bytes()),
        any::<i8>().prop_map(|int| int.to_string().into_bytes()),
        (any::<u8>(), 0usize..70_000).prop_map(|(byte, len)| vec![byte; len]),
        (vec(any::<u8>(), 1..9), 1usize..90).prop_map(|(part, times)| part.repeat(times)),
    ]
}

fn stream() -> impl Strategy<Value = Value> {
    let fields = vec((string(), string()), 1..4);
    let entries = btree_map((0u64..5, 1..=u64::MAX), (fields, any::<bool>()), 0..150);
    let pending = btree_map(any::<(u64, u64)>(), (any::<u32>(), 0u64..9, 0usize..3), 0..9);
    let group = (string(), any::<(u64, u64)>(), any::<Option<u32>>(), pending);
    (entries, vec(group, 0..3), any::<u32>()).prop_map(|(entries, groups, more)| {
        let id = |(ms, seq)| StreamId { ms, seq };
        let mut stream = Stream { entries_added: u64::from(more), ..Stream::default() };
        for (name, (fields, is_plain)) in entries {
            let fields = match is_plain {
                true => [&b"field"[..], b"value"].iter().collect(),
                false => fields.iter().flat_map(|(name, value)| [name, value]).collect(),
            };
            stream.entries.push(StreamEntry { id: id(name), fields });
        }
        stream.entries_added += stream.entries.len() as u64;
        stream.last_id = stream.entries.last().map_or(id((9, 9)), |last| last.id);
        stream.max_deleted_id = id((1, u64::from(more)));
        for (number, (name, last_id, read, pending)) in groups.into_iter().enumerate() {
            let consumers = (0..3).map(|n| Consumer {
                name: format!("consumer {n}").into_bytes(),
                seen_ms: n,
                active_ms: Some(n),
            });
            let pending = pending.into_iter().map(|(at, (delivered_ms, deliveries, consumer))| {
                let delivered_ms = u64::from(delivered_ms);
                Pending { id: id(at), delivered_ms, deliveries, consumer }
            });
            stream.groups.push(Group {
                name: [&name[..], &[number as u8]].concat(),
                last_id: id(last_id),
                entries_read: read.map(u64::from),
                pending: pending.collect(),
                consumers: consumers.collect(),
            });
        }
        Value::Stream(Box::new(stream))
    })
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        string().prop_map(Value::String),
        vec(string(), 0..30).prop_map(|all| Value::List(all.iter().collect())),
        btree_set(string(), 0..30).prop_map(|all| Value::Set(all.iter().collect())),
        btree_map(string(), any::<f64>(), 0..30).prop_map(|all| {
            let numbers = all.into_iter().filter(|(_, score)| !score.is_nan());
            let (names, scores): (Vec<_>, Vec<_>) = numbers.unzip();
            Value::Sorted(names.iter().collect(), scores)
        }),
        btree_map(string(), string(), 0..30)
            .prop_map(|all| Value::Hash(all.iter().flat_map(|(a, b)| [a, b]).collect())),
        btree_map(string(), (string(), any::<Option<u32>>()), 0..30).prop_map(|all| {
            let expiries = all.values().map(|(_, at_ms)| at_ms.map(|at_ms| u64::from(at_ms) + 1));
            let expiries = expiries.collect();
            let fields = all.iter().flat_map(|(name, (value, _))| [name, value]).collect();
            Value::ExpiringHash(fields, expiries)
        }),
        stream(),
    ]
}

fn payload_of(value: &Value, compresses: bool) -> Vec<u8> {
    let mut payload = Vec::new();
    Encoder::new(&mut payload, compresses).value(value);
    seal_payload(&mut payload);
    payload
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_value_comes_back_from_a_payload(value in value(), compresses in any::<bool>()) {
        let payload = payload_of(&value, compresses);
        prop_assert_eq!(open_payload(&payload, MAX_BYTES).unwrap(), value);
    }

    #[test]
    fn keys_come_back_from_a_file(
        keys in vec((0u64..20, string(), any::<Option<u32>>(), value()), 0..8),
    ) {
        let mut writer = Writer::new(Vec::new(), &[("about", "a test".to_owned())]).unwrap();
        for (db, key, expiry, value) in &keys {
            let mut bytes = Vec::new();
            Encoder::new(&mut bytes, true).value(value);
            writer.key(*db, key, expiry.map(u64::from), &bytes).unwrap();
        }
        let (file, len) = writer.end().unwrap();
        prop_assert_eq!(file.len() as u64, len);
        // What lies behind the dump is not touched.
        let more = [&file[..], b"behind"].concat();
        let mut reader = Reader::new(&more[..], MAX_BYTES).unwrap();
        let aux = Item::Aux { name: b"about".to_vec(), value: b"a test".to_vec() };
        prop_assert_eq!(reader.next_item().unwrap(), Some(aux));
        for (db, key, expiry, value) in keys {
            let item = KeyItem {
                db, key, value,
                expire_at_ms: expiry.map(u64::from),
                idle_seconds: None,
                frequency: None,
            };
            prop_assert_eq!(reader.next_item().unwrap(), Some(Item::Key(item)));
        }
        prop_assert_eq!(reader.next_item().unwrap(), None);
        prop_assert_eq!(reader.offset(), len);
        let (behind, rest) = reader.into_rest();
        prop_assert_eq!([&behind[..], rest].concat(), b"behind");
        // Any changed byte is noticed, by the checksum at the latest.
        let mut bad = file.clone();
        let at = (len / 2) as usize;
        bad[at] ^= 1;
        let read = Reader::new(&bad[..], MAX_BYTES).and_then(|mut reader| {
            while reader.next_item()?.is_some() {}
            Ok(())
        });
        prop_assert!(read.is_err());
    }

    #[test]
    fn a_changed_payload_is_refused(value in value(), at in any::<usize>(), bit in 0u8..8) {
        let mut payload = payload_of(&value, true);
        let at = at % payload.len();
        payload[at] ^= 1 << bit;
        prop_assert!(matches!(open_payload(&payload, MAX_BYTES), Err(PayloadError::Foot)));
    }

    #[test]
    fn hostile_bytes_with_a_right_checksum_cost_little(
        value in value(),
        kind in 0u8..27,
        changes in vec((any::<usize>(), any::<u8>()), 0..6),
    ) {
        let mut payload = payload_of(&value, true);
        payload.truncate(payload.len() - 10);
        let len = payload.len();
        for (at, byte) in changes {
            payload[at % len] = byte;
        }
        if kind < 26 {
            payload[0] = kind;
        }
        seal_payload(&mut payload);
        let max_bytes = 1 << 20;
        let before = LARGEST.swap(0, Relaxed);
        let _ = open_payload(&payload, max_bytes);
        let largest = LARGEST.fetch_max(before, Relaxed);
        prop_assert!(largest as u64 <= 4 * max_bytes, "{largest} bytes in one piece");
    }
}

#[test]
fn lengths_are_not_believed() {
    let payload = |value: &[u8]| {
        let mut payload = value.to_vec();
        seal_payload(&mut payload);
        LARGEST.store(0, Relaxed);
        let opened = open_payload(&payload, 1 << 30);
        assert!(LARGEST.load(Relaxed) < 1 << 20, "{value:?}");
        opened
    };
    let huge = [0x81, 0, 0, 0, 0, 0x30, 0, 0, 0];
    for kind in [0, 1, 2, 4, 5, 18, 19] {
        let opened = payload(&[&[kind], &huge[..], b"abc"].concat());
        assert!(matches!(opened, Err(PayloadError::Value(_))), "{kind}: {opened:?}");
    }
    // 300 MB from three bytes; more than the limit.
    let compressed = payload(&[0, 0xc3, 3, 0x80, 0x12, 0, 0, 0, 0, b'a', 0xe0]);
    let corrupt = matches!(compressed, Err(PayloadError::Value(RdbError::Corrupt { .. })));
    assert!(corrupt, "{compressed:?}");
    let large = open_payload(&payload_of(&Value::String(vec![7; 2 << 20]), true), 1 << 20);
    assert!(matches!(large, Err(PayloadError::Value(RdbError::TooLarge { .. }))), "{large:?}");
    for short in [&b""[..], b"123456789", &[0; 10]] {
        assert!(open_payload(short, 1 << 20).is_err());
    }
    let mut newer = vec![0, 1, b'a', 13, 0];
    newer.extend(crc64(0, &newer).to_le_bytes());
    assert!(matches!(open_payload(&newer, 1 << 20), Err(PayloadError::Foot)));
}

/// A ziplist of these entries, each with its own head.
fn ziplist(entries: &[&[u8]]) -> Vec<u8> {
    let mut out = vec![0; 10];
    let (mut before, mut tail) = (0, 10);
    for entry in entries {
        tail = out.len();
        match before {
            short @ ..254 => out.push(short as u8),
            long => {
                out.push(254);
                out.extend((long as u32).to_le_bytes());
            }
        }
        out.extend_from_slice(entry);
        before = out.len() - tail;
    }
    out.push(255);
    let len = out.len() as u32;
    out[..4].copy_from_slice(&len.to_le_bytes());
    out[4..8].copy_from_slice(&(tail as u32).to_le_bytes());
    out[8..10].copy_from_slice(&(entries.len() as u16).to_le_bytes());
    out
}

#[test]
fn hashes_of_expiring_fields_are_read_in_each_of_their_forms() {
    let open = |kind: u8, parts: &[&[u8]]| {
        let mut payload = [&[kind][..], &parts.concat()].concat();
        seal_payload(&mut payload);
        open_payload(&payload, 1 << 20)
    };
    let at_ms = 5_000_000_000_000u64;
    let first = at_ms.to_le_bytes();
    let fields: Strings = ["a", "1", "b", "2", "c", "3"].iter().collect();
    let want = Value::ExpiringHash(fields, vec![Some(at_ms), None, Some(at_ms + 9)]);
    // Times are relative to the first one, plus one.
    let relative = b"\x03\x01\x01a\xc0\x01\x00\x01b\xc0\x02\x0a\x01c\xc0\x03";
    assert_eq!(open(24, &[&first, relative]).unwrap(), want);
    let number = |at_ms: u64| [&[0x81][..], &at_ms.to_be_bytes()].concat();
    let (own, last) = (number(at_ms), number(at_ms + 9));
    let absolute = [b"\x03", &own[..], b"\x01a\x011", b"\x00\x01b\x012", &last, b"\x01c\x013"];
    assert_eq!(open(22, &absolute).unwrap(), want);
    let time = |at_ms: u64| [&[0xf4][..], &at_ms.to_le_bytes(), &[9]].concat();
    let entries = [
        &b"\x81a\x02\x01\x01"[..],
        &time(at_ms),
        b"\x81b\x02\x02\x01\x00\x01\x81c\x02\x03\x01",
        &time(at_ms + 9),
    ];
    let entries = entries.concat();
    let len = (6 + entries.len() + 1) as u8;
    let pack = [&[len, len, 0, 0, 0, 9, 0][..], &entries, &[0xff]].concat();
    assert_eq!(open(25, &[&first, &pack]).unwrap(), want);
    assert_eq!(open(23, &[&pack]).unwrap(), want);
    // A time that is none; a field twice; a field without a time.
    assert!(open(22, &[b"\x01", &number(1 << 48), b"\x01a\x011"]).is_err());
    assert!(open(24, &[&u64::MAX.to_le_bytes(), b"\x01\x02\x01a\x011"]).is_err());
    assert!(open(24, &[&first, b"\x02\x01\x01a\x011\x00\x01a\x012"]).is_err());
    let short = [12, 12, 0, 0, 0, 2, 0, 0x81, b'a', 2, 1, 1, 0xff];
    assert!(open(23, &[&short]).is_err());
}

#[test]
fn values_of_older_versions_are_read() {
    let open = |kind: u8, packed: &[&[u8]]| {
        let mut payload = vec![kind];
        for part in packed {
            payload.extend([0x40 | (part.len() >> 8) as u8, part.len() as u8]);
            payload.extend_from_slice(part);
        }
        seal_payload(&mut payload);
        open_payload(&payload, 1 << 20)
    };
    let all = |strings: &[&str]| strings.iter().collect::<Strings>();
    let long = [&[0x41, 44][..], &[b'x'; 300]].concat();
    let pieces =
        [b"\x03one", &[0xfe, 0xff][..], &[0xf1], &[0xc0, 0, 0x80], &long, &[0xf0, 1, 0, 0]];
    let list = ziplist(&pieces);
    let want = all(&["one", "-1", "0", "-32768", &"x".repeat(300), "1"]);
    assert_eq!(open(10, &[&list]).unwrap(), Value::List(want.clone()));
    let fields = open(13, &[&list]).unwrap();
    assert_eq!(fields, Value::Hash(want));
    let scores = ziplist(&[b"\x01a", &[0xf3], b"\x01b", b"\x041e22"]);
    let sorted = Value::Sorted(all(&["a", "b"]), vec![2.0, 1e22]);
    assert_eq!(open(12, &[&scores]).unwrap(), sorted);
    let map = b"\x02\x01a\x03\x00one\x02bc\x00\x02..\xff";
    assert_eq!(open(9, &[map]).unwrap(), Value::Hash(all(&["a", "one", "bc", ""])));
    let ints = [2u32.to_le_bytes(), 2u32.to_le_bytes()].concat();
    let ints = [&ints[..], &[0xff, 0xff, 5, 0]].concat();
    assert_eq!(open(11, &[&ints]).unwrap(), Value::Set(all(&["-1", "5"])));
    let texts = [3, 2, 1, b'a', 4, b'-', b'2', b'.', b'5', 1, b'b', 255];
    let mut payload = texts.to_vec();
    seal_payload(&mut payload);
    let sorted = Value::Sorted(all(&["a", "b"]), vec![-2.5, f64::NEG_INFINITY]);
    assert_eq!(open_payload(&payload, 1 << 20).unwrap(), sorted);

    // What differs from that by a byte is refused.
    for at in 0..list.len() {
        let mut bad = list.clone();
        bad[at] = bad[at].wrapping_add(1);
        if let Ok(Value::List(found)) = open(10, &[&bad]) {
            assert_eq!(found.len(), pieces.len(), "byte {at}");
        }
    }
    assert!(open(9, &[b"\x03\x01a\x03\x00one\x02bc\x00\x02..\xff"]).is_err());
    assert!(open(9, &[b"\x02\x01a\x03\x00one\x01a\x00\x00\xff"]).is_err(), "a field twice");
    let falling = [2u32.to_le_bytes(), 2u32.to_le_bytes()].concat();
    assert!(open(11, &[&[&falling[..], &[5, 0, 5, 0]].concat()]).is_err());
    assert!(open(12, &[&ziplist(&[b"\x01a", b"\x01b"])]).is_err(), "a score that is none");
    assert!(open(13, &[&ziplist(&[b"\x01a"])]).is_err(), "a field without a value");
    let module = [&[7, 0x81][..], &0x1234_5678_9abc_def0u64.to_be_bytes(), &[0]].concat();
    let mut payload = module;
    seal_payload(&mut payload);
    let refused = open_payload(&payload, 1 << 20).unwrap_err().to_string();
    assert!(refused.contains("module type \"EjRWeJq83\""), "{refused}");
}
