//! What modules and packages are called.

use std::borrow::Cow;

use nodeprof_profile::modules::ModuleKind;
use nodeprof_profile::modules::package::PackageKind;
use nodeprof_profile::report::{ModuleProfile, PackageProfile};

use crate::paths::{printable, seen_from};

/// `express/lib/router.js`: from the name of its package on; else from `base`.
pub(super) fn module_name(module: &ModuleProfile, base: &str) -> String {
    let query = module.query.as_deref().unwrap_or_default();
    let name = match inside_node_modules(module) {
        Some(inside) => printable(inside).into_owned(),
        None => seen_from(&module.path, base),
    };
    name + &printable(query)
}

/// The path of a module of an installed package from behind its `node_modules/`.
fn inside_node_modules(module: &ModuleProfile) -> Option<&str> {
    const MARK: &str = "/node_modules/";
    let directory = module.package_directory.as_deref()?;
    let at = directory.rfind(MARK)? + MARK.len();
    module
        .path
        .starts_with(directory)
        .then(|| &module.path[at..])
}

/// `express 4.18.2`, `the application`, `node 20.20.2`.
pub(super) fn package_name(package: &PackageProfile, base: &str) -> String {
    let name = match (&package.name, &package.directory) {
        (Some(name), _) => printable(name),
        (None, Some(directory)) => Cow::Owned(seen_from(directory, base)),
        (None, None) => Cow::Borrowed("(no package)"),
    };
    let version = package.version.as_deref().map(printable);
    let version = version.map_or(String::new(), |version| format!(" {version}"));
    let application = match package.kind {
        PackageKind::Application if package.name.is_some() => " (the application)",
        _ => "",
    };
    format!("{name}{version}{application}")
}

/// Package and version of a module, where its name does not tell them.
pub(super) fn version_of(module: &ModuleProfile) -> String {
    match module.kind {
        ModuleKind::Builtin => String::new(),
        _ => module
            .package_version
            .as_deref()
            .map(|version| printable(version).into_owned())
            .unwrap_or_default(),
    }
}

/// `  (process 12)`, `  (thread 13 of process 12)`: which loaded a module; of a single process `  (main thread)`, `  (thread 13)`, which
/// leave more room for the module's name.
pub(super) fn thread_name(module: &ModuleProfile, several_processes: bool) -> String {
    match (module.pid == module.thread, several_processes) {
        (true, true) => format!("  (process {})", module.pid),
        (true, false) => "  (main thread)".to_owned(),
        (false, true) => format!("  (thread {} of process {})", module.thread, module.pid),
        (false, false) => format!("  (thread {})", module.thread),
    }
}

/// Whether modules are of more than one process.
pub(super) fn of_several_processes(mut pids: impl Iterator<Item = u32>) -> bool {
    let first = pids.next();
    pids.any(|pid| Some(pid) != first)
}

/// Empty for what most are.
pub(super) fn kind_name(kind: ModuleKind) -> &'static str {
    match kind {
        ModuleKind::CommonJs | ModuleKind::Builtin => "",
        ModuleKind::EsModule => "ES",
        ModuleKind::Json => "JSON",
        ModuleKind::AddOn => "add-on",
        ModuleKind::Wasm => "wasm",
        ModuleKind::Script => "script",
        ModuleKind::Unknown => "?",
    }
}

/// `12 CommonJS, 3 ES, 2 JSON`: what the program loaded.
pub(super) fn kinds<'a>(modules: impl Iterator<Item = &'a ModuleProfile>) -> String {
    let names = [
        (ModuleKind::CommonJs, "CommonJS"),
        (ModuleKind::EsModule, "ES"),
        (ModuleKind::Json, "JSON"),
        (ModuleKind::AddOn, "add-on"),
        (ModuleKind::Wasm, "WebAssembly"),
        (ModuleKind::Script, "script"),
        (ModuleKind::Unknown, "not seen loading"),
    ];
    let mut counts = [0u64; 7];
    for module in modules {
        if let Some(at) = names.iter().position(|(kind, _)| *kind == module.kind) {
            counts[at] += 1;
        }
    }
    let list: Vec<String> = names
        .iter()
        .zip(counts)
        .filter(|(_, count)| *count > 0)
        .map(|((_, name), count)| format!("{} {name}", crate::units::number(count)))
        .collect();
    list.join(", ")
}
