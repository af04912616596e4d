//! Where V8 keeps what names a JavaScript frame, from the constants that V8 leaves in the binary for debuggers (`v8dbg_*`).
//!
//! The offsets moved twice between V8 9.4 and 14.6 and the instance types in every version, so nothing is assumed that the
//! binary tells. Where it does not tell, the neighbouring field does; each such rule is written next to its field and was
//! checked against the stack that `new Error()` shows on 16 to 26.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// Offsets within V8's heap objects (bytes from the object's start) and numbers of its instance types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct V8Layout {
    /// `JSFunction`: its `SharedFunctionInfo`.
    pub function_shared: u8,
    /// `SharedFunctionInfo`: a string, or the `ScopeInfo` that has the name.
    pub shared_name_or_scope: u8,
    /// `SharedFunctionInfo`: the `Script`; a `DebugInfo` while a debugger looks at the function.
    pub shared_script: u8,
    /// `SharedFunctionInfo`: flags; the function literal's number within its script lies behind them.
    pub shared_flags: u8,
    /// `Script`: source, a string.
    pub script_source: u8,
    /// `Script`: name.
    pub script_name: u8,
    /// `Script`: id, a Smi.
    pub script_id: u8,
    /// `Script`: arguments of the function that wraps it, a `FixedArray`, if one does (CommonJS modules).
    pub script_wrapped: u8,
    /// `BytecodeArray`: table of source positions.
    pub bytecode_positions: u8,
    /// `BytecodeArray`: first bytecode.
    pub bytecode_data: u8,
    /// `ScopeInfo`: flags, the first of its fixed words.
    pub scope_flags: u8,
    /// `ScopeInfo`: the first word behind the fixed ones.
    pub scope_first: u8,
    /// The fixed words of a `ScopeInfo` include where the function begins and ends (from V8 13 on).
    pub scope_has_position: bool,
    /// Lowest instance type of a function.
    pub first_function_type: u16,
    /// Highest instance type of a function.
    pub last_function_type: u16,
    /// Instance type of `SharedFunctionInfo`.
    pub shared_type: u16,
    /// Instance type of `Script`.
    pub script_type: u16,
    /// Instance type of `ScopeInfo`.
    pub scope_type: u16,
    /// Instance type of `BytecodeArray`.
    pub bytecode_type: u16,
    /// Instance type of `FixedArray`.
    pub fixed_array_type: u16,
    /// Instance type of `FunctionTemplateInfo`.
    pub function_template_type: u16,
    /// Number of the frames of builtins that are written in C++.
    pub builtin_exit_frame: u8,
    /// Number of the frames of WebAssembly; 0: there are none.
    pub wasm_frame: u8,
    /// Instance type of `SourceTextModule`.
    pub source_text_module_type: u16,
    /// Instance type of `SyntheticModule`.
    pub synthetic_module_type: u16,
    /// Instance types of byte arrays: in the heap, and in the trusted space (0 where there is none).
    pub byte_array_types: [u16; 2],
    /// Lowest and highest instance type of a context.
    pub context_types: [u16; 2],
    /// Where the names lie that closures were given when they were made; `None` if the binary does not tell.
    pub own_names: Option<OwnNames>,
    /// Where optimised code tells what is inlined in it; `None` if it lies where no known version has it.
    pub code: Option<CodeLayout>,
}

/// Where optimised code tells which function was inlined at which call.
///
/// The offsets are those of `Code`, the indices those of its `DeoptimizationData`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeLayout {
    /// Instance type of `Code`.
    pub code_type: u16,
    /// Instance type of what has a function's baseline code as its first field and its bytecode as the second (V8 9); 0: there is none, the code
    /// itself has its bytecode.
    pub baseline_data_type: u16,
    /// `DeoptimizationData`, a fixed array; code that is not optimised has something else there, baseline code its bytecode.
    pub deoptimization_data: u8,
    /// Byte array: the source position table; of baseline code the size of what each instruction of its bytecode became.
    pub source_positions: u8,
    /// The address of the first instruction; if they are `embedded`, that instruction itself.
    pub instruction_start: u8,
    /// Whether the instructions are a part of the `Code` object (up to V8 10).
    pub embedded: bool,
    /// Size of the instructions in bytes, 32 bits.
    pub instruction_size: u8,
    /// Literals, the inlined functions among them.
    pub literals_index: u8,
    /// The function that was compiled.
    pub shared_index: u8,
    /// Whether another object stands between (from V8 12.9 on), with the function as its first field.
    pub shared_wrapped: bool,
    /// Byte array of 16 bytes for each inlined function: the position of its call, the number of its literal.
    pub inlining_index: u8,
    /// Flags, 32 bits; 0: nobody need know. From V8 13.6 on the table of positions that Maglev writes (in later patches) has another place than the call's for
    /// calls that lie behind the function's own code, in loops above all: there its translations tell the place.
    pub flags: u8,
    /// Opcodes of the language in which V8 describes how code is left, one of [`TRANSLATIONS`]; 0: of none of these.
    pub opcodes: u8,
}

