//! Files of times: how they are written and read, and the page that they give.

use super::*;

fn log(user: &str, fresh: bool) -> String {
    format!(
        r#"{{"line":"begin","format":1,"command":"./x demo --quick","commit":"abc1234","date":"2026-01-02","user":"{user}","processor":"P","cores":2,"memory_gib":24,"fresh":{fresh}}}
{{"line":"stage","name":"build of ./x itself","seconds":30.0}}
{{"line":"stage","name":"stencil, rondpoint, seed 1","seconds":12.4}}
{{"line":"end","seconds":51.6,"succeeded":true}}
"#
    )
}

#[test]
fn a_page_has_a_row_for_each_stage_and_a_column_for_each_user() {
    let logs = [log("ordinary user", true), log("root", true).replace("30.0", "20.0")];
    let logs = logs.map(|text| Log::parse(&text).expect("understood"));
    let text = experiment("./x demo --quick", &logs).expect("a page").to_string();
    let page = results::page_of("stages-demo-quick", &text).expect("a page");
    for expected in [
        "# ./x demo --quick in a fresh clone, stage by stage",
        "| | ordinary user, s | root, s |",
        "| build of ./x itself | 30 | 20 |",
        "| stencil, rondpoint, seed 1 | 12 | 12 |",
        "| whole command | 52 | 52 |",
        "Machine: `2 CPUs (P), 24 GiB`",
        "- root: succeeded on 2026-01-02, 2 CPUs (P), 24 GiB, commit abc1234.",
    ] {
        assert!(page.contains(expected), "{expected}: {page}");
    }
    assert_eq!(name_of("./x demo --quick"), "stages-demo-quick");
}

#[test]
fn what_a_stranger_would_not_see_is_refused() {
    let refused = |text: &str| format!("{:#}", Log::parse(text).expect_err("refused"));
    let whole = log("root", true);
    assert!(refused(&log("root", false)).contains("expected a fresh clone"));
    let killed: Vec<&str> = whole.lines().take(3).collect();
    assert!(refused(&killed.join("\n")).contains("the command was killed"));
    assert!(refused("").contains("expected a first line"));
    assert!(refused(&whole.replace("\"format\":1", "\"format\":2")).contains("expected 1"));
    assert!(refused(&whole.replace("seconds\":12.4", "second\":12.4")).contains("line 3"));
    let twice = [&whole, &whole].map(|text| Log::parse(text).expect("understood"));
    assert!(experiment("./x demo", &twice).is_err());
}

#[test]
fn stages_are_written_as_they_end_and_nothing_is_overwritten() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("times");
    let times = Times::begin_after(Some(&path), "./x test", None).expect("begins");
    times.stage("good", || Ok(())).expect("is done");
    let error = times.stage("bad", || -> Result<()> { bail!("broken") }).expect_err("fails");
    assert_eq!(error.to_string(), "broken");
    times.end(false).expect("is written");
    let text = fs::read_to_string(&path).expect("a file");
    let lines: Vec<Line> =
        text.lines().map(|line| serde_json::from_str(line).expect("a line")).collect();
    assert!(matches!(&lines[0], Line::Begin { cores: 1.., fresh: false, .. }), "{lines:?}");
    let is = |line: &Line, wanted: &str| matches!(line, Line::Stage { name, .. } if name == wanted);
    assert!(is(&lines[1], "good") && is(&lines[2], "bad"), "{lines:?}");
    assert!(matches!(lines[3], Line::End { succeeded: false, .. }), "{lines:?}");
    let again = Times::begin(Some(&path), "./x test").err().expect("is refused");
    assert!(again.to_string().contains("expected a new file"), "{again}");
    let built = folder.path().join("built");
    let times = Times::begin_after(Some(&built), "./x test", Some(0)).expect("begins");
    times.end(true).expect("is written");
    let text = fs::read_to_string(&built).expect("a file");
    assert!(text.contains("build of ./x itself"), "{text}");
    assert!(Times::none().stage("nothing is kept", || Ok(1)).is_ok_and(|value| value == 1));
}

#[test]
fn values_are_read_from_files_of_proc() {
    assert_eq!(value_of("a\t: x y\nb: 2\n", "a").as_deref(), Some("x y"));
    assert_eq!(value_of("a: 1\n", "b"), None);
}
