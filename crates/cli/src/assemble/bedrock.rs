//! Bedrock needs more than one key: an access key in two parts, a token at times, and a region.

use std::path::Path;

use config::ModelTable;
use provider_bedrock::{Bedrock, Converse};
use provider_http::ApiKey;

use super::model::{model_name, timeouts};
use crate::exit::CliError;

/// Sets Bedrock up from the variable the file names, which holds an API key, or from AWS's own.
pub(super) fn setup(model: &ModelTable, path: &Path) -> Result<Bedrock, CliError> {
    let name = model_name(model, path)?;
    let setup = match &model.api_key_env {
        Some(variable) => ApiKey::from_env(variable)
            .map(|key| Bedrock::new(name.as_str()).with(Converse::region_from_env).api_key(key)),
        None => Bedrock::from_env(name.as_str()),
    };
    let setup = match setup {
        Ok(setup) => setup,
        // A gateway needs none.
        Err(_) if model.api_key_env.is_none() && model.base_url.is_some() => {
            Bedrock::new(name).with(Converse::region_from_env)
        }
        Err(error) => {
            let hint = error.hint();
            return Err(CliError::usage(error).with_hint(hint));
        }
    };
    let setup = setup.timeouts(timeouts(model)).extra_body(model.extra_body.clone());
    Ok(match &model.base_url {
        Some(url) => setup.base_url(url.as_str()),
        None => setup,
    })
}

/// Returns what requests are signed with or carry, so that it can be taken out of everything.
pub(super) fn secrets(model: &ModelTable, path: &Path) -> Result<Vec<String>, CliError> {
    Ok(setup(model, path)?.secrets().map(|secret| secret.reveal().to_owned()).collect())
}
