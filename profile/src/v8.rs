//! What V8 does, by the names of its functions.

/// Functions through which V8 comes to collect garbage, on the main thread and on helpers. The same from 9.4 to 14.6.
pub fn is_garbage_collection(function: &str) -> bool {
    const ENTRIES: [&str; 12] = [
        "v8::internal::Heap::CollectGarbage",
        "v8::internal::Heap::CollectAllGarbage",
        "v8::internal::Heap::CollectAllAvailableGarbage",
        "v8::internal::Heap::PerformGarbageCollection",
        "v8::internal::Heap::Scavenge",
        "v8::internal::Heap::FinalizeIncrementalMarking",
        "v8::internal::IncrementalMarking",
        "v8::internal::ConcurrentMarking",
        "v8::internal::ScavengerCollector",
        "v8::internal::MarkCompactCollector",
        "v8::internal::MinorMarkSweepCollector",
        "v8::internal::Sweeper",
    ];
    ENTRIES.iter().any(|entry| function.starts_with(entry))
}

/// Whether a native function is the one with which Node deals with an exception that nobody caught, be it of a script, of
/// a callback or of a promise. It returns if a handler of the program's takes it, else it ends the process.
pub fn is_uncaught_exception(function: &str) -> bool {
    function.starts_with("node::errors::TriggerUncaughtException")
}
