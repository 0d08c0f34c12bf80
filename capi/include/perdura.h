// Perdura's heap: persistent and capacity memory, named roots, transactions; and mapped regions,
// which are durable bytes without a heap. See docs/heap.md.
//
// Who owns what: a heap is the caller's, from perdura_open until perdura_close, and a mapping from
// perdura_map until perdura_unmap. Memory is the heap's; what a call returns is taken until it is
// given back. Strings and buffers that are passed in stay the caller's and are not used after the
// call. A call that fails changes nothing and keeps nothing; perdura_error() says why.
//
// Made by cbindgen from capi/src; to make it again:
// PERDURA_BLESS=1 cargo test -p perdura-capi --test capi header

#ifndef PERDURA_H
#define PERDURA_H

#include <stddef.h>
#include <stdint.h>

// How a call ended. Codes keep their numbers; new ones may come.
typedef enum perdura_code {
  // The call succeeded.
  PERDURA_OK = 0,
  // An argument is refused: a null pointer, a name that is not UTF-8, an unknown kind.
  PERDURA_ARGUMENT = 1,
  // A size is refused: zero, or more than the heap has.
  PERDURA_SIZE = 2,
  // An alignment is refused: it is no power of two, or too large.
  PERDURA_ALIGNMENT = 3,
  // The heap is exhausted, or the system gives no memory.
  PERDURA_NO_MEMORY = 4,
  // No object begins at the address.
  PERDURA_NO_OBJECT = 5,
  // The object was freed before.
  PERDURA_FREED_TWICE = 6,
  // The memory is of the other kind.
  PERDURA_OTHER_KIND = 7,
  // The address is not in this heap.
  PERDURA_FOREIGN = 8,
  // The range leaves its object, or its mapping.
  PERDURA_OUT_OF_OBJECT = 9,
  // The name is empty or too long.
  PERDURA_ROOT_NAME = 10,
  // The name is taken.
  PERDURA_ROOT_TAKEN = 11,
  // There is no root of that name.
  PERDURA_NO_ROOT = 12,
  // The root is of another type.
  PERDURA_ROOT_TYPE = 13,
  // There is no room for another root.
  PERDURA_ROOTS_FULL = 14,
  // The transaction is larger than the log may be.
  PERDURA_LOG_FULL = 15,
  // Too many threads use the heap.
  PERDURA_THREADS = 16,
  // The call is not possible in a transaction, and this thread is in one.
  PERDURA_NESTED = 17,
  // A transaction of another thread is open.
  PERDURA_BUSY = 18,
  // Data on the medium are damaged.
  PERDURA_CORRUPT = 19,
  // The heap was written by another version.
  PERDURA_VERSION = 20,
  // The file or directory holds something else, or a heap with other fixed settings.
  PERDURA_NOT_A_HEAP = 21,
  // The file or directory cannot be opened or made.
  PERDURA_FILE = 22,
  // The heap is open already, in another program or by another handle.
  PERDURA_IN_USE = 23,
  // Memory cannot be bound to the NUMA node.
  PERDURA_NODE = 24,
  // The transaction's function asked for it to be undone, and it was.
  PERDURA_ABORTED = 25,
  // The region refused: its device has failed, or the budget is too small.
  PERDURA_REGION = 26,
  // An error that has no code of its own; its message says what happened.
  PERDURA_OTHER = 27,
  // This process was forked from the one that opened the heap, or made the mapping.
  PERDURA_FORKED = 28,
} perdura_code;

// The two kinds of memory.
typedef enum perdura_kind {
  // Memory that survives.
  PERDURA_PERSISTENT = 0,
  // Memory that is gone after a restart.
  PERDURA_CAPACITY = 1,
} perdura_kind;

// The way in which stores to a file become durable. A directory's memory needs no flush.
typedef enum perdura_durability {
  // Cache lines are written back, with the best instruction of the processor: for DAX and
  // persistent memory. This is the default.
  PERDURA_FLUSHED = 0,
  // Stores are only ordered: for memory that outlives the process and is kept by a battery.
  PERDURA_ORDERED = 1,
} perdura_durability;

// An open heap. Any thread may use it.
typedef struct perdura_heap perdura_heap;

// A write by a system call or a device that is in progress.
typedef struct perdura_prepared perdura_prepared;

// A transaction in progress, which is valid in its function and in its thread only.
typedef struct perdura_tx perdura_tx;

