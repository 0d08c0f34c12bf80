//! The library from C and C++: what every call does, and that each mistake has its code and its
//! words.

use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use perdura_heap::{Config, Durability, Heap, Memory};
use tempfile::TempDir;

const CALLS: &str = include_str!("calls.c");

fn calls() -> Option<(TempDir, PathBuf)> {
    crate::programs::program("c", CALLS)
}

fn heap_in(path: &Path) -> Heap {
    let memory = Memory::file(path, 2 << 20, Durability::Flushed).unwrap();
    Heap::open(memory, Config::default()).unwrap()
}

#[test]
fn what_one_process_makes_the_next_one_finds() {
    let Some((folder, program)) = calls() else { return };
    crate::programs::run_well(&program, &["make", "a.heap"], folder.path());
    crate::programs::run_well(&program, &["find", "a.heap"], folder.path());
}

#[test]
fn each_mistake_has_its_code_and_says_what_was_wrong() {
    let Some((folder, program)) = calls() else { return };
    crate::programs::run_well(&program, &["mistakes", "a.heap"], folder.path());
    crate::programs::run_well(&program, &["options", "b.heap"], folder.path());
}

#[test]
fn a_root_of_another_type_is_refused() {
    let Some((folder, program)) = calls() else { return };
    let heap = heap_in(&folder.path().join("a.heap"));
    heap.transaction(|tx| {
        let word = tx.put(7_u64)?;
        tx.set_root("word", word)
    })
    .unwrap();
    heap.close().unwrap();
    crate::programs::run_well(&program, &["root-type", "a.heap"], folder.path());
}

#[test]
fn a_file_of_another_version_or_of_something_else_is_refused_and_unchanged() {
    let Some((folder, program)) = calls() else { return };
    let path = folder.path().join("a.heap");
    heap_in(&path).close().unwrap();
    let whole = std::fs::read(&path).unwrap();
    // PERDURA_VERSION, PERDURA_NOT_A_HEAP, PERDURA_CORRUPT; where, what is put there, and a word of
    // the message.
    let damages: [(u64, &[u8], &str, &str); 4] = [
        (8, &[250], "20", "version 250"),
        (0, b"somebody", "21", "not a heap"),
        (16, &[1], "19", "superblock"),
        (16, &[2], "19", "perdura check --repair"),
    ];
    for (at, bytes, code, word) in damages {
        let mut file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.seek(SeekFrom::Start(at)).unwrap();
        file.write_all(bytes).unwrap();
        let damaged = std::fs::read(&path).unwrap();
        crate::programs::run_well(&program, &["refused", "a.heap", code, word], folder.path());
        assert!(std::fs::read(&path).unwrap() == damaged, "the file was changed ({word})");
        std::fs::write(&path, &whole).unwrap();
    }
}

#[test]
fn a_heap_in_a_directory_keeps_what_was_stored() {
    let Some((folder, program)) = calls() else { return };
    let dir = folder.path().join("region");
    std::fs::create_dir(&dir).unwrap();
    for run in 1..=3 {
        let said = crate::programs::run_well(&program, &["directory", "region"], folder.path());
        assert_eq!(said, format!("{run}\n"));
    }
    assert!(dir.join("image.perdura").exists());
}

#[test]
fn the_header_serves_cpp() {
    let source = r#"
#include <perdura.h>
#include <cstring>

int main() {
  perdura_options options{};
  options.len_bytes = 2 << 20;
  perdura_heap *heap = perdura_open("a.heap", &options);
  if (heap == nullptr) return 1;
  auto set = [](perdura_tx *tx, void *arg) -> int {
    return perdura_tx_root_set(tx, "name", arg) == PERDURA_OK ? 0 : 1;
  };
  void *memory = persistmalloc(heap, 10, nullptr);
  if (perdura_transaction(heap, set, memory) != PERDURA_OK) return 2;
  if (perdura_root(heap, "name") != memory) return 3;
  return perdura_close(heap);
}
"#;
    let Some((folder, program)) = crate::programs::program("c++", source) else { return };
    crate::programs::run_well(&program, &[], folder.path());
}

/// The functions that the library calls, thrown through in every way; none comes out.
#[test]
fn an_exception_or_the_threads_end_in_a_called_function_ends_the_process_with_its_name() {
    let source = r#"
#include <perdura.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>

static bool ends_thread;

static int leave() {
  if (ends_thread) pthread_exit(nullptr);
  throw 1;
}

int main(int, char **words) {
  perdura_options options{};
  options.len_bytes = 2 << 20;
  perdura_heap *heap = perdura_open("a.heap", &options);
  if (heap == nullptr || persistmalloc(heap, 8, "root") == nullptr) return 1;
  ends_thread = std::strcmp(words[2], "thread") == 0;
  try {
    if (std::strcmp(words[1], "perdura_roots") == 0)
      perdura_roots(heap, [](const char *, void *, void *) -> int { return leave(); }, nullptr);
    else
      perdura_transaction(heap, [](perdura_tx *, void *) -> int { return leave(); }, nullptr);
  } catch (int) {
    std::puts("unwound");
  }
}
"#;
    let Some((folder, program)) = crate::programs::program("c++", source) else { return };
    for call in ["perdura_transaction", "perdura_roots"] {
        for way in ["exception", "thread"] {
            let output = crate::programs::run(&program, &[call, way], folder.path());
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && output.stdout.is_empty(), "{way}: {output:?}");
            assert!(said.starts_with(&format!("perdura: {call}: the function")), "{way}: {said}");
            // The next process finds the heap whole.
            let path = folder.path().join("a.heap");
            assert_eq!(heap_in(&path).roots().unwrap().len(), 1);
            std::fs::remove_file(&path).unwrap();
        }
    }
}
