//! The canonical text of a JSON value: compact, with sorted keys, and numbers as written.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::de::Error as _;
use serde_json::Error;
use serde_json::value::RawValue;

/// A change of the strings of a text, and of its numbers.
pub(super) struct StringMap<'m> {
    /// Maps each string, keys included.
    pub(super) text: &'m mut dyn FnMut(&str) -> Cow<'_, str>,
    /// Whether it maps each number too, which becomes a string if it changes.
    pub(super) numbers: bool,
}

/// Writes a JSON text in canonical form.
pub(super) fn canonical(
    text: &str,
    max_depth: usize,
    equal: EqualKeys,
    map: Option<StringMap<'_>>,
) -> Result<Box<RawValue>, Error> {
    let out = String::with_capacity(text.len());
    let mut writer = CanonicalWriter { text, at: 0, out, depth: 0, max_depth, equal, map };
    let written = writer.value().and_then(|()| writer.end());
    // The structure was checked above, the scalars are checked here.
    match written {
        Ok(()) => RawValue::from_string(writer.out),
        Err(Unfit::Deep) => {
            Err(Error::custom(format!("it is nested deeper than {max_depth} levels")))
        }
        Err(Unfit::Number) => Err(Error::custom("number out of range")),
        Err(Unfit::Repeated(key)) => Err(Error::custom(format!("the key `{key}` occurs twice"))),
        // serde_json reports the position.
        Err(Unfit::Malformed) => match serde_json::from_str::<serde_json::Value>(text) {
            Err(error) => Err(error),
            Ok(_) => Err(Error::custom("it is no JSON")),
        },
    }
}

/// Indents a compact text.
pub(super) fn pretty(text: &str) -> String {
    let (mut out, mut depth, mut quoted, mut escaped) = (String::new(), 0_usize, false, false);
    let mut signs = text.chars().peekable();
    while let Some(sign) = signs.next() {
        let breaks = |out: &mut String, depth: usize| {
            out.push('\n');
            out.extend(std::iter::repeat_n("  ", depth));
        };
        match sign {
            _ if quoted => {
                quoted = sign != '"' || escaped;
                escaped = sign == '\\' && !escaped;
                out.push(sign);
            }
            '{' | '[' => {
                out.push(sign);
                match signs.next_if(|next| matches!(next, '}' | ']')) {
                    Some(closing) => out.push(closing),
                    None => {
                        depth += 1;
                        breaks(&mut out, depth);
                    }
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                breaks(&mut out, depth);
                out.push(sign);
            }
            ',' => {
                out.push(sign);
                breaks(&mut out, depth);
            }
            ':' => out.push_str(": "),
            _ => {
                quoted = sign == '"';
                out.push(sign);
            }
        }
    }
    out
}

/// The reason that a text has no canonical form.
enum Unfit {
    Deep,
    Malformed,
    Number,
    /// An object has this key twice.
    Repeated(String),
}

/// The handling of members with equal keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum EqualKeys {
    /// Only the last member is kept, as in serde_json.
    LastOne,
    /// All members are kept, under numbered keys.
    Numbered,
    /// The text is refused.
    Refused,
}

struct CanonicalWriter<'t, 'm> {
    text: &'t str,
    at: usize,
    out: String,
    depth: usize,
    max_depth: usize,
    equal: EqualKeys,
    map: Option<StringMap<'m>>,
}

