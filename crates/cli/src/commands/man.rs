//! `backstop man`

use std::io;
use std::process::ExitCode;

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use crate::args::Args;
use crate::exit::CliError;
use crate::output;

pub(crate) fn run() -> Result<ExitCode, CliError> {
    let page = page().map_err(|error| CliError::internal("writing the page", error))?;
    output::foreign(page.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// Returns one page: the command, then each of its subcommands with all options.
fn page() -> io::Result<String> {
    let mut command = Args::command();
    command.build();
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page)?;
    let mut page = String::from_utf8_lossy(&page).into_owned();
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        page += &section(sub, "backstop")?;
    }
    Ok(page)
}

/// Returns the sections of a command and its subcommands.
fn section(command: &Command, above: &str) -> io::Result<String> {
    let name = format!("{above} {}", command.get_name());
    let mut text = Vec::new();
    let man = Man::new(command.clone());
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    // Its sections become subsections of the command's section.
    let text = String::from_utf8_lossy(&text).replace(".SH ", ".SS ");
    let mut section = format!(".SH {}\n{text}", name.to_uppercase());
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        section += &self::section(sub, &name)?;
    }
    Ok(section)
}
