//! URLs of databases.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use layer0::error::BoxError;
use sqlx::postgres::{PgConnectOptions, PgSslMode};

use crate::connect::{Connect, KeyFile};
use crate::open_error::OpenError;
use crate::passfile;

/// Schemes of URLs.
const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];

/// The parameters that are used.
const KNOWN: [&str; 13] = [
    "application_name",
    "dbname",
    "host",
    "hostaddr",
    "options",
    "password",
    "port",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "statement-cache-capacity",
    "user",
];
/// Parameters of libpq that are ignored: they change only how long an operation takes, or TLS with a checked
/// certificate does not need them.
const LEFT_OUT: [&str; 13] = [
    "channel_binding",
    "client_encoding",
    "connect_timeout",
    "fallback_application_name",
    "gssencmode",
    "keepalives",
    "keepalives_count",
    "keepalives_idle",
    "keepalives_interval",
    "load_balance_hosts",
    "sslsni",
    "target_session_attrs",
    "tcp_user_timeout",
];
/// The parameters that name files, with the environment variables that replace missing ones.
const FILES: [(&str, &str); 3] =
    [("sslrootcert", "PGSSLROOTCERT"), ("sslcert", "PGSSLCERT"), ("sslkey", "PGSSLKEY")];

/// Parses a URL, with missing parts from the environment and the password file.
///
/// # Errors
///
/// [`OpenError::InvalidUrl`], which contains neither the URL nor one of its values.
pub(crate) fn read(url: &str) -> Result<Connect, OpenError> {
    read_with(url, &|name| std::env::var_os(name))
}

fn read_with(url: &str, variable: &dyn Fn(&str) -> Option<OsString>) -> Result<Connect, OpenError> {
    let invalid = |why: BoxError| OpenError::InvalidUrl(why);
    let Some(rest) = SCHEMES.iter().find_map(|scheme| url.strip_prefix(scheme)) else {
        return Err(invalid("it does not begin with postgres://".into()));
    };
    let parameters = parameters(rest);
    for (name, _) in &parameters {
        check(name).map_err(invalid)?;
    }
    let value = |wanted: &str| parameters.iter().rfind(|(name, _)| *name == wanted);
    let text = |name: &str| variable(name).map(|value| value.to_string_lossy().into_owned());
    if value("sslmode").is_none()
        && let Some(mode) = text("PGSSLMODE")
        && PgSslMode::from_str(&mode).is_err()
    {
        return Err(invalid("PGSSLMODE has no mode that there is".into()));
    }
    let has_password =
        value("password").is_some() || has_password(rest) || text("PGPASSWORD").is_some();
    // Without a password, sqlx would read the password file itself, and log the lines that it cannot parse.
    let read = match has_password {
        true => PgConnectOptions::from_str(url),
        false => PgConnectOptions::from_str(&with_empty_password(url)),
    };
    let mut options = read.map_err(|error| invalid(error.into()))?;
    let has_user = value("user").is_some() || has_user(rest) || text("PGUSER").is_some();
    // As in libpq: the user of the process.
    if !has_user && let Ok(user) = whoami::username() {
        options = options.username(&user);
    }
    if !has_password && let Some(found) = passfile::password(&options, variable) {
        options = options.password(&found);
    }
    let files: Vec<KeyFile> = FILES
        .into_iter()
        .filter_map(|(name, named_by)| {
            let path = match value(name) {
                Some((_, path)) => path.clone(),
                None => text(named_by)?,
            };
            let is_file = !path.trim_start().starts_with("-----BEGIN");
            Some(KeyFile { name, path: PathBuf::from(path) }).filter(|_| is_file)
        })
        .collect();
    // As in libpq: a named certificate authority requires a check of the certificate.
    let names_root = value("sslrootcert").is_some() || text("PGSSLROOTCERT").is_some();
    if names_root && matches!(options.get_ssl_mode(), PgSslMode::Require) {
        options = options.ssl_mode(PgSslMode::VerifyCa);
    }
    Ok(Connect::new(options, files))
}

/// Refuses an unknown parameter: a misspelt one, such as `sslmod`, would have no effect.
fn check(name: &str) -> Result<(), BoxError> {
    let is_option = name.starts_with("options[") && name.ends_with(']');
    if KNOWN.contains(&name) || is_option {
        return Ok(());
    }
    if LEFT_OUT.contains(&name) {
        tracing::debug!(name, "a parameter of the URL is not used");
        return Ok(());
    }
    let shown: String = name.chars().take(64).collect();
    Err(format!("it has a parameter that is not known: {shown:?}").into())
}

/// Returns the parameters of a URL without its scheme, as names and values.
fn parameters(rest: &str) -> Vec<(&str, String)> {
    let without_fragment = rest.split('#').next().unwrap_or_default();
    let Some((_, query)) = without_fragment.split_once('?') else { return Vec::new() };
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (name, decode_percent(value)))
        .collect()
}

