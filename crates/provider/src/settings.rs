use std::ops::RangeInclusive;
use std::sync::Arc;

use layer0::code;
use layer0::failure::{Effect, Facts, Failure};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use thiserror::Error;

/// Settings for a model's answer. A setting that is absent is the provider's default.
///
/// A provider refuses unsupported settings with
/// [`Provider::check_settings`](crate::Provider::check_settings), which an agent calls when it is
/// built.
///
/// ```
/// use backstop_provider::{ModelSettings, ReasoningEffort};
///
/// let settings = ModelSettings::new()
///     .max_output_tokens(4_096)
///     .reasoning_effort(ReasoningEffort::Low)
///     .stop(["END"]);
/// assert_eq!(settings.top_p, None);
/// ```
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[non_exhaustive]
pub struct ModelSettings {
    /// The most tokens of an answer.
    pub max_output_tokens: Option<u32>,
    /// The variation of answers, 0.0 to 2.0.
    pub temperature: Option<f32>,
    /// The part of the probability mass from which answers are drawn, 0.0 to 1.0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f32>,
    /// The texts at which the answer stops; the answer does not contain them.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub stop: Arc<[Arc<str>]>,
    /// A seed that makes answers to one request alike, as far as the provider supports that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// The effort of thinking before the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_effort: Option<ReasoningEffort>,
    /// Whether the model may, must or must not call a tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
}

impl ModelSettings {
    /// Makes settings that leave everything to the provider.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the most tokens of an answer, at least 1.
    #[must_use]
    pub const fn max_output_tokens(mut self, tokens: u32) -> Self {
        self.max_output_tokens = Some(tokens);
        self
    }

    /// Sets the variation of answers, 0.0 to 2.0.
    #[must_use]
    pub const fn temperature(mut self, temperature: f32) -> Self {
        self.temperature = Some(temperature);
        self
    }

    /// Sets the part of the probability mass from which answers are drawn, 0.0 to 1.0.
    #[must_use]
    pub const fn top_p(mut self, top_p: f32) -> Self {
        self.top_p = Some(top_p);
        self
    }

    /// Sets the texts at which the answer stops, none of them empty.
    #[must_use]
    pub fn stop<T: Into<Arc<str>>>(mut self, texts: impl IntoIterator<Item = T>) -> Self {
        self.stop = texts.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the seed that makes answers to one request alike.
    #[must_use]
    pub const fn seed(mut self, seed: i64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Sets the effort of thinking before the answer.
    #[must_use]
    pub const fn reasoning_effort(mut self, effort: ReasoningEffort) -> Self {
        self.reasoning_effort = Some(effort);
        self
    }

    /// Sets whether the model may, must or must not call a tool.
    #[must_use]
    pub fn tool_choice(mut self, choice: ToolChoice) -> Self {
        self.tool_choice = Some(choice);
        self
    }

    /// Lowers the most tokens of an answer to the rest of a budget.
    #[must_use]
    pub fn cap_output_tokens(mut self, left: Option<u64>) -> Self {
        // A budget beyond the output of any model is no cap; without a value, the provider's
        // default applies.
        let left = left.filter(|left| *left < u64::from(MAX_ANSWER_TOKENS));
        if let Some(left) = left.and_then(|left| u32::try_from(left).ok()) {
            let left = left.max(1);
            self.max_output_tokens = Some(self.max_output_tokens.map_or(left, |max| max.min(left)));
        }
        self
    }
}

/// An upper bound of a model's output.
const MAX_ANSWER_TOKENS: u32 = 128_000;

/// Whether the model may, must or must not call a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolChoice {
    /// The model decides.
    Auto,
    /// The model calls no tool.
    None,
    /// The model calls at least one tool.
    Required,
    /// The model calls this tool.
    #[serde(untagged)]
    Tool(Arc<str>),
}

impl ToolChoice {
    /// Reads a choice as written in files: `auto`, `none`, `required`, or the name of a tool.
    #[must_use]
    pub fn from_word(word: &str) -> Self {
        match word {
            "auto" => Self::Auto,
            "none" => Self::None,
            "required" => Self::Required,
            tool => Self::Tool(tool.into()),
        }
    }