// Durable bytes, mapped. Any thread may store to them.
typedef struct perdura_mapping {
  // The first byte, at the beginning of a page.
  void *address;
  // Number of bytes, whole pages.
  uint64_t len_bytes;
} perdura_mapping;

// Settings of `perdura_open` and `perdura_map`. All zero bytes, and a null pointer, are the
// defaults. Fields may be added at the end: fill the structure with zeros first, and set
// `size_bytes`.
typedef struct perdura_options {
  // `sizeof(struct perdura_options)`, which tells how many fields the program knows. 0 stands
  // for the fields here. A later library takes fields that the program does not know for zero;
  // an earlier library refuses fields that it does not know, unless they are zero.
  uint32_t size_bytes;
  // How stores to a heap in a file become durable: a value of perdura_durability.
  uint32_t durability;
  // Bytes of the heap, at least 1 MiB. An existing heap is never made smaller. 0 stands for the
  // present size, and for 1 GiB if the heap is new.
  uint64_t len_bytes;
  // If not 0, capacity memory is bound to the NUMA node `numa_node`.
  uint32_t bind_numa;
  // Number of the NUMA node.
  uint32_t numa_node;
  // For a heap in a directory, or a mapping: milliseconds from the warning to the loss of power,
  // which decide how much may be dirty. 0 stands for 30,000. The library watches for no warning:
  // at SIGTERM, or at a battery's signal, the program calls perdura_close or perdura_unmap,
  // which flush in that time. If the program does not, the process of `holder` does.
  uint32_t warning_ms;
  // For a heap in a directory, or a mapping: path of the program `perdura`, which then runs as
  // the holder. The holder keeps the memory if this process dies. At its own SIGTERM, SIGINT or
  // SIGPWR, or at `perdura flush`, the holder flushes the memory once this process has closed it
  // or died, and ends a process that does neither. With null, memory that was not flushed is
  // lost with the process.
  const char *holder;
  // For a heap in a directory, or a mapping: the most bytes that may be dirty. 0: as many as can
  // be flushed within the warning, of which nothing larger is accepted.
  uint64_t budget_bytes;
  // For a heap in a directory, or a mapping: socket of a guard (`perdura guard`), which keeps
  // the memory in the place of a holder. Threads of the library do what the guard says: they
  // keep to this program's share of a battery, let stores wait while the power is low or the
  // guard is gone, and at the end of the power flush and close; stores wait from then on.
  const char *guard;
} perdura_options;

// What a mapping promises, and what happened since it was mapped.
typedef struct perdura_figures {
  // Bytes that may be dirty: stored to, and not on the SSD yet.
  uint64_t budget_bytes;
  // Bytes that are dirty, or on their way to the SSD.
  uint64_t dirty_bytes;
  // The most that were dirty since the budget was last set.
  uint64_t dirty_bytes_max;
  // The time that the flush of the promised budget takes at most, nanoseconds.
  uint64_t promised_flush_ns;
  // Stores that met a clean page.
  uint64_t faults;
  // Bytes that were written to the SSD, with everything that goes with the data.
  uint64_t device_bytes;
  // Checkpoints that were made.
  uint64_t checkpoints;
} perdura_figures;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Allocates capacity memory of `size` bytes, at a multiple of 16, with arbitrary contents.
// Capacity memory costs no persistence and is gone after a restart.
//
// Returns memory that the caller frees with capfree, or null: then nothing was allocated.
//
// What it needs:
// `heap` is open.
void *capmalloc(struct perdura_heap *heap, size_t size);

// Allocates capacity memory as capmalloc does, at a multiple of `alignment`, a power of two.
//
// What it needs:
// `heap` is open.
void *capmemalign(struct perdura_heap *heap, size_t alignment, size_t size);

// Frees capacity memory. Null is ignored. If the call fails, the memory is unchanged.
//
// What it needs:
// `heap` is open.
enum perdura_code capfree(struct perdura_heap *heap, void *memory);

// Changes the size of capacity memory, in place or by a copy that replaces the old memory. Returns
// null if the memory is unchanged. `memory` must not be null.
//
// What it needs:
// `heap` is open.
void *caprealloc(struct perdura_heap *heap, void *memory, size_t size);

// Allocates a large area of at least `size` bytes, all zeros, apart from all objects; `kind` is
// one of perdura_kind. A persistent area survives a restart: give it a name with perdura_root_set
// to find it then.
//
// Returns an area that the caller frees with nvmunmap, or null: then nothing was allocated.
//
// What it needs:
// `heap` is open.
void *nvmmap(struct perdura_heap *heap, uint32_t kind, size_t size);

