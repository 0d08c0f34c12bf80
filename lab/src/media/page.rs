//! The page of `perdura-lab media`: software by part for each step beside the slides' figures, today's
//! paths, targets and what was measured. One file: no script, nothing from a network.

use std::fmt::Write;

use perdura_block::path::{PARTS, Part, Step};

use crate::media::result::{Latency, MediaResult, PathResult, Stream};
use perdura_page::{Chart, Point, Series, Style, data, escape, short};

const MIDDLE: f64 = 535.0;
const WIDE: f64 = 1080.0;
const HEIGHT: f64 = 260.0;

/// What the HASTE slides give for a request of 4 KiB, microseconds: software of the base and of the
/// last step, and the hardware ("Software is Critical", "Add Spin-Waits"). Of the steps between
/// they say 10 % each.
const SLIDES_BASE_US: f64 = 13.4;
const SLIDES_SPIN_US: f64 = 5.0;
const SLIDES_HARDWARE_US: f64 = 8.2;

/// The page.
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
         <p>{} of emulated medium in DRAM, files of {}, seed {}; clock: {}.</p><p>{}, load {} at the beginning.</p>\
         <p class=\"note\">What the medium takes is <span class=\"modelled\">modelled</span>: its bytes are in DRAM, and who waits \
         for them waits for the model. What software takes is measured on this machine.</p>",
        escape(&result.profile),
        escape(&setup.about),
        perdura_media::Bytes(setup.size_bytes),
        perdura_media::Bytes(setup.file_bytes),
        setup.seed,
        escape(&setup.clock),
        escape(&result.machine.to_string()),
        escape(result.machine.load_1m.as_deref().unwrap_or("unknown")),
    )
}

fn steps(result: &MediaResult, out: &mut String) -> Written {
    write!(
        out,
        "<h2>The four steps of HASTE: a read of 4 KiB over {}</h2><div class=\"charts\">",
        escape(&result.software_medium)
    )?;
    for threads in [1, 2, 4] {
        let paths: Vec<&PathResult> = Step::ALL
            .iter()
            .filter_map(|step| {
                result.paths.iter().find(|p| p.path == step.name() && p.threads == threads)
            })
            .collect();
        if !paths.is_empty() {
            out.push_str(&parts_chart(&paths, threads).svg());
        }
    }
    out.push_str(&slides_chart().svg());
    write!(
        out,
        "</div><p class=\"note\"><span class=\"published\">Published</span> (HASTE slides, their kernel driver and prototype): \
         software {SLIDES_BASE_US} us in the base, 10 % less without the scheduler, 10 % less again with atomic operations, \
         {SLIDES_SPIN_US} us with spin-waits (54 % less than atomic, 62 % in all); hardware {SLIDES_HARDWARE_US} us.</p><ul>"
    )?;
    if let Some(hidden) = &result.hidden {
        write!(out, "<li>{}</li>", escape(hidden))?;
    }
    for verdict in result.verdicts_alone.iter().chain(&result.verdicts) {
        write!(out, "<li>{}</li>", escape(&verdict.sentence))?;
    }
    out.push_str("</ul>");
    Ok(())
}

fn parts_chart(paths: &[&PathResult], threads: usize) -> Chart {
    let series = |(index, part): (usize, Part)| {
        let of = |path: &PathResult| match part {
            Part::Hardware => path.hardware_ns,
            _ => path.parts_ns.get(part.name()).copied(),
        };
        let points = paths.iter().enumerate();
        Series {
            name: match part {
                Part::Hardware => "hardware (modelled)".into(),
                _ => part.name().into(),
            },
            class: if part == Part::Hardware { "base".into() } else { format!("c{index}") },
            points: points
                .filter_map(|(x, path)| Some(Point { x, y: of(path)? / 1e3, range: None }))
                .collect(),
            style: Style::Stacked,
        }
    };
    // The hardware first: it is the same in all, and what lies on it is software.
    let software = PARTS.into_iter().filter(|part| *part != Part::Hardware);
    let parts = std::iter::once(Part::Hardware).chain(software);
    Chart {
        title: format!("Measured here, {threads} thread(s): us a request, by part"),
        y_name: "us".into(),
        x_names: paths.iter().map(|path| path.path.clone()).collect(),
        series: parts.enumerate().map(series).collect(),
        width: MIDDLE,
        height: HEIGHT,
        ..Chart::default()
    }
}

fn slides_chart() -> Chart {
    let unscheduled = SLIDES_BASE_US * 0.9;
    let software = [SLIDES_BASE_US, unscheduled, unscheduled * 0.9, SLIDES_SPIN_US];
    let series = |name: &str, class: &str, y: [f64; 4]| Series {
        name: name.into(),
        class: class.into(),
        points: y.into_iter().enumerate().map(|(x, y)| Point { x, y, range: None }).collect(),
        style: Style::Stacked,
    };
    Chart {
        title: "Published in the slides (1.1 x8 prototype): us a request".into(),
        y_name: "us".into(),
        x_names: Step::ALL.iter().map(|step| step.name().to_owned()).collect(),
        series: vec![
            series("hardware", "base", [SLIDES_HARDWARE_US; 4]),
            series("software (the two in the middle from their percentages)", "paper", software),
        ],
        width: MIDDLE,
        height: HEIGHT,
        ..Chart::default()
    }
}

