//! What the names of scripts mean.
//!
//! V8 names a CommonJS module by its path, an ES module by its URL, Node's own modules `node:…` and code without a file
//! as whoever compiled it likes. Here a path and its `file://` URL are one script.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::fast::Map;
use crate::recording::{CompilationUnit, FrameKind, NameId, Recording};

/// Index into [`Scripts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScriptId(pub u32);

/// What a script is to the loading of modules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptClass {
    /// The program's own, or a package's.
    User,
    /// Node's own module, by what it does.
    Builtin(BuiltinClass),
}

/// What one of Node's own modules does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuiltinClass {
    /// `require` as modules get it: whoever calls it wants a module.
    RequireFunction,
    /// The CommonJS loader: finds, reads and compiles a module for the function that called it.
    CommonJsLoader,
    /// The loader of ES modules: fetches what imports ask for, one step after the other.
    EsModuleLoader,
    /// Its step that finds a module's file.
    EsModuleFinder,
    /// Its step that reads it.
    EsModuleReader,
    /// Its step that makes a module of what was read: strips types, parses JSON, compiles.
    EsModuleTranslator,
    /// `import.meta`: its `resolve` finds a file without loading it.
    EsModuleMeta,
    /// The reader of package.json: looks for the nearest one of each module, whoever wants that.
    PackageReader,
    /// Everything else that takes part in loading.
    OtherLoader,
    /// Loads Node's own modules.
    BuiltinLoader,
    /// `fs` and what it uses: does what its caller wants.
    FileSystem,
    /// `vm`: compiles what its caller wants.
    Vm,
    /// Any other.
    Other,
}

/// A script, known by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Path of its file, or the name as it is where there is no file.
    pub path: Vec<u8>,
    /// Query and fragment of an ES module's URL, from the `?` or `#` on: they make instances of their own.
    pub suffix: Vec<u8>,
    /// What it is.
    pub class: ScriptClass,
}

impl Script {
    /// Of the script that V8 gives this name.
    pub fn of(name: &[u8]) -> Script {
        let (path, suffix) = match file_url(name) {
            Some((path, suffix)) => (path.into_owned(), suffix.to_vec()),
            None => (name.to_vec(), Vec::new()),
        };
        let builtin = builtin_name(&path);
        let (builtin, suffix) = match builtin.map(split_url) {
            Some((builtin, query)) if !query.is_empty() => (Some(builtin), query.to_vec()),
            Some((builtin, _)) => (Some(builtin), suffix),
            None => (None, suffix),
        };
        let class = builtin.map_or(ScriptClass::User, |name| {
            ScriptClass::Builtin(BuiltinClass::of(name))
        });
        let path = match builtin {
            Some(name) => [b"node:", name].concat(),
            None => path,
        };
        Script {
            path,
            suffix,
            class,
        }
    }

    /// Whether it is one of Node's own modules.
    pub fn is_builtin(&self) -> bool {
        matches!(self.class, ScriptClass::Builtin(_))
    }

    /// What its name says that it holds: the extension of a file, the subtype of the type of a `data:` URL.
    pub fn form(&self) -> &[u8] {
        match self.path.strip_prefix(b"data:") {
            Some(rest) => {
                let end = rest.iter().position(|&byte| byte == b';' || byte == b',');
                let media = &rest[..end.unwrap_or(rest.len())];
                let slash = media.iter().position(|&byte| byte == b'/');
                slash.map_or(&[][..], |slash| &media[slash + 1..])
            }
            None => {
                let dot = self.path.iter().rposition(|&byte| byte == b'.');
                dot.map_or(&[][..], |dot| &self.path[dot + 1..])
            }
        }
    }

    /// Whether it is one of Node's own modules that programs cannot load by name.
    pub fn is_internal(&self) -> bool {
        self.path.starts_with(b"node:internal/")
    }
}

impl BuiltinClass {
    /// Whether it takes part in loading modules of programs.
    pub fn is_loader(self) -> bool {
        self.is_es_loader()
            || matches!(
                self,
                BuiltinClass::RequireFunction
                    | BuiltinClass::CommonJsLoader
                    | BuiltinClass::PackageReader
                    | BuiltinClass::OtherLoader
            )
    }

    /// Whether it belongs to the loader of ES modules.
    pub fn is_es_loader(self) -> bool {
        matches!(
            self,
            BuiltinClass::EsModuleLoader
                | BuiltinClass::EsModuleFinder
                | BuiltinClass::EsModuleReader
                | BuiltinClass::EsModuleTranslator
                | BuiltinClass::EsModuleMeta
        )
    }

