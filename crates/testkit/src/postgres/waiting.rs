//! Waiting for servers, and asking them, on threads of their own: the caller may be in a runtime.

use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, PgConnection};

use backstop_clock::{Clock, SystemClock};

/// How long a server may take to start or to stop.
const PATIENCE: Duration = Duration::from_secs(60);

/// Connects, and does something with the connection. `None` where there is none, or the URL is none.
pub(super) fn connected<T: Send + 'static>(
    url: &str,
    work: impl AsyncFnOnce(PgConnection) -> T + Send + 'static,
) -> Option<T> {
    let options: PgConnectOptions = url.parse().ok()?;
    let connect = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let connection = options.extra_float_digits(None).connect().await.ok()?;
            Some(work(connection).await)
        })
    };
    std::thread::spawn(connect).join().ok().flatten()
}

/// Does the server let a client in?
pub(super) fn answers(url: &str) -> bool {
    connected(url, async |_| ()).is_some()
}

/// Waits until the server answers.
pub(super) fn until_it_answers(what: &str, url: &str) {
    until(&format!("{what} answers"), || answers(url));
}

/// Waits until something is so.
pub(super) fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = SystemClock.now().after(PATIENCE);
    while !is_so() {
        assert!(SystemClock.now() < end, "it takes too long until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
