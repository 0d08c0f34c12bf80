//! Places on Earth as numbers: a geohash of 52 bits, exact in a score of a sorted set, as Redis
//! makes them.
//!
//! A hash of `step` x 2 bits names one of 4^step cells: longitude and latitude are halved in turn,
//! and the bits say which half, the latitude's in the even places. Cells that lie near each other
//! are few ranges of scores.

/// Radius of the Earth that distances are reckoned with, metres.
const EARTH_RADIUS_M: f64 = 6_372_797.560_856;
/// Half of the circumference in the Mercator projection, metres.
const MERCATOR_MAX_M: f64 = 20_037_726.37;
pub(crate) const LONGITUDE_MAX: f64 = 180.0;
/// The Mercator projection ends here.
pub(crate) const LATITUDE_MAX: f64 = 85.051_128_78;
/// Halvings of longitude and latitude in a score.
const STEP_MAX: u32 = 26;

/// A place, in degrees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Place {
    pub longitude: f64,
    pub latitude: f64,
}

/// What is searched around a place: lengths are in metres.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape {
    Circle { radius: f64 },
    Box { width: f64, height: f64 },
}

/// One cell: the numbers of its column and its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cell {
    column: u64,
    row: u64,
    step: u32,
}

/// Ends of a cell or of a searched area.
struct Bounds {
    west: f64,
    east: f64,
    south: f64,
    north: f64,
}

fn radians(degrees: f64) -> f64 {
    degrees * (std::f64::consts::PI / 180.0)
}

fn degrees(radians: f64) -> f64 {
    radians / (std::f64::consts::PI / 180.0)
}

/// Spreads the lower 32 bits over the even places.
fn spread(bits: u64) -> u64 {
    (0..32).fold(0, |sum, at| sum | (bits >> at & 1) << (2 * at))
}

/// Gathers the bits in the even places.
fn gather(bits: u64) -> u64 {
    (0..32).fold(0, |sum, at| sum | (bits >> (2 * at) & 1) << at)
}

impl Cell {
    fn of(place: Place, step: u32, latitude_max: f64) -> Self {
        let cells = (1u64 << step) as f64;
        let part = |value: f64, max: f64| ((value + max) / (max + max) * cells) as u64;
        let column = part(place.longitude, LONGITUDE_MAX);
        Self { column, row: part(place.latitude, latitude_max), step }
    }

    fn bits(self) -> u64 {
        spread(self.row) | spread(self.column) << 1
    }

    fn bounds(self) -> Bounds {
        let cells = (1u64 << self.step) as f64;
        let end = |number: u64, max: f64| -max + number as f64 / cells * (max + max);
        Bounds {
            west: end(self.column, LONGITUDE_MAX),
            east: end(self.column + 1, LONGITUDE_MAX),
            south: end(self.row, LATITUDE_MAX),
            north: end(self.row + 1, LATITUDE_MAX),
        }
    }

    /// The cell so many columns to the east and rows to the north; the last is followed by the
    /// first.
    fn beside(self, east: i64, north: i64) -> Self {
        let mask = (1 << self.step) - 1;
        let column = self.column.wrapping_add_signed(east) & mask;
        Self { column, row: self.row.wrapping_add_signed(north) & mask, ..self }
    }

    /// The scores of all places in the cell.
    fn scores(self) -> std::ops::Range<f64> {
        let shift = 2 * (STEP_MAX - self.step);
        (self.bits() << shift) as f64..((self.bits() + 1) << shift) as f64
    }
}

impl Place {
    /// The score of a place within the limits.
    pub fn score(self) -> f64 {
        Cell::of(self, STEP_MAX, LATITUDE_MAX).bits() as f64
    }

    /// The middle of the cell with this score.
    pub fn of_score(score: f64) -> Self {
        let bits = score as i64 as u64;
        let cell = Cell { column: gather(bits >> 1), row: gather(bits), step: STEP_MAX };
        let Bounds { west, east, south, north } = cell.bounds();
        Self {
            longitude: ((west + east) / 2.0).clamp(-LONGITUDE_MAX, LONGITUDE_MAX),
            latitude: ((south + north) / 2.0).clamp(-LATITUDE_MAX, LATITUDE_MAX),
        }
    }

    /// The place as the eleven letters that others write: their latitudes go from -90 to 90. The
    /// last letter would need more bits than a score has.
    pub fn letters(self) -> [u8; 11] {
        const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        let bits = Cell::of(self, STEP_MAX, 90.0).bits();
        std::array::from_fn(|at| match at {
            10 => ALPHABET[0],
            _ => ALPHABET[(bits >> (52 - (at + 1) * 5)) as usize & 0x1f],
        })
    }

    /// The distance by the haversine formula, metres.
    pub fn distance_m(self, other: Self) -> f64 {
        let v = ((radians(other.longitude) - radians(self.longitude)) / 2.0).sin();
        let (north, south) = (radians(self.latitude), radians(other.latitude));
        if v == 0.0 {
            return EARTH_RADIUS_M * (south - north).abs();
        }
        let u = ((south - north) / 2.0).sin();
        let a = u * u + north.cos() * south.cos() * v * v;
        2.0 * EARTH_RADIUS_M * a.sqrt().asin()
    }

    /// The distance to a place that lies in the shape around this one, metres.
    pub fn distance_within(self, shape: Shape, other: Self) -> Option<f64> {
        let is_within = match shape {
            Shape::Circle { radius } => self.distance_m(other) <= radius,
            Shape::Box { width, height } => {
                let beside = Self { longitude: self.longitude, latitude: other.latitude };
                let north =
                    EARTH_RADIUS_M * (radians(self.latitude) - radians(other.latitude)).abs();
                north <= height / 2.0 && other.distance_m(beside) <= width / 2.0
            }
        };
        is_within.then(|| self.distance_m(other))
    }

