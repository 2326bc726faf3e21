use backstop_provider::ProviderError;
use http::HeaderMap;
use layer0::Timestamp;

/// A source of headers that depend on the request, such as its signature.
pub trait Sign: Send + Sync {
    /// Returns the headers to add. They are marked as sensitive.
    ///
    /// # Errors
    ///
    /// The reason why the request cannot be signed; it is not sent then.
    fn sign(&self, request: &Unsigned<'_>) -> Result<HeaderMap, ProviderError>;
}

/// A request as it is sent, without its signature.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Unsigned<'r> {
    /// The method, such as `POST`.
    pub method: &'r str,
    /// The whole URL.
    pub url: &'r str,
    /// The headers set so far. The client adds `host`, `accept` and `content-length`.
    pub headers: &'r HeaderMap,
    /// The body.
    pub body: &'r [u8],
    /// The time of day.
    pub at: Timestamp,
}

impl<'r> Unsigned<'r> {
    /// Makes a request without headers, body or time, for tests of signers.
    #[must_use]
    pub fn new(method: &'r str, url: &'r str, headers: &'r HeaderMap) -> Self {
        Self { method, url, headers, body: &[], at: Timestamp::default() }
    }
}
