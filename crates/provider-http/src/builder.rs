use std::sync::Arc;

use serde_json::{Map, Value};

use crate::config_error::ConfigError;
use crate::endpoint::{Endpoint, EndpointSettings};
use crate::http_provider::HttpProvider;
use crate::key::ApiKey;
use crate::protocol::Protocol;
use crate::timeouts::Timeouts;

/// Sets up a provider that speaks `P`.
#[derive(Debug, Clone)]
pub struct HttpProviderBuilder<P> {
    model: Arc<str>,
    base_url: Option<String>,
    api_key: Option<ApiKey>,
    timeouts: Timeouts,
    extra_body: Map<String, Value>,
    protocol: P,
}

impl<P: Protocol> HttpProviderBuilder<P> {
    /// Names the model. Nothing is read from the environment: a key meant for the provider itself must
    /// not travel to another base URL unasked.
    pub fn new(model: impl Into<Arc<str>>) -> Self {
        Self {
            model: model.into(),
            base_url: None,
            api_key: None,
            timeouts: Timeouts::default(),
            extra_body: Map::new(),
            protocol: P::default(),
        }
    }

    /// Names the model and takes the key from the provider's variable, [`Protocol::KEY_VARIABLE`].
    ///
    /// # Errors
    ///
    /// As [`ApiKey::from_env`].
    pub fn from_env(model: impl Into<Arc<str>>) -> Result<Self, ConfigError> {
        let (protocol, api_key) = P::from_env()?;
        Ok(Self { api_key, protocol, ..Self::new(model) })
    }

    /// Changes the settings that this protocol alone has.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(P) -> P) -> Self {
        self.protocol = change(self.protocol);
        self
    }

    /// Sends to another endpoint than the provider's own; the protocol's path is appended.
    #[must_use]
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = Some(url.into());
        self
    }

    /// Sets the key. It is optional where a base URL is set: local endpoints need none, and a gateway
    /// may hold its own.
    #[must_use]
    pub fn api_key(mut self, key: impl Into<ApiKey>) -> Self {
        self.api_key = Some(key.into());
        self
    }

    /// Sets how long each phase may take. The first byte may take as long as a local server needs to
    /// load the model.
    #[must_use]
    pub const fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    /// Adds these fields to the body of every request, for what this builder has no word for. Objects
    /// are merged at every depth; another value takes the place of what would be sent.
    #[must_use]
    pub fn extra_body(mut self, fields: Map<String, Value>) -> Self {
        self.extra_body = fields;
        self
    }

    /// Returns what must never be shown, so that it can be taken out of everything.
    pub fn secrets(&self) -> impl Iterator<Item = &ApiKey> {
        self.api_key.iter().chain(self.protocol.secrets())
    }

    /// Makes the provider. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// [`ConfigError::MissingKey`] with neither key nor base URL, [`ConfigError::MissingSetting`]
    /// without something else that is needed, [`ConfigError::InvalidKey`],
    /// [`ConfigError::InvalidBaseUrl`], [`ConfigError::Client`].
    pub fn build(self) -> Result<HttpProvider<P>, ConfigError> {
        let signer = match &self.api_key {
            Some(_) => None,
            None => self.protocol.signer()?,
        };
        let is_authorised = self.api_key.is_some() || signer.is_some() || !P::NEEDS_KEY;
        if !is_authorised && self.base_url.is_none() {
            return Err(ConfigError::missing_key(P::KEY_VARIABLE));
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
            key: self.api_key.as_ref().map(|key| (P::KEY_HEADER, key)),
            secrets: self.secrets().collect(),
            signer,
            headers: P::HEADERS,
            timeouts: self.timeouts,
            rows: P::ROWS,
            kind_header: P::KIND_HEADER,
            extra_body: self.extra_body.clone(),
        })?;
        Ok(HttpProvider::new(endpoint, self.protocol))
    }
}
