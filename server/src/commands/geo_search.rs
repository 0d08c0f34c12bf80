//! Places around a place: GEOSEARCH and the older GEORADIUS.

use std::cmp::Ordering;

use perdura_store::{Edge, Entry, EventClass, Expiry, Sorted, Tx};

use super::call::{Call, Outcome};
use super::error::{CommandError, text};
use super::geo::{place_at, reply_distance, reply_place, unit_m};
use super::options::is;
use super::sorted::{Members, sorted_of};
use crate::geo::{Place, Shape};
use crate::number::parse_double;

/// How a command says what it searches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// GEORADIUS key longitude latitude radius unit
    Radius,
    /// GEORADIUSBYMEMBER key member radius unit
    ByMember,
    /// GEOSEARCH key ...
    Search,
    /// GEOSEARCHSTORE destination source ...
    SearchStore,
}

impl Form {
    /// The argument that is the set's key.
    fn key_at(self) -> usize {
        if self == Self::SearchStore { 2 } else { 1 }
    }

    /// The first argument of the options.
    fn options_at(self) -> usize {
        match self {
            Self::Radius => 6,
            Self::ByMember => 5,
            Self::Search => 2,
            Self::SearchStore => 3,
        }
    }

    fn is_search(self) -> bool {
        matches!(self, Self::Search | Self::SearchStore)
    }
}

/// What is searched, and what is wanted of it.
#[derive(Default)]
struct Query {
    /// The middle; `None` where that is a member of a set that is not there.
    middle: Option<Place>,
    /// Whether the middle was named as a member, or as a place.
    has_member: bool,
    has_place: bool,
    circle: Option<f64>,
    rectangle: Option<(f64, f64)>,
    /// Metres in the unit of what is answered.
    unit_m: f64,
    with_distance: bool,
    with_hash: bool,
    with_place: bool,
    /// The order of distances, and whether it is from the farthest down.
    down: Option<bool>,
    /// Most places that are wanted.
    count: Option<u64>,
    any: bool,
    /// The argument with the key that the result goes to.
    store_at: Option<usize>,
    stores_distance: bool,
}

/// A place that was found.
struct Found {
    member: Vec<u8>,
    score: f64,
    /// Metres from the middle.
    distance: f64,
}

impl Query {
    fn parse(
        call: &Call<'_, '_>,
        form: Form,
        can_store: bool,
        sorted: Option<&Sorted<'_>>,
    ) -> Result<Self, CommandError> {
        let mut query = Self { unit_m: 1.0, ..Self::default() };
        match form {
            Form::Radius => {
                query.middle = Some(place_at(call, 2)?);
                query.set_circle(call, 4)?;
            }
            Form::ByMember => {
                // Without a set, Redis does not look at the radius.
                if sorted.is_some() {
                    query.set_member(call, 2, sorted)?;
                    query.set_circle(call, 3)?;
                }
            }
            Form::Search => {}
            Form::SearchStore => query.store_at = Some(1),
        }
        query.parse_options(call, form, can_store, sorted)?;
        query.check(call, form)?;
        if query.count.is_some() && query.down.is_none() && !query.any {
            query.down = Some(false);
        }
        Ok(query)
    }

    fn parse_options(
        &mut self,
        call: &Call<'_, '_>,
        form: Form,
        can_store: bool,
        sorted: Option<&Sorted<'_>>,
    ) -> Outcome {
        let mut at = form.options_at();
        while at < call.args.len() {
            let (arg, behind) = (call.args.get(at), call.args.len() - at - 1);
            let old_form_stores = can_store && !form.is_search() && behind >= 1;
            let mut used = 0;
            match arg {
                _ if is(arg, "WITHDIST") => self.with_distance = true,
                _ if is(arg, "WITHHASH") => self.with_hash = true,
                _ if is(arg, "WITHCOORD") => self.with_place = true,
                _ if is(arg, "ANY") => self.any = true,
                _ if is(arg, "ASC") => self.down = Some(false),
                _ if is(arg, "DESC") => self.down = Some(true),
                _ if is(arg, "COUNT") && behind >= 1 => {
                    let count = u64::try_from(call.int(at + 1)?).ok().filter(|count| *count > 0);
                    self.count = Some(count.ok_or(CommandError::GeoCount)?);
                    used = 1;
                }
                _ if old_form_stores && (is(arg, "STORE") || is(arg, "STOREDIST")) => {
                    self.store_at = Some(at + 1);
                    self.stores_distance = is(arg, "STOREDIST");
                    used = 1;
                }
                _ if form == Form::SearchStore && is(arg, "STOREDIST") => {
                    self.stores_distance = true;
                }
                _ if form.is_search() => used = self.parse_search(call, at, behind, sorted)?,
                _ => return Err(CommandError::Syntax),
            }
            at += 1 + used;
        }
        Ok(())
    }

