//! Waits for servers and queries them on separate threads, because the caller may be in a runtime.

use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, PgConnection};

use backstop_clock::{Clock, SystemClock};

/// Time limit for the start or stop of a server.
const PATIENCE: Duration = Duration::from_secs(60);

/// Connects, and uses the connection. `None` without a connection, or if the URL is not valid.
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

/// Returns whether the server accepts a client.
pub(super) fn answers(url: &str) -> bool {
    connected(url, async |_| ()).is_some()
}

/// Waits until the server answers.
pub(super) fn until_it_answers(what: &str, url: &str) {
    until(&format!("{what} answers"), || answers(url));
}

/// Waits until a condition holds.
pub(super) fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = SystemClock.now().after(PATIENCE);
    while !is_so() {
        assert!(SystemClock.now() < end, "it takes too long until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
