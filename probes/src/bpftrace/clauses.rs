//! One clause a probe (or a list of probes that do the same).

use std::fmt::Write as _;

use super::Group;
use crate::callsites::{self, EntryValue, Holder};
use crate::elf::{Binary, Function};
use crate::names;
use crate::plan::{
    AttachPlan, CallKind, CallbackSort, CompileUnit, Family, PathSource, Probe, ProbeState,
    Register, Role, SizeSource,
};
use crate::resolve;

/// The longest text that bpftrace keeps with `BPFTRACE_STRLEN=200`, the most that 0.17 takes.
pub(super) const LONGEST_TEXT: usize = 199;

/// `(isolate, is_construct, …)`: for a construction it calls `HandleApiCallHelper<true>`, which has a probe of its own.
const ALSO_CONSTRUCTS: &str =
    "v8::internal::Builtins::InvokeApiFunction(v8::internal::Isolate*, bool,";

/// The program as it grows.
pub(super) struct Clauses<'p, 'd> {
    plan: &'p AttachPlan,
    binary: &'p Binary<'d>,
    path: &'p str,
    out: String,
    begin: String,
    /// Maps that are no result: cleared at the end, so that they are not printed.
    helpers: Vec<&'static str>,
    /// Spans so far.
    spans: usize,
    /// Perf events, entries and returns.
    pub(super) probes: usize,
    /// What the plan has and the program has not, with the reason.
    pub(super) left_out: Vec<String>,
}

impl<'p, 'd> Clauses<'p, 'd> {
    pub(super) fn new(plan: &'p AttachPlan, binary: &'p Binary<'d>, path: &'p str) -> Self {
        Self {
            plan,
            binary,
            path,
            out: String::new(),
            begin: String::new(),
            helpers: Vec::new(),
            spans: 0,
            probes: 0,
            left_out: Vec::new(),
        }
    }

    /// The clauses of one of `all` the groups asked for.
    pub(super) fn add(&mut self, group: Group, all: &[Group]) {
        let plan = self.plan;
        let of = |family: Family| plan.probes.iter().filter(move |p| p.family == family);
        match group {
            Group::Phases => {
                self.title("Phases: printed as they happen.");
                for probe in self.attachable(of(Family::Phases)) {
                    self.phase(probe);
                }
            }
            Group::Crossings => {
                self.title("JavaScript calls C++ (slow, getter, construct), and C++ calls JavaScript (to_js).");
                let announce = all.contains(&Group::Accessors);
                let callers: Vec<&Probe> = of(Family::Crossings)
                    .filter(|p| {
                        matches!(
                            p.role,
                            Role::CallEnter { .. } | Role::CallMark { .. } | Role::ToJs
                        )
                    })
                    .collect();
                for probe in self.attachable(callers.into_iter()) {
                    self.crossing(probe, announce);
                }
            }
            Group::FastCalls => self.fast_calls(),
            Group::Accessors => self.accessors(all.contains(&Group::Crossings)),
            Group::Callbacks => self.callbacks(),
            Group::PackageJson => {
                self.title(
                    "package.json: Node asks its reader, which may know the answer already.",
                );
                for probe in self.attachable(of(Family::PackageJson)) {
                    self.lookup(probe);
                }
            }
            Group::Serialization => {
                self.title("Serialization: values that C++ makes for JavaScript, or reads; bytes where an argument tells.");
                for probe in self.attachable(of(Family::Serialization)) {
                    self.serialization(probe);
                }
            }
            Group::Compile => {
                self.title("Compilations. A function or module compiled inside of a builtin's is the same one, seen from V8.");
                for probe in self.attachable(of(Family::Compile)) {
                    self.compilation(probe);
                }
            }
        }
    }

