//! `./x setup --kernels`: the kernels of other Debian releases than the lab's, for
//! `./x lab kernels`. Of each package only the image stays in the cache.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::apt::{Download, PrivateRoot};
use super::plan::Group;
use super::{LISTS_BYTES, UNPACKED_PER_PACKED, check_space, lock, megabytes, sources};
use super::{system, unpack};

/// Debian's releases, the oldest kernel first. The lab's own kernel, 6.12, is between the last two.
pub(crate) const RELEASES: [&str; 3] = ["bullseye", "bookworm", "sid"];

/// The package that depends on each release's kernel.
const META: &str = "linux-image-amd64";

/// Folder of the images in the cache.
const FOLDER: &str = "kernels";

/// The images, ascending by release. Fetches missing ones; with `refresh`, fetches all.
pub(crate) fn provide(cache: &Path, refresh: bool) -> Result<Vec<PathBuf>> {
    RELEASES.iter().map(|release| provide_one(cache, release, refresh)).collect()
}

fn provide_one(cache: &Path, release: &str, refresh: bool) -> Result<PathBuf> {
    let folder = cache.join(FOLDER).join(release);
    if let Some(image) = image_in(&folder).filter(|_| !refresh) {
        return Ok(image);
    }
    system::check()?;
    system::check_cache(cache)?;
    let _lock = lock(cache)?;
    check_space(LISTS_BYTES, cache)?;
    let work = cache.join(FOLDER).join(format!("{release}.partial"));
    remove(&work)?;
    let sources = sources::sources_of(&system::apt_sources()?, release)
        .context("no entry of your apt sources carries Debian's main; setup uses its mirror")?;
    let apt = PrivateRoot::create(&work.join("apt"), &sources)?;
    apt.update()?;
    let all =
        apt.closure(None, &[META.to_owned()]).with_context(|| format!("{release}: {META}"))?;
    let group = Group { name: "image", downloads: all.into_iter().filter(has_image).collect() };
    let bytes = group.downloads.iter().map(|download| download.bytes).sum::<u64>();
    check_space(bytes * (1 + UNPACKED_PER_PACKED), cache)?;
    let names: Vec<&str> = group.downloads.iter().map(|one| one.name.as_str()).collect();
    eprintln!("fetching {} of {release}, {:.0} MB", names.join(" and "), megabytes(bytes));
    apt.fetch(&group.downloads.iter().collect::<Vec<_>>())?;
    let tree = unpack::unpack(&group, &apt.archives(), &work, &mut |_| ())?;
    let found = image_beneath(&tree)
        .with_context(|| format!("{release}: found no kernel in {}", names.join(", ")))?;
    let image = keep(&found, &folder)?;
    remove(&work)?;
    Ok(image)
}

/// Puts the image into its folder, as the only file there.
fn keep((from, kernel): &(PathBuf, String), folder: &Path) -> Result<PathBuf> {
    remove(folder)?;
    fs::create_dir_all(folder).with_context(|| format!("{}: cannot create", folder.display()))?;
    let image = folder.join(format!("vmlinuz-{kernel}"));
    fs::rename(from, &image).with_context(|| format!("{}: cannot move", from.display()))?;
    Ok(image)
}

/// Whether a package holds a kernel: `linux-image-…`, or in newer releases `linux-binary-…`. Both
/// names continue with a version.
fn has_image(download: &Download) -> bool {
    let of = |head| download.name.strip_prefix(head);
    let rest = of("linux-image-").or_else(|| of("linux-binary-"));
    rest.is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

/// The kept image.
fn image_in(folder: &Path) -> Option<PathBuf> {
    let name = entries(folder).find(|name| name.starts_with("vmlinuz-"))?;
    Some(folder.join(name))
}

/// The image in a tree of packages, beneath `boot` or beside the modules, and its `uname -r`.
fn image_beneath(tree: &Path) -> Option<(PathBuf, String)> {
    let boot = tree.join("boot");
    if let Some(image) = image_in(&boot) {
        let name = image.file_name()?.to_str()?.strip_prefix("vmlinuz-")?.to_owned();
        return Some((image, name));
    }
    let modules = tree.join("usr/lib/modules");
    entries(&modules)
        .map(|name| (modules.join(&name).join("vmlinuz"), name))
        .find(|(image, _)| image.is_file())
}

fn entries(folder: &Path) -> impl Iterator<Item = String> {
    let all = fs::read_dir(folder).into_iter().flatten().flatten();
    all.filter_map(|entry| entry.file_name().into_string().ok())
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            bail!("{}: cannot remove: {error}", folder.display())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_with_the_kernel_is_known_in_old_and_new_releases() {
        let has = |name: &str| {
            let text = String::new();
            has_image(&Download {
                name: name.to_owned(),
                version: text.clone(),
                file: text.clone(),
                bytes: 1,
                sha256: text,
            })
        };
        assert!(has("linux-image-5.10.0-32-amd64") && has("linux-binary-7.2.13+deb14-amd64"));
        assert!(!has(META) && !has("linux-base-7.2.13+deb14-amd64") && !has("linux-base"));
    }

    #[test]
    fn the_kernel_is_found_in_both_places_and_kept_alone() {
        let cache = tempfile::tempdir().expect("a folder");
        let put = |path: &str| {
            let path = cache.path().join(path);
            fs::create_dir_all(path.parent().expect("has one")).expect("made");
            fs::write(path, "").expect("written");
        };
        put("old/boot/config-5.10");
        put("old/boot/vmlinuz-5.10");
        put("new/usr/lib/modules/7.2/vmlinuz");
        let kernel = |tree: &str| image_beneath(&cache.path().join(tree)).map(|(_, name)| name);
        assert_eq!(kernel("old").as_deref(), Some("5.10"));
        assert_eq!(kernel("new").as_deref(), Some("7.2"));
        assert_eq!(kernel("none"), None);
        let folder = cache.path().join("sid");
        put("sid/vmlinuz-7.1");
        let found = image_beneath(&cache.path().join("new")).expect("there");
        assert_eq!(keep(&found, &folder).expect("kept"), folder.join("vmlinuz-7.2"));
        assert_eq!(entries(&folder).collect::<Vec<_>>(), ["vmlinuz-7.2"]);
    }
}
