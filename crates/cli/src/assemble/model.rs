//! From `[model]` to a provider.

use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use config::{ConfigError, ModelTable, ProviderName, read_script};
use provider::{Provider, ScriptedProvider};
use provider_anthropic::Anthropic;
use provider_gemini::Gemini;
use provider_http::{ApiKey, HttpProviderBuilder, Protocol, Timeouts};
use provider_ollama::Ollama;
use provider_openai::{OpenAi, OpenAiResponses};
use react::{Upstream, attempt_labels};

use super::bedrock;
use crate::exit::CliError;

/// Who is asked, and what must never be shown.
pub(super) struct Models {
    pub(super) first: Upstream,
    pub(super) fallbacks: Vec<Upstream>,
    pub(super) keys: Vec<String>,
}

/// Builds the models of a file. `answered` says how many answers a scripted one has given already.
pub(super) fn models(
    model: &ModelTable,
    path: &Path,
    folder: &Path,
    answered: &dyn Fn(&str) -> usize,
) -> Result<Models, CliError> {
    let fallbacks = model.fallback.iter().map(|table| model.of_fallback(table));
    let fallbacks: Vec<ModelTable> = fallbacks.collect();
    let first = provider(model, path, folder, 0)?;
    let others = fallbacks.iter().map(|table| provider(table, path, folder, 0));
    let others: Vec<Keyed> = others.collect::<Result<_, _>>()?;
    let all: Vec<&dyn Provider> =
        [&first].into_iter().chain(&others).map(|(provider, _)| &**provider).collect();
    let mut labels = attempt_labels(&all).into_iter();
    let mut keys = Vec::new();
    let mut open = |(table, (fresh, key)): (&ModelTable, Keyed)| {
        let label = labels.next().unwrap_or_default();
        keys.extend(key);
        keys.extend(further_secrets(table, path)?);
        // Only a script has to know how far it came.
        let provider = match table.provider {
            ProviderName::Script => provider(table, path, folder, answered(&label))?.0,
            _ => fresh,
        };
        Ok(Upstream::shared(provider).attempt_timeout(timeouts(table).attempt))
    };
    let first = open((model, first))?;
    let fallbacks = fallbacks.iter().zip(others).map(open).collect::<Result<_, CliError>>()?;
    Ok(Models { first, fallbacks, keys })
}

/// Returns the keys of a file that this process holds, of models that need not be usable here.
pub(super) fn held_keys(model: &ModelTable, path: &Path) -> Vec<String> {
    let fallbacks = model.fallback.iter().map(|table| model.of_fallback(table));
    let tables: Vec<ModelTable> = std::iter::once(model.clone()).chain(fallbacks).collect();
    let held = |table: &ModelTable| {
        let usual = match table.provider {
            ProviderName::Openai | ProviderName::OpenaiResponses => {
                Some(provider_openai::KEY_VARIABLE)
            }
            ProviderName::Anthropic => Some(provider_anthropic::KEY_VARIABLE),
            ProviderName::Gemini => Some(provider_gemini::KEY_VARIABLE),
            ProviderName::Ollama => Some(provider_ollama::KEY_VARIABLE),
            _ => None,
        };
        let key = ApiKey::from_env(table.api_key_env.as_deref().or(usual)?).ok()?;
        Some(key.reveal().to_owned())
    };
    let keys = tables.iter().filter_map(held);
    let further = tables.iter().flat_map(|table| further_secrets(table, path).unwrap_or_default());
    keys.chain(further).collect()
}

type Keyed = (Arc<dyn Provider>, Option<String>);

/// Gives a builder what all of them take, and builds.
fn built<P: Protocol>(
    builder: HttpProviderBuilder<P>,
    model: &ModelTable,
    key: Option<&str>,
    path: &Path,
) -> Result<Arc<dyn Provider>, CliError> {
    let mut builder = builder.timeouts(timeouts(model)).extra_body(model.extra_body.clone());
    if let Some(url) = &model.base_url {
        builder = builder.base_url(url.as_str());
    }
    if let Some(key) = key {
        builder = builder.api_key(key);
    }
    Ok(Arc::new(builder.build().map_err(|error| misconfigured(error, path))?))
}