    /// All clauses, BEGIN first.
    pub(super) fn finished(self) -> String {
        let mut out = String::new();
        let _ = write!(
            out,
            "\nBEGIN\n{{\n{}  printf(\"counting; Ctrl-C ends it\\n\");\n}}\n",
            self.begin
        );
        out.push_str(&self.out);
        if !self.helpers.is_empty() {
            let clear: String = self
                .helpers
                .iter()
                .map(|map| format!("  clear({map});\n"))
                .collect();
            let _ = write!(out, "\nEND\n{{\n{clear}}}\n");
        }
        out
    }

    fn title(&mut self, text: &str) {
        let _ = write!(self.out, "\n// {text}\n");
    }

    fn helper(&mut self, map: &'static str) {
        if !self.helpers.contains(&map) {
            self.helpers.push(map);
        }
    }

    /// Those that can be attached; the others are left out with the reason, unless this version just has no such function.
    fn attachable(&mut self, probes: impl Iterator<Item = &'p Probe>) -> Vec<&'p Probe> {
        let mut attachable = Vec::new();
        for probe in probes {
            if probe.is_attachable() && self.function(probe).is_some() {
                attachable.push(probe);
            } else if probe.state != ProbeState::Absent {
                let reason = probe.reason.as_deref().unwrap_or("it has no symbol");
                self.left_out.push(format!("{}: {reason}", probe.symbol));
            }
        }
        attachable
    }

    fn function(&self, probe: &Probe) -> Option<Function<'d>> {
        self.binary.function_around(probe.address?.0).copied()
    }

    /// A clause for the entry (`uprobe`) or return (`uretprobe`) of the probe's function.
    fn clause(&mut self, kind: &str, probe: &Probe, condition: &str, body: &[String]) {
        let Some(function) = self.function(probe) else {
            return;
        };
        let point = self.point(kind, function.address);
        let name = names::demangle(function.name)
            // Of a comment nothing may come to stand on a line of its own: the program runs as root.
            .unwrap_or_else(|| names::shown(function.name));
        self.probes += 1;
        let condition = match condition {
            "" => String::new(),
            condition => format!("/{condition}/\n"),
        };
        let body: String = body.iter().map(|line| format!("  {line}\n")).collect();
        let _ = write!(self.out, "// {name}\n{point}\n{condition}{{\n{body}}}\n");
    }

    /// By address, for bpftrace 0.17 sorts all symbols of the file for each that it has to look up: 0.6 s of a processor a probe.
    fn point(&self, kind: &str, address: u64) -> String {
        format!("{kind}:{}:{address:#x}", self.path)
    }

    /// What a register of the role holds, as an expression at the function's entry.
    fn value(&self, probe: &Probe, holder: impl Into<Holder>) -> Option<String> {
        let holder = holder.into();
        let function = self.function(probe)?;
        let site = probe.address?.0;
        if site == function.address && holder.slot.is_none() {
            return Some(expression(&EntryValue {
                register: holder.register,
                loads: Vec::new(),
            }));
        }
        let never = |target| resolve::never_returns(self.binary, target);
        let code = self.binary.code(function.address);
        callsites::value_at_entry(code, function.address, site, holder, &never)
            .map(|value| expression(&value))
    }

