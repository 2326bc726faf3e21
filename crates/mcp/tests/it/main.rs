//! Faulty MCP servers, and the failures of calls to their tools.
//!
//! The program is also the server over stdio: with the argument `serve`, it answers requests.
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "all of it is tests, and a program that speaks over stdio"
)]

mod calls;
mod conformance;
mod connecting;
mod images;
mod inputs;
mod lifetime;
mod listing;
mod login;
mod page;
mod rows;
mod server;
mod support;

use libtest_mimic::{Arguments, Trial};

fn main() {
    if std::env::args().nth(1).as_deref() == Some("serve") {
        server::stdio::serve();
        return;
    }
    if std::env::args().nth(1).as_deref() == Some("hold") {
        lifetime::hold();
        return;
    }
    if std::env::args().nth(1).as_deref() == Some("conformance") {
        conformance::client();
        return;
    }
    let mut trials: Vec<Trial> = rows::trials();
    trials.extend(conformance::trials());
    trials.extend(calls::trials());
    trials.extend(connecting::trials());
    trials.extend(images::trials());
    trials.extend(inputs::trials());
    trials.extend(lifetime::trials());
    trials.extend(listing::trials());
    trials.extend(login::trials());
    trials.extend(page::trials());
    let mut arguments = Arguments::from_args();
    // Most tests wait.
    arguments.test_threads.get_or_insert(6);
    libtest_mimic::run(&arguments, trials).exit();
}
