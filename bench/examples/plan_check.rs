//! `perdura bench plan` before it has a command: FOLDER, and which trace.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

use perdura_bench::plan_check::{Kind, PlanCheck, PlanCheckSettings, generated};
use perdura_plan::sizing::ReplayConfig;
use perdura_region::PolicyKind;

fn main() {
    let mut args = std::env::args().skip(1);
    let folder = args.next().unwrap();
    let pages = 16 << 10;
    for (kind, per_s) in
        [(Kind::Zipf, 60_000.0), (Kind::HotCold, 30_000.0), (Kind::Uniform, 15_000.0)]
    {
        let records = generated(kind, 1, pages, (per_s * 4.0) as u64, per_s);
        let settings = PlanCheckSettings {
            folder: Some(folder.clone().into()),
            budgets_bytes: vec![2 << 20, 8 << 20],
            policies: vec![PolicyKind::ClockPro],
            config: ReplayConfig::new(pages * 4096, 0),
        };
        println!("{}\n{}", kind.name(), PlanCheck::run(&settings, &records).unwrap().text());
    }
}
