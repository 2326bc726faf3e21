//! Errors of the tasks.

use std::path::PathBuf;

/// The error of a task.
#[derive(Debug, thiserror::Error)]
pub(crate) enum XtaskError {
    /// What rustdoc wrote of a crate's API cannot be read.
    #[error("cannot read the API in `{}`", path.display())]
    Api {
        /// The output of rustdoc.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Box<public_api::Error>,
    },
    /// Signatures of the facade's crates name types that the facade does not show.
    #[error("the facade does not show {}", names.join(", "))]
    FacadeHides {
        /// The types.
        names: Vec<String>,
    },
    /// A file could not be read or written.
    #[error("cannot access `{}`", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// Docs of failures do not say what their rows say.
    #[error("docs differ from facts: {}", drifted.join("; "))]
    FactsDrifted {
        /// The failures, each with its difference.
        drifted: Vec<String>,
    },
    /// The facade brings too much along.
    #[error("`backstop` is made of {crates} crates, and may be of {most}")]
    Heavy {
        /// Number of crates.
        crates: usize,
        /// Largest number of crates.
        most: usize,
    },
    /// A manifest is not TOML.
    #[error("cannot parse `{path}`")]
    Manifest {
        /// The manifest, relative to the workspace.
        path: String,
        /// The place and cause.
        #[source]
        source: toml::de::Error,
    },
    /// `cargo metadata` failed.
    #[error("cannot read the workspace's metadata")]
    Metadata(#[source] cargo_metadata::Error),
    /// A release would fail, or would publish something wrong.
    #[error("the release is not ready: {}", reasons.join("; "))]
    NotReady {
        /// The reasons.
        reasons: Vec<String>,
    },
    /// A page is not what it is written from.
    #[error("`{page}` is out of date at line {line}")]
    PageStale {
        /// The page.
        page: &'static str,
        /// Command that writes the page.
        command: &'static str,
        /// The first line that differs, from 1.
        line: usize,
    },
    /// A table of prices cannot be read.
    #[error("cannot read a table of prices")]
    Prices(#[source] serde_json::Error),
    /// Prices are not those of the table that they are compared with.
    #[error("prices differ: {}", models.join("; "))]
    PricesDiffer {
        /// The models, each with both prices.
        models: Vec<String>,
    },
    /// `Spec:` lines stand where they are about no test.
    #[error("no test is named by the `Spec:` lines of {places}")]
    RulesMisplaced {
        /// The places of the lines.
        places: String,
    },
    /// Nothing holds a rule.
    #[error("no scenario and no test holds {rules}")]
    RulesOpen {
        /// The rules.
        rules: String,
    },
    /// A `Spec:` line names a rule that there is not.
    #[error("no rule is named {places}")]
    RulesUnknown {
        /// The ids, with their places.
        places: String,
    },
    /// A program could not be started.
    #[error("cannot start `{program}`")]
    Start {
        /// The program.
        program: String,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// A step's program ended with a failure.
    #[error("step `{step}` failed: {status}")]
    Step {
        /// The step, as in `cargo xtask ci`.
        step: &'static str,
        /// Exit status of the program.
        status: std::process::ExitStatus,
    },
    /// A file is not Rust.
    #[error("cannot parse `{}`", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The place and cause.
        #[source]
        source: syn::Error,
    },
    /// The workspace has no package of that name.
    #[error("the workspace has no package `{name}`")]
    UnknownPackage {
        /// The name that was given.
        name: String,
    },
    /// `tidy` found something that must not be.
    #[error("tidy found {errors} error(s)")]
    Untidy {
        /// Number of findings that are errors.
        errors: usize,
    },
}

impl XtaskError {
    /// Returns advice for a person, if the message alone is not enough.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Api { .. } => {
                Some("the nightly may write another format than `public-api` reads".to_owned())
            }
            Self::FacadeHides { .. } => {
                Some("re-export them in crates/backstop/src, at the root or in a module".to_owned())
            }
            Self::FactsDrifted { .. } => {
                Some("mend the row in `facts`, or `Retry: …. Effect: ….` beside it".to_owned())
            }
            Self::Heavy { .. } => Some(
                "`cargo tree -e normal -p backstop` says what brings them: make it a feature"
                    .to_owned(),
            ),
            Self::NotReady { .. } => Some("docs/releasing.md has the procedure".to_owned()),
            Self::PageStale { command, .. } => Some(format!("run `{command}` and commit the page")),
            Self::Prices(_) => Some("`python3 -m pip download litellm` may say why".to_owned()),
            Self::PricesDiffer { .. } => Some(
                "look at the provider's page, and mend crates/react/src/prices.json".to_owned(),
            ),
            Self::RulesMisplaced { .. } => {
                Some("move them to a test, a trial of a suite or a scenario".to_owned())
            }
            Self::RulesOpen { .. } => {
                Some("name the rule in the `Spec:` line of what holds it".to_owned())
            }
            Self::RulesUnknown { .. } => Some(
                "mend the id, or add the rule to `RULES` in xtask/src/rules_page.rs".to_owned(),
            ),
            Self::UnknownPackage { .. } => Some(
                "`cargo metadata --no-deps` lists the packages: `backstop-retry`, for one"
                    .to_owned(),
            ),
            Self::File { .. }
            | Self::Manifest { .. }
            | Self::Metadata(_)
            | Self::Start { .. }
            | Self::Step { .. }
            | Self::Syntax { .. }
            | Self::Untidy { .. } => None,
        }
    }
}
