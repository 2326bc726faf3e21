//! Contrast of text on the page, computed from its style sheet: WCAG 2.1 AA requires 4.5 to 1, see
//! <https://www.w3.org/TR/WCAG21/#contrast-minimum>.

use std::collections::BTreeMap;

const STYLE: &str = include_str!("../page/style.css");
const LEAST: f64 = 4.5;

/// Text colours whose background is set by an enclosing rule.
const INHERITED: [(&str, &str); 12] = [
    ("text", "back"),
    ("text", "card"),
    ("text", "quiet"),
    ("text", "warn-back"),
    ("text", "bad-back"),
    ("dim", "back"),
    ("dim", "card"),
    ("dim", "quiet"),
    ("tool", "card"),
    ("tool", "quiet"),
    ("on-bar", "model"),
    ("bad-text", "card"),
];

/// Reads the colours of the light theme, and those of the dark theme, which override them.
fn themes() -> [BTreeMap<&'static str, &'static str>; 2] {
    let mut blocks = STYLE.split(":root {").skip(1).map(|block| {
        let block = block.split('}').next().unwrap();
        let colours = block.split(';').filter_map(|line| line.trim().split_once(": "));
        colours.filter_map(|(name, colour)| Some((name.strip_prefix("--")?, colour)))
    });
    let light: BTreeMap<_, _> = blocks.next().unwrap().collect();
    let mut dark = light.clone();
    dark.extend(blocks.next().unwrap());
    [light, dark]
}

/// Finds the rules that set both text and background to named colours.
fn rules() -> Vec<(&'static str, &'static str)> {
    let named = |rule: &'static str, key: &str| {
        let mut values = rule.split([';', '{']).filter_map(|line| line.trim().split_once(": "));
        let (_, value) = values.find(|(name, _)| *name == key)?;
        value.strip_prefix("var(--")?.strip_suffix(')')
    };
    let rules = STYLE.split('}');
    rules.filter_map(|rule| Some((named(rule, "color")?, named(rule, "background")?))).collect()
}

/// Returns the relative luminance of `#rgb` or `#rrggbb`.
fn luminance(colour: &str) -> f64 {
    let digits = colour.strip_prefix('#').unwrap();
    let channel = |at: usize| {
        let hex = match digits.len() {
            3 => digits[at..=at].repeat(2),
            _ => digits[2 * at..2 * at + 2].to_owned(),
        };
        let value = f64::from(u8::from_str_radix(&hex, 16).unwrap()) / 255.0;
        if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * channel(0) + 0.7152 * channel(1) + 0.0722 * channel(2)
}

fn contrast(one: &str, other: &str) -> f64 {
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

/// Spec: W7
#[test]
fn texts_stand_out_in_both_themes() {
    assert!((contrast("#000", "#ffffff") - 21.0).abs() < 1e-9);
    let rules = rules();
    for pair in [("tool", "ok-back"), ("bad-text", "bad-back"), ("warn", "warn-back")] {
        assert!(rules.contains(&pair), "{pair:?} of the pills is among the rules");
    }
    for theme in themes() {
        for (text, back) in rules.iter().chain(&INHERITED) {
            let found = contrast(theme[text], theme[back]);
            assert!(found >= LEAST, "--{text} on --{back}: {found:.2}");
        }
        for bar in ["tool", "bad"] {
            let found = contrast(theme["on-bar"], theme[bar]);
            assert!(found >= LEAST, "--on-bar on --{bar}: {found:.2}");
        }
    }
}
