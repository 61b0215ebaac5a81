//! Pages of a memory-only node (CXL) that are accessed often move to the nearest node with CPUs and
//! room.

use rondpoint_core::plan::{Mechanism, PageMove};
use rondpoint_core::policy::{Policy, Registered};
use rondpoint_core::{Action, Model, Proposal, Random, Reason, Topology};

/// Its line in the table of policies.
pub(crate) const REGISTERED: Registered = Registered {
    name: "promote",
    about: "hot pages of memory-only nodes: to the nearest node with CPUs",
    presets: &["eager", "patient"],
    make: |preset| match preset {
        None | Some("eager") => Some(Box::new(Promote { min_samples: 2 })),
        Some("patient") => Some(Box::new(Promote { min_samples: 8 })),
        Some(_) => None,
    },
    in_auto: Some(|| Box::new(Promote { min_samples: 2 })),
};

/// The policy; whatever it has to remember from round to round is a field.
pub(crate) struct Promote {
    min_samples: u32,
}

impl Policy for Promote {
    fn propose(&mut self, model: &Model, topology: &Topology, _: &mut Random) -> Vec<Proposal> {
        let with_cpus = topology.compute_nodes();
        let target_of =
            |node: usize| with_cpus.iter().min_by_key(|&near| topology.distance(near, node));
        let mut pages_of_app = vec![Vec::new(); model.apps.len()];
        for page in model.pages.iter() {
            let Some(home) = page.home.filter(|home| !with_cpus.contains(*home)) else { continue };
            let Some(target) = target_of(home).filter(|_| page.total() >= self.min_samples) else {
                continue;
            };
            let (from, to) = (home as u16, target as u16);
            pages_of_app[page.app].push(PageMove {
                address: page.address,
                shift: page.shift,
                from,
                to,
            });
        }
        let propose = |(app, pages): (&rondpoint_core::model::App, Vec<PageMove>)| {
            let reason = format!(
                "{} pages of memory-only nodes with {} samples or more",
                pages.len(),
                self.min_samples
            );
            let action =
                Action::MovePages { pid: app.pid, mechanism: Mechanism::CoLocation, pages };
            Proposal { policy: "promote", action, reason: Reason::Other(reason) }
        };
        let wanted = model.apps.iter().zip(pages_of_app).filter(|(_, pages)| !pages.is_empty());
        wanted.map(propose).collect()
    }
}
