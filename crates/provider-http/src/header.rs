use reqwest::header::{HeaderMap, HeaderName, HeaderValue, USER_AGENT};

use crate::ApiKey;
use crate::config_error::ProviderConfigError;

/// The default `user-agent`.
const DEFAULT_USER_AGENT: &str = concat!("backstop/", env!("CARGO_PKG_VERSION"));

/// Headers of the transfer itself, set by the adapter.
const OWN: [&str; 6] =
    ["connection", "content-length", "content-type", "expect", "host", "transfer-encoding"];

/// A header that the protocol does not know.
#[derive(Debug, Clone)]
pub(crate) struct ExtraHeader {
    pub(crate) name: String,
    pub(crate) value: ApiKey,
    /// Whether the value is kept out of all output.
    pub(crate) is_secret: bool,
}

/// Adds the `user-agent` and the further headers.
pub(crate) fn add(
    headers: &mut HeaderMap,
    further: &[ExtraHeader],
    user_agent: Option<&str>,
) -> Result<(), ProviderConfigError> {
    let agent = user_agent.unwrap_or(DEFAULT_USER_AGENT);
    headers.insert(USER_AGENT, value(USER_AGENT.as_str(), agent)?);
    for header in further {
        let name: HeaderName = header.name.parse().map_err(|_| {
            ProviderConfigError::invalid_header(&header.name, "it is no name of a header")
        })?;
        if OWN.contains(&name.as_str()) {
            return Err(ProviderConfigError::invalid_header(
                &header.name,
                "it is set by the adapter",
            ));
        }
        let mut value = value(&header.name, header.value.reveal())?;
        value.set_sensitive(header.is_secret);
        headers.insert(name, value);
    }
    Ok(())
}

fn value(name: &str, text: &str) -> Result<HeaderValue, ProviderConfigError> {
    let why = "its value holds characters that a header cannot carry";
    HeaderValue::from_str(text).map_err(|_| ProviderConfigError::invalid_header(name, why))
}
