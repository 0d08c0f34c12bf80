//! A program writes known pages, and the recorder finds exactly these.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use perdura_media::RealClock;
use rustix::process::{Pid, Signal, kill_process};

use super::attach::attach;
use super::space::{Look, Space};
use super::sys::test_program::Program;
use super::sys::{Stop, Tracee};
use super::{Exit, RecordError, RecordOptions, Target, run};
use crate::trace::{PAGE_BYTES, Record};

/// The pages of a range that a look finds, by number from the range's start.
fn written(space: &mut Space, start: u64, pages: u64) -> Vec<u64> {
    let end = start + pages * PAGE_BYTES;
    let mut found = BTreeSet::new();
    let look = space.look(&mut |_, run| {
        let (first, last) = (run.start.max(start), run.end.min(end));
        for page in (first..last).step_by(PAGE_BYTES as usize) {
            assert!(found.insert((page - start) / PAGE_BYTES), "a page came twice");
        }
    });
    assert_eq!(look.unwrap(), Look::There);
    found.into_iter().collect()
}

fn address(start: u64, page: u64) -> u64 {
    start + page * PAGE_BYTES + page % 100
}

fn list(word: &str, start: u64, pages: &[u64]) -> String {
    let addresses = pages.iter().map(|page| format!(" {}", address(start, *page)));
    format!("{word}{}", addresses.collect::<String>())
}

#[test]
fn exactly_the_pages_written_between_two_looks_are_found() {
    for kind in ["private", "shared"] {
        let mut program = Program::start();
        let start = program.tell(&format!("{kind} 1000"));
        program.tell(&list("write", start, &[1, 2, 3, 900]));
        let mut space = attach(program.pid()).unwrap();
        assert_eq!(written(&mut space, start, 1000), [1, 2, 3, 900], "{kind}: before");
        assert_eq!(written(&mut space, start, 1000), [0; 0], "{kind}: nothing");
        program.tell(&list("write", start, &[2, 5, 999]));
        program.tell(&list("write", start, &[2]));
        assert_eq!(written(&mut space, start, 1000), [2, 5, 999], "{kind}");
        program.tell(&list("read", start, &[1, 2, 3, 600, 601]));
        assert_eq!(written(&mut space, start, 1000), [0; 0], "{kind}: a read is no write");
        program.tell(&list("write", start, &[600, 601, 900]));
        assert_eq!(written(&mut space, start, 1000), [600, 601, 900], "{kind}: read before");
        program.tell_to_end();
        assert_eq!(space.look(&mut |_, _| {}).unwrap(), Look::Gone);
    }
}

#[test]
fn pages_of_a_mapping_that_comes_later_are_found_and_those_of_one_that_goes_are_forgotten() {
    let mut program = Program::start();
    let mut space = attach(program.pid()).unwrap();
    space.look(&mut |_, _| {}).unwrap();
    for round in 0..20 {
        let start = program.tell("private 64");
        program.tell(&list("write", start, &[round, 40]));
        assert_eq!(written(&mut space, start, 64), [round, 40], "round {round}: new");
        program.tell(&list("write", start, &[41]));
        assert_eq!(written(&mut space, start, 64), [41], "round {round}");
        // Between two looks: gone, and another in its place.
        program.tell(&format!("unmap {start} 64"));
        let again = program.tell("private 64");
        program.tell(&list("write", again, &[7]));
        assert_eq!(written(&mut space, again, 64), [7], "round {round}: in its place");
        program.tell(&format!("unmap {again} 64"));
    }
    program.tell_to_end();
}