/// How many operands each opcode has by which V8 describes the frames that stand for a call in optimised code: the only place that tells
/// which functions Maglev inlined there, in V8 12.4, 12.9 and 13.6 (it writes no table of positions). The first two are frames of
/// functions; a description begins with one of those two behind each other that have three operands and follow one without; the last repeats
/// what another description says.
pub const TRANSLATIONS: [&[u8]; 3] = [
    &[
        5, 3, 3, 3, 2, 1, 3, 4, 3, 2, 1, 0, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
        1, 1, 0, 1, 1, 1, 1, 1, 2, 1,
    ],
    &[
        5, 3, 3, 3, 2, 1, 3, 4, 3, 3, 2, 1, 0, 0, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
        1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 2, 1,
    ],
    &[
        6, 4, 3, 3, 2, 1, 3, 4, 3, 3, 3, 1, 0, 0, 3, 3, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
        1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 2, 1,
    ],
];

/// Operands of the first opcode from V8 13 on, where safepoint tables tell the number of stack slots.
pub const HAS_STACK_SLOTS: u8 = 6;

impl CodeLayout {
    /// `None` if the constants there are do not agree with any of V8 9.0 to 14.6.
    fn find(constants: &Constants<'_>, operands: &[u8]) -> Option<CodeLayout> {
        let one = |name: &str| constants.get(name).copied();
        let byte = |value: i32| u8::try_from(value).ok();
        let size = one("class_Code__instruction_size__int");
        // From 13 on; in 12.9 by another name.
        let wrapped = one("DeoptimizationDataWrappedSharedFunctionInfoIndex")
            .or_else(|| one("DeoptimizationDataSharedFunctionInfoWrapperIndex"));
        // The indices are told from V8 11 on, and were the same before.
        let index = |name: &str, before: i32| byte(one(name).unwrap_or(before));
        let instance = |class: &str| {
            let mut all = constants.iter();
            let found = all.find(|(key, _)| key.starts_with(class))?;
            u16::try_from(*found.1).ok()
        };
        let layout = CodeLayout {
            code_type: instance("type_Code__")?,
            baseline_data_type: instance("type_BaselineData__").unwrap_or(0),
            literals_index: index("DeoptimizationDataLiteralArrayIndex", 2)?,
            shared_index: byte(
                wrapped
                    .or_else(|| one("DeoptimizationDataSharedFunctionInfoIndex"))
                    .unwrap_or(6),
            )?,
            shared_wrapped: wrapped.is_some(),
            inlining_index: index("DeoptimizationDataInliningPositionsIndex", 7)?,
            deoptimization_data: 16,
            source_positions: 24,
            instruction_start: 40,
            embedded: false,
            instruction_size: 0,
            flags: 0,
            opcodes: 0,
        };
        // Newest first.
        if let Some(start) = one("class_Code__instruction_start__Address") {
            // Map, deoptimisation data, positions, wrapper, instructions, their address.
            (start == 40 && one("class_Code__wrapper__Tagged_CodeWrapper_") == Some(24))
                .then_some(())?;
            Some(CodeLayout {
                deoptimization_data: 8,
                source_positions: 16,
                instruction_size: byte(size?)?,
                flags: match operands.first() {
                    Some(&HAS_STACK_SLOTS) => one("class_Code__flags__uint32_t").and_then(byte)?,
                    _ => 0,
                },
                opcodes: match TRANSLATIONS.contains(&operands) {
                    true => u8::try_from(operands.len()).ok()?,
                    false => 0,
                },
                ..layout
            })
        } else if one("class_Code__deoptimization_data__Tagged_FixedArray_").is_some() {
            // 11.8: map, deoptimisation data, positions, instructions, their address, flags.
            Some(CodeLayout {
                deoptimization_data: 8,
                source_positions: 16,
                instruction_start: 32,
                instruction_size: 44,
                ..layout
            })
        } else if let Some(start) = one("class_Code__instruction_start__uintptr_t") {
            // 9.0 to 10.8: map, relocations, deoptimisation data, positions, then the sizes; the instructions behind all. Of the fields between
            // only some versions tell (9.6 and 10.8), as 11.3 does.
            (size == Some(40)).then_some(CodeLayout {
                instruction_start: byte(start)?,
                embedded: true,
                instruction_size: 40,
                ..layout
            })
        } else {
            // 11.3: map, relocations, deoptimisation data, positions, instructions, their address, flags, two numbers.
            (one("class_Code__deoptimization_data__FixedArray") == Some(16)
                && one("class_Code__source_position_table__ByteArray") == Some(24))
            .then_some(CodeLayout {
                instruction_size: 56,
                ..layout
            })
        }
    }
}

