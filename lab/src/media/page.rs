//! The page of `perdura-lab media`: software by part for each step beside the slides' figures, the
//! kernel's paths, targets and measured figures. One file without scripts and without resources
//! from a network.

use std::fmt::Write;

use perdura_block::path::{PARTS, Part, Step};
use perdura_media::Bytes;

use super::result::{Latency, MediaResult, PathResult, Stream};
use super::steps::THREADS;
use super::verdicts::{SLIDES_BASE_US, SLIDES_SPIN_US, SLIDES_STEP};
use perdura_page::{Chart, Series, Style, data, escape, short, table};

/// Published time of the hardware for a request of 4 KiB, microseconds (the HASTE slides).
const SLIDES_HARDWARE_US: f64 = 8.2;

/// Draws the page.
pub fn page(result: &MediaResult) -> String {
    let title = format!("{} as a modelled medium", result.profile);
    perdura_page::page(&title, |out| write_page(result, out))
}

type Written = std::fmt::Result;

fn write_page(result: &MediaResult, out: &mut String) -> Written {
    heading(result, out)?;
    steps(result, out)?;
    today(result, out)?;
    direct(result, out)?;
    accuracy(result, out)?;
    data(out, result)
}

fn heading(result: &MediaResult, out: &mut String) -> Written {
    let setup = &result.configuration;
    write!(
        out,
        "<h1>{}: the medium modelled, the software measured</h1><p>{}</p>\
         <p>{} of emulated medium in DRAM, files of {}, seed {}; clock: {}.</p><p>{}, load {} at \
         the beginning.</p>\
         <p class=\"note\">The time of the medium is <span class=\"modelled\">modelled</span>: its \
         bytes are in DRAM, and a request waits as long as the model says. The time of software is \
         measured on this machine.</p>",
        escape(&result.profile),
        escape(&setup.about),
        Bytes(setup.size_bytes),
        Bytes(setup.file_bytes),
        setup.seed,
        escape(&setup.clock),
        escape(&result.machine.to_string()),
        escape(result.machine.load_1m.as_deref().unwrap_or("unknown")),
    )
}

fn steps(result: &MediaResult, out: &mut String) -> Written {
    write!(
        out,
        "<h2>The four steps of HASTE: a read of 4 KiB over {}</h2>",
        escape(&result.software_medium)
    )?;
    for finding in &result.findings {
        write!(out, "<p>{}</p>", escape(finding))?;
    }
    out.push_str("<div class=\"charts\">");
    for threads in THREADS {
        parts_charts(&result.paths, threads, "behind the medium's time", out);
    }
    for threads in THREADS {
        parts_charts(&result.alone, threads, "on a medium that takes no time", out);
    }
    out.push_str(&slides_chart().svg());
    write!(
        out,
        "</div><p class=\"note\"><span class=\"published\">Published</span> (HASTE slides, their \
         kernel driver and prototype): software {SLIDES_BASE_US} us in the base, 10 % less without \
         the scheduler, 10 % less again with atomic operations, {SLIDES_SPIN_US} us with \
         spin-waits (54 % less than atomic, 62 % in all); hardware {SLIDES_HARDWARE_US} us.</p><ul>"
    )?;
    for verdict in result.verdicts_alone.iter().chain(&result.verdicts) {
        write!(out, "<li>{}</li>", escape(&verdict.sentence))?;
    }
    out.push_str("</ul>");
    Ok(())
}

/// A chart of the steps with this number of threads, if they were run.
fn parts_charts(paths: &[PathResult], threads: usize, medium: &str, out: &mut String) {
    let of =
        |step: &Step| paths.iter().find(|path| path.path == step.name() && path.threads == threads);
    let steps: Vec<&PathResult> = Step::ALL.iter().filter_map(of).collect();
    if !steps.is_empty() {
        let title = format!("Measured, {threads} thread(s), {medium}: us a request, by part");
        out.push_str(&parts_chart(&steps, title).svg());
    }
}

fn parts_chart(paths: &[&PathResult], title: String) -> Chart {
    let series = |(index, part): (usize, Part)| {
        let of = |path: &PathResult| match part {
            Part::Hardware => path.hardware_ns,
            _ => path.parts_ns.get(part.name()).copied(),
        };
        let (name, class) = match part {
            Part::Hardware => ("hardware (modelled)", "base".to_owned()),
            _ => (part.name(), format!("c{index}")),
        };
        let values = paths.iter().map(|path| Some(of(path)? / 1e3));
        Series::over(name, class, Style::Stacked, values)
    };
    // The hardware is the lowest part of a bar: it is the same in all bars, and the rest is
    // software.
    let software = PARTS.into_iter().filter(|part| *part != Part::Hardware);
    let parts = std::iter::once(Part::Hardware).chain(software);
    Chart {
        title,
        y_name: "us".into(),
        x_names: paths.iter().map(|path| path.path.clone()).collect(),
        series: parts.enumerate().map(series).collect(),
        ..Chart::half()
    }
}

