//! rpm packages.

use anyhow::Result;
use rpm::{BuildConfig, CompressionType, Dependency, FileOptions, PackageBuilder};

use crate::Package;
use crate::payload::Entry;

/// The bytes of the package.
///
/// # Errors
/// A path or a script that rpm does not take.
pub(crate) fn build(package: &Package<'_>) -> Result<Vec<u8>> {
    let config = BuildConfig::v4()
        .compression(CompressionType::Gzip)
        .source_date(u32::try_from(package.time_s).unwrap_or(u32::MAX));
    let licence = "Apache-2.0 OR MIT";
    let mut builder = PackageBuilder::new(
        package.name,
        package.version,
        licence,
        package.machine,
        package.summary,
    );
    builder.using_config(config).release("1").description(package.description);
    builder.packager(package.maintainer).build_host("localhost");
    for (path, entry) in &package.payload.entries {
        let path = format!("/{path}");
        match entry {
            Entry::File { bytes, is_program, is_configuration } => {
                let mode = if *is_program { 0o755 } else { 0o644 };
                let mut options = FileOptions::new(path).permissions(mode);
                if *is_configuration {
                    options = options.config().noreplace();
                }
                builder.with_file_contents(bytes.clone(), options)?;
            }
            Entry::Link(target) => {
                builder.with_symlink(FileOptions::symlink(path, target.as_str()))?;
            }
        }
    }
    for (name, script) in &package.scripts {
        let text = String::from_utf8_lossy(script).into_owned();
        match *name {
            "postinst" => builder.post_install_script(text),
            "prerm" => builder.pre_uninstall_script(text),
            "postrm" => builder.post_uninstall_script(text),
            _ => continue,
        };
    }
    if let (Some((major, minor)), true) = (package.glibc, package.needs_glibc) {
        builder.requires(Dependency::any(format!("libc.so.6(GLIBC_{major}.{minor})(64bit)")));
    }
    let mut bytes = Vec::new();
    builder.build()?.write(&mut bytes)?;
    Ok(bytes)
}
