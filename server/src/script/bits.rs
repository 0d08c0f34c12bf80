//! The library `bit`: operations on numbers of 32 bits.

use mlua::Value;

use super::bind::{Answer, Arguments, Failure, Function};

/// The functions, by the names under which the prelude finds them.
pub(crate) const FUNCTIONS: [(&str, Function); 12] = [
    ("bit_tobit", |args| answer(bits(args, 0)?)),
    ("bit_bnot", |args| answer(!bits(args, 0)?)),
    ("bit_band", |args| fold(args, |a, b| a & b)),
    ("bit_bor", |args| fold(args, |a, b| a | b)),
    ("bit_bxor", |args| fold(args, |a, b| a ^ b)),
    ("bit_lshift", |args| shift(args, |bits, by| bits << by)),
    ("bit_rshift", |args| shift(args, |bits, by| bits >> by)),
    ("bit_arshift", |args| shift(args, |bits, by| ((bits as i32) >> by) as u32)),
    ("bit_rol", |args| shift(args, u32::rotate_left)),
    ("bit_ror", |args| shift(args, u32::rotate_right)),
    ("bit_bswap", |args| answer(bits(args, 0)?.swap_bytes())),
    ("bit_tohex", to_hex),
];

/// The lowest 32 bits of a number, rounded to a whole one as its own format rounds.
fn bits(args: &Arguments<'_>, index: usize) -> Result<u32, Failure> {
    // Adding 2^52 + 2^51 leaves the bits of the whole number at the lower end.
    const SHIFT: f64 = 6_755_399_441_055_744.0;
    Ok((args.number(index)? + SHIFT).to_bits() as u32)
}

fn answer(bits: u32) -> Answer {
    Ok(vec![Value::Integer(i64::from(bits as i32))])
}

fn fold(args: &Arguments<'_>, op: fn(u32, u32) -> u32) -> Answer {
    let first = bits(args, 0)?;
    let all = (1..args.len()).try_fold(first, |all, index| Ok(op(all, bits(args, index)?)));
    answer(all.map_err(|failure: Failure| failure)?)
}

fn shift(args: &Arguments<'_>, op: fn(u32, u32) -> u32) -> Answer {
    answer(op(bits(args, 0)?, bits(args, 1)? & 31))
}

fn to_hex(args: &Arguments<'_>) -> Answer {
    let number = bits(args, 0)?;
    let digits = if args.len() < 2 { 8 } else { bits(args, 1)? as i32 };
    let (count, is_upper) = (digits.unsigned_abs().min(8) as usize, digits < 0);
    let text = if is_upper { format!("{number:08X}") } else { format!("{number:08x}") };
    Ok(vec![Value::String(args.lua.create_string(&text[8 - count..])?)])
}