    /// Reads what only the newer form has. Returns how many arguments that took behind the first.
    fn parse_search(
        &mut self,
        call: &Call<'_, '_>,
        at: usize,
        behind: usize,
        sorted: Option<&Sorted<'_>>,
    ) -> Result<usize, CommandError> {
        match call.args.get(at) {
            arg if is(arg, "FROMMEMBER") && behind >= 1 && !self.has_place => {
                if sorted.is_some() {
                    self.set_member(call, at + 1, sorted)?;
                }
                self.has_member = true;
                Ok(1)
            }
            arg if is(arg, "FROMLONLAT") && behind >= 2 && !self.has_member => {
                self.middle = Some(place_at(call, at + 1)?);
                self.has_place = true;
                Ok(2)
            }
            arg if is(arg, "BYRADIUS") && behind >= 2 && self.rectangle.is_none() => {
                self.set_circle(call, at + 1)?;
                Ok(2)
            }
            arg if is(arg, "BYBOX") && behind >= 3 && self.circle.is_none() => {
                let length = |at, error| parse_double(call.args.get(at)).ok_or(error);
                let width = length(at + 1, CommandError::GeoWidth)?;
                let height = length(at + 2, CommandError::GeoHeight)?;
                if width < 0.0 || height < 0.0 {
                    return Err(CommandError::GeoBoxNegative);
                }
                self.unit_m = unit_m(call.args.get(at + 3))?;
                self.rectangle = Some((width, height));
                Ok(3)
            }
            _ => Err(CommandError::Syntax),
        }
    }

    fn set_member(
        &mut self,
        call: &Call<'_, '_>,
        at: usize,
        sorted: Option<&Sorted<'_>>,
    ) -> Outcome {
        let score = sorted.and_then(|sorted| sorted.score(call.args.get(at)));
        self.middle = Some(Place::of_score(score.ok_or(CommandError::GeoMember)?));
        Ok(())
    }

    fn set_circle(&mut self, call: &Call<'_, '_>, at: usize) -> Outcome {
        let radius = parse_double(call.args.get(at)).ok_or(CommandError::GeoRadius)?;
        if radius < 0.0 {
            return Err(CommandError::GeoRadiusNegative);
        }
        self.unit_m = unit_m(call.args.get(at + 1))?;
        self.circle = Some(radius);
        Ok(())
    }

    fn check(&self, call: &Call<'_, '_>, form: Form) -> Outcome {
        if self.store_at.is_some() && (self.with_distance || self.with_hash || self.with_place) {
            let what = match form {
                Form::SearchStore => "GEOSEARCHSTORE",
                _ => "STORE option in GEORADIUS",
            };
            return Err(CommandError::GeoStoreWith(what));
        }
        let name = || text(call.args.get(0), 128);
        if form.is_search() && !self.has_member && !self.has_place {
            return Err(CommandError::GeoFrom(name()));
        }
        if form.is_search() && self.circle.is_none() && self.rectangle.is_none() {
            return Err(CommandError::GeoBy(name()));
        }
        if self.any && self.count.is_none() {
            return Err(CommandError::GeoAny);
        }
        Ok(())
    }

    fn shape(&self) -> Option<Shape> {
        let circle = self.circle.map(|radius| Shape::Circle { radius: radius * self.unit_m });
        circle.or_else(|| {
            let (width, height) = self.rectangle?;
            Some(Shape::Box { width: width * self.unit_m, height: height * self.unit_m })
        })
    }

