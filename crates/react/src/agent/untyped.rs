//! Replacement of typed answers without the feature `json-schema`: a method whose compiler error names the feature.

use crate::agent::Agent;
use crate::error::RunFailure;
use crate::request::RunRequest;

/// A trait without implementations, for its compiler error.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "typed answers need the feature `json-schema`",
    label = "without the feature `json-schema`, no type can be answered with",
    note = "in Cargo.toml: backstop = {{ …, features = [\"json-schema\"] }}"
)]
pub trait NeedsJsonSchema {}

impl Agent {
    /// Needs the feature `json-schema`.
    #[doc(hidden)]
    pub fn run_typed<T: NeedsJsonSchema>(
        &self,
        _request: impl Into<RunRequest>,
    ) -> std::future::Ready<Result<T, RunFailure>> {
        unreachable!("nothing is `NeedsJsonSchema`")
    }
}