    /// Returns the word used in files; for a certain tool, its name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Auto => "auto",
            Self::None => "none",
            Self::Required => "required",
            Self::Tool(name) => name,
        }
    }

    /// Returns whether the model must call a tool.
    #[must_use]
    pub const fn forces_a_call(&self) -> bool {
        matches!(self, Self::Required | Self::Tool(_))
    }
}

/// The effort of a model's thinking before it answers. Each provider defines the cost of a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ReasoningEffort {
    /// No thinking.
    None,
    /// The least effort.
    Minimal,
    /// Low effort.
    Low,
    /// Medium effort.
    Medium,
    /// High effort.
    High,
    /// More than high effort.
    XHigh,
    /// The greatest effort.
    Max,
}

impl ReasoningEffort {
    /// All levels, the lowest first.
    pub const ALL: [Self; 7] =
        [Self::None, Self::Minimal, Self::Low, Self::Medium, Self::High, Self::XHigh, Self::Max];

    /// Returns the word used in files and by most providers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::XHigh => "xhigh",
            Self::Max => "max",
        }
    }
}

/// The settings that a provider supports; others are refused. Every provider supports a maximum of
/// output tokens and a temperature.
///
/// ```
/// use backstop_provider::{ModelSettings, SettingsSupport};
///
/// let support = SettingsSupport::basic().top_p(true).stop(4);
/// assert!(support.check("mine", &ModelSettings::new().top_p(0.9)).is_ok());
/// let refused = support.check("mine", &ModelSettings::new().seed(7)).unwrap_err();
/// assert_eq!(refused.to_string(), "`mine` has no `seed`");
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct SettingsSupport {
    max_temperature: f32,
    top_p: bool,
    max_stop: usize,
    seeds: Option<RangeInclusive<i64>>,
    efforts: &'static [ReasoningEffort],
    chooses_tools: bool,
    can_forbid_tools: bool,
}

impl SettingsSupport {
    /// Returns the support of a provider with only a maximum of output tokens and a temperature.
    #[must_use]
    pub const fn basic() -> Self {
        Self {
            max_temperature: 2.0,
            top_p: false,
            max_stop: 0,
            seeds: None,
            efforts: &[],
            chooses_tools: false,
            can_forbid_tools: false,
        }
    }

    /// Returns the support of a provider with every setting.
    #[must_use]
    pub const fn all() -> Self {
        Self {
            max_temperature: 2.0,
            top_p: true,
            max_stop: usize::MAX,
            seeds: Some(i64::MIN..=i64::MAX),
            efforts: &ReasoningEffort::ALL,
            chooses_tools: true,
            can_forbid_tools: true,
        }
    }

    /// Sets the highest supported temperature.
    #[must_use]
    pub fn max_temperature(mut self, max: f32) -> Self {
        self.max_temperature = max;
        self
    }

    /// Sets whether `top_p` is supported.
    #[must_use]
    pub fn top_p(mut self, yes: bool) -> Self {
        self.top_p = yes;
        self
    }

    /// Sets the maximum number of stop sequences.
    #[must_use]
    pub fn stop(mut self, max: usize) -> Self {
        self.max_stop = max;
        self
    }

    /// Sets the supported seeds.
    #[must_use]
    pub fn seeds(mut self, seeds: RangeInclusive<i64>) -> Self {
        self.seeds = Some(seeds);
        self
    }

    /// Sets the supported levels of effort.
    #[must_use]
    pub fn efforts(mut self, efforts: &'static [ReasoningEffort]) -> Self {
        self.efforts = efforts;
        self
    }

    /// Declares that a request can force a tool call, and whether it can forbid one.
    #[must_use]
    pub fn tool_choice(mut self, can_forbid: bool) -> Self {
        self.chooses_tools = true;
        self.can_forbid_tools = can_forbid;
        self
    }

