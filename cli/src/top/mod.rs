//! `perdura top`: a guard's servers, or one server, live in a terminal.

mod draw;
mod view;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use perdura_media::format_duration;
use perdura_terminal::time;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use crate::args::TopArgs;
use view::{Source, Watched};

/// Time between two looks by default.
const EVERY: Duration = Duration::from_secs(1);
/// The shortest one: looking is not free for the server.
const EVERY_MIN: Duration = Duration::from_millis(100);

pub fn run(args: &TopArgs) -> Result<ExitCode> {
    let every = time("every", &args.every)?.unwrap_or(EVERY);
    if every < EVERY_MIN {
        bail!(
            "--every {}: expected at least {}",
            format_duration(every),
            format_duration(EVERY_MIN)
        );
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        bail!("top needs a terminal; `perdura status --json` is for programs");
    }
    // Asked once before the screen is taken, so that a mistake is an ordinary error.
    let mut source = Source::open(args)?;
    let mut watched = Watched::new(source.title());
    watched.note(source.look());
    if let Some(error) = watched.error() {
        bail!("{error}");
    }
    let mut terminal = ratatui::try_init().context("the terminal")?;
    let outcome = watch(&mut terminal, &mut source, &mut watched, every);
    ratatui::restore();
    outcome.map(|()| ExitCode::SUCCESS)
}

fn watch(
    terminal: &mut ratatui::DefaultTerminal,
    source: &mut Source,
    watched: &mut Watched,
    every: Duration,
) -> Result<()> {
    let mut next = Instant::now() + every;
    loop {
        terminal.draw(|frame| draw::draw(frame, watched)).context("draw")?;
        let left = next.saturating_duration_since(Instant::now());
        if event::poll(left).context("read the keyboard")? {
            if is_end(&event::read().context("read the keyboard")?) {
                return Ok(());
            }
            continue;
        }
        watched.note(source.look());
        next = Instant::now() + every;
    }
}

/// Whether an event ends the program: `q`, Escape or Control-C.
fn is_end(event: &Event) -> bool {
    let Event::Key(key) = event else { return false };
    if key.kind != KeyEventKind::Press {
        return false;
    }
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => true,
        KeyCode::Char('c') => key.modifiers.contains(KeyModifiers::CONTROL),
        _ => false,
    }
}
