//! Keeps the process small: one heap for all threads, and what only the start needed is
//! given back once it is over.
//!
//! Most of what is resident is the program itself. The kernel maps sixteen pages wherever
//! one is needed, and the start runs through most of the program once: settings, TLS, the
//! first listings. What is dropped here is read from its file again where it is needed; as
//! a rule the page cache still has it.

use std::time::Duration;

use tracing::debug;

use crate::engine::handle::EngineHandle;

/// After the first complete snapshot: handshakes, slots and repeated announcements are over.
const START_SETTLES: Duration = Duration::from_secs(5);
/// Larger blocks are mapped one by one, and go back when they are freed.
#[cfg(target_env = "gnu")]
const LARGE_BLOCK: libc::c_int = 128 * 1024;

/// To be called before there are other threads.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code)]
pub fn limit_heap() {
    // Every thread would have a heap of its own. And the limit would follow the largest
    // block ever freed: with the first listing it would be megabytes.
    for (setting, value) in
        [(libc::M_ARENA_MAX, 1), (libc::M_MMAP_THRESHOLD, LARGE_BLOCK), (libc::M_TRIM_THRESHOLD, LARGE_BLOCK)]
    {
        // SAFETY: takes numbers, changes settings of the allocator, and locks by itself.
        unsafe { libc::mallopt(setting, value) };
    }
}

#[cfg(not(target_env = "gnu"))]
pub fn limit_heap() {}

/// Gives back what the start needed, once the daemon is ready and a moment has passed.
pub async fn shrink_after_start(handle: EngineHandle) {
    let mut snapshots = handle.subscribe();
    if snapshots.wait_for(|snapshot| snapshot.ready).await.is_err() {
        return;
    }
    drop(snapshots);
    tokio::time::sleep(START_SETTLES).await;
    trim_heap();
    // Apart from the log: its fields are only worked out where they are logged.
    let bytes = drop_program_pages();
    debug!(bytes, "gave back what the start needed");
}

#[cfg(target_env = "gnu")]
#[allow(unsafe_code)]
fn trim_heap() {
    // SAFETY: gives free pages of the heap back; locks by itself.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(target_env = "gnu"))]
fn trim_heap() {}

/// Drops the pages of the program and its libraries that were never writable, so that they are
/// what their files say. Returns how many bytes that concerns.
///
/// Told by the loader, and not by `/proc/self/maps`: it holds its lock meanwhile, so that no
/// library comes or goes, and it knows what it relocates (the segments with the right to
/// write, also where that right was taken later), whatever of that is swapped out.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code)]
fn drop_program_pages() -> usize {
    unsafe extern "C" fn each(
        object: *mut libc::dl_phdr_info,
        _size: libc::size_t,
        dropped: *mut libc::c_void,
    ) -> libc::c_int {
        // SAFETY: the loader hands out a description that is whole while it calls, and what
        // was given to it, below.
        let (object, dropped) = unsafe { (&*object, &mut *dropped.cast::<usize>()) };
        if object.dlpi_phdr.is_null() {
            return 0;
        }
        // SAFETY: so many headers are there, as the loader says.
        let headers = unsafe { std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()) };
        for header in headers.iter().filter(|h| h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_W == 0) {
            let start = (object.dlpi_addr + header.p_vaddr) as usize;
            let (start, length) = whole_pages(start, header.p_memsz as usize, page_size());
            // SAFETY: a private mapping of a file that nobody may write to: whoever reads there
            // next finds the same bytes. The lock keeps it mapped.
            let done = unsafe { libc::madvise(start as *mut libc::c_void, length, libc::MADV_DONTNEED) };
            *dropped += if done == 0 { length } else { 0 };
        }
        0
    }
    let mut dropped = 0_usize;
    // SAFETY: `each` takes what it is given here, and nothing outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut dropped).cast()) };
    dropped
}

#[cfg(not(target_env = "gnu"))]
fn drop_program_pages() -> usize {
    0
}

#[cfg(target_env = "gnu")]
#[allow(unsafe_code)]
fn page_size() -> usize {
    // SAFETY: takes a number and returns one.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    // No page is larger than that: rounding to it is safe, if less is dropped.
    usize::try_from(size).ok().filter(|size| *size > 0).unwrap_or(64 * 1024)
}

/// The pages that lie wholly inside: at the edges there may be something else.
#[cfg(target_env = "gnu")]
fn whole_pages(start: usize, length: usize, page: usize) -> (usize, usize) {
    let end = start.saturating_add(length) / page * page;
    let start = start.div_ceil(page) * page;
    (start, end.saturating_sub(start))
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;

    #[test]
    fn only_whole_pages_are_dropped() {
        assert_eq!(whole_pages(0x1000, 0x2000, 0x1000), (0x1000, 0x2000));
        assert_eq!(whole_pages(0x1001, 0x2fff, 0x1000), (0x2000, 0x2000));
        assert_eq!(whole_pages(0x1800, 0x900, 0x1000), (0x2000, 0));
    }

    /// Addresses that the loader has put in, in a segment that it then made read-only.
    static RELOCATED: [(&str, fn(usize, usize, usize) -> (usize, usize)); 2] =
        [("whole", whole_pages), ("pages", whole_pages)];

    #[test]
    fn what_the_loader_changed_stays() {
        let of_files = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|l| l.strip_prefix("RssFile:")).unwrap().to_owned();
            line.split_whitespace().next().unwrap().parse::<usize>().unwrap()
        };
        trim_heap();
        let before = of_files();
        assert!(drop_program_pages() > 0);
        let after = of_files();
        assert!(after < before, "{before} KiB, and then {after}");
        let words: Vec<&str> = RELOCATED.iter().map(|(word, _)| *word).collect();
        assert_eq!(words, ["whole", "pages"]);
        assert!(RELOCATED.iter().all(|(_, call)| call(0, 4096, 4096) == (0, 4096)));
    }
}