    fn phase(&mut self, probe: &Probe) {
        match &probe.role {
            Role::Milestone { number, timestamp } => {
                let (Some(number), Some(timestamp)) =
                    (self.value(probe, *number), self.value(probe, *timestamp))
                else {
                    self.left_out.push(format!(
                        "{}: its arguments are not known at entry",
                        probe.symbol
                    ));
                    return;
                };
                for (number, name) in &self.plan.milestones {
                    let _ = writeln!(self.begin, "  @milestone[{number}] = \"{name}\";");
                }
                let (name, argument) = if self.plan.milestones.is_empty() {
                    ("milestone %-14u", "$number")
                } else {
                    ("%-24s", "@milestone[$number]")
                };
                self.helper("@milestone");
                self.helper("@environment");
                let show = |sign: &str, difference: &str| {
                    format!(
                        "printf(\"%d/%d  {name} {sign}%llu.%03llu ms after environment\\n\", pid, tid, {argument}, ({difference}) / 1000000, ({difference}) / 1000 % 1000);"
                    )
                };
                // The first milestone that a thread marks is `environment`. Times of Node's own, on CLOCK_MONOTONIC.
                let body = [
                    format!("$number = (uint32){number};"),
                    format!("$at = {timestamp};"),
                    "if (@environment[tid] == 0) { @environment[tid] = $at; }".to_owned(),
                    "$zero = @environment[tid];".to_owned(),
                    format!("if ($at < $zero) {{ {} }}", show("-", "$zero - $at")),
                    format!("else {{ {} }}", show("+", "$at - $zero")),
                ];
                self.clause("uprobe", probe, "", &body);
            }
            Role::Span { name } if probe.with_return => {
                self.helper("@entered");
                // A number for a key: a text beside `tid` misaligns the stack in bpftrace 0.17, and the verifier refuses it.
                self.spans += 1;
                let entered = format!("@entered[{}, tid]", self.spans);
                self.clause("uprobe", probe, "", &[format!("{entered} = nsecs;")]);
                let body = [
                    format!("$took = nsecs - {entered};"),
                    format!(
                        "printf(\"%d/%d  {name:<24}  %llu.%03llu ms long\\n\", pid, tid, $took / 1000000, $took / 1000 % 1000);"
                    ),
                    format!("delete({entered});"),
                ];
                self.clause("uretprobe", probe, &entered, &body);
            }
            Role::Span { name } => {
                let body = format!("printf(\"%d/%d  {name:<24}  begins\\n\", pid, tid);");
                self.clause("uprobe", probe, "", &[body]);
            }
            _ => {}
        }
    }

    fn crossing(&mut self, probe: &Probe, announce: bool) {
        let count = |kind: &str, callback: &str| {
            format!("@crossings[\"{kind}\"] = count(); @{kind}[{callback}] = count();")
        };
        match &probe.role {
            Role::ToJs => self.clause(
                "uprobe",
                probe,
                "",
                &["@crossings[\"to_js\"] = count();".to_owned()],
            ),
            // It stands in the function of the call itself.
            Role::CallMark { .. } => {}
            Role::CallEnter {
                kind,
                callback,
                slot,
            } => {
                let condition = if probe.symbol.starts_with(ALSO_CONSTRUCTS) {
                    "(reg(\"si\") & 255) == 0"
                } else {
                    ""
                };
                let holder = Holder {
                    register: *callback,
                    slot: *slot,
                };
                let Some(value) = self.value(probe, holder) else {
                    // An object that is called as a function: which one is not told at entry.
                    let body = "@crossings[\"slow\"] = count(); @objects_called = count();";
                    self.clause("uprobe", probe, condition, &[body.to_owned()]);
                    return;
                };
                let mut body = vec![format!("$callback = {value};")];
                let counted = match kind {
                    CallKind::Slow => count("slow", "usym($callback)"),
                    CallKind::Construct => count("construct", "usym($callback)"),
                    CallKind::Getter => {
                        if announce {
                            self.helper("@announced");
                            body.push("@announced[tid] = $callback;".to_owned());
                        }
                        count("getter", "usym($callback)")
                    }
                    CallKind::ByMark | CallKind::ByCaller => {
                        let construct = match (self.flag_of(probe), self.plan.constructor) {
                            (Some(flag), _) => format!("{flag} & 1"),
                            (None, Some(range)) if !self.plan.binary.pie => {
                                body.push("$from = *(uint64 *)reg(\"sp\");".to_owned());
                                format!(
                                    "$from >= {:#x} && $from < {:#x}",
                                    range.start.0, range.end.0
                                )
                            }
                            (None, _) => "0".to_owned(),
                        };
                        body.push(format!("$construct = {construct};"));
                        format!(
                            "if ($construct) {{ {} }}\n    else {{ {} }}",
                            count("construct", "usym($callback)"),
                            count("slow", "usym($callback)")
                        )
                    }
                };
                // Templates without a callback come here, too: there is nothing to call.
                body.push(format!("if ($callback != 0) {{\n    {counted}\n  }}"));
                self.clause("uprobe", probe, condition, &body);
            }
            _ => {}
        }
    }

