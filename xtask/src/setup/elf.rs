//! Reads ELF files: which symbols a program offers to its plugins, and which shared libraries it
//! needs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use object::elf::{DT_NEEDED, FileHeader64};
use object::read::elf::{Dyn as _, ElfFile64, FileHeader as _};
use object::{Endianness, Object as _, ObjectSymbol as _};

/// Symbols that the lab's plugin looks up in QEMU when it starts. They are the plugin interface
/// (version 4), and internals for the clock, the round-robin vCPU loop and interrupts. A test
/// compares this with the plugin's own table.
const SYMBOLS: [&str; 30] = [
    "async_run_on_cpu",
    "cpu_exit",
    "cpu_interrupt",
    "cpu_pause",
    "cpu_resume",
    "cpu_thread_is_idle",
    "object_class_by_name",
    "qemu_clock_advance_virtual_time",
    "qemu_clock_deadline_ns_all",
    "qemu_get_cpu",
    "qemu_plugin_get_hwaddr",
    "qemu_plugin_hwaddr_is_io",
    "qemu_plugin_hwaddr_phys_addr",
    "qemu_plugin_insn_data",
    "qemu_plugin_insn_size",
    "qemu_plugin_insn_vaddr",
    "qemu_plugin_mem_get_value",
    "qemu_plugin_register_atexit_cb",
    "qemu_plugin_register_vcpu_init_cb",
    "qemu_plugin_register_vcpu_insn_exec_cb",
    "qemu_plugin_register_vcpu_mem_cb",
    "qemu_plugin_register_vcpu_tb_exec_cond_cb",
    "qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu",
    "qemu_plugin_register_vcpu_tb_trans_cb",
    "qemu_plugin_reset",
    "qemu_plugin_scoreboard_find",
    "qemu_plugin_scoreboard_new",
    "qemu_plugin_tb_get_insn",
    "qemu_plugin_tb_n_insns",
    "tcg_cpu_init_cflags",
];

/// The needed symbols that the program does not export, sorted.
pub(crate) fn missing_symbols(program: &Path) -> Result<Vec<&'static str>> {
    let bytes = read(program)?;
    let file = parse(program, &bytes)?;
    let exported: BTreeSet<&str> = file
        .dynamic_symbols()
        .filter(|symbol| !symbol.is_undefined())
        .filter_map(|symbol| symbol.name().ok())
        .collect();
    Ok(SYMBOLS.into_iter().filter(|symbol| !exported.contains(symbol)).collect())
}

/// The shared libraries that `program` needs, directly or not, found in `folders`, in order of
/// their names.
///
/// Names in `given` come from elsewhere and are neither looked for nor returned.
pub(crate) fn libraries(
    program: &Path,
    folders: &[PathBuf],
    given: &[&str],
) -> Result<Vec<PathBuf>> {
    let mut found: BTreeMap<String, PathBuf> = BTreeMap::new();
    let mut open = vec![program.to_owned()];
    while let Some(path) = open.pop() {
        for name in needed(&path)? {
            if given.contains(&name.as_str()) || found.contains_key(&name) {
                continue;
            }
            let Some(library) =
                folders.iter().map(|folder| folder.join(&name)).find(|path| path.exists())
            else {
                bail!(
                    "{}: needs {name}, which none of the unpacked packages brings",
                    path.display()
                );
            };
            open.push(library.clone());
            found.insert(name, library);
        }
    }
    Ok(found.into_values().collect())
}

/// The names under `DT_NEEDED`; none in a static program.
fn needed(path: &Path) -> Result<Vec<String>> {
    let bytes = read(path)?;
    let file = parse(path, &bytes)?;
    let endian = file.endian();
    let names = || -> object::Result<Vec<String>> {
        let sections = file.elf_header().sections(endian, &*bytes)?;
        let Some((entries, strings)) = sections.dynamic(endian, &*bytes)? else {
            return Ok(Vec::new());
        };
        let strings = sections.strings(endian, &*bytes, strings)?;
        entries
            .iter()
            .filter(|entry| entry.tag32(endian) == Some(DT_NEEDED))
            .map(|entry| Ok(String::from_utf8_lossy(entry.string(endian, strings)?).into_owned()))
            .collect()
    };
    names().with_context(|| format!("{}: damaged dynamic section", path.display()))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("{}: cannot read", path.display()))
}

fn parse<'data>(path: &Path, bytes: &'data [u8]) -> Result<ElfFile64<'data, Endianness>> {
    let header = FileHeader64::<Endianness>::parse(bytes)
        .with_context(|| format!("{}: expected a 64-bit ELF file", path.display()))?;
    let machine = header.endian().map(|endian| header.e_machine(endian));
    if machine != Ok(object::elf::EM_X86_64) {
        bail!("{}: expected an x86-64 ELF file", path.display());
    }
    ElfFile64::parse(bytes).with_context(|| format!("{}: damaged ELF file", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_program_needs_the_c_library_and_exports_nothing_of_qemu() {
        let program = std::env::current_exe().unwrap();
        let needed = needed(&program).unwrap();
        assert!(needed.iter().any(|name| name == "libc.so.6"), "{needed:?}");
        let missing = missing_symbols(&program).unwrap();
        assert_eq!(missing, SYMBOLS);
    }

    #[test]
    fn setup_looks_for_what_the_plugin_looks_up() {
        let table =
            std::fs::read_to_string(crate::tidy::root().join("lab/plugin/src/qemu.rs")).unwrap();
        let quoted =
            table.lines().filter_map(|line| line.split_once(" = \"")?.1.split_once("\": "));
        let names: BTreeSet<_> = quoted.map(|(name, _)| name).collect();
        assert_eq!(names.into_iter().collect::<Vec<_>>(), SYMBOLS);
    }

    #[test]
    fn a_library_that_is_nowhere_is_named_with_the_file_that_needs_it() {
        let program = std::env::current_exe().unwrap();
        let error = libraries(&program, &[], &["libgcc_s.so.1", "ld-linux-x86-64.so.2"])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("needs libc.so.6, which none of the unpacked packages brings"),
            "{error}"
        );
    }

    #[test]
    fn a_text_file_is_not_an_elf_file() {
        let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let error = missing_symbols(&text).unwrap_err().to_string();
        assert!(error.ends_with("Cargo.toml: expected a 64-bit ELF file"), "{error}");
    }
}
