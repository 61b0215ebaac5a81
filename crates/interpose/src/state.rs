//! What a process knows of the copies: read once at its start, never changed.

use std::env;
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use rondpoint_linux::replicas::{self, Identity, TABLE_VARIABLE, Table};

/// The table in the form that the hooks need.
pub(crate) struct State {
    /// There are no copies: opens are only logged.
    pub(crate) watch: bool,
    pub(crate) log: CString,
    /// The kernel's numbers of the nodes.
    pub(crate) nodes: Vec<u32>,
    /// The node of each CPU, by its position in `nodes`.
    pub(crate) node_of_cpu: Vec<Option<usize>>,
    pub(crate) files: Vec<Replicated>,
}

/// A file and its copies, in the order of the nodes.
pub(crate) struct Replicated {
    pub(crate) original: Identity,
    pub(crate) length: u64,
    pub(crate) modified: (i64, i64),
    pub(crate) copies: Vec<(Identity, CString)>,
}

static STATE: OnceLock<Option<State>> = OnceLock::new();

/// Nothing before the program's start and where no table is to be had.
pub(crate) fn get() -> Option<&'static State> {
    STATE.get()?.as_ref()
}

/// Reads the table. Called once, before the program's own code.
pub(crate) fn read() {
    STATE.get_or_init(|| {
        let text = fs::read_to_string(env::var_os(TABLE_VARIABLE)?).ok()?;
        State::new(&Table::parse(&text)?)
    });
}

impl State {
    fn new(table: &Table) -> Option<Self> {
        let text = |path: &std::path::Path| CString::new(path.as_os_str().as_bytes()).ok();
        let cpus = table.nodes.iter().flat_map(|node| &node.cpus);
        let length = cpus.max().map_or(0, |&cpu| cpu as usize + 1);
        let mut node_of_cpu = vec![None; length];
        for (position, node) in table.nodes.iter().enumerate() {
            node.cpus.iter().for_each(|&cpu| node_of_cpu[cpu as usize] = Some(position));
        }
        let files = table.files.iter().map(|file| {
            let copies = file.copies.iter().map(|copy| Some((copy.identity, text(&copy.path)?)));
            let copies = copies.collect::<Option<_>>()?;
            let replicas::File { original, length, modified, .. } = *file;
            Some(Replicated { original, length, modified, copies })
        });
        Some(Self {
            watch: table.watch,
            log: text(&table.log)?,
            nodes: table.nodes.iter().map(|node| node.node).collect(),
            node_of_cpu,
            files: files.collect::<Option<_>>()?,
        })
    }
}
