//! Node as built on Alpine Linux, for musl and position-independent: what holds for official builds holds for it.

use crate::support::{Node, undisturbed};

macro_rules! on_alpine {
    ($($module:ident::$test:ident),* $(,)?) => {$(
        #[test]
        #[ignore = "needs root"]
        fn $test() {
            if let Some(node) = Node::find_alpine() {
                undisturbed(|| crate::$module::$test(&node));
            }
        }
    )*};
}

on_alpine!(
    crossings::n_calls_are_n_crossings,
    crossings::entries_of_callbacks_equal_crossings,
    crossings::counting_gives_the_counts_of_a_full_trace,
    serialization::n_values_are_n_serializations,
    compilation::each_builtin_loaded_is_compiled_once,
    files::files_of_an_application_are_those_of_strace,
    files::files_of_es_modules_are_those_of_strace,
    milestones::milestones_are_those_of_node_timing,
    modules::commonjs_modules_are_those_of_the_require_cache,
    processes::calls_of_workers_are_counted,
    stacks::stacks_are_those_of_errors,
    stacks::innermost_functions_are_those_of_errors_in_hot_code,
);
