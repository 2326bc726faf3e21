//! Normalised numbers in arguments, so that equal numbers have equal texts.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

use super::JsonText;
use super::canonical::string_end;

/// Maximum number of schemas that apply to one value; further ones are ignored.
const MAX_SCHEMAS: usize = 64;
/// Maximum power of ten for which a number is written without an exponent.
const MAX_ZEROS: i64 = 400;

impl JsonText {
    /// Returns the value at a JSON pointer, with numbers as written.
    ///
    /// ```
    /// use layer0::JsonText;
    ///
    /// let text = JsonText::parse(r#"{"a":[{"b/c":3.10}]}"#)?;
    /// assert_eq!(text.pointer("/a/0/b~1c").unwrap().get(), "3.10");
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    #[must_use]
    pub fn pointer(&self, pointer: &str) -> Option<Self> {
        if pointer.is_empty() {
            return Some(self.clone());
        }
        pointer.strip_prefix('/')?.split('/').try_fold(self.clone(), |value, token| {
            match value.get().starts_with('[') {
                true => {
                    let index: usize = token.parse().ok()?;
                    value.read::<Vec<Self>>().ok()?.into_iter().nth(index)
                }
                false => {
                    let key = token.replace("~1", "/").replace("~0", "~");
                    value.read::<BTreeMap<String, Self>>().ok()?.remove(&key)
                }
            }
        })
    }

    /// Returns the value with every number in one form: `7`, `7.0` and `7e0` become `7`, and `3.10` becomes `3.1`.
    /// Numbers are normalised by their digits, without rounding.
    ///
    /// ```
    /// use layer0::JsonText;
    ///
    /// let exact = |text: &str| JsonText::parse(text).map(|text| text.exact_numbers());
    /// assert_eq!(exact("[7.0,70e-1]")?, exact("[7,7]")?);
    /// assert_ne!(exact("12345678901234567890123")?, exact("12345678901234567890124")?);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    #[must_use]
    pub fn exact_numbers(&self) -> Self {
        self.rewrite(&Value::Null, true)
    }

    /// Returns arguments in the form for a tool with this input schema: a number that the schema declares as a number
    /// or an integer is normalised as by [`JsonText::exact_numbers`]; other numbers keep their text.
    ///
    /// ```
    /// use layer0::JsonText;
    ///
    /// let schema = JsonText::parse(r#"{"properties":{"id":{"type":"integer"}}}"#)?;
    /// let taken = |text: &str| JsonText::parse(text).map(|text| text.taken_by(&schema));
    /// assert_eq!(taken(r#"{"id":7.0}"#)?, taken(r#"{"id":7}"#)?);
    /// assert_ne!(taken(r#"{"note":7.0}"#)?, taken(r#"{"note":7}"#)?);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    #[must_use]
    pub fn taken_by(&self, schema: &Self) -> Self {
        match may_change(self.get()) {
            true => self.rewrite(&schema.value(), false),
            false => self.clone(),
        }
    }

    fn rewrite(&self, schema: &Value, all: bool) -> Self {
        if !may_change(self.get()) {
            return self.clone();
        }
        let mut rewriter = Rewriter { root: schema, all, out: String::new() };
        let schemas = rewriter.expand(vec![schema]);
        rewriter.value(self.get(), &schemas);
        // Replacing a number by a number keeps the text valid.
        Self::parse(&rewriter.out).unwrap_or_else(|_| self.clone())
    }
}

/// Returns whether a text may contain a number that is not normalised.
fn may_change(text: &str) -> bool {
    let is_number = |two: &[u8]| matches!(two, [b'0'..=b'9', b'.' | b'e' | b'E'] | [b'-', b'0']);
    text.as_bytes().windows(2).any(is_number)
}

struct Rewriter<'s> {
    root: &'s Value,
    /// Whether all numbers are normalised.
    all: bool,
    out: String,
}

