//! Which function of WebAssembly lies where: V8 has no closures for its frames, only code.

use rustc_hash::FxHashMap as HashMap;
use std::{cell::OnceCell, collections::HashSet, ops::Range};

use nodeprof_bpf::WasmEvent;

use super::{positions::extend, symbols::History};

/// A module, of which several instances may be made.
#[derive(Default)]
struct Module {
    /// What its section `name` tells of functions.
    names: Vec<u8>,
    /// Where in that the name of each function is.
    places: OnceCell<HashMap<u32, Range<usize>>>,
    /// Number of the script that V8 has made of it.
    script: Option<u32>,
}

impl Module {
    fn name(&self, function: u32) -> Option<&[u8]> {
        let places = self.places.get_or_init(|| places(&self.names));
        let name = self.names.get(places.get(&function)?.clone())?;
        (!name.is_empty()).then_some(name)
    }
}

/// A function that some code is of.
#[derive(Debug, PartialEq, Eq)]
pub struct Function<'a> {
    /// Its number, imported functions first, as WebAssembly counts them.
    pub number: u32,
    /// Its name, if the module has any.
    pub name: Option<&'a [u8]>,
    /// Number of its module's script, if it came.
    pub script: Option<u32>,
}

/// All WebAssembly that was compiled.
#[derive(Default)]
pub struct Wasm {
    modules: Vec<Module>,
    /// The one that is there now, by process and where V8 keeps it.
    now: HashMap<(u32, u64), u32>,
    /// Numbers of the scripts of all.
    scripts: HashSet<u32>,
    /// By process: module and function.
    code: HashMap<u32, History<(u32, u32)>>,
}

impl Wasm {
    /// Takes what is told of the module that V8 keeps there.
    pub fn take(&mut self, (pid, module): (u32, u64), at: u64, event: WasmEvent) {
        let known = self.now.get(&(pid, module)).copied();
        // One that is compiled while it is read has bytes only once it was read: it is told twice.
        let is_new = match (&event, known) {
            (_, None) => true,
            (WasmEvent::Module, Some(known)) => {
                let known = self.modules.get(known as usize);
                known.is_some_and(|m| m.script.is_some() || !m.names.is_empty())
            }
            _ => false,
        };
        let number = match known {
            Some(known) if !is_new => known,
            _ => {
                let number = self.modules.len() as u32;
                self.modules.push(Module::default());
                self.now.insert((pid, module), number);
                number
            }
        };
        let Some(of) = self.modules.get_mut(number as usize) else {
            return;
        };
        match event {
            WasmEvent::Module => {}
            WasmEvent::Code {
                function,
                start,
                size,
            } => {
                let range = (start, start.saturating_add(size));
                let code = self.code.entry(pid).or_default();
                code.change(at, range, (number, function));
            }
            WasmEvent::Names(piece) => {
                of.places = OnceCell::new();
                extend(&mut of.names, &piece);
            }
            WasmEvent::Script { script } => {
                of.script.get_or_insert(script);
                self.scripts.insert(script);
            }
        }
    }

    /// Whether V8 has made the script of a module.
    pub fn is_script(&self, script: u32) -> bool {
        self.scripts.contains(&script)
    }

    /// The function whose code lay at the address.
    pub fn function(&self, pid: u32, address: u64, at: u64) -> Option<Function<'_>> {
        let (module, number) = self.code.get(&pid)?.find(address, at)?;
        let module = self.modules.get(module as usize)?;
        Some(Function {
            number,
            name: module.name(number),
            script: module.script,
        })
    }
}

/// An unsigned number in groups of seven bits, the lowest first.
fn number(bytes: &[u8], at: &mut usize) -> Option<u32> {
    let mut number = 0;
    for group in 0..5 {
        let byte = *bytes.get(*at)?;
        *at += 1;
        number |= u64::from(byte & 127) << (7 * group);
        if byte & 128 == 0 {
            return u32::try_from(number).ok();
        }
    }
    None
}

/// Where each function's name is, as far as the text goes: how many there are, then of each its number, the length of its name, and that.
fn places(names: &[u8]) -> HashMap<u32, Range<usize>> {
    let mut places = HashMap::default();
    let mut at = 0;
    if number(names, &mut at).is_none() {
        return places;
    }
    while let Some((function, name)) = place(names, at) {
        at = name.end;
        places.insert(function, name);
    }
    places
}

