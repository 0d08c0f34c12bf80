//! Faults as signals: one handler for SIGBUS and one for SIGSEGV, and a fixed table of the ranges
//! that they serve.
//!
//! The handler takes no lock, allocates nothing, blocks every other signal of its thread, and
//! restores `errno`. A fault outside every registered range, or of another kind, goes to the
//! handler that was installed before (the Rust runtime's finds stack overflows there) or to the
//! default action.
//!
//! A thread that stores into a range must not block the signal, because the kernel kills a thread
//! whose fault cannot be delivered. A handler that is installed later for the same signal receives
//! these faults instead.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering::*};

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::thread::futex;

/// Most ranges in one process.
pub const RANGES_MAX: usize = 64;

/// Serves a touch of an address in the range, in signal context. Returns false if the fault is not
/// to be served here.
pub type Serve = unsafe fn(context: *const c_void, address: usize, touch: Touch) -> bool;

/// The access of a thread that met a closed page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touch {
    /// The thread read.
    Load,
    /// The thread stored.
    Store,
    /// Unknown, because this processor does not say.
    Unknown,
}

/// The signal that the faults of a range raise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultSignal {
    /// SIGBUS, by userfaultfd.
    Bus,
    /// SIGSEGV, by `mprotect`.
    Segv,
}

impl FaultSignal {
    fn number(self) -> i32 {
        match self {
            Self::Bus => libc::SIGBUS,
            Self::Segv => libc::SIGSEGV,
        }
    }
}

struct Slot {
    /// End of the range; 0: the slot is free. It is set last on registration.
    end: AtomicUsize,
    start: AtomicUsize,
    signal: AtomicU32,
    serve: AtomicPtr<()>,
    context: AtomicPtr<c_void>,
    /// Number of handlers that may be using `context`.
    guests: AtomicU32,
}

static TABLE: [Slot; RANGES_MAX] = [const {
    Slot {
        end: AtomicUsize::new(0),
        start: AtomicUsize::new(0),
        signal: AtomicU32::new(0),
        serve: AtomicPtr::new(std::ptr::null_mut()),
        context: AtomicPtr::new(std::ptr::null_mut()),
        guests: AtomicU32::new(0),
    }
}; RANGES_MAX];

/// Registration and installation happen one at a time; handlers never take this.
static CHANGES: Mutex<()> = Mutex::new(());

/// The signal action that was in force before ours.
struct Previous {
    installed: AtomicBool,
    action: UnsafeCell<MaybeUninit<libc::sigaction>>,
}
// SAFETY: `action` is written once, under `CHANGES` and before `installed` is set (release); it is
// read only after `installed` was seen (acquire).
unsafe impl Sync for Previous {}

static PREVIOUS: [Previous; 2] = [const {
    Previous { installed: AtomicBool::new(false), action: UnsafeCell::new(MaybeUninit::uninit()) }
}; 2];

/// A range in the table. Dropping it removes the range after the last handler has left it.
#[derive(Debug)]
pub struct Registration {
    slot: usize,
}

impl Registration {
    /// Enters the range `start..end`. `None`: the table is full.
    ///
    /// # Safety
    /// `context` is valid for `serve`, in any thread and in signal context, until the registration
    /// has been dropped.
    pub unsafe fn new(
        signal: FaultSignal,
        start: usize,
        end: usize,
        context: *const c_void,
        serve: Serve,
    ) -> Result<Option<Self>, Errno> {
        let _changes = CHANGES.lock();
        install(signal)?;
        let Some(slot) = TABLE.iter().position(|slot| slot.end.load(Acquire) == 0) else {
            return Ok(None);
        };
        let entry = &TABLE[slot];
        entry.start.store(start, Relaxed);
        entry.signal.store(signal.number() as u32, Relaxed);
        entry.serve.store(serve as *mut (), Relaxed);
        entry.context.store(context.cast_mut(), Relaxed);
        entry.end.store(end, SeqCst);
        Ok(Some(Self { slot }))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let _changes = CHANGES.lock();
        let entry = &TABLE[self.slot];
        entry.end.store(0, SeqCst);
        loop {
            let guests = entry.guests.load(SeqCst);
            if guests == 0 {
                return;
            }
            // Whatever the outcome, the number is read again. The last handler to leave wakes this
            // thread.
            let _ = futex::wait(&entry.guests, futex::Flags::PRIVATE, guests, None);
        }
    }
}

