//! The server with clients of this process.

use super::*;
use rondpoint_linux::syscall::process::raise_descriptor_limit;

fn call(method: &str) -> Vec<u8> {
    let call =
        Call { method: method.to_string(), parameters: Map::new(), more: false, oneway: false };
    wire::message(&call).unwrap()
}

/// A server in a folder that it makes, beneath one that goes at the end.
fn listening() -> (tempfile::TempDir, PathBuf, Server) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/control");
    let server = Server::listen(&path).unwrap();
    (folder, path, server)
}

#[test]
fn calls_come_in_pieces_and_are_answered_one_by_one() {
    let (_folder, path, mut server) = listening();
    let mut client = UnixStream::connect(&path).unwrap();
    let both = [call("a.B"), call("a.C")].concat();
    client.write_all(&both[..5]).unwrap();
    assert!(server.turn().is_empty());
    client.write_all(&both[5..]).unwrap();
    let mut names = Vec::new();
    for _ in 0..2 {
        let calls = server.turn();
        let [(id, peer, call)] = &calls[..] else { panic!("{calls:?}") };
        assert_eq!(peer.pid, std::process::id());
        names.push(call.method.clone());
        server.answer(*id, call, Ok(Map::new()));
    }
    assert_eq!(names, ["a.B", "a.C"]);
    let mut reader = io::BufReader::new(client);
    let replies: Vec<_> = (0..2).map(|_| wire::read(&mut reader, 100).unwrap()).collect();
    assert_eq!(replies, vec![Some(b"{\"parameters\":{}}".to_vec()); 2]);
    drop(server);
    assert!(!path.exists());
}

#[test]
fn what_is_no_call_or_too_long_ends_its_connection_and_no_other() {
    let (_folder, path, mut server) = listening();
    let mut good = UnixStream::connect(&path).unwrap();
    let mut bad = UnixStream::connect(&path).unwrap();
    let mut long = UnixStream::connect(&path).unwrap();
    bad.write_all(b"hello\0").unwrap();
    long.set_nonblocking(true).unwrap();
    let mut sent = 0;
    while sent <= 2 * wire::MAX_CALL {
        match long.write(&[b' '; 4096]) {
            Ok(count) => sent += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
        assert!(server.turn().is_empty());
    }
    good.write_all(&call("a.B")).unwrap();
    assert_eq!(server.turn().len(), 1);
    assert_eq!(server.connections.len(), 1);
}

#[test]
fn a_call_that_came_with_another_is_known_to_wait() {
    let (_folder, path, mut server) = listening();
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(&[call("a.B"), call("a.C"), b"{".to_vec()].concat()).unwrap();
    for (name, others) in [("a.B", true), ("a.C", false)] {
        let calls = server.turn();
        let [(id, _, call)] = &calls[..] else { panic!("{calls:?}") };
        assert_eq!(call.method, name);
        server.answer(*id, call, Ok(Map::new()));
        assert_eq!(server.has_work(), others, "{name}");
    }
    assert!(server.turn().is_empty());
}

#[test]
fn idle_connections_keep_no_client_out_and_an_active_one_stays() {
    let (_folder, path, mut server) = listening();
    let mut active = UnixStream::connect(&path).unwrap();
    let idle = (0..3 * MOST).map(|_| {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(b"{\"method\":").unwrap();
        active.write_all(b" ").unwrap();
        assert!(server.turn().is_empty());
        stream
    });
    let idle: Vec<UnixStream> = idle.collect();
    let most = if effective_user() == 0 { MOST } else { MOST_OF_A_USER };
    assert_eq!(server.connections.len(), most);
    let mut late = UnixStream::connect(&path).unwrap();
    for client in [&mut active, &mut late] {
        client.write_all(&call("a.B")).unwrap();
        assert_eq!(server.turn().len(), 1);
    }
    drop(idle);
}

#[test]
fn a_socket_that_was_removed_comes_back_for_every_user() {
    let (_folder, path, mut server) = listening();
    assert!(!server.come_back().unwrap());
    let mut early = UnixStream::connect(&path).unwrap();
    assert!(server.turn().is_empty());
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    assert!(server.come_back().unwrap());
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o666);
    let mut late = UnixStream::connect(&path).unwrap();
    early.write_all(&call("a.B")).unwrap();
    late.write_all(&call("a.C")).unwrap();
    assert_eq!(server.turn().len(), 2);
    std::fs::remove_file(&path).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    assert!(!server.come_back().unwrap(), "another daemon has come");
    drop(server);
    assert!(path.exists(), "it is not ours");
}

/// A ledger makes the folder private, whichever comes first.
#[test]
fn every_user_may_pass_through_a_private_folder_and_do_no_more_there() {
    let folder = tempfile::tempdir().unwrap();
    for (before, after) in [(0o700, 0o711), (0o755, 0o755)] {
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(before)).unwrap();
        let _server = Server::listen(&folder.path().join("control")).unwrap();
        let mode = std::fs::metadata(folder.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, after);
    }
}

