//! The order in which segments are loaded: those first whose bytes were used most.

use perdura_dirty::BlockHeat;

use super::loading::Loading;

impl Loading {
    /// Takes up segments by how often what they hold was used, for each byte to be read. `heat` has
    /// a byte for each block, as [`BlockHeat`] has. Segments of which nothing is known come last,
    /// in the order of their numbers.
    pub fn hottest_first(&mut self, heat: &[u8]) {
        // Heat is summed up by portions of the region, because a table says of which it has pieces.
        let blocks = self.parts.portion_blocks();
        let mean = |bytes: &[u8]| {
            bytes.iter().map(|byte| BlockHeat::accesses(*byte)).sum::<f64>() / blocks as f64
        };
        let portions: Vec<f64> = heat.chunks(blocks).map(mean).collect();
        if portions.iter().all(|accesses| *accesses == 0.0) {
            return;
        }
        let accesses_to_a_byte: Vec<f64> =
            self.by_segment.iter().map(|tables| self.heat_of(tables, &portions)).collect();
        let of = |segment: u32| accesses_to_a_byte[segment as usize];
        self.order.sort_by(|one, other| of(*other).total_cmp(&of(*one)));
    }

    /// Accesses to what has won in these tables, for each byte of their frames.
    fn heat_of(&self, tables: &[u32], portions: &[f64]) -> f64 {
        let (mut accesses, mut bytes) = (0.0, 0);
        for table in tables.iter().map(|number| &self.tables[*number as usize]) {
            bytes += table.frame.total();
            for share in table.shares() {
                let (mut heat, mut count) = (0.0, 0);
                for portion in share.portions_of_region() {
                    heat += portions.get(portion as usize).copied().unwrap_or(0.0);
                    count += 1;
                }
                accesses += share.won_grains() as f64 * heat / f64::from(count.max(1));
            }
        }
        accesses / bytes.max(1) as f64
    }
}
