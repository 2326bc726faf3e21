/// Any error that can be sent between threads, as in the `Other` variants.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
