//! The contracts hold for implementations without optional features.

use std::sync::Arc;

use async_trait::async_trait;
use backstop::layer0::message::{Message, StopReason, Transcript};
use backstop::{OpenAi, ProviderError};
use backstop_provider::{ModelRequest, ModelResponse, Provider};
use backstop_testkit::{Cannot, KEY, contract};

/// A provider that sends no images, and receives its answers whole.
struct TextProvider(OpenAiProvider);

type OpenAiProvider = Arc<dyn Provider>;

#[async_trait]
impl Provider for TextProvider {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn model(&self) -> &str {
        self.0.model()
    }

    fn check_settings(
        &self,
        settings: &backstop_provider::ModelSettings,
    ) -> Result<(), backstop_provider::UnsupportedSetting> {
        self.0.check_settings(settings)
    }

    fn output_support(&self, request: &ModelRequest) -> backstop_provider::OutputSupport {
        self.0.output_support(request)
    }

    async fn complete(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        let mut messages = Transcript::default();
        for message in request.messages.messages() {
            let mut message = Message::clone(message);
            if let Message::User { images, .. } = &mut message {
                *images = Arc::default();
            }
            messages.push(message);
        }
        let mut asked = request.clone();
        asked.messages = messages;
        self.0.complete(&asked).await
    }
}

/// Spec: P1
#[tokio::test]
async fn providers_without_streams_keep_the_contract() {
    let wire = backstop_testkit::openai::wire(|url, timeouts| {
        let openai = OpenAi::new("m").base_url(format!("{url}/v1")).api_key(KEY);
        Arc::new(TextProvider(Arc::new(openai.timeouts(timeouts).build().unwrap())))
    });
    let wire = wire.that_cannot(&[
        Cannot::CountCacheWrites,
        Cannot::KeepState,
        Cannot::MarkFailures,
        Cannot::ShowImages,
        Cannot::ShowToolImages,
        Cannot::Stop(StopReason::Malformed),
        Cannot::Stop(StopReason::Pause),
        Cannot::Stream,
    ]);
    contract::provider(wire).check().await;
}
