//! `backstop codes`

use std::process::ExitCode;

use layer0::code::CATALOGUE;

use crate::args::CodesArgs;
use crate::exit::CliError;
use crate::output;

pub(crate) fn run(args: &CodesArgs) -> Result<ExitCode, CliError> {
    let prefix = args.prefix.as_deref().unwrap_or_default();
    let mut entries = CATALOGUE.iter().filter(|entry| entry.code.starts_with(prefix)).peekable();
    if entries.peek().is_none() {
        return Err(CliError::usage(format!("no code begins with `{prefix}`"))
            .with_hint("`backstop codes` lists all of them"));
    }
    if args.json {
        entries.try_for_each(output::json)?;
    } else {
        let rows: Vec<Vec<String>> = entries
            .map(|entry| vec![entry.code.to_owned(), format!("{} {}", entry.meaning, entry.advice)])
            .collect();
        output::table(&["CODE", "MEANING"], &rows)?;
    }
    Ok(ExitCode::SUCCESS)
}
