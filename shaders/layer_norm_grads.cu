// layer_norm_grads: layer_norm_back and layer_norm_params in one read of x and dy.
//
//   dx[r, j] = r * (u - mean(u) - xhat * mean(u * xhat)),  xhat = (x - mean) * r,  u = dy * alpha
//   partial[c, 0, j] = sum_r dy[r, j] * xhat[r, j]     over the rows r of chunk c, by turns
//   partial[c, 1, j] = sum_r dy[r, j]
//
//   argument   name         shape           type            access
//   0          x            [rows, d]       F               read
//   1          dy           [rows, d]       F               read
//   2          alpha        [d]             F or f32        read
//   3          eps          [1]             f32             read
//   4          dx           [rows, d]       F               write
//   5          stats        [rows, 2]       f32: (mean, r)  write
//   6          partial      [chunks, 2, d]  f32             read and write
//   7          rows                         int64
//   8          d                            int32
//   9          per                          int64
//   10         first_row                    int64
//   11         row_count                    int64
//   12         first_chunk                  int64
//   13         chunk_count                  int64
//
// A block takes a chunk. Its TEAMS teams walk the rows by turns; a thread keeps the sums of its columns in registers
// all the way, and in the end the teams' sums are added in order. 3 passes over rows x d.
// The same arithmetic in the same order as layer_norm_back and layer_norm_params.
// Twin: layer_norm_grads.wgsl. Oracle: reference.layer_norm_back, reference.layer_norm_params.
// Parts: lib/row, lib/team, lib/statistics, lib/alpha, lib/gradient, lib/turns, lib/cell, lib/storage.

struct ColumnSums {
  Columns dalpha[CELLS];
  Columns dbeta[CELLS];

  __device__ void operator()(int k, int i, float g, float xhat) {
    dalpha[k].at[i] += g * xhat;
    dbeta[k].at[i] += g;
  }
};

__device__ inline void begin_sums(ColumnSums& sums, const Columns* partial, bool goes_on, int width) {
  UNROLL for (int k = 0; k < CELLS; k++) {
    const int column = k * TEAM + (int)threadIdx.x;
    const bool there = goes_on && threadIdx.x < TEAM && column < width;
    sums.dalpha[k] = there ? partial[column] : Columns{};
    sums.dbeta[k] = there ? partial[width + column] : Columns{};
  }
}

__device__ inline void write_sums(const ColumnSums& sums, Columns* partial, int width) {
  UNROLL for (int k = 0; k < CELLS; k++) {
    const int column = k * TEAM + (int)threadIdx.x;
    const Columns dalpha = turn_sum(sums.dalpha[k]);
    const Columns dbeta = turn_sum(sums.dbeta[k]);
    if (threadIdx.x < TEAM && column < width) {
      partial[column] = dalpha;
      partial[width + column] = dbeta;
    }
  }
}

KERNEL layer_norm_grads(
    const F* __restrict__ x, const F* __restrict__ dy, const A* __restrict__ alpha, const float* __restrict__ eps,
    F* __restrict__ dx, float* __restrict__ stats, float* partial, long long rows, int d, long long per,
    long long first_row, long long row_count, long long first_chunk, long long chunk_count) {
  const int width = d / WIDTH;
  for (long long chunk = blockIdx.x; chunk < chunk_count; chunk += gridDim.x) {
    const Walk walk = walk_of(first_chunk + chunk, per, first_row, row_count);
    Columns* chunk_sums = (Columns*)partial + 2 * chunk * width;
    ColumnSums sums;
    begin_sums(sums, chunk_sums, walk.goes_on, width);
    for (long long first = walk.begin; first < walk.end; first += TEAMS) {
      layer_norm_row(x, dy, alpha, eps, dx, stats, d, row_at(first + threadIdx.x / TEAM, walk.end, d), sums);
    }
    write_sums(sums, chunk_sums, width);
  }
}
