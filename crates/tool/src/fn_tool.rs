use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use layer0::error::BoxError;
use layer0::{JsonText, ToolSpec};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::tool::{decode_arguments, encode_output, encode_probe, generate_schema};
use crate::{Arguments, Probe, Tool, ToolContext, ToolError};

/// A tool made from a closure, which captures its state.
///
/// The arguments are decoded into a type whose JSON Schema the model receives; the doc comments of its fields are their
/// descriptions. The closure fails in the same ways as a function with [`macro@crate::tool`].
///
/// ```
/// use std::time::Duration;
///
/// use backstop_tool::{FnTool, ToolError};
/// use schemars::JsonSchema;
/// use serde::Deserialize;
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Add {
///     x: i64,
///     y: i64,
/// }
///
/// let bonus = 1;
/// let add = FnTool::new("add", "Add two integers.", move |Add { x, y }| async move {
///     Ok::<_, ToolError>(x + y + bonus)
/// })
/// .map_spec(|spec| spec.idempotent().timeout(Duration::from_secs(5)));
/// # use backstop_tool::{Arguments, Tool, ToolContext};
/// # let rt = tokio::runtime::Builder::new_current_thread().build()?;
/// # let context = ToolContext::new("r".into(), "s".into(), "c".into(), Default::default());
/// # let arguments = Arguments::from(serde_json::json!({"x": 40, "y": 1}));
/// # assert_eq!(rt.block_on(add.call(&arguments, &context))?.value(), 42);
/// # assert!(add.spec().idempotent);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct FnTool {
    spec: ToolSpec,
    call: Arc<ToolFn<JsonText>>,
    probe: Option<Arc<ToolFn<Probe>>>,
}

type ToolFuture<T> = Pin<Box<dyn Future<Output = Result<T, ToolError>> + Send>>;
type ToolFn<T> = dyn Fn(&Arguments, &ToolContext) -> ToolFuture<T> + Send + Sync;

impl FnTool {
    /// Builds a tool with this name. The description states its purpose and use, for the model.
    pub fn new<A, F, R, T, E>(
        name: impl Into<Arc<str>>,
        description: impl Into<Arc<str>>,
        call: F,
    ) -> Self
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        F: Fn(A) -> R + Send + Sync + 'static,
        R: Future<Output = Result<T, E>> + Send + 'static,
        T: Serialize,
        E: Into<BoxError>,
    {
        Self::with_context(name, description, move |arguments, _| call(arguments))
    }

    /// As [`FnTool::new`], for a closure that also takes the context of the call.
    pub fn with_context<A, F, R, T, E>(
        name: impl Into<Arc<str>>,
        description: impl Into<Arc<str>>,
        call: F,
    ) -> Self
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        F: Fn(A, ToolContext) -> R + Send + Sync + 'static,
        R: Future<Output = Result<T, E>> + Send + 'static,
        T: Serialize,
        E: Into<BoxError>,
    {
        let call = move |arguments: &Arguments, context: &ToolContext| -> ToolFuture<JsonText> {
            let arguments = decode_arguments(arguments);
            let answer = arguments.map(|arguments| call(arguments, context.clone()));
            Box::pin(async move { encode_output(answer?.await) })
        };
        let spec = ToolSpec::new(name, description, generate_schema::<A>());
        Self { spec, call: Arc::new(call), probe: None }
    }

    /// Sets the closure that returns whether a call of unknown outcome happened, from the call's arguments and context;
    /// see [`Tool::probe`]. If its `Probe::DidNot` is final, set that in the spec too ([`ToolSpec::probe_is_final`]).
    ///
    /// ```
    /// use backstop_tool::{FnTool, Probe, ToolContext, ToolError};
    /// use serde_json::{Value, json};
    ///
    /// # fn found_by(key: &str) -> Option<Value> { None }
    /// let pay = FnTool::new("pay", "Pays an invoice.", |_: Value| async {
    ///     Ok::<_, ToolError>("paid")
    /// })
    /// .probe(|_: Value, context: ToolContext| async move {
    ///     Ok::<_, ToolError>(match found_by(&context.idempotency_key) {
    ///         Some(payment) => Probe::happened_with(payment),
    ///         None => Probe::DidNot,
    ///     })
    /// });
    /// ```
    #[must_use]
    pub fn probe<A, F, R, E>(mut self, probe: F) -> Self
    where
        A: DeserializeOwned + Send + 'static,
        F: Fn(A, ToolContext) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Probe, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        let probe = move |arguments: &Arguments, context: &ToolContext| -> ToolFuture<Probe> {
            let arguments = decode_arguments(arguments);
            let answer = arguments.map(|arguments| probe(arguments, context.clone()));
            Box::pin(async move { encode_probe(answer?.await) })
        };
        self.probe = Some(Arc::new(probe));
        self.spec = self.spec.probe();
        self
    }

    /// Changes the spec of the tool: whether it is idempotent, its timeout, its capabilities.
    #[must_use]
    pub fn map_spec(mut self, change: impl FnOnce(ToolSpec) -> ToolSpec) -> Self {
        self.spec = change(self.spec);
        self
    }
}

#[async_trait]
impl Tool for FnTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn checks_arguments(&self) -> bool {
        true
    }

    async fn probe(
        &self,
        arguments: &Arguments,
        context: &ToolContext,
    ) -> Result<Probe, ToolError> {
        match &self.probe {
            Some(probe) => probe(arguments, context).await,
            None => Ok(Probe::Unknown),
        }
    }

    async fn call(
        &self,
        arguments: &Arguments,
        context: &ToolContext,
    ) -> Result<JsonText, ToolError> {
        (self.call)(arguments, context).await
    }
}

impl fmt::Debug for FnTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FnTool").field("spec", &self.spec).finish_non_exhaustive()
    }
}
