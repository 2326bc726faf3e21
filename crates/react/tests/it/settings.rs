//! Model settings, from the builder to the provider.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use backstop_provider::{
    ModelRequest, ModelResponse, ModelSettings, OutputSupport, Provider, ProviderError,
    ReasoningEffort, ScriptedProvider, SettingsSupport, ToolChoice, UnsupportedSetting,
};
use backstop_react::{Agent, BuildError, RunRequest};
use backstop_tool::{ToolError, tool};
use layer0::failure::Chain;
use layer0::message::Message;
use serde_json::json;

/// Looks something up.
#[tool(name = "web.search")]
async fn search(q: String) -> Result<String, ToolError> {
    Ok(q)
}

/// Notes the settings it is asked with.
struct Noting {
    script: ScriptedProvider,
    support: SettingsSupport,
    asked: Arc<Mutex<Vec<ModelSettings>>>,
}

impl Noting {
    fn new(support: SettingsSupport) -> (Self, Arc<Mutex<Vec<ModelSettings>>>) {
        let script = ScriptedProvider::calling("web.search", json!({ "q": "x" }), "done");
        let asked = Arc::default();
        (Self { script, support, asked: Arc::clone(&asked) }, asked)
    }
}

#[async_trait]
impl Provider for Noting {
    fn name(&self) -> &str {
        "noting"
    }

    fn model(&self) -> &str {
        "m"
    }

    fn check_settings(&self, settings: &ModelSettings) -> Result<(), UnsupportedSetting> {
        self.support.check("noting", settings)
    }

    async fn complete(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        self.asked.lock().unwrap().push(request.settings.clone());
        self.script.complete(request).await
    }
}

/// Spec: P12
#[tokio::test]
async fn settings_reach_the_provider() {
    let (provider, asked) = Noting::new(SettingsSupport::all());
    let settings = ModelSettings::new()
        .top_p(0.5)
        .seed(7)
        .stop(["END"])
        .reasoning_effort(ReasoningEffort::Low)
        .tool_choice(ToolChoice::None);
    let agent = Agent::builder(provider).tool(search).settings(settings.clone());
    agent.build().unwrap().run("x").await.unwrap();
    assert_eq!(*asked.lock().unwrap(), [settings.clone(), settings]);
}

/// Spec: P12. A tool that had to be called at every turn would leave no turn for the answer.
#[tokio::test]
async fn tool_is_forced_at_the_first_call_only() {
    for (choice, sent) in [
        (ToolChoice::Required, ToolChoice::Required),
        // As providers know it.
        (ToolChoice::Tool("web.search".into()), ToolChoice::Tool("web_search".into())),
    ] {
        let (provider, asked) = Noting::new(SettingsSupport::all());
        let settings = ModelSettings::new().tool_choice(choice);
        let agent = Agent::builder(provider).tool(search).settings(settings).build().unwrap();
        for _ in 0..2 {
            agent.run("x").await.ok();
        }
        let asked: Vec<_> =
            asked.lock().unwrap().iter().map(|it| it.tool_choice.clone().unwrap()).collect();
        assert_eq!(asked, [sent.clone(), ToolChoice::Auto, sent]);
    }
}

/// Spec: P12
#[test]
fn unsupported_setting_is_refused_at_build() {
    let settings = ModelSettings::new().seed(7);
    let basic = || Noting::new(SettingsSupport::basic()).0;
    let full = || Noting::new(SettingsSupport::all()).0;
    for agent in [Agent::builder(basic()), Agent::builder(full()).fallback(basic())] {
        let error = agent.settings(settings.clone()).build().err().unwrap();
        assert!(matches!(error, BuildError::Setting(_)), "{error:?}");
        assert_eq!(Chain(&error).to_string(), "unsupported setting: `noting` has no `seed`");
    }
    assert!(Agent::builder(full()).fallback(full()).settings(settings).build().is_ok());
}

/// Spec: P12
#[test]
fn setting_no_provider_takes_is_refused() {
    #[track_caller]
    fn check(settings: ModelSettings, expected: &str) {
        let (provider, _) = Noting::new(SettingsSupport::all());
        let error = Agent::builder(provider).settings(settings).build().err().unwrap();
        assert_eq!(Chain(&error).to_string(), expected);
    }
    let new = ModelSettings::new;
    check(new().top_p(1.5), "invalid limit: `top_p` must be from 0 to 1, and is `1.5`");
    check(new().top_p(f32::NAN), "invalid limit: `top_p` must be from 0 to 1, and is `NaN`");
    check(new().stop(["a", ""]), "invalid limit: `stop` must not be empty");
    check(
        new().tool_choice(ToolChoice::Required),
        "`tool_choice` is `required`, and the agent has no tool",
    );
    check(new().tool_choice(ToolChoice::Tool("sql".into())), "unknown tool: no tool named `sql`");
}

/// Spec: P12, O1. The form is sent to a provider that knows forms; the others read it in their
/// instructions. Either way the answer is held against it.
#[tokio::test]
async fn form_is_sent_where_the_provider_knows_forms() {
    struct Forms(OutputSupport, Arc<Mutex<Vec<ModelRequest>>>);

    #[async_trait]
    impl Provider for Forms {
        fn name(&self) -> &str {
            "forms"
        }

        fn model(&self) -> &str {
            "m"
        }

        fn output_support(&self, request: &ModelRequest) -> OutputSupport {
            assert_eq!(request.output.as_ref().map(|output| &*output.name), Some("Sum"));
            self.0
        }

        async fn complete(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
            let before = {
                let mut asked = self.1.lock().unwrap();
                asked.push(request.clone());
                asked.len() - 1
            };
            let answers = ["{\"value\": \"much\"}", "{\"value\": 42}"];
            ScriptedProvider::saying([answers[before]]).complete(request).await
        }
    }

    let schema = json!({ "title": "Sum", "type": "object",
        "properties": { "value": { "type": "integer" } }, "required": ["value"] });
    for (support, is_sent, is_told) in [
        (OutputSupport::Native, true, false),
        (OutputSupport::Constrained, true, true),
        (OutputSupport::Prompt, false, true),
    ] {
        let asked = Arc::<Mutex<Vec<ModelRequest>>>::default();
        let provider = Forms(support, Arc::clone(&asked));
        let agent = Agent::builder(provider).instructions("Add.").build().unwrap();
        let request = RunRequest::new("x").output_schema(schema.clone());
        let outcome = agent.run(request).await.unwrap();
        assert_eq!(outcome.output.as_ref(), "{\"value\": 42}");
        let asked = asked.lock().unwrap();
        assert_eq!(asked.len(), 2, "{support:?}: an answer that does not fit is sent back");
        for request in &*asked {
            let Message::System { content } = &*request.messages.messages()[0] else {
                panic!("the instructions come first");
            };
            assert!(content.starts_with("Add."), "{content}");
            assert_eq!(content.contains("JSON Schema"), is_told, "{support:?}: {content}");
            assert_eq!(request.output.is_some(), is_sent, "{support:?}");
        }
    }
}
