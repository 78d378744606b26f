// storage/float16: 16 bits, by the compiler's own conversion. Narrowing rounds to nearest even, overflows to Inf and
// keeps NaN and subnormals.

struct F {
  Bits16 bits;
};

#if defined(ROWGRAD_HOST) || defined(ROWGRAD_HIP)

union HalfBits {
  Bits16 bits;
  _Float16 half;
};

__device__ inline float widen(F stored) {
  HalfBits both = {stored.bits};
  return (float)both.half;
}

__device__ inline F narrow(float value) {
  HalfBits both;
  both.half = (_Float16)value;
  return {both.bits};
}

#else

__device__ inline float widen(F stored) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(stored.bits));
  return value;
}

__device__ inline F narrow(float value) {
  F stored;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(stored.bits) : "f"(value));
  return stored;
}

#endif
