use std::sync::Arc;

use backstop_redact::is_secret_name;
use serde_json::{Map, Value};

use crate::config_error::ProviderConfigError;
use crate::endpoint::{Endpoint, EndpointSettings};
use crate::header::ExtraHeader;
use crate::http_provider::HttpProvider;
use crate::key::ApiKey;
use crate::protocol::Protocol;
use crate::timeouts::Timeouts;

/// A builder of a provider that speaks `P`.
#[derive(Debug, Clone)]
pub struct HttpProviderBuilder<P> {
    model: Arc<str>,
    base_url: Option<String>,
    api_key: Option<ApiKey>,
    timeouts: Timeouts,
    extra_body: Map<String, Value>,
    headers: Vec<ExtraHeader>,
    user_agent: Option<String>,
    protocol: P,
}

impl<P: Protocol> HttpProviderBuilder<P> {
    /// Creates a builder for a model.
    ///
    /// Reads nothing from the environment: a key meant for the provider itself must not be sent to
    /// another base URL by default.
    pub fn new(model: impl Into<Arc<str>>) -> Self {
        Self {
            model: model.into(),
            base_url: None,
            api_key: None,
            timeouts: Timeouts::default(),
            extra_body: Map::new(),
            headers: Vec::new(),
            user_agent: None,
            protocol: P::default(),
        }
    }

    /// Creates a builder for a model with the key from the provider's variable, [`Protocol::KEY_VARIABLE`].
    ///
    /// # Errors
    ///
    /// As [`ApiKey::from_env`].
    pub fn from_env(model: impl Into<Arc<str>>) -> Result<Self, ProviderConfigError> {
        let (protocol, api_key) = P::from_env()?;
        Ok(Self { api_key, protocol, ..Self::new(model) })
    }

    /// Changes the settings that only this protocol has.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(P) -> P) -> Self {
        self.protocol = change(self.protocol);
        self
    }

    /// Sets the base URL of an endpoint other than the provider's own; the protocol's path is appended.
    #[must_use]
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = Some(url.into());
        self
    }

    /// Sets the key. It is optional with a base URL: local endpoints need none, and a gateway may
    /// hold its own.
    #[must_use]
    pub fn api_key(mut self, key: impl Into<ApiKey>) -> Self {
        self.api_key = Some(key.into());
        self
    }

    /// Sets the timeout of each phase. The first byte may take as long as a local server needs to
    /// load the model.
    #[must_use]
    pub const fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    /// Adds fields to the body of every request, for settings that this builder lacks.
    ///
    /// Objects are merged at every depth, and `tools` are appended to those of the request; any
    /// other value replaces the one in the request.
    #[must_use]
    pub fn extra_body(mut self, fields: Map<String, Value>) -> Self {
        self.extra_body = fields;
        self
    }

    /// Adds a header to every request, in place of a header of the protocol with the same name.
    ///
    /// Its value is a secret if the name implies it, such as `x-api-key` or `cookie`.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let name = name.into();
        let is_secret = is_secret_name(&name);
        self.headers.push(ExtraHeader { name, value: ApiKey::from(value.into()), is_secret });
        self
    }

    /// Adds a header like [`HttpProviderBuilder::header`], with a value that is never shown.
    #[must_use]
    pub fn secret_header(mut self, name: impl Into<String>, value: impl Into<ApiKey>) -> Self {
        self.headers.push(ExtraHeader { name: name.into(), value: value.into(), is_secret: true });
        self
    }

    /// Sets the name of the calling program in the header `user-agent`; `backstop/VERSION` by default.
    #[must_use]
    pub fn user_agent(mut self, name: impl Into<String>) -> Self {
        self.user_agent = Some(name.into());
        self
    }

    /// Returns the secrets of the builder, so that they can be redacted everywhere.
    pub fn secrets(&self) -> impl Iterator<Item = &ApiKey> {
        let headers = self.headers.iter().filter(|header| header.is_secret);
        self.api_key
            .iter()
            .chain(self.protocol.secrets())
            .chain(headers.map(|header| &header.value))
    }

    /// Builds the provider. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// [`ProviderConfigError::MissingKey`] with neither key nor base URL, [`ProviderConfigError::MissingSetting`]
    /// without another required setting, [`ProviderConfigError::InvalidKey`],
    /// [`ProviderConfigError::InvalidBaseUrl`], [`ProviderConfigError::InvalidHeader`], [`ProviderConfigError::Client`].
    pub fn build(self) -> Result<HttpProvider<P>, ProviderConfigError> {
        let signer = match &self.api_key {
            Some(_) => None,
            None => self.protocol.signer()?,
        };
        let (key_header, prefix) = self.protocol.key_header();
        let brings_key = self.headers.iter().any(|it| it.name.eq_ignore_ascii_case(key_header));
        let is_authorised =
            brings_key || self.api_key.is_some() || signer.is_some() || !P::NEEDS_KEY;
        if !is_authorised && self.base_url.is_none() {
            return Err(ProviderConfigError::missing_key(P::KEY_VARIABLE));
        }
        let base_url = match &self.base_url {
            Some(url) => url.into(),
            None => self.protocol.base_url()?,
        };
        let endpoint = Endpoint::open(EndpointSettings {
            provider: P::NAME,
            model: &self.model,
            base_url: &base_url,
            is_own: self.base_url.is_none(),
            paths: [false, true].map(|is_streamed| self.protocol.path(&self.model, is_streamed)),
            key: self.api_key.as_ref().map(|key| ((key_header, prefix), key)),
            secrets: self.secrets().collect(),
            signer,
            headers: P::HEADERS,
            further_headers: &self.headers,
            user_agent: self.user_agent.as_deref(),
            timeouts: self.timeouts,
            rows: P::ROWS,
            kind_header: P::KIND_HEADER,
            extra_body: self.extra_body.clone(),
        })?;
        Ok(HttpProvider::new(endpoint, self.protocol))
    }
}