/// Where a closure's own name is: a property of it, described by the second entry of its map's descriptors, or in its dictionary of
/// properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnNames {
    /// `Map`: its `DescriptorArray`.
    pub map_descriptors: u8,
    /// `DescriptorArray`: the first entry, of three words: key, details, value.
    pub descriptors_first: u8,
    /// Bit of the details that says that the value is in the descriptor, not in a field of the object.
    pub details_location: u8,
    /// `NameDictionary`: the first entry, of three words: key, value, details.
    pub dictionary_first: u8,
    /// Instance type of `AccessorInfo`: what stands there in place of a name that is the function literal's.
    pub accessor_info_type: u16,
}

impl OwnNames {
    /// `None` if a constant is missing or is not what all of V8 9.4 to 14.6 have.
    fn find(constants: &Constants<'_>) -> Option<OwnNames> {
        let as_known = [
            ("prop_desc_details", 1),
            ("prop_desc_value", 2),
            ("prop_desc_size", 3),
            ("prop_index_shift", 19),
            ("prop_index_mask", 1023 << 19),
            ("prop_location_Descriptor", 1),
            (
                "class_Map__inobject_properties_start_or_constructor_function_index__char",
                9,
            ),
            ("class_Map__instance_size_in_words__char", 8),
            ("class_Map__bit_field3__int", 16),
            ("bit_field3_is_dictionary_map_shift", 21),
            ("namedictionary_prefix_start_index", 3),
            ("namedictionaryshape_entry_size", 3),
        ];
        if as_known
            .iter()
            .any(|(name, value)| constants.get(name) != Some(value))
        {
            return None;
        }
        let byte = |name: &str| u8::try_from(*constants.get(name)?).ok();
        let accessor_info = constants
            .iter()
            .find(|(key, _)| key.starts_with("type_AccessorInfo__"))?;
        Some(OwnNames {
            map_descriptors: byte("class_Map__instance_descriptors_offset")?,
            descriptors_first: byte("class_DescriptorArray__header_size__uintptr_t")?,
            details_location: byte("prop_location_mask")?,
            // Map and length; three numbers, the prefix.
            dictionary_first: 16
                + 8 * byte("namedictionaryshape_prefix_size")?
                    .checked_add(3)
                    .filter(|n| *n < 8)?,
            accessor_info_type: u16::try_from(*accessor_info.1).ok()?,
        })
    }
}

/// `v8dbg_` and the rest of the name → value.
pub(crate) type Constants<'d> = HashMap<&'d str, i32>;

/// The size of a pointer in V8's heap: no official build compresses them.
const WORD: i32 = 8;

