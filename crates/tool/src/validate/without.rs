//! Replacement of the validator: without the feature `json-schema` no schema compiles.

use serde_json::Value;

use super::{SchemaError, SchemaViolation};

/// A type without values.
#[derive(Debug, Clone)]
pub(super) enum Validator {}

impl Validator {
    pub(super) fn new(_: &Value) -> Result<Self, SchemaError> {
        let why = "nothing can be checked against it without the feature `json-schema`";
        Err(SchemaError(why.to_owned()))
    }

    pub(super) fn check(&self, _: &Value, _: &str) -> Result<(), SchemaViolation> {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;
    use layer0::{JsonText, ToolSpec};
    use serde_json::json;

    use crate::{Arguments, Grants, Tool, ToolContext, ToolError, Toolset};

    struct Echo {
        spec: ToolSpec,
        checks: bool,
    }

    impl Echo {
        fn new(checks: bool) -> Self {
            Self { spec: ToolSpec::new("echo", "Echo.", json!({"type": "object"})), checks }
        }
    }

    #[async_trait]
    impl Tool for Echo {
        fn spec(&self) -> &ToolSpec {
            &self.spec
        }

        fn checks_arguments(&self) -> bool {
            self.checks
        }

        async fn call(&self, _: &Arguments, _: &ToolContext) -> Result<JsonText, ToolError> {
            Ok(JsonText::string("done"))
        }
    }

    /// Spec: T2. Nothing runs on arguments that were not checked.
    #[test]
    fn unchecked_tools_need_the_feature() {
        let error = Toolset::new().with(Echo::new(false)).err().unwrap().to_string();
        assert!(error.contains("json-schema"), "{error}");
        let mut tools = Toolset::new();
        tools.add(Arc::new(Echo::new(true))).unwrap();
        assert!(tools.admit("echo", json!({}), &Grants::none()).is_ok());
    }
}