#[test]
fn strangers_take_no_place_of_root() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::listen(&folder.path().join("control")).unwrap();
    let of = |user| Peer { pid: 1, user, groups: Vec::new() };
    let add = |server: &mut Server, user| {
        server.make_room(&of(user));
        server.next += 1;
        let connection = Connection::of(UnixStream::pair().unwrap().0, of(user));
        server.connections.insert(Id(server.next), connection);
    };
    for user in std::iter::once(0).chain(1..=4 * MOST as u32) {
        add(&mut server, user);
    }
    let count = |server: &Server, user| {
        server.connections.values().filter(|one| one.peer.user == user).count()
    };
    assert_eq!((server.connections.len(), count(&server, 0)), (MOST, 1));
    for _ in 0..2 * MOST_OF_A_USER {
        add(&mut server, 7);
    }
    assert_eq!(count(&server, 7), MOST_OF_A_USER);
    for _ in 0..2 * MOST {
        add(&mut server, 0);
    }
    assert_eq!((server.connections.len(), count(&server, 0)), (MOST, MOST), "root has no limit");
}

#[test]
fn a_daemon_that_is_stopped_keeps_its_socket() {
    // An ordinary user's soft limit is 1,024.
    raise_descriptor_limit().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control");
    let _stopped = UnixListener::bind(&path).unwrap();
    let address = SocketAddr::from_pathname(&path).unwrap();
    let mut waiting = Vec::new();
    // somaxconn of them fit, 4,096 by default.
    let is_full = (0..1 << 17).any(|_| {
        let asked = peer::connect_within(&address, Duration::ZERO);
        asked.map(|stream| waiting.push(stream)).is_err()
    });
    assert!(is_full);
    let error = Server::listen(&path).err().unwrap();
    assert!(error.to_string().contains("another daemon listens there"), "{error}");
}

#[test]
fn of_two_daemons_that_begin_together_one_waits_for_the_other() {
    const A_WHILE: Duration = Duration::from_millis(200);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control");
    let first = alone_in(&path).unwrap();
    let (tells, hears) = std::sync::mpsc::channel();
    let second = std::thread::spawn(move || tells.send(Server::listen(&path).is_ok()).unwrap());
    assert!(hears.recv_timeout(A_WHILE).is_err(), "the first looks at the socket");
    drop(first);
    assert!(hears.recv().unwrap());
    second.join().unwrap();
}

#[test]
fn a_second_daemon_is_refused_and_a_dead_ones_socket_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control");
    let first = Server::listen(&path).unwrap();
    let error = Server::listen(&path).err().unwrap();
    assert!(error.to_string().contains("another daemon listens there"), "{error}");
    std::mem::forget(first);
    // Its descriptor is open in this process still: a listener without a way to it.
    std::fs::remove_file(&path).unwrap();
    drop(UnixListener::bind(&path).unwrap());
    Server::listen(&path).unwrap();
    std::fs::write(&path, "text").unwrap();
    let error = Server::listen(&path).err().unwrap();
    assert!(error.to_string().contains("expected a socket or nothing"), "{error}");
}

/// A client that asks without end, over many connections, is answered once on each of them before
/// a later connection of its process.
#[test]
fn a_client_with_many_calls_lets_others_ask_between_them() {
    const CALLS: usize = 50;
    let (_folder, path, mut server) = listening();
    let many = || {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(&call("a.B").repeat(CALLS)).unwrap();
        stream
    };
    let of_this_process: Vec<UnixStream> = (0..20).map(|_| many()).collect();
    let mut answered = 0;
    let mut answer_some = |server: &mut Server| {
        let calls = server.turn();
        assert!(!calls.is_empty() && calls.len() <= MOST_ANSWERED_AT_ONCE);
        for (id, _, call) in &calls {
            server.answer(*id, call, Ok(Map::new()));
        }
        answered += calls.len();
        calls.into_iter().map(|(_, _, call)| call.method).collect::<Vec<_>>()
    };
    for _ in 0..20 {
        assert_eq!(answer_some(&mut server), ["a.B"; MOST_ANSWERED_AT_ONCE]);
    }
    let mut late = UnixStream::connect(&path).unwrap();
    late.write_all(&call("a.Late")).unwrap();
    let turns = 1 + of_this_process.len() / MOST_ANSWERED_AT_ONCE;
    let late = (0..turns).position(|_| answer_some(&mut server).contains(&"a.Late".to_string()));
    assert!(late.is_some(), "it waits longer");
    while server.has_work() {
        answer_some(&mut server);
    }
    assert_eq!(answered, 20 * CALLS + 1, "none is lost");
    drop(of_this_process);
}