    /// The flag that tells a construction, if the function of `probe` has it as an argument.
    fn flag_of(&self, probe: &Probe) -> Option<String> {
        let here = self.function(probe)?.address;
        self.plan.probes.iter().find_map(|mark| match mark.role {
            Role::CallMark { flag }
                if mark.is_attachable() && self.function(mark)?.address == here =>
            {
                self.value(mark, flag)
            }
            _ => None,
        })
    }

    /// One clause for the entries of all callbacks of a sort.
    fn entries(&mut self, sort: CallbackSort, body: &str) {
        let points: Vec<String> = self
            .plan
            .probes
            .iter()
            .filter(|probe| probe.is_attachable())
            .filter_map(|probe| match probe.role {
                Role::CallbackEntry { callback, .. }
                | Role::FastEntry { callback }
                | Role::PropertyEntry { callback, .. } => {
                    self.plan.callbacks.get(callback as usize)
                }
                _ => None,
            })
            .filter(|callback| callback.sort == sort)
            .map(|callback| self.point("uprobe", callback.address.0))
            .collect();
        if points.is_empty() {
            let _ = writeln!(self.out, "// This binary has none.");
            return;
        }
        self.probes += points.len();
        let _ = write!(self.out, "{}\n{{\n{body}}}\n", points.join(",\n"));
    }

    fn fast_calls(&mut self) {
        self.title("Fast API functions. One that C++ of node calls itself is no crossing.");
        let count = "@crossings[\"fast\"] = count(); @fast[usym(reg(\"ip\"))] = count();";
        if self.plan.binary.pie {
            self.entries(CallbackSort::Fast, &format!("  {count}\n"));
            return;
        }
        let (text, builtins) = (self.plan.text, self.plan.builtins);
        let body = format!(
            "  $from = *(uint64 *)reg(\"sp\");\n  \
             $cpp = $from >= {:#x} && $from < {:#x} && !($from >= {:#x} && $from < {:#x});\n  \
             if (!$cpp) {{ {count} }}\n",
            text.start.0, text.end.0, builtins.start.0, builtins.end.0
        );
        self.entries(CallbackSort::Fast, &body);
    }

    fn accessors(&mut self, with_crossings: bool) {
        self.title("Accessors and interceptors. Those that come through Builtins_CallApiGetter are counted there.");
        let count = "@crossings[\"getter\"] = count(); @getter[usym(reg(\"ip\"))] = count();";
        let body = if with_crossings {
            self.helper("@announced");
            format!(
                "  if (@announced[tid] == reg(\"ip\")) {{ delete(@announced[tid]); }}\n  else {{ {count} }}\n"
            )
        } else {
            format!("  {count}\n")
        };
        self.entries(CallbackSort::Property, &body);
    }

    fn callbacks(&mut self) {
        self.title("Every binding callback: what crossings counts where V8 calls, here where it arrives (slow and construct).");
        self.entries(
            CallbackSort::Function,
            "  @callback_entries = count(); @callback[usym(reg(\"ip\"))] = count();\n",
        );
    }

    fn lookup(&mut self, probe: &Probe) {
        let Role::Lookup { path } = &probe.role else {
            return;
        };
        let mut body = vec!["@package_json_lookups = count();".to_owned()];
        match self.text_of(probe, path) {
            Some(text) => {
                body.extend(text.before);
                body.push(format!("@package_json[{}] = count();", text.expression));
            }
            None => body
                .push("// The path is a string of V8 here, which bpftrace cannot read.".to_owned()),
        }
        self.clause("uprobe", probe, "", &body);
    }

