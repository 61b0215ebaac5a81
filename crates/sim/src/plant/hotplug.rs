//! CPUs and memory that are unplugged while programs run. They do not come back.

use rondpoint_core::CpuSet;

use super::Plant;

impl Plant {
    /// CPUs that are there.
    pub(crate) fn online(&self) -> CpuSet {
        self.topology.all_cpus().difference(&self.unplugged_cpus)
    }

    /// The CPUs on which a thread may run, of those that are there.
    pub(crate) fn usable(&self, thread: usize) -> CpuSet {
        self.threads[thread].allowed.difference(&self.unplugged_cpus)
    }

    /// Unplugs one CPU, which `draw` from 0 to 1 chooses. The kernel moves its threads away, and
    /// widens masks that would be empty. Nothing happens where a thread would have no CPU left.
    pub(crate) fn unplug_cpu(&mut self, draw: f64) {
        let threads = 0..self.threads.len();
        let is_spare = |cpu: &usize| {
            threads.clone().all(|thread| self.usable(thread).iter().any(|other| other != *cpu))
        };
        let spare: Vec<usize> = self.online().iter().filter(is_spare).collect();
        let Some(&cpu) = spare.get((draw * spare.len() as f64) as usize) else { return };
        self.unplugged_cpus.insert(cpu);
        for thread in threads {
            let usable = self.usable(thread);
            let left = self.threads[thread].mask.intersection(&usable);
            self.threads[thread].mask = if left.is_empty() { usable } else { left };
            if self.threads[thread].cpu == cpu {
                let to = self.idlest(&self.threads[thread].mask);
                self.run_on(thread, to);
            }
        }
    }

    /// Unplugs the memory of one node, which `draw` from 0 to 1 chooses. The kernel moves its pages
    /// away first. Where they have no room, the node stays.
    pub(crate) fn unplug_memory(&mut self, draw: f64) {
        let there = self.topology.memory_nodes();
        let is_spare = |node: &usize| {
            let other = |process: usize| {
                let may = self.memory_of(process);
                may.iter().any(|it| it != *node && self.unplugged_pages[it] == 0)
            };
            self.unplugged_pages[*node] == 0 && (0..self.processes.len()).all(other)
        };
        let spare: Vec<usize> = there.iter().filter(is_spare).collect();
        let Some(&node) = spare.get((draw * spare.len() as f64) as usize) else { return };
        for group in 0..self.groups.len() {
            let copied: Vec<usize> = self.groups[group].copied_pages().collect();
            for page in copied {
                self.drop_copies(group, page, false);
            }
        }
        for group in 0..self.groups.len() {
            if !self.clear(group, node) {
                return;
            }
        }
        self.unplugged_pages[node] = std::mem::take(&mut self.free_pages[node]);
    }

