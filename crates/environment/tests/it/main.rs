//! Escapes from walls, each tried by a real program.
//!
//! This is a separate program, because the first line of `main` makes it its own helper. As root, the cases also run as
//! another user, and some run without user namespaces.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "what is left out is said aloud")]

mod again;
mod escapes;
mod files;
mod lifetime;
mod limits;
mod network;
mod operators;
mod processes;
mod support;
mod without;

use libtest_mimic::{Arguments, Trial};

/// Creates a trial from each function.
macro_rules! checks {
    ($($module:ident :: $name:ident),* $(,)?) => {
        vec![$(Trial::test(concat!(stringify!($module), "::", stringify!($name)), || {
            $module::$name();
            Ok(())
        })),*]
    };
}

fn main() {
    backstop_environment::enter();
    if again::is_parent() {
        return lifetime::start_and_wait();
    }
    let trials = if again::is_without() {
        checks![
            without::files_are_walled,
            without::hosts_are_refused,
            without::hosts_run_by_best_effort,
            without::no_network_is_held,
            without::nothing_outlives_the_program,
            without::program_cannot_end_its_helper,
            without::processes_are_refused,
        ]
    } else {
        let mut trials = checks![
            escapes::claims_of_programs_are_not_believed,
            escapes::cpu_claims_of_programs_are_not_believed,
            escapes::codes_of_silent_escapes_are_what_was_seen,
            escapes::program_of_another_architecture_is_a_violation,
            escapes::filters_of_programs_are_not_believed,
            escapes::signals_of_programs_are_not_believed,
            escapes::program_without_its_x_bit_is_no_violation,
            files::attributes_outside_are_not_written,
            files::changes_are_not_told_of,
            files::files_with_borrowed_rights_are_not_made,
            files::files_outside_are_not_read,
            files::files_outside_are_not_written,
            files::granted_files_are_read_and_written,
            files::interpreters_start,
            files::links_do_not_lead_out,
            files::swapped_paths_grant_nothing,
            files::listed_path_has_to_be_there,
            files::program_outside_is_not_granted,
            files::processes_outside_are_not_read,
            lifetime::dropped_program_is_killed,
            lifetime::hundred_run_side_by_side,
            lifetime::nothing_is_left_behind,
            lifetime::nothing_outlives_a_killed_parent,
            lifetime::nothing_outlives_the_program,
            limits::cpu_is_limited,
            limits::file_size_is_limited,
            limits::memory_is_limited,
            limits::memory_of_files_is_limited,
            limits::processes_are_limited,
            limits::wall_time_is_limited,
            network::allowed_host_is_reached,
            network::denied_host_is_named,
            network::direct_connections_lead_nowhere,
            network::kept_connection_reaches_no_other_host,
            network::local_relays_are_not_reached,
            network::loopback_is_this_machines_own,
            network::names_do_not_lead_to_private_addresses,
            network::names_are_not_resolved_inside,
            network::no_network_names_what_was_asked_for,
            network::other_protocols_have_no_sockets,
            network::requests_beyond_bounds_are_refused,
            network::tunnel_to_allowed_host_is_reached,
            network::tunnel_to_an_address_is_denied,
            network::tunnel_with_another_host_is_denied,
            operators::answer_comes_from_the_program,
            operators::cancelled_program_is_ended,
            operators::context_is_told,
            operators::deadline_ends_the_program,
            operators::deadline_that_has_passed_starts_nothing,
            operators::operator_of_this_process_is_refused,
            operators::signal_that_is_not_taken_is_refused,
            operators::signals_are_passed_on,
            operators::wall_is_the_reason_of_failure,
            processes::inherited_files_are_closed,
            processes::kernel_calls_are_refused,
            processes::other_processes_are_out_of_reach,
            processes::privileges_are_none,
            processes::program_that_is_missing_is_named,
            processes::program_begins_with_its_whole_input,
            processes::standard_streams_are_the_programs,
        ];
        if again::is_first() {
            trials.extend(checks![again::as_another_user, again::without_namespaces]);
        }
        trials
    };
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
