//! The contract of every provider, over real HTTP.

mod asked;
mod broken;
mod exchange;
mod failed;
mod form;
mod many;
mod messages;
mod numbers;
mod said;
mod settings;

use super::suite::{Suite, checks};
use crate::server::patient;
use crate::wire::Wire;

/// Checks a provider against the contract of [`Provider`](backstop_provider::Provider), over real HTTP:
///
/// - The whole transcript with its roles, its images, the tools and the settings are sent, with the key, and not the run
///   that asks; state that a provider wants back is returned only to that provider.
/// - A setting is either sent or refused by the provider's check of settings.
/// - The form of a typed answer is sent in the provider's own way, unless the provider reports that it has none.
/// - Answers, thinking and tool calls, with their ids, arrive complete wherever bytes are split, and a streamed answer
///   equals a whole one.
/// - Each stop reason is decoded as itself, arguments that are not JSON are returned as written, and billed tokens are
///   neither lost nor invented.
/// - The sink gets each chunk as it arrives, the status and the billed tokens, also of calls that fail.
/// - Each failure that a script can name is decoded as itself, with its retry delay.
/// - No error shows the key.
/// - A failure with an unknown body is classified by its status, and no body is read without a limit.
/// - No part of an answer is mistaken for the whole.
/// - Concurrent calls neither wait for each other nor mix, and leave no state for the next one.
/// - A server that hangs, resets, sends a page for people or is absent causes a retryable failure, which the provider
///   itself does not retry.
/// - A redirect, which would send the key to another place, is not followed.
/// - A dropped call closes its connection.
///
/// It needs a function that makes the provider with [`KEY`](crate::KEY), and one that encodes an answer in its
/// protocol; for the protocols of this crate there are functions such as [`openai::wire`](crate::wire::openai::wire).
///
/// ```no_run
/// use std::sync::Arc;
/// use backstop_testkit::KEY;
/// # struct MyProvider;
/// # #[async_trait::async_trait]
/// # impl backstop_provider::Provider for MyProvider {
/// #     fn name(&self) -> &str { "mine" }
/// #     fn model(&self) -> &str { "m" }
/// #     async fn complete(
/// #         &self,
/// #         _: &backstop_provider::ModelRequest,
/// #     ) -> Result<backstop_provider::ModelResponse, backstop_provider::ProviderError> {
/// #         Err(backstop_provider::ProviderError::InvalidResponse("nothing was answered".into()))
/// #     }
/// # }
/// # impl MyProvider {
/// #     fn new(_: &str, _: &str) -> Self { Self }
/// #     fn idle_timeout(self, _: std::time::Duration) -> Self { self }
/// # }
///
/// // #[tokio::test]
/// async fn my_provider_keeps_the_contract() {
///     let wire = backstop_testkit::openai::wire(|url, timeouts| {
///         Arc::new(MyProvider::new(url, KEY).idle_timeout(timeouts.idle))
///     });
///     backstop_testkit::contract::provider(wire).check().await;
/// }
/// ```
///
/// The limits of your own protocol go into [`Wire::that_cannot`].
///
pub fn provider(wire: Wire) -> Suite {
    Suite::new(
        async move || wire,
        checks![
            it_has_a_name,
            asked::all_of_a_request_is_sent,
            asked::arguments_are_sent_as_they_are,
            asked::failed_results_are_marked,
            asked::images_are_sent,
            asked::images_of_tools_are_sent_or_named,
            asked::results_name_their_call,
            asked::state_goes_back_to_whom_it_came_from,
            messages::calls_are_sent_in_their_order,
            messages::roles_are_sent,
            messages::runs_are_not_named_to_the_endpoint,
            many::answers_go_to_their_callers,
            many::calls_do_not_wait_for_each_other,
            many::nothing_is_left_of_the_call_before,
            many::pieces_are_passed_on_as_they_come,
            numbers::numbers_in_arguments_keep_their_text,
            settings::settings_are_sent_or_refused,
            form::forms_of_answers_reach_the_model,
            said::answers_arrive_whole,
            said::reasons_to_stop_are_what_they_were,
            said::arguments_that_are_no_json_are_given_back,
            failed::failures_are_what_they_were,
            failed::tokens_of_a_failure_are_heard,
            failed::no_error_shows_the_key,
            broken::bodies_are_bounded,
            broken::foreign_failures_are_what_their_status_says,
            broken::streams_are_bounded,
            broken::no_part_is_taken_for_the_whole,
            broken::nothing_is_asked_but_once,
            broken::a_dropped_call_closes_its_connection,
            broken::what_breaks_may_be_tried_again,
        ],
    )
}

async fn it_has_a_name(wire: Wire) {
    let provider = (wire.provider)("http://127.0.0.1:9", patient());
    assert!(!provider.name().is_empty(), "a provider has a name");
    assert!(!provider.model().is_empty(), "a model has a name");
}
