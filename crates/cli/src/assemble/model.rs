//! Construction of a provider from `[model]`.

use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use backstop_config::{ConfigError, ModelTable, ProviderName};
use backstop_event_log::EventLog;
use backstop_provider::{Provider, ScriptedProvider};
use backstop_provider_anthropic::Anthropic;
use backstop_provider_gemini::Gemini;
use backstop_provider_http::{ApiKey, HttpProviderBuilder, Protocol, Timeouts};
use backstop_provider_ollama::Ollama;
use backstop_provider_openai::{ChatDialect, OpenAi, OpenAiResponses};
use backstop_react::{Price, Upstream, attempt_labels, known_price};

use super::bedrock;
use super::credentials::resolve_text;
use super::script::{RunScript, read_model_script};
use crate::exit::CliError;

/// The endpoints of a file, and their secrets.
pub(super) struct Models {
    pub(super) first: Upstream,
    /// The others, in the order of calls.
    pub(super) others: Vec<Other>,
    pub(super) keys: Vec<String>,
}

/// An endpoint after the first.
pub(super) enum Other {
    /// Another endpoint of the same model as the one before.
    Beside(Upstream),
    Fallback(Upstream),
}

/// Builds the models of a file. `has_price`: whether the agent has a price for all models; `log` has the records
/// of its runs, from which each run gets its place in a script.
pub(super) fn models(
    model: &ModelTable,
    has_price: bool,
    path: &Path,
    folder: &Path,
    log: Option<&Arc<dyn EventLog>>,
    keys_from: KeyRequirement,
) -> Result<Models, CliError> {
    let pools = model.pools();
    for pool in &pools {
        pool.iter().try_for_each(|table| check_cooldown(table, pool, path))?;
    }
    let fresh = pools.iter().flatten().map(|table| provider(table, path, folder, keys_from));
    let fresh: Vec<Keyed> = fresh.collect::<Result<_, _>>()?;
    let all: Vec<&dyn Provider> = fresh.iter().map(|(provider, _)| &**provider).collect();
    let labels = attempt_labels(&all);
    let mut fresh = labels.into_iter().zip(fresh);
    let mut keys = Vec::new();
    let mut open = |table: &ModelTable| {
        let (label, (fresh, secrets)) = fresh.next()?;
        keys.extend(secrets);
        // Only a script depends on the progress of a run.
        let provider: Result<Arc<dyn Provider>, CliError> = match (table.provider, log) {
            (ProviderName::Script, Some(log)) => read_model_script(table, path, folder)
                .map(|script| Arc::new(RunScript::new(script, label, Arc::clone(log))) as _),
            _ => Ok(fresh),
        };
        Some(provider.map(|provider| upstream(provider, table, has_price)))
    };
    let mut opened = Vec::new();
    for (place, table) in pools.iter().flat_map(|pool| pool.iter().enumerate()) {
        opened.extend(open(table).transpose()?.map(|upstream| (place, upstream)));
    }
    let mut opened = opened.into_iter();
    let (_, first) = opened.next().expect("the model itself is the first of the pools");
    let other = |(place, upstream)| match place {
        0 => Other::Fallback(upstream),
        _ => Other::Beside(upstream),
    };
    Ok(Models { first, others: opened.map(other).collect(), keys })
}

fn upstream(provider: Arc<dyn Provider>, table: &ModelTable, has_price: bool) -> Upstream {
    let mut upstream = Upstream::from_shared(provider).attempt_timeout(timeouts(table).attempt);
    let known = || find_price(table).filter(|_| !has_price);
    if let Some(price) = table.price.map(Into::into).or_else(known) {
        upstream = upstream.price(price);
    }
    if let Some(requests) = table.requests_per_minute {
        upstream = upstream.requests_per_minute(requests);
    }
    if let Some(tokens) = table.tokens_per_minute {
        upstream = upstream.tokens_per_minute(tokens);
    }
    match table.cooldown_ms {
        Some(ms) => upstream.cooldown(Duration::from_millis(ms.get())),
        None => upstream,
    }
}

/// Refuses a cooldown if there is no other endpoint to call meanwhile.
pub(super) fn check_cooldown(
    table: &ModelTable,
    pool: &[ModelTable],
    path: &Path,
) -> Result<(), CliError> {
    if table.cooldown_ms.is_none() || pool.len() > 1 {
        return Ok(());
    }
    Err(ConfigError::new(path, "`cooldown_ms` needs another endpoint beside this one")
        .with_hint("add `[[model.pool]]` entries, or take it out")
        .into())
}

