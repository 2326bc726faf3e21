use serde_json::Value;

/// Returns the words of a text in lower case: runs of letters and digits.
///
/// ```
/// assert_eq!(backstop_state::words("Disk /dev/sda1 is FULL").collect::<Vec<_>>(), ["disk", "dev", "sda1", "is", "full"]);
/// ```
pub fn words(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase)
}

/// Returns the text of a value for word search: its key and every string in it.
#[must_use]
pub fn searched_text(key: &str, value: &Value) -> String {
    let mut text = key.to_owned();
    add(&mut text, value);
    text
}

fn add(text: &mut String, value: &Value) {
    match value {
        Value::String(string) => {
            text.push(' ');
            text.push_str(string);
        }
        Value::Array(items) => items.iter().for_each(|item| add(text, item)),
        Value::Object(fields) => fields.values().for_each(|field| add(text, field)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
