//! Requests compared with a table made from the protocol's text, and random bytes.

use proptest::prelude::*;

use super::*;
use crate::nbd::wire::command_flag;

const TERMS: Terms = Terms { capacity_bytes: 1 << 20, read_only: false, structured: true };

fn bytes(number: u16, flags: u16, offset: u64, len: u32) -> Vec<u8> {
    let mut bytes = REQUEST_MAGIC.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(number.to_be_bytes());
    bytes.extend(77u64.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes
}

fn judged(number: u16, flags: u16, offset: u64, len: u32, terms: &Terms) -> Result<Operation, u32> {
    let request = parse(&bytes(number, flags, offset, len), terms).unwrap().unwrap();
    assert_eq!(request.cookie, 77);
    request.asked.map_err(|refusal| refusal.code().number())
}

#[test]
fn each_mistake_earns_the_code_the_protocol_names() {
    use command::*;
    let read_only = Terms { read_only: true, ..TERMS };
    let simple = Terms { structured: false, ..TERMS };
    let (eperm, einval, enospc, enotsup) = (1, 22, 28, 95);
    let end = TERMS.capacity_bytes;
    let max = PAYLOAD_MAX_BYTES;
    let huge = Terms { capacity_bytes: 1 << 40, ..TERMS };
    type Case<'a> = (u16, u16, u64, u32, &'a Terms, Result<Operation, u32>);
    let cases: &[Case<'_>] = &[
        (READ, 0, 0, 4096, &TERMS, Ok(Operation::Read)),
        (READ, 0, end - 1, 1, &TERMS, Ok(Operation::Read)),
        (READ, 0, end - 1, 2, &TERMS, Err(einval)),
        (READ, 0, u64::MAX, 2, &TERMS, Err(einval)),
        (READ, 0, 0, 0, &TERMS, Err(einval)),
        (READ, 0, 0, max, &huge, Ok(Operation::Read)),
        (READ, 0, 0, max + 1, &huge, Err(einval)),
        (READ, command_flag::DF, 0, 1, &TERMS, Ok(Operation::Read)),
        (READ, command_flag::DF, 0, 1, &simple, Err(einval)),
        (READ, command_flag::FUA, 0, 1, &TERMS, Ok(Operation::Read)),
        (READ, command_flag::NO_HOLE, 0, 1, &TERMS, Err(einval)),
        (READ, 0, 0, 1, &read_only, Ok(Operation::Read)),
        (WRITE, 0, end, 1, &TERMS, Err(enospc)),
        (WRITE, 0, u64::MAX, u32::MAX, &TERMS, Err(einval)),
        (WRITE, 0, 0, max + 1, &huge, Err(einval)),
        (WRITE, 1 << 15, 0, 1, &TERMS, Err(einval)),
        (WRITE, 0, 0, 1, &read_only, Err(eperm)),
        (WRITE, command_flag::FUA, 0, 1, &TERMS, Ok(Operation::Write)),
        (TRIM, 0, end, 1, &TERMS, Err(einval)),
        (TRIM, 0, 0, 1, &read_only, Err(eperm)),
        (TRIM, 0, 0, max + 1, &huge, Ok(Operation::Trim)),
        (WRITE_ZEROES, 0, 1, end as u32, &TERMS, Err(enospc)),
        (WRITE_ZEROES, 0, 0, 1, &read_only, Err(eperm)),
        (
            WRITE_ZEROES,
            command_flag::FAST_ZERO,
            0,
            1,
            &TERMS,
            Ok(Operation::WriteZeroes { provisioned: false }),
        ),
        (
            WRITE_ZEROES,
            command_flag::NO_HOLE,
            0,
            1,
            &TERMS,
            Ok(Operation::WriteZeroes { provisioned: true }),
        ),
        (WRITE_ZEROES, command_flag::NO_HOLE | command_flag::FAST_ZERO, 0, 1, &TERMS, Err(enotsup)),
        (FLUSH, 0, 0, 0, &read_only, Ok(Operation::Flush)),
        (FLUSH, 0, 0, 1, &TERMS, Err(einval)),
        (DISC, 0xffff, 9, 9, &TERMS, Ok(Operation::Disconnect)),
        // Numbers of CACHE, BLOCK_STATUS and RESIZE, which are not offered.
        (5, 0, 0, 1, &TERMS, Err(einval)),
        (7, 0, 0, 1, &TERMS, Err(einval)),
        (8, 0, 0, 1, &TERMS, Err(einval)),
        (0xffff, 0, 0, 1, &TERMS, Err(einval)),
    ];
    for (number, flags, offset, len, terms, expected) in cases {
        let found = judged(*number, *flags, *offset, *len, terms);
        assert_eq!(found, *expected, "command {number}, flags {flags:#x}, {len} at {offset}");
    }
}

#[test]
fn garbage_is_told_by_its_first_byte_and_half_a_request_is_waited_for() {
    assert!(parse(b"G", &TERMS).is_err());
    assert!(parse(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", &TERMS).is_err());
    let whole = bytes(command::READ, 0, 0, 1);
    for len in 0..whole.len() {
        assert_eq!(parse(&whole[..len], &TERMS), Ok(None), "{len}");
    }
}

proptest! {
    #[test]
    fn what_is_accepted_lies_within_the_export(
        number in 0u16..9, flags in 0u16..32, offset in any::<u64>(), shift in 0u32..64,
        len in any::<u32>(), len_shift in 0u32..32,
        read_only in any::<bool>(), structured in any::<bool>(),
    ) {
        let terms = Terms { read_only, structured, ..TERMS };
        let (offset, len) = (offset >> shift, len >> len_shift);
        let request = parse(&bytes(number, flags, offset, len), &terms).unwrap().unwrap();
        prop_assert_eq!(request.payload_bytes, if number == command::WRITE { len } else { 0 });
        match request.asked {
            Ok(Operation::Flush | Operation::Disconnect) | Err(_) => {}
            Ok(operation) => {
                let end = u128::from(offset) + u128::from(len);
                prop_assert!(end <= u128::from(terms.capacity_bytes));
                prop_assert!(len > 0 && (operation == Operation::Read || !read_only));
            }
        }
    }

    #[test]
    fn any_bytes_are_a_request_or_an_error(input in proptest::collection::vec(any::<u8>(), 0..64)) {
        let known = input.len().min(4);
        let begins = input[..known] == REQUEST_MAGIC.to_be_bytes()[..known];
        match parse(&input, &TERMS) {
            Err(_) => prop_assert!(!begins),
            Ok(found) => prop_assert!(begins && found.is_some() == (input.len() >= REQUEST_BYTES)),
        }
    }
}
