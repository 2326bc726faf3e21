//! The password file of libpq, with lines `HOST:PORT:DATABASE:USER:PASSWORD`; the first match counts. See
//! <https://www.postgresql.org/docs/current/libpq-pgpass.html>.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use sqlx::postgres::PgConnectOptions;

/// Returns the password from the file that `PGPASSFILE` names, or from `~/.pgpass`. A file that others may read is
/// ignored, as in libpq; none of its lines is ever shown.
pub(crate) fn password(
    options: &PgConnectOptions,
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> Option<String> {
    let path = match variable("PGPASSFILE") {
        Some(named) => PathBuf::from(named),
        None => Path::new(&variable("HOME")?).join(".pgpass"),
    };
    let text = private_text(&path)?;
    let user = options.get_username();
    let host = if options.get_socket().is_some() { "localhost" } else { options.get_host() };
    let wanted =
        [host, &options.get_port().to_string(), options.get_database().unwrap_or(user), user];
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let fields = fields(line);
        let (of_line, password) = (fields.get(..4)?, fields.get(4)?);
        let is_it = |(field, wanted): (&String, &&str)| field == "*" || field == wanted;
        of_line.iter().zip(&wanted).all(is_it).then(|| password.clone())
    })
}

/// Reads a file that only its owner may read.
fn private_text(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let metadata = file.metadata().ok()?;
        if !metadata.is_file() || metadata.permissions().mode() & 0o077 != 0 {
            tracing::warn!(path = %path.display(), "a password file that others may read is not used");
            return None;
        }
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).ok()?;
    String::from_utf8(bytes).ok()
}

/// Returns the fields of a line: `\` escapes `:` and itself.
fn fields(line: &str) -> Vec<String> {
    let mut fields = Vec::new();
    let mut field = String::new();
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            ':' if fields.len() < 4 => fields.push(std::mem::take(&mut field)),
            '\\' => field.extend(characters.next()),
            other => field.push(other),
        }
    }
    fields.push(field);
    fields
}
