// part: a row that is cut into parts, one for each block, and the sums of its parts.
//
// Part p holds columns p * part to min((p + 1) * part, d), or nothing where it begins behind them; for lib/row it is a
// row. Units count the parts of all rows. A launch is a grid for every phase: each part leaves its sums in `sums`, and
// in the phases after it every block adds those of its row, in one order, so that all have the same bits.
// Needs: lib/row, lib/team; TEAM (all threads of the block), PHASES, WIDTH.

struct Parts {
  int d;
  long long part;   // elements of a part
  long long parts;  // parts of a row

  __device__ long long column(long long unit) const { return unit % parts * part; }

  __device__ Row at(long long unit) const {
    const long long index = unit / parts;
    const long long left = d - column(unit);
    const long long length = left < 0 ? 0 : left < part ? left : part;
    return {index, index * (d / WIDTH) + column(unit) / WIDTH, (int)(length / WIDTH)};
  }
};

// What a phase leaves of a unit: up to four sums, zeros for those that it has not. Buffers begin with a cell or anywhere.
struct alignas(WIDTH > 1 ? 16 : 4) Slot {
  float at[4];
};

__device__ inline long long sums_slot(long long unit, int phase) { return unit * (PHASES - 1) + phase; }

// Leaves the sums of the threads' shares for the phases that follow.
template <int N>
__device__ void sum_part(float* sums, long long unit, int phase, Shares<N> share) {
  share = team_sum(share);
  if (threadIdx.x == 0) {
    Slot slot = {};
    UNROLL for (int n = 0; n < N; n++) slot.at[n] = share.at[n];
    ((Slot*)sums)[sums_slot(unit, phase)] = slot;
  }
}

// What an earlier phase summed, over all parts of the row.
template <int N>
__device__ Shares<N> sum_of_parts(const float* sums, const Row& part, int phase, long long parts) {
  Shares<N> share = {};
  for (long long p = threadIdx.x; p < parts; p += TEAM) {
    const Slot& slot = ((const Slot*)sums)[sums_slot(part.index * parts + p, phase)];
    UNROLL for (int n = 0; n < N; n++) share.at[n] += slot.at[n];
  }
  return team_sum(share);
}