/// What is unmapped or given back before the next look is not seen: the limit that the summary, the
/// help and the notes of `plan trace` name.
#[test]
fn what_is_unmapped_or_given_back_before_the_next_look_is_not_seen() {
    let mut program = Program::start();
    let mut space = attach(program.pid()).unwrap();
    let start = program.tell("private 16");
    program.tell(&list("write", start, &[1, 2, 3]));
    program.tell(&format!("discard {} 1", start + 2 * PAGE_BYTES));
    program.tell(&format!("unmap {} 1", start + 3 * PAGE_BYTES));
    assert_eq!(written(&mut space, start, 16), [1]);
    // A page that is written again after it was given back is there when the look comes.
    program.tell(&list("write", start, &[1]));
    program.tell(&format!("discard {} 1", start + PAGE_BYTES));
    program.tell(&list("write", start, &[1]));
    assert_eq!(written(&mut space, start, 16), [1]);
    program.tell_to_end();
}

#[test]
fn what_mremap_moves_counts_as_written_and_goes_on_being_recorded() {
    let mut program = Program::start();
    let (start, _in_the_way) = (program.tell("private 16"), program.tell("private 16"));
    let mut space = attach(program.pid()).unwrap();
    program.tell(&list("write", start, &[3, 4]));
    assert_eq!(written(&mut space, start, 16), [3, 4]);
    let moved = program.tell(&format!("move {start} 16 4096"));
    assert_ne!(start, moved);
    let found = written(&mut space, moved, 4096);
    assert!(found.is_empty() || found == [3, 4], "{found:?}");
    program.tell(&list("write", moved, &[4, 4000]));
    assert_eq!(written(&mut space, moved, 4096), [4, 4000]);
    program.tell_to_end();
}

#[test]
fn a_fork_writes_nothing_in_its_parent_and_a_child_is_left_alone() {
    let mut program = Program::start();
    let start = program.tell("private 16");
    program.tell(&list("write", start, &[1, 2, 3]));
    let mut space = attach(program.pid()).unwrap();
    written(&mut space, start, 16);
    program.tell(&list("write", start, &[3]));
    assert_eq!(program.tell(&list("fork", start, &[2])), 0, "the child ends well");
    assert_eq!(written(&mut space, start, 16), [3]);
    program.tell(&list("write", start, &[1]));
    assert_eq!(written(&mut space, start, 16), [1]);
    program.tell_to_end();
}

#[test]
fn four_threads_are_recorded_while_looks_go_on() {
    let mut program = Program::start();
    let start = program.tell("private 40000");
    let mut space = attach(program.pid()).unwrap();
    let mut pages = BTreeSet::new();
    for round in 0..200 {
        let four = [round, 10_000 + round, 20_000 + round, 30_000 + round];
        program.tell(&list("threads", start, &four));
        assert_eq!(written(&mut space, start, 40_000), four);
        pages.extend(four);
    }
    assert_eq!(pages.len(), 800);
    program.tell_to_end();
}

#[test]
fn no_page_is_missed_while_threads_write_and_looks_never_cease() {
    for kind in ["private", "shared"] {
        let mut program = Program::start();
        let start = program.tell(&format!("{kind} 40000"));
        let mut space = attach(program.pid()).unwrap();
        written(&mut space, start, 40_000);
        let (mut times, mut looks) = (vec![0_u64; 40_000], 0);
        std::thread::scope(|scope| {
            let churn = scope.spawn(|| program.tell(&format!("churn {start} 4 10000")));
            let mut is_last = false;
            while !is_last {
                is_last = churn.is_finished();
                written(&mut space, start, 40_000)
                    .iter()
                    .for_each(|page| times[*page as usize] += 1);
                looks += 1;
            }
        });
        assert!(times.iter().all(|times| *times > 0), "{kind}, {looks} looks: a page is missing");
        // A look may come after the fault and before its store, which then faults again.
        let twice: u64 = times.iter().map(|times| times - 1).sum();
        assert!(twice <= 4 * looks, "{kind}, {looks} looks: {twice} more than once");
        program.tell_to_end();
    }
}

