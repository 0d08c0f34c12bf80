//! Calls at their edges: what is refused, what ends with a file, and what is left of a mapping.

use super::{PYTHON, can_run, is_tidy, output, script, text};
use crate::running::*;

#[test]
fn what_is_refused_changes_nothing_and_what_is_left_of_a_mapping_goes_on_as_itself() {
    if !can_run("mmap") {
        return;
    }
    // A directory beside the one that is served, whose name begins with the other's.
    let place = TestDir::new();
    let [dir, beside] = ["d", "d-beside"].map(|name| place.path().join(name));
    [&dir, &beside].iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
    let (script, word) = (script("edges.py"), beside.to_str().unwrap());
    // A file that stays locked would let the next process wait for ever.
    let words = ["timeout", "60", PYTHON, script.to_str().unwrap(), word];
    let output = output(&dir, &words);
    assert_eq!(text(&output.stdout), "all right\n");
    let read = |name: &str| std::fs::read(dir.join(name)).unwrap();
    let kept = read("kept");
    assert_eq!((kept.len(), &kept[..4], read("emptied")), (4096, &b"aaa\0"[..], Vec::new()));
    assert_eq!(read("parts")[3 * 4096..], *b"appended+");
    let longer = read("longer");
    assert_eq!((longer.len(), &longer[longer.len() - 4..]), (299 << 16, &b"last"[..]));
    assert_eq!(read("copied"), b"copied".repeat(1000));
    assert_eq!(std::fs::read(beside.join("file")).unwrap()[..4], *b"here");
    assert!(is_tidy(&dir));
}
