//! The HTTP server: a few paths, GET and HEAD only, with bounds on everything that a client may
//! take.

use std::collections::VecDeque;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::access::{Access, Refusal};
use crate::metrics::Format;
use crate::page::Page;

/// Connections at a time; a further one ends the oldest, so that nobody keeps probes away by holding
/// connections.
const CONNECTIONS_MAX: usize = 64;
/// Bytes of a request's line and headers.
const HEADER_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;
/// Time for the headers of a request, and for which a connection may be idle.
const HEADER_PATIENCE: Duration = Duration::from_secs(30);
/// Time after which a connection is closed, whatever it does.
const CONNECTION_LIFE: Duration = Duration::from_secs(600);

/// A question to the thread that watches.
#[derive(Debug)]
pub enum Question {
    Metrics(Format),
    Now,
    /// Points that begin after a second of Unix time.
    History(u64),
    Ready,
}

/// An answer: whether it is a good one, and its text.
pub type Answer = (bool, String);

/// What happens to the thread that watches.
#[derive(Debug)]
pub enum Event {
    Asked(Question, oneshot::Sender<Answer>),
    /// A second is over.
    Tick,
    End,
}

/// What the handlers share.
#[derive(Debug)]
struct Desk {
    ask: mpsc::UnboundedSender<Event>,
    access: Access,
    page: Page,
}

/// Accepts connections and answers them, until the runtime ends.
pub async fn serve(
    listener: TcpListener,
    access: Access,
    ask: mpsc::UnboundedSender<Event>,
) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let router = router(Arc::new(Desk { ask, access, page: Page::new() }));
    let mut open = VecDeque::<AbortHandle>::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // No descriptor is left, or the client has gone: neither lasts.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        open.retain(|one| !one.is_finished());
        if open.len() >= CONNECTIONS_MAX
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(router.clone());
        let answering = tokio::spawn(async move {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_PATIENCE)
                .max_buf_size(HEADER_BYTES_MAX)
                .max_headers(HEADERS_MAX)
                .serve_connection(TokioIo::new(stream), service);
            // A client that breaks off is no event.
            let _ = tokio::time::timeout(CONNECTION_LIFE, connection).await;
        });
        open.push_back(answering.abort_handle());
    }
}

fn router(desk: Arc<Desk>) -> Router {
    let guarded = Router::new()
        .route("/", get(page))
        .route("/metrics", get(metrics))
        .route("/api/now", get(now))
        .route("/api/history", get(history))
        .fallback(nowhere)
        .layer(middleware::from_fn_with_state(Arc::clone(&desk), guard));
    // Probes ask by an address and without a password, and learn a word.
    Router::new()
        .route("/healthz", get(|| async { "alive\n" }))
        .route("/readyz", get(ready))
        .merge(guarded)
        .layer(middleware::map_response(with_headers))
        .with_state(desk)
}

/// Lets a request through, or refuses it.
async fn guard(State(desk): State<Arc<Desk>>, request: Request, next: Next) -> Response {
    match desk.access.check(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(Refusal::Host) => (
            StatusCode::MISDIRECTED_REQUEST,
            "This name is not known to be this server's: ask by its address, or start it with \
             --http-name NAME.\n",
        )
            .into_response(),
        Err(Refusal::Password) => (
            StatusCode::UNAUTHORIZED,
            [(header::WWW_AUTHENTICATE, "Basic realm=\"perdura\", charset=\"UTF-8\"")],
            "A password is needed; the user is perdura.\n",
        )
            .into_response(),
    }
}

async fn with_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let mut set = |name, value| {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    };
    set(header::CACHE_CONTROL, "no-store");
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::REFERRER_POLICY, "no-referrer");
    set(header::X_FRAME_OPTIONS, "DENY");
    set(header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'");
    set(header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    response
}

async fn page(State(desk): State<Arc<Desk>>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (header::CONTENT_SECURITY_POLICY, desk.page.policy.clone()),
    ];
    (headers, desk.page.html).into_response()
}

async fn metrics(State(desk): State<Arc<Desk>>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = Format::asked(accept);
    answered(&desk, Question::Metrics(format), format.content_type()).await
}

async fn now(State(desk): State<Arc<Desk>>) -> Response {
    answered(&desk, Question::Now, "application/json").await
}

async fn history(State(desk): State<Arc<Desk>>, request: Request) -> Response {
    let after = match request.uri().query() {
        None => Some(0),
        Some(query) => query.strip_prefix("after=").and_then(|after| after.parse().ok()),
    };
    let Some(after) = after else {
        let text = "Expected nothing, or ?after=SECONDS since 1970.\n";
        return (StatusCode::BAD_REQUEST, text).into_response();
    };
    answered(&desk, Question::History(after), "application/json").await
}

async fn ready(State(desk): State<Arc<Desk>>) -> Response {
    answered(&desk, Question::Ready, "text/plain; charset=utf-8").await
}

async fn nowhere() -> Response {
    let text = "Nothing is here: / /metrics /api/now /api/history /healthz /readyz\n";
    (StatusCode::NOT_FOUND, text).into_response()
}

async fn answered(desk: &Desk, question: Question, content_type: &'static str) -> Response {
    let (tell, told) = oneshot::channel();
    // The thread that watches is this one: it is there as long as requests are.
    let _ = desk.ask.send(Event::Asked(question, tell));
    match told.await {
        Ok((is_good, text)) => {
            let code = if is_good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            (code, [(header::CONTENT_TYPE, content_type)], text).into_response()
        }
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "The server ends.\n").into_response(),
    }
}
