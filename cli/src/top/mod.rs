//! `perdura top`: a guard's servers, or one server, live in a terminal.

mod devices;
mod draw;
mod view;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use perdura_media::format_duration;
use perdura_terminal::time;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use crate::args::TopArgs;
use view::{Source, View, Watched};

/// Time between two looks by default.
const EVERY: Duration = Duration::from_secs(1);
/// Time between two looks at the keyboard and for an answer that has not come.
const ANSWER_LOOK_EVERY: Duration = Duration::from_millis(20);
/// Time without an answer after which that is shown.
const SILENCE_MAX: Duration = Duration::from_secs(2);
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
    let looker = Looker::start(source)?;
    let mut terminal = ratatui::try_init().context("the terminal")?;
    let outcome = watch(&mut terminal, &looker, &mut watched, every);
    ratatui::restore();
    outcome.map(|()| ExitCode::SUCCESS)
}

/// Looks on a thread of its own, so that the keyboard is heard while nobody answers.
struct Looker {
    ask: Sender<()>,
    seen: Receiver<Result<View>>,
}

impl Looker {
    fn start(mut source: Source) -> Result<Self> {
        let (ask, asked) = channel::<()>();
        let (tell, seen) = channel();
        let look = move || {
            while asked.recv().is_ok() && tell.send(source.look()).is_ok() {}
        };
        let thread = std::thread::Builder::new().name("perdura-looks".into());
        thread.spawn(look).context("a thread that looks")?;
        Ok(Self { ask, seen })
    }
}

fn watch(
    terminal: &mut ratatui::DefaultTerminal,
    looker: &Looker,
    watched: &mut Watched,
    every: Duration,
) -> Result<()> {
    let mut next = Instant::now() + every;
    // When the question was asked that has no answer yet.
    let mut asked: Option<Instant> = None;
    loop {
        terminal.draw(|frame| draw::draw(frame, watched)).context("draw")?;
        let left = match asked {
            None => next.saturating_duration_since(Instant::now()),
            Some(_) => ANSWER_LOOK_EVERY,
        };
        if event::poll(left).context("read the keyboard")? {
            if is_end(&event::read().context("read the keyboard")?) {
                return Ok(());
            }
            continue;
        }
        let Some(since) = asked else {
            // Its thread ends with this function.
            let _ = looker.ask.send(());
            asked = Some(Instant::now());
            continue;
        };
        match looker.seen.try_recv() {
            Ok(seen) => {
                watched.note(seen);
                asked = None;
                next = Instant::now() + every;
            }
            Err(_) if since.elapsed() > SILENCE_MAX => {
                let time = format_duration(Duration::from_secs(since.elapsed().as_secs()));
                watched.note(Err(anyhow!("no answer for {time}")));
            }
            Err(_) => {}
        }
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
