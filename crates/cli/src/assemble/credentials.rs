//! Credentials to which an agent file refers.

use std::path::Path;

use backstop_config::{AgentFile, BehaviorAction, ConfigError, ModelTable, TextOrCredential};
use backstop_process::{Credential, Secret};
use backstop_redact::is_secret_name;
use layer0::error::EnvError;

use super::parent_folder;
use crate::behaviors::SIGNING_KEY_PREFIX;
use crate::exit::CliError;

/// Placeholder for a credential that is never sent.
const NOT_FETCHED: &str = "credential-that-was-not-fetched";

/// Runs the commands that print credentials of headers and logins, each once, and stores their output in the file.
/// Credentials in a variable or a file are read at their use.
pub(crate) async fn fetch_credentials(file: &mut AgentFile, path: &Path) -> Result<(), CliError> {
    let folder = parent_folder(path);
    let mut fetched: Vec<(Credential, Secret)> = Vec::new();
    for (place, credential) in slots(file) {
        if credential.read().is_some() {
            continue;
        }
        let known = fetched.iter().find(|(known, _)| known == credential);
        let secret = match known {
            Some((_, secret)) => secret.clone(),
            None => {
                let secret = credential.clone().below(folder).fetch().await;
                let secret = secret.map_err(|error| {
                    ConfigError::new(path, format!("{place}: {}", error.what()))
                        .with_hint("run it by hand in the folder of the file; it has to print the credential alone")
                })?;
                fetched.push((credential.clone(), secret.clone()));
                secret
            }
        };
        *credential = Credential::from_secret(secret);
    }
    Ok(())
}

/// Replaces each credential of a header or login that a command prints by a placeholder. The agent makes no request, so
/// the commands need not run.
pub(crate) fn skip_credential_commands(file: &mut AgentFile) {
    for (_, credential) in slots(file) {
        if credential.read().is_none() {
            *credential = Credential::from_secret(Secret::new(NOT_FETCHED));
        }
    }
}

/// Removes the headers whose credential a command prints from a table, for a check that runs no command and sends
/// nothing.
pub(super) fn without_commands(mut table: ModelTable) -> ModelTable {
    table.headers.retain(|_, value| match value {
        TextOrCredential::Credential(credential) => credential.read().is_some(),
        _ => true,
    });
    table
}

/// Returns the text of a value.
pub(crate) fn resolve_text(
    value: &TextOrCredential,
    path: &Path,
    folder: &Path,
) -> Result<String, CliError> {
    match value {
        TextOrCredential::Text(text) => Ok(text.clone()),
        TextOrCredential::Credential(credential) => read_secret(credential, path, folder),
        _ => Err(CliError::usage("this kind of value is not known")),
    }
}

/// Returns a credential that is in a variable or a file, or was fetched.
pub(crate) fn read_secret(
    credential: &Credential,
    path: &Path,
    folder: &Path,
) -> Result<String, CliError> {
    let not_run = || Err(EnvError::CredentialFailed(format!("{credential}: was not run")));
    let read = credential.clone().below(folder).read().unwrap_or_else(not_run);
    match read {
        Ok(secret) => Ok(secret.expose().to_owned()),
        Err(error) => {
            let error = ConfigError::new(path, error.what());
            Err(match credential.variable() {
                Some(name) => error.with_hint(format!("run `export {name}=…`")),
                None => error.with_hint("correct the file, or the reference to it"),
            }
            .into())
        }
    }
}

/// Returns the credentials of a file that this process has, for redaction, with the secrets that the file itself holds
/// and those in variables that it hands to programs.
pub(super) fn held_credentials(file: &AgentFile, folder: &Path) -> Vec<String> {
    let own = file.tools.iter().filter_map(|tool| tool.environment.as_ref());
    let own = own.chain(file.mcp.iter().filter_map(|server| server.environment.as_ref()));
    let of_programs = own.chain(&file.environment).flat_map(|table| table.credentials.values());
    let named = file.tools.iter().filter_map(|tool| tool.env.as_deref());
    let named = named.chain(file.mcp.iter().filter_map(|server| server.env.as_deref())).flatten();
    let variables = named.filter(|name| is_secret_name(name)).map(|name| std::env::var(name).ok());
    let mut other: Vec<String> = variables.flatten().collect();
    other.extend(file.model.pools().iter().flatten().flat_map(literal_secrets));
    let mut file = file.clone();
    let slots = slots(&mut file).into_iter().map(|(_, credential)| &*credential);
    let held = slots.chain(of_programs).filter_map(|it| it.clone().below(folder).read()?.ok());
    held.flat_map(|secret| list_parts(secret.expose())).chain(other).collect()
}

/// Returns the headers of a model that are written into the file, and whose names indicate a secret.
fn literal_secrets(table: &ModelTable) -> impl Iterator<Item = String> {
    table.headers.iter().filter_map(|(name, value)| match value {
        TextOrCredential::Text(text) if is_secret_name(name) => Some(text.clone()),
        _ => None,
    })
}

/// Returns a credential and the key in it, which others repeat without the word before it: that of `Bearer KEY`, and of
/// a signing key `whsec_KEY`.
fn list_parts(credential: &str) -> Vec<String> {
    let key = credential.split_once(' ').map(|(_, key)| key);
    let key = key.or_else(|| credential.strip_prefix(SIGNING_KEY_PREFIX));
    std::iter::once(credential).chain(key).map(ToOwned::to_owned).collect()
}

/// Returns the credentials of headers and logins, with a description of their place.
fn slots(file: &mut AgentFile) -> Vec<(String, &mut Credential)> {
    let model = &mut file.model;
    let headers = std::iter::once(&mut model.headers)
        .chain(model.pool.iter_mut().map(|entry| &mut entry.headers))
        .chain(model.fallback.iter_mut().map(|entry| &mut entry.headers));
    let mut values: Vec<(String, &mut TextOrCredential)> = headers
        .flatten()
        .map(|(name, value)| (format!("header `{name}` of the model"), value))
        .collect();
    let mut credentials = Vec::new();
    for server in &mut file.mcp {
        let of = format!("of MCP server `{}`", server.name);
        let headers = server.headers.iter_mut();
        values.extend(headers.map(|(name, value)| (format!("header `{name}` {of}"), value)));
        if let Some(oauth) = &mut server.oauth {
            values.push((format!("`client_id` {of}"), &mut oauth.client_id));
            credentials.push((format!("`client_secret` {of}"), &mut oauth.client_secret));
        }
    }
    for behavior in &mut file.behaviors {
        let of = format!("of behaviour `{}`", behavior.name());
        let BehaviorAction::Url(hook) = behavior.action_mut() else { continue };
        let headers = hook.headers.iter_mut();
        values.extend(headers.map(|(name, value)| (format!("header `{name}` {of}"), value)));
        credentials
            .extend(hook.signing_key.iter_mut().map(|key| (format!("`signing_key` {of}"), key)));
    }
    let values = values.into_iter().filter_map(|(place, value)| match value {
        TextOrCredential::Credential(credential) => Some((place, credential)),
        _ => None,
    });
    credentials.extend(values);
    credentials
}