// Frees an area. Null is ignored. If the call fails, the area is unchanged.
//
// What it needs:
// `heap` is open.
enum perdura_code nvmunmap(struct perdura_heap *heap, void *area);

// The code of this thread's last call that failed; PERDURA_OK if none did. Calls that succeed
// leave it.
enum perdura_code perdura_error_code(void);

// What went wrong in this thread's last call that failed, with the values and what to do; an empty
// string if none did. It belongs to the library and is valid until this thread's next call that
// fails, or its end. Of more than 1,023 bytes the middle is left out.
const char *perdura_error(void);

// Allocates persistent memory of `size` bytes and stores its offset in `*place`, whatever was
// there. Both are durable on return, by one fence, and after a crash both are there or neither is:
// the memory cannot leak. `place` lies in other persistent memory of the heap, at a multiple of 8.
// With `contents` (`size` bytes, which stay the caller's) the memory has these bytes, durably,
// before `*place` names it, for a second fence; without (null) its bytes are arbitrary. Threads
// that change one place must exclude each other.
//
// Returns the memory, which stays allocated until perdura_free_from, perdura_replace_at or
// persistfree; or null: then nothing was changed.
//
// What it needs:
// `heap` is open; `contents` is null or has `size` bytes.
void *perdura_alloc_into(struct perdura_heap *heap,
                         uint64_t *place,
                         size_t size,
                         const void *contents);

// Frees the persistent memory whose offset `*place` holds, and stores 0 there. Both are durable on
// return, and after a crash both are done or neither. Nothing is done if `*place` is 0. If the
// call fails, nothing was changed.
//
// What it needs:
// `heap` is open.
enum perdura_code perdura_free_from(struct perdura_heap *heap, uint64_t *place);

// Frees the persistent memory whose offset `*place` holds, if it is not 0, and allocates other
// memory into `*place` as perdura_alloc_into does, all under one fence: after a crash `*place`
// names the old memory or the new, and only that is allocated.
//
// Returns the new memory, or null: then nothing was changed.
//
// What it needs:
// `heap` is open; `contents` is null or has `size` bytes, and does not lie in the memory that is
// freed.
void *perdura_replace_at(struct perdura_heap *heap,
                         uint64_t *place,
                         size_t size,
                         const void *contents);

// Maps the durable bytes in `directory`, or makes them, all zero. They are changed by plain
// stores; no more is dirty at any time than can be flushed within `options->warning_ms`. A store
// may wait until there is room for it. After perdura_unmap, or after a crash if `options->holder`
// is given, the next perdura_map finds everything that was stored, perhaps at another address;
// after a loss of power without warning, everything as of one moment, the last checkpoint.
//
// Stores are noticed as those to a heap in a directory are: see perdura_open for SIGBUS and
// SIGSEGV, and for forked children. System calls that store to the memory need
// perdura_prepare_write.
//
// Returns a mapping that the caller must end by perdura_unmap, or null: then nothing was mapped.
// `directory` and `options` (null: the defaults) stay the caller's.
//
// What it needs:
// `directory` ends with a zero byte; `options` is null or valid.
const struct perdura_mapping *perdura_map(const char *directory,
                                          const struct perdura_options *options);

// Flushes a mapping to the SSD and ends it. No thread stores to it any more. If this fails, the
// mapping stays, and the call may be repeated: the memory has everything as long as this process
// or its holder lives. Null is ignored.
//
// What it needs:
// `mapping` is null or mapped, and nobody uses it.
enum perdura_code perdura_unmap(const struct perdura_mapping *mapping);

// Returns when everything that was stored before is on the SSD. Within the warning nothing needs
// this call; it is for what must survive a loss of power that comes without one.
//
// What it needs:
// `mapping` is mapped.
enum perdura_code perdura_sync(const struct perdura_mapping *mapping);

// Makes the state of this moment the one that a loss of power without a warning goes back to.
//
// What it needs:
// `mapping` is mapped.
enum perdura_code perdura_checkpoint(const struct perdura_mapping *mapping);

// Lets a system call or a device store to `len_bytes` bytes at `memory`, whose stores cannot be
// noticed otherwise: read(2) into a page that was not prepared fails with EFAULT. The range is at
// most half of the budget. Returns what must be given to perdura_end_write after that one
// transfer, or null.
//
// What it needs:
// `mapping` is mapped, and stays so until perdura_end_write.
struct perdura_prepared *perdura_prepare_write(const struct perdura_mapping *mapping,
                                               const void *memory,
                                               uint64_t len_bytes);

