use super::Code;

impl Code {
    /// Returns whether this is the given code, or belongs to the given family such as `provider.*`.
    ///
    /// ```
    /// use layer0::{Code, code};
    ///
    /// let code = Code::new(code::PROVIDER_TIMEOUT);
    /// assert!(code.matches("provider.timeout") && code.matches("provider.*") && code.matches("*"));
    /// assert!(!code.matches("provider"));
    /// ```
    #[must_use]
    pub fn matches(&self, wanted: &str) -> bool {
        match wanted.strip_suffix('*') {
            Some(family) => self.as_str().starts_with(family),
            None => self.as_str() == wanted,
        }
    }
}