    /// Of a module without its `node:`.
    fn of(name: &[u8]) -> BuiltinClass {
        match name {
            // Up to 18 and from 19 on.
            b"internal/modules/cjs/helpers" | b"internal/modules/helpers" => {
                BuiltinClass::RequireFunction
            }
            b"internal/modules/cjs/loader" => BuiltinClass::CommonJsLoader,
            // The main scripts of applications that have node in them, and of start-up snapshots.
            b"internal/main/embedding"
            | b"internal/util/embedding"
            | b"internal/main/mksnapshot" => BuiltinClass::CommonJsLoader,
            b"internal/modules/package_json_reader" => BuiltinClass::PackageReader,
            b"internal/bootstrap/loaders" | b"internal/bootstrap/realm" => {
                BuiltinClass::BuiltinLoader
            }
            b"internal/process/esm_loader" => BuiltinClass::EsModuleLoader,
            b"fs" | b"path" | b"buffer" | b"url" | b"internal/url" | b"internal/fs/utils" => {
                BuiltinClass::FileSystem
            }
            b"vm" | b"internal/vm" | b"internal/vm/module" => BuiltinClass::Vm,
            b"internal/modules/esm/resolve" => BuiltinClass::EsModuleFinder,
            b"internal/modules/esm/load"
            | b"internal/modules/esm/get_format"
            | b"internal/modules/esm/get_source" => BuiltinClass::EsModuleReader,
            b"internal/modules/esm/translators" => BuiltinClass::EsModuleTranslator,
            b"internal/modules/esm/initialize_import_meta" => BuiltinClass::EsModuleMeta,
            _ if name.starts_with(b"internal/modules/esm/") => BuiltinClass::EsModuleLoader,
            _ if name.starts_with(b"internal/modules/") => BuiltinClass::OtherLoader,
            _ if name.starts_with(b"internal/fs/") => BuiltinClass::FileSystem,
            _ => BuiltinClass::Other,
        }
    }
}

/// The name of one of Node's own modules without its `node:`.
fn builtin_name(name: &[u8]) -> Option<&[u8]> {
    if let Some(name) = name.strip_prefix(b"node:") {
        return Some(name);
    }
    // Some have no prefix in Node 16. A script of a program has a path or a URL.
    name.starts_with(b"internal/").then_some(name)
}

/// Path and suffix of a `file://` URL.
fn file_url(name: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    let rest = name.strip_prefix(b"file://")?;
    // A host is not possible on this system, but for localhost, which Node takes for none.
    let rest = rest.strip_prefix(b"localhost").unwrap_or(rest);
    if !rest.starts_with(b"/") {
        return None;
    }
    let (path, suffix) = split_url(rest);
    Some((percent_decoded(path), suffix))
}

/// What is before the query and fragment of a URL, and these.
fn split_url(url: &[u8]) -> (&[u8], &[u8]) {
    let end = url.iter().position(|&byte| byte == b'?' || byte == b'#');
    url.split_at(end.unwrap_or(url.len()))
}

