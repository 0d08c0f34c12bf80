//! The numbers of a server that are fitted, by name.

use std::fmt::Write as _;

use perdura_media::profile::{Modules, Processor, Server};

/// A number of a server that a fit may change.
pub struct Knob {
    /// Table and key of the number in the profile.
    pub name: String,
    /// The number in a server's tables; none if the server lacks it.
    pub of: fn(&mut Server) -> Option<&mut f64>,
}

macro_rules! knobs {
    ($($table:literal $path:ident $key:ident;)*) => {
        vec![$(Knob {
            name: format!("{}.{}", $table, stringify!($key)),
            of: |server| Some(&mut knobs!(@ $path server)?.$key),
        }),*]
    };
    (@ processor $server:ident) => { Some(&mut $server.processor) };
    (@ memory $server:ident) => { Some(&mut $server.memory) };
    (@ dram $server:ident) => { $server.dram.as_mut() };
}

/// The numbers of a server that are fitted. Numbers that were published themselves are not:
/// latencies of dependent reads, cores, the size of the window; nor are the times of a module's
/// cycles, which follow from the published peaks. Of DRAM beside a medium only those are fitted
/// that its tables show.
pub fn knobs(server: &Server) -> Vec<Knob> {
    let mut all = knobs! {
        "processor" processor chain_instructions;
        "processor" processor read_instructions;
        "processor" processor line_instructions;
        "processor" processor write_instructions;
        "processor" processor sample_instructions;
        "processor" processor lines_in_flight;
        "processor" processor stores_in_flight;
        "processor" processor stream_stores;
        "processor" processor streamed_ns;
        "processor" processor streamed_line_ns;
        "processor" processor streamed_cached_ns;
        "processor" processor flushed_line_ns;
        "processor" processor again_ns;
        "memory" memory behind_ns;
        "memory" memory stream_ns;
        "memory" memory flush_ns;
        "memory" memory write_buffer;
        "memory" memory overrun;
    };
    if server.memory.granule_lines > 1 {
        all.retain(|knob| knob.name != "memory.write_buffer");
        all.extend(knobs! {
            "memory" memory unread_line_ns;
            "memory" memory merged;
            "memory" memory write_share;
            "memory" memory crowding;
        });
    }
    if server.dram.is_some() {
        all.extend(knobs! {
            "memory" memory channel_ns;
            "dram" dram read_cycle_ns;
            "dram" dram read_apart_ns;
            "dram" dram write_buffer;
            "dram" dram channel_ns;
        });
    }
    all
}

/// A server's tables as text, as a profile has them.
pub fn text(server: &Server) -> String {
    let Processor {
        cores,
        window,
        fetches_ahead,
        keeps_flushed,
        chain_instructions,
        read_instructions,
        line_instructions,
        write_instructions,
        sample_instructions,
        lines_in_flight,
        stores_in_flight,
        stream_stores,
        streamed_ns,
        streamed_line_ns,
        streamed_cached_ns,
        flushed_line_ns,
        again_ns,
    } = &server.processor;
    let mut text = format!(
        "[server.processor]\ncores = {cores}\nwindow = {window:.1}\n\
         fetches_ahead = {fetches_ahead}\nkeeps_flushed = {keeps_flushed}\n"
    );
    for (key, value) in [
        ("chain_instructions", chain_instructions),
        ("read_instructions", read_instructions),
        ("line_instructions", line_instructions),
        ("write_instructions", write_instructions),
        ("sample_instructions", sample_instructions),
        ("lines_in_flight", lines_in_flight),
        ("stores_in_flight", stores_in_flight),
        ("stream_stores", stream_stores),
        ("streamed_ns", streamed_ns),
        ("streamed_line_ns", streamed_line_ns),
        ("streamed_cached_ns", streamed_cached_ns),
        ("flushed_line_ns", flushed_line_ns),
        ("again_ns", again_ns),
    ] {
        let _ = writeln!(text, "{key} = {value:?}");
    }
    modules(&mut text, "memory", &server.memory);
    if let Some(dram) = &server.dram {
        modules(&mut text, "dram", dram);
    }
    text
}

fn modules(text: &mut String, table: &str, of: &Modules) {
    let Modules {
        granule_lines,
        read_ns,
        behind_ns,
        stream_ns,
        read_cycle_ns,
        read_apart_ns,
        unread_line_ns,
        write_cycle_ns,
        write_apart_ns,
        flush_ns,
        merged,
        write_buffer,
        writes_in_batches,
        write_share,
        crowding,
        overrun,
        channel_ns,
    } = of;
    let _ = write!(
        text,
        "\n[server.{table}]\ngranule_lines = {granule_lines}\n\
         writes_in_batches = {writes_in_batches}\n"
    );
    for (key, value) in [
        ("read_ns", read_ns),
        ("behind_ns", behind_ns),
        ("stream_ns", stream_ns),
        ("read_cycle_ns", read_cycle_ns),
        ("read_apart_ns", read_apart_ns),
        ("unread_line_ns", unread_line_ns),
        ("write_cycle_ns", write_cycle_ns),
        ("write_apart_ns", write_apart_ns),
        ("flush_ns", flush_ns),
        ("merged", merged),
        ("write_buffer", write_buffer),
        ("write_share", write_share),
        ("crowding", crowding),
        ("overrun", overrun),
        ("channel_ns", channel_ns),
    ] {
        let _ = writeln!(text, "{key} = {value:?}");
    }
}
