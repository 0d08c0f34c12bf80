//! Places: sorted sets whose scores are geohashes.

use perdura_store::{Entry, EventClass, Tx};

use super::call::{Call, Outcome};
use super::error::CommandError;
use super::options::is;
use super::sorted::sorted_of;
use crate::geo::{LATITUDE_MAX, LONGITUDE_MAX, Place};
use crate::number::parse_double;
use crate::resp::Reply;

/// Metres in a unit of length.
pub(super) fn unit_m(arg: &[u8]) -> Result<f64, CommandError> {
    let units = [("M", 1.0), ("KM", 1000.0), ("FT", 0.3048), ("MI", 1609.34)];
    let found = units.iter().find(|(name, _)| is(arg, name));
    found.map(|(_, metres)| *metres).ok_or(CommandError::GeoUnit)
}

/// Reads the longitude at an argument, and the latitude behind it.
pub(super) fn place_at(call: &Call<'_, '_>, at: usize) -> Result<Place, CommandError> {
    let number = |at| parse_double(call.args.get(at)).ok_or(CommandError::NotFloat);
    let (longitude, latitude) = (number(at)?, number(at + 1)?);
    if longitude.abs() > LONGITUDE_MAX || latitude.abs() > LATITUDE_MAX {
        return Err(CommandError::GeoPlace { longitude, latitude });
    }
    Ok(Place { longitude, latitude })
}

/// Writes a coordinate with all digits of its number, up to 17 behind the point.
pub(super) fn reply_place(reply: &mut Reply<'_>, place: Place) {
    reply.array(2);
    for coordinate in [place.longitude, place.latitude] {
        let text = format!("{coordinate:.17}");
        reply.number(text.trim_end_matches('0').trim_end_matches('.'));
    }
}

/// Writes a distance with four digits behind the point.
pub(super) fn reply_distance(reply: &mut Reply<'_>, distance: f64) {
    let units = (distance * 10_000.0).round_ties_even() as u64;
    reply.bulk(format!("{}.{:04}", units / 10_000, units % 10_000).as_bytes());
}

/// GEOADD key [NX | XX] [CH] longitude latitude member [longitude latitude member ...]
pub(super) fn geoadd(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    let (mut nx, mut xx, mut ch, mut first) = (false, false, false, 2);
    while first < call.args.len() {
        match call.args.get(first) {
            arg if is(arg, "NX") => nx = true,
            arg if is(arg, "XX") => xx = true,
            arg if is(arg, "CH") => ch = true,
            _ => break,
        }
        first += 1;
    }
    let count = call.args.len() - first;
    if count == 0 || !count.is_multiple_of(3) || (nx && xx) {
        return Err(CommandError::Syntax);
    }
    let places = (first..call.args.len()).step_by(3).map(|at| place_at(call, at));
    let places = places.collect::<Result<Vec<Place>, CommandError>>()?;
    let key = call.key(1);
    let (mut added, mut changed) = (0, 0);
    for at in call.step_of(first, 3).step_by(3) {
        let (place, member) = (&places[(at - first) / 3], call.args.get(at + 2));
        let old = tx.sorted(key)?.and_then(|sorted| sorted.score(member));
        if (nx && old.is_some()) || (xx && old.is_none()) {
            continue;
        }
        let score = place.score();
        tx.sorted_add(key, member, score)?;
        added += i64::from(old.is_none());
        changed += i64::from(old.is_some_and(|old| old != score));
    }
    if added + changed > 0 {
        tx.tell(EventClass::SORTED, "zadd", key);
    }
    call.reply.int(call.steps.count(if ch { added + changed } else { added }));
    Ok(())
}

/// GEODIST key member1 member2 [M | KM | FT | MI]
pub(super) fn geodist(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    let metres = match call.args.len() {
        4 => 1.0,
        5 => unit_m(call.args.get(4))?,
        _ => return Err(CommandError::Syntax),
    };
    let sorted = sorted_of(entry)?;
    let place = |at| sorted.and_then(|sorted| sorted.score(call.args.get(at))).map(Place::of_score);
    match place(2).zip(place(3)) {
        Some((a, b)) => reply_distance(call.reply, a.distance_m(b) / metres),
        None => call.reply.null(),
    }
    Ok(())
}

/// GEOHASH key [member [member ...]]
pub(super) fn geohash(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    let sorted = sorted_of(entry)?;
    call.reply.array(call.args.len() - 2);
    for member in call.args.from(2) {
        match sorted.and_then(|sorted| sorted.score(member)) {
            Some(score) => call.reply.bulk(&Place::of_score(score).letters()),
            None => call.reply.null(),
        }
    }
    Ok(())
}

/// GEOPOS key [member [member ...]]
pub(super) fn geopos(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    let sorted = sorted_of(entry)?;
    call.reply.array(call.args.len() - 2);
    for member in call.args.from(2) {
        match sorted.and_then(|sorted| sorted.score(member)) {
            Some(score) => reply_place(call.reply, Place::of_score(score)),
            None => call.reply.null_array(),
        }
    }
    Ok(())
}