#[test]
fn a_huge_page_is_one_until_it_is_written_again() {
    let mut program = Program::start();
    let start = program.tell("huge 1024");
    let mut space = attach(program.pid()).unwrap();
    program.tell(&list("write", start, &[3]));
    let mut huge = 0;
    space.look(&mut |_, run| huge += if run.is_huge() { run.end - run.start } else { 0 }).unwrap();
    if huge == 0 {
        eprintln!("skipped: the kernel gives no huge pages here");
    } else {
        assert_eq!(huge, 2 << 20, "the kernel knows no more of it");
    }
    program.tell(&list("write", start, &[3, 300]));
    assert_eq!(written(&mut space, start, 1024), [3, 300]);
    program.tell_to_end();
}

/// Looks at a process without end, for the test that starts this program.
#[test]
#[ignore = "what another test starts"]
fn looks_without_end() {
    let pid = std::env::var("PERDURA_RECORD_TEST_PID").unwrap().parse().unwrap();
    let options = RecordOptions { every: Duration::from_millis(1), length: None, children: false };
    let target = Target::Processes(vec![pid]);
    let mut told = 0;
    run(&target, &options, &RealClock, &AtomicBool::new(false), &mut |_, _, _| {
        told += 1;
        if told == 10 {
            eprintln!("10 looks");
        }
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_recorder_that_is_killed_leaves_the_program_as_it_was() {
    let mut program = Program::start();
    let start = program.tell("private 1000");
    let pages: Vec<u64> = (0..1000).collect();
    program.tell(&list("write", start, &pages));
    let pid = program.pid();
    let fds = || std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let open = fds();
    for _ in 0..3 {
        let mut recorder = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "record::tests::looks_without_end", "--ignored", "--nocapture"])
            .env("PERDURA_RECORD_TEST_PID", program.pid().to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(recorder.stderr.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "10 looks\n");
        recorder.kill().unwrap();
        recorder.wait().unwrap();
        program.tell(&list("threads", start, &[0, 999]));
        assert_eq!(program.tell(&list("read", start, &pages)), 1000);
        let status = std::fs::read_to_string(format!("/proc/{}/status", program.pid())).unwrap();
        assert!(status.contains("TracerPid:\t0\n"), "{status}");
        let smaps = std::fs::read_to_string(format!("/proc/{}/smaps", program.pid())).unwrap();
        let protected = smaps.lines().filter(|line| line.starts_with("VmFlags:"));
        assert_eq!(protected.filter(|line| line.contains(" uw")).count(), 0);
        assert_eq!(fds(), open, "nothing of ours stays open in it");
    }
    program.tell_to_end();
}

#[test]
fn a_shared_page_lies_at_its_place_in_the_file_whatever_address_it_has() {
    let mut file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    file.write_all(&[0; 32 * PAGE_BYTES as usize]).unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    let mut program = Program::start();
    let (one, other) =
        (program.tell(&format!("file {path}")), program.tell(&format!("file {path}")));
    program.tell(&list("write", one, &[0]));
    let (clock, stop) = (RealClock, AtomicBool::new(false));
    let options = RecordOptions { every: Duration::from_millis(5), length: None, children: false };
    let target = Target::Processes(vec![program.pid()]);
    let mut found: BTreeSet<u64> = BTreeSet::new();
    let mut told = 0;
    let recorded = run(&target, &options, &clock, &stop, &mut |names, records, _| {
        let volume = names.iter().position(|name| *name == format!("shared {path}"));
        for record in records.iter().filter(|record| Some(record.volume as usize) == volume) {
            found.extend((0..record.pages().1).map(|page| record.pages().0 + page));
        }
        told += 1;
        match told {
            1 => drop(program.tell(&list("write", one, &[3]))),
            2 => drop(program.tell(&list("write", other, &[3, 9]))),
            4 => stop.store(true, Ordering::Relaxed),
            _ => {}
        }
        Ok(())
    });
    assert_eq!(found, BTreeSet::from([3, 9]), "not what was written before");
    let recorded = recorded.unwrap();
    assert_eq!((recorded.exit, recorded.looks >= 4), (None, true));
    program.tell_to_end();
}

#[test]
fn an_exec_begins_a_new_memory_and_the_recording_goes_on() {
    let mut program = Program::start();
    let options = RecordOptions { every: Duration::from_millis(5), length: None, children: false };
    let (clock, stop) = (RealClock, AtomicBool::new(false));
    let target = Target::Processes(vec![program.pid()]);
    let (mut start, mut told, mut page_found) = (0, 0, false);
    let recorded = run(&target, &options, &clock, &stop, &mut |_, records, _| {
        told += 1;
        match told {
            1 => assert_eq!(program.tell("exec"), 0),
            3 => {
                start = program.tell("private 16");
                program.tell(&list("write", start, &[5]));
            }
            4 | 5 => {
                let at = start + 5 * PAGE_BYTES;
                let holds = |record: &Record| {
                    (record.offset_bytes..record.offset_bytes + record.len_bytes).contains(&at)
                };
                page_found |= records.iter().any(holds);
            }
            6 => stop.store(true, Ordering::Relaxed),
            _ => {}
        }
        Ok(())
    });
    assert_eq!(recorded.unwrap().execs, 1);
    assert!(page_found);
    program.tell_to_end();
}

#[test]
fn a_program_is_recorded_from_its_first_instruction_to_its_end_however_short() {
    let options = RecordOptions { every: Duration::from_secs(3600), length: None, children: false };
    let (clock, stop) = (RealClock, AtomicBool::new(false));
    // 1024 pages by one `dd` of zeros from memory to nowhere: its buffer is 4 MiB, written by the
    // kernel.
    let words = ["sh", "-c", "exec dd if=/dev/zero of=/dev/null bs=4M count=1 status=none"];
    let target = Target::Program(words.iter().map(|word| (*word).into()).collect());
    let (mut pages, mut last_ns) = (0, 0);
    let recorded = run(&target, &options, &clock, &stop, &mut |names, records, _| {
        for record in records {
            assert!((record.volume as usize) < names.len() && record.time_ns >= last_ns);
            last_ns = record.time_ns;
            pages += record.pages().1;
        }
        Ok(())
    });
    let recorded = recorded.unwrap();
    assert_eq!((recorded.exit, recorded.execs), (Some(Exit::Code(0)), 1));
    assert_eq!(recorded.page_writes, pages);
    assert!((1024..1400).contains(&pages), "{pages} pages");
}

/// A daemon: it leaves a child behind, which goes on while the file is there, and ends before it is
/// looked at a second time. The child ends with the file's folder at the latest, whatever becomes
/// of the test.
fn daemon(file: &std::path::Path) -> Target {
    std::fs::write(file, "").unwrap();
    let script = format!("(while [ -e '{}' ]; do :; done) & exit 5", file.display());
    Target::Program(["sh", "-c", &script].iter().map(Into::into).collect())
}

#[test]
fn the_child_that_a_program_leaves_behind_is_recorded_to_its_own_end() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("goes on");
    let options = RecordOptions { every: Duration::from_millis(5), length: None, children: true };
    let (clock, stop) = (RealClock, AtomicBool::new(false));
    let mut child_pages = 0;
    let recorded = run(&daemon(&file), &options, &clock, &stop, &mut |names, records, _| {
        let process = |name: &str| name.split(' ').next().unwrap().to_owned();
        let is_childs = |record: &&Record| {
            process(&names[record.volume as usize]) != process(names.first().unwrap())
        };
        child_pages += records.iter().filter(is_childs).map(|record| record.pages().1).sum::<u64>();
        if child_pages > 0 && file.exists() {
            std::fs::remove_file(&file).unwrap();
        }
        Ok(())
    });
    let recorded = recorded.unwrap();
    assert!(child_pages > 0, "{recorded:?}");
    assert_eq!((recorded.exit, recorded.children_failed), (Some(Exit::Code(5)), 0));
}

#[test]
fn the_child_that_a_program_leaves_behind_is_counted_when_it_is_not_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("goes on");
    let options = RecordOptions { every: Duration::from_secs(3600), length: None, children: false };
    let (clock, stop) = (RealClock, AtomicBool::new(false));
    let recorded = run(&daemon(&file), &options, &clock, &stop, &mut |_, _, _| Ok(()));
    assert_eq!(recorded.unwrap().children_left_out, 1);
}

