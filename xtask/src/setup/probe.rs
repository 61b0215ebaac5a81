//! Does a guest kernel have what the lab and the product need? Any kernel of the series that passes
//! is taken.

/// Kernel options that must be built in, with the function that needs each.
const NEEDED: [(&str, &str); 17] = [
    ("CONFIG_NUMA", "more than one node"),
    ("CONFIG_ACPI_NUMA", "nodes as the firmware tables describe them"),
    ("CONFIG_ACPI_HMAT", "initiators and targets of memory-only nodes"),
    ("CONFIG_NUMA_BALANCING", "the kernel's own balancing, a baseline"),
    ("CONFIG_MIGRATION", "moving pages"),
    ("CONFIG_TRANSPARENT_HUGEPAGE", "huge pages as on a default Debian"),
    ("CONFIG_PERF_EVENTS", "perf_event_open"),
    ("CONFIG_KPROBES", "the guest driver, which finds functions by name"),
    ("CONFIG_MODULES", "loading the guest driver"),
    ("CONFIG_CPUSETS", "the tests of cpusets"),
    ("CONFIG_PROC_PAGE_MONITOR", "/proc/PID/pagemap"),
    ("CONFIG_POSIX_MQUEUE", "numad"),
    ("CONFIG_BLK_DEV_INITRD", "starting from an initial RAM disk"),
    ("CONFIG_RD_GZIP", "starting from a compressed initial RAM disk"),
    ("CONFIG_DEVTMPFS", "device nodes"),
    ("CONFIG_TMPFS", "/dev/shm"),
    ("CONFIG_SERIAL_8250_CONSOLE", "the guest's console"),
];

/// The missing options of a kernel with this configuration text, one phrase each.
pub(crate) fn lacking(config: &str) -> Vec<String> {
    let is_set = |option: &str| {
        config.lines().any(|line| line.strip_prefix(option).is_some_and(|rest| rest == "=y"))
    };
    let mut lacking: Vec<_> = NEEDED
        .iter()
        .filter(|(option, _)| !is_set(option))
        .map(|(option, purpose)| format!("{option}=y (for {purpose})"))
        .collect();
    if is_set("CONFIG_MODULE_SIG_FORCE") {
        lacking.push("CONFIG_MODULE_SIG_FORCE unset (the guest driver is not signed)".to_owned());
    }
    lacking
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> String {
        NEEDED.iter().map(|(option, _)| format!("{option}=y\n")).collect()
    }

    #[test]
    fn a_kernel_with_everything_is_taken() {
        assert_eq!(lacking(&good()), Vec::<String>::new());
    }

    #[test]
    fn a_module_or_a_comment_is_not_built_in() {
        let config = good().replace("CONFIG_KPROBES=y", "# CONFIG_KPROBES is not set");
        let config = config.replace("CONFIG_TMPFS=y", "CONFIG_TMPFS=m\nCONFIG_TMPFS_XATTR=y");
        assert_eq!(
            lacking(&config),
            [
                "CONFIG_KPROBES=y (for the guest driver, which finds functions by name)",
                "CONFIG_TMPFS=y (for /dev/shm)"
            ]
        );
    }

    #[test]
    fn enforced_signatures_are_refused() {
        let lacking = lacking(&(good() + "CONFIG_MODULE_SIG_FORCE=y\n"));
        assert_eq!(lacking, ["CONFIG_MODULE_SIG_FORCE unset (the guest driver is not signed)"]);
    }
}
