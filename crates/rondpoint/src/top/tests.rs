//! Screens as a user sees them, of a recording that is checked in and of made-up machines.

use std::path::Path;

use expect_test::{ExpectFile, expect_file};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::draw::draw;
use super::frame::{DecisionRow, Frame, LinkRow, News, NodeRow, ProcessRow, ThreadRow, Traffic};
use super::replayed::Player;
use super::state::{After, Sort, State, View};
use crate::story;

fn player() -> Player {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/traces/carrefour.trace");
    let story = story::read(Path::new(path)).expect("a recording");
    Player::new(story, "carrefour.trace".to_string())
}

fn drawn(size: (u16, u16), frame: &Frame, state: &State, player: Option<&Player>) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).expect("a screen");
    terminal.draw(|screen| draw(screen, frame, state, player)).expect("drawn");
    let buffer = terminal.backend().buffer();
    let row = |y| {
        let cells = (0..size.0).map(|x| buffer[(x, y)].symbol());
        cells.collect::<String>().trim_end().to_string()
    };
    (0..size.1).map(row).collect()
}

#[track_caller]
fn check(keys: &[KeyCode], looks: isize, size: (u16, u16), expected: &ExpectFile) {
    let mut player = player();
    player.step(looks);
    let mut state = State::new();
    for key in keys {
        let frame = player.frame();
        state.key(KeyEvent::new(*key, KeyModifiers::NONE), &frame, Some(&mut player));
    }
    let lines = drawn(size, &player.frame(), &state, Some(&player));
    expected.assert_eq(&(lines.join("\n") + "\n"));
}

#[test]
fn the_machine_fits_an_old_terminal_and_a_larger_one() {
    check(&[], 3, (80, 24), &expect_file!["screens/machine-80x24.txt"]);
    check(&[], 10, (120, 40), &expect_file!["screens/machine-120x40.txt"]);
}

#[test]
fn a_process_has_its_threads_and_memory() {
    check(&[KeyCode::Enter], 3, (80, 24), &expect_file!["screens/process-80x24.txt"]);
    check(&[KeyCode::Enter], 8, (120, 40), &expect_file!["screens/process-120x40.txt"]);
}

#[test]
fn decisions_and_help_have_their_screens() {
    check(&[KeyCode::Char('d')], 11, (120, 40), &expect_file!["screens/decisions-120x40.txt"]);
    check(&[KeyCode::Char('?')], 0, (80, 24), &expect_file!["screens/help-80x24.txt"]);
}

/// A machine with `nodes` nodes, on which everything has a value.
fn machine(nodes: usize, processes: u32) -> Frame {
    let node = |node: usize| NodeRow {
        name: node.to_string(),
        cpus: 16,
        memory_bytes: 1 << 40,
        free_bytes: Some(1 << 39),
        cpu_percent: Some(50.0),
        served_percent: Some(100.0 / nodes as f64),
        full_percent: Some(90.0),
    };
    let thread = |tid| ThreadRow {
        tid,
        name: "worker".to_string(),
        cpu: 3,
        node: 0,
        cpu_percent: 99.0,
        stalled_percent: Some(70.0),
        accesses_by_node: Some(vec![7; nodes]),
    };
    let process = |pid: u32| ProcessRow {
        pid,
        name: format!("program-{pid}"),
        cpu_percent: f64::from(pid),
        lost_percent: Some(f64::from(pid % 40)),
        local_percent: Some(25.0),
        resident_bytes: Some(1 << 36),
        memory_by_node: Some(vec![1 << 30; nodes]),
        threads_by_node: vec![2; nodes],
        threads: (0..200).map(thread).collect(),
        ..ProcessRow::default()
    };
    Frame {
        source: "test".to_string(),
        nodes: (0..nodes).map(node).collect(),
        traffic: Some(Traffic { rows: vec![vec![1.5; nodes]; nodes], unit: "GB/s" }),
        links: (0..nodes).map(|n| LinkRow { name: format!("{n}→0"), use_percent: 70.0 }).collect(),
        processes: (1..=processes).map(process).collect(),
        decisions: (0..500)
            .map(|n| DecisionRow {
                at_s: f64::from(n),
                pid: Some(1),
                news: News::Done,
                text: "x".into(),
            })
            .collect(),
        ..Frame::default()
    }
}

#[test]
fn a_text_leaves_processes_and_decisions_with_it() {
    let mut frame = machine(2, 300);
    frame.processes[6].name = "Postgres".to_string();
    frame.decisions[498].pid = Some(7);
    let mut state = State::new();
    let press =
        |state: &mut State, code| state.key(KeyEvent::new(code, KeyModifiers::NONE), &frame, None);
    for letter in "/postgrEs".chars() {
        press(&mut state, KeyCode::Char(letter));
    }
    expect_file!["screens/filter-100x24.txt"]
        .assert_eq(&(drawn((100, 24), &frame, &state, None).join("\n") + "\n"));
    assert_eq!(press(&mut state, KeyCode::Char('q')), After::Draw, "a letter of the text");
    assert!(state.processes(&frame).is_empty(), "nothing has postgresq");
    press(&mut state, KeyCode::Backspace);
    press(&mut state, KeyCode::Enter);
    assert_eq!(state.processes(&frame)[0].pid, 7);
    let decisions = state.filter.decisions(&frame).into_owned();
    assert_eq!(decisions.iter().map(|one| one.at_s).collect::<Vec<_>>(), [498.0]);
    press(&mut state, KeyCode::Enter);
    assert_eq!(state.view, View::Process(7), "the keys act again");
    press(&mut state, KeyCode::Esc);
    assert_eq!(state.processes(&frame).len(), 1, "kept while a process was open");
    press(&mut state, KeyCode::Esc);
    assert_eq!(state.processes(&frame).len(), 300);
}

