//! Credentials of Bedrock: an access key in two parts, an optional token, and a region.

use backstop_config::ModelTable;
use backstop_provider_bedrock::{Bedrock, Converse};
use backstop_provider_http::ApiKey;

use crate::exit::CliError;

/// Configures Bedrock with the API key in the variable that the file names, or with AWS's own variables.
pub(super) fn setup(model: &ModelTable, name: &str) -> Result<Bedrock, CliError> {
    let setup = match &model.api_key_env {
        Some(variable) => ApiKey::from_env(variable)
            .map(|key| Bedrock::new(name).with(Converse::region_from_env).api_key(key)),
        None => Bedrock::from_env(name),
    };
    match setup {
        Ok(setup) => Ok(setup),
        // A gateway may need no credentials.
        Err(_) if model.api_key_env.is_none() && model.base_url.is_some() => {
            Ok(Bedrock::new(name).with(Converse::region_from_env))
        }
        Err(error) => {
            let hint = error.hint();
            Err(CliError::usage(error).with_hint(hint))
        }
    }
}

/// Returns the secrets that sign requests or are sent with them, for redaction.
pub(super) fn secrets(model: &ModelTable, name: &str) -> Result<Vec<String>, CliError> {
    Ok(setup(model, name)?.secrets().map(|secret| secret.reveal().to_owned()).collect())
}
