// layer_norm_stats: each row's (mean, r) alone, for when its dx is not wanted.
//
//   mean = sum_j x[r, j] / d,  r = (var + eps)^-1/2
//
//   argument   name       shape      type            access
//   0          x          [rows, d]  F               read
//   1          eps        [1]        f32             read
//   2          stats      [rows, 2]  f32: (mean, r)  write
//   3          d                     int32
//   4          row_count             int64
//
// The same statistics, in the same order, as layer_norm_back's: dalpha does not depend on what else was asked for.
// One pass over rows x d while a row fits, two for a longer one. Right for any d >= 1 and any rows.
// Twin: layer_norm_stats.wgsl. Oracle: reference.layer_norm_stats.
// Parts: lib/row, lib/team, lib/statistics, lib/cell, lib/storage.

KERNEL layer_norm_stats(
    const F* __restrict__ x, const float* __restrict__ eps, float* __restrict__ stats, int d, long long row_count) {
  for (long long first = (long long)blockIdx.x * TEAMS; first < row_count; first += (long long)gridDim.x * TEAMS) {
    const Row row = row_at(first + threadIdx.x / TEAM, row_count, d);
    Operand<(KEPT > 0)> x_row(x, row);
    write_statistics(stats, row, statistics_of(x_row, row, d, eps[0]));
  }
}