#[test]
fn a_program_that_is_killed_or_not_there_is_said_so() {
    let options = RecordOptions { every: Duration::from_millis(10), length: None, children: false };
    let (clock, stop) = (RealClock, AtomicBool::new(false));
    let record = |words: &[&str]| {
        let target = Target::Program(words.iter().map(|word| (*word).into()).collect());
        run(&target, &options, &clock, &stop, &mut |_, _, _| Ok(()))
    };
    assert_eq!(record(&["sh", "-c", "kill -9 $$"]).unwrap().exit, Some(Exit::Signal(9)));
    assert_eq!(record(&["sh", "-c", "exit 3"]).unwrap().exit, Some(Exit::Code(3)));
    // Two wait for the end of what never began; none may take it from the other. That is a race: so
    // often.
    for _ in 0..200 {
        let missing = record(&["/nowhere/at/all"]).unwrap_err();
        assert!(matches!(missing, RecordError::Start { .. }), "{missing}");
        assert!(missing.to_string().contains("/nowhere/at/all: No such file"), "{missing}");
    }
}

#[test]
fn children_are_counted_or_recorded() {
    for children in [false, true] {
        let mut program = Program::start();
        let start = program.tell("private 16");
        let child = program.tell(&list("keep", start, &[2])) as i32;
        let options = RecordOptions { every: Duration::from_millis(5), length: None, children };
        let (clock, stop) = (RealClock, AtomicBool::new(false));
        let target = Target::Processes(vec![program.pid()]);
        let (mut told, mut found) = (0, Vec::new());
        let recorded = run(&target, &options, &clock, &stop, &mut |names, records, _| {
            told += 1;
            let go_on = || kill_process(Pid::from_raw(child).unwrap(), Signal::CONT).unwrap();
            match told {
                // It was seen, and its memory taken, after the first look.
                2 => {
                    assert_eq!(state_of(child), 'T', "it stands still as before");
                    go_on();
                    program.tell(&format!("stopped {child}"));
                }
                4 => {
                    go_on();
                    assert_eq!(program.tell(&format!("wait {child}")), 0, "it ends well");
                    stop.store(true, Ordering::Relaxed);
                }
                _ => {}
            }
            found.extend(records.iter().map(|record| {
                (names[record.volume as usize].clone(), record.offset_bytes, record.len_bytes)
            }));
            Ok(())
        });
        let recorded = recorded.unwrap();
        found.retain(|(name, ..)| name.contains(&format!("[{child}] anonymous")));
        found.retain(|(_, offset, _)| (start..start + 16 * PAGE_BYTES).contains(offset));
        let page_2 = (start + 2 * PAGE_BYTES, PAGE_BYTES);
        let expected = if children { vec![page_2] } else { Vec::new() };
        assert_eq!(found.iter().map(|found| (found.1, found.2)).collect::<Vec<_>>(), expected);
        assert_eq!(recorded.children_left_out, u64::from(!children));
        assert_eq!(recorded.children_failed, 0);
        program.tell_to_end();
    }
}