fn slides_chart() -> Chart {
    let unscheduled = SLIDES_BASE_US * SLIDES_STEP;
    let software = [SLIDES_BASE_US, unscheduled, unscheduled * SLIDES_STEP, SLIDES_SPIN_US];
    let series = |name: &str, class: &str, values: [f64; 4]| {
        Series::over(name, class, Style::Stacked, values.map(Some))
    };
    Chart {
        title: "Published in the slides (1.1 x8 prototype): us a request".into(),
        y_name: "us".into(),
        x_names: Step::ALL.iter().map(|step| step.name().to_owned()).collect(),
        series: vec![
            series("hardware", "base", [SLIDES_HARDWARE_US; 4]),
            series("software (the two in the middle from their percentages)", "paper", software),
        ],
        ..Chart::half()
    }
}

fn today(result: &MediaResult, out: &mut String) -> Written {
    let paths: Vec<&PathResult> = result.paths.iter().filter(|path| path.threads == 1).collect();
    let software = paths.iter().map(|path| Some(path.software_ns.max(1.0) / 1e3));
    let chart = Chart {
        title: "One thread: software of a read of 4 KiB, us".into(),
        y_name: "us".into(),
        // Short names, so that they fit beside each other.
        x_names: paths.iter().map(|path| path.path.replace("io_uring", "uring")).collect(),
        is_log: true,
        series: vec![Series::over("software", "c0", Style::Bars, software)],
        ..Chart::whole()
    };
    write!(out, "<h2>Beside the kernel's paths</h2><div class=\"charts\">{}</div>", chart.svg())?;
    let headings = [
        "path",
        "threads",
        "software, ns",
        "slices",
        "that is",
        "hardware (modelled, or real), ns",
        "p50",
        "p99",
        "processor",
        "requests/s",
        "how",
    ];
    table(out, &headings, result.paths.iter().map(path_row))?;
    for refused in &result.refused {
        write!(out, "<p class=\"note\">Not available here: {}</p>", escape(refused))?;
    }
    Ok(())
}

fn path_row(path: &PathResult) -> [String; 11] {
    let [low, high] = path.software_ns_range;
    let whole = |ns: f64| format!("{ns:.0}");
    [
        path.path.clone(),
        path.threads.to_string(),
        whole(path.software_ns),
        format!("{low:.0} to {high:.0}"),
        path.software_is.clone(),
        path.hardware_ns.map_or("real".into(), whole),
        whole(path.total_ns_p50),
        whole(path.total_ns_p99),
        whole(path.cpu_ns),
        short(path.requests_per_s),
        format!("{}; {}", path.medium, path.how),
    ]
}

fn direct(result: &MediaResult, out: &mut String) -> Written {
    let direct = &result.direct;
    let [low, high] = direct.above_memcpy_ns_ci95;
    write!(
        out,
        "<h2>A direct call beside memcpy</h2><p>Random blocks of 4 KiB over {}, {} blocks each \
         way, all verified: {:.0} ns \
         through the emulator of a medium that takes no time, {:.0} ns copied. {:.0} ns above \
         copying \
         (95 % interval {low:.0} to {high:.0}, {} pairs); {:.0} are allowed: {}.</p>",
        Bytes(direct.size_bytes),
        direct.blocks,
        direct.direct_ns_p50,
        direct.memcpy_ns_p50,
        direct.above_memcpy_ns,
        direct.pairs,
        direct.target_ns,
        direct.verdict(),
    )
}

fn accuracy(result: &MediaResult, out: &mut String) -> Written {
    write!(
        out,
        "<h2>Measured beside <span class=\"modelled\">modelled</span></h2><p>{}.</p>\
         <p>{} requests of 4 KiB a second on the virtual clock, one thread.</p>",
        escape(&result.accuracy()),
        short(result.modelled_requests_per_s),
    )?;
    let accesses = [&result.read, &result.write].into_iter().chain(&result.accesses);
    let headings =
        ["one at a time", "length", "modelled, ns", "p50, ns", "p99, ns", "error", "limit"];
    table(out, &headings, accesses.map(latency_row))?;
    let streams = [&result.read_stream, &result.write_stream].into_iter().chain(&result.streams);
    let headings = [
        "many at a time",
        "length",
        "modelled, MB/s",
        "measured, MB/s",
        "error",
        "nothing copied",
        "limit",
    ];
    table(out, &headings, streams.map(stream_row))
}

fn latency_row(latency: &Latency) -> [String; 7] {
    [
        format!("{} {} in {}", latency.medium, latency.access, Bytes(latency.range_bytes)),
        Bytes(latency.len_bytes).to_string(),
        format!("{:.1}", latency.target_ns),
        format!("{:.1}", latency.measured_ns_p50),
        format!("{:.1}", latency.measured_ns_p99),
        format!("{:+.1} %", latency.relative_error * 100.0),
        latency.limited_by.clone().unwrap_or_else(|| "within".into()),
    ]
}

fn stream_row(stream: &Stream) -> [String; 7] {
    let order = if stream.is_sequential { "sequential" } else { "random" };
    [
        format!("{} {order} {}", stream.medium, stream.access),
        Bytes(stream.len_bytes).to_string(),
        format!("{:.0}", stream.target_bytes_per_s / 1e6),
        format!("{:.0}", stream.measured_bytes_per_s / 1e6),
        format!("{:+.1} %", stream.relative_error * 100.0),
        format!("{:.0}", stream.booked_bytes_per_s / 1e6),
        stream.limited_by.clone().unwrap_or_else(|| "within".into()),
    ]
}
