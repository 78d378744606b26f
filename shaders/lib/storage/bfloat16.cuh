// storage/bfloat16: the upper half of a float32. Narrowing rounds to nearest even, overflows to Inf and keeps NaN: by
// one instruction where there is one (CUDA from sm_80), else by integers.

struct F {
  Bits16 bits;
};

__device__ inline float widen(F stored) { return float_of((Bits32)stored.bits << 16); }

__device__ inline F narrow(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  F stored;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(stored.bits) : "f"(value));
  return stored;
#else
  const Bits32 bits = bits_of(value);
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const Bits32 rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return {(Bits16)(is_nan ? (bits >> 16) | 0x40u : rounded >> 16)};
#endif
}