impl<'s> Rewriter<'s> {
    /// Writes the value at the beginning of a compact text; returns the rest of the text.
    fn value<'t>(&mut self, text: &'t str, schemas: &[&'s Value]) -> &'t str {
        match text.as_bytes().first() {
            Some(b'{') => self.members(text, |rewriter, key| rewriter.of_key(schemas, key)),
            Some(b'[') => self.items(text, schemas),
            Some(b'"') => self.copy(text, string_end(text).unwrap_or(text.len())),
            _ => {
                let end = text.find([',', ']', '}']).unwrap_or(text.len());
                let (token, rest) = text.split_at(end);
                match self.all || schemas.iter().any(|schema| is_numeric(schema)) {
                    true => self.out.push_str(&one_form(token)),
                    false => self.out.push_str(token),
                }
                rest
            }
        }
    }

    fn copy<'t>(&mut self, text: &'t str, end: usize) -> &'t str {
        let (copied, rest) = text.split_at(end.min(text.len()));
        self.out.push_str(copied);
        rest
    }

    fn members<'t>(
        &mut self,
        text: &'t str,
        of_key: impl Fn(&Self, &str) -> Vec<&'s Value>,
    ) -> &'t str {
        let mut rest = self.copy(text, 1);
        while let Some(first) = rest.chars().next() {
            rest = match first {
                '}' => return self.copy(rest, 1),
                ',' => self.copy(rest, 1),
                _ => {
                    let end = string_end(rest).unwrap_or(rest.len());
                    let key: String = serde_json::from_str(&rest[..end]).unwrap_or_default();
                    let schemas = of_key(self, &key);
                    let value = self.copy(rest, end + 1);
                    self.value(value, &schemas)
                }
            };
        }
        rest
    }

    fn items<'t>(&mut self, text: &'t str, schemas: &[&'s Value]) -> &'t str {
        let (mut rest, mut index) = (self.copy(text, 1), 0);
        while let Some(first) = rest.chars().next() {
            rest = match first {
                ']' => return self.copy(rest, 1),
                ',' => self.copy(rest, 1),
                _ => {
                    let of_item = self.of_item(schemas, index);
                    index += 1;
                    self.value(rest, &of_item)
                }
            };
        }
        rest
    }

    fn of_key(&self, schemas: &[&'s Value], key: &str) -> Vec<&'s Value> {
        let found = schemas.iter().flat_map(|schema| {
            let named = schema["properties"].get(key);
            let patterns = schema["patternProperties"].as_object();
            let patterns = patterns.into_iter().flat_map(|patterns| patterns.values());
            let other = schema.get("additionalProperties").filter(|_| named.is_none());
            named.into_iter().chain(patterns).chain(other)
        });
        self.expand(found.collect())
    }

    fn of_item(&self, schemas: &[&'s Value], index: usize) -> Vec<&'s Value> {
        let found = schemas.iter().filter_map(|schema| {
            let listed = schema["prefixItems"].get(index).or_else(|| schema["items"].get(index));
            listed.or_else(|| schema.get("items"))
        });
        self.expand(found.collect())
    }

    /// Adds the schemas that these refer to or are composed of.
    fn expand(&self, mut schemas: Vec<&'s Value>) -> Vec<&'s Value> {
        let mut at = 0;
        while let Some(schema) = schemas.get(at).copied() {
            at += 1;
            let referred = schema["$ref"].as_str().and_then(|text| text.strip_prefix('#'));
            let referred = referred.and_then(|pointer| self.root.pointer(pointer));
            let lists = ["allOf", "anyOf", "oneOf"].into_iter();
            let parts = lists.filter_map(|list| schema[list].as_array()).flatten();
            let branches = ["then", "else"].into_iter().filter_map(|branch| schema.get(branch));
            for further in referred.into_iter().chain(parts).chain(branches) {
                let is_known = schemas.iter().any(|known| std::ptr::eq(*known, further));
                if !is_known && schemas.len() < MAX_SCHEMAS {
                    schemas.push(further);
                }
            }
        }
        schemas
    }
}

fn is_numeric(schema: &Value) -> bool {
    let names = |name: &Value| name == "integer" || name == "number";
    match &schema["type"] {
        Value::Array(types) => types.iter().any(names),
        name => names(name),
    }
}

/// Returns the normalised form of a number, by its digits; other tokens remain unchanged.
fn one_form(token: &str) -> Cow<'_, str> {
    if !may_change(token) {
        return Cow::Borrowed(token);
    }
    let (sign, number) = match token.strip_prefix('-') {
        Some(number) => ("-", number),
        None => ("", token),
    };
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (before, behind) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = [before, behind].concat();
    let digits = digits.trim_start_matches('0');
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        return Cow::Borrowed("0");
    }
    let Ok(exponent) = exponent.parse::<i64>() else { return Cow::Borrowed(token) };
    let length = |text: &str| i64::try_from(text.len()).unwrap_or(i64::MAX);
    // `shift` is the power of ten of the last significant digit.
    let dropped = length(digits).saturating_sub(length(significant));
    let shift = exponent.saturating_sub(length(behind)).saturating_add(dropped);
    let zeros = usize::try_from(shift.unsigned_abs()).unwrap_or(usize::MAX);
    Cow::Owned(match shift {
        0.. if shift <= MAX_ZEROS => format!("{sign}{significant}{}", "0".repeat(zeros)),
        _ if -shift > MAX_ZEROS || shift > 0 => format!("{sign}{significant}e{shift}"),
        _ if zeros < significant.len() => {
            let (whole, fraction) = significant.split_at(significant.len() - zeros);
            format!("{sign}{whole}.{fraction}")
        }
        _ => format!("{sign}0.{}{significant}", "0".repeat(zeros - significant.len())),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Spec: T16
    #[test]
    fn equal_numbers_have_one_form() {
        #[track_caller]
        fn check(number: &str, expected: &str) {
            assert_eq!(one_form(number), expected, "{number}");
            assert_eq!(one_form(expected), expected, "{number}");
        }
        for seven in ["7", "7.0", "7e0", "7.00E+0", "70e-1", "0.7e1", "0.007e3"] {
            check(seven, "7");
        }
        check("-7.0", "-7");
        check("-0.0", "0");
        check("0e99999999999999999999", "0");
        check("3.10", "3.1");
        check("0.50", "0.5");
        check("5e-3", "0.005");
        check("12.5e1", "125");
        check("1e3", "1000");
        check("12345678901234567890123", "12345678901234567890123");
        check("12345678901234567890123.0", "12345678901234567890123");
        check("1e-999", "1e-999");
        check("10e-1000", "1e-999");
        check("true", "true");
    }

    /// Spec: G2, T16
    #[test]
    fn only_what_the_schema_calls_a_number_changes() {
        let schema = JsonText::from(json!({
            "$defs": { "line": { "properties": { "id": { "type": ["integer", "null"] } } } },
            "properties": {
                "id": { "type": "integer" },
                "sum": { "anyOf": [{ "type": "string" }, { "type": "number" }] },
                "lines": { "items": { "$ref": "#/$defs/line" } },
                "pair": { "prefixItems": [{ "type": "integer" }], "items": { "type": "string" } },
                "loop": { "$ref": "#/properties/loop" },
            },
            "additionalProperties": { "type": "string" },
        }));
        #[track_caller]
        fn check(schema: &JsonText, text: &str, expected: &str) {
            let text = JsonText::parse(text).unwrap();
            assert_eq!(text.taken_by(schema).get(), expected);
        }
        check(&schema, r#"{"id":7.0,"sum":3.10}"#, r#"{"id":7,"sum":3.1}"#);
        check(
            &schema,
            r#"{"lines":[{"id":1e1,"x":1.0},{"id":null}]}"#,
            r#"{"lines":[{"id":10,"x":1.0},{"id":null}]}"#,
        );
        check(&schema, r#"{"pair":[1.0,2.0]}"#, r#"{"pair":[1,2.0]}"#);
        check(
            &schema,
            r#"{"loop":1.0,"other":"1.0, \"7.0\""}"#,
            r#"{"loop":1.0,"other":"1.0, \"7.0\""}"#,
        );
        check(&JsonText::from(json!(true)), r#"{"id":7.0}"#, r#"{"id":7.0}"#);
    }

    #[test]
    fn pointer_finds_the_text_of_a_value() {
        let text = JsonText::parse(r#"{"a":[{"~b":7.0}],"":null}"#).unwrap();
        let found = |pointer| text.pointer(pointer).map(|value| value.get().to_owned());
        assert_eq!(found("/a/0/~0b").as_deref(), Some("7.0"));
        assert_eq!(found("/").as_deref(), Some("null"));
        assert_eq!(found(""), Some(text.get().to_owned()));
        for missing in ["/b", "/a/1", "/a/x", "/a/0/~0b/c", "a"] {
            assert_eq!(found(missing), None, "{missing}");
        }
    }
}
