// layer_norm_back: gradient of a LayerNorm by its input, row by row, and each row's (mean, r).
//
//   xhat = (x - mean) * r,  r = (var + eps)^-1/2,  u = dy * alpha
//   dx[r, j] = r * (u - mean(u) - xhat * mean(u * xhat))
//
//   argument   name       shape      type            access
//   0          x          [rows, d]  F               read
//   1          dy         [rows, d]  F               read
//   2          alpha      [d]        F or f32        read
//   3          eps        [1]        f32             read
//   4          dx         [rows, d]  F               write
//   5          stats      [rows, 2]  f32: (mean, r)  write
//   6          d                     int32
//   7          row_count             int64
//
// A team of TEAM threads takes a row; the statistics are lib/statistics.cuh's. While a row fits (KEPT = 2) each element
// is read once: 3 passes over rows x d. Where only x is kept 4, else a row is read again for every sum: 7 passes.
// Right for any d >= 1, any rows and any number of blocks.
// Twin: layer_norm_back.wgsl. Oracle: reference.layer_norm_back.
// Parts: lib/row, lib/team, lib/statistics, lib/alpha, lib/gradient, lib/cell, lib/storage.

KERNEL layer_norm_back(
    const F* __restrict__ x, const F* __restrict__ dy, const A* __restrict__ alpha, const float* __restrict__ eps,
    F* __restrict__ dx, float* __restrict__ stats, int d, long long row_count) {
  for (long long first = (long long)blockIdx.x * TEAMS; first < row_count; first += (long long)gridDim.x * TEAMS) {
    Nothing nothing;
    layer_norm_row(x, dy, alpha, eps, dx, stats, d, row_at(first + threadIdx.x / TEAM, row_count, d), nothing);
  }
}