    /// Moves the pages of a group away from a node. Whether all of them found room.
    fn clear(&mut self, group: usize, node: usize) -> bool {
        let process = self.groups[group].process;
        if self.groups[group].counts[node] == 0 || !self.processes[process].runs() {
            return true;
        }
        let mut others = self.memory_of(process);
        others.remove(node);
        for page in 0..self.groups[group].homes.len() {
            if usize::from(self.groups[group].homes[page]) != node {
                continue;
            }
            let free = others.iter().filter(|&other| self.free_pages[other] > 0);
            let nearest = free.min_by_key(|&other| self.topology.distance(node, other));
            let Some(to) = nearest else { return false };
            self.move_page(group, page, to);
            self.processes[process].moved_by_kernel += 1;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FirstPlace, Moved};
    use crate::catalogue;
    use crate::checkers::Conservation;
    use crate::rivals::Rival;
    use crate::world::World;

    fn world() -> World {
        let scene = catalogue::scene("nodes=4 cpus=2 memory=1G", "private", 3).expect("a scene");
        let mut world = World::new(&scene, FirstPlace::Touch, Rival::Nothing);
        (0..3).for_each(|_| world.pass());
        world
    }

    #[test]
    fn threads_leave_an_unplugged_cpu_and_the_last_cpu_stays() {
        let mut world = world();
        let conservation = Conservation::new(&world.plant);
        world.plant.threads[0].mask = [0].into_iter().collect();
        for number in 0..12 {
            world.plant.unplug_cpu(f64::from(number) / 12.0);
            world.pass();
            assert_eq!(conservation.check_plant(&world.plant), Ok(()));
        }
        let online = world.plant.online();
        assert_eq!(online.len(), 1);
        let here = world.plant.threads.iter().filter(|thread| !thread.finished);
        assert!(here.clone().count() > 0);
        assert!(here.clone().all(|thread| online.contains(thread.cpu) && thread.mask == online));
        let gone = world.plant.unplugged_cpus.iter().next().expect("one");
        let runs = world.plant.threads.iter().position(|thread| thread.active).expect("one");
        world.plant.threads[runs].cpu = gone;
        let broken = conservation.check_plant(&world.plant).unwrap_err();
        assert!(broken.what.ends_with("is unplugged"), "{broken:?}");
    }

    #[test]
    fn pages_leave_unplugged_memory_and_the_last_node_stays() {
        let mut world = world();
        let conservation = Conservation::new(&world.plant);
        let pages = |world: &World| world.plant.pages_by_node(0).iter().sum::<u64>();
        let before = pages(&world);
        for _ in 0..6 {
            world.plant.unplug_memory(0.0);
            world.pass();
            assert_eq!(conservation.check_plant(&world.plant), Ok(()));
        }
        assert_eq!(world.plant.unplugged_pages.iter().filter(|pages| **pages > 0).count(), 3);
        assert_eq!(pages(&world), before);
        assert_eq!(world.plant.pages_by_node(0).iter().filter(|pages| **pages > 0).count(), 1);
        let gone = world.plant.unplugged_pages.iter().position(|pages| *pages > 0).expect("one");
        assert_eq!(world.plant.move_page(0, 0, gone), Moved::NoMemory);
        // A page or a copy that is there all the same is found.
        let home = usize::from(world.plant.groups[0].homes[0]);
        let is_found = |world: &World| {
            let broken = conservation.check_plant(&world.plant).unwrap_err();
            assert!(broken.what.ends_with("which is unplugged"), "{broken:?}");
        };
        let group = &mut world.plant.groups[0];
        (group.counts[home], group.counts[gone]) = (group.counts[home] - 1, 1);
        is_found(&world);
        // The page has copies on all four nodes: three more pages are in use.
        let group = &mut world.plant.groups[0];
        (group.counts[gone], group.copied) = (0, 1);
        world.plant.free_pages[home] -= 3;
        is_found(&world);
    }

    #[test]
    fn memory_without_cpus_is_unplugged_too() {
        let scene = catalogue::scene("nodes=2 memory_only=1 cpus=2 memory=1G", "private", 3);
        let mut world =
            World::new(&scene.expect("a scene"), FirstPlace::Interleave, Rival::Nothing);
        world.pass();
        let conservation = Conservation::new(&world.plant);
        let only = world.plant.topology.memory_nodes();
        let only = only.difference(&world.plant.topology.controllers());
        let node = only.iter().next().expect("a node without CPUs");
        assert!(world.plant.pages_by_node(0)[node] > 0);
        world.plant.unplug_memory(0.999);
        assert!(world.plant.unplugged_pages[node] > 0);
        assert_eq!(world.plant.pages_by_node(0)[node], 0);
        assert_eq!(conservation.check_plant(&world.plant), Ok(()));
    }

    #[test]
    fn memory_that_has_no_room_elsewhere_stays() {
        let scene = catalogue::scene("nodes=2 cpus=2 memory=128M", "one-thread:mib=150", 3);
        let scene = scene.expect("a scene");
        let mut world = World::new(&scene, FirstPlace::Interleave, Rival::Nothing);
        world.pass();
        let conservation = Conservation::new(&world.plant);
        for draw in [0.0, 0.9] {
            world.plant.unplug_memory(draw);
            assert_eq!(world.plant.unplugged_pages, [0, 0]);
            assert_eq!(conservation.check_plant(&world.plant), Ok(()));
        }
    }
}
