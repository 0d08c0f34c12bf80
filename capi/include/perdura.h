// Perdura's heap: persistent and capacity memory, named roots, transactions. See docs/heap.md.
//
// Who owns what: a heap is the caller's, from perdura_open until perdura_close. Memory is the
// heap's; what a call returns is taken until it is given back. Strings and buffers that are passed
// in stay the caller's and are not used after the call. A call that fails changes nothing and keeps
// nothing; perdura_error() says why.
//
// Made by cbindgen from capi/src; to make it again:
// PERDURA_BLESS=1 cargo test -p perdura-capi --test header

#ifndef PERDURA_H
#define PERDURA_H

#include <stddef.h>
#include <stdint.h>

// How a call ended. Codes keep their numbers; new ones may come.
typedef enum perdura_code {
  // It did what it was asked.
  PERDURA_OK = 0,
  // An argument cannot be: a null pointer, a name that is not UTF-8, an unknown kind.
  PERDURA_ARGUMENT = 1,
  // A size that cannot be: zero, or more than the heap has.
  PERDURA_SIZE = 2,
  // An alignment that cannot be.
  PERDURA_ALIGNMENT = 3,
  // The heap is exhausted, or the system gives no memory.
  PERDURA_NO_MEMORY = 4,
  // No object begins there.
  PERDURA_NO_OBJECT = 5,
  // It was freed before.
  PERDURA_FREED_TWICE = 6,
  // It is memory of the other kind.
  PERDURA_OTHER_KIND = 7,
  // The address is not in this heap.
  PERDURA_FOREIGN = 8,
  // The range leaves its object.
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
  // This thread is in a transaction, in which that is done otherwise or not at all.
  PERDURA_NESTED = 17,
  // A transaction is open elsewhere.
  PERDURA_BUSY = 18,
  // Something on the medium is damaged.
  PERDURA_CORRUPT = 19,
  // The heap was written by another version.
  PERDURA_VERSION = 20,
  // The file or directory holds something else, or a heap with other fixed settings.
  PERDURA_NOT_A_HEAP = 21,
  // The file or directory cannot be had.
  PERDURA_FILE = 22,
  // Another program, or another handle, has it open.
  PERDURA_IN_USE = 23,
  // The NUMA node cannot be bound to.
  PERDURA_NODE = 24,
  // The transaction's function asked for it to be undone, and it was.
  PERDURA_ABORTED = 25,
  // The region refused: its device has failed, or the budget is too small.
  PERDURA_REGION = 26,
  // Something else; see the message.
  PERDURA_OTHER = 27,
  // This process was forked from the one that opened the heap.
  PERDURA_FORKED = 28,
} perdura_code;

// The two kinds of memory.
typedef enum perdura_kind {
  // Survives.
  PERDURA_PERSISTENT = 0,
  // Gone after a restart.
  PERDURA_CAPACITY = 1,
} perdura_kind;

// How stores to a file become durable. A directory's memory needs no flush.
typedef enum perdura_durability {
  // Cache lines are written back, with the best instruction the processor has: DAX, persistent
  // memory. The default.
  PERDURA_FLUSHED = 0,
  // Stores are only ordered: memory that outlives the process and is kept by a battery.
  PERDURA_ORDERED = 1,
} perdura_durability;

// An open heap. Any thread may use it.
typedef struct perdura_heap perdura_heap;

// A transaction in progress: valid within its function, and in its thread.
typedef struct perdura_tx perdura_tx;

// Settings of `perdura_open`. All zero bytes, and a null pointer, are the defaults. Fields may be
// added at the end: zero all of it first, and say how long it is.
typedef struct perdura_options {
  // `sizeof(struct perdura_options)`: how many fields the program knows. 0: those here. A later
  // library takes what a program does not know for zero; an earlier one refuses what it does not
  // know, unless it is zero.
  uint32_t size_bytes;
  // One of perdura_durability; for files.
  uint32_t durability;
  // Bytes of the heap, at least 1 MiB; what is there already is never made smaller. 0: as large
  // as it is, and 1 GiB if it is new.
  uint64_t len_bytes;
  // Not 0: capacity memory is bound to the NUMA node `numa_node`.
  uint32_t bind_numa;
  // Which node.
  uint32_t numa_node;
  // For directories: milliseconds from the warning to the loss of power, from which follows how
  // much may be dirty. 0: 30,000. The library watches for no warning: on its SIGTERM, or a
  // battery's signal, the program calls perdura_close, which flushes in that time; see `holder`
  // for who does it if the program does not.
  uint32_t warning_ms;
  // For directories: path of the program `perdura`, which then keeps the memory if this process
  // dies, and flushes it at its own SIGTERM, SIGINT or SIGPWR (or `perdura flush`): once this
  // process has closed the heap or died, and it ends one that does neither. Null: what was not
  // flushed dies with the process.
  const char *holder;
} perdura_options;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Takes capacity memory of `size` bytes, at a multiple of 16; its contents are arbitrary. It costs
// no persistence and is gone after a restart.
//
// Returns memory that the caller gives back with capfree, or null: then nothing was taken.
//
// What it needs:
// `heap` is open.
void *capmalloc(struct perdura_heap *heap, size_t size);