// Ends what perdura_prepare_write has begun. Null is ignored.
//
// What it needs:
// `prepared` is null or from perdura_prepare_write, and is not used afterwards.
void perdura_end_write(struct perdura_prepared *prepared);

// Sets how many bytes may be dirty, and returns when no more are: fewer on a battery that is
// nearly empty, for example. Never more than perdura_map has promised, and no fewer than the least
// with which stores can go on; the value in force is in perdura_stats.
//
// What it needs:
// `mapping` is mapped.
enum perdura_code perdura_budget(const struct perdura_mapping *mapping, uint64_t budget_bytes);

// Fills `figures` with what the mapping promises and has done.
//
// What it needs:
// `mapping` is mapped; `figures` is valid.
enum perdura_code perdura_stats(const struct perdura_mapping *mapping,
                                struct perdura_figures *figures);

// Opens the heap at `path`, or makes one. The heap lies in a file (persistent memory on a DAX file
// system, on any other as durable as the page cache), or, if `path` is a directory, in a region
// with a bounded dirty set whose image is kept in that directory. Operations that a crash has cut
// are completed or undone; capacity memory is empty.
//
// A directory's heap notices stores by SIGBUS or SIGSEGV, which the library handles from then on.
// The program installs its own handlers of these signals before: they get the signals that are not
// the library's. A handler that is installed later must pass signals that it does not know to the
// handler that sigaction returned, or the program ends at its next store. No thread that stores
// may block these signals.
//
// The heap belongs to this process alone. In a forked child every call fails with PERDURA_FORKED,
// except perdura_close, which does nothing there; the child must not store to the heap's memory
// either. Nobody else can open the heap while such a child lives, unless the child executes
// another program.
//
// Returns a heap that the caller must close, or null: then nothing was opened. `path` and
// `options` (null: the defaults) stay the caller's and are not used after the call.
//
// What it needs:
// `path` ends with a zero byte; `options` is null or valid.
struct perdura_heap *perdura_open(const char *path, const struct perdura_options *options);

// Closes the heap durably, so that little is left to recover; a directory's memory is flushed to
// the SSD. Calls of other threads must have ended. The handle and all addresses are invalid after
// the call, even if it fails; then the heap is as whole as after a crash. Null is ignored.
//
// What it needs:
// `heap` is null or open, and nobody uses it.
enum perdura_code perdura_close(struct perdura_heap *heap);

// Allocates persistent memory of `size` bytes, at a multiple of 16, with arbitrary contents. The
// allocation is durable on return. With a name (1 to 39 bytes) the memory is also a named root,
// both or neither: perdura_root finds it after a restart. Without a name (`name` is null) the
// program stores a reference to the memory itself.
//
// Returns memory that stays allocated until persistfree, across restarts, or null: then nothing
// was allocated.
//
// What it needs:
// `heap` is open; `name` is null or ends with a zero byte.
void *persistmalloc(struct perdura_heap *heap, size_t size, const char *name);

// Frees persistent memory. The free becomes durable with this thread's next durable call, and
// before the memory is allocated again: a loss of power before that leaves it allocated. Remove
// the memory's name first, if there is one. Null is ignored. If the call fails, the memory is
// unchanged.
//
// What it needs:
// `heap` is open.
enum perdura_code persistfree(struct perdura_heap *heap, void *memory);

// Changes the size of persistent memory, in place or by a durable copy that replaces the old
// memory. The program must change its references to the result. Returns null if the memory is
// unchanged. `memory` must not be null.
//
// What it needs:
// `heap` is open.
void *persistrealloc(struct perdura_heap *heap, void *memory, size_t size);

// Makes bytes durable that were changed by plain stores. The bytes must lie in the heap.
//
// What it needs:
// `heap` is open.
enum perdura_code perdura_persist(struct perdura_heap *heap, const void *memory, size_t len);

// The usable bytes of memory of either kind, at least as many as were asked for; 0 if no object
// begins at the address.
//
// What it needs:
// `heap` is open.
size_t perdura_usable_size(const struct perdura_heap *heap, const void *memory);

