//! The screen of `perdura top`.

use perdura_media::{Bytes, BytesPerSecond, format_duration};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Gauge, Paragraph, Row as TableRow, Sparkline, Table};

use super::devices::DeviceRow;
use super::view::{Row, View, Watched};

/// From this part of the time on, the gauge is a warning.
const NEAR: f64 = 0.9;
/// Cells of the bar in each row.
const BAR_CELLS: usize = 12;
/// The curve's rows.
const CURVE_ROWS: u16 = 6;

/// Draws what was seen.
pub fn draw(frame: &mut Frame, watched: &Watched) {
    let Some(view) = watched.view() else { return };
    let notes = notes(watched, view);
    // A line for each, and their head; nothing where there are none.
    let device_lines = match view.devices.len() {
        0 => 0,
        devices => u16::try_from(devices + 1).unwrap_or(u16::MAX),
    };
    let [head, gauge, table, devices, curve, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(3),
        Constraint::Min(2),
        Constraint::Length(device_lines),
        Constraint::Length(CURVE_ROWS),
        Constraint::Length(notes.len() as u16),
    ])
    .areas(frame.area());
    frame.render_widget(head_line(watched, view), head);
    draw_gauge(frame, gauge, watched, view);
    draw_table(frame, table, &view.rows);
    draw_devices(frame, devices, &view.devices);
    draw_curve(frame, curve, watched, view);
    frame.render_widget(Paragraph::new(notes), foot);
}

fn head_line(watched: &Watched, view: &View) -> Line<'static> {
    let color = match view.power.word.as_str() {
        "steady" => Color::Green,
        "on-battery" | "unknown" => Color::Yellow,
        _ => Color::Red,
    };
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let told_by = match view.power.told_by.as_str() {
        "" => String::new(),
        told_by => format!(" ({told_by})"),
    };
    Line::from(vec![
        Span::styled(watched.title().to_owned(), bold),
        Span::raw(format!("   {} regions   power: ", view.rows.len())),
        Span::styled(view.power.word.clone(), bold.fg(color)),
        Span::raw(told_by),
    ])
}

/// The part of the allowed time, 0 to 1.
fn part(view: &View) -> f64 {
    let allowed_s = view.allowed.as_secs_f64();
    if allowed_s <= 0.0 { 0.0 } else { view.to_safe.as_secs_f64() / allowed_s }
}

fn draw_gauge(frame: &mut Frame, area: Rect, watched: &Watched, view: &View) {
    let part = part(view);
    let color = match part {
        over if over > 1.0 => Color::Red,
        near if near >= NEAR => Color::Yellow,
        _ => Color::Green,
    };
    let label = format!(
        "{} of {}, at most {} so far",
        format_duration(view.to_safe),
        format_duration(view.allowed),
        format_duration(watched.worst()),
    );
    let gauge = Gauge::default()
        .block(Block::bordered().title("time to be safe, of the warning"))
        .gauge_style(Style::new().fg(color))
        .ratio(part.clamp(0.0, 1.0))
        .label(label);
    frame.render_widget(gauge, area);
}

fn draw_table(frame: &mut Frame, area: Rect, rows: &[Row]) {
    let title = ["REGION", "SERVER", "DIRTY", "BUDGET", "", "TO SAFE", "AT MOST", "PROVEN RATE"];
    let cells = |row: &Row| {
        let style = match row.dirty_bytes > row.budget_bytes {
            true => Style::new().fg(Color::Red),
            false => Style::new(),
        };
        TableRow::new([
            row.name.clone(),
            row.server.clone(),
            Bytes(row.dirty_bytes).to_string(),
            Bytes(row.budget_bytes).to_string(),
            bar(row.dirty_bytes, row.budget_bytes),
            format_duration(row.to_safe),
            format_duration(row.allowed),
            BytesPerSecond(row.rate_bytes_per_s).to_string(),
        ])
        .style(style)
    };
    let widths = [
        Constraint::Min(16),
        Constraint::Length(8),
        Constraint::Length(10),
        Constraint::Length(10),
        Constraint::Length(BAR_CELLS as u16),
        Constraint::Length(9),
        Constraint::Length(9),
        Constraint::Length(12),
    ];
    let table = Table::new(rows.iter().map(cells), widths)
        .header(TableRow::new(title).style(Style::new().add_modifier(Modifier::BOLD)));
    frame.render_widget(table, area);
}

fn draw_devices(frame: &mut Frame, area: Rect, devices: &[DeviceRow]) {
    if devices.is_empty() {
        return;
    }
    let title = ["DEVICE", "STATE", "USED", "READ", "WRITTEN", "BUSY", "POWER STATE", "WATTS"];
    let row = |device: &DeviceRow| {
        let style = match device.told.state.as_str() {
            "failed" => Style::new().fg(Color::Red),
            "full" => Style::new().fg(Color::Yellow),
            _ => Style::new(),
        };
        TableRow::new(device.cells()).style(style)
    };
    let widths = [
        Constraint::Min(12),
        Constraint::Length(7),
        Constraint::Length(10),
        Constraint::Length(12),
        Constraint::Length(12),
        Constraint::Length(5),
        Constraint::Fill(1),
        Constraint::Fill(1),
    ];
    let table = Table::new(devices.iter().map(row), widths)
        .header(TableRow::new(title).style(Style::new().add_modifier(Modifier::BOLD)));
    frame.render_widget(table, area);
}

