//! Writes the man pages, the shell completions and the reference of the command line. It is a
//! hidden subcommand of a build with the feature `manual`, which `./x dist` makes. The shipped
//! program does not have it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Command, ValueEnum};
use clap_complete::Shell;

use crate::{reference, terminal};

/// What `manual` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The folder that gets `man`, `completions` and `reference.md`
    folder: PathBuf,
}

/// Writes everything and prints each file's path.
pub(crate) fn main(arguments: &Arguments, command: Command) -> ExitCode {
    match write(&arguments.folder, command) {
        Ok(files) => {
            let list: String = files.iter().map(|file| format!("{}\n", file.display())).collect();
            match terminal::print(&list) {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::FAILURE,
            }
        }
        Err(error) => {
            let folder = arguments.folder.display();
            terminal::say(&format!("rondpoint: {folder}: cannot write: {error}\n"));
            ExitCode::FAILURE
        }
    }
}

/// One page for the program and one for each subcommand that help shows; a file for each shell.
fn write(folder: &Path, mut command: Command) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    // Before anything builds the command: its width is set then.
    let text = reference::markdown(command.clone());
    let shells = folder.join("completions");
    fs::create_dir_all(&shells)?;
    for shell in Shell::value_variants() {
        files.push(clap_complete::generate_to(*shell, &mut command, "rondpoint", &shells)?);
    }
    let page = folder.join("reference.md");
    fs::write(&page, text)?;
    files.push(page);
    let pages = folder.join("man");
    fs::create_dir_all(&pages)?;
    command.build();
    let is_shown = |one: &&Command| !one.is_hide_set() && one.get_name() != "help";
    let shown = command.get_subcommands().filter(is_shown).cloned();
    for page in std::iter::once(command.clone()).chain(shown) {
        // A built subcommand knows its full name, such as `rondpoint-run`.
        let name = page.get_display_name().unwrap_or(page.get_name()).to_owned();
        let file = pages.join(format!("{name}.1"));
        let mut text = Vec::new();
        clap_mangen::Man::new(page).title(name.to_uppercase()).render(&mut text)?;
        fs::write(&file, text)?;
        files.push(file);
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    #[test]
    fn each_shown_command_has_a_page_and_each_shell_a_file() {
        let flag = Arg::new("dry").long("dry-run").action(clap::ArgAction::SetTrue);
        let command = Command::new("rondpoint")
            .subcommand(Command::new("run").arg(flag))
            .subcommand(Command::new("secret").hide(true));
        let folder = tempfile::tempdir().expect("a folder");
        let files = write(folder.path(), command).expect("writes");
        let there = |name: &str| fs::read_to_string(folder.path().join(name)).expect("is there");
        assert!(there("man/rondpoint.1").contains("rondpoint\\-run(1)"));
        assert!(there("man/rondpoint-run.1").contains("\\-\\-dry\\-run"));
        assert!(there("completions/rondpoint.bash").contains("--dry-run"));
        assert!(files.iter().all(|file| !file.ends_with("rondpoint-secret.1")), "{files:?}");
        assert!(there("reference.md").contains("--dry-run"));
        assert_eq!(files.len(), 3 + Shell::value_variants().len());
    }
}
