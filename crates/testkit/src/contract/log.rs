//! The contract of every event log.

mod append;
mod episodes;
mod erase;
pub(super) mod history;
mod inbox;
mod listing;
mod reopened;
mod sessions;
mod writers;

use backstop_event_log::EventLog;

use self::history::Log;
use super::suite::{Open, Suite, checks};

/// Checks event logs against the contract of [`EventLog`]: appends by one writer, sessions with one open run, and
/// messages to runs. `make` makes an empty log for each trial.
///
/// [`approvals`](super::approvals) has the checks about approvals, [`erasable_event_log`] those of a log that can erase,
/// [`reopened_event_log`] those of a log that is opened again, [`subscriptions`](super::subscriptions) those of a log
/// that behaviours can subscribe to.
///
/// ```
/// use std::sync::Arc;
///
/// use backstop_event_log::MemoryLog;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// backstop_testkit::contract::event_log(async || Arc::new(MemoryLog::new()) as _).check().await;
/// # }
/// ```
///
/// Specification: D1, D2, D4, D7, D8, D12.
pub fn event_log(make: impl AsyncFn() -> Log + Send + Sync + 'static) -> Suite {
    Suite::new(
        make,
        checks![
            append::keeps_every_field_of_a_record,
            append::keeps_every_field_of_a_summary,
            append::keeps_runs_apart,
            append::keeps_what_is_appended,
            append::has_nothing_of_a_run_it_was_not_given,
            append::reads_records_from_a_seq_on,
            append::writes_a_dropped_append_whole_or_not_at_all,
            inbox::accepts_requests_while_the_run_is_open,
            inbox::drops_requests_at_the_end_of_a_run,
            inbox::keeps_what_a_run_was_told_too_late,
            inbox::refuses_decisions_behind_a_cancellation,
            inbox::keeps_every_field_of_a_request,
            inbox::keeps_the_inboxes_of_runs_apart,
            inbox::keeps_what_people_said_of_a_call,
            inbox::settles_a_call_once,
            inbox::takes_a_request_with_the_append_that_records_it,
            inbox::wakes_each_watch_of_the_run,
            listing::counts_failed_attempts,
            listing::lists_at_most_as_many_as_asked,
            listing::lists_runs_as_they_stand,
            listing::lists_runs_newest_first,
            listing::lists_the_runs_in_some_states,
            listing::lists_the_runs_of_a_label,
            listing::lists_the_runs_of_one_agent,
            listing::lists_the_runs_of_one_session,
            listing::lists_the_runs_of_some_time,
            listing::lists_the_runs_that_none_dispatched,
            listing::lists_the_runs_whose_id_begins_so,
            listing::lists_the_runs_with_a_reason,
            episodes::a_dispatched_run_is_reopened_beside_others,
            episodes::a_reopened_run_is_open_until_it_ends_again,
            episodes::refuses_to_reopen_a_run_that_is_followed,
            episodes::reopens_or_follows_never_both,
            sessions::a_copied_run_has_a_session_of_its_own,
            sessions::begins_one_of_many_runs_of_a_session,
            sessions::finds_the_last_root_of_a_session,
            sessions::has_one_open_run_a_session,
            sessions::imports_a_run_without_the_one_before,
            sessions::lets_a_dispatched_run_share_the_session,
            sessions::lets_runs_that_are_dispatched_together_be_open_at_once,
            sessions::refuses_a_run_that_does_not_follow_the_last,
            writers::a_claim_ends_when_it_is_dropped,
            writers::a_refused_batch_changes_nothing,
            writers::a_run_that_begins_is_claimed,
            writers::gives_a_run_to_one_of_many_claims,
            writers::has_no_claim_for_a_run_it_has_not,
            writers::keeps_the_appends_of_many_runs,
            writers::raises_the_epoch_with_each_claim,
            writers::refuses_a_gap,
            writers::refuses_a_run_that_exists,
            writers::refuses_a_second_writer,
            writers::refuses_a_writer_that_was_overtaken,
            writers::takes_one_of_many_appends,
        ],
    )
}

/// Checks logs that can erase the text of an event ([`Erasures::erase`](backstop_event_log::Erasures::erase)). `make`
/// makes an empty log for each trial.
///
/// Specification: D15.
pub fn erasable_event_log(make: impl AsyncFn() -> Log + Send + Sync + 'static) -> Suite {
    Suite::new(
        make,
        checks![
            erase::erases_nothing_it_cannot,
            erase::erases_what_an_event_says,
            erase::names_the_runs_that_hold_a_copy,
            erase::verifies_a_copy_without_its_last_text,
            erase::verifies_what_was_erased,
        ],
    )
}

/// Checks durable logs against the contract of a log that is opened again, or twice. `make` makes an empty place for
/// each trial, as a function that opens the log there.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use backstop_event_log::{EventLog, MemoryLog};
/// use backstop_testkit::contract::{Open, reopened_event_log};
///
/// /// A place of its own: a log of yours opens its file or its database here.
/// fn place() -> Open<dyn EventLog> {
///     let log: Arc<dyn EventLog> = Arc::new(MemoryLog::new());
///     Box::new(move || {
///         let log = Arc::clone(&log);
///         Box::pin(async move { log })
///     })
/// }
///
/// // #[tokio::test]
/// # #[tokio::main(flavor = "current_thread")]
/// async fn main() {
///     reopened_event_log(async || place()).check().await;
/// }
/// ```
///
/// Specification: D3, D8.
pub fn reopened_event_log(
    make: impl AsyncFn() -> Open<dyn EventLog> + Send + Sync + 'static,
) -> Suite {
    Suite::new(
        make,
        checks![
            reopened::a_run_has_one_writer_by_whatever_handle,
            reopened::a_session_has_one_open_run_by_whatever_handle,
            reopened::a_tree_has_one_owner_by_whatever_handle,
            reopened::gives_new_requests_ids_of_their_own,
            reopened::keeps_cursors,
            reopened::keeps_epochs,
            reopened::keeps_expired_approvals,
            reopened::keeps_requests,
            reopened::keeps_runs,
            reopened::keeps_settlements,
            reopened::keeps_subscriptions,
            reopened::keeps_the_last_root,
            reopened::wakes_again_while_a_request_waits,
        ],
    )
}