/// Returns the keys of a file that this process holds, even for models that are not usable here.
pub(super) fn held_keys(model: &ModelTable, path: &Path) -> Vec<String> {
    let tables: Vec<ModelTable> = model.pools().into_iter().flatten().collect();
    let held = |table: &ModelTable| {
        let usual = usual_variable(table.provider);
        let key = ApiKey::from_env(table.api_key_env.as_deref().or(usual)?).ok()?;
        Some(key.reveal().to_owned())
    };
    let keys = tables.iter().filter_map(held);
    let further = tables.iter().flat_map(|table| further_secrets(table, path).unwrap_or_default());
    keys.chain(further).collect()
}

/// Returns the price of a known model at the provider's own endpoint.
fn find_price(model: &ModelTable) -> Option<Price> {
    let is_own = model.base_url.is_none();
    known_price(model.provider.as_str(), model.model.as_deref().filter(|_| is_own)?)
}

/// Returns the usual variable of a provider's key.
pub(crate) const fn usual_variable(provider: ProviderName) -> Option<&'static str> {
    match provider {
        ProviderName::Openai | ProviderName::OpenaiResponses => {
            Some(backstop_provider_openai::KEY_VARIABLE)
        }
        ProviderName::Anthropic => Some(backstop_provider_anthropic::KEY_VARIABLE),
        ProviderName::Gemini => Some(backstop_provider_gemini::KEY_VARIABLE),
        ProviderName::Ollama => Some(backstop_provider_ollama::KEY_VARIABLE),
        _ => None,
    }
}

/// Returns the variables of the keys of a file's models.
pub(crate) fn key_variables(model: &ModelTable) -> Vec<String> {
    let mut names = Vec::new();
    for table in model.pools().into_iter().flatten() {
        let usual = usual_variable(table.provider).map(ToOwned::to_owned);
        names.extend(table.api_key_env.or(usual).filter(|name| !names.contains(name)));
    }
    names
}

/// Requirement for the keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyRequirement {
    /// None: no request is made, and a missing key is no mistake.
    Any,
    /// This process must hold them.
    Held,
}

/// Builds the provider of a table for requests.
pub(crate) fn build_provider(
    model: &ModelTable,
    path: &Path,
    folder: &Path,
) -> Result<Arc<dyn Provider>, CliError> {
    provider(model, path, folder, KeyRequirement::Held).map(|(provider, _)| provider)
}

/// A provider with its secrets.
type Keyed = (Arc<dyn Provider>, Vec<String>);

/// Sets the options of all HTTP providers, then builds.
fn build_http_provider<P: Protocol>(
    builder: HttpProviderBuilder<P>,
    model: &ModelTable,
    key: Option<&str>,
    path: &Path,
    folder: &Path,
) -> Result<Keyed, CliError> {
    let mut builder = builder.timeouts(timeouts(model)).extra_body(model.extra_body.clone());
    if let Some(url) = &model.base_url {
        builder = builder.base_url(url.as_str());
    }
    if let Some(key) = key {
        builder = builder.api_key(key);
    }
    if let Some(name) = &model.user_agent {
        builder = builder.user_agent(name.as_str());
    }
    for (name, value) in &model.headers {
        let text = resolve_text(value, path, folder)?;
        builder = match value.is_credential() {
            true => builder.secret_header(name.as_str(), text),
            false => builder.header(name.as_str(), text),
        };
    }
    let secrets = builder.secrets().map(|secret| secret.reveal().to_owned()).collect();
    let provider = builder.build().map_err(|error| to_cli_error(error, path))?;
    Ok((Arc::new(provider), secrets))
}

/// Returns the mistakes of a model's table.
pub(super) fn refusals(
    model: &ModelTable,
    path: &Path,
    folder: &Path,
    keys: KeyRequirement,
) -> Vec<CliError> {
    let is_script = model.provider == ProviderName::Script;
    let unnamed = model_name(model, path).err().filter(|_| !is_script);
    let mut named = model.clone();
    // Without a name, no other mistake would be found.
    named.model.get_or_insert_with(|| "unnamed".to_owned());
    let refused = provider(&named, path, folder, keys).err();
    unnamed.into_iter().chain(refused).collect()
}