/// Builds the provider; returns its key too, so that it can be taken out of everything.
fn provider(
    model: &ModelTable,
    path: &Path,
    folder: &Path,
    answered: usize,
) -> Result<Keyed, CliError> {
    let leniencies = model.omits_done.or(model.max_completion_tokens);
    if leniencies.is_some() && model.provider != ProviderName::Openai {
        let what = "`omits_done` and `max_completion_tokens` are of `provider = \"openai\"`";
        return Err(ConfigError::new(path, what).with_hint("take them out").into());
    }
    match model.provider {
        ProviderName::Script => {
            let script = model.script.as_ref().ok_or_else(|| {
                ConfigError::new(path, "`provider = \"script\"` needs a script")
                    .with_hint("add `script = \"FILE.toml\"` with [[model]] entries to [model]")
            })?;
            if !model.extra_body.is_empty() {
                let what = "`extra_body` does not apply to `provider = \"script\"`";
                return Err(ConfigError::new(path, what).with_hint("take it out").into());
            }
            let script = ScriptedProvider::new(read_script(&folder.join(script))?);
            // It needs no key, but one that is named is a secret all the same.
            let key = model.api_key_env.as_deref().and_then(|name| ApiKey::from_env(name).ok());
            let key = key.map(|key| key.reveal().to_owned());
            Ok((Arc::new(script.starting_at(answered)), key))
        }
        ProviderName::Openai => {
            let key = key(model, provider_openai::KEY_VARIABLE)?;
            let mut openai = OpenAi::new(model_name(model, path)?);
            if let Some(omits) = model.omits_done {
                openai = openai.with(|it| it.omits_done(omits));
            }
            if let Some(yes) = model.max_completion_tokens {
                openai = openai.with(|it| it.max_completion_tokens(yes));
            }
            Ok((built(openai, model, key.as_deref(), path)?, key))
        }
        ProviderName::OpenaiResponses => {
            let key = key(model, provider_openai::KEY_VARIABLE)?;
            let responses = OpenAiResponses::new(model_name(model, path)?);
            Ok((built(responses, model, key.as_deref(), path)?, key))
        }
        ProviderName::Anthropic => {
            let key = key(model, provider_anthropic::KEY_VARIABLE)?;
            let anthropic = Anthropic::new(model_name(model, path)?);
            Ok((built(anthropic, model, key.as_deref(), path)?, key))
        }
        ProviderName::Bedrock => {
            let bedrock = bedrock::setup(model, &model_name(model, path)?)?;
            Ok((built(bedrock, model, None, path)?, None))
        }
        ProviderName::Gemini => {
            let key = key(model, provider_gemini::KEY_VARIABLE)?;
            let gemini = Gemini::new(model_name(model, path)?);
            Ok((built(gemini, model, key.as_deref(), path)?, key))
        }
        ProviderName::Ollama => {
            // A server on this machine needs no key, so the hosted service's is left where it is.
            let key = match (&model.base_url, &model.api_key_env) {
                (None, None) => None,
                _ => key(model, provider_ollama::KEY_VARIABLE)?,
            };
            let ollama = Ollama::new(model_name(model, path)?);
            Ok((built(ollama, model, key.as_deref(), path)?, key))
        }
        other => Err(ConfigError::new(path, format!("provider {other:?} is not supported yet"))
            .with_hint(
                "use anthropic, bedrock, gemini, ollama, openai (with base_url for what speaks it), \
                 openai-responses or script",
            )
            .into()),
    }
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
        ConfigError::new(path, "[model] names no model")
            .with_hint("add `model = \"…\"`, as the provider names it")
            .into()
    })
}

/// Reads the key from the variable the file names, which must be set, or from the usual one.
fn key(model: &ModelTable, usual: &str) -> Result<Option<String>, CliError> {
    let variable = model.api_key_env.as_deref();
    match ApiKey::from_env(variable.unwrap_or(usual)) {
        Ok(key) => Ok(Some(key.reveal().to_owned())),
        // Local endpoints need none.
        Err(_) if variable.is_none() && model.base_url.is_some() => Ok(None),
        Err(error) => {
            let hint = error.hint();
            Err(CliError::usage(error).with_hint(hint))
        }
    }
}

fn misconfigured(error: provider_http::ConfigError, path: &Path) -> CliError {
    let hint = error.hint();
    ConfigError::new(path, error.to_string()).with_hint(hint).into()
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
