//! Recognition of faces by eigenfaces (Turk and Pentland). A database is made from training images;
//! then each other image is projected and compared with all images in the database.
//!
//! The database is read as a whole for each question, as the paper's program does, in one call of
//! about a mebibyte.

use nalgebra::{DMatrix, SymmetricEigen};
use rand::Rng;

use crate::access::Access;
use crate::error::{AppError, Result};
use crate::kinds::{App, Named, Random, Size, random};

const NAME: &str = "faces";
const SIDE: usize = 64;
const PIXELS: usize = SIDE * SIDE;
const IMAGES_A_PERSON: usize = 5;
const DATABASE: &str = "out-database";
const DATABASE_MAGIC: &[u8; 8] = b"EIGFACE1";
/// Bytes of the head: magic, number of images, number of faces.
const DATABASE_HEAD_BYTES: usize = 16;

/// The application: training and recognition.
#[derive(Debug)]
pub struct Faces {
    persons: usize,
    /// Number of eigenvectors kept. With 60 of 150 images the database has the paper's megabyte.
    eigenfaces: usize,
    questions: usize,
    seed: u64,
}

impl Faces {
    /// The number of questions follows the size. The paper's 150 images are used in all sizes but
    /// the tests'.
    pub fn new(size: Size, seed: u64) -> Self {
        let (persons, eigenfaces, questions) = match size {
            Size::Small => (8, 16, 16),
            Size::Medium => (30, 60, 300),
            Size::Paper => (30, 60, 765),
        };
        Self { persons, eigenfaces, questions, seed }
    }

    fn trained(&self) -> usize {
        self.persons * IMAGES_A_PERSON
    }

    /// Person and image of a question. The images were not used for training.
    fn question(&self, number: usize) -> (usize, Vec<u8>) {
        let person = number % self.persons;
        (person, self.image(person, IMAGES_A_PERSON + number))
    }

    /// One image of a person. The person's seed draws the features; the image's seed draws
    /// position, light and noise.
    fn image(&self, person: usize, number: usize) -> Vec<u8> {
        let features: Features = Features::of(&mut random(self.seed, "person", person));
        let mut random = random(self.seed, "image", person * 1_000_003 + number);
        let [dx, dy]: [f32; 2] = random.random();
        let (dx, dy) = ((dx - 0.5) * 2.0, (dy - 0.5) * 2.0);
        let light = random.random_range(-0.15..0.15f32);
        let mut pixels = Vec::with_capacity(PIXELS);
        for y in 0..SIDE {
            for x in 0..SIDE {
                let u = (x as f32 + dx) / SIDE as f32 * 2.0 - 1.0;
                let v = (y as f32 + dy) / SIDE as f32 * 2.0 - 1.0;
                let noise = random.random_range(-0.04..0.04f32);
                let shade = features.shade(u, v) + light * u + noise;
                pixels.push((shade.clamp(0.0, 1.0) * 255.0) as u8);
            }
        }
        pixels
    }
}

/// The features that a drawn person's images have in common.
struct Features {
    skin: f32,
    hair: f32,
    hairline: f32,
    width: f32,
    eyes_apart: f32,
    eyes_height: f32,
    eye: f32,
    nose: f32,
    mouth_height: f32,
    mouth: f32,
}

impl Features {
    fn of(random: &mut Random) -> Self {
        let mut between = |low: f32, high: f32| random.random_range(low..high);
        Self {
            skin: between(0.45, 0.85),
            hair: between(0.02, 0.4),
            hairline: between(-0.75, -0.35),
            width: between(0.55, 0.85),
            eyes_apart: between(0.2, 0.42),
            eyes_height: between(-0.3, -0.05),
            eye: between(0.07, 0.14),
            nose: between(0.15, 0.4),
            mouth_height: between(0.35, 0.6),
            mouth: between(0.15, 0.4),
        }
    }

    /// Brightness of a point in the square from -1 to 1.
    fn shade(&self, u: f32, v: f32) -> f32 {
        let disc = |cu: f32, cv: f32, ru: f32, rv: f32| {
            ((u - cu) / ru).powi(2) + ((v - cv) / rv).powi(2) < 1.0
        };
        let eye = |side: f32| disc(side * self.eyes_apart, self.eyes_height, self.eye, 0.07);
        if !disc(0.0, 0.0, self.width, 0.95) {
            0.1
        } else if v < self.hairline {
            self.hair
        } else if eye(-1.0) || eye(1.0) {
            0.05
        } else if disc(0.0, self.mouth_height, self.mouth, 0.06) {
            self.skin * 0.5
        } else if disc(0.0, 0.1, 0.06, self.nose) {
            self.skin * 0.8
        } else {
            self.skin * (1.0 - 0.15 * u * u)
        }
    }
}

