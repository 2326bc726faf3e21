//! Checks of keys and endpoints.

use std::path::Path;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_config::{ModelTable, ProviderName};
use backstop_process::{check_request, is_loopback};
use backstop_provider::ModelRequest;
use layer0::failure::hint;
use layer0::message::{Message, Transcript};
use tokio::net::TcpStream;

use super::finding::Finding;
use crate::assemble::{build_provider, parent_folder, usual_variable};
use crate::output::{self, Prompt, PromptAnswer};
use crate::report;

/// Timeout of a connection.
const PATIENCE: Duration = Duration::from_secs(5);
/// Limit of the answer of a test call, in tokens.
const MAX_TOKENS: u32 = 16;

/// Lists the keys that are set, without an agent that needs them.
pub(super) fn usual_keys() -> Finding {
    let known = [ProviderName::Anthropic, ProviderName::Gemini, ProviderName::Openai];
    let variables = known.into_iter().filter_map(usual_variable);
    let held: Vec<&str> = variables
        .filter(|name| std::env::var(name).is_ok_and(|key| !key.trim().is_empty()))
        .collect();
    match &held[..] {
        [] => Finding::skip("keys", "no provider's key is set; a script or Ollama needs none"),
        held => Finding::ok("keys", format!("set: {}", held.join(", "))),
    }
}

/// Checks each model of an agent.
pub(super) async fn of_agent(model: &ModelTable, path: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    for table in model.pools().into_iter().flatten() {
        let provider = match build_provider(&table, path, parent_folder(path)) {
            Ok(provider) => provider,
            Err(error) => {
                findings.push(Finding::from_error("keys", &error));
                continue;
            }
        };
        let name = format!("{} {}", provider.name(), provider.model());
        findings.push(Finding::ok("keys", format!("{name} has what it needs")));
        if table.provider == ProviderName::Script {
            findings.push(Finding::skip("endpoint", "a script needs none"));
            continue;
        }
        let reached = reach(&table).await;
        if let Reached::No(unreachable) = reached {
            findings.push(unreachable);
            continue;
        }
        let asks =
            format!("ask {name} for one word, to see whether it answers? It costs a few tokens.");
        let agreed = output::at_terminal()
            && matches!(Prompt::yes_or_no(&asks).ask().await, Some(PromptAnswer::Yes));
        if !agreed {
            let what = match reached {
                Reached::Yes(address) => {
                    format!("{address} can be reached; {name} was not asked for a word")
                }
                _ => format!("{name} was neither connected to nor asked for a word"),
            };
            findings.push(Finding::skip("endpoint", what));
            continue;
        }
        let mut transcript = Transcript::default();
        transcript.push(Message::user("Answer with the word: ready"));
        let mut request = ModelRequest::new(transcript);
        request.settings.max_output_tokens = Some(MAX_TOKENS);
        findings.push(match provider.complete(&request).await {
            Ok(_) => Finding::ok("endpoint", format!("{name} answers")),
            Err(error) => Finding::mend(
                "endpoint",
                format!("{name}: {}", report::causes(&error)),
                hint(&error),
            ),
        });
    }
    findings
}

/// The result of a connection to an endpoint.
enum Reached {
    No(Finding),
    /// Nothing was tried: a proxy connects, or the place is not known.
    Unknown,
    Yes(String),
}

/// Connects to the endpoint of a model, which costs nothing.
async fn reach(table: &ModelTable) -> Reached {
    let url = table.base_url.clone().or_else(|| usual_url(table.provider));
    let Some((url, (host, port))) = url.and_then(|url| Some((url.clone(), address(&url)?))) else {
        return Reached::Unknown;
    };
    let is_here = is_loopback(&host);
    let is_denied = check_request(&host).is_err();
    // With a proxy, only the proxy connects.
    let is_proxied = ["https_proxy", "HTTPS_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|proxy| !proxy.is_empty()));
    if !is_here && (is_denied || is_proxied) {
        return Reached::Unknown;
    }
    let connected = tokio::select! {
        connected = TcpStream::connect((host.as_str(), port)) => connected.map_err(|it| it.to_string()),
        () = SystemClock.sleep(PATIENCE) => Err(format!("no connection within {PATIENCE:?}")),
    };
    let Err(error) = connected else { return Reached::Yes(format!("{host}:{port}")) };
    let what = format!("{host}:{port} cannot be reached: {error}");
    let hint = match is_here {
        true => format!("is it running, and is base_url right? It is {url}"),
        false => format!("check the network and base_url, which is {url}"),
    };
    Reached::No(Finding::mend("endpoint", what, hint))
}

fn usual_url(provider: ProviderName) -> Option<String> {
    let url = match provider {
        ProviderName::Anthropic => backstop_provider_anthropic::BASE_URL,
        ProviderName::Gemini => backstop_provider_gemini::BASE_URL,
        ProviderName::Ollama => backstop_provider_ollama::BASE_URL,
        ProviderName::Openai | ProviderName::OpenaiResponses => backstop_provider_openai::BASE_URL,
        _ => return None,
    };
    Some(url.to_owned())
}

/// Returns the host and port of a URL.
fn address(url: &str) -> Option<(String, u16)> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let authority = authority.rsplit('@').next()?;
    let usual = if scheme.eq_ignore_ascii_case("https") { 443 } else { 80 };
    let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':')),
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let port = port.map_or(Some(usual), |port| port.parse().ok())?;
    Some((host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_from_urls() {
        for (url, host, port) in [
            ("http://127.0.0.1:4000/v1", "127.0.0.1", 4_000),
            ("https://api.example.com", "api.example.com", 443),
            ("http://[::1]:80/x", "::1", 80),
            ("http://user:secret@host/x?y", "host", 80),
        ] {
            assert_eq!(address(url), Some((host.to_owned(), port)), "{url}");
        }
        assert_eq!(address("localhost:80"), None);
        assert_eq!(address("http://host:x"), None);
    }
}
