//! The line of `daemon --check-config`: the file that was read, and what the daemon would do.

use std::path::Path;

use super::{Config, SYSTEM_FILE};

impl Config {
    /// The line for the configuration of this file. `is_there`: the file exists.
    pub(crate) fn summary(&self, named: Option<&Path>, is_there: bool) -> String {
        let path = named.unwrap_or(Path::new(SYSTEM_FILE)).display();
        let read = match is_there {
            true => format!("{path} is valid"),
            false => format!("{path} is not there, so the defaults apply"),
        };
        let subjects = self.subjects();
        let policies = self.policy.policies.join(", ");
        match self.acts() {
            true => format!("{read}: the daemon would place {subjects}; policy {policies}"),
            false => format!("{read}: the daemon would observe {subjects}, and change nothing"),
        }
    }

    /// `at most 64 processes with 300 MiB and 0.5 CPUs or more, each with what it starts`.
    fn subjects(&self) -> String {
        let manage = &self.manage;
        let lists = [
            ("command", &manage.commands),
            ("unit", &manage.units),
            ("cgroup", &manage.cgroups),
            ("container", &manage.containers),
        ];
        let users: Vec<String> = manage.users.iter().map(ToString::to_string).collect();
        let mut named: Vec<String> = lists
            .into_iter()
            .chain([("user", &users)])
            .filter(|(_, names)| !names.is_empty())
            .map(|(what, names)| format!("{what} {}", names.join(", ")))
            .collect();
        let last = named.pop();
        let of = match (named.is_empty(), last) {
            (_, None) => String::new(),
            (true, Some(last)) => format!(" of {last}"),
            (false, Some(last)) => format!(" of {} or {last}", named.join("; ")),
        };
        let excluded = match self.exclude.is_empty() {
            true => "",
            false => ", without those that [exclude] names",
        };
        format!(
            "at most {} processes{of} with {} MiB and {} CPUs or more, each with what it \
             starts{excluded}",
            manage.most, manage.min_memory_mib, manage.min_cpus
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_names_the_file_the_task_and_the_processes() {
        let told = |text: &str, named: Option<&str>, is_there| {
            Config::parse(text).unwrap().summary(named.map(Path::new), is_there)
        };
        assert_eq!(
            told("", None, false),
            "/etc/rondpoint/rondpoint.toml is not there, so the defaults apply: the daemon would \
             observe at most 64 processes with 300 MiB and 0.5 CPUs or more, each with what it \
             starts, and change nothing"
        );
        let text = "mode = \"act\"\n[manage]\ncommands = [\"postgres\"]\nusers = [0]\nmost = 3\n\
                    [exclude]\nunits = [\"backup.service\"]";
        assert_eq!(
            told(text, Some("here.toml"), true),
            "here.toml is valid: the daemon would place at most 3 processes of command postgres or \
             user 0 with 300 MiB and 0.5 CPUs or more, each with what it starts, without those that \
             [exclude] names; policy auto"
        );
    }
}