    /// Refuses the first unsupported setting.
    ///
    /// # Errors
    ///
    /// [`UnsupportedSetting`] for this setting.
    pub fn check(
        &self,
        provider: &str,
        settings: &ModelSettings,
    ) -> Result<(), UnsupportedSetting> {
        let refuse = |setting| UnsupportedSetting::new(provider, setting);
        if settings.max_output_tokens == Some(0) {
            return Err(refuse("max_output_tokens").with_values(0, "from 1 on"));
        }
        // NaN is in no range.
        let temperatures = 0.0..=self.max_temperature;
        if let Some(given) = settings.temperature.filter(|given| !temperatures.contains(given)) {
            let takes = format!("from 0 to {}", self.max_temperature);
            return Err(refuse("temperature").with_values(given, takes));
        }
        match settings.top_p {
            Some(_) if !self.top_p => return Err(refuse("top_p")),
            Some(given) if !(0.0..=1.0).contains(&given) => {
                return Err(refuse("top_p").with_values(given, "from 0 to 1"));
            }
            _ => {}
        }
        if self.max_stop > 0 && settings.stop.iter().any(|text| text.is_empty()) {
            return Err(refuse("stop").with_values("", "texts that are not empty"));
        }
        match settings.stop.len() {
            0 => {}
            _ if self.max_stop == 0 => return Err(refuse("stop")),
            given if given > self.max_stop => {
                let takes = format!("at most {}", self.max_stop);
                return Err(refuse("stop").with_values(format!("{given} texts"), takes));
            }
            _ => {}
        }
        match (settings.seed, &self.seeds) {
            (Some(_), None) => return Err(refuse("seed")),
            (Some(seed), Some(seeds)) if !seeds.contains(&seed) => {
                let takes = format!("from {} to {}", seeds.start(), seeds.end());
                return Err(refuse("seed").with_values(seed, takes));
            }
            _ => {}
        }
        match settings.reasoning_effort {
            Some(_) if self.efforts.is_empty() => return Err(refuse("reasoning_effort")),
            Some(effort) if !self.efforts.contains(&effort) => {
                let takes: Vec<&str> = self.efforts.iter().map(|effort| effort.as_str()).collect();
                return Err(
                    refuse("reasoning_effort").with_values(effort.as_str(), takes.join(", "))
                );
            }
            _ => {}
        }
        match &settings.tool_choice {
            // The behaviour of a provider without the setting.
            None | Some(ToolChoice::Auto) => Ok(()),
            Some(_) if !self.chooses_tools => Err(refuse("tool_choice")),
            Some(ToolChoice::None) if !self.can_forbid_tools => {
                Err(refuse("tool_choice")
                    .with_values("none", "auto, required or the name of a tool"))
            }
            Some(_) => Ok(()),
        }
    }
}

/// The error that a provider does not support a setting, or not with this value.
///
/// Retry: never. Effect: none.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{provider}` {}", self.why())]
#[non_exhaustive]
pub struct UnsupportedSetting {
    /// The name of the provider in events.
    pub provider: Arc<str>,
    /// The name of the setting in agent files.
    pub setting: &'static str,
    /// The given value, and the supported values; `None` if the setting itself is not supported.
    pub value: Option<(String, String)>,
}

impl Failure for UnsupportedSetting {
    fn facts(&self) -> Facts {
        Facts::never(code::CONFIG_INVALID, Effect::None)
    }

    fn hint(&self) -> Option<Cow<'_, str>> {
        Some(Self::hint(self).into())
    }
}

impl UnsupportedSetting {
    /// Makes the error for an unsupported setting.
    #[must_use]
    pub fn new(provider: &str, setting: &'static str) -> Self {
        Self { provider: provider.into(), setting, value: None }
    }

    /// Makes it the error for an unsupported value of a setting.
    #[must_use]
    pub fn with_values(mut self, given: impl ToString, takes: impl ToString) -> Self {
        self.value = Some((given.to_string(), takes.to_string()));
        self
    }

