//! A thread that waits for a warning and then calls the embedding program.

use std::io;

use perdura_warning::{Reading, State, Warnings};

/// Waits in a thread of its own, which shares nothing with those that write, until a source says
/// [`State::Low`] or [`State::Ending`], and then calls `act`: to close what is open, tell others,
/// end the process. Nothing is closed by itself, because only the program knows what else must be
/// done in that time.
///
/// ```no_run
/// use std::sync::Arc;
/// use perdura::{Holder, Options, RegionError, Store, StoreError, Warnings, on_warning};
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let holder = Holder::this_program();
///     let warnings = Warnings::by_signals()?; // before any thread is started
///     let store = Arc::new(Store::open_with("data", &Options::new().holder(holder))?);
///     let closed = Arc::clone(&store);
///     on_warning(warnings, move |warning| {
///         let code = match closed.close() {
///             Ok(flushed) => i32::from(!flushed.is_in_time),
///             Err(error) => {
///                 eprintln!("{warning}: {error}");
///                 2
///             }
///         };
///         std::process::exit(code)
///     })?;
///     loop {
///         match store.set("now", format!("{:?}", std::time::SystemTime::now())) {
///             Ok(()) => {}
///             // The thread above ends the process.
///             Err(StoreError::NotDurable(RegionError::Closed)) => std::thread::park(),
///             Err(error) => return Err(error.into()),
///         }
///     }
/// }
/// ```
///
/// # Errors
/// The system starts no thread.
pub fn on_warning(
    mut warnings: Warnings,
    act: impl FnOnce(Reading) + Send + 'static,
) -> io::Result<()> {
    let wait = move || act(warnings.wait_for(State::Low));
    std::thread::Builder::new().name("perdura-warning".into()).spawn(wait).map(drop)
}