    /// How to read a path, if it is not inside of V8's heap.
    fn text_of(&self, probe: &Probe, path: &PathSource) -> Option<Text> {
        match *path {
            PathSource::CString(pointer) => Some(Text {
                before: Vec::new(),
                expression: format!("str({})", self.value(probe, pointer)?),
            }),
            PathSource::StringView { length, pointer } => {
                let (length, pointer) = (self.value(probe, length)?, self.value(probe, pointer)?);
                Some(Text {
                    before: vec![
                        format!("$length = {length};"),
                        format!("$text = {pointer};"),
                        "// Not NUL-terminated. Of a longer one the end is kept.".to_owned(),
                        format!(
                            "if ($length > {LONGEST_TEXT}) {{ $text = $text + $length - {LONGEST_TEXT}; $length = {LONGEST_TEXT}; }}"
                        ),
                    ],
                    expression: "str($text, $length)".to_owned(),
                })
            }
            _ => None,
        }
    }

    fn serialization(&mut self, probe: &Probe) {
        let Role::Serialization { function, size } = &probe.role else {
            return;
        };
        let mut body = vec![format!("@serialization[\"{function}\"] = count();")];
        let bytes = match size {
            SizeSource::LengthArgument(register) => self
                .value(probe, *register)
                .map(|value| format!("(int32){value}")),
            SizeSource::SizeArgument(register) => self.value(probe, *register),
            _ => None,
        };
        if let Some(bytes) = bytes {
            // A negative length means "until NUL".
            body.push(format!("$bytes = (int64)({bytes});"));
            body.push(format!(
                "if ($bytes > 0) {{ @serialization_bytes[\"{function}\"] = sum($bytes); }}"
            ));
        }
        self.clause("uprobe", probe, "", &body);
    }

    fn compilation(&mut self, probe: &Probe) {
        let body = match &probe.role {
            Role::Compile { path, unit } => {
                let unit = match unit {
                    CompileUnit::Builtin => "builtin",
                    CompileUnit::Function => "function",
                    CompileUnit::Module => "module",
                    CompileUnit::Script => "script",
                };
                let mut body = vec![format!("@compile[\"{unit}\"] = count();")];
                if let Some(text) = self.text_of(probe, path) {
                    body.extend(text.before);
                    body.push(format!("@compiled[{}] = count();", text.expression));
                }
                body
            }
            Role::CodeCacheHit => {
                vec!["@compile[\"taken from a code cache\"] = count();".to_owned()]
            }
            Role::Parse => {
                vec!["@compile[\"parsed by V8\"] = count();".to_owned()]
            }
            _ => return,
        };
        self.clause("uprobe", probe, "", &body);
    }
}

/// How to read a text at a probe.
struct Text {
    before: Vec<String>,
    expression: String,
}

/// `*(uint64 *)(reg("bx") + 111)`.
fn expression(value: &EntryValue) -> String {
    let mut text = format!("reg(\"{}\")", register_name(value.register));
    for offset in &value.loads {
        let place = match offset {
            0 => text,
            1.. => format!("{text} + {offset}"),
            _ => format!("{text} - {}", offset.unsigned_abs()),
        };
        text = format!("*(uint64 *)({place})");
    }
    text
}

/// As bpftrace calls the registers of x86-64.
fn register_name(register: Register) -> &'static str {
    match register {
        Register::Rax => "ax",
        Register::Rcx => "cx",
        Register::Rdx => "dx",
        Register::Rbx => "bx",
        Register::Rsp => "sp",
        Register::Rbp => "bp",
        Register::Rsi => "si",
        Register::Rdi => "di",
        Register::R8 => "r8",
        Register::R9 => "r9",
        Register::R10 => "r10",
        Register::R11 => "r11",
        Register::R12 => "r12",
        Register::R13 => "r13",
        Register::R14 => "r14",
        Register::R15 => "r15",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_written_from_the_inside_out() {
        let value = |register, loads: &[i64]| {
            expression(&EntryValue {
                register,
                loads: loads.to_vec(),
            })
        };
        assert_eq!(value(Register::Rdx, &[]), r#"reg("dx")"#);
        assert_eq!(
            value(Register::Rcx, &[0, 47, -8]),
            r#"*(uint64 *)(*(uint64 *)(*(uint64 *)(reg("cx")) + 47) - 8)"#
        );
    }
}
