// yardstick/total: a block's sum by a tree over shared memory, returned to every thread.
// Needs: THREADS.

__device__ inline float total(float value) {
  SHARED(float, smem, THREADS);
  const int t = threadIdx.x;
  __syncthreads();
  smem[t] = value;
  __syncthreads();
  for (int stride = THREADS / 2; stride > 0; stride /= 2) {
    if (t < stride) smem[t] += smem[t + stride];
    __syncthreads();
  }
  return smem[0];
}
