//! Texts and order of events, to the letter.

use crate::support::played::named;
use crate::support::story::story;

/// Makes a test per scenario that holds its story word by word.
macro_rules! told {
    ($($(#[$doc:meta])* $name:ident)*) => {
        $(
            $(#[$doc])*
            #[test]
            fn $name() {
                check(stringify!($name));
            }
        )*
    };
}

told! {
    approval_after_the_gate
    approval_changed
    approval_denied
    approval_expires
    approval_expires_beside_a_tool
    approval_leaves_the_budget
    approval_same_call_twice
    approval_granted
    approval_of_two
    approval_waits
    hook_aborts_an_answer
    hook_aborts_at_the_end
    hook_aborts_the_run
    hook_at_the_end_of_a_failed_run
    hook_fails_open
    hook_hangs_past_the_time_budget
    hook_must_not_fail_after_model
    hook_must_not_fail_after_tool
    hook_must_not_fail_before_model
    hook_must_not_fail_before_tool
    hook_must_not_fail_run_end
    hook_must_not_fail_run_start
    hook_replaces_arguments
    hook_skips_a_call
    log_fails_at_the_start
    log_fails_before_a_tool
    errors_code_alone
    errors_code_and_first_line
    errors_id_is_no_string
    errors_json
    errors_key_redacted
    /// Spec: S4
    errors_long_line
    /// Spec: S7
    errors_read_by_page
    errors_read_in_full
    /// Spec: S8
    errors_seen_again
    /// Spec: S5
    errors_short
    /// Spec: S6
    errors_store_disk_full
    errors_store_locked
    errors_store_locked_twice
    errors_store_none
    errors_store_unreadable
    errors_traceback
    errors_unknown_id
    budget_events_in_the_middle
    budget_model_calls
    budget_tokens
    budget_tool_calls
    budget_wall_time_model
    cancel_in_model
    cancel_in_tool
    guard_loop
    guard_max_iterations
    guard_stagnation
    memory_hangs
    memory_panics
    memory_read
    memory_read_fails
    model_deadline
    model_empty_twice
    model_gave_up
    model_gave_up_midway
    model_max_tokens
    model_pause
    model_refusal_with_tools
    /// Spec: R8
    model_retried
    model_retry_after_too_long
    run_completed
    run_empty_input
    tools_repeated_failure
    /// Spec: T2
    tools_admission
    tools_batch
    tools_batch_in_turns
    tools_batch_one_fails
    tools_batch_too_large
    tools_grants
    tools_invalid_input
    tools_invalid_output
    tools_malformed_arguments
    tools_no_tools
    /// Spec: T3
    tools_not_found
    tools_other_arguments
    tools_panic
    tools_permission_denied
    tools_repeated_ids
    tools_timeout
    tools_timeout_of_the_agent
    tools_wait_for_hint
    results_large
    results_store_full
    results_store_none
}

fn check(name: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, story(named(name))));
}
