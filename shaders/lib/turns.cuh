// turns: sums over the teams that walk a chunk's rows by turns.
//
// Every thread of the block has to come here. The teams are added in order.
// Needs: TEAM, TEAMS, THREADS; lib/cell.

// The sum of `share` over the threads with the same lane, right in the first team.
__device__ inline Columns turn_sum(Columns share) {
  if (TEAMS > 1) {
    SHARED(float, of_teams, WIDTH * THREADS);  // a column's shares side by side, each in a bank of its own
    __syncthreads();  // the sum before this one has been read
    UNROLL for (int i = 0; i < WIDTH; i++) of_teams[i * THREADS + threadIdx.x] = share.at[i];
    __syncthreads();
    for (int thread = TEAM + threadIdx.x; thread < THREADS && threadIdx.x < TEAM; thread += TEAM) {
      UNROLL for (int i = 0; i < WIDTH; i++) share.at[i] += of_teams[i * THREADS + thread];
    }
  }
  return share;
}

// The rows of a chunk that are at hand, counted from the first row of the buffers.
struct Walk {
  long long begin;
  long long end;
  bool goes_on;  // the chunk began before: its sums go on from what is in partial
};

__device__ inline Walk walk_of(long long chunk, long long per, long long first_row, long long row_count) {
  const long long start = chunk * per - first_row;
  const long long begin = start < 0 ? 0 : start;
  const long long end = start + per < row_count ? start + per : row_count;
  return {begin, end, start < 0};
}
