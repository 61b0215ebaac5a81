//! A container image as an OCI image layout (opencontainers/image-spec v1.1) in one tar archive.
//! `podman load -i FILE` and `skopeo copy oci-archive:FILE` read it. One layer: the program alone.

use anyhow::Result;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::payload::{Payload, gzip};
use crate::{deb, hex};

const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// The archive.
///
/// # Errors
/// As [`Payload::tar`].
pub(crate) fn build(program: &[u8], machine: &str, version: &str, time_s: u64) -> Result<Vec<u8>> {
    let mut files = Payload::default();
    files.add_program("usr/bin/rondpoint", program.to_vec());
    // So that user 0 has a name, and the group that may act can exist.
    files.add("etc/passwd", "root:x:0:0:root:/:/usr/bin/rondpoint\n");
    files.add("etc/group", "root:x:0:\n");
    let layer = files.tar("", time_s)?;
    let compressed = gzip(&layer)?;
    // Architectures have Go's names, which are Debian's.
    let architecture = deb::architecture(machine);
    let config = json!({
        "architecture": architecture,
        "os": "linux",
        "config": {
            "Entrypoint": ["/usr/bin/rondpoint"],
            "Cmd": ["--help"],
            "Labels": {
                "org.opencontainers.image.title": "rondpoint",
                "org.opencontainers.image.version": version,
                "org.opencontainers.image.licenses": "Apache-2.0 OR MIT",
            },
        },
        "rootfs": { "type": "layers", "diff_ids": [digest(&layer)] },
    });
    let config = serde_json::to_vec(&config)?;
    let manifest = serde_json::to_vec(&json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": descriptor(CONFIG, &config),
        "layers": [descriptor(LAYER, &compressed)],
    }))?;
    let mut index = descriptor(MANIFEST, &manifest);
    index["platform"] = json!({ "architecture": architecture, "os": "linux" });
    index["annotations"] = json!({ "org.opencontainers.image.ref.name": version });
    let index = json!({ "schemaVersion": 2, "manifests": [index] });
    let mut layout = Payload::default();
    layout.add("oci-layout", json!({ "imageLayoutVersion": "1.0.0" }).to_string());
    layout.add("index.json", index.to_string());
    for blob in [config, manifest, compressed] {
        layout.add(&format!("blobs/sha256/{}", hex(&Sha256::digest(&blob))), blob);
    }
    layout.tar("", time_s)
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(&Sha256::digest(bytes)))
}

fn descriptor(kind: &str, bytes: &[u8]) -> Value {
    json!({ "mediaType": kind, "digest": digest(bytes), "size": bytes.len() })
}