fn training(number: usize) -> String {
    format!("in-train-{number:04}")
}

fn asked(number: usize) -> String {
    format!("in-asked-{number:04}")
}

impl App for Faces {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> String {
        format!(
            "eigenfaces of {} images of {SIDE} x {SIDE}, {} kept; {} faces recognised",
            self.trained(),
            self.eigenfaces,
            self.questions
        )
    }

    fn inputs(&self) -> Result<Vec<Named>> {
        let trained = (0..self.trained()).map(|number| {
            (training(number), self.image(number / IMAGES_A_PERSON, number % IMAGES_A_PERSON))
        });
        let asked = (0..self.questions).map(|number| (asked(number), self.question(number).1));
        Ok(trained.chain(asked).collect())
    }

    fn run(&self, access: &dyn Access) -> Result<()> {
        train(access, self.trained(), self.eigenfaces)?;
        let mut results = access.put("out-recognised", self.questions * 16)?;
        for number in 0..self.questions {
            let mut image = access.get(&asked(number))?;
            let pixels = floats(image.whole(PIXELS)?);
            let mut file = access.get(DATABASE)?;
            let len_bytes = file.len_bytes();
            let database = Database::read(file.whole(len_bytes)?)?;
            let found = database.nearest(&pixels);
            let line = format!("{number} {}\n", found / IMAGES_A_PERSON);
            results.write(line.as_bytes())?;
        }
        results.finish()
    }
}

fn floats(pixels: &[u8]) -> Vec<f32> {
    pixels.iter().map(|&pixel| f32::from(pixel)).collect()
}

/// Makes the database: the mean, the eigenvectors of the largest eigenvalues, and the images'
/// coordinates.
fn train(access: &dyn Access, images: usize, eigenfaces: usize) -> Result<()> {
    let mut all = DMatrix::<f32>::zeros(PIXELS, images);
    for number in 0..images {
        let name = training(number);
        let mut input = access.get(&name)?;
        let pixels = input.whole(PIXELS)?;
        if pixels.len() != PIXELS {
            return Err(AppError::malformed(&name, format!("{} B, not {PIXELS}", pixels.len())));
        }
        for (into, &pixel) in all.column_mut(number).iter_mut().zip(pixels) {
            *into = f32::from(pixel);
        }
    }
    let mean = all.column_mean();
    for mut column in all.column_iter_mut() {
        column -= &mean;
    }
    // The large matrix has the same eigenvalues as the small one, and its eigenvectors follow from
    // the small one's.
    let small = SymmetricEigen::new(all.transpose() * &all);
    let mut order: Vec<usize> = (0..images).collect();
    order.sort_by(|&a, &b| small.eigenvalues[b].total_cmp(&small.eigenvalues[a]));
    let mut faces = DMatrix::<f32>::zeros(PIXELS, eigenfaces);
    for (mut face, &which) in faces.column_iter_mut().zip(&order) {
        face.copy_from(&(&all * small.eigenvectors.column(which)));
        let norm = face.norm().max(f32::MIN_POSITIVE);
        face /= norm;
    }
    let coordinates = faces.transpose() * &all;
    let floats_all = PIXELS + PIXELS * eigenfaces + eigenfaces * images;
    let mut output = access.put(DATABASE, DATABASE_HEAD_BYTES + 4 * floats_all)?;
    let counts = [(images as u32).to_le_bytes(), (eigenfaces as u32).to_le_bytes()].concat();
    output.write(&[&DATABASE_MAGIC[..], &counts].concat())?;
    output.write(&le_bytes(mean.as_slice()))?;
    output.write(&le_bytes(faces.as_slice()))?;
    output.write(&le_bytes(coordinates.as_slice()))?;
    output.finish()
}

fn le_bytes(floats: &[f32]) -> Vec<u8> {
    floats.iter().flat_map(|float| float.to_le_bytes()).collect()
}

/// The database in place, without a copy.
struct Database<'a> {
    mean: &'a [u8],
    /// The eigenfaces, one after the other.
    faces: &'a [u8],
    /// The coordinates of each image.
    coordinates: &'a [u8],
    eigenfaces: usize,
}

