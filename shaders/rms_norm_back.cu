// rms_norm_back: gradient of an RMSNorm by its input, row by row, and each row's r as (0, r).
//
//   xhat = x * r,  r = (mean(x^2) + eps)^-1/2,  u = dy * alpha
//   dx[r, j] = r * (u - xhat * mean(u * xhat))
//
//   argument   name       shape      type         access
//   0          x          [rows, d]  F            read
//   1          dy         [rows, d]  F            read
//   2          alpha      [d]        F or f32     read
//   3          eps        [1]        f32          read
//   4          dx         [rows, d]  F            write
//   5          stats      [rows, 2]  f32: (0, r)  write
//   6          d                     int32
//   7          row_count             int64
//
// RMSNorm (Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019) is a LayerNorm whose mean is held at 0. So
// its stats are that one's with a mean of 0, and layer_norm_params makes the scale's partial sums of them.
// A team of TEAM threads takes a row. Where the squares overflow float32 lib/statistics.cuh takes those of the scaled
// row. While a row fits (KEPT = 2) each element is read once: 3 passes over rows x d. Where only x is kept 4, else a row
// is read again for every sum: 6 passes. Right for any d >= 1, any rows and any number of blocks.
// Twin: rms_norm_back.wgsl. Oracle: reference.rms_norm_back.
// Parts: lib/row, lib/team, lib/statistics, lib/alpha, lib/gradient, lib/cell, lib/storage.

// The statistics of a row that is not centred: its r.
template <bool KEEP>
__device__ Statistics root_of(Operand<KEEP>& x, const Row& row, int d, float eps) {
  const int steps = steps_of(row);
  Shares<2> squares = {};
  UNROLL for (int k = 0; k < steps; k++) {
    if (!inside(row, k)) continue;
    const Cell cell = x.read(k);
    UNROLL for (int i = 0; i < WIDTH; i++) {
      const float value = widen(cell.at[i]);
      const float small = value * SMALL;
      squares.at[0] += value * value;
      squares.at[1] += small * small;
    }
  }
  squares = team_sum(squares);
  return {0.0f, 0.0f, inverse_deviation(0.0f, squares.at[0] / d, squares.at[1] / d, eps)};
}

KERNEL rms_norm_back(
    const F* __restrict__ x, const F* __restrict__ dy, const A* __restrict__ alpha, const float* __restrict__ eps,
    F* __restrict__ dx, float* __restrict__ stats, int d, long long row_count) {
  for (long long first = (long long)blockIdx.x * TEAMS; first < row_count; first += (long long)gridDim.x * TEAMS) {
    const Row row = row_at(first + threadIdx.x / TEAM, row_count, d);
    Operand<(KEPT > 0)> x_row(x, row);
    Nothing nothing;
    gradient_row<false>(x_row, dy, alpha, dx, stats, d, row, root_of(x_row, row, d, eps[0]), nothing);
  }
}