impl V8Layout {
    /// `operands`: of V8's opcodes, as the binary has them. An error names the first constant that is missing.
    pub(crate) fn find(constants: &Constants<'_>, operands: &[u8]) -> Result<V8Layout, String> {
        let one = |name: &str| constants.get(name).copied();
        // The type's name is a part of the constant's, and changes: `…__Object`, `…__Tagged_Object_`.
        let field = |name: &str| {
            let prefix = format!("class_{name}__");
            let mut values = constants
                .iter()
                .filter(|(key, _)| key.starts_with(&prefix))
                .map(|(_, value)| *value);
            let value = values.next()?;
            values.all(|other| other == value).then_some(value)
        };
        let needed = |what: &str, value: Option<i32>| {
            value.ok_or_else(|| format!("the binary has no v8dbg constant for {what}"))
        };
        let offset = |what: &str, value: Option<i32>| {
            let value = needed(what, value)?;
            u8::try_from(value).map_err(|_| format!("v8dbg says {value} for {what}"))
        };
        let instance = |class: &str| {
            let prefix = format!("type_{class}__");
            let found = constants.iter().find(|(key, _)| key.starts_with(&prefix));
            let value = needed(&prefix, found.map(|(_, value)| *value))?;
            u16::try_from(value).map_err(|_| format!("v8dbg says {value} for {prefix}"))
        };
        let number = |name: &str| {
            let value = needed(name, one(name))?;
            u16::try_from(value).map_err(|_| format!("v8dbg says {value} for {name}"))
        };
        let tagged = [("SmiTag", 0), ("SmiValueShift", 32), ("HeapObjectTag", 1)];
        for (name, official) in tagged {
            // V8 has `SmiShiftSize` 31 besides; with pointer compression it is 0.
            match one(name) {
                Some(value) if value != official && name != "SmiValueShift" => {
                    return Err(format!("v8dbg says {value} for {name}"));
                }
                _ => {}
            }
        }
        if one("TaggedSize").is_some_and(|size| size != WORD) {
            return Err("the binary was built with pointer compression".to_owned());
        }
        let function = instance("JSFunction")?;
        let last_kind = function
            .checked_add(16)
            .ok_or_else(|| format!("v8dbg says {function} for JSFunction"))?;
        let flags = needed(
            "SharedFunctionInfo.flags",
            field("SharedFunctionInfo__flags"),
        )?;
        let line_ends = needed("Script.line_ends", field("Script__line_ends"))?;
        let script_id = line_ends
            .checked_add(WORD)
            .ok_or_else(|| format!("v8dbg says {line_ends} for Script.line_ends"))?;
        let wrapper = field("BytecodeArray__wrapper").is_some();
        let scope_first = needed("ScopeInfo", one("scopeinfo_idx_first_vars"))?;
        let scope = instance("ScopeInfo")?;
        // 9.0 has it among the arrays, with a length before its words.
        let arrays = instance("FixedDoubleArray")?..instance("SloppyArgumentsElements")?;
        let scope_flags = if arrays.contains(&scope) {
            2 * WORD
        } else {
            WORD
        };
        let scope_variables = scope_first
            .checked_mul(WORD)
            .and_then(|words| words.checked_add(scope_flags))
            .ok_or_else(|| format!("v8dbg says {scope_first} for ScopeInfo"))?;
        let script = field("SharedFunctionInfo__script")
            .or_else(|| field("SharedFunctionInfo__script_or_debug_info"));
        Ok(V8Layout {
            function_shared: offset("JSFunction.shared", field("JSFunction__shared"))?,
            shared_name_or_scope: offset(
                "SharedFunctionInfo.name_or_scope_info",
                field("SharedFunctionInfo__name_or_scope_info"),
            )?,
            shared_script: offset("SharedFunctionInfo.script", script)?,
            shared_flags: offset("SharedFunctionInfo.flags", Some(flags))?,
            // The first field, also where the constant is missing (9.4).
            script_source: offset("Script.source", field("Script__source").or(Some(WORD)))?,
            script_name: offset("Script.name", field("Script__name"))?,
            // Behind line_ends.
            script_id: offset("Script.id", Some(script_id))?,
            script_wrapped: offset(
                "Script.eval_from_shared_or_wrapped_arguments",
                field("Script__eval_from_shared_or_wrapped_arguments").or_else(|| {
                    field("Script__eval_from_shared_or_wrapped_arguments_or_sfi_table")
                }),
            )?,
            // map, length, then: constant pool, handlers, positions; from 12.4 wrapper, positions, handlers, constant pool.
            bytecode_positions: if wrapper { 24 } else { 32 },
            // 9.4 does not tell: three pointers, two 32-bit sizes, a register, two bytes.
            bytecode_data: offset(
                "BytecodeArray.data",
                field("BytecodeArray__data").or(Some(54)),
            )?,
            scope_flags: offset("ScopeInfo.flags", Some(scope_flags))?,
            scope_first: offset("ScopeInfo", Some(scope_variables))?,
            scope_has_position: scope_first >= 5,
            first_function_type: one("FirstJSFunctionType")
                .and_then(|t| u16::try_from(t).ok())
                .unwrap_or(function),
            // Up to 20 the kinds of functions (class constructors, Array, Promise …) follow the plain one.
            last_function_type: one("LastJSFunctionType")
                .and_then(|t| u16::try_from(t).ok())
                .unwrap_or(last_kind),
            shared_type: instance("SharedFunctionInfo")?,
            script_type: instance("Script")?,
            scope_type: scope,
            bytecode_type: instance("BytecodeArray")?,
            fixed_array_type: instance("FixedArray")?,
            function_template_type: instance("FunctionTemplateInfo")?,
            source_text_module_type: instance("SourceTextModule")?,
            synthetic_module_type: instance("SyntheticModule")?,
            builtin_exit_frame: offset(
                "the frames of builtins",
                one("frametype_BuiltinExitFrame"),
            )?,
            wasm_frame: one("frametype_WasmFrame").map_or(Ok(0), |number| {
                offset("the frames of WebAssembly", Some(number))
            })?,
            byte_array_types: [
                instance("ByteArray")?,
                instance("TrustedByteArray").unwrap_or(0),
            ],
            context_types: [number("FirstContextType")?, number("LastContextType")?],
            own_names: OwnNames::find(constants),
            code: CodeLayout::find(constants, operands),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(constants: &[(&'static str, i32)]) -> Option<CodeLayout> {
        let code = ("type_Code__CODE_TYPE", 200);
        let constants = constants.iter().copied().chain([code]);
        CodeLayout::find(&constants.collect(), &[])
    }

    #[test]
    fn instructions_within_the_code_are_told_from_others_by_their_own_constant() {
        const FIELDS: [(&str, i32); 2] = [
            ("class_Code__deoptimization_data__FixedArray", 16),
            ("class_Code__source_position_table__ByteArray", 24),
        ];
        const EMBEDDED: [(&str, i32); 2] = [
            ("class_Code__instruction_size__int", 40),
            ("class_Code__instruction_start__uintptr_t", 128),
        ];
        // Node 17 (V8 9.6) has all of them, 19 (10.8) the first of each, 18 (10.2) the last two.
        for constants in [
            [&FIELDS[..], &EMBEDDED].concat(),
            [&FIELDS[..1], &EMBEDDED].concat(),
            EMBEDDED.to_vec(),
        ] {
            let code = find(&constants).expect("known");
            assert!(code.embedded, "{constants:?}");
            assert_eq!((code.instruction_start, code.instruction_size), (128, 40));
        }
        let code = find(&FIELDS).expect("11.3");
        assert!(!code.embedded);
        assert_eq!((code.instruction_start, code.instruction_size), (40, 56));
        assert_eq!(find(&FIELDS[..1]), None);
    }

    #[test]
    fn constants_that_lie_about_their_sizes_are_told() {
        // The least that a layout needs.
        let honest = [
            ("type_JSFunction__JS_FUNCTION_TYPE", 1_000),
            ("type_ScopeInfo__SCOPE_INFO_TYPE", 200),
            ("type_FixedDoubleArray__FIXED_DOUBLE_ARRAY_TYPE", 130),
            ("type_SloppyArgumentsElements__TYPE", 140),
            ("type_SharedFunctionInfo__TYPE", 201),
            ("type_Script__SCRIPT_TYPE", 202),
            ("type_BytecodeArray__TYPE", 203),
            ("type_FixedArray__TYPE", 204),
            ("type_FunctionTemplateInfo__TYPE", 205),
            ("type_SourceTextModule__TYPE", 206),
            ("type_SyntheticModule__TYPE", 207),
            ("type_ByteArray__TYPE", 208),
            ("FirstContextType", 210),
            ("LastContextType", 220),
            ("frametype_BuiltinExitFrame", 9),
            ("scopeinfo_idx_first_vars", 3),
            ("class_JSFunction__shared__SharedFunctionInfo", 24),
            ("class_SharedFunctionInfo__name_or_scope_info__Object", 16),
            ("class_SharedFunctionInfo__script__HeapObject", 40),
            ("class_SharedFunctionInfo__flags__uint32_t", 52),
            ("class_Script__name__Object", 16),
            ("class_Script__line_ends__Object", 40),
            (
                "class_Script__eval_from_shared_or_wrapped_arguments__Object",
                64,
            ),
        ];
        let with = |name: &str, value: i32| {
            let constants = honest.iter().copied();
            let lie = |(key, honest)| (key, if key == name { value } else { honest });
            V8Layout::find(&constants.map(lie).collect(), &[])
        };
        assert_eq!(with("", 0).map(|layout| layout.script_id), Ok(48));
        for (name, value) in [
            ("class_Script__line_ends__Object", i32::MAX - 3),
            ("scopeinfo_idx_first_vars", i32::MAX / WORD),
            ("scopeinfo_idx_first_vars", i32::MIN),
            ("type_JSFunction__JS_FUNCTION_TYPE", 0xffff),
        ] {
            let told = with(name, value);
            let expected = format!("v8dbg says {value} for ");
            assert!(
                matches!(&told, Err(error) if error.starts_with(&expected)),
                "{name}: {told:?}"
            );
        }
    }
}