fn install(signal: FaultSignal) -> Result<(), Errno> {
    let previous = &PREVIOUS[signal as usize];
    if previous.installed.load(Acquire) {
        return Ok(());
    }
    // SAFETY: all-zero is a valid sigaction; both structures outlive the calls; the handler has the
    // signature that SA_SIGINFO asks for. The old action is read first, so that it is there when
    // the first signal arrives; `CHANGES` is held, so nobody else writes it.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let old = (*previous.action.get()).as_mut_ptr();
        if libc::sigaction(signal.number(), std::ptr::null(), old) != 0 {
            return Err(Errno::INVAL);
        }
        previous.installed.store(true, Release);
        action.sa_sigaction = on_signal as *const () as usize;
        // The alternate stack, where a thread has one: the runtime's overflow check needs it.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        libc::sigfillset(&mut action.sa_mask);
        if libc::sigaction(signal.number(), &action, std::ptr::null_mut()) != 0 {
            return Err(Errno::INVAL);
        }
    }
    Ok(())
}

extern "C" fn on_signal(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the location is this thread's own.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the kernel passes a valid siginfo and ucontext to an SA_SIGINFO handler.
    let served = unsafe { is_closed_page(signal, info) } && {
        // SAFETY: as above; the signal is a fault, so it carries an address.
        serve(signal, unsafe { (*info).si_addr() } as usize, unsafe { touch(context) })
    };
    if !served {
        // SAFETY: as above.
        unsafe { pass_on(signal, info, context) };
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Whether the signal says that a page is closed, and not that there is no mapping.
///
/// # Safety
/// `info` comes from the kernel.
unsafe fn is_closed_page(signal: i32, info: *const libc::siginfo_t) -> bool {
    // SAFETY: the caller's promise.
    let code = unsafe { (*info).si_code };
    match signal {
        libc::SIGBUS => code == 2, // BUS_ADRERR; a broken memory page says BUS_MCEERR_AR
        libc::SIGSEGV => code == 2, // SEGV_ACCERR; an unmapped address says SEGV_MAPERR
        _ => false,
    }
}

/// # Safety
/// `context` comes from the kernel.
#[cfg(target_arch = "x86_64")]
unsafe fn touch(context: *const c_void) -> Touch {
    const WRITE: i64 = 1 << 1;
    // SAFETY: an SA_SIGINFO handler's third argument is a ucontext.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    let error = context.uc_mcontext.gregs[libc::REG_ERR as usize];
    if error & WRITE != 0 { Touch::Store } else { Touch::Load }
}

/// On other processors the context does not say how memory was accessed.
///
/// # Safety
/// The context is not used, so nothing is required of it.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn touch(_context: *const c_void) -> Touch {
    Touch::Unknown
}

fn serve(signal: i32, address: usize, touch: Touch) -> bool {
    for slot in &TABLE {
        if address >= slot.end.load(Acquire) || address < slot.start.load(Relaxed) {
            continue;
        }
        slot.guests.fetch_add(1, SeqCst);
        let ours = address < slot.end.load(SeqCst)
            && address >= slot.start.load(Relaxed)
            && slot.signal.load(Relaxed) == signal as u32;
        let served = ours && {
            // SAFETY: only `Registration::new` stores here, a `Serve`; the guest count keeps the
            // registration, and with it the context, until we leave.
            unsafe {
                let serve: Serve = std::mem::transmute(slot.serve.load(Relaxed));
                serve(slot.context.load(Relaxed), address, touch)
            }
        };
        if slot.guests.fetch_sub(1, SeqCst) == 1 && slot.end.load(SeqCst) == 0 {
            // A wake can only fail for a bad address, which a static word is not.
            let _ = futex::wake(&slot.guests, futex::Flags::PRIVATE, i32::MAX as u32);
        }
        if ours {
            return served;
        }
        // The first look saw an old end and a new start, or the reverse, because another region
        // left this slot and a third one entered it meanwhile. The slot of this address comes
        // later.
    }
    false
}

/// # Safety
/// Called in the handler with what the kernel passed.
unsafe fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    let which = usize::from(signal == libc::SIGSEGV);
    // SAFETY: our handler runs, so the previous action was stored before it was installed.
    let previous = unsafe { (*PREVIOUS[which].action.get()).assume_init_ref() };
    // SAFETY: the kernel's siginfo.
    let sent_by_process = unsafe { (*info).si_code } <= 0;
    match previous.sa_sigaction {
        libc::SIG_IGN if sent_by_process => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: sets the default action, then lets the signal happen again: a fault by itself
            // when the instruction is repeated, one that was sent by being raised (pending until we
            // return).
            unsafe {
                libc::signal(signal, libc::SIG_DFL);
                if sent_by_process {
                    libc::raise(signal);
                }
            }
        }
        handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
            type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void);
            // SAFETY: an action with SA_SIGINFO holds a function of this type.
            let handler: Handler = unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: an action without SA_SIGINFO holds a function of this type.
            let handler: extern "C" fn(i32) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether it was called with the context 2.
    unsafe fn answer(context: *const c_void, _address: usize, _touch: Touch) -> bool {
        context as usize == 2
    }

    fn enter(start: usize, context: usize) -> Registration {
        // SAFETY: `answer` looks at the pointer, not at what it points to.
        let entered = unsafe {
            let context = context as *const c_void;
            Registration::new(FaultSignal::Bus, start, start + 100, context, answer)
        };
        entered.unwrap().unwrap()
    }

    #[test]
    fn a_fault_is_served_while_other_regions_come_and_go() {
        let before = enter(900, 1);
        let _ours = enter(500, 2);
        drop(before);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    drop(enter(900, 1));
                    drop(enter(100, 1));
                }
            });
            let served = (0..20_000_000).all(|_| serve(libc::SIGBUS, 550, Touch::Store));
            stop.store(true, Relaxed);
            assert!(served, "an address of a registered range was not served");
        });
        assert!(!serve(libc::SIGBUS, 450, Touch::Store));
    }

    #[test]
    fn a_range_is_served_from_its_first_byte_to_its_last_for_its_own_signal() {
        let _ours = enter(2_000, 2);
        let served = |signal, address| serve(signal, address, Touch::Store);
        assert_eq!(
            [1_999, 2_000, 2_099, 2_100].map(|at| served(libc::SIGBUS, at)),
            [false, true, true, false]
        );
        assert!(!served(libc::SIGSEGV, 2_050));
    }

    /// Says that it is inside, and stays until it is let go.
    unsafe fn stay(context: *const c_void, _address: usize, _touch: Touch) -> bool {
        // SAFETY: the test's context, which it keeps until the registration is dropped.
        let [inside, let_go] = unsafe { &*context.cast::<[AtomicBool; 2]>() };
        inside.store(true, SeqCst);
        while !let_go.load(SeqCst) {
            std::thread::yield_now();
        }
        true
    }

    #[test]
    fn who_leaves_waits_for_the_last_fault_inside_and_is_woken_by_it() {
        let steps = [AtomicBool::new(false), AtomicBool::new(false)];
        // SAFETY: `stay` reads two flags, which outlive the registration.
        let ours = unsafe {
            let context = (&raw const steps).cast();
            Registration::new(FaultSignal::Bus, 3_000, 3_100, context, stay).unwrap().unwrap()
        };
        std::thread::scope(|scope| {
            let fault = scope.spawn(|| serve(libc::SIGBUS, 3_050, Touch::Store));
            while !steps[0].load(SeqCst) {
                std::thread::yield_now();
            }
            let leaving = scope.spawn(|| drop(ours));
            // It may fall asleep meanwhile.
            (0..10_000).for_each(|_| std::thread::yield_now());
            let is_gone = leaving.is_finished();
            steps[1].store(true, SeqCst);
            assert!(!is_gone, "gone while a fault was inside");
            assert!(fault.join().unwrap());
            leaving.join().unwrap();
        });
    }
}
