//! The lab's hardware model: caches, coherence, controllers, links.