fn place(names: &[u8], mut at: usize) -> Option<(u32, Range<usize>)> {
    let function = number(names, &mut at)?;
    let length = number(names, &mut at)? as usize;
    let name = at..at.checked_add(length)?;
    (name.end <= names.len()).then_some((function, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeprof_bpf::Piece;

    const MODULE: (u32, u64) = (1, 0x1000);

    fn names(names: &[(u8, &str)]) -> Piece {
        let mut bytes = vec![names.len() as u8];
        for (function, name) in names {
            bytes.extend([*function, name.len() as u8]);
            bytes.extend(name.as_bytes());
        }
        Piece {
            offset: 0,
            whole: bytes.len() as u64,
            bytes,
        }
    }

    fn code(function: u32, start: u64) -> WasmEvent {
        let size = 0x100;
        WasmEvent::Code {
            function,
            start,
            size,
        }
    }

    /// Number, name and script of the function there.
    fn at(wasm: &Wasm, address: u64, at: u64) -> Option<(u32, String, Option<u32>)> {
        let function = wasm.function(1, address, at)?;
        let name = String::from_utf8_lossy(function.name.unwrap_or_default()).into_owned();
        Some((function.number, name, function.script))
    }

    #[test]
    fn code_has_the_function_that_it_was_made_of() {
        let mut wasm = Wasm::default();
        wasm.take(MODULE, 1, WasmEvent::Module);
        wasm.take(MODULE, 1, WasmEvent::Names(names(&[(2, "spin"), (3, "")])));
        wasm.take(MODULE, 2, code(2, 0x5000));
        wasm.take(MODULE, 2, code(3, 0x5100));
        wasm.take(MODULE, 3, WasmEvent::Script { script: 9 });
        assert_eq!(at(&wasm, 0x5000, 2), Some((2, "spin".into(), Some(9))));
        assert_eq!(at(&wasm, 0x50ff, 5), Some((2, "spin".into(), Some(9))));
        assert_eq!(at(&wasm, 0x5100, 5), Some((3, String::new(), Some(9))));
        assert_eq!(at(&wasm, 0x5200, 5), None);
        assert_eq!(at(&wasm, 0x5000, 1), None);
        assert_eq!(wasm.function(2, 0x5000, 5), None);
        // It is compiled once more, by the compiler that optimises.
        wasm.take(MODULE, 6, code(2, 0x6000));
        assert_eq!(at(&wasm, 0x6080, 6), Some((2, "spin".into(), Some(9))));
    }

    #[test]
    fn another_module_in_the_place_of_one_has_its_own_names() {
        let mut wasm = Wasm::default();
        wasm.take(MODULE, 1, WasmEvent::Module);
        wasm.take(MODULE, 1, WasmEvent::Names(names(&[(0, "first")])));
        wasm.take(MODULE, 2, code(0, 0x5000));
        wasm.take(MODULE, 3, WasmEvent::Module);
        wasm.take(MODULE, 4, code(0, 0x5000));
        assert_eq!(at(&wasm, 0x5000, 3), Some((0, "first".into(), None)));
        assert_eq!(at(&wasm, 0x5000, 4), Some((0, String::new(), None)));
    }

    #[test]
    fn a_module_that_is_compiled_while_it_is_read_has_the_names_that_come_later() {
        let mut wasm = Wasm::default();
        wasm.take(MODULE, 1, WasmEvent::Module);
        wasm.take(MODULE, 2, code(0, 0x5000));
        wasm.take(MODULE, 3, WasmEvent::Module);
        wasm.take(MODULE, 3, WasmEvent::Names(names(&[(0, "late")])));
        assert_eq!(at(&wasm, 0x5000, 2), Some((0, "late".into(), None)));
    }

    #[test]
    fn names_that_are_cut_or_lie_are_read_as_far_as_they_go() {
        let all = names(&[(0, "zero"), (1, "one"), (200, "many")]).bytes;
        for length in 0..all.len() {
            let found = places(&all[..length]);
            for (function, name) in &found {
                assert!(*function < 2 && name.end <= length, "{length}: {found:?}");
            }
        }
        assert_eq!(places(&[1, 0, 0xff, 0xff, 0xff, 0xff, 0x0f]).len(), 0);
        assert_eq!(places(&[0xff; 64]).len(), 0);
    }
}