/// Takes calls in turn until none waits.
fn order(mut open: Vec<Standing>) -> Vec<u64> {
    let mut taken = BTreeMap::new();
    for one in &open {
        let of_user: &mut u64 = taken.entry(one.user).or_default();
        *of_user = one.taken.max(*of_user);
    }
    let mut events = 1000;
    let next = std::iter::from_fn(|| {
        let id = next_in_turn(&open, &taken)?;
        events += 1;
        let one = open.iter_mut().find(|one| one.id == id).unwrap();
        (one.arrived, one.taken) = (None, events);
        note_taken(&mut taken, one.user, events);
        Some(id.0)
    });
    next.collect()
}

fn standing(id: u64, (user, pid): (u32, u32), arrived: u64, taken: u64) -> Standing {
    Standing { id: Id(id), user, pid, arrived: Some(arrived), taken }
}

#[test]
fn users_take_turns_then_processes_then_connections() {
    // A process of root with three connections, another one, and a user.
    let of = vec![
        standing(1, (0, 70), 15, 5),
        standing(2, (0, 70), 16, 6),
        standing(3, (0, 70), 14, 4),
        standing(4, (0, 71), 19, 9),
        standing(5, (1000, 72), 18, 8),
    ];
    assert_eq!(order(of), [3, 5, 4, 1, 2]);
}

/// Connections, processes and users that are new would otherwise keep an old one waiting for ever.
#[test]
fn no_newcomer_passes_a_client_that_waits_and_none_waits_for_all_older_calls() {
    let old = standing(1, (1, 70), 50, 49);
    for newcomer in [(1, 70), (1, 71), (2, 71)] {
        assert_eq!(order(vec![old, standing(2, newcomer, 51, 0)]), [1, 2], "{newcomer:?}");
    }
    // Users 1 to 5 have been waiting on eight connections each when user 6 comes.
    let many = (1..=5).flat_map(|user| (0..8).map(move |n| (user, u64::from(user) * 8 + n)));
    let many = many.map(|(user, id)| standing(id, (user, 70), id, 0));
    let late = standing(99, (6, 70), 99, 0);
    let place = order(many.chain([late]).collect()).iter().position(|id| *id == 99);
    assert_eq!(place, Some(5), "after one call of each user");
}

/// A user whose processes come and go, with a new connection for each call.
#[test]
fn a_user_with_ever_new_connections_gets_every_second_answer_and_not_more() {
    let mut open = vec![standing(1, (1, 70), 1, 0)];
    let mut taken = BTreeMap::new();
    let mut of_first = 0;
    for event in (10..1000).step_by(10) {
        open.extend((0..4).map(|n| standing(event + n, (2, event as u32), event + n, 0)));
        let id = next_in_turn(&open, &taken).unwrap();
        let one = open.iter_mut().find(|one| one.id == id).unwrap();
        note_taken(&mut taken, one.user, event + 5);
        if id == Id(1) {
            (one.taken, one.arrived) = (event + 5, Some(event + 6));
            of_first += 1;
        } else {
            open.retain(|one| one.id != id);
        }
    }
    assert!((49..=50).contains(&of_first), "{of_first} of 99");
}

#[test]
fn users_that_were_answered_longest_ago_are_forgotten() {
    let mut taken = BTreeMap::new();
    for user in 0..3 * MOST as u32 {
        note_taken(&mut taken, user, u64::from(user) + 1);
        note_taken(&mut taken, 0, u64::from(user) + 1);
    }
    assert_eq!(taken.len(), MOST);
    assert!(taken.contains_key(&0) && taken.contains_key(&(3 * MOST as u32 - 1)));
}

#[test]
fn watching_clients_are_told_a_few_at_a_time_and_each_once() {
    let (_folder, path, mut server) = listening();
    let watching: Vec<UnixStream> = (0..10)
        .map(|_| {
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.write_all(&call("a.Watch")).unwrap();
            let calls = server.turn();
            server.go_on(calls[0].0, Map::new(), 7);
            stream
        })
        .collect();
    assert!(server.has_watchers() && !server.has_work());
    server.begin_to_tell();
    let mut told = Vec::new();
    while server.has_work() {
        let some = server.next_untold();
        assert!(some.len() <= MOST_ANSWERED_AT_ONCE);
        assert!(some.iter().all(|(_, _, last)| *last == 7));
        told.extend(some.into_iter().map(|(id, _, _)| id));
    }
    assert_eq!((told.len(), server.next_untold().len()), (10, 0));
    told.sort();
    told.dedup();
    assert_eq!(told.len(), 10);
    server.begin_to_tell();
    drop(watching);
    assert!(server.turn().is_empty());
    assert_eq!(server.next_untold().len(), 0, "they have gone");
}
