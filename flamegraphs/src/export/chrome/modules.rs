//! The loading of modules as slices.

use std::collections::BTreeMap;

use nodeprof_profile::modules::{Module, Modules};
use nodeprof_profile::recording::Nanoseconds;

use super::Tracks;
use super::slices::{Slice, Told};
use crate::paths::printable;

/// By index of [`Modules::threads`].
pub(super) fn slices(tracks: &Tracks<'_>, modules: &Modules) -> BTreeMap<usize, Vec<Slice>> {
    let mut by_thread: BTreeMap<usize, Vec<Slice>> = BTreeMap::new();
    for module in &modules.list {
        let of = modules.threads[module.unit];
        if tracks.selected.has_thread(of.0, of.1)
            && let Some(slice) = slice(tracks, modules, module)
        {
            by_thread.entry(module.unit).or_default().push(slice);
        }
    }
    by_thread
}

fn slice(tracks: &Tracks<'_>, modules: &Modules, module: &Module) -> Option<Slice> {
    let (start, end) = span(module)?;
    let (start, end) = tracks.clip(start, end)?;
    let package = modules.packages.get(module.package);
    let package = package.map(|package| &package.identity);
    let requirer = module.requirer.map(|id| &modules.list[id.0 as usize]);
    let us = |ns: u64| Some(ns as f64 / 1e3);
    let told = Told::new(path(modules, module), "module")
        .set("package", package.and_then(|known| known.name.clone()))
        .set("version", package.and_then(|known| known.version.clone()))
        .set("required by", requirer.map(|of| path(modules, of)))
        .set("resolve_us", us(module.resolve_ns))
        .set("read_us", us(module.read_ns))
        .set("compile_us", us(module.compile_ns))
        .set("execute_us", us(module.execute_ns))
        .set("total_us", us(module.total_ns))
        .set("uncertain_us", us(module.uncertain_ns))
        .set("crossings", Some(module.caused.crossings));
    Some(Slice::new(start, end, told))
}

/// From the first thing done to load it to the last moment in which its body is known to have run; if that was never seen, for as long as it
/// took itself, since all of that comes after its start.
fn span(module: &Module) -> Option<(Nanoseconds, Nanoseconds)> {
    let start = module.start.or(module.execute_start)?;
    let own = || Nanoseconds(start.0.saturating_add(module.self_ns()));
    let end = (module.end_earliest.or(module.end_latest)).unwrap_or_else(own);
    Some((start, end.max(start)))
}

fn path(modules: &Modules, module: &Module) -> String {
    let script = modules.script(module);
    let path = [script.path.as_slice(), &script.suffix].concat();
    printable(&String::from_utf8_lossy(&path)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ES module that does nothing but import others, say.
    #[test]
    fn a_module_whose_body_was_not_seen_running_has_its_own_time() {
        let module = Module {
            start: Some(Nanoseconds(100)),
            resolve_ns: 20,
            compile_ns: 10,
            ..Module::default()
        };
        let of = |module: &Module| span(module).map(|(start, end)| (start.0, end.0));
        assert_eq!(of(&module), Some((100, 130)));
        let ended = Module {
            end_latest: Some(Nanoseconds(150)),
            ..module
        };
        assert_eq!(of(&ended), Some((100, 150)));
        assert_eq!(of(&Module::default()), None);
    }
}
