//! Results of runs, by the digest of all inputs. Runs are deterministic, so a cached result need
//! not be computed again.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use rondpoint_machine::Machine;
use sha2::{Digest as _, Sha256};

use crate::lab::Lab;
use crate::result::RunResult;

/// A folder of results.
pub(crate) struct Cache {
    folder: PathBuf,
    /// Digest of what all runs share: emulator, plugin, kernel.
    common: Vec<u8>,
}

impl Cache {
    pub(crate) fn open(lab: &Lab) -> Result<Self> {
        let folder = lab.cache.join("results");
        fs::create_dir_all(&folder)
            .with_context(|| format!("{}: cannot create", folder.display()))?;
        let mut digest = Sha256::new();
        for package in &lab.installed.packages {
            digest.update(&package.name);
            digest.update(&package.sha256);
        }
        let plugin = &lab.built.plugin;
        digest.update(
            fs::read(plugin).with_context(|| format!("{}: cannot read", plugin.display()))?,
        );
        Ok(Self { folder, common: digest.finalize().to_vec() })
    }

    /// The name of the run with these inputs. The command and the guest's programs are in
    /// `archive`.
    pub(crate) fn key(&self, machine: &Machine, archive: &[u8], seed: u64) -> String {
        let mut digest = Sha256::new();
        digest.update(&self.common);
        digest.update(env!("CARGO_PKG_VERSION"));
        digest.update(machine.to_toml());
        digest.update(seed.to_le_bytes());
        digest.update(archive);
        digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// A result, if it is there and of this version.
    pub(crate) fn get(&self, key: &str) -> Option<RunResult> {
        serde_json::from_slice(&fs::read(self.folder.join(key)).ok()?).ok()
    }

    /// Keeps a result; a reader never sees half of it.
    pub(crate) fn put(&self, key: &str, result: &RunResult) -> Result<()> {
        let file = tempfile::NamedTempFile::new_in(&self.folder)?;
        serde_json::to_writer(&file, result)?;
        file.persist(self.folder.join(key))?;
        Ok(())
    }
}