impl<'a> Database<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self> {
        let short = || AppError::malformed(DATABASE, format!("{} B are too few", bytes.len()));
        let (head, rest) = bytes.split_at_checked(DATABASE_HEAD_BYTES).ok_or_else(short)?;
        if head[..8] != DATABASE_MAGIC[..] {
            return Err(AppError::malformed(DATABASE, "not a database of eigenfaces"));
        }
        let count = |at: usize| {
            let word = head[at..].first_chunk().copied();
            word.map_or(0, |word| u32::from_le_bytes(word) as usize)
        };
        let (images, eigenfaces) = (count(8), count(12));
        let (mean, rest) = rest.split_at_checked(4 * PIXELS).ok_or_else(short)?;
        let (faces, rest) = rest.split_at_checked(4 * PIXELS * eigenfaces).ok_or_else(short)?;
        let coordinates = rest.get(..4 * eigenfaces * images).ok_or_else(short)?;
        Ok(Self { mean, faces, coordinates, eigenfaces })
    }

    /// Number of the image whose coordinates are nearest.
    fn nearest(&self, pixels: &[f32]) -> usize {
        let centred: Vec<f32> =
            pixels.iter().zip(float_of(self.mean)).map(|(pixel, mean)| pixel - mean).collect();
        let projected: Vec<f32> =
            self.faces.chunks_exact(4 * PIXELS).map(|face| dot(face, &centred)).collect();
        let distance = |image: &[u8]| {
            let apart = projected.iter().zip(float_of(image)).map(|(a, b)| (a - b).powi(2));
            apart.sum::<f32>()
        };
        let images = self.coordinates.chunks_exact(4 * self.eigenfaces.max(1));
        let nearest = images.map(distance).enumerate().min_by(|a, b| a.1.total_cmp(&b.1));
        nearest.map_or(0, |(image, _)| image)
    }
}

fn float_of(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.as_chunks().0.iter().map(|&word| f32::from_le_bytes(word))
}

/// The scalar product, in eight sums, so that the compiler can use vector instructions.
fn dot(face: &[u8], pixels: &[f32]) -> f32 {
    let mut sums = [0.0f32; 8];
    let words = face.as_chunks::<4>().0;
    for (words, pixels) in words.as_chunks::<8>().0.iter().zip(pixels.as_chunks::<8>().0) {
        for lane in 0..8 {
            sums[lane] += f32::from_le_bytes(words[lane]) * pixels[lane];
        }
    }
    sums.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::tests::{result, run_in_memory};

    #[test]
    fn persons_are_recognised_by_images_not_trained_with() {
        let app = Faces::new(Size::Small, 2);
        let access = run_in_memory(&app);
        let found = String::from_utf8(result(&access, "out-recognised")).unwrap();
        let right = |line: &&str| {
            let (number, person) = line.split_once(' ').unwrap();
            app.question(number.parse().unwrap()).0 == person.parse::<usize>().unwrap()
        };
        let right = found.lines().filter(right).count();
        assert!(right * 10 >= app.questions * 9, "{right} of {} of seed 2", app.questions);
    }

    #[test]
    fn the_nearest_by_few_coordinates_of_an_image_trained_with_is_itself() {
        let app = Faces::new(Size::Small, 4);
        let access = run_in_memory(&app);
        let bytes = result(&access, DATABASE);
        let database = Database::read(&bytes).unwrap();
        for number in 0..app.trained() {
            let image = app.image(number / IMAGES_A_PERSON, number % IMAGES_A_PERSON);
            assert_eq!(database.nearest(&floats(&image)), number, "seed 4");
        }
    }

    #[test]
    fn the_papers_database_has_a_megabyte() {
        let app = Faces::new(Size::Paper, 1);
        let floats = PIXELS * (1 + app.eigenfaces) + app.eigenfaces * app.trained();
        assert!((1_000_000..1_100_000).contains(&(DATABASE_HEAD_BYTES + 4 * floats)));
    }

    #[test]
    fn a_cut_database_is_refused() {
        let mut bytes = DATABASE_MAGIC.to_vec();
        bytes.extend_from_slice(&[1, 0, 0, 0, 9, 0, 0, 0]);
        assert!(Database::read(&bytes).is_err());
        assert!(Database::read(b"EIGFACE").is_err());
    }
}
