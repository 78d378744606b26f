// What a kernel's text finds in place of a GPU compiler: put in front of it, for g++ on x86-64.
// WARP is given on the command line. The runtime (runtime.cpp) is another library.

#define ROWGRAD_HOST 1
#define __global__
#define __device__
#define __launch_bounds__(...)

struct Index {
  unsigned x, y, z;
};

extern "C" {
extern Index gpu_thread, gpu_block, gpu_grid;
void gpu_barrier(int line);
float gpu_shuffle_xor(float value, unsigned reach, int line);
void* gpu_shared(const void* key, unsigned long size);
}

#define threadIdx gpu_thread
#define blockIdx gpu_block
#define gridDim gpu_grid
#define __syncthreads() gpu_barrier(__LINE__)
#define shuffle_xor(value, reach) gpu_shuffle_xor(value, reach, __LINE__)
#define SHARED(type, name, length) \
  static char name##_key;          \
  type* const name = (type*)gpu_shared(&name##_key, sizeof(type) * (length))