impl<'t> CanonicalWriter<'t, '_> {
    fn value(&mut self) -> Result<(), Unfit> {
        self.skip_space();
        match self.peek() {
            Some(b'{') => self.write_nested(Self::object),
            Some(b'[') => self.write_nested(Self::array),
            Some(b'"') => self.string().map(drop),
            Some(_) => self.scalar(),
            None => Err(Unfit::Malformed),
        }
    }

    fn end(&mut self) -> Result<(), Unfit> {
        self.skip_space();
        if self.at == self.text.len() { Ok(()) } else { Err(Unfit::Malformed) }
    }

    fn write_nested(&mut self, write: fn(&mut Self) -> Result<(), Unfit>) -> Result<(), Unfit> {
        self.depth += 1;
        if self.depth > self.max_depth {
            return Err(Unfit::Deep);
        }
        write(self)?;
        self.depth -= 1;
        Ok(())
    }

    fn array(&mut self) -> Result<(), Unfit> {
        self.expect(b'[')?;
        self.out.push('[');
        if !self.closes(b']') {
            loop {
                self.value()?;
                if self.closes(b']') {
                    break;
                }
                self.expect(b',')?;
                self.out.push(',');
            }
        }
        self.out.push(']');
        Ok(())
    }

    fn object(&mut self) -> Result<(), Unfit> {
        self.expect(b'{')?;
        self.out.push('{');
        let begin = self.out.len();
        let (mut last, mut is_sorted) = (None, true);
        if !self.closes(b'}') {
            loop {
                self.skip_space();
                let key = self.string()?;
                self.expect(b':')?;
                self.out.push(':');
                self.value()?;
                is_sorted &= last.is_none_or(|last| last < key);
                last = Some(key);
                if self.closes(b'}') {
                    break;
                }
                self.expect(b',')?;
                self.out.push(',');
            }
        }
        if !is_sorted {
            let sorted = sort_members(&self.out[begin..], self.equal)?;
            self.out.truncate(begin);
            self.out.push_str(&sorted);
        }
        self.out.push('}');
        Ok(())
    }

    /// Writes a string, and returns its content.
    fn string(&mut self) -> Result<Cow<'t, str>, Unfit> {
        let start = self.at;
        self.expect(b'"')?;
        let mut escapes = false;
        loop {
            let rest = self.text.get(self.at..).ok_or(Unfit::Malformed)?;
            let found = rest.find(['"', '\\']).ok_or(Unfit::Malformed)?;
            self.at += found + 1;
            if rest.as_bytes()[found] == b'"' {
                break;
            }
            escapes = true;
            // An escaped character does not end the string.
            self.at += rest[found + 1..].chars().next().map_or(0, char::len_utf8);
        }
        let token = self.text.get(start..self.at).ok_or(Unfit::Malformed)?;
        let said = if escapes {
            Cow::Owned(serde_json::from_str(token).map_err(|_| Unfit::Malformed)?)
        } else {
            Cow::Borrowed(&token[1..token.len() - 1])
        };
        let mapped = match &mut self.map {
            Some(map) => match (map.text)(&said) {
                Cow::Owned(mapped) => Some(mapped),
                Cow::Borrowed(_) => None,
            },
            None => None,
        };
        if !escapes && mapped.is_none() {
            self.out.push_str(token);
            return Ok(said);
        }
        let said = mapped.map_or(said, Cow::Owned);
        self.out.push_str(&serde_json::to_string(&said).map_err(|_| Unfit::Malformed)?);
        Ok(said)
    }

    fn scalar(&mut self) -> Result<(), Unfit> {
        let rest = &self.text[self.at..];
        let is_end = |c: char| matches!(c, ',' | ']' | '}' | ':' | '"' | '[' | '{') || is_space(c);
        let token = &rest[..rest.find(is_end).unwrap_or(rest.len())];
        // A number that no reader can represent would be read as another one, or as none. Only a number with an
        // exponent, or a very long one, can be that large.
        let is_suspect = token.len() > 300 || token.contains(['e', 'E']);
        if is_suspect && token.parse::<f64>().is_ok_and(f64::is_infinite) {
            return Err(Unfit::Number);
        }
        let is_number = token.starts_with(|c: char| c == '-' || c.is_ascii_digit());
        let map = self.map.as_mut().filter(|map| is_number && map.numbers);
        let mapped = map.map(|map| (map.text)(token));
        match mapped.filter(|mapped| *mapped != token) {
            Some(mapped) => {
                self.out.push_str(&serde_json::to_string(&mapped).map_err(|_| Unfit::Malformed)?);
            }
            None => self.out.push_str(token),
        }
        self.at += token.len();
        if token.is_empty() { Err(Unfit::Malformed) } else { Ok(()) }
    }

    /// Skips the closing character of a list, if it is next.
    fn closes(&mut self, close: u8) -> bool {
        self.skip_space();
        let closes = self.peek() == Some(close);
        self.at += usize::from(closes);
        closes
    }

    fn expect(&mut self, expected: u8) -> Result<(), Unfit> {
        if self.closes(expected) { Ok(()) } else { Err(Unfit::Malformed) }
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(|byte| is_space(char::from(byte))) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }
}

