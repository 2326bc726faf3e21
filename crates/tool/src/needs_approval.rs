use std::sync::Arc;

use async_trait::async_trait;
use layer0::ToolSpec;
use serde_json::Value;

use crate::{Tool, ToolContext, ToolError};

/// A tool whose every call a person has to agree to, whatever the tool itself says.
pub(crate) struct NeedsApproval {
    tool: Arc<dyn Tool>,
    spec: ToolSpec,
}

impl NeedsApproval {
    /// Puts a person before a tool.
    pub(crate) fn new(tool: Arc<dyn Tool>) -> Self {
        let spec = tool.spec().clone().approval();
        Self { tool, spec }
    }
}

#[async_trait]
impl Tool for NeedsApproval {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn needs(&self, arguments: &Value) -> Result<Vec<String>, ToolError> {
        self.tool.needs(arguments)
    }

    fn input_code(&self) -> Option<&str> {
        self.tool.input_code()
    }

    fn stores_errors(&self) -> bool {
        self.tool.stores_errors()
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> Result<Value, ToolError> {
        self.tool.call(arguments, context).await
    }
}
