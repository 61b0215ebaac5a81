//! Is this machine one that setup works on? Each refusal is one sentence that says what to do.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::sources::{self, Source, Style};

/// Advice for other distributions.
const CONTAINER: &str = "use the container instead, see \"Other distributions\" in README.md";

/// Checks the distribution, the architecture and the programs that setup runs.
pub(crate) fn check() -> Result<()> {
    let text = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    check_distribution(&text)?;
    for program in ["apt-get", "apt-cache", "dpkg-deb"] {
        if find_program(program).is_none() {
            bail!(
                "{program} is not on PATH, though this is a Debian; install apt and dpkg, or {CONTAINER}"
            );
        }
    }
    if !cfg!(target_arch = "x86_64") {
        bail!("the lab's setup needs an x86-64 host; {CONTAINER}");
    }
    Ok(())
}

fn check_distribution(os_release: &str) -> Result<()> {
    let field = |name: &str| {
        let value = os_release.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.unwrap_or_default().trim_matches('"')
    };
    if field("ID") != "debian" || field("VERSION_ID") != "12" {
        let name = Some(field("PRETTY_NAME"))
            .filter(|name| !name.is_empty())
            .unwrap_or("an unknown system");
        bail!(
            "this is {name}, and the lab is set up from Debian 12 packages that fit no other system; {CONTAINER}"
        );
    }
    Ok(())
}

/// Checks the characters of the cache folder's path. It goes into configuration files of apt and
/// make, which cannot quote everything.
pub(crate) fn check_cache(cache: &Path) -> Result<()> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+@=~".contains(&byte);
    if !cache.to_string_lossy().bytes().all(plain) {
        bail!(
            "{}: the cache folder's path may only have letters, digits and /._-+@=~ in it; choose another with RONDPOINT_CACHE",
            cache.display()
        );
    }
    std::fs::create_dir_all(cache)
        .with_context(|| format!("{}: cannot create the cache folder", cache.display()))
}

/// The first executable of that name on `PATH`.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Every entry of the user's apt sources.
pub(crate) fn apt_sources() -> Result<Vec<Source>> {
    let mut found = Vec::new();
    let list = Path::new("/etc/apt/sources.list");
    if list.exists() {
        found.extend(read_sources(list, Style::OneLine)?);
    }
    let mut files: Vec<_> = match std::fs::read_dir("/etc/apt/sources.list.d") {
        Ok(entries) => entries.filter_map(|entry| Some(entry.ok()?.path())).collect(),
        Err(_) => Vec::new(),
    };
    files.sort();
    for file in files {
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("list") => found.extend(read_sources(&file, Style::OneLine)?),
            Some("sources") => found.extend(read_sources(&file, Style::Deb822)?),
            _ => {}
        }
    }
    Ok(found)
}

fn read_sources(file: &Path, style: Style) -> Result<Vec<Source>> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("{}: cannot read", file.display()))?;
    Ok(sources::parse(&text, style))
}

/// Bytes that this user may still write to the file system of `folder`.
pub(crate) fn free_bytes(folder: &Path) -> Result<u64> {
    let output = Command::new("df")
        .args(["--output=avail", "--block-size=1"])
        .arg(folder)
        .output()
        .context("df: cannot run")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let number = text.lines().nth(1).and_then(|line| line.trim().parse().ok());
    number.with_context(|| {
        format!("df: expected a number of bytes for {}, got: {text}", folder.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_debian_12_is_taken() {
        assert!(check_distribution("ID=debian\nVERSION_ID=\"12\"\n").is_ok());
        let other =
            check_distribution("PRETTY_NAME=\"Fedora Linux 43\"\nID=fedora\nVERSION_ID=43\n");
        let message = other.unwrap_err().to_string();
        assert!(message.starts_with("this is Fedora Linux 43, and"), "{message}");
        assert!(message.ends_with("see \"Other distributions\" in README.md"), "{message}");
        assert!(check_distribution("ID=debian\nVERSION_ID=\"13\"\n").is_err());
        assert!(
            check_distribution("")
                .unwrap_err()
                .to_string()
                .starts_with("this is an unknown system")
        );
    }

    #[test]
    fn a_cache_path_that_make_cannot_quote_is_refused() {
        let message = check_cache(Path::new("/tmp/my cache")).unwrap_err().to_string();
        assert!(message.contains("RONDPOINT_CACHE"), "{message}");
    }
}
