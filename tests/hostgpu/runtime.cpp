// Runs CUDA C++ on the processor, one block at a time: a thread of a block is a fiber with its own stack, a barrier or
// a shuffle a meeting point. A kernel that breaks the rules of meeting (threads at different barriers, lanes missing
// from a shuffle, a thread that left early) is reported with its lines and ended, not run on. x86-64, one OS thread.
//
// With -fsanitize=address the arrays of shared memory are pieces of the heap, whose ends are known, and stacks may be
// switched; with -fsanitize=thread every thread is a fiber of ThreadSanitizer's and only barriers and launches order
// them, so that races in shared and in global memory show, between blocks too.

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#elif defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

#define RAW [[gnu::noinline, gnu::no_sanitize_thread]]

struct Index {
  unsigned x, y, z;
};

extern "C" {
Index gpu_thread, gpu_block, gpu_grid;
unsigned gpu_warp = 32;   // lanes that meet at a shuffle
unsigned gpu_order = 0;   // bit 0: the last warp runs first; bit 1: the last lane runs first
void gpu_switch(void** save, void* load);
}

// Keeps what the System V ABI lets a call keep.
asm(R"(
.text
.type gpu_switch, @function
gpu_switch:
  push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp
  ret
.size gpu_switch, . - gpu_switch
)");

namespace {

constexpr unsigned MOST_THREADS = 1024;
constexpr unsigned MOST_ARGUMENTS = 20;
constexpr unsigned MOST_SHARED = 16;
constexpr size_t STACK = 64 << 10;
constexpr size_t GUARD = 4096;

enum class State { ready, at_barrier, at_shuffle, done };

struct Fiber {
  void* stack_pointer;
  char* stack;
  void* sanitizer;  // ASan's fake stack, TSan's fiber
  unsigned number;
  State state;
  int line;
  float slot;
  unsigned barriers;
};

struct Shared {
  const void* key;
  void* memory;
  size_t size;
};

Fiber fibers[MOST_THREADS];
Fiber host;
Fiber* current = &host;
unsigned thread_count;
Shared shared_arrays[MOST_SHARED];  // no vector: TSan would see the runtime's own threads race in it
unsigned shared_count;
void* entry_point;
uint64_t arguments[MOST_ARGUMENTS];

[[noreturn]] void fail(const Fiber& fiber, const char* what, int other_line) {
  std::fprintf(stderr, "host GPU: %s: block %u, thread %u, line %d; another at line %d\n", what, gpu_block.x,
               fiber.number, fiber.line, other_line);
  std::abort();
}

#if defined(__SANITIZE_THREAD__)
char barrier_tags[2 << 16], end_tag;
unsigned block_number;
#define ORDERED(call, tag) call(&(tag))
#else
#define ORDERED(call, tag) (void)0
#endif

#if defined(__SANITIZE_ADDRESS__)
const void* host_stack;
size_t host_stack_size;
#endif

RAW void switch_to(Fiber* from, Fiber* to) {
  current = to;
  if (to != &host) gpu_thread = {to->number, 0, 0};
#if defined(__SANITIZE_ADDRESS__)
  const bool to_host = to == &host;
  __sanitizer_start_switch_fiber(&from->sanitizer, to_host ? host_stack : to->stack, to_host ? host_stack_size : STACK);
  gpu_switch(&from->stack_pointer, to->stack_pointer);
  __sanitizer_finish_switch_fiber(from->sanitizer, nullptr, nullptr);
#else
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(to->sanitizer, __tsan_switch_to_fiber_no_sync);
#endif
  gpu_switch(&from->stack_pointer, to->stack_pointer);
#endif
}

RAW void pause_at(State state, int line) {
  Fiber* fiber = current;
  fiber->state = state;
  fiber->line = line;
  switch_to(fiber, &host);
}

// A thread's life: the kernel, once a block. Every argument is an integer or a pointer, so any kernel can be called
// with as many as there may be: the ABI lets the callee ignore the rest.
RAW void live() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &host_stack, &host_stack_size);
#endif
  for (;;) {
    const uint64_t* a = arguments;
    current->barriers = 0;
    ((void (*)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
               uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
               uint64_t))entry_point)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12],
                                      a[13], a[14], a[15], a[16], a[17], a[18], a[19]);
    ORDERED(__tsan_release, end_tag);
    pause_at(State::done, 0);
  }
}

RAW void begin(Fiber& fiber) {
  fiber.stack = (char*)mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(fiber.stack, GUARD, PROT_NONE);  // a stack that overflows faults
  void** top = (void**)(fiber.stack + STACK) - 2;
  top[0] = (void*)live;
  fiber.stack_pointer = top - 6;  // what gpu_switch pops
#if defined(__SANITIZE_THREAD__)
  fiber.sanitizer = __tsan_create_fiber(0);
#endif
}

RAW void run(Fiber& fiber) {
  if (!fiber.stack) begin(fiber);
  switch_to(&host, &fiber);
}