    /// The ranges of scores in which the places lie that a shape around this one has, in the order
    /// in which Redis looks at them.
    pub fn ranges(self, shape: Shape) -> Vec<std::ops::Range<f64>> {
        let (wanted, reach) = (self.bounds_of(shape), shape.reach());
        let mut cell = Cell::of(self, steps(reach, self.latitude), LATITUDE_MAX);
        let is_short = |cell: Cell| {
            cell.beside(0, 1).bounds().north < wanted.north
                || cell.beside(0, -1).bounds().south > wanted.south
                || cell.beside(1, 0).bounds().east < wanted.east
                || cell.beside(-1, 0).bounds().west > wanted.west
        };
        if cell.step > 1 && is_short(cell) {
            cell = Cell::of(self, cell.step - 1, LATITUDE_MAX);
        }
        let around = cell.bounds();
        let is_useless = |east: i64, north: i64| {
            (north < 0 && around.south < wanted.south)
                || (north > 0 && around.north > wanted.north)
                || (east < 0 && around.west < wanted.west)
                || (east > 0 && around.east > wanted.east)
        };
        let (mut cells, mut last): (Vec<Cell>, Option<Cell>) = (Vec::new(), None);
        for (number, (east, north)) in AROUND.into_iter().enumerate() {
            let next = cell.beside(east, north);
            // Where the Earth has few cells, neighbours can be the same one.
            if (cell.step >= 2 && is_useless(east, north)) || last == Some(next) {
                continue;
            }
            cells.push(next);
            last = (number > 0).then_some(next);
        }
        cells.into_iter().map(Cell::scores).collect()
    }

    fn bounds_of(self, shape: Shape) -> Bounds {
        let (width, height) = match shape {
            Shape::Circle { radius } => (radius, radius),
            Shape::Box { width, height } => (width / 2.0, height / 2.0),
        };
        let north = degrees(height / EARTH_RADIUS_M);
        // Meridians lie nearest to each other on the side of the pole.
        let polar = if self.latitude < 0.0 { self.latitude - north } else { self.latitude + north };
        let east = degrees(width / EARTH_RADIUS_M / radians(polar).cos());
        Bounds {
            west: self.longitude - east,
            east: self.longitude + east,
            south: self.latitude - north,
            north: self.latitude + north,
        }
    }
}

impl Shape {
    /// The greatest distance from the middle, metres.
    fn reach(self) -> f64 {
        match self {
            Self::Circle { radius } => radius,
            Self::Box { width, height } => {
                (width / 2.0 * (width / 2.0) + height / 2.0 * (height / 2.0)).sqrt()
            }
        }
    }
}

/// A cell and its eight neighbours: columns to the east, rows to the north.
const AROUND: [(i64, i64); 9] =
    [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];

/// Halvings after which a cell is about as large as what is searched.
fn steps(mut reach_m: f64, latitude: f64) -> u32 {
    if reach_m == 0.0 {
        return STEP_MAX;
    }
    let mut step = 1;
    while reach_m < MERCATOR_MAX_M {
        reach_m *= 2.0;
        step += 1;
    }
    step -= 2;
    // Cells are narrow near the poles.
    step -= i32::from(latitude.abs() > 66.0) + i32::from(latitude.abs() > 80.0);
    step.clamp(1, STEP_MAX as i32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const PALERMO: Place = Place { longitude: 13.361389, latitude: 38.115556 };
    const CATANIA: Place = Place { longitude: 15.087269, latitude: 37.502669 };

    #[test]
    fn scores_letters_and_distances_are_those_of_redis() {
        assert_eq!(PALERMO.score(), 3_479_099_956_230_698.0);
        assert_eq!(CATANIA.score(), 3_479_447_370_796_909.0);
        let (a, b) = (Place::of_score(PALERMO.score()), Place::of_score(CATANIA.score()));
        assert_eq!(format!("{:.4}", a.distance_m(b)), "166274.1516");
        assert_eq!((&a.letters(), &b.letters()), (b"sqc8b49rny0", b"sqdtr74hyu0"));
    }

    #[test]
    fn every_place_of_a_shape_is_in_its_ranges() {
        let mut seed = 1u64;
        let mut draw = |max: f64| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            ((seed >> 11) as f64 / (1u64 << 53) as f64 * 2.0 - 1.0) * max
        };
        let mut within = 0;
        for _ in 0..200 {
            let middle = Place { longitude: draw(150.0), latitude: draw(60.0) };
            let size = 10f64.powf(3.0 + draw(3.0));
            for shape in [Shape::Circle { radius: size }, Shape::Box { width: size, height: size }]
            {
                let ranges = middle.ranges(shape);
                for _ in 0..40 {
                    let near = degrees(size / EARTH_RADIUS_M);
                    let longitude = middle.longitude + draw(near * 1.5);
                    let other = Place { longitude, latitude: middle.latitude + draw(near) };
                    let is_place = other.longitude.abs() <= 180.0 && other.latitude.abs() <= 85.0;
                    let score = other.score();
                    if !is_place || middle.distance_within(shape, Place::of_score(score)).is_none()
                    {
                        continue;
                    }
                    within += 1;
                    assert!(ranges.iter().any(|range| range.contains(&score)), "{middle:?}");
                }
            }
        }
        assert!(within > 3_000, "{within}");
    }
}
