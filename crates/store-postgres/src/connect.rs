//! How connections are made.

use std::fmt;
use std::path::PathBuf;

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, PgConnection};

/// What connections say of themselves in `pg_stat_activity`.
const APPLICATION: &str = "backstop";

/// How the server is reached. It holds the password, and never shows it.
#[derive(Clone)]
pub(crate) struct Connect {
    options: PgConnectOptions,
    files: Vec<KeyFile>,
}

/// A file with certificates or a key.
#[derive(Debug, Clone)]
pub(crate) struct KeyFile {
    /// The parameter that names it.
    pub(crate) name: &'static str,
    pub(crate) path: PathBuf,
}

impl Connect {
    pub(crate) fn new(options: PgConnectOptions, files: Vec<KeyFile>) -> Self {
        // Proxies refuse settings that they do not know; no number with a fraction is read.
        let options = options.application_name(APPLICATION).extra_float_digits(None);
        Self { options: options.disable_statement_logging(), files }
    }

    pub(crate) const fn options(&self) -> &PgConnectOptions {
        &self.options
    }

    /// Returns the files that a connection with TLS reads.
    pub(crate) fn files(&self) -> &[KeyFile] {
        &self.files
    }

    pub(crate) async fn connect(&self) -> Result<PgConnection, sqlx::Error> {
        self.options.connect().await
    }
}

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connect").field("host", &self.options.get_host()).finish_non_exhaustive()
    }
}