#[test]
fn any_size_of_screen_and_machine_is_drawn() {
    for (nodes, processes) in [(0, 300), (1, 1), (2, 0), (2, 300), (8, 300), (64, 300)] {
        let frame = machine(nodes, processes);
        for size in [(1, 1), (10, 3), (40, 10), (80, 24), (81, 25), (200, 60), (400, 120)] {
            for view in [View::Machine, View::Process(1), View::Process(9999), View::Decisions] {
                let mut state = State::new();
                (state.view, state.scroll, state.help) = (view, 1_000_000, size.0 % 2 == 0);
                drawn(size, &frame, &state, None);
            }
        }
    }
    drawn((80, 24), &Frame::default(), &State::new(), None);
}

/// Names in letters of two cells each, with an accent of none, and one that is too long.
#[test]
fn names_of_any_script_keep_the_columns() {
    let mut frame = machine(2, 4);
    let names = ["数据库服务", "naı\u{308}ve", "ascii"];
    for (process, name) in frame.processes.iter_mut().zip(names) {
        process.name = name.to_string();
        process.threads[0].name = name.to_string();
    }
    frame.processes[3].name = "服务".repeat(9);
    // A cell has one letter here, or a letter with its accents; the second one of a wide letter is
    // blank.
    let cell_of = |view, text: &str, lines: usize| {
        let mut state = State::new();
        state.view = view;
        let shown = drawn((120, 40), &frame, &state, None);
        let before = shown.iter().filter_map(|line| line.split_once(text)).take(lines);
        let is_cell = |letter: &char| *letter != '\u{308}';
        let cells = before.map(|(before, _)| before.chars().filter(is_cell).count());
        cells.collect::<Vec<_>>()
    };
    let memory = cell_of(View::Machine, "64.0 GiB", 4);
    assert_eq!(memory, [memory[0]; 4], "the column of the memory");
    for pid in 1..=3 {
        let threads = cell_of(View::Process(pid), "50   50", 2);
        assert_eq!(threads, [threads[0]; 2], "the column of the first node of process {pid}");
    }
}

#[test]
fn the_chosen_process_stays_chosen_and_on_the_screen() {
    let frame = machine(2, 300);
    let mut state = State::new();
    let press = |state: &mut State, code, frame: &Frame| {
        state.key(KeyEvent::new(code, KeyModifiers::NONE), frame, None)
    };
    assert_eq!(state.processes(&frame)[0].lost_percent, Some(39.0), "most lost first");
    for _ in 0..50 {
        press(&mut state, KeyCode::Down, &frame);
    }
    let chosen = state.chosen.expect("one");
    let lines = drawn((100, 30), &frame, &state, None);
    assert!(lines.iter().any(|line| line.contains(&format!("program-{chosen} "))), "{lines:#?}");
    press(&mut state, KeyCode::Char('s'), &frame);
    assert_eq!((state.sort, state.chosen), (Sort::Remote, Some(chosen)));
    press(&mut state, KeyCode::Enter, &frame);
    assert_eq!(state.view, View::Process(chosen));
    press(&mut state, KeyCode::Esc, &frame);
    assert_eq!(state.view, View::Machine);
    let mut elsewhere = frame.clone();
    elsewhere.processes[0].threads_by_node = vec![0, 1];
    elsewhere.processes[0].memory_by_node = None;
    press(&mut state, KeyCode::Char('n'), &elsewhere);
    assert!(state.processes(&elsewhere).iter().all(|one| one.pid != 1), "only those on node 0");
    assert_eq!(press(&mut state, KeyCode::Char('q'), &frame), After::Quit);
}

#[test]
fn time_goes_on_back_and_to_decisions() {
    let mut player = player();
    assert!(!player.pass(0.4), "the next look is at 1 s");
    assert!(player.pass(0.7));
    assert_eq!(player.frame().at_s, 1.0);
    player.change_speed(2.0);
    player.pass(1.0);
    assert_eq!(player.frame().at_s, 3.0, "twice as fast");
    player.step(-1);
    assert_eq!(player.frame().at_s, 2.0);
    assert!(!player.pass(60.0), "it stays where it was put");
    player.seek_decision(true);
    assert_eq!(player.frame().at_s, 3.0, "pages were moved there");
    player.seek_decision(true);
    assert_eq!(player.frame().at_s, 7.0, "a verdict");
    player.seek_decision(false);
    assert_eq!(player.frame().at_s, 3.0);
    player.step(-100);
    assert_eq!(player.frame().at_s, 0.0);
    player.toggle();
    player.pass(1e6);
    assert_eq!(player.frame().at_s, 11.0);
    assert!(!player.playing, "it stops at the end");
    player.toggle();
    assert_eq!((player.frame().at_s, player.playing), (0.0, true), "and begins anew");
}

#[test]
fn nothing_from_outside_acts_on_the_terminal() {
    let mut frame = machine(2, 3);
    let attack = "a\u{1b}]0;owned\u{7}\u{9b}2J\u{202e}b";
    frame.processes[0].name = attack.to_string();
    frame.processes[0].threads[0].name = attack.to_string();
    frame.decisions[499].text = attack.to_string();
    frame.source = attack.to_string();
    let frame = frame.cleaned();
    for view in [View::Machine, View::Process(1), View::Decisions] {
        let mut state = State::new();
        state.view = view;
        let text = drawn((200, 60), &frame, &state, None).join("\n");
        assert!(text.contains("owned"), "{text}");
        let acts = |one: char| one.is_control() && one != '\n' || one == '\u{202e}';
        assert!(!text.contains(acts), "{text:?}");
    }
}