#[test]
fn what_a_program_tracks_itself_is_left_to_it() {
    let mut program = Program::start();
    let start = program.tell("private 16");
    let own = start + 8 * PAGE_BYTES;
    program.tell(&format!("track {own} 1"));
    let mut space = attach(program.pid()).unwrap();
    written(&mut space, start, 16);
    program.tell(&list("write", start, &[5, 8]));
    assert_eq!(written(&mut space, start, 16), [5], "it is not asked about page 8");
    assert_eq!(program.tell(&format!("tracked {own} 1")), 1, "nothing was taken from the program");
    assert_eq!(space.refused(), 1);
    program.tell_to_end();
}

#[test]
fn a_second_recorder_is_refused_and_the_first_goes_on() {
    let mut program = Program::start();
    let start = program.tell("private 16");
    let mut space = attach(program.pid()).unwrap();
    written(&mut space, start, 16);
    program.tell(&list("write", start, &[3]));
    let second = attach(program.pid()).unwrap_err();
    assert!(matches!(second, RecordError::Tracked { .. }), "{second}");
    assert!(second.to_string().contains("another `perdura plan record`"), "{second}");
    // That it can be recorded again afterwards is not asked here: a child that another test has
    // just forked has our descriptor, too, until it becomes its program.
    assert_eq!(written(&mut space, start, 16), [3]);
    program.tell_to_end();
}

