use std::sync::Arc;

use async_trait::async_trait;
use backstop_environment::Walls;
use backstop_tool::{Arguments, Tool, ToolContext, ToolError};
use layer0::{Effect, JsonText, ToolSpec};
use reqwest::{Response, Url};
use serde_json::json;

use self::address::SystemResolver;
use self::request::FetchRequest;

mod address;
mod answer;
mod failure;
mod request;

pub use self::address::Resolve;

/// Maximum number of redirects.
const MAX_REDIRECTS: usize = 10;

/// `http_fetch`: reads from a server by GET or HEAD. A call needs `network:outbound:<host>`, and `network:private` if
/// the host has an address that is not public.
///
/// Names are resolved once, and their addresses are checked and then used for the connection, so that a name that
/// changes its address meanwhile has no effect. Each redirect is checked like the URL itself; for another origin, all
/// headers of the call are removed except those that describe the wanted content. No proxy is used.
///
/// The answer contains at most `max_bytes` of the body, 64 KiB by default, and states whether it was truncated. A
/// status from 400 on is a failure with the body in its text and code `http_<status>`.
///
/// ```
/// use backstop_builtin_tools::HttpFetch;
/// use backstop_tool::{Grants, Toolset};
///
/// let tools = Toolset::new().with(HttpFetch::new())?;
/// let grants = Grants::parse(["network:outbound:*.example.com"])?;
/// let admit = |url: &str| tools.admit("http_fetch", serde_json::json!({ "url": url }), &grants);
/// assert!(admit("https://docs.example.com/guide").is_ok());
/// let refused = admit("https://example.org/").err().unwrap();
/// assert_eq!(refused.to_string(), "tool `http_fetch` requires `network:outbound:example.org`");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct HttpFetch {
    spec: ToolSpec,
    resolver: Arc<dyn Resolve>,
    walls: Option<Walls>,
}

impl HttpFetch {
    /// Creates the tool with the system's resolver.
    #[must_use]
    pub fn new() -> Self {
        let schema = json!({
            "type": "object",
            "properties": {
                "url": {"type": "string", "description": "An http or https URL."},
                "method": {"enum": ["GET", "HEAD"], "description": "GET otherwise."},
                "headers": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Headers to send, such as accept or range."},
                "max_bytes": {"type": "integer", "minimum": 1, "description": "How much of the body to read; 65536 otherwise, at most 8388608."},
            },
            "required": ["url"],
            "additionalProperties": false,
        });
        let description = "Read from a web server. Returns status, final URL, headers and text.";
        let spec = ToolSpec::new("http_fetch", description, schema).idempotent().exploratory();
        Self { spec, resolver: Arc::new(SystemResolver), walls: None }
    }

    /// Sets another resolver.
    #[must_use]
    pub fn resolver(mut self, resolver: impl Resolve) -> Self {
        self.resolver = Arc::new(resolver);
        self
    }

    /// Applies the network rule of walls in addition to the policy.
    #[must_use]
    pub fn within(mut self, walls: Walls) -> Self {
        self.walls = Some(walls);
        self
    }

    /// Limits the time of one call, instead of the agent's limit.
    #[must_use]
    pub fn timeout(mut self, timeout: std::time::Duration) -> Self {
        self.spec.timeout = Some(timeout);
        self
    }

    /// Sends one request, if the policy allows it.
    async fn send(
        &self,
        request: &FetchRequest,
        context: &ToolContext,
    ) -> Result<Response, ToolError> {
        let host = address::host(&request.url)?;
        let needed = address::outbound(&host);
        if !context.grants.allow(&needed) {
            return Err(ToolError::permission_denied(&*self.spec.name, needed));
        }
        if let Some(walls) = &self.walls {
            let checked = walls.check_host(&host).map_err(ToolError::from);
            checked.map_err(|error| error.with_effect(Effect::None))?;
        }
        let found = address::find(&*self.resolver, &request.url).await?;
        if !found.iter().all(|found| address::may_connect(*found, &context.grants)) {
            return Err(ToolError::permission_denied(&*self.spec.name, address::PRIVATE));
        }
        request.send(found).await
    }
}

impl Default for HttpFetch {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Tool for HttpFetch {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn needs(&self, arguments: &Arguments) -> Result<Vec<String>, ToolError> {
        let url = request::url(arguments)?;
        let mut needs = vec![address::outbound(&address::host(&url)?)];
        // The addresses of a name are known only after it is resolved.
        needs.extend(address::private_literal(&url));
        Ok(needs)
    }

    fn describe_denied_need(&self, _: &Arguments, need: &str) -> String {
        match need.starts_with(address::PRIVATE) {
            true => address::PRIVATE.to_owned(),
            false => need.to_owned(),
        }
    }

    async fn call(
        &self,
        arguments: &Arguments,
        context: &ToolContext,
    ) -> Result<JsonText, ToolError> {
        let mut request = FetchRequest::read(arguments)?;
        for _ in 0..=MAX_REDIRECTS {
            let response = self.send(&request, context).await?;
            match redirect(&response)? {
                Some(url) => request.go_to(url),
                None => return answer::read(response, &request, context).await,
            }
        }
        Err(failure::request_error(format!("more than {MAX_REDIRECTS} redirects")))
    }
}

/// Returns the target of a redirect, if the response is one.
fn redirect(response: &Response) -> Result<Option<Url>, ToolError> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let Some(location) = response.headers().get("location") else { return Ok(None) };
    let location = String::from_utf8_lossy(location.as_bytes());
    let invalid = |why: &str| failure::request_error(format!("redirect to `{location}`: {why}"));
    let url = response.url().join(&location).map_err(|error| invalid(&error.to_string()))?;
    request::check_url(url).map(Some).map_err(invalid)
}