// As capmalloc, at a multiple of `alignment`, a power of two.
//
// What it needs:
// `heap` is open.
void *capmemalign(struct perdura_heap *heap, size_t alignment, size_t size);

// Gives capacity memory back. Null is nothing. If it fails, the memory is as it was.
//
// What it needs:
// `heap` is open.
enum perdura_code capfree(struct perdura_heap *heap, void *memory);

// Gives capacity memory another size, in place or by a copy; then the old memory is free. Null: it
// is as it was. `memory` must not be null.
//
// What it needs:
// `heap` is open.
void *caprealloc(struct perdura_heap *heap, void *memory, size_t size);

// Takes a large area of at least `size` bytes, all zeros, apart from all objects; `kind` is one of
// perdura_kind. A persistent one is there again after a restart: name it with perdura_root_set to
// find it.
//
// Returns an area that the caller gives back with nvmunmap, or null: then nothing was taken.
//
// What it needs:
// `heap` is open.
void *nvmmap(struct perdura_heap *heap, uint32_t kind, size_t size);

// Gives an area back. Null is nothing. If it fails, the area is as it was.
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

// Opens the heap at `path`, or makes one: in a file (on a DAX file system persistent memory; on
// any other as durable as its page cache), or, if `path` is a directory, in a region with a
// bounded dirty set that is kept on that SSD. What a crash cut is made whole or undone; capacity
// memory is empty.
//
// A directory's heap notices stores by SIGBUS or SIGSEGV, which the library handles from then on.
// Handlers of the program's own are installed before: they get what is not the library's. One that
// is installed later must pass on what it does not know to the one that sigaction gave it, or the
// program ends at its next store. No thread that stores may block these signals.
//
// The heap is this process's alone. In a child that it forks every call fails with PERDURA_FORKED,
// but perdura_close, which does nothing there; the child must not store to the heap's memory
// either. Nobody else can open the heap while such a child lives, unless it executes another
// program.
//
// Returns a heap that the caller must close, or null: then nothing was opened. `path` and
// `options` (null: the defaults) stay the caller's and are not used after the call.
//
// What it needs:
// `path` ends with a zero byte; `options` is null or valid.
struct perdura_heap *perdura_open(const char *path, const struct perdura_options *options);

// Closes the heap, durably, so that little is left to recover; a directory's memory is flushed to
// its SSD. Other threads must have ended what they do. The handle and all addresses are invalid
// after it, whatever it returns; if it fails, the heap is as whole as after a crash. Null is no
// heap: nothing is done.
//
// What it needs:
// `heap` is null or open, and nobody uses it.
enum perdura_code perdura_close(struct perdura_heap *heap);

// Takes persistent memory of `size` bytes, at a multiple of 16; its contents are arbitrary. That
// it is taken is durable on return. With a name (1 to 39 bytes) it is also a root, both or
// neither: perdura_root finds it after a restart. Without one (`name` is null) nothing leads to it
// until something is stored that does.
//
// Returns memory that stays taken until persistfree, across restarts, or null: then nothing was
// taken.
//
// What it needs:
// `heap` is open; `name` is null or ends with a zero byte.
void *persistmalloc(struct perdura_heap *heap, size_t size, const char *name);

// Gives persistent memory back. That it is free is durable with this thread's next durable call,
// and before anybody else gets it: a loss of power before leaves it taken. Remove its name first,
// if it has one. Null is nothing. If it fails, the memory is as it was.
//
// What it needs:
// `heap` is open.
enum perdura_code persistfree(struct perdura_heap *heap, void *memory);

// Gives persistent memory another size, in place or by a durable copy; then the old memory is
// free. Whatever leads to it must be changed to the result. Null: it is as it was. `memory` must
// not be null.
//
// What it needs:
// `heap` is open.
void *persistrealloc(struct perdura_heap *heap, void *memory, size_t size);

