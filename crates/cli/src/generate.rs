//! `weir generate`: manual pages and completions of shells, made from the command lines that the program parses.
//!
//! It is for making packages, so `weir --help` does not show it.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::builder::Resettable;
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::error::CliError;

/// The shells that complete words.
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

/// The section of the manual for commands, and that for those of the system's administration.
const COMMANDS: &str = "1";
const ADMINISTRATION: &str = "8";

/// Arguments of `weir generate`.
#[derive(Debug, Args)]
pub(crate) struct GenerateArguments {
    /// A directory, which may be new. Manual pages go to man1 and man8 in it, the rest to completions
    directory: PathBuf,
}

/// Writes a page for each program and for each of its commands. The first is this program, which has commands and
/// completions; the others are what it is by other names.
pub(crate) fn run(
    arguments: &GenerateArguments,
    programs: impl IntoIterator<Item = Command>,
) -> Result<(), CliError> {
    let mut section = COMMANDS;
    for program in programs {
        if section == COMMANDS {
            complete(program.clone(), &made(arguments.directory.join("completions"))?)?;
        }
        // The pages need no page of `help`.
        let mut program = program.disable_help_subcommand(true);
        program.build();
        pages(&program, section, &made(arguments.directory.join(format!("man{section}")))?)?;
        section = ADMINISTRATION;
    }
    Ok(())
}

/// The directory, which is there now.
fn made(directory: PathBuf) -> Result<PathBuf, CliError> {
    match std::fs::create_dir_all(&directory) {
        Ok(()) => Ok(directory),
        Err(source) => Err(CliError::File { doing: "create", path: directory, source }),
    }
}

/// Writes the completions of a program, under the names that the shells expect.
fn complete(mut program: Command, directory: &Path) -> Result<(), CliError> {
    let name = program.get_name().to_owned();
    for shell in SHELLS {
        clap_complete::generate_to(shell, &mut program, &name, directory).map_err(|source| {
            CliError::File { doing: "write completions to", path: directory.to_owned(), source }
        })?;
    }
    Ok(())
}

/// Writes the page of a command, and those of its own commands.
fn pages(command: &Command, section: &str, directory: &Path) -> Result<(), CliError> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let path = directory.join(format!("{name}.{section}"));
    File::create(&path).and_then(|file| page(command, section, file)).map_err(|source| CliError::File {
        doing: "write",
        path,
        source,
    })?;
    command.get_subcommands().try_for_each(|below| pages(below, section, directory))
}

fn page(command: &Command, section: &str, mut output: impl Write) -> io::Result<()> {
    // What `--help` ends with is made to be read as it stands, and would be run together.
    let described = command.clone().after_help(Resettable::Reset);
    Man::new(described).section(section).manual("Weir").render(&mut output)?;
    match command.get_after_help() {
        Some(text) => output.write_all(notes(&text.to_string()).as_bytes()),
        None => Ok(()),
    }
}

/// The end of a page: of lines such as `  weir ls   what it does` each a paragraph, with the command as its tag.
fn notes(text: &str) -> String {
    let mut notes = String::from(".SH NOTES\n");
    for line in text.lines() {
        let escaped = line.replace('\\', "\\e").replace('-', "\\-");
        match escaped.strip_prefix("  ").and_then(|line| line.split_once("  ")) {
            Some((tag, meaning)) => {
                notes.push_str(&format!(".TP\n\\fB{tag}\\fR\n{}\n", meaning.trim_start()))
            }
            None if line.is_empty() => notes.push_str(".PP\n"),
            None => notes.push_str(&format!("{escaped}\n")),
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_stands_in_columns_becomes_tags_and_paragraphs() {
        let text = "Examples:\n  weir ls -l a    a list\n\nThe end \\o/";
        let page = ".SH NOTES\nExamples:\n.TP\n\\fBweir ls \\-l a\\fR\na list\n.PP\nThe end \\eo/\n";
        assert_eq!(super::notes(text), page);
    }
}
