//! `backstop init`

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use serde_json::json;

use crate::args::InitArgs;
use crate::exit::CliError;
use crate::output::{self, note};

/// Providers whose keys are searched for, with a model of each.
const KNOWN: [(&str, &str, &str); 3] = [
    ("anthropic", backstop_provider_anthropic::KEY_VARIABLE, "claude-sonnet-4-5"),
    ("openai", backstop_provider_openai::KEY_VARIABLE, "gpt-5-mini"),
    ("gemini", backstop_provider_gemini::KEY_VARIABLE, "gemini-2.5-flash"),
];

pub(crate) fn run(args: &InitArgs) -> Result<ExitCode, CliError> {
    let found = KNOWN
        .iter()
        .find(|(_, variable, _)| std::env::var(variable).is_ok_and(|key| !key.trim().is_empty()));
    let (model, script) = match found {
        Some((provider, variable, model)) => (
            format!("provider = \"{provider}\"                # its key is in {variable}\nmodel = \"{model}\""),
            None,
        ),
        None => (
            "# A script answers, because no key was found: it costs nothing. For a real model, change both lines:\n\
             #   provider = \"anthropic\"          (key in ANTHROPIC_API_KEY; or openai, gemini, ollama, bedrock)\n\
             #   model = \"claude-sonnet-4-5\"\n\
             provider = \"script\"\nscript = \"script.toml\""
                .to_owned(),
            Some(args.file.with_file_name("script.toml")),
        ),
    };
    let file_name = args.file.file_name().unwrap_or_default().to_string_lossy();
    let agent = include_str!("init/agent.toml").replace("{{model}}", &model);
    let agent = agent.replace("{{file}}", &file_name);
    // Nothing is written if one of the files exists.
    let files = || [Some(args.file.as_path()), script.as_deref()].into_iter().flatten();
    let there: Vec<&Path> = files().filter(|file| file.symlink_metadata().is_ok()).collect();
    if !there.is_empty() {
        return Err(exist(&there));
    }
    write(&args.file, &agent)?;
    if let Some(script) = &script {
        write(script, &include_str!("init/script.toml").replace("{{file}}", &file_name))?;
    }
    let written = files().map(|file| file.display().to_string());
    if args.json {
        let provider = found.map_or("script", |(provider, ..)| provider);
        let written: Vec<String> = written.collect();
        output::json(&json!({ "files": written, "provider": provider }))?;
        return Ok(ExitCode::SUCCESS);
    }
    written.into_iter().try_for_each(|file| output::line(&file))?;
    note("try it:");
    let file = args.file.to_string_lossy();
    note(&format!("  {}", output::command(&format!("run {}", output::quote_for_shell(&file)))));
    note(&format!("  {}", output::command(&format!("check {}", output::quote_for_shell(&file)))));
    Ok(ExitCode::SUCCESS)
}

fn write(file: &Path, text: &str) -> Result<(), CliError> {
    let opened = OpenOptions::new().write(true).create_new(true).open(file);
    let written = opened.and_then(|mut opened| opened.write_all(text.as_bytes()));
    written.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => exist(&[file]),
        _ => CliError::usage(format!("{}: cannot be written: {error}", file.display()))
            .with_hint("name a file in a folder that exists and that you may write to"),
    })
}

fn exist(files: &[&Path]) -> CliError {
    let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    let (are, them) = if names.len() == 1 { ("is", "that one") } else { ("are", "both") };
    CliError::usage(format!("{}: {are} there already", names.join(" and ")))
        .with_hint(format!("name another file, in another folder if need be, or take {them} away"))
}
