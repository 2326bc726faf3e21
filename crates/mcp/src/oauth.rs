//! Login as a client of its own (OAuth 2.1, grant `client_credentials`).

mod body;
mod discovery;
mod error;
mod reach;

use std::fmt;
use std::sync::Arc;

use backstop_process::check_request;
use backstop_tool::Grants;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Client, Url};
use serde::Deserialize;
use tokio::sync::Mutex;

use self::body::{read, unreachable};
pub(crate) use self::error::LoginError;
use self::reach::Reach;
use crate::secrets::Secrets;

/// Credentials with which a client obtains a token.
///
/// The token endpoint is discovered from the server (RFC 9728, RFC 8414) unless [`ClientCredentials::token_url`] sets
/// it: a server that is not trusted with the secret must not choose its recipient.
///
/// ```
/// use backstop_mcp::{ClientCredentials, McpServer};
///
/// let credentials = ClientCredentials::new("agent", "s3cret-s3cret").scopes(["files:read"]);
/// assert!(!format!("{credentials:?}").contains("s3cret"));
/// let server = McpServer::url("files", "https://mcp.example.com/mcp").oauth(credentials);
/// # let _ = server;
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct ClientCredentials {
    /// The client's id.
    pub id: String,
    /// The client's secret.
    pub(crate) secret: String,
    /// The requested scopes.
    pub scopes: Vec<String>,
    /// The token endpoint; discovered from the server if `None`.
    pub token_url: Option<String>,
}

impl ClientCredentials {
    /// Creates credentials that request no scope.
    pub fn new(id: impl Into<String>, secret: impl Into<String>) -> Self {
        Self { id: id.into(), secret: secret.into(), scopes: Vec::new(), token_url: None }
    }

    /// Sets the requested scopes.
    #[must_use]
    pub fn scopes<S: Into<String>>(mut self, scopes: impl IntoIterator<Item = S>) -> Self {
        self.scopes = scopes.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the token endpoint.
    #[must_use]
    pub fn token_url(mut self, url: impl Into<String>) -> Self {
        self.token_url = Some(url.into());
        self
    }
}

/// Shows no secret.
impl fmt::Debug for ClientCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCredentials")
            .field("id", &self.id)
            .field("scopes", &self.scopes)
            .field("token_url", &self.token_url)
            .finish_non_exhaustive()
    }
}

/// Obtains tokens, and keeps the last one.
pub(crate) struct Login {
    credentials: ClientCredentials,
    reach: Reach,
    secrets: Arc<Secrets>,
    token: Mutex<Option<String>>,
}

/// The response of a token endpoint; the tokens are redacted from the server's texts.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Granted {
    access_token: Option<String>,
    id_token: Option<String>,
    refresh_token: Option<String>,
}

impl Login {
    pub(crate) fn new(
        credentials: ClientCredentials,
        resource: Url,
        client: Client,
        grants: Grants,
        secrets: Arc<Secrets>,
    ) -> Self {
        let reach = Reach::new(resource, client, grants);
        Self { credentials, reach, secrets, token: Mutex::new(None) }
    }

    /// Returns the token, if there is one.
    pub(crate) async fn token(&self) -> Option<String> {
        self.token.lock().await.clone()
    }

    /// Obtains a token to replace the refused one. Requests that were refused together share the new token.
    pub(crate) async fn renew(
        &self,
        refused: Option<&str>,
        challenge: Option<&str>,
    ) -> Result<String, LoginError> {
        let mut token = self.token.lock().await;
        if let Some(newer) = token.as_ref().filter(|token| Some(token.as_str()) != refused) {
            return Ok(newer.clone());
        }
        let granted = self.grant(challenge).await;
        let granted = granted.map_err(|error| match error {
            LoginError::Failed(why) => LoginError::Failed(self.secrets.redact(&why)),
            denied => denied,
        })?;
        Ok(token.insert(granted).clone())
    }

    async fn grant(&self, challenge: Option<&str>) -> Result<String, LoginError> {
        let endpoint = match &self.credentials.token_url {
            Some(url) => Url::parse(url)
                .map_err(|error| LoginError::Failed(format!("the token URL: {error}")))?,
            None => discovery::token_endpoint(&self.reach, challenge).await?,
        };
        if !discovery::may_have_secrets(&endpoint) {
            return Err(LoginError::Failed(format!("`{endpoint}` is not `https`")));
        }
        // The operator's choice of recipient is trusted.
        let client = match &self.credentials.token_url {
            Some(_) => {
                check_request(endpoint.host_str().unwrap_or_default())
                    .map_err(|denied| LoginError::Failed(denied.to_string()))?;
                self.reach.client().clone()
            }
            None => self.reach.client_for(&endpoint).await?,
        };
        let ClientCredentials { id, secret, scopes, .. } = &self.credentials;
        // RFC 8707: a token for this server alone.
        let mut form = form_urlencoded(&[
            ("grant_type", "client_credentials"),
            ("resource", self.reach.server().as_str()),
        ]);
        if !scopes.is_empty() {
            form = form + "&" + &form_urlencoded(&[("scope", &scopes.join(" "))]);
        }
        let request = client
            .post(endpoint)
            .basic_auth(encode_form_text(id), Some(encode_form_text(secret)))
            .header("content-type", "application/x-www-form-urlencoded")
            .header("accept", "application/json")
            .body(form);
        let response = request.send().await.map_err(|error| unreachable(&error))?;
        let status = response.status();
        let body = read(response).await?;
        let granted = serde_json::from_slice::<Granted>(&body).unwrap_or_default();
        let Granted { access_token, id_token, refresh_token } = &granted;
        for token in [access_token, id_token, refresh_token].into_iter().flatten() {
            self.secrets.add(token);
        }
        match granted.access_token {
            Some(token) if status.is_success() => Ok(token),
            _ => {
                let said = self.secrets.redact(&String::from_utf8_lossy(&body));
                let said: String = said.chars().take(300).collect();
                let why =
                    format!("the authorization server answered HTTP {}: {said}", status.as_u16());
                Err(LoginError::Failed(why))
            }
        }
    }
}

fn form_urlencoded(fields: &[(&str, &str)]) -> String {
    let fields: Vec<String> =
        fields.iter().map(|(name, value)| format!("{name}={}", encode_form_text(value))).collect();
    fields.join("&")
}

/// Characters that form encoding does not escape.
const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'*');

/// Encodes a text for a form. By RFC 6749, 2.3.1, the id and the secret are encoded before they are joined.
fn encode_form_text(text: &str) -> String {
    utf8_percent_encode(text, KEPT).to_string().replace("%20", "+")
}