/// Builds the provider; returns it with its secrets, for redaction.
pub(super) fn provider(
    model: &ModelTable,
    path: &Path,
    folder: &Path,
    keys: KeyRequirement,
) -> Result<Keyed, CliError> {
    check_keys(model, path)?;
    // A missing model is reported before a missing key.
    if model.provider != ProviderName::Script {
        model_name(model, path)?;
    }
    let key = |model: &ModelTable, usual: &str| match (key(model, usual, path), keys) {
        (Err(_), KeyRequirement::Any) => Ok(Some("none".to_owned())),
        (key, _) => key,
    };
    // Nothing is sent, so credentials of headers need not exist.
    let mut bare = model.clone();
    if keys == KeyRequirement::Any {
        bare.headers.retain(|_, value| !value.is_credential());
    }
    let model = &bare;
    match model.provider {
        ProviderName::Script => {
            let script = ScriptedProvider::new(read_model_script(model, path, folder)?);
            // A script needs no key, but a named one is still a secret.
            let key = model.api_key_env.as_deref().and_then(|name| ApiKey::from_env(name).ok());
            let key = key.map(|key| key.reveal().to_owned());
            Ok((Arc::new(script), key.into_iter().collect()))
        }
        ProviderName::Openai => {
            let key = key(model, backstop_provider_openai::KEY_VARIABLE)?;
            let mut openai = OpenAi::new(model_name(model, path)?);
            if let Some(omits) = model.omits_done {
                openai = openai.with(|it| it.omits_done(omits));
            }
            if let Some(omits) = model.omits_finish_reason {
                openai = openai.with(|it| it.omits_finish_reason(omits));
            }
            if let Some(yes) = model.max_completion_tokens {
                openai = openai.with(|it| it.max_completion_tokens(yes));
            }
            if let Some(yes) = model.stream_options {
                openai = openai.with(|it| it.stream_options(yes));
            }
            if let Some(yes) = model.output_schemas {
                openai = openai.with(|it| it.output_schemas(yes));
            }
            if let Some(dialect) = model.dialect.and_then(|it| ChatDialect::from_name(it.as_str())) {
                openai = openai.with(|it| it.dialect(dialect));
            }
            if let Some(version) = &model.api_version {
                openai = openai.with(|it| it.api_version(version.as_str()));
            }
            build_http_provider(openai, model, key.as_deref(), path, folder)
        }
        ProviderName::OpenaiResponses => {
            let key = key(model, backstop_provider_openai::KEY_VARIABLE)?;
            let mut responses = OpenAiResponses::new(model_name(model, path)?);
            if let Some(version) = &model.api_version {
                responses = responses.with(|it| it.api_version(version.as_str()));
            }
            build_http_provider(responses, model, key.as_deref(), path, folder)
        }
        ProviderName::Anthropic => {
            let key = key(model, backstop_provider_anthropic::KEY_VARIABLE)?;
            let mut anthropic = Anthropic::new(model_name(model, path)?);
            if let Some(yes) = model.cache {
                anthropic = anthropic.with(|it| it.caches_prompts(yes));
            }
            build_http_provider(anthropic, model, key.as_deref(), path, folder)
        }
        ProviderName::Bedrock => {
            let name = model_name(model, path)?;
            let bedrock = match bedrock::setup(model, &name) {
                Err(_) if keys == KeyRequirement::Any => {
                    return Ok((Arc::new(ScriptedProvider::new(Vec::new())), Vec::new()));
                }
                bedrock => bedrock?,
            };
            let bedrock = match model.cache {
                Some(yes) => bedrock.with(|it| it.caches_prompts(yes)),
                None => bedrock,
            };
            build_http_provider(bedrock, model, None, path, folder)
        }
        ProviderName::Gemini => {
            let key = key(model, backstop_provider_gemini::KEY_VARIABLE)?;
            let gemini = Gemini::new(model_name(model, path)?);
            build_http_provider(gemini, model, key.as_deref(), path, folder)
        }
        ProviderName::Ollama => {
            // A server on this machine needs no key, so the key of the hosted service is not sent to it.
            let key = match (&model.base_url, &model.api_key_env) {
                (None, None) => None,
                _ => key(model, backstop_provider_ollama::KEY_VARIABLE)?,
            };
            let ollama = Ollama::new(model_name(model, path)?);
            build_http_provider(ollama, model, key.as_deref(), path, folder)
        }
        other => Err(ConfigError::new(path, format!("provider {other:?} is not supported yet"))
            .with_hint(
                "use anthropic, bedrock, gemini, ollama, openai (with base_url for what speaks it), \
                 openai-responses or script",
            )
            .into()),
    }
}

