//! Tools of Gemini `generateContent`.

use super::gemini::is_function_name;
use crate::strict::dialect::Dialect;
use crate::strict::json::Node;
use crate::strict::look::{find_first, repeated, unknown_field};
use crate::strict::rule::{Asked, Found, Rule, found};
use crate::strict::schema::{find_place, subschemas};

const HERE: &[Dialect] = &[Dialect::Gemini];

const SCHEMA: &str = "https://ai.google.dev/api/caching#Schema";

const SCHEMA_FIELDS: [&str; 23] = [
    "anyOf",
    "default",
    "description",
    "enum",
    "example",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "nullable",
    "pattern",
    "properties",
    "propertyOrdering",
    "required",
    "title",
    "type",
    "enumDescriptions",
];

pub(super) const RULES: &[Rule] = &[
    Rule::new(
        "gemini.tool_names",
        HERE,
        "* GenerateContentRequest.tools[0].function_declarations[{}].name: Invalid function name. Must start \
         with a letter or an underscore. Must be alphameric (a-z, A-Z, 0-9), underscores (_), dots (.) or \
         dashes (-), with a maximum length of 64.",
        "https://github.com/google-gemini/gemini-cli/issues/2966",
        |asked| {
            find_first(functions(asked), |at, function| {
                (!is_function_name(function.get("name"))).then(|| found![at])
            })
        },
    ),
    Rule::new(
        "gemini.tool_names_unique",
        HERE,
        "Duplicate function declaration found: {}",
        "https://ai.google.dev/api/caching#FunctionDeclaration",
        |asked| {
            let names = functions(asked).map(|function| function.get("name").text_or_empty());
            Some(found![repeated(names)?])
        },
    ),
    Rule::new(
        "gemini.one_schema",
        HERE,
        "* GenerateContentRequest.tools[0].function_declarations[{}]: parameters and parameters_json_schema \
         are mutually exclusive",
        "https://ai.google.dev/api/caching#FunctionDeclaration",
        |asked| {
            find_first(functions(asked), |at, function| {
                let both = function.get("parameters").exists()
                    && function.get("parametersJsonSchema").exists();
                both.then(|| found![at])
            })
        },
    ),
    Rule::new(
        "gemini.schema_types",
        HERE,
        "Invalid JSON payload received. Unknown name \"type\" at 'tools[0].function_declarations[{}].\
         parameters{}': Proto field is not repeating, cannot start list.",
        "https://github.com/zed-industries/zed/issues/53919",
        |asked| each_schema(asked, |schema| schema.get("type").is_array()),
    ),
    Rule::new(
        "gemini.schema_fields_known",
        HERE,
        "Invalid JSON payload received. Unknown name \"{}\" at 'tools[0].function_declarations[{}].\
         parameters': Cannot find field.",
        "https://github.com/QwenLM/qwen-code/issues/1186",
        |asked| {
            find_first(functions(asked), |at, function| {
                Some(found![unknown_below(function.get("parameters"))?, at])
            })
        },
    ),
    Rule::new(
        "gemini.schema_enum_texts",
        HERE,
        "Invalid value at 'tools[0].function_declarations[{}].parameters{}.enum[0]' (TYPE_STRING)",
        "https://ai.google.dev/api/caching#Schema",
        |asked| {
            each_schema(asked, |schema| schema.get("enum").items().any(|it| it.text().is_none()))
        },
    ),
    Rule::new(
        "gemini.schema_items",
        HERE,
        "* GenerateContentRequest.tools[0].function_declarations[{}].parameters{}.items: missing field.",
        "https://github.com/cline/cline/issues/7339",
        |asked| {
            each_schema(asked, |schema| {
                let kind = schema.get("type").text_or_empty();
                kind.eq_ignore_ascii_case("array") && !schema.get("items").is_object()
            })
        },
    ),
    Rule::new(
        "gemini.schema_properties",
        HERE,
        "* GenerateContentRequest.tools[0].function_declarations[{}].parameters{}.properties: should be \
         non-empty for OBJECT type",
        "https://github.com/browser-use/browser-use/issues/3786",
        |asked| {
            each_schema(asked, |schema| {
                let kind = schema.get("type").text_or_empty();
                let has_some = schema.get("properties").fields().next().is_some();
                kind.eq_ignore_ascii_case("object") && !has_some
            })
        },
    ),
    Rule::new(
        "gemini.schema_properties_of_objects",
        HERE,
        "* GenerateContentRequest.tools[0].function_declarations[{}].parameters{}.properties: only allowed for \
         OBJECT type",
        "https://github.com/anomalyco/opencode/issues/11889",
        |asked| {
            each_schema(asked, |schema| {
                let kind = schema.get("type").text_or_empty();
                let is_of_object =
                    ["properties", "required"].iter().any(|it| schema.get(it).exists());
                is_of_object && !kind.eq_ignore_ascii_case("object")
            })
        },
    ),
    Rule::new(
        "gemini.schema_required",
        HERE,
        "* GenerateContentRequest.tools[0].function_declarations[{}].parameters{}.required[0]: property is not \
         defined",
        "https://github.com/Kilo-Org/kilocode/pull/11955",
        |asked| {
            each_schema(asked, |schema| {
                let properties = schema.get("properties");
                let is_known = |name: Node<'_>| properties.get(name.text_or_empty()).exists();
                schema.get("required").items().any(|name| !is_known(name))
            })
        },
    ),
    Rule::new(
        "gemini.any_of_alone",
        HERE,
        "* GenerateContentRequest.tools[0].function_declarations[{}].parameters{}.any_of: When using any_of, it \
         must be the only field set.",
        "https://ai.google.dev/api/caching#Schema",
        |asked| {
            each_schema(asked, |schema| {
                schema.get("anyOf").exists() && unknown_field(schema, &["anyOf"]).is_some()
            })
        },
    ),
    Rule::new(
        "gemini.json_schema_object",
        HERE,
        "* GenerateContentRequest.tools[0].function_declarations[{}].parameters_json_schema: must be of type \
         object",
        SCHEMA,
        |asked| {
            find_first(functions(asked), |at, function| {
                let schema = function.get("parametersJsonSchema");
                (schema.exists() && !schema.get("type").is("object")).then(|| found![at])
            })
        },
    ),
];

fn functions(asked: Asked<'_>) -> impl Iterator<Item = Node<'_>> {
    let tools = asked.body.get("tools").items();
    tools.flat_map(|tool| tool.get("functionDeclarations").items())
}

/// Judges each subschema of each `parameters`, which is a subset of OpenAPI's schemas.
fn each_schema(asked: Asked<'_>, is_refused: fn(Node<'_>) -> bool) -> Found {
    find_first(functions(asked), |at, function| {
        Some(found![at, find_place(function.get("parameters"), &is_refused)?])
    })
}

fn unknown_below(schema: Node<'_>) -> Option<String> {
    let own = unknown_field(schema, &SCHEMA_FIELDS).map(str::to_owned);
    own.or_else(|| subschemas(schema).into_iter().find_map(|(_, below)| unknown_below(below)))
}