#[test]
fn a_program_that_takes_longer_to_start_than_looks_are_apart_became_no_other() {
    let options = RecordOptions { every: Duration::from_nanos(1), length: None, children: false };
    let target = Target::Program(vec!["true".into()]);
    let stop = AtomicBool::new(false);
    let mut longest_ns = 0;
    let recorded = run(&target, &options, &RealClock, &stop, &mut |_, _, looks| {
        assert!(looks.every_ns == 1 && looks.longest_ns >= longest_ns);
        longest_ns = looks.longest_ns;
        Ok(())
    });
    let recorded = recorded.unwrap();
    assert_eq!((recorded.execs, recorded.exit), (0, Some(Exit::Code(0))));
    assert_eq!(recorded.longest_ns, longest_ns);
    assert!(longest_ns > 1 && longest_ns <= recorded.duration_ns, "{recorded:?}");
}

fn state_of(pid: i32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
}

#[test]
fn a_process_whose_first_thread_has_ended_is_said_to_be_such() {
    let mut program = Program::start();
    let left = program.tell("leave") as i32;
    while state_of(left) != 'Z' {
        std::thread::yield_now();
    }
    let said = attach(left).unwrap_err().to_string();
    assert!(said.contains("its first thread has ended while others run"), "{said}");
    assert!(said.contains("start the program with `perdura plan record -- PROGRAM`"), "{said}");
    kill_process(Pid::from_raw(left).unwrap(), Signal::KILL).unwrap();
    program.tell(&format!("wait {left}"));
    let ended = attach(left).unwrap_err().to_string();
    assert!(ended.contains("there is none with this number"), "{ended}");
    program.tell_to_end();
}

#[test]
fn no_process_and_one_that_is_traced_already_are_refused_with_what_to_do() {
    let none = attach(i32::MAX).unwrap_err();
    assert!(none.to_string().contains("there is none with this number"), "{none}");
    let us = std::process::id() as i32;
    let ourselves = attach(us).unwrap_err();
    assert!(matches!(ourselves, RecordError::Ourselves { .. }), "{ourselves}");
    let (pause, paused) = std::sync::mpsc::channel();
    let (tell, told) = std::sync::mpsc::channel();
    let waiting = std::thread::spawn(move || {
        tell.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        paused.recv().unwrap();
    });
    let thread = told.recv().unwrap();
    let of_us = attach(thread).unwrap_err();
    assert!(matches!(of_us, RecordError::Thread { process, .. } if process == us), "{of_us}");
    assert!(of_us.to_string().contains(&format!("give --pid {us}")), "{of_us}");
    pause.send(()).unwrap();
    waiting.join().unwrap();
    let program = Program::start();
    let tracee = Tracee::seize(program.pid()).unwrap();
    let pid = program.pid();
    let traced = std::thread::spawn(move || attach(pid)).join().unwrap().unwrap_err().to_string();
    assert!(traced.contains(" traces it already; end that"), "{traced}");
    assert!(traced.contains("or start the program with `perdura plan record -- "), "{traced}");
    // The kernel lets it go with the thread that traces it, or here, standing still.
    tracee.interrupt().unwrap();
    assert_eq!(tracee.wait().unwrap().0, Stop::Asked);
    tracee.let_go().unwrap();
    attach(pid).unwrap();
    program.tell_to_end();
}
