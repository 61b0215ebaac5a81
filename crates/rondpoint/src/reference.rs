//! The help of every command as one page: docs/reference.md. `manual` writes it, and a test fails
//! if the page differs.

use std::fmt::Write as _;

use clap::Command;

/// Columns of the help texts.
const WIDTH: usize = 96;

const HEAD: &str = "\
# Reference

Generated from the command line by
`cargo run -p rondpoint --features manual -- manual target/manual`, which writes
`target/manual/reference.md`. A test compares this page with the command line.

## Files and variables

| name | meaning |
|---|---|
| `/etc/rondpoint/machine.toml` | links and bandwidths of this machine, read where `--machine` names no other file |
| `/etc/rondpoint/calibration.toml` | what `rondpoint calibrate` measured; read by all commands that decide or forecast |
| `/etc/rondpoint/rondpoint.toml` | configuration of the daemon |
| `/run/rondpoint/control` | the daemon's socket |
| `/run/rondpoint` | ledgers of the daemon and of root's managers: how each change is undone |
| `/run/rondpoint-root` | ledgers of root's managers where the daemon has a user of its own |
| `$XDG_RUNTIME_DIR/rondpoint` | ledgers of other users' managers |
| `SUDO_UID`, `SUDO_GID` | set by sudo; a program that `run` starts runs as this user |
| `PKEXEC_UID`, `DOAS_USER` | set by pkexec and doas; the same, for users of `/etc/passwd` |

## Kernels

[kernels.md](kernels.md) has what works on Linux 5.10, 6.1, 6.12 and the newest of Debian, each tried in the lab.
";

/// The page.
pub(crate) fn markdown(command: Command) -> String {
    let mut command = command.term_width(WIDTH);
    command.build();
    let mut page = HEAD.to_string();
    put(&mut page, "rondpoint", &mut command.clone());
    let names: Vec<String> = command
        .get_subcommands()
        .filter(|one| !one.is_hide_set() && one.get_name() != "help")
        .map(|one| one.get_name().to_string())
        .collect();
    for name in names {
        if let Some(one) = command.find_subcommand_mut(&name) {
            put(&mut page, &format!("rondpoint {name}"), one);
        }
    }
    page
}

fn put(page: &mut String, title: &str, command: &mut Command) {
    let help = command.render_long_help().to_string();
    let _ = write!(page, "\n## {title}\n\n```text\n");
    for line in help.lines() {
        let _ = writeln!(page, "{}", line.trim_end());
    }
    page.push_str("```\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shown_command_is_there_with_its_flags() {
        let flag = clap::Arg::new("dry").long("dry-run").action(clap::ArgAction::SetTrue);
        let command = Command::new("rondpoint")
            .subcommand(Command::new("run").arg(flag))
            .subcommand(Command::new("secret").hide(true));
        let page = markdown(command);
        assert!(page.contains("\n## rondpoint run\n") && page.contains("--dry-run"), "{page}");
        assert!(!page.contains("secret"), "{page}");
    }
}
