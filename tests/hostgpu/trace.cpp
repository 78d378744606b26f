
// Counts what a GPU's memory would see. g++ -fsanitize=kernel-address calls back every access of a kernel; what the
// lanes of a warp do at one instruction, for the same time, makes one request. Behind runtime.cpp.

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

namespace {

constexpr uintptr_t SECTOR = 32;
constexpr unsigned BANKS = 32;

struct Access {
  uintptr_t address;
  unsigned size;
};

// Block, warp, instruction, how often the thread came there before, the buffer or -1 for shared memory, load or store.
using Request = std::tuple<unsigned, unsigned, const void*, unsigned, int, bool>;

struct Buffer {
  uintptr_t begin;
  uintptr_t end;
};

struct Count {
  uint64_t bytes, sectors, requests;
};

std::vector<Buffer> buffers;
std::map<Request, std::vector<Access>> requests;
std::map<std::pair<unsigned, const void*>, unsigned> visits;
unsigned last_block;

int buffer_of(uintptr_t address) {
  for (size_t k = 0; k < buffers.size(); k++) {
    if (address >= buffers[k].begin && address < buffers[k].end) return (int)k;
  }
  return gpu_is_shared((const void*)address) ? -1 : -2;
}

void hit(const void* address, unsigned size, bool store, const void* instruction) {
  if (!gpu_runs()) return;
  const int buffer = buffer_of((uintptr_t)address);
  if (buffer == -2) return;  // the thread's own stack
  if (gpu_block.x != last_block) visits.clear();
  last_block = gpu_block.x;
  const unsigned turn = visits[{gpu_thread.x, instruction}]++;
  requests[{gpu_block.x, gpu_thread.x / gpu_warp, instruction, turn, buffer, store}].push_back(
      {(uintptr_t)address, size});
}

uint64_t sectors_of(const std::vector<Access>& accesses) {
  std::set<uintptr_t> sectors;
  for (const Access& one : accesses) {
    for (uintptr_t k = one.address / SECTOR; k <= (one.address + one.size - 1) / SECTOR; k++) sectors.insert(k);
  }
  return sectors.size();
}

// How often the banks have to be asked: the most words that one bank is asked for, as the GPU serves at once a phase of
// as many lanes as fill the banks.
uint64_t passes_of(const std::vector<Access>& accesses) {
  uint64_t passes = 0;
  const size_t lanes = std::max<size_t>(1, BANKS * 4 / accesses.front().size);
  for (size_t first = 0; first < accesses.size(); first += lanes) {
    std::map<unsigned, std::set<uintptr_t>> words;
    for (size_t k = first; k < std::min(first + lanes, accesses.size()); k++) {
      for (uintptr_t word = accesses[k].address / 4; word < (accesses[k].address + accesses[k].size + 3) / 4; word++) {
        words[word % BANKS].insert(word);
      }
    }
    size_t most = 0;
    for (const auto& bank : words) most = std::max(most, bank.second.size());
    passes += most;
  }
  return passes;
}

uint64_t phases_of(const std::vector<Access>& accesses) {
  const size_t lanes = std::max<size_t>(1, BANKS * 4 / accesses.front().size);
  return (accesses.size() + lanes - 1) / lanes;
}

}  // namespace

extern "C" {

void gpu_trace_begin() {
  buffers.clear();
  requests.clear();
  visits.clear();
  last_block = ~0u;
}

void gpu_trace_buffer(uintptr_t begin, uint64_t size) { buffers.push_back({begin, begin + size}); }

// Bytes, sectors and requests of a buffer's loads or stores.
void gpu_trace_count(int buffer, int store, uint64_t* out) {
  Count count = {};
  for (const auto& [request, accesses] : requests) {
    if (std::get<4>(request) != buffer || std::get<5>(request) != (store != 0)) continue;
    count.requests++;
    count.sectors += sectors_of(accesses);
    for (const Access& one : accesses) count.bytes += one.size;
  }
  out[0] = count.bytes, out[1] = count.sectors, out[2] = count.requests;
}

// Of shared memory: how often its banks were asked, and how often they would have to be at least.
void gpu_trace_shared(uint64_t* out) {
  out[0] = out[1] = 0;
  for (const auto& [request, accesses] : requests) {
    if (std::get<4>(request) != -1) continue;
    out[0] += passes_of(accesses);
    out[1] += phases_of(accesses);
  }
}

#define COUNTED(size)                                                                              \
  void __asan_load##size##_noabort(void* at) { hit(at, size, false, __builtin_return_address(0)); } \
  void __asan_store##size##_noabort(void* at) { hit(at, size, true, __builtin_return_address(0)); }
COUNTED(1)
COUNTED(2)
COUNTED(4)
COUNTED(8)
COUNTED(16)
void __asan_loadN_noabort(void* at, size_t size) { hit(at, size, false, __builtin_return_address(0)); }
void __asan_storeN_noabort(void* at, size_t size) { hit(at, size, true, __builtin_return_address(0)); }
void __asan_handle_no_return() {}
}
