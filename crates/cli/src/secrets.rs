//! Secrets for the store of this process, and for clients.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::LazyLock;

use backstop_event_log::text_digest;
use backstop_redact::{Redactor, SharedSecrets};
use url::Url;

use crate::exit::CliError;

/// Variables that hold a URL, of a store or of a proxy.
const URLS: [&str; 7] = [
    "BACKSTOP_STORE",
    "http_proxy",
    "HTTP_PROXY",
    "https_proxy",
    "HTTPS_PROXY",
    "all_proxy",
    "ALL_PROXY",
];
/// Variables that hold a secret.
const SECRETS: [&str; 3] = ["PGPASSWORD", "BACKSTOP_TOKEN", "BACKSTOP_LOG_KEY"];
/// Variable that names a file of passwords, and the default file in the home folder.
const PASSWORD_FILE: &str = "PGPASSFILE";
const USUAL_PASSWORD_FILE: &str = ".pgpass";
/// Parameters of a URL that hold a secret.
const PARAMETERS: [&str; 2] = ["password", "sslpassword"];
/// Index of the password in a line of a password file.
const PASSWORD_FIELD: usize = 4;

/// The secrets of this process, which all its redactors share. It begins with those of the environment, regardless of
/// agent files.
static HELD: LazyLock<SharedSecrets> = LazyLock::new(|| {
    let variable = |name: &&str| Some(std::env::var_os(name)?.to_string_lossy().into_owned());
    let urls = URLS.iter().filter_map(variable).flat_map(|url| in_url(&url));
    let secrets = SECRETS.iter().filter_map(variable).map(|secret| secret.trim().to_owned());
    let held = SharedSecrets::default();
    urls.chain(secrets).chain(in_password_file()).for_each(|secret| held.hold(secret));
    held
});

/// Adds secrets to those of the process.
pub(crate) fn hold(secrets: impl IntoIterator<Item = String>) {
    secrets.into_iter().for_each(|secret| HELD.hold(secret));
}

/// Returns a redactor of the secrets of the process, those included that it obtains later.
pub(crate) fn build_process_redactor() -> Redactor {
    Redactor::new().with_shared_secrets(&HELD)
}

/// Refuses a name that contains a secret, because redaction would change it to another name.
pub(crate) fn check_name(redactor: &Redactor, flag: &str, name: &str) -> Result<(), CliError> {
    match *redactor.redact_held(name) == *name {
        true => Ok(()),
        false => Err(CliError::usage(format!("{flag} holds a secret of this process"))
            .with_hint("take another name; it is stored, and shown")),
    }
}

/// Returns the stored form of a key: its digest if it contains a secret.
pub(crate) fn stored_key(redactor: &Redactor, key: String) -> String {
    match *redactor.redact_held(&key) == *key {
        true => key,
        false => format!("sha256:{}", text_digest(&key)),
    }
}

/// Returns the secrets in a URL: its passwords, decoded and as written, and the whole URL.
pub(crate) fn in_url(url: &str) -> BTreeSet<String> {
    // A proxy may be written without its scheme.
    let whole = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    let Ok(parsed) = Url::parse(&whole) else { return BTreeSet::new() };
    let mut secrets = BTreeSet::new();
    if let Some(written) = parsed.password() {
        secrets.extend([written.to_owned(), percent_decode(written)]);
    }
    let parameters = parsed.query_pairs().filter(|(name, _)| PARAMETERS.contains(&&**name));
    secrets.extend(parameters.map(|(_, value)| value.into_owned()));
    if !secrets.is_empty() {
        secrets.insert(url.to_owned());
    }
    secrets
}

/// Percent-decodes a part of a URL.
fn percent_decode(written: &str) -> String {
    // Outside a query, a plus sign is literal.
    let pair = format!("it={}", written.replace('+', "%2B").replace('&', "%26"));
    let mut pairs = url::form_urlencoded::parse(pair.as_bytes());
    pairs.next().map(|(_, value)| value.into_owned()).unwrap_or_default()
}

/// Returns the passwords of the file that PostgreSQL's clients read.
fn in_password_file() -> Vec<String> {
    let usual = || std::env::home_dir().map(|home| home.join(USUAL_PASSWORD_FILE));
    let path = std::env::var_os(PASSWORD_FILE).map(PathBuf::from).or_else(usual);
    let text = path.and_then(|path| backstop_config::read_text(&path).ok()).unwrap_or_default();
    text.lines().filter(|line| !line.starts_with('#')).filter_map(password).collect()
}

/// Returns the password of a line `host:port:database:user:password`, in which a backslash escapes a character.
fn password(line: &str) -> Option<String> {
    let (mut fields, mut chars) = (vec![String::new()], line.chars());
    while let Some(char) = chars.next() {
        match char {
            ':' if fields.len() <= PASSWORD_FIELD => fields.push(String::new()),
            char => {
                let char = if char == '\\' { chars.next().unwrap_or(char) } else { char };
                fields.last_mut()?.push(char);
            }
        }
    }
    fields.into_iter().nth(PASSWORD_FIELD)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: E10
    #[test]
    fn passwords_of_a_url_are_secrets() {
        let held = |url: &str| in_url(url).into_iter().collect::<Vec<_>>();
        let url = "postgres://app:s%40cret%2Bpass@db/backstop";
        assert_eq!(held(url), [url, "s%40cret%2Bpass", "s@cret+pass"]);
        let url = "postgres://app@db/backstop?password=s3cret-pass&sslmode=require";
        assert_eq!(held(url), [url, "s3cret-pass"]);
        assert_eq!(held("app:proxy-pass@proxy:3128"), ["app:proxy-pass@proxy:3128", "proxy-pass"]);
        for plain in ["postgres://app@db/backstop", "sqlite:backstop.db", "sqlite::memory:"] {
            assert_eq!(held(plain), Vec::<String>::new());
        }
    }

    /// Spec: E10
    #[test]
    fn password_file_is_read_as_its_clients_do() {
        let read = |line: &str| password(line);
        assert_eq!(read(r"db:5432:*:app:pa\:ss\\word").as_deref(), Some(r"pa:ss\word"));
        assert_eq!(read(r"::1:5432").as_deref(), None);
        assert_eq!(read(r"\:\:1:5432:*:app:secret:more").as_deref(), Some("secret:more"));
    }

    /// Spec: E10
    #[test]
    fn password_of_a_named_store_is_held() {
        let url = "postgres://app:password-of-this-test@db/backstop";
        crate::store::parse(url, &crate::store::StoreUrlSource::Flag("--store")).unwrap();
        let redactor = build_process_redactor();
        assert_eq!(redactor.redact_held("it is password-of-this-test."), "it is [redacted].");
    }

    /// Spec: E10
    #[test]
    fn secret_key_is_stored_by_its_digest() {
        let redactor = Redactor::new().with_secret("sk-held-secret-key");
        let key = |key: &str| stored_key(&redactor, key.to_owned());
        assert_eq!(key("order-7"), "order-7");
        assert!(key("k-sk-held-secret-key").starts_with("sha256:"));
        assert_ne!(key("a-sk-held-secret-key"), key("b-sk-held-secret-key"));
        check_name(&redactor, "--session", "s-1").unwrap();
        check_name(&redactor, "--session", "s-sk-held-secret-key").unwrap_err();
    }
}
