//! What V8 does, by the names of its functions.

use crate::recording::FrameKind;

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
    begins(function, &ENTRIES)
}

/// Which of V8's compilations a native function belongs to. The same from 9.4 to 14.6.
pub fn compilation(function: &str) -> Option<Work> {
    const OPTIMIZING: [&str; 12] = [
        "v8::internal::OptimizedCompilationJob",
        "v8::internal::TurbofanCompilationJob",
        "v8::internal::OptimizingCompile",
        "v8::internal::Runtime_CompileOptimized",
        "v8::internal::maglev::",
        "v8::internal::compiler::",
        "v8::internal::Compiler::CompileOptimized",
        "v8::internal::Compiler::CompileMaglev",
        "v8::internal::Compiler::GetOptimizedCodeForOSR",
        "v8::internal::Compiler::FinalizeOptimized",
        "v8::internal::Compiler::FinalizeTurbofan",
        "v8::internal::Compiler::FinalizeMaglev",
    ];
    const BASELINE: [&str; 4] = [
        "v8::internal::baseline::",
        "v8::internal::BaselineBatchCompiler",
        "v8::internal::Compiler::CompileBaseline",
        "v8::internal::Compiler::CompileSharedWithBaseline",
    ];
    const LAZY: [&str; 3] = [
        "v8::internal::Runtime_CompileLazy",
        "v8::internal::LazyCompileDispatcher",
        "v8::internal::parsing::ParseFunction",
    ];
    const CACHES: [&str; 2] = [
        "v8::ScriptCompiler::CreateCodeCache",
        "v8::internal::CodeSerializer::Serialize",
    ];
    const EAGER: [&str; 6] = [
        "v8::ScriptCompiler::",
        "v8::internal::BackgroundCompileTask",
        "v8::internal::parsing::ParseProgram",
        "v8::internal::Compiler::CompileToplevel",
        "v8::internal::Compiler::GetFunctionFrom",
        "v8::internal::Compiler::Get",
    ];
    let is_of = |entries: &[&str]| begins(function, entries);
    Some(match () {
        () if is_of(&OPTIMIZING) => Work::OptimizingCompilation,
        () if is_of(&BASELINE) => Work::BaselineCompilation,
        () if is_of(&LAZY) || is(function, "v8::internal::Compiler::Compile") => {
            Work::LazyCompilation
        }
        // What was compiled is written.
        () if is_of(&CACHES) => return None,
        () if is_of(&EAGER) => Work::EagerCompilation,
        () => return None,
    })
}

/// Whether a native function parses or compiles, for whichever compilation.
pub fn is_compilation(function: &str) -> bool {
    const EITHER: [&str; 2] = ["v8::internal::Compiler::", "v8::internal::parsing::"];
    compilation(function).is_some()
        || begins(function, &EITHER)
        || is_webassembly_compilation(function)
}

/// Whether a native function makes objects of a snapshot or of a code cache. The same from 9.4 to 14.6.
fn is_deserialization(function: &str) -> bool {
    const ENTRIES: [&str; 10] = [
        "v8::internal::Deserializer",
        "v8::internal::StartupDeserializer",
        "v8::internal::ContextDeserializer",
        "v8::internal::ReadOnlyDeserializer",
        "v8::internal::ReadOnlyHeapImageDeserializer",
        "v8::internal::SharedHeapDeserializer",
        "v8::internal::ObjectDeserializer",
        "v8::internal::CodeSerializer::Deserialize",
        "v8::internal::CodeSerializer::FinishOffThreadDeserialize",
        "v8::internal::Snapshot::VerifyChecksum",
    ];
    begins(function, &ENTRIES) || is(function, "v8::internal::Checksum")
}

