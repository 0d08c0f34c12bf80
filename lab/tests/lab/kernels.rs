//! The kernels at their smallest: in DRAM, paged, replayed, and by the line.

use perdura_lab::haste::kernels::{
    DramLine, Kernel, LineSettings, Scale, Settings, inject, lines, measure, run,
};
use perdura_media::profile::System;

fn scale() -> Scale {
    match std::env::var("PERDURA_KERNELS").as_deref() {
        Ok("small") => Scale::Small,
        Ok("medium") => Scale::Medium,
        _ => Scale::Tiny,
    }
}

/// `PERDURA_KERNELS=small cargo test --release -p perdura-lab --test lab kernels -- --nocapture`
/// prints a larger table.
#[test]
fn every_kernel_is_right_when_paged_and_slower_on_slower_media() {
    let names = ["dram", "pcie-sttm", "pcie-pcm", "pcie-flash", "disk-raid0"];
    let systems = names.map(|name| System::find(name).unwrap());
    let pcm = System::find("pcie-pcm").unwrap();
    println!("times in seconds; MODELLED but for compute, software and real");
    println!("kernel  MB(paper GB)  compute software  ins+outs   {names:?}  real/modelled");
    for kernel in Kernel::ALL {
        let settings = Settings::new(scale());
        let run = run(kernel, &settings).unwrap();
        let on = systems.each_ref().map(|system| run.on(system));
        let times = on.iter().map(|on| format!("{:9.3}", on.total_s())).collect::<String>();
        let measured = measure(&run, &settings, &pcm).unwrap();
        println!(
            "{:6} {:5.0} ({:4.1}) {:8.3} {:8.3} {:6}+{:6} {times} {:.3}/{:.3} {:+.1} %",
            kernel.name(),
            run.footprint_bytes as f64 / 1e6,
            run.paper_footprint_bytes as f64 / 1e9,
            run.compute_s,
            run.software_s(),
            run.page_ins,
            run.page_outs,
            measured.measured_s,
            measured.modelled_s,
            measured.error() * 100.0,
        );
        assert!(run.verified.is_right());
        assert_eq!(run.steps.len() as u64, run.page_ins + run.page_outs);
        assert!(run.resident_bytes <= run.footprint_bytes.max(8 * run.unit_bytes));
        if kernel != Kernel::Ep {
            assert!(run.page_ins > 0, "{} fits its cap", kernel.name());
            let medium_s = on.each_ref().map(|on| on.medium_s);
            assert!(medium_s.is_sorted(), "{}: {medium_s:?}", kernel.name());
        }
        // At real pace a run takes at least the modelled wait.
        assert!(measured.measured_s >= on[2].medium_s * 0.99, "{measured:?}");
    }
}

#[test]
fn lines_missed_cost_more_on_media_in_place_of_dram() {
    let dram = DramLine::modelled(&System::find("dram").unwrap());
    let (sttm, pcm) = (System::find("ddr-sttm").unwrap(), System::find("ddr-pcm").unwrap());
    println!("{dram:?}, measured {:?}", DramLine::measured());
    println!("kernel   lines     missed  written back  ddr-sttm ddr-pcm, seconds more, MODELLED");
    for kernel in Kernel::ALL {
        let settings = LineSettings::new(scale());
        let compute_s = 0.1;
        let run = lines(kernel, &settings, compute_s).unwrap();
        let (on_sttm, on_pcm) = (run.on(&sttm, dram), run.on(&pcm, dram));
        println!(
            "{:6} {:10} {:10} {:10} {:.3} {:.3}",
            kernel.name(),
            run.counts.accesses,
            run.counts.misses,
            run.counts.writebacks,
            on_sttm.medium_s,
            on_pcm.medium_s
        );
        assert!(run.counts.misses > 0 && run.counts.misses <= run.counts.accesses);
        assert!(on_pcm.medium_s > on_sttm.medium_s, "{}", kernel.name());
    }
}

#[test]
fn injected_delay_is_what_was_accounted() {
    let dram = DramLine::modelled(&System::find("dram").unwrap());
    let longer = dram.longer_on(&System::find("ddr-pcm").unwrap(), 20_000);
    let injected = inject(Kernel::Mg, &LineSettings::new(Scale::Tiny), longer).unwrap();
    println!("{injected:?}, {:+.1} %", injected.error() * 100.0);
    assert!(injected.accounted_s > 0.0);
    assert!(injected.delayed_s >= injected.accounted_s, "{injected:?}");
}
