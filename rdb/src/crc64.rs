//! The checksum of dumps: CRC-64 with the polynomial of Jones, reflected, without inversions.

/// The polynomial, its bits reflected.
const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;

/// `TABLES[n][b]` is what byte `b` adds when `n` more bytes follow it.
static TABLES: [[u64; 256]; 8] = tables();

const fn tables() -> [[u64; 256]; 8] {
    let mut tables = [[0u64; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u64, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = before >> 8 ^ tables[0][(before & 255) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// The checksum of the bytes that have the checksum `crc` (0 for none), with `bytes` behind.
pub fn crc64(mut crc: u64, bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let mut eight = [0; 8];
        eight.copy_from_slice(word);
        let mixed = crc ^ u64::from_le_bytes(eight);
        crc = 0;
        for (place, table) in TABLES.iter().rev().enumerate() {
            crc ^= table[(mixed >> (8 * place) & 255) as usize];
        }
    }
    for byte in words.remainder() {
        crc = crc >> 8 ^ TABLES[0][((crc ^ u64::from(*byte)) & 255) as usize];
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_the_known_one_however_it_is_cut() {
        assert_eq!(crc64(0, b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        let bytes: Vec<u8> = (0..100u8).map(|n| n.wrapping_mul(37)).collect();
        for cut in 0..bytes.len() {
            assert_eq!(crc64(crc64(0, &bytes[..cut]), &bytes[cut..]), crc64(0, &bytes));
        }
    }
}
