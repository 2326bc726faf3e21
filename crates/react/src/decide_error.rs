//! Errors of decisions about approvals.

use std::borrow::Cow;

use backstop_event_log::{Decision, LogError};
use backstop_tool::Schema;
use layer0::failure::{Effect, Facts, Failure};
use layer0::id::ApprovalId;
use layer0::{Approvers, JsonText, code};
use thiserror::Error;

/// The error of an approval that is not open: no approval has this id, or it is already decided.
///
/// Retry: never. Effect: none.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no open approval `{id}`")]
#[non_exhaustive]
pub struct ApprovalNotFound {
    /// The approval id.
    pub id: ApprovalId,
}

impl ApprovalNotFound {
    /// Makes the error.
    #[must_use]
    pub const fn new(id: ApprovalId) -> Self {
        Self { id }
    }
}

impl Failure for ApprovalNotFound {
    fn facts(&self) -> Facts {
        Facts::never(code::APPROVAL_NOT_FOUND, Effect::None)
    }
}

/// The error of a decision that was not accepted.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DecideError {
    /// Changed arguments do not fit the schema of the tool.
    ///
    /// Retry: never. Effect: none.
    #[error("the arguments do not fit the tool: {0}")]
    Arguments(String),
    /// A required text is blank.
    ///
    /// Retry: never. Effect: none.
    #[error("the decision has a blank `{0}`")]
    Blank(&'static str),
    /// The data does not fit the schema of the approval, or is missing.
    ///
    /// Retry: never. Effect: none.
    #[error("the data does not fit what the approval asks for: {0}")]
    Data(String),
    /// The approval was not decided in time.
    ///
    /// Retry: never. Effect: none.
    #[error("{}", LogError::ApprovalExpired(_0.clone()))]
    Expired(ApprovalId),
    /// The person may not decide the approval.
    ///
    /// Retry: never. Effect: none.
    #[error("{}", LogError::not_approver(id.clone(), by, approvers.clone()))]
    #[non_exhaustive]
    NotApprover {
        /// The approval.
        id: ApprovalId,
        /// The person named by the decision.
        by: Box<str>,
        /// The people who may decide.
        approvers: Approvers,
    },
    /// No such approval is open.
    ///
    /// Retry: as the error inside says. Effect: as it says.
    #[error("the decision was not accepted")]
    NotFound(#[from] ApprovalNotFound),
    /// The changed arguments hold a secret of this process, which is never recorded; a tool cannot run with the
    /// placeholder that replaces it.
    ///
    /// Retry: never. Effect: none.
    #[error("the arguments hold a secret of this process")]
    Secret,
    /// The log could not be written.
    ///
    /// Retry: as the log's error says. Effect: as the log's error says.
    #[error("the decision could not be written")]
    Log(#[source] LogError),
    /// The decision has unrequested data: the approval asks for none, or is denied.
    ///
    /// Retry: never. Effect: none.
    #[error("the decision has data that nothing asks for")]
    UnaskedData,
}

impl DecideError {
    /// Makes [`DecideError::NotApprover`].
    #[must_use]
    pub fn not_approver(id: ApprovalId, by: &str, approvers: Approvers) -> Self {
        Self::NotApprover { id, by: by.into(), approvers }
    }

    /// Makes the error for changed arguments of a call that is already running.
    pub(crate) fn running() -> Self {
        Self::Arguments("it is running already, and keeps those it has".to_owned())
    }
}

impl From<LogError> for DecideError {
    fn from(error: LogError) -> Self {
        match error {
            LogError::ApprovalExpired(id) => Self::Expired(id),
            LogError::NotApprover { approval: id, by, approvers, .. } => {
                Self::NotApprover { id, by, approvers }
            }
            error => Self::Log(error),
        }
    }
}

impl Failure for DecideError {
    fn facts(&self) -> Facts {
        match self {
            Self::Arguments(_)
            | Self::Blank(_)
            | Self::Data(_)
            | Self::Secret
            | Self::UnaskedData => Facts::never(code::INPUT_INVALID, Effect::None),
            Self::Expired(_) => Facts::never(code::APPROVAL_EXPIRED, Effect::None),
            Self::NotApprover { .. } => Facts::never(code::APPROVAL_NOT_APPROVER, Effect::None),
            Self::NotFound(error) => error.facts(),
            Self::Log(error) => error.facts(),
        }
    }

    fn hint(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Arguments(_) => {
                Some("give all arguments of the call, as its tool takes them".into())
            }
            Self::Data(_) => Some("give data that fits the schema of the approval".into()),
            Self::UnaskedData => Some("leave the data out".into()),
            Self::Secret => {
                Some("name it by reference, such as by the variable that has it".into())
            }
            Self::Log(error) => error.hint(),
            Self::NotFound(error) => error.hint(),
            Self::Blank(_) | Self::Expired(_) | Self::NotApprover { .. } => None,
        }
    }
}

/// Checks changed arguments of a call against the schema of its tool.
pub(crate) fn check_arguments(schema: &JsonText, arguments: &JsonText) -> Result<(), DecideError> {
    // Arguments without a validator are checked when the call is admitted.
    let Ok(schema) = Schema::new(&schema.value()) else { return Ok(()) };
    let checked = schema.check_arguments(&arguments.value());
    checked.map_err(|misfit| DecideError::Arguments(misfit.to_string()))
}

/// The most bytes of the data with an approval: a program gets it in one variable, for which Linux has room for 128 KiB
/// (`MAX_ARG_STRLEN`).
const MAX_DATA_BYTES: usize = 64 * 1024;

/// Checks that a decision to be sent has the data that its approval asks for, and no more than reaches a tool.
pub(crate) fn check_sent_data(
    schema: Option<&JsonText>,
    decision: &Decision,
) -> Result<(), DecideError> {
    check_data(schema, decision)?;
    let length = decision.data.as_ref().map_or(0, |data| data.get().len());
    if length > MAX_DATA_BYTES {
        let why = format!("it has {length} bytes, and at most {MAX_DATA_BYTES} reach a tool");
        return Err(DecideError::Data(why));
    }
    Ok(())
}

/// Checks that a decision has the data that its approval asks for, and no other. The length was checked by the sender,
/// under the limit in force then.
pub(crate) fn check_data(
    schema: Option<&JsonText>,
    decision: &Decision,
) -> Result<(), DecideError> {
    let (schema, data) = match (schema.filter(|_| decision.approved), &decision.data) {
        (None, None) => return Ok(()),
        (None, Some(_)) => return Err(DecideError::UnaskedData),
        (Some(_), None) => return Err(DecideError::Data("there is none".to_owned())),
        (Some(schema), Some(data)) => (schema, data),
    };
    // A schema that cannot validate data accepts none.
    let misfit = |why: &dyn ToString| DecideError::Data(why.to_string());
    let schema = Schema::new(&schema.value()).map_err(|error| misfit(&error))?;
    schema.check_data(&data.value()).map_err(|why| misfit(&why))
}