/// Whether a native function is of an inline cache: it runs when one has missed. The same from 9.4 to 14.6.
fn is_inline_cache_miss(function: &str) -> bool {
    const CLASSES: [&str; 8] = [
        "v8::internal::IC::",
        "v8::internal::LoadIC::",
        "v8::internal::LoadGlobalIC::",
        "v8::internal::KeyedLoadIC::",
        "v8::internal::StoreIC::",
        "v8::internal::StoreGlobalIC::",
        "v8::internal::KeyedStoreIC::",
        "v8::internal::StoreInArrayLiteralIC::",
    ];
    match named(function).strip_prefix("v8::internal::Runtime_") {
        Some(runtime) => {
            let name = runtime.split('(').next().unwrap_or(runtime);
            name.contains("IC_") || name.ends_with("IC")
        }
        None => begins(function, &CLASSES),
    }
}

/// Whether a native function reads, compiles or instantiates WebAssembly. The same from 9.4 to 14.6.
fn is_webassembly_compilation(function: &str) -> bool {
    // What functions of WebAssembly call for instructions that the processor has not, such as `memory_fill_wrapper`, is named so.
    // V8 asks whose code an address is for each frame of any stack that it walks, also where there is no WebAssembly.
    const OTHERS: [&str; 4] = ["_wrapper(", "::Lookup", "LookupCache::", "CodeRefScope::"];
    begins(function, &["v8::internal::wasm::"])
        && !OTHERS.iter().any(|other| function.contains(other))
}

/// Whether a function is one through which the kernel comes to run probes. A breakpoint is one of ours: no debugger is attached.
pub fn is_tracing(function: &str) -> bool {
    const ENTRIES: [&str; 8] = [
        "asm_exc_int3",
        "exc_int3",
        "uprobe_",
        "__x64_sys_uretprobe",
        "__ia32_sys_uretprobe",
        "__bpf_trace",
        "bpf_trace_run",
        "bpf_prog_",
    ];
    ENTRIES.iter().any(|entry| function.starts_with(entry))
}

/// A function's name without the type that it returns, which only templates have.
fn named(function: &str) -> &str {
    match function.split_once(' ') {
        Some((returned, name)) if !returned.contains(['(', '<']) => name,
        _ => function,
    }
}

/// Whether a function is this one, with its parameters or without.
fn is(function: &str, this: &str) -> bool {
    let rest = named(function).strip_prefix(this);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('('))
}

fn begins(function: &str, entries: &[&str]) -> bool {
    let name = named(function);
    entries.iter().any(|entry| name.starts_with(entry))
}

/// What a thread did at a moment: each CPU sample is of one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Work {
    /// Functions of the program and of its packages, interpreted or compiled, with V8's code that has no frame of its own (bytecode
    /// handlers, inline caches that hit).
    JavaScript,
    /// The same of the JavaScript that is built into node.
    NodeJavaScript,
    /// Builtins that JavaScript calls, such as `Array.prototype.map`.
    Builtins,
    /// Functions of WebAssembly.
    WebAssembly,
    /// Inline caches that missed.
    InlineCacheMisses,
    /// Parsing and compiling whole scripts, and compilations of which no more is known.
    EagerCompilation,
    /// Parsing and compiling functions as they are first called.
    LazyCompilation,
    /// Sparkplug.
    BaselineCompilation,
    /// Maglev and TurboFan.
    OptimizingCompilation,
    /// Reading, compiling and instantiating modules of WebAssembly.
    WebAssemblyCompilation,
    /// Making objects of a snapshot or of a code cache.
    Deserialization,
    /// Collecting garbage.
    GarbageCollection,
    /// Other machine code: node, libraries, add-ons, and other programs.
    Native,
    /// The kernel, for none of the above.
    Kernel,
    /// The kernel, running probes: what tracing itself costs.
    Tracing,
    /// The stack is not known.
    Unknown,
}