// The offset of an address in the heap. Store offsets in persistent memory instead of pointers,
// because the heap may lie at other addresses after a restart. Returns 0 if the address is null or
// not in this heap (PERDURA_FOREIGN).
//
// What it needs:
// `heap` is open.
uint64_t perdura_offset(const struct perdura_heap *heap, const void *memory);

// The address of an offset; null if the offset is 0 or beyond this heap (PERDURA_FOREIGN). The
// memory is the heap's.
//
// What it needs:
// `heap` is open.
void *perdura_pointer(const struct perdura_heap *heap, uint64_t offset);

// The memory of a named root. Null if there is no such root (PERDURA_NO_ROOT), if a program in
// another language gave the root a type (PERDURA_ROOT_TYPE), or if the name is refused. The memory
// is the heap's.
//
// What it needs:
// `heap` is open; `name` ends with a zero byte.
void *perdura_root(const struct perdura_heap *heap, const char *name);

// Gives memory of this heap a name (1 to 39 bytes), durably, or changes the memory of an existing
// name. The name is copied.
//
// What it needs:
// `heap` is open; `name` ends with a zero byte.
enum perdura_code perdura_root_set(struct perdura_heap *heap, const char *name, void *memory);

// Removes a name, durably; the memory stays allocated.
//
// What it needs:
// `heap` is open; `name` ends with a zero byte.
enum perdura_code perdura_root_remove(struct perdura_heap *heap, const char *name);

// Calls `each` with the name and the memory of every root, in the order of names, until `each`
// returns another number than 0. The name is the library's and is valid during the call. `each`
// must return, as a transaction's function must.
//
// What it needs:
// `heap` is open; `each` may be called with `arg`.
enum perdura_code perdura_roots(const struct perdura_heap *heap, int32_t (*each)(const char*,
                                                                                 void*,
                                                                                 void*), void *arg);

// Runs `body(tx, arg)` as a transaction. If `body` returns 0, all changes through `tx` are
// durable, and the call returns PERDURA_OK. If `body` returns another number, none of the changes
// was made, and the call returns PERDURA_ABORTED. A loss of power at any time leaves all changes
// or none. In `body` no other transaction of this thread can begin, and persistent memory is freed
// by perdura_tx_free only and not resized (PERDURA_NESTED). Transactions do not lock: a program
// that changes one object in two threads must exclude one of them meanwhile.
//
// `body` must return, and not by `longjmp`; a C++ exception, or the end of the thread, ends the
// process. Memory that `body` allocates or frees is allocated or freed with the commit.
//
// What it needs:
// `heap` is open; `body` may be called with `arg`.
enum perdura_code perdura_transaction(struct perdura_heap *heap, int (*body)(struct perdura_tx*,
                                                                             void*), void *arg);

// Changes `len` bytes at `to`, which lie in one persistent object or area, to those at `from`,
// which stay the caller's. Read the changed bytes with perdura_tx_read, because memory itself may
// change only at the commit.
//
// What it needs:
// `tx` is this function's transaction; `len` bytes can be read at `from`.
enum perdura_code perdura_tx_write(struct perdura_tx *tx, void *to, const void *from, size_t len);

// Copies `len` bytes at `from`, which lie in one persistent object or area, to `to`, with this
// transaction's changes.
//
// What it needs:
// `tx` is this function's transaction; `len` bytes can be written at `to`.
enum perdura_code perdura_tx_read(struct perdura_tx *tx, void *to, const void *from, size_t len);

// Allocates persistent memory with the transaction: if the transaction is undone, nothing was
// allocated. The contents are arbitrary; fill the memory with perdura_tx_write. Returns null if
// nothing was allocated; the transaction may go on.
//
// What it needs:
// `tx` is this function's transaction.
void *perdura_tx_alloc(struct perdura_tx *tx, size_t size);

// Frees persistent memory once the transaction has committed. Null is ignored.
//
// What it needs:
// `tx` is this function's transaction.
enum perdura_code perdura_tx_free(struct perdura_tx *tx, void *memory);

// Gives memory a name as perdura_root_set does, with the transaction.
//
// What it needs:
// `tx` is this function's transaction; `name` ends with a zero byte.
enum perdura_code perdura_tx_root_set(struct perdura_tx *tx, const char *name, void *memory);

// Removes a name as perdura_root_remove does, with the transaction.
//
// What it needs:
// `tx` is this function's transaction; `name` ends with a zero byte.
enum perdura_code perdura_tx_root_remove(struct perdura_tx *tx, const char *name);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PERDURA_H */