fn today(result: &MediaResult, out: &mut String) -> Written {
    let paths: Vec<&PathResult> = result.paths.iter().filter(|path| path.threads == 1).collect();
    let points = |of: &dyn Fn(&PathResult) -> f64| {
        let points = paths.iter().enumerate();
        points.map(|(x, path)| Point { x, y: of(path) / 1e3, range: None }).collect()
    };
    let chart = Chart {
        title: "One thread: software of a read of 4 KiB, us".into(),
        y_name: "us".into(),
        // Short, so that they stand beside each other.
        x_names: paths.iter().map(|path| path.path.replace("io_uring", "uring")).collect(),
        is_log: true,
        series: vec![Series {
            name: "software".into(),
            class: "c0".into(),
            points: points(&|path| path.software_ns.max(1.0)),
            style: Style::Bars,
        }],
        width: WIDE,
        height: HEIGHT,
        ..Chart::default()
    };
    write!(
        out,
        "<h2>Beside today's paths</h2><div class=\"charts\">{}</div><div class=\"wide\"><table><tr><th>path</th><th>threads</th>\
         <th>software, ns</th><th>slices</th><th>that is</th><th>hardware, ns</th><th>p50</th><th>p99</th><th>processor</th>\
         <th>requests/s</th><th>how</th></tr>",
        chart.svg()
    )?;
    for path in &result.paths {
        let [low, high] = path.software_ns_range;
        write!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{:.0}</td><td>{low:.0} to {high:.0}</td><td>{}</td><td>{}</td><td>{:.0}</td><td>{:.0}</td>\
             <td>{:.0}</td><td>{}</td><td>{}; {}</td></tr>",
            escape(&path.path),
            path.threads,
            path.software_ns,
            escape(&path.software_is),
            path.hardware_ns.map_or("real".into(), |ns| format!("{ns:.0}")),
            path.total_ns_p50,
            path.total_ns_p99,
            path.cpu_ns,
            short(path.requests_per_s),
            escape(&path.medium),
            escape(&path.how),
        )?;
    }
    out.push_str("</table></div>");
    for refused in &result.refused {
        write!(out, "<p class=\"note\">Not to be had here: {}</p>", escape(refused))?;
    }
    Ok(())
}

fn direct(result: &MediaResult, out: &mut String) -> Written {
    let direct = &result.direct;
    let [low, high] = direct.above_memcpy_ns_ci95;
    write!(
        out,
        "<h2>A direct call beside memcpy</h2><p>Random blocks of 4 KiB over {}, {} blocks each way, all verified: {:.0} ns \
         through the emulator of a medium that takes no time, {:.0} ns copied. {:.0} ns above copying \
         (95 % interval {low:.0} to {high:.0}, {} pairs); {:.0} are allowed: {}.</p>",
        perdura_media::Bytes(direct.size_bytes),
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
        "<h2>Measured beside <span class=\"modelled\">modelled</span></h2><p>{}.</p><p>{} requests of 4 KiB a second on the virtual clock, one \
         thread.</p><div class=\"wide\"><table><tr><th>one at a time</th><th>length</th><th>modelled, ns</th><th>p50, ns</th>\
         <th>p99, ns</th><th>error</th><th></th></tr>",
        escape(&result.accuracy()),
        short(result.modelled_requests_per_s),
    )?;
    for latency in [&result.read, &result.write].into_iter().chain(&result.accesses) {
        latency_row(latency, out)?;
    }
    out.push_str(
        "</table></div><div class=\"wide\"><table><tr><th>many at a time</th><th>length</th><th>modelled, MB/s</th>\
         <th>measured, MB/s</th><th>error</th><th>nothing copied</th><th></th></tr>",
    );
    for stream in [&result.read_stream, &result.write_stream].into_iter().chain(&result.streams) {
        stream_row(stream, out)?;
    }
    out.push_str("</table></div>");
    Ok(())
}

fn latency_row(latency: &Latency, out: &mut String) -> Written {
    write!(
        out,
        "<tr><td>{} {} in {}</td><td>{}</td><td>{:.1}</td><td>{:.1}</td><td>{:.1}</td><td>{:+.1} %</td><td>{}</td></tr>",
        escape(&latency.medium),
        latency.access,
        perdura_media::Bytes(latency.range_bytes),
        perdura_media::Bytes(latency.len_bytes),
        latency.target_ns,
        latency.measured_ns_p50,
        latency.measured_ns_p99,
        latency.relative_error * 100.0,
        escape(latency.limited_by.as_deref().unwrap_or("within")),
    )
}

fn stream_row(stream: &Stream, out: &mut String) -> Written {
    write!(
        out,
        "<tr><td>{} {} {}</td><td>{}</td><td>{:.0}</td><td>{:.0}</td><td>{:+.1} %</td><td>{:.0}</td><td>{}</td></tr>",
        escape(&stream.medium),
        if stream.is_sequential { "sequential" } else { "random" },
        stream.access,
        perdura_media::Bytes(stream.len_bytes),
        stream.target_bytes_per_s / 1e6,
        stream.measured_bytes_per_s / 1e6,
        stream.relative_error * 100.0,
        stream.booked_bytes_per_s / 1e6,
        escape(stream.limited_by.as_deref().unwrap_or("within")),
    )
}