fn percent_decoded(path: &[u8]) -> Cow<'_, [u8]> {
    if !path.contains(&b'%') {
        return Cow::Borrowed(path);
    }
    let digit = |byte: Option<&u8>| (*byte? as char).to_digit(16);
    let mut decoded = Vec::with_capacity(path.len());
    let mut at = 0;
    while let Some(&byte) = path.get(at) {
        match (byte, digit(path.get(at + 1)), digit(path.get(at + 2))) {
            (b'%', Some(high), Some(low)) => {
                decoded.push((high * 16 + low) as u8);
                at += 3;
            }
            _ => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    Cow::Owned(decoded)
}

/// The scripts of a recording, each once.
#[derive(Debug, Default)]
pub struct Scripts {
    list: Vec<Script>,
    by_key: HashMap<Vec<u8>, ScriptId>,
    by_file: HashMap<Vec<u8>, Vec<ScriptId>>,
    by_name: Map<NameId, Option<ScriptId>>,
}

impl Scripts {
    /// Of a recording, whose names without a file may be those of several scripts at once.
    pub fn new(recording: &Recording) -> Scripts {
        let mut scripts = Scripts::default();
        let shared = shared_names(recording);
        scripts
            .by_name
            .extend(shared.into_iter().map(|name| (name, None)));
        scripts
    }

    /// The script that V8 gives this name; `None` for code without a name of its own, such as `eval`, WebAssembly and what Node
    /// puts around `node -e`: that belongs to the script that called it.
    pub fn named(&mut self, recording: &Recording, name: NameId) -> Option<ScriptId> {
        if let Some(known) = self.by_name.get(&name) {
            return *known;
        }
        let text = recording.name(name);
        let id = match text {
            [] => None,
            _ if text.starts_with(b"wasm://") || is_wrapper(text) => None,
            _ => Some(self.add(Script::of(text))),
        };
        self.by_name.insert(name, id);
        id
    }

    /// The script of a name, if it was met before.
    pub fn known(&self, name: NameId) -> Option<ScriptId> {
        self.by_name.get(&name).copied().flatten()
    }

    /// The scripts of a file: an ES module may be there several times, with different queries.
    pub fn of_file(&self, path: &[u8]) -> &[ScriptId] {
        self.by_file
            .get(path)
            .map(Vec::as_slice)
            .unwrap_or_default()
    }

    /// A script, made known.
    pub fn add(&mut self, script: Script) -> ScriptId {
        let key = [script.path.as_slice(), &script.suffix].concat();
        let Scripts {
            list,
            by_key,
            by_file,
            ..
        } = self;
        *by_key.entry(key).or_insert_with(|| {
            let id = ScriptId(list.len() as u32);
            by_file.entry(script.path.clone()).or_default().push(id);
            list.push(script);
            id
        })
    }

    /// A script of this list.
    pub fn get(&self, id: ScriptId) -> &Script {
        &self.list[id.0 as usize]
    }
}

/// Names without a file under which functions of several scripts compiled code in one thread: `vm` has such a name for
/// all that is given none. On a stack they do not tell whose code it is.
fn shared_names(recording: &Recording) -> Vec<NameId> {
    let mut compiled_by: Map<_, NameId> = Map::default();
    let mut shared = Vec::new();
    for compilation in &recording.compilations {
        let name = compilation.path;
        let is_loose = matches!(
            compilation.unit,
            CompilationUnit::Script | CompilationUnit::Function
        );
        if !is_loose || has_file(recording.name(name)) {
            continue;
        }
        let mut frames = compilation
            .stack
            .into_iter()
            .flat_map(|stack| recording.frames_of(stack));
        // What it compiles itself is of who compiled it.
        let owner = frames.find_map(|frame| {
            let file = frame.file.filter(|_| frame.kind == FrameKind::JavaScript)?;
            let text = recording.name(file);
            let is_own = file != name && !text.is_empty() && builtin_name(text).is_none();
            is_own.then_some(file)
        });
        let Some(owner) = owner else {
            continue;
        };
        let of_thread = (compilation.process, compilation.thread, name);
        if *compiled_by.entry(of_thread).or_insert(owner) != owner {
            shared.push(name);
        }
    }
    shared
}

/// Whether it is the module that Node makes around code without a file: `[eval]-wrapper`, `[stdin]-wrapper`.
fn is_wrapper(name: &[u8]) -> bool {
    name.starts_with(b"[") && name.ends_with(b"]-wrapper")
}

/// Whether a script's name is a path or a URL of one.
fn has_file(name: &[u8]) -> bool {
    name.starts_with(b"/") || file_url(name).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_and_its_url_are_one_script() {
        let mut scripts = Scripts::default();
        let mut id = |name: &[u8]| scripts.add(Script::of(name));
        let path = id(b"/app/a b.mjs");
        assert_eq!(id(b"file:///app/a%20b.mjs"), path);
        assert_eq!(id(b"file://localhost/app/a b.mjs"), path);
        assert_ne!(id(b"file:///app/a%20b.mjs?v=1"), path);
        assert_ne!(
            id(b"file:///app/a%20b.mjs?v=1"),
            id(b"file:///app/a%20b.mjs#v=1")
        );
    }

    #[test]
    fn query_and_fragment_are_apart_from_the_path() {
        let script = Script::of(b"file:///app/a%3Fb.mjs?x=%20#y");
        assert_eq!(script.path, b"/app/a?b.mjs");
        assert_eq!(script.suffix, b"?x=%20#y");
        // In a path they are characters as any other.
        assert_eq!(Script::of(b"/app/a?b.js").suffix, b"");
        assert_eq!(Script::of(b"file:///app/100%.mjs").path, b"/app/100%.mjs");
    }

    #[test]
    fn nodes_own_modules_are_told_by_name() {
        assert!(Script::of(b"node:fs").is_builtin());
        assert!(!Script::of(b"node:fs").is_internal());
        assert!(Script::of(b"node:internal/util").is_internal());
        assert_eq!(
            Script::of(b"internal/util"),
            Script::of(b"node:internal/util")
        );
        // As hooks name what they put around one (import-in-the-middle).
        let wrapped = Script::of(b"node:path?iitm=true");
        assert!(wrapped.is_builtin());
        assert_eq!(wrapped.path, b"node:path");
        assert_eq!(wrapped.suffix, b"?iitm=true");
        for name in [
            &b"/app/internal/a.js"[..],
            b"[eval]",
            b"evalmachine.<anonymous>",
            b"data:text/javascript,1",
        ] {
            assert!(!Script::of(name).is_builtin());
        }
    }

    #[test]
    fn what_a_script_holds_its_name_says() {
        for (name, form) in [
            (&b"/app/a.b/data.json"[..], &b"json"[..]),
            (b"file:///app/a.wasm?x=.json", b"wasm"),
            (b"data:application/json,{\"a\":\"b.mjs\"}", b"json"),
            (b"data:application/wasm;base64,AGFzbQEAAAA=", b"wasm"),
            (b"data:text/javascript,import './a.cjs'", b"javascript"),
            (b"data:,a.json", b""),
            (b"[eval]", b""),
        ] {
            assert_eq!(Script::of(name).form(), form);
        }
    }

    #[test]
    fn what_node_puts_around_code_without_a_file_is_no_script() {
        let mut recording = Recording::default();
        let names: [&[u8]; 4] = [
            b"[eval]",
            b"[eval]-wrapper",
            b"[stdin]-wrapper",
            b"/app/[eval]-wrapper",
        ];
        recording.names = names.map(<[u8]>::to_vec).into();
        let mut scripts = Scripts::new(&recording);
        let is_script = (0..4).map(|name| scripts.named(&recording, NameId(name)).is_some());
        assert_eq!(is_script.collect::<Vec<_>>(), [true, false, false, true]);
    }
}
