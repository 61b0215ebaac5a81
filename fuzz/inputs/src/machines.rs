//! Machine files and synthetic machines, which users write.

use rondpoint_machine::Machine;

use crate::Target;

/// A machine file.
pub(crate) const FILE: Target = Target { name: "machine_file", run: file, seeds: file_seeds };

/// A machine in one line.
pub(crate) const SYNTHETIC: Target =
    Target { name: "synthetic_machine", run: synthetic, seeds: synthetic_seeds };

fn file(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let Ok(machine) = Machine::parse(text, "input.toml") else { return false };
    hold_the_laws(&machine);
    true
}

fn synthetic(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let Ok(machine) = Machine::synthetic(text) else { return false };
    hold_the_laws(&machine);
    true
}

/// Largest machine of which all laws are tried: routes take the cube of its nodes.
const MOST_NODES: usize = 64;

/// An accepted machine has a topology, saturates somewhere or not, and reads again as itself.
fn hold_the_laws(machine: &Machine) {
    let topology = machine.topology();
    assert_eq!(topology.cpu_count(), machine.cpu_count());
    if topology.node_count() > MOST_NODES {
        return;
    }
    let _ = (machine.check_saturation(), machine.for_lab());
    let again = Machine::parse(&machine.to_toml(), "again.toml").expect("its own text is accepted");
    assert_eq!(again.cpu_count(), machine.cpu_count());
    assert_eq!(again.to_toml(), machine.to_toml());
}

fn file_seeds() -> Vec<Vec<u8>> {
    let files: [&[u8]; 4] = [
        include_bytes!("../../../machines/carrefour-a.toml"),
        include_bytes!("../../../machines/asymsched-8.toml"),
        include_bytes!("../../../machines/altra-2.toml"),
        include_bytes!("../../../machines/chiplet-cxl.toml"),
    ];
    files.map(<[u8]>::to_vec).to_vec()
}

fn synthetic_seeds() -> Vec<Vec<u8>> {
    ["nodes=4 cpus=4 memory=2G shape=ring link=5000", "nodes=2 cpus=8 domains=2 smt=2", "nodes=1"]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
}