// Makes bytes durable that were changed by plain stores. They must lie in the heap.
//
// What it needs:
// `heap` is open.
enum perdura_code perdura_persist(struct perdura_heap *heap, const void *memory, size_t len);

// Bytes that memory of either kind may use: at least those asked for. 0: no object begins there.
//
// What it needs:
// `heap` is open.
size_t perdura_usable_size(const struct perdura_heap *heap, const void *memory);

// Where an address lies in the heap: what to store in persistent memory in the place of a pointer,
// for the heap may lie at other addresses after a restart. 0: it is null, or not in this heap
// (PERDURA_FOREIGN).
//
// What it needs:
// `heap` is open.
uint64_t perdura_offset(const struct perdura_heap *heap, const void *memory);

// The address of an offset; null: it is 0, or beyond this heap (PERDURA_FOREIGN). The memory is
// the heap's.
//
// What it needs:
// `heap` is open.
void *perdura_pointer(const struct perdura_heap *heap, uint64_t offset);

// What a name leads to; null: there is no such root (PERDURA_NO_ROOT), or it is of a type that is
// not C's (PERDURA_ROOT_TYPE), or the name cannot be one. The memory is the heap's.
//
// What it needs:
// `heap` is open; `name` ends with a zero byte.
void *perdura_root(const struct perdura_heap *heap, const char *name);

// Makes a name (1 to 39 bytes) lead to memory of this heap, durably; makes the name if there is
// none. The name is copied.
//
// What it needs:
// `heap` is open; `name` ends with a zero byte.
enum perdura_code perdura_root_set(struct perdura_heap *heap, const char *name, void *memory);

// Takes a name away, durably; what it led to stays taken.
//
// What it needs:
// `heap` is open; `name` ends with a zero byte.
enum perdura_code perdura_root_remove(struct perdura_heap *heap, const char *name);

// Calls `each` with every root's name (the library's, valid during the call) and its memory, in
// the order of names, until it returns something else than 0. `each` must return, as a
// transaction's function must.
//
// What it needs:
// `heap` is open; `each` may be called with `arg`.
enum perdura_code perdura_roots(const struct perdura_heap *heap, int32_t (*each)(const char*,
                                                                                 void*,
                                                                                 void*), void *arg);

// Runs `body(tx, arg)` as a transaction. If it returns 0, all that it did through `tx` is durable,
// and this returns PERDURA_OK; if it returns anything else, none of it was done, and this returns
// PERDURA_ABORTED. A half-done change cannot be left behind, whenever the power fails. Within
// `body` no other transaction of this thread can begin, and persistent memory is freed by
// perdura_tx_free only and not resized (PERDURA_NESTED). Transactions do not lock: who changes one
// object in two threads must exclude the other.
//
// `body` must return: not by `longjmp`; a C++ exception, or the end of the thread, ends the
// process. What it allocates and what it frees, it does so with the commit.
//
// What it needs:
// `heap` is open; `body` may be called with `arg`.
enum perdura_code perdura_transaction(struct perdura_heap *heap, int (*body)(struct perdura_tx*,
                                                                             void*), void *arg);

// Changes `len` bytes at `to`, which lie in one persistent object or area, to those at `from`,
// which stay the caller's. They are read back with perdura_tx_read: memory itself may change only
// at the commit.
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

// Takes persistent memory with the transaction: if it is undone, nothing was taken. Its contents
// are arbitrary; fill it with perdura_tx_write. Null: none was taken, and the transaction may go
// on.
//
// What it needs:
// `tx` is this function's transaction.
void *perdura_tx_alloc(struct perdura_tx *tx, size_t size);

// Gives persistent memory back once the transaction has committed. Null is nothing.
//
// What it needs:
// `tx` is this function's transaction.
enum perdura_code perdura_tx_free(struct perdura_tx *tx, void *memory);

// As perdura_root_set, with the transaction.
//
// What it needs:
// `tx` is this function's transaction; `name` ends with a zero byte.
enum perdura_code perdura_tx_root_set(struct perdura_tx *tx, const char *name, void *memory);

// As perdura_root_remove, with the transaction.
//
// What it needs:
// `tx` is this function's transaction; `name` ends with a zero byte.
enum perdura_code perdura_tx_root_remove(struct perdura_tx *tx, const char *name);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PERDURA_H */
