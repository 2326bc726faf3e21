/// Any error that can cross threads: what the `Other` variants hold.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