/// Decodes percent-encoding.
fn decode_percent(value: &str) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match (first, digits.and_then(|digits| u8::from_str_radix(digits, 16).ok())) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            (b'+', _) => {
                bytes.push(b' ');
                rest = after;
            }
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns whether a URL without its scheme has a password before its host.
fn has_password(rest: &str) -> bool {
    before_host(rest).is_some_and(|user| user.contains(':'))
}

/// Returns whether a URL without its scheme has a user before its host.
fn has_user(rest: &str) -> bool {
    before_host(rest).is_some_and(|user| !user.is_empty() && !user.starts_with(':'))
}

fn before_host(rest: &str) -> Option<&str> {
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit_once('@').map(|(user, _)| user)
}

fn with_empty_password(url: &str) -> String {
    let url = url.split('#').next().unwrap_or_default();
    let join = if url.contains('?') { '&' } else { '?' };
    format!("{url}{join}password=")
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn nothing(_: &str) -> Option<OsString> {
        None
    }

    #[track_caller]
    fn refused(url: &str) -> String {
        match read_with(url, &nothing) {
            Err(OpenError::InvalidUrl(why)) => why.to_string(),
            other => panic!("{url}: {other:?}"),
        }
    }

    /// Spec: J2
    #[test]
    fn misspelt_parameters_are_refused() {
        let said = refused("postgres://me:canary@h/d?sslmod=verify-full");
        assert_eq!(said, "it has a parameter that is not known: \"sslmod\"");
        for wrong in ["?passwd=canary", "?sslmode=require&require_auth=canary", "?sslcrl=canary"] {
            assert!(!refused(&format!("postgres://me@h/d{wrong}")).contains("canary"), "{wrong}");
        }
        assert!(read_with("postgres://h/d?connect_timeout=5&options[a.b]=1#x", &nothing).is_ok());
        let variable = |name: &str| (name == "PGSSLMODE").then(|| "verify_full".into());
        assert!(read_with("postgres://h/d", &variable).is_err());
        assert!(read_with("postgres://h/d?sslmode=verify-full", &variable).is_ok());
    }

    /// Spec: J2
    #[test]
    fn a_named_root_is_always_checked() {
        let mode = |url: &str, variable: &dyn Fn(&str) -> Option<OsString>| {
            read_with(url, variable).unwrap().options().get_ssl_mode()
        };
        let bare = mode("postgres://h/d?sslmode=require", &nothing);
        assert!(matches!(bare, PgSslMode::Require), "{bare:?}");
        let named = mode("postgres://h/d?sslmode=require&sslrootcert=a%2Fb.pem", &nothing);
        assert!(matches!(named, PgSslMode::VerifyCa), "{named:?}");
        let variable = |name: &str| (name == "PGSSLROOTCERT").then(|| "a.pem".into());
        let of_environment = mode("postgres://h/d?sslmode=require", &variable);
        assert!(matches!(of_environment, PgSslMode::VerifyCa), "{of_environment:?}");
    }

    /// Spec: J2. As in libpq, the user of the process is the default.
    #[test]
    fn missing_user_is_that_of_the_process() {
        let user = |url: &str, variable: &dyn Fn(&str) -> Option<OsString>| {
            read_with(url, variable).unwrap().options().get_username().to_owned()
        };
        let own = whoami::username().unwrap();
        for without in ["postgres://h/d", "postgres://@h/d", "postgres://:secret@h/d"] {
            assert_eq!(user(without, &nothing), own, "{without}");
        }
        for named in ["postgres://me@h/d", "postgres://me:secret@h/d", "postgres://h/d?user=me"] {
            assert_eq!(user(named, &nothing), "me", "{named}");
        }
    }

    /// Spec: J2. The password of the file is used, and shown nowhere.
    #[test]
    fn the_password_file_is_read() {
        let path = std::env::temp_dir().join(format!("backstop-pgpass-{}", std::process::id()));
        let mut file = std::fs::File::create(&path).unwrap();
        file.write_all(b"# h:1:d:me:no\nbroken canary\nh:1:other:me:no\nh:*:d:me:ca\\:nary\\\\\n*:*:*:*:last\n")
            .unwrap();
        file.set_permissions(std::fs::Permissions::from_mode(0o600)).unwrap();
        let variable = |name: &str| (name == "PGPASSFILE").then(|| path.clone().into_os_string());
        let password = |url: &str| {
            let connect = read_with(url, &variable).unwrap();
            assert!(!format!("{connect:?}").contains("nary"), "{connect:?}");
            // sqlx shows it only here.
            format!("{:?}", connect.options())
        };
        let is = |password: &str| format!("password: Some({password:?})");
        assert!(password("postgres://me@h:1/d").contains(&is("ca:nary\\")));
        assert!(password("postgres://you@h:1/d").contains(&is("last")));
        assert!(password("postgres://me:own@h:1/d").contains(&is("own")));
        assert!(password("postgres://me@h:1/d?password=own").contains(&is("own")));
        file.set_permissions(std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(password("postgres://me@h:1/d").contains(&is("")), "others may read it");
        std::fs::remove_file(&path).unwrap();
    }
}
