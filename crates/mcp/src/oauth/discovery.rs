//! Discovery of a server's token endpoint.

use backstop_process::is_loopback;
use http::header::ACCEPT;
use reqwest::Url;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::body::read;
use super::error::LoginError;
use super::reach::Reach;

/// Maximum length of another resource's URL in a message, in characters.
const MAX_SHOWN_CHARS: usize = 200;

/// Protected resource metadata (RFC 9728).
#[derive(Deserialize)]
struct Resource {
    /// The server that the document describes.
    resource: String,
    #[serde(default)]
    authorization_servers: Vec<String>,
}

/// Authorization server metadata (RFC 8414).
#[derive(Deserialize)]
struct Issuer {
    issuer: String,
    token_endpoint: String,
}

/// Finds the token endpoint from the server's challenge or its well-known documents.
pub(super) async fn token_endpoint(
    reach: &Reach,
    challenge: Option<&str>,
) -> Result<Url, LoginError> {
    let resource = reach.server();
    let failed = |why: String| Err(LoginError::Failed(why));
    let named = challenge.and_then(resource_metadata).and_then(|url| Url::parse(&url).ok());
    let known = well_known(resource, "oauth-protected-resource", true);
    let mut documents = named.into_iter().chain(known);
    let mut issuer = None;
    while let (Some(url), None) = (documents.next(), &issuer) {
        let Some(document) = document::<Resource>(reach, url).await? else { continue };
        if !is_about(&document.resource, resource) {
            let about: String = document.resource.chars().take(MAX_SHOWN_CHARS).collect();
            return failed(format!("its protected resource metadata is about another, `{about}`"));
        }
        issuer = document.authorization_servers.into_iter().next();
    }
    // In revision 2025-03-26 the server itself issues tokens.
    let issuer = issuer.unwrap_or_else(|| resource.origin().ascii_serialization());
    let issuer = Url::parse(&issuer)
        .map_err(|error| LoginError::Failed(format!("its authorization server: {error}")))?;
    for name in ["oauth-authorization-server", "openid-configuration"] {
        for url in well_known(&issuer, name, false) {
            let Some(found) = document::<Issuer>(reach, url).await? else { continue };
            if found.issuer.trim_end_matches('/') != issuer.as_str().trim_end_matches('/') {
                return failed(format!(
                    "the authorization server of `{issuer}` says it is another"
                ));
            }
            return Url::parse(&found.token_endpoint)
                .or_else(|error| failed(format!("the token endpoint of `{issuer}`: {error}")));
        }
    }
    failed(format!("`{issuer}` does not say where tokens are given"))
}

/// Returns whether the metadata of this resource covers a server; its URL may cover all paths below it.
fn is_about(resource: &str, server: &Url) -> bool {
    let Ok(resource) = Url::parse(resource) else { return false };
    let path = resource.path().trim_end_matches('/');
    let below = server.path().strip_prefix(path);
    resource.origin() == server.origin()
        && resource.query().is_none_or(|query| server.query() == Some(query))
        && below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
}

/// Returns whether a secret may be sent to this URL.
pub(super) fn may_have_secrets(url: &Url) -> bool {
    url.scheme() == "https" || (url.scheme() == "http" && url.host_str().is_some_and(is_loopback))
}

/// Returns the URLs of a well-known document: before the path, and with `with_root` also at the root.
fn well_known(url: &Url, name: &str, with_root: bool) -> Vec<Url> {
    let path = url.path().trim_end_matches('/');
    let at = |path: &str| {
        let mut found = url.clone();
        found.set_path(&format!("/.well-known/{name}{path}"));
        (found.query().is_some()).then(|| found.set_query(None));
        found
    };
    match path.is_empty() {
        true => vec![at("")],
        false if with_root => vec![at(path), at("")],
        false => vec![at(path)],
    }
}

/// Fetches a document, if it exists.
async fn document<T: DeserializeOwned>(reach: &Reach, url: Url) -> Result<Option<T>, LoginError> {
    let client = reach.client_for(&url).await?;
    let Ok(response) = client.get(url).header(ACCEPT, "application/json").send().await else {
        return Ok(None);
    };
    if !response.status().is_success() {
        return Ok(None);
    }
    Ok(read(response).await.ok().and_then(|body| serde_json::from_slice(&body).ok()))
}

/// Returns the URL of the resource metadata in a `WWW-Authenticate` header.
fn resource_metadata(challenge: &str) -> Option<String> {
    let (_, rest) = challenge.split_once("resource_metadata=")?;
    let rest = rest.strip_prefix('"').unwrap_or(rest);
    rest.split(['"', ',', ' ']).next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: Q9
    #[test]
    fn documents_are_looked_for_where_the_rfcs_say() {
        let at = |url: &str, name, with_root| -> Vec<String> {
            let url = Url::parse(url).unwrap();
            well_known(&url, name, with_root).iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            at("https://a.example/mcp?x=1", "oauth-protected-resource", true),
            [
                "https://a.example/.well-known/oauth-protected-resource/mcp",
                "https://a.example/.well-known/oauth-protected-resource"
            ]
        );
        assert_eq!(
            at("https://a.example", "openid-configuration", false),
            ["https://a.example/.well-known/openid-configuration"]
        );
        let challenge = "Bearer error=\"x\", resource_metadata=\"https://a.example/r\", scope=y";
        assert_eq!(resource_metadata(challenge).as_deref(), Some("https://a.example/r"));
        assert_eq!(resource_metadata("Bearer"), None);
    }

    /// Spec: Q9
    #[test]
    fn metadata_is_about_the_server_or_above() {
        for (resource, is_same) in [
            ("https://a.example/v1/mcp", true),
            ("https://a.example:443/v1/mcp/", true),
            ("https://a.example/v1", true),
            ("https://a.example", true),
            ("https://a.example/v1/mcp?tenant=1", false),
            ("https://a.example/v1/mc", false),
            ("https://a.example/v1/mcp/other", false),
            ("http://a.example/v1/mcp", false),
            ("https://a.example:8443/v1/mcp", false),
            ("https://a.example.evil/v1/mcp", false),
            ("urn:a", false),
            ("", false),
        ] {
            let server = Url::parse("https://a.example/v1/mcp").unwrap();
            assert_eq!(is_about(resource, &server), is_same, "{resource}");
        }
    }

    /// Spec: Q9
    #[test]
    fn secrets_go_over_tls_or_stay() {
        for (url, may) in [
            ("https://a.example/token", true),
            ("http://127.0.0.1:9/token", true),
            ("http://[::1]:9/token", true),
            ("http://a.example/token", false),
            ("http://localhost.evil/token", false),
        ] {
            assert_eq!(may_have_secrets(&Url::parse(url).unwrap()), may, "{url}");
        }
    }
}