    /// Returns advice on fixing it.
    #[must_use]
    pub const fn hint(&self) -> &'static str {
        match self.value {
            Some(_) => "set what it takes, or take the setting out",
            None => {
                "take the setting out, or ask a provider that has it; a field of its own goes into \
                 `extra_body`"
            }
        }
    }

    fn why(&self) -> String {
        let setting = self.setting;
        match &self.value {
            None => format!("has no `{setting}`"),
            Some((given, takes)) => {
                format!("does not take `{given}` as `{setting}`: it takes {takes}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> [ModelSettings; 7] {
        let new = ModelSettings::new;
        [
            new().top_p(0.5),
            new().stop(["END"]),
            new().seed(7),
            new().reasoning_effort(ReasoningEffort::Low),
            new().tool_choice(ToolChoice::Required),
            new().tool_choice(ToolChoice::None),
            new().tool_choice(ToolChoice::Tool("sql".into())),
        ]
    }

    /// Spec: P12
    #[test]
    fn a_basic_provider_refuses_further_settings() {
        for settings in settings() {
            assert!(SettingsSupport::basic().check("p", &settings).is_err(), "{settings:?}");
            assert_eq!(SettingsSupport::all().check("p", &settings), Ok(()), "{settings:?}");
        }
        let plain = ModelSettings::new().max_output_tokens(1).temperature(2.0);
        assert_eq!(SettingsSupport::basic().check("p", &plain), Ok(()));
        let auto = ModelSettings::new().tool_choice(ToolChoice::Auto);
        assert_eq!(SettingsSupport::basic().check("p", &auto), Ok(()));
    }

    /// Spec: P12
    #[test]
    fn a_refusal_says_what_is_taken() {
        #[track_caller]
        fn check(support: SettingsSupport, settings: ModelSettings, expected: &str) {
            let refused = support.check("p", &settings).unwrap_err();
            assert_eq!(refused.to_string(), expected);
        }
        let (basic, new) = (SettingsSupport::basic, ModelSettings::new);
        check(basic(), new().top_p(0.5), "`p` has no `top_p`");
        check(
            basic().max_temperature(1.0),
            new().temperature(1.5),
            "`p` does not take `1.5` as `temperature`: it takes from 0 to 1",
        );
        for (given, shown) in
            [(-0.5, "-0.5"), (2.1, "2.1"), (f32::NAN, "NaN"), (f32::INFINITY, "inf")]
        {
            let temperature =
                format!("`p` does not take `{shown}` as `temperature`: it takes from 0 to 2");
            check(basic(), new().temperature(given), &temperature);
            let top_p = format!("`p` does not take `{shown}` as `top_p`: it takes from 0 to 1");
            check(basic().top_p(true), new().top_p(given), &top_p);
        }
        check(
            basic(),
            new().max_output_tokens(0),
            "`p` does not take `0` as `max_output_tokens`: it takes from 1 on",
        );
        check(
            basic().stop(1),
            new().stop([""]),
            "`p` does not take `` as `stop`: it takes texts that are not empty",
        );
        check(
            basic().stop(1),
            new().stop(["a", "b"]),
            "`p` does not take `2 texts` as `stop`: it takes at most 1",
        );
        check(
            basic().seeds(0..=9),
            new().seed(-1),
            "`p` does not take `-1` as `seed`: it takes from 0 to 9",
        );
        check(
            basic().efforts(&[ReasoningEffort::Low, ReasoningEffort::High]),
            new().reasoning_effort(ReasoningEffort::Max),
            "`p` does not take `max` as `reasoning_effort`: it takes low, high",
        );
        check(
            basic().tool_choice(false),
            new().tool_choice(ToolChoice::None),
            "`p` does not take `none` as `tool_choice`: it takes auto, required or the name of a tool",
        );
    }

    #[test]
    fn a_choice_is_read_as_it_is_written() {
        for choice in [
            ToolChoice::Auto,
            ToolChoice::None,
            ToolChoice::Required,
            ToolChoice::Tool("sql".into()),
        ] {
            assert_eq!(ToolChoice::from_word(choice.as_str()), choice);
            assert_eq!(serde_json::to_value(&choice).unwrap(), choice.as_str());
        }
        for effort in ReasoningEffort::ALL {
            assert_eq!(serde_json::to_value(effort).unwrap(), effort.as_str());
        }
    }
}
