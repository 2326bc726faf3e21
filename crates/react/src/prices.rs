//! Prices of known models, as data: `prices.json`, with its day and its sources. `cargo xtask prices` compares it
//! with the table of another project.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use backstop_react_machine::Price;
use serde::Deserialize;

#[derive(Deserialize)]
struct Table {
    as_of: String,
    providers: BTreeMap<String, ListedPrices>,
}

#[derive(Deserialize)]
struct ListedPrices {
    source: String,
    models: BTreeMap<String, Price>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    serde_json::from_str(include_str!("prices.json")).expect("a test reads the table above")
});

/// Returns the price of a model at its own provider as of [`prices_date`]; `None` if the table does not have it. A
/// model name with a date has the price of the model; no price is guessed.
///
/// ```
/// use backstop_react::known_price;
///
/// let price = known_price("anthropic", "claude-sonnet-4-5-20250929");
/// assert_eq!(price.map(|price| price.input_per_mtok), Some(3.0));
/// assert_eq!(known_price("anthropic", "claude-of-tomorrow"), None);
/// ```
#[must_use]
pub fn known_price(provider: &str, model: &str) -> Option<Price> {
    let provider = if provider == "openai-responses" { "openai" } else { provider };
    let models = &TABLE.providers.get(provider)?.models;
    models.get(model).or_else(|| models.get(without_day(model)?)).copied()
}

/// The price of a known model, with its source and date.
///
/// ```
/// use backstop_react::known_prices;
///
/// let models = known_prices().filter(|known| known.provider == "anthropic");
/// let cheapest = models.min_by(|a, b| a.price.output_per_mtok.total_cmp(&b.price.output_per_mtok));
/// let cheapest = cheapest.expect("some are known");
/// println!("{}: {:?} ({}, {})", cheapest.model, cheapest.price, cheapest.source, cheapest.as_of);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct KnownPrice {
    /// The provider, as named in agent files, such as `anthropic`.
    pub provider: &'static str,
    /// The model name without a date.
    pub model: &'static str,
    /// The price of its tokens at the provider itself.
    pub price: Price,
    /// The page of the provider with the price.
    pub source: &'static str,
    /// The day of the price, such as `2026-03-21`.
    pub as_of: &'static str,
}

/// Lists the prices of known models, by provider and model.
pub fn known_prices() -> impl Iterator<Item = KnownPrice> {
    let table: &'static Table = &TABLE;
    table.providers.iter().flat_map(|(provider, listed)| {
        listed.models.iter().map(|(model, price)| KnownPrice {
            provider,
            model,
            price: *price,
            source: &listed.source,
            as_of: &table.as_of,
        })
    })
}

/// Returns the day of the table's prices, such as `2026-03-21`.
#[must_use]
pub fn prices_date() -> &'static str {
    &TABLE.as_of
}

/// Removes a date such as `-20250929` or `-2024-08-06`.
fn without_day(model: &str) -> Option<&str> {
    let digits =
        |text: &str, count| text.len() == count && text.bytes().all(|b| b.is_ascii_digit());
    let (rest, last) = model.rsplit_once('-')?;
    if digits(last, 8) {
        return Some(rest);
    }
    let (rest, month) = rest.rsplit_once('-').filter(|_| digits(last, 2))?;
    let (rest, year) = rest.rsplit_once('-').filter(|_| digits(month, 2))?;
    digits(year, 4).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: B1
    #[test]
    fn every_price_is_an_amount() {
        for (provider, listed) in &TABLE.providers {
            for (model, price) in &listed.models {
                assert!(price.check().is_ok(), "{provider} {model}");
                let cached = price.cached_input_per_mtok.unwrap_or_default();
                assert!(cached < price.input_per_mtok, "{provider} {model}");
                assert!(price.input_per_mtok <= price.output_per_mtok, "{provider} {model}");
            }
        }
        assert_eq!(prices_date().len(), 10);
    }

    /// Spec: B1
    #[test]
    fn every_known_price_names_its_source_and_day() {
        let known: Vec<KnownPrice> = known_prices().collect();
        let listed: usize = TABLE.providers.values().map(|listed| listed.models.len()).sum();
        assert_eq!((known.len(), known.len() > 20), (listed, true));
        for KnownPrice { provider, model, price, source, as_of } in known {
            assert_eq!(known_price(provider, model), Some(price), "{provider} {model}");
            assert!(source.starts_with("https://") && as_of == prices_date(), "{source}, {as_of}");
        }
    }

    /// Spec: B1
    #[test]
    fn only_the_named_model_is_priced() {
        #[track_caller]
        fn check(provider: &str, model: &str, input: Option<f64>) {
            assert_eq!(known_price(provider, model).map(|price| price.input_per_mtok), input);
        }
        check("openai", "gpt-4o", Some(2.5));
        check("openai-responses", "gpt-4o-2024-08-06", Some(2.5));
        check("anthropic", "claude-opus-4-1-20250805", Some(15.0));
        check("anthropic", "claude-opus-4-20250514", Some(15.0));
        for unknown in ["gpt-4o-audio", "gpt-4o-", "gpt", "", "gpt-4o-2024-08", "gpt-4o-latest"] {
            check("openai", unknown, None);
        }
        check("gemini", "gpt-4o", None);
    }

    /// Spec: B1
    #[test]
    fn table_knows_the_models_of_each_provider() {
        for (provider, model) in [
            ("anthropic", "claude-opus-5-5"),
            ("anthropic", "claude-sonnet-5"),
            ("bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
            ("bedrock", "amazon.nova-pro-v1:0"),
            ("gemini", "gemini-2.5-pro"),
            ("gemini", "gemini-3.5-flash"),
            ("openai", "gpt-5.4-mini"),
            ("openai-responses", "gpt-6-sol"),
        ] {
            assert!(known_price(provider, model).is_some(), "{provider} {model}");
        }
        assert!(include_str!("prices.json").len() < 60_000, "it is part of every program");
    }
}