impl Work {
    /// What a stack was at, from its innermost frame outward: kind, function and whether its script is built into node. That of V8's
    /// activities which the innermost JavaScript function's callees are in, with what the kernel does for it; else what runs.
    pub fn of<'a>(frames: impl IntoIterator<Item = (FrameKind, &'a str, bool)>) -> Work {
        let mut runs = None;
        let (mut optimizes, mut compiles) = (false, false);
        for (kind, function, built_in) in frames {
            let innermost = match kind {
                FrameKind::JavaScript if built_in => Work::NodeJavaScript,
                FrameKind::JavaScript => Work::JavaScript,
                FrameKind::WebAssembly => Work::WebAssembly,
                FrameKind::Builtin => Work::Builtins,
                FrameKind::Native | FrameKind::Library | FrameKind::AddOn => Work::Native,
                FrameKind::Kernel => Work::Kernel,
                FrameKind::Unknown => Work::Unknown,
            };
            let runs = runs.get_or_insert(innermost);
            match kind {
                FrameKind::JavaScript | FrameKind::WebAssembly => break,
                FrameKind::Kernel if is_tracing(function) => return Work::Tracing,
                // The name of what the kernel hides may be missing, and what it calls still be known.
                FrameKind::Native if *runs == Work::Unknown => *runs = Work::Native,
                _ => {}
            }
            if kind != FrameKind::Native {
                continue;
            }
            // The compiler that optimises is that of WebAssembly, too.
            if is_webassembly_compilation(function) {
                return Work::WebAssemblyCompilation;
            }
            match compilation(function) {
                Some(Work::OptimizingCompilation) => optimizes = true,
                Some(compilation) if !optimizes => return compilation,
                _ => {}
            }
            compiles |= is_compilation(function);
            match () {
                () if optimizes || compiles => {}
                () if is_garbage_collection(function) => return Work::GarbageCollection,
                () if is_deserialization(function) => return Work::Deserialization,
                () if is_inline_cache_miss(function) => return Work::InlineCacheMisses,
                () => {}
            }
        }
        match runs {
            _ if optimizes => Work::OptimizingCompilation,
            _ if compiles => Work::EagerCompilation,
            Some(runs) => runs,
            None => Work::Unknown,
        }
    }
}

/// Whether a native function is the one with which Node deals with an exception that nobody caught, be it of a script, of
/// a callback or of a promise. It returns if a handler of the program's takes it, else it ends the process.
pub fn is_uncaught_exception(function: &str) -> bool {
    function.starts_with("node::errors::TriggerUncaughtException")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What frames do, the innermost first: C++ by name, of other kinds the kind.
    fn work(frames: &[&str]) -> Work {
        Work::of(frames.iter().map(|frame| match *frame {
            "js" => (FrameKind::JavaScript, "f", false),
            "wasm" => (FrameKind::WebAssembly, "f", false),
            "kernel" => (FrameKind::Kernel, "do_fault", false),
            function => (FrameKind::Native, function, false),
        }))
    }

    #[test]
    fn webassembly_and_what_compiles_it_are_told_apart_from_javascript() {
        let optimizer = "v8::internal::compiler::Pipeline::Run";
        let unit =
            "v8::internal::wasm::WasmCompilationUnit::ExecuteCompilation(v8::internal::Counters*)";
        assert_eq!(work(&["wasm", "js"]), Work::WebAssembly);
        assert_eq!(work(&["kernel", "wasm", "js"]), Work::Kernel);
        assert_eq!(work(&["js", "wasm"]), Work::JavaScript);
        assert_eq!(work(&[optimizer, unit]), Work::WebAssemblyCompilation);
        assert_eq!(
            work(&["kernel", "memset", unit, "wasm"]),
            Work::WebAssemblyCompilation
        );
        assert_eq!(
            work(&[optimizer, "v8::internal::Runtime_CompileOptimized", "js"]),
            Work::OptimizingCompilation
        );
        assert_eq!(work(&[optimizer, "js", unit]), Work::OptimizingCompilation);
        assert_eq!(
            work(&[
                "v8::internal::wasm::memory_fill_wrapper(unsigned long)",
                "wasm"
            ]),
            Work::Native
        );
        assert_eq!(
            work(&["v8::internal::Heap::CollectGarbage", unit]),
            Work::GarbageCollection
        );
        let lookup = "v8::internal::wasm::WasmCodeManager::LookupCode(unsigned long) const";
        let walk = "v8::internal::StackFrameIterator::Advance()";
        assert_eq!(work(&[lookup, walk, "js"]), Work::Native);
        assert_eq!(work(&[lookup, unit]), Work::WebAssemblyCompilation);
    }
}
