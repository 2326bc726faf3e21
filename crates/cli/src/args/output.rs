//! The amount and form of output.

/// Options of every command.
#[derive(clap::Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Log the runtime's steps to standard error, and print all causes of an error; -vv logs everything
    #[arg(short, long, global = true, action = clap::ArgAction::Count, conflicts_with = "quiet")]
    pub(crate) verbose: u8,
    /// Print only results and errors
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Colour the output; NO_COLOR is honoured
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Color,
    /// Format of log lines
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum Color {
    /// On a terminal
    Auto,
    Always,
    Never,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    Json,
    Text,
}

impl From<Color> for anstream::ColorChoice {
    fn from(color: Color) -> Self {
        match color {
            Color::Auto => Self::Auto,
            Color::Always => Self::Always,
            Color::Never => Self::Never,
        }
    }
}