/// A bar for a part of a whole.
fn bar(part: u64, whole: u64) -> String {
    let filled = (part as f64 / whole.max(1) as f64 * BAR_CELLS as f64).round() as usize;
    let filled = filled.min(BAR_CELLS);
    format!("{}{}", "█".repeat(filled), "·".repeat(BAR_CELLS - filled))
}

fn draw_curve(frame: &mut Frame, area: Rect, watched: &Watched, view: &View) {
    let room = usize::from(area.width.saturating_sub(2));
    let mut newest: Vec<_> =
        watched.past().rev().take(room).map(|time| time.as_micros() as u64).collect();
    newest.reverse();
    let curve = Sparkline::default()
        .block(Block::bordered().title(format!(
            "time to be safe at each look; the full height is {}",
            format_duration(view.allowed)
        )))
        .max((view.allowed.as_micros() as u64).max(1))
        .data(newest);
    frame.render_widget(curve, area);
}

/// What is wrong, and how to leave.
fn notes(watched: &Watched, view: &View) -> Vec<Line<'static>> {
    let red = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
    let wrong = view.wrong.iter().map(|why| Line::styled(format!("WRONG: {why}"), red));
    let old = watched
        .error()
        .map(|error| Line::styled(format!("OLD, for nobody answers now: {error}"), red));
    let keys = Line::styled("q: end", Style::new().fg(Color::DarkGray));
    wrong.chain(old).chain([keys]).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test's own failure
mod tests {
    use perdura_watch::devices as told;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::top::devices::rows;
    use crate::top::devices::tests::INFO;
    use crate::top::view::tests::view;

    /// The text of the screen.
    fn screen(watched: &Watched, columns: u16, rows: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        terminal.draw(|frame| draw(frame, watched)).unwrap();
        let buffer = terminal.backend().buffer();
        let lines = buffer.content().chunks(usize::from(columns));
        lines.map(|line| line.iter().map(|cell| cell.symbol()).collect::<String>() + "\n").collect()
    }

    #[test]
    fn the_screen_says_what_is_dirty_and_for_how_long_it_would_be_flushed() {
        let mut watched = Watched::new("guard /run/g".into());
        watched.note(Ok(view()));
        let text = screen(&watched, 110, 24);
        for words in [
            "guard /run/g   2 regions   power: on-battery (nut:ups@localhost: OB)",
            "600ms of 1s, at most 900ms so far",
            "/srv/a",
            "42",
            "488.28 KiB",
            "██████······",
            "gone",
            "the full height is 1s",
            "q: end",
        ] {
            assert!(text.contains(words), "{words:?} is missing in:\n{text}");
        }
        assert!(!text.contains("OLD") && !text.contains("WRONG"));
        watched.note(Err(anyhow::anyhow!("no guard listens there")));
        let text = screen(&watched, 110, 24);
        assert!(text.contains("OLD, for nobody answers now: no guard listens there"), "{text}");
    }

    #[test]
    fn devices_have_a_line_each_and_are_not_spoken_of_where_there_are_none() {
        let mut watched = Watched::new("server".into());
        watched.note(Ok(view()));
        assert!(!screen(&watched, 140, 24).contains("POWER STATE"));
        let (now, before) = (told(INFO), told(INFO));
        let devices = rows(now, &before, std::time::Duration::from_secs(1));
        watched.note(Ok(crate::top::view::View { devices, ..view() }));
        let text = screen(&watched, 140, 24);
        for words in
            ["POWER STATE", "/mnt/a;b", "1 MiB", "0 %", "ps4 (of 0 to 4", "0.005 W nameplate"]
        {
            assert!(text.contains(words), "{words:?} is missing in:\n{text}");
        }
        assert!(text.lines().any(|line| line.contains("/mnt/c") && line.contains("failed")));
        assert!(text.contains("/srv/b") && text.contains("q: end"), "{text}");
        for (columns, rows) in [(1, 1), (3, 50), (200, 3), (80, 10)] {
            let _ = screen(&watched, columns, rows);
        }
    }

    #[test]
    fn any_size_of_the_terminal_will_do() {
        let mut watched = Watched::new("guard".into());
        assert!(screen(&watched, 80, 24).trim().is_empty(), "nothing was seen yet");
        let mut wrong = view();
        wrong.wrong = vec!["more is dirty".into()];
        wrong.allowed = std::time::Duration::ZERO;
        watched.note(Ok(wrong));
        for (columns, rows) in [(1, 1), (3, 50), (200, 3), (80, 24)] {
            let _ = screen(&watched, columns, rows);
        }
        assert!(screen(&watched, 80, 24).contains("WRONG: more is dirty"));
    }
}
