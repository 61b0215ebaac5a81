//! Names of users and groups in the configuration.

use rondpoint_linux::parse::accounts::number_of;

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Accounts {
    Users,
    Groups,
}

/// The number of an account of this machine, by its name or as it is written; `None` where there is
/// none of that name. The files are read without the system's name service: a static program ends
/// by SIGSEGV in it.
pub(super) fn number(accounts: Accounts, name: &str) -> Option<u32> {
    let path = match accounts {
        Accounts::Users => "/etc/passwd",
        Accounts::Groups => "/etc/group",
    };
    let written = name.parse().ok();
    written.or_else(|| number_of(&std::fs::read(path).ok()?, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_a_name_of_this_machine_or_a_number() {
        for accounts in [Accounts::Users, Accounts::Groups] {
            assert_eq!(number(accounts, "root"), Some(0));
            assert_eq!(number(accounts, "4711"), Some(4711));
            assert_eq!(number(accounts, "no such account"), None);
        }
    }
}