/// Refuses keys that apply to another provider only.
fn check_keys(model: &ModelTable, path: &Path) -> Result<(), CliError> {
    use ProviderName::{Anthropic, Bedrock, Openai, OpenaiResponses, Script};
    let is_script = model.provider == Script;
    let is_openai = model.provider == Openai;
    let own = [
        ("cache", model.cache.is_some(), matches!(model.provider, Anthropic | Bedrock)),
        ("omits_done", model.omits_done.is_some(), is_openai),
        ("omits_finish_reason", model.omits_finish_reason.is_some(), is_openai),
        ("max_completion_tokens", model.max_completion_tokens.is_some(), is_openai),
        ("stream_options", model.stream_options.is_some(), is_openai),
        ("output_schemas", model.output_schemas.is_some(), is_openai),
        ("dialect", model.dialect.is_some(), is_openai),
        (
            "api_version",
            model.api_version.is_some(),
            is_openai || model.provider == OpenaiResponses,
        ),
        ("extra_body", !model.extra_body.is_empty(), !is_script),
        ("headers", !model.headers.is_empty(), !is_script),
        ("user_agent", model.user_agent.is_some(), !is_script),
    ];
    let refused = own.iter().find(|(_, is_given, applies)| *is_given && !applies);
    let Some((key, ..)) = refused else { return Ok(()) };
    let name = model.provider.as_str();
    let what = format!("`{key}` does not apply to `provider = \"{name}\"`");
    Err(ConfigError::new(path, what).with_hint("take it out").into())
}

/// Returns the secrets of providers that need more than a key.
fn further_secrets(model: &ModelTable, path: &Path) -> Result<Vec<String>, CliError> {
    match model.provider {
        ProviderName::Bedrock => bedrock::secrets(model, &model_name(model, path)?),
        _ => Ok(Vec::new()),
    }
}

fn model_name(model: &ModelTable, path: &Path) -> Result<String, CliError> {
    model.model.clone().ok_or_else(|| {
        ConfigError::new(path, format!("{} names no model", model.header()))
            .with_hint("add `model = \"…\"` to it, as the provider names it")
            .into()
    })
}

/// Reads the key from the variable that the file names, which must be set, or from the usual one.
fn key(model: &ModelTable, usual: &str, path: &Path) -> Result<Option<String>, CliError> {
    let variable = model.api_key_env.as_deref();
    match ApiKey::from_env(variable.unwrap_or(usual)) {
        Ok(key) => Ok(Some(key.reveal().to_owned())),
        // Local endpoints need no key.
        Err(_) if variable.is_none() && model.base_url.is_some() => Ok(None),
        Err(error) => {
            let named = match variable {
                Some(_) => "`api_key_env` names the variable in",
                None => "if another variable holds it, write `api_key_env = \"…\"` into",
            };
            let hint = format!("{}; {named} {}", error.hint(), model.header());
            Err(ConfigError::new(path, error.to_string()).with_hint(hint).into())
        }
    }
}

fn to_cli_error(error: backstop_provider_http::ProviderConfigError, path: &Path) -> CliError {
    ConfigError::new(path, error.to_string()).with_hint(error.hint()).into()
}

fn timeouts(model: &ModelTable) -> Timeouts {
    let mut timeouts = Timeouts::default();
    let set = |limit: &mut Duration, ms: Option<NonZeroU64>| {
        if let Some(ms) = ms {
            *limit = Duration::from_millis(ms.get());
        }
    };
    set(&mut timeouts.connect, model.timeouts.connect_ms);
    set(&mut timeouts.first_byte, model.timeouts.first_byte_ms);
    set(&mut timeouts.idle, model.timeouts.idle_ms);
    set(&mut timeouts.attempt, model.timeouts.attempt_ms);
    timeouts
}
