// team: sums over the threads that share a row.
//
// Every thread of the block has to come here, its row there or not: shuffles are for whole warps and barriers for all.
// The order of the additions is fixed, so the same input gives the same bits.
// Needs: TEAM (a power of two), THREADS (a multiple of WARP).

// N sums at once.
template <int N>
struct Shares {
  float at[N];
};

// The sums of `share` over the thread's team, the same in each of its threads.
template <int N>
__device__ Shares<N> team_sum(Shares<N> share) {
  for (int reach = (TEAM < WARP ? TEAM : WARP) / 2; reach > 0; reach /= 2) {
    UNROLL for (int n = 0; n < N; n++) share.at[n] += shuffle_xor(share.at[n], reach);
  }
  if (TEAM > WARP) {
    SHARED(Shares<N>, of_warps, THREADS / WARP);
    __syncthreads();  // the sums before these have been read by all
    if (threadIdx.x % WARP == 0) of_warps[threadIdx.x / WARP] = share;
    __syncthreads();
    const int first = threadIdx.x / TEAM * (TEAM / WARP);
    share = of_warps[first];
    for (int warp = 1; warp < TEAM / WARP; warp++) {
      UNROLL for (int n = 0; n < N; n++) share.at[n] += of_warps[first + warp].at[n];
    }
  }
  return share;
}