/// Returns compact members in the order of their keys. Most objects are already in that order; only the others are
/// parsed into members.
fn sort_members(members: &str, equal: EqualKeys) -> Result<String, Unfit> {
    let mut found = split_members(members).ok_or(Unfit::Malformed)?;
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    let repeated = found.windows(2).find(|two| two[0].0 == two[1].0);
    match (equal, repeated) {
        (EqualKeys::Refused, Some(two)) => return Err(Unfit::Repeated(two[0].0.to_string())),
        (EqualKeys::Numbered, Some(_)) => return number_members(found).ok_or(Unfit::Malformed),
        _ => {}
    }
    let mut sorted = String::with_capacity(members.len());
    for (index, (key, member)) in found.iter().enumerate() {
        if found.get(index + 1).is_some_and(|(next, _)| next == key) {
            continue;
        }
        if !sorted.is_empty() {
            sorted.push(',');
        }
        sorted.push_str(member);
    }
    Ok(sorted)
}

/// Returns compact members, each with its key.
fn split_members(members: &str) -> Option<Vec<(Cow<'_, str>, &str)>> {
    let (mut found, mut rest) = (Vec::new(), members);
    while !rest.is_empty() {
        let (key, end) = (string_end(rest)?, member_end(rest));
        let said = match rest.get(1..key - 1)? {
            plain if !plain.contains('\\') => Cow::Borrowed(plain),
            _ => Cow::Owned(serde_json::from_str(rest.get(..key)?).ok()?),
        };
        found.push((said, rest.get(..end)?));
        rest = rest.get(end + 1..).unwrap_or_default();
    }
    Some(found)
}

/// Writes members, some of them with the same key: the second `key` becomes `key 2`.
fn number_members(members: Vec<(Cow<'_, str>, &str)>) -> Option<String> {
    let mut taken: BTreeSet<String> = members.iter().map(|(key, _)| key.to_string()).collect();
    let mut written = BTreeMap::new();
    let mut number = 1_u64;
    for (key, member) in members {
        let value = member.get(string_end(member)?..)?;
        if !written.contains_key(&*key) {
            number = 1;
            written.insert(key.into_owned(), value);
            continue;
        }
        let next = loop {
            number += 1;
            let next = format!("{key} {number}");
            if taken.insert(next.clone()) {
                break next;
            }
        };
        written.insert(next, value);
    }
    let members: Option<Vec<String>> =
        written.iter().map(|(key, value)| Some(serde_json::to_string(key).ok()? + value)).collect();
    Some(members?.join(","))
}

/// Returns the end of the string at the beginning of a text.
pub(super) fn string_end(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    let end = text.bytes().skip(1).position(|byte| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    });
    end.map(|end| end + 2)
}

/// Returns the end of the first of several compact members.
fn member_end(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(byte) = text.as_bytes().get(at) {
        match byte {
            b'"' => at += string_end(&text[at..]).map_or(1, |end| end - 1),
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => return at,
            _ => {}
        }
        at += 1;
    }
    text.len()
}

const fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn write(text: &str) -> Result<String, String> {
        write_with(text, EqualKeys::LastOne)
    }

    fn write_with(text: &str, equal: EqualKeys) -> Result<String, String> {
        canonical(text, 100, equal, None).map(|raw| raw.get().to_owned()).map_err(|e| e.to_string())
    }

    /// Spec: P12
    #[test]
    fn numbers_keep_their_text() {
        for number in [
            "3.10",
            "100.00",
            "1234e10",
            "1E5",
            "1e-7",
            "-0",
            "-0.0",
            "18446744073709551616",
            "123456789012345678901234567890",
            "0.1000000000000000055511151231257827021181583404541015625",
        ] {
            assert_eq!(write(number).as_deref(), Ok(number));
            let nested = format!(r#"{{"a":[{number},{{"b":{number}}}]}}"#);
            assert_eq!(write(&nested), Ok(nested));
        }
    }

    /// Spec: P12
    #[test]
    fn text_is_compact_sorted_and_unescaped() {
        #[track_caller]
        fn check(text: &str, expected: &str) {
            assert_eq!(write(text).as_deref(), Ok(expected));
        }
        check(" { \"b\" : 1 ,\n\"a\" : [ 1 , 2.50 ] } ", r#"{"a":[1,2.50],"b":1}"#);
        check(r#"{"a":1,"b":2,"a":3.0}"#, r#"{"a":3.0,"b":2}"#);
        check(r#"["\u0041\/\u00e9\n\ud83d\ude00"]"#, "[\"A/é\\n😀\"]");
        check(r#"{"z":1,"\u0061":2}"#, r#"{"a":2,"z":1}"#);
        check(
            r#"{"b":"},\"{","a\"":{"d":[1,{"z":",","y":2}],"c":"\\"},"a":{}}"#,
            r#"{"a":{},"a\"":{"c":"\\","d":[1,{"y":2,"z":","}]},"b":"},\"{"}"#,
        );
        check("[ ]", "[]");
        check("{ }", "{}");
        check(r#""\\""#, r#""\\""#);
        check("[true,false,null]", "[true,false,null]");
    }

    #[test]
    fn repeated_keys_are_found_at_any_depth() {
        for (text, key) in [
            (r#"{"to":"ada","to":"bob"}"#, "to"),
            (r#"{"to":"ada","to":"ada"}"#, "to"),
            (r#"{"a":1,"b":2,"a":3}"#, "a"),
            (r#"{"z":[0,{"y":{},"x":1,"y":[]}]}"#, "y"),
            (r#"{"\u0061":1,"a":2}"#, "a"),
            (r#"{"a\"":1,"a\u0022":2}"#, "a\""),
            (r#"{"":1,"":2}"#, ""),
        ] {
            let refused = write_with(text, EqualKeys::Refused);
            assert_eq!(refused, Err(format!("the key `{key}` occurs twice")), "{text}");
            assert!(write(text).is_ok(), "{text}");
        }
        for text in [
            r#"{"b":{"a":1},"a":{"b":1}}"#,
            r#"[{"a":1},{"a":1}]"#,
            r#"{"b":"a","a":"b","c":"\"a\":"}"#,
            "{\"\u{e9}\":1,\"e\u{301}\":2}",
        ] {
            assert_eq!(write_with(text, EqualKeys::Refused), write(text), "{text}");
        }
    }

    #[test]
    fn text_that_is_no_json_is_refused() {
        for text in [
            "",
            " ",
            "{",
            "[1,]",
            "[1 2]",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{a:1}",
            "01",
            "1.",
            "+1",
            "nul",
            "nullx",
            "1 2",
            "[1]]",
            "\"",
            "\"\\\"",
            "\"\\",
            "\"\\x\"",
            "'a'",
            "\"\u{1}\"",
            "\"\\ud800\"",
            "{,}",
            "[,]",
            "[}",
            "NaN",
            "Infinity",
            "-",
            "1e",
            "é",
        ] {
            assert!(write(text).is_err(), "{text:?}: {:?}", write(text));
        }
        assert_eq!(write("[1e999]"), Err("number out of range".into()));
        assert_eq!(write(&"9".repeat(400)), Err("number out of range".into()));
    }

    #[test]
    fn depth_is_bounded() {
        let deep = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert!(write(&deep(100)).is_ok());
        assert_eq!(write(&deep(101)), Err("it is nested deeper than 100 levels".into()));
        assert!(write(&deep(1_000_000)).is_err());
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..4)
                    .prop_map(|fields| fields.into_iter().collect()),
            ]
        })
    }

    proptest! {
        /// Spec: P12
        #[test]
        fn any_value_keeps_its_meaning(value in any_json()) {
            let pretty = serde_json::to_string_pretty(&value).unwrap();
            let text = write(&pretty).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Value>(&text).unwrap(), &value);
            prop_assert_eq!(&write(&text).unwrap(), &text);
            prop_assert_eq!(super::pretty(&text), serde_json::to_string_pretty(&value).unwrap());
        }

        /// Spec: E11
        #[test]
        fn no_text_panics(text in any::<String>()) {
            let read = serde_json::from_str::<Value>(&text);
            prop_assert_eq!(write(&text).is_ok(), read.is_ok());
        }

        /// Spec: E11
        #[test]
        fn nothing_but_json_is_taken(text in "[\\[\\]{},:\"\\\\a0-9.e+ -]{0,12}") {
            let read = serde_json::from_str::<Value>(&text);
            prop_assert_eq!(write(&text).is_ok(), read.is_ok(), "{}", text);
        }
    }
}