    /// The places that are wanted, in order.
    fn find(&self, sorted: &Sorted<'_>) -> Vec<Found> {
        let mut found = Vec::new();
        let Some((middle, shape)) = self.middle.zip(self.shape()) else { return found };
        let most = self.count.map_or(usize::MAX, |count| count as usize);
        let enough = if self.any { most } else { usize::MAX };
        for scores in middle.ranges(shape) {
            let edge = |score| Edge::Score { score, after: false };
            let mut rank = sorted.members_before(&edge(scores.start));
            let end = sorted.members_before(&edge(scores.end));
            while rank < end && found.len() < enough {
                let until = end.min(rank + MEMBERS_AT_A_TIME);
                sorted.for_each(rank..until, false, &mut |name, score| {
                    let distance = middle.distance_within(shape, Place::of_score(score));
                    if let Some(distance) = distance.filter(|_| found.len() < enough) {
                        found.push(Found { member: name.to_vec(), score, distance });
                    }
                });
                rank = until;
            }
        }
        if let Some(down) = self.down {
            let order = |a: &Found, b: &Found| a.distance.partial_cmp(&b.distance);
            found.sort_by(|a, b| {
                let order = order(a, b).unwrap_or(Ordering::Equal);
                if down { order.reverse() } else { order }
            });
        }
        found.truncate(most);
        found
    }

    fn reply(&self, call: &mut Call<'_, '_>, found: &[Found]) {
        let options = [self.with_distance, self.with_hash, self.with_place];
        let parts = options.iter().filter(|option| **option).count();
        call.reply.array(found.len());
        for Found { member, score, distance } in found {
            if parts > 0 {
                call.reply.array(parts + 1);
            }
            call.reply.bulk(member);
            if self.with_distance {
                reply_distance(call.reply, distance / self.unit_m);
            }
            if self.with_hash {
                call.reply.int(*score as i64);
            }
            if self.with_place {
                reply_place(call.reply, Place::of_score(*score));
            }
        }
    }
}

/// Members that are looked at before a search can end early.
const MEMBERS_AT_A_TIME: u64 = 64;

/// GEORADIUS key longitude latitude radius unit [option ...] [STORE key | STOREDIST key]
pub(super) fn georadius(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    search_and_store(call, tx, Form::Radius)
}

/// GEORADIUSBYMEMBER key member radius unit [option ...] [STORE key | STOREDIST key]
pub(super) fn georadiusbymember(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    search_and_store(call, tx, Form::ByMember)
}

/// GEOSEARCHSTORE destination source [option ...] [STOREDIST]
pub(super) fn geosearchstore(call: &mut Call<'_, '_>, tx: &mut Tx<'_>) -> Outcome {
    search_and_store(call, tx, Form::SearchStore)
}

/// GEORADIUS_RO key longitude latitude radius unit [option ...]
pub(super) fn georadius_ro(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    search(call, entry, Form::Radius)
}

/// GEORADIUSBYMEMBER_RO key member radius unit [option ...]
pub(super) fn georadiusbymember_ro(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    search(call, entry, Form::ByMember)
}

/// GEOSEARCH key FROMMEMBER member | FROMLONLAT longitude latitude BYRADIUS radius unit | BYBOX
/// width height unit [ASC | DESC] [COUNT count [ANY]] [WITHCOORD] [WITHDIST] [WITHHASH]
pub(super) fn geosearch(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>) -> Outcome {
    search(call, entry, Form::Search)
}

fn search(call: &mut Call<'_, '_>, entry: Option<&Entry<'_>>, form: Form) -> Outcome {
    let sorted = sorted_of(entry)?;
    let query = Query::parse(call, form, false, sorted.as_ref())?;
    let found = sorted.map_or_else(Vec::new, |sorted| query.find(&sorted));
    query.reply(call, &found);
    Ok(())
}

fn search_and_store(call: &mut Call<'_, '_>, tx: &mut Tx<'_>, form: Form) -> Outcome {
    let sorted = tx.sorted(call.key(form.key_at()))?;
    let query = Query::parse(call, form, true, sorted.as_ref())?;
    let found = sorted.map_or_else(Vec::new, |sorted| query.find(&sorted));
    let Some(at) = query.store_at else {
        query.reply(call, &found);
        return Ok(());
    };
    let score = |found: &Found| match query.stores_distance {
        true => found.distance / query.unit_m,
        false => found.score,
    };
    let members: Members = found.iter().map(|found| (found.member.clone(), score(found))).collect();
    let (to, was_there) = (call.key(at), tx.was_there(call.key(at)));
    tx.sorted_put(to, &members, Expiry::None)?;
    let event = if form == Form::SearchStore { "geosearchstore" } else { "georadiusstore" };
    tx.tell_stored(EventClass::SORTED, event, to, was_there);
    call.reply.len(members.len() as u64);
    Ok(())
}
