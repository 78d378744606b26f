// gpu: what differs between CUDA, HIP and a host compiler. No header of theirs is needed, so that NVRTC, nvcc, hipRTC,
// hipcc and clang all take the same text.
//
// A host compiler (ROWGRAD_HOST) brings its own threadIdx, barriers, shuffles, WARP and SHARED before this file.

#if defined(ROWGRAD_HOST)
#define UNROLL
#define square_root __builtin_sqrtf
#elif defined(__HIP__) || defined(__HIPCC__) || defined(__HIPCC_RTC__)
#if !defined(__HIPCC_RTC__)
#include <hip/hip_runtime.h>  // hipcc alone needs it: hipRTC has it built in
#endif
#define UNROLL _Pragma("unroll")
#define ROWGRAD_HIP 1
#define square_root __builtin_sqrtf
#define shuffle_xor(value, reach) __shfl_xor(value, reach)  // HIP's masks are 64 bits wide in some versions
#if defined(__GFX9__)
#define WARP 64
#else
#define WARP 32
#endif
#else
#define UNROLL _Pragma("unroll")
#define square_root sqrtf
#define shuffle_xor(value, reach) __shfl_xor_sync(0xffffffffu, value, reach)
#define WARP 32
#endif

#if !defined(SHARED)
#define SHARED(type, name, length) __shared__ type name[length]
#endif

// The 1 has nvcc give a thread all the registers it wants: else it spills a word or two for the sake of more warps.
#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS, 1)

typedef unsigned short Bits16;
typedef unsigned int Bits32;

__device__ inline float float_of(Bits32 bits) {
  union { Bits32 bits; float value; } both = {bits};
  return both.value;
}

__device__ inline Bits32 bits_of(float value) {
  union { float value; Bits32 bits; } both = {value};
  return both.bits;
}
