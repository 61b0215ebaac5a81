//! The kernel's actions if there is no room for a page: it drops copies, then kills a process.

use rondpoint_core::NodeSet;

use super::Plant;

impl Plant {
    /// The node for a new page: `node`, or the nearest with free memory that the process may use.
    /// `None` = the process was killed for want of memory [Linux, mm/oom_kill.c].
    pub(super) fn room(&mut self, process: usize, node: usize) -> Option<usize> {
        let own = self.processes[process].allowed_nodes.as_ref();
        if self.free_pages[node] > 0 && own.is_none_or(|own| own.contains(node)) {
            return Some(node);
        }
        let allowed = self.memory_of(process);
        while self.processes[process].runs() {
            let free = allowed.iter().filter(|&node| self.free_pages[node] > 0);
            let nearest = free.min_by_key(|&other| self.topology.distance(node, other));
            if nearest.is_some() {
                return nearest;
            }
            if !self.shrink_copies(&allowed) {
                self.kill_for_memory(&allowed);
            }
        }
        None
    }

    /// Nodes from which a process may have memory.
    pub(super) fn memory_of(&self, process: usize) -> NodeSet {
        let all = self.topology.memory_nodes();
        let own = self.processes[process].allowed_nodes.as_ref();
        own.map_or_else(|| all.clone(), |own| own.intersection(&all))
    }

    /// Takes the copies of one group back, as the kernel's shrinker does. Whether that freed a page
    /// on one of `nodes`.
    fn shrink_copies(&mut self, nodes: &NodeSet) -> bool {
        for group in 0..self.groups.len() {
            let copied: Vec<usize> = self.groups[group].copied_pages().collect();
            for page in copied {
                self.drop_copies(group, page, false);
            }
            if nodes.iter().any(|node| self.free_pages[node] > 0) {
                return true;
            }
        }
        false
    }

    /// Kills the process with the most pages of those that may use one of `nodes`.
    fn kill_for_memory(&mut self, nodes: &NodeSet) {
        let may_use = |&one: &usize| {
            let shared = self.memory_of(one).intersection(nodes);
            self.processes[one].runs() && !shared.is_empty()
        };
        let pages = |&one: &usize| self.pages_by_node(one).iter().sum::<u64>();
        let victim = (0..self.processes.len()).filter(may_use).max_by_key(pages);
        let victim = victim.expect("the process that asks for a page runs");
        self.processes[victim].killed = true;
        self.kill(victim);
    }
}
