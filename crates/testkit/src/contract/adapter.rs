//! Checks for Backstop's own adapters, in addition to the contract of a provider: their messages, their phases, their
//! secrets, and every known failure of their provider.
//!
//! An adapter fills in an [`Adapter`], which has everything specific to it, and
//! [`adapter_suite!`](crate::adapter_suite!) makes a test of each check. A check panics if the property in its name
//! does not hold.

mod answers;
mod failures;
mod faults;
mod gateways;

use std::pin::Pin;

use backstop_provider::{ErrorKind, ModelResponse, ProviderError, ScriptedAnswer, ScriptedError};
use layer0::message::StopReason;
use serde_json::{Value, json};

use crate::failures::Sample;
use crate::server::{Reply, ScriptedEndpoint, hello, patient, send};
use crate::wire::{Cannot, Wire};

pub use answers::{
    a_listener_hears_what_the_answer_says, a_recorded_answer_is_read_as_one_from_the_wire,
    a_script_fills_ids_and_says_its_end, an_answer_is_the_same_whole_streamed_and_split,
    an_endpoint_that_cannot_stream_is_read_whole, arguments_of_a_cut_answer_stay_as_written,
    arguments_that_are_no_json_are_given_back_as_they_are,
    stop_reasons_of_the_wire_are_read_without_loss, tokens_of_a_failed_stream_are_heard,
};
pub use failures::{
    every_known_failure_is_what_the_table_says, it_keeps_the_contract_of_a_provider,
    no_error_shows_the_key, what_is_no_answer_is_an_invalid_response,
};
pub use faults::{
    a_failure_whose_body_breaks_off_is_still_what_its_status_says,
    a_hung_peer_is_a_timeout_of_its_phase, a_redirect_is_not_followed,
    a_refused_connection_is_transient_and_names_the_place, no_broken_byte_panics,
    no_part_of_an_answer_is_taken_for_the_whole, nothing_is_asked_twice,
};

pub use gateways::{
    a_malformed_piece_is_not_taken_for_a_cut, a_mislabelled_stream_is_read_as_one,
    a_word_on_retrying_counts_where_it_may, half_a_surrogate_pair_is_replaced,
    halves_of_a_character_are_joined, lines_may_end_with_carriage_returns,
    what_stands_beside_an_answer_costs_no_answer, words_of_any_vendor_are_understood,
};

/// The properties specific to an adapter. Each provider is made with [`KEY`](crate::KEY).
#[derive(Debug, Clone, Copy)]
#[expect(clippy::exhaustive_structs, reason = "what a new check needs, each adapter has to state")]
pub struct Adapter {
    /// The provider under test, and the encoder of its server's responses.
    pub wire: Wire,
    /// Serves a script at the paths of the protocol.
    pub endpoint: fn(Vec<ScriptedAnswer>) -> ScriptedEndpoint,
    /// Decodes a recorded answer from its content type and body.
    pub read: fn(&str, Vec<u8>) -> Reading<'_>,
    /// Returns the debug output of all values with secrets.
    pub shown: fn() -> String,
    /// Returns every known failure of its provider.
    pub failures: fn() -> Vec<Sample>,
    /// Returns replies that are not answers in this protocol, each with whether it is streamed, and with the message
    /// after `invalid response: `.
    pub no_answers: fn() -> Vec<(Reply, bool, &'static str)>,
    /// Returns failures and answers that repeat a text wherever the protocol has a place for one; the value is an error
    /// object that repeats it.
    pub repeating: fn(&str, &Value) -> Vec<Reply>,
    /// The stop reasons by their names in the protocol.
    pub reasons: &'static [(&'static str, StopReason)],
    /// Returns answers with the text `so far` that stop for a reason, each with whether it is streamed.
    pub stopped: fn(&str) -> Vec<(Reply, bool)>,
    /// A status that a failure in the middle of a stream can have, together with billed tokens.
    pub transient_inside: Option<u16>,
    /// Returns empty arguments in the forms of a script.
    pub no_arguments: fn() -> Vec<Value>,
    /// Returns the maximum number of bytes of a streamed answer after it is complete.
    pub after_the_end: fn() -> usize,
}