// Runs a warp until each of its lanes is at a barrier or done.
RAW void run_warp(Fiber* lanes, unsigned count) {
  for (;;) {
    for (unsigned k = 0; k < count; k++) {
      Fiber& lane = lanes[gpu_order & 2 ? count - 1 - k : k];
      if (lane.state == State::ready) run(lane);
    }
    const Fiber* waiting = nullptr;
    for (unsigned k = 0; k < count; k++) {
      if (lanes[k].state == State::at_shuffle) waiting = &lanes[k];
    }
    if (!waiting) return;
    for (unsigned k = 0; k < count; k++) {
      if (lanes[k].state != State::at_shuffle) fail(lanes[k], "a lane is missing from a shuffle", waiting->line);
      if (lanes[k].line != waiting->line) fail(lanes[k], "lanes at different shuffles", waiting->line);
      lanes[k].state = State::ready;
    }
  }
}

// Runs a block until each of its threads is done.
RAW void run_block() {
  const unsigned warps = (thread_count + gpu_warp - 1) / gpu_warp;
  for (unsigned k = 0; k < thread_count; k++) fibers[k].state = State::ready;
  for (;;) {
    for (unsigned k = 0; k < warps; k++) {
      const unsigned first = (gpu_order & 1 ? warps - 1 - k : k) * gpu_warp;
      run_warp(fibers + first, thread_count - first < gpu_warp ? thread_count - first : gpu_warp);
    }
    const Fiber& leader = fibers[0];
    for (unsigned k = 0; k < thread_count; k++) {
      if (fibers[k].state != leader.state) fail(fibers[k], "a barrier that some threads never reach", leader.line);
      if (fibers[k].line != leader.line) fail(fibers[k], "threads at different barriers", leader.line);
    }
    if (leader.state == State::done) return;
    for (unsigned k = 0; k < thread_count; k++) fibers[k].state = State::ready;
  }
}

// After a block: its shared memory is gone, and for TSan its threads are.
RAW void end_block() {
#if defined(__SANITIZE_THREAD__)
  for (unsigned k = 0; k < thread_count; k++) {
    __tsan_destroy_fiber(fibers[k].sanitizer);
    munmap(fibers[k].stack, STACK);
    fibers[k].stack = nullptr;
  }
  block_number++;
#else
  for (unsigned k = 0; k < shared_count; k++) std::free(shared_arrays[k].memory);
#endif
  shared_count = 0;
}

}  // namespace

extern "C" {

RAW void gpu_barrier(int line) {
  [[maybe_unused]] const unsigned turn = current->barriers++ % 2;
  ORDERED(__tsan_release, barrier_tags[block_number % (1 << 16) * 2 + turn]);
  pause_at(State::at_barrier, line);
  ORDERED(__tsan_acquire, barrier_tags[block_number % (1 << 16) * 2 + turn]);
}

RAW float gpu_shuffle_xor(float value, unsigned reach, int line) {
  const unsigned number = current->number;
  const unsigned source = number / gpu_warp * gpu_warp + ((number % gpu_warp) ^ reach);
  if (source >= thread_count || reach >= gpu_warp) fail(*current, "a shuffle from a lane that is not there", line);
  current->slot = value;
  pause_at(State::at_shuffle, line);  // every lane has given its value
  const float taken = fibers[source].slot;
  pause_at(State::at_shuffle, line);  // every lane has taken one
  return taken;
}

// An array of the block's shared memory: full of NaN, so that a read before a write shows.
RAW void* gpu_shared(const void* key, unsigned long size) {
  for (unsigned k = 0; k < shared_count; k++) {
    if (shared_arrays[k].key == key) return shared_arrays[k].memory;
  }
  if (shared_count == MOST_SHARED) fail(*current, "too many shared arrays", 0);
#if defined(__SANITIZE_THREAD__)  // never used twice, so that blocks do not seem to race
  void* memory = (void*)syscall(SYS_mmap, nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (size_t k = 0; k < size; k++) ((volatile char*)memory)[k] = -1;
#else
  void* memory = std::malloc(size);
  std::memset(memory, 0xff, size);
#endif
  shared_arrays[shared_count++] = {key, memory, size};
  return memory;
}

// Runs a grid of one dimension. Returns 1 for what no GPU would launch.
RAW int gpu_launch(void* entry, unsigned blocks, unsigned threads, const uint64_t* given, unsigned count) {
  if (!blocks || !threads || threads > MOST_THREADS || threads % gpu_warp || count > MOST_ARGUMENTS) return 1;
  entry_point = entry;
  thread_count = threads;
  gpu_grid = {blocks, 1, 1};
  for (unsigned k = 0; k < count; k++) arguments[k] = given[k];
  for (unsigned k = 0; k < threads; k++) fibers[k].number = k;
#if defined(__SANITIZE_THREAD__)
  host.sanitizer = __tsan_get_current_fiber();
#endif
  for (unsigned block = 0; block < blocks; block++) {
    gpu_block = {block, 0, 0};
    run_block();
    end_block();
  }
  ORDERED(__tsan_acquire, end_tag);
  return 0;
}

// Whether an address lies in the shared memory of the block that runs, and in which of its arrays' bytes.
int gpu_is_shared(const void* address) {
  for (unsigned k = 0; k < shared_count; k++) {
    const Shared& one = shared_arrays[k];
    if (address >= one.memory && address < (char*)one.memory + one.size) return 1;
  }
  return 0;
}

int gpu_runs() { return current != &host; }
}
