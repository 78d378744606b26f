// storage/float32: elements lie as they are.

typedef float F;

__device__ inline F narrow(float value) { return value; }