/// The decoding of a recorded answer.
pub type Reading<'a> =
    Pin<Box<dyn Future<Output = Result<ModelResponse, ProviderError>> + Send + 'a>>;

/// Makes a test of each check in [`adapter`](crate::contract::adapter), for an
/// [`Adapter`](crate::contract::adapter::Adapter).
#[macro_export]
macro_rules! adapter_suite {
    ($adapter:expr) => {
        $crate::adapter_suite! { $adapter =>
            a_failure_whose_body_breaks_off_is_still_what_its_status_says
            a_hung_peer_is_a_timeout_of_its_phase
            a_listener_hears_what_the_answer_says
            a_malformed_piece_is_not_taken_for_a_cut
            a_mislabelled_stream_is_read_as_one
            a_recorded_answer_is_read_as_one_from_the_wire
            a_redirect_is_not_followed
            a_refused_connection_is_transient_and_names_the_place
            a_word_on_retrying_counts_where_it_may
            a_script_fills_ids_and_says_its_end
            an_answer_is_the_same_whole_streamed_and_split
            an_endpoint_that_cannot_stream_is_read_whole
            arguments_of_a_cut_answer_stay_as_written
            arguments_that_are_no_json_are_given_back_as_they_are
            every_known_failure_is_what_the_table_says
            half_a_surrogate_pair_is_replaced
            halves_of_a_character_are_joined
            it_keeps_the_contract_of_a_provider
            lines_may_end_with_carriage_returns
            no_broken_byte_panics
            no_error_shows_the_key
            no_part_of_an_answer_is_taken_for_the_whole
            nothing_is_asked_twice
            stop_reasons_of_the_wire_are_read_without_loss
            tokens_of_a_failed_stream_are_heard
            what_is_no_answer_is_an_invalid_response
            what_stands_beside_an_answer_costs_no_answer
            words_of_any_vendor_are_understood
        }
    };
    ($adapter:expr => $($check:ident)+) => {
        $(
            #[tokio::test]
            async fn $check() {
                $crate::contract::adapter::$check(&$adapter).await;
            }
        )+
    };
}

impl Adapter {
    /// Calls the adapter at an endpoint with this one answer.
    ///
    /// # Errors
    ///
    /// The errors of the adapter.
    pub async fn serve(
        &self,
        answer: &ScriptedAnswer,
        streamed: bool,
    ) -> Result<ModelResponse, ProviderError> {
        let server = (self.endpoint)(vec![answer.clone()]);
        let provider = (self.wire.provider)(&server.base_url(), patient());
        send(&*provider, &hello(), streamed).await
    }

    /// Returns an answer of one text.
    #[must_use]
    pub fn plain(&self, streamed: bool) -> Reply {
        self.wire.says(&ScriptedAnswer::saying("one two three four five six"), streamed)
    }

    /// Returns an answer with all possible parts.
    fn rich(&self) -> ScriptedAnswer {
        let cached = if self.wire.can(Cannot::CountCached) { 5 } else { 0 };
        scripted(json!({
            "text": "Grüße 👍 an alle",
            "thinking": "hm, let me see",
            "tool_calls": [
                { "id": "call-1", "name": "fs_read", "arguments": { "path": "äöü 👍" } },
                { "id": "call-2", "name": "now" },
            ],
            "usage": { "input_tokens": 12, "output_tokens": 7, "cached_tokens": cached },
        }))
    }
}

fn scripted(value: Value) -> ScriptedAnswer {
    serde_json::from_value(value).expect("a script has the fields of `ScriptedAnswer`")
}

/// Returns an answer that fails after some text and usage.
fn failing(status: u16) -> ScriptedAnswer {
    let mut error = ScriptedError::new(ErrorKind::Transient);
    error.status = Some(status);
    let said = scripted(json!({ "text": "half", "usage": { "input_tokens": 9 } }));
    said.error(error)
}
