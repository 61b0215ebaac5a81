//! The effect of keys: the shown part of a frame, its order and its scroll position.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::filter::Filter;
use super::frame::{Frame, ProcessRow};
use super::replayed::Player;

/// What fills the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    /// Nodes, traffic, processes, decisions.
    Machine,
    /// One process with its threads.
    Process(u32),
    /// All decisions.
    Decisions,
}

/// By what processes are sorted, most first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    Lost,
    Remote,
    Cpu,
    Memory,
}

impl Sort {
    const ALL: [Self; 4] = [Self::Lost, Self::Remote, Self::Cpu, Self::Memory];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Lost => "time lost",
            Self::Remote => "remote accesses",
            Self::Cpu => "CPU",
            Self::Memory => "memory",
        }
    }

    fn key(self, process: &ProcessRow) -> f64 {
        match self {
            // Where nothing says what is lost, remote accesses are the next best.
            Self::Lost => process.lost_percent.unwrap_or(-1.0),
            Self::Remote => process.local_percent.map_or(-1.0, |local| 100.0 - local),
            Self::Cpu => process.cpu_percent,
            Self::Memory => process.resident_bytes.map_or(-1.0, |bytes| bytes as f64),
        }
    }
}

/// The state of the screen.
pub(super) struct State {
    pub(super) view: View,
    pub(super) sort: Sort,
    /// Only processes on this node.
    pub(super) node: Option<usize>,
    /// Only processes and decisions with this text.
    pub(super) filter: Filter,
    /// The chosen process; the first where it is not there.
    pub(super) chosen: Option<u32>,
    /// Lines that are scrolled up: threads or decisions.
    pub(super) scroll: usize,
    pub(super) help: bool,
    /// Live: whether the screen stands still.
    pub(super) held: bool,
}

/// What is to be done after a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    Nothing,
    Draw,
    /// Draw everything, whatever another program has left on the terminal.
    Anew,
    Quit,
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            view: View::Machine,
            sort: Sort::Lost,
            node: None,
            filter: Filter::default(),
            chosen: None,
            scroll: 0,
            help: false,
            held: false,
        }
    }

    /// Processes in the order of the screen.
    pub(super) fn processes<'a>(&self, frame: &'a Frame) -> Vec<&'a ProcessRow> {
        let is_shown = |one: &&ProcessRow| {
            self.node.is_none_or(|node| one.is_on(node)) && self.filter.has(one)
        };
        let mut all: Vec<&ProcessRow> = frame.processes.iter().filter(is_shown).collect();
        let keys = |one: &ProcessRow| [self.sort.key(one), Sort::Remote.key(one), one.cpu_percent];
        all.sort_by(|a, b| {
            let pairs = keys(b).into_iter().zip(keys(a));
            let order = pairs.map(|(b, a)| b.total_cmp(&a)).find(|order| order.is_ne());
            order.unwrap_or(a.pid.cmp(&b.pid))
        });
        all
    }

    /// The place of the chosen process in that order.
    pub(super) fn place(&self, processes: &[&ProcessRow]) -> usize {
        let chosen = |one: &&ProcessRow| Some(one.pid) == self.chosen;
        processes.iter().position(chosen).unwrap_or(0)
    }

    /// What a key does.
    pub(super) fn key(
        &mut self,
        key: KeyEvent,
        frame: &Frame,
        player: Option<&mut Player>,
    ) -> After {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c' | 'd') if control => return After::Quit,
            KeyCode::Char('l') if control => return After::Anew,
            code if self.filter.is_typed() => self.filter.key(code),
            KeyCode::Char('q') => return After::Quit,
            _ if self.help => self.help = false,
            KeyCode::Char('?' | 'h') => self.help = true,
            KeyCode::Up | KeyCode::Char('k') => self.choose(frame, -1),
            KeyCode::Down | KeyCode::Char('j') => self.choose(frame, 1),
            KeyCode::Enter => self.open(frame),
            KeyCode::Char('/') if !matches!(self.view, View::Process(_)) => self.filter.begin(),
            KeyCode::Esc if self.view == View::Machine && self.filter.clear() => {}
            KeyCode::Esc | KeyCode::Char('b') => (self.view, self.scroll) = (View::Machine, 0),
            KeyCode::Char('d') => (self.view, self.scroll) = (View::Decisions, 0),
            KeyCode::Char('s') => {
                let place = Sort::ALL.iter().position(|sort| *sort == self.sort).unwrap_or(0);
                self.sort = Sort::ALL[(place + 1) % Sort::ALL.len()];
            }
            KeyCode::Char('n') => {
                let next = self.node.map_or(0, |node| node + 1);
                self.node = Some(next).filter(|node| *node < frame.nodes.len());
            }
            other => return self.control(other, player),
        }
        After::Draw
    }

    /// Keys that move in time.
    fn control(&mut self, key: KeyCode, player: Option<&mut Player>) -> After {
        let Some(player) = player else {
            if matches!(key, KeyCode::Char(' ' | 'p')) {
                self.held = !self.held;
                return After::Draw;
            }
            return After::Nothing;
        };
        match key {
            KeyCode::Char(' ' | 'p') => player.toggle(),
            KeyCode::Left => player.step(-1),
            KeyCode::Right => player.step(1),
            KeyCode::PageUp => player.step(-10),
            KeyCode::PageDown => player.step(10),
            KeyCode::Home => player.rewind(),
            KeyCode::End => player.forward_to_end(),
            KeyCode::Char(']') => player.seek_decision(true),
            KeyCode::Char('[') => player.seek_decision(false),
            KeyCode::Char('+' | '=') => player.change_speed(2.0),
            KeyCode::Char('-') => player.change_speed(0.5),
            _ => return After::Nothing,
        }
        After::Draw
    }

    fn choose(&mut self, frame: &Frame, by: isize) {
        if self.view != View::Machine {
            // Down is towards what is older in the list of decisions, and further in the threads.
            self.scroll = self.scroll.saturating_add_signed(by);
            return;
        }
        let processes = self.processes(frame);
        let last = processes.len().saturating_sub(1);
        let place = self.place(&processes).saturating_add_signed(by).min(last);
        self.chosen = processes.get(place).map(|process| process.pid);
    }

    fn open(&mut self, frame: &Frame) {
        let processes = self.processes(frame);
        if let Some(process) = processes.get(self.place(&processes)) {
            self.chosen = Some(process.pid);
            (self.view, self.scroll) = (View::Process(process.pid), 0);
        }
    }
}
