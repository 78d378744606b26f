// layer_norm_stats_parts: layer_norm_stats for few long rows, each cut into parts, so that they use the whole device.
//
//   mean = sum_j x[r, j] / d,  r = (var + eps)^-1/2
//
//   argument   name       shape                type            access
//   0          x          [rows, d]            F               read
//   1          eps        [1]                  f32             read
//   2          stats      [rows, 2]            f32: (mean, r)  write
//   3          sums       [rows, parts, 2, 4]  f32             read and write
//   4          d                               int32
//   5          part                            int64
//   6          parts                           int64
//   7          phase                           int64
//   8          row_count                       int64
//
// The same statistics, in the same order, as layer_norm_back_parts': phases 0 and 1 are its own, phase 2 writes.
// 2 passes over rows x d. Right for any d >= 1 and any number of parts, rows and blocks.
// Twin: layer_norm_stats_parts.wgsl. Oracle: reference.layer_norm_stats.
// Parts: lib/row, lib/part, lib/team, lib/statistics, lib/part_statistics, lib/cell, lib/storage.

KERNEL layer_norm_stats_parts(
    const F* __restrict__ x, const float* __restrict__ eps, float* __restrict__ stats, float* sums, int d,
    long long part, long long parts, long long phase, long long row_count) {
  const Parts cut = {d, part, parts};
  for (long long unit = blockIdx.x; unit < row_count * parts; unit += gridDim.x) {
    const Row here = cut.at(unit);
    if (phase < STATISTICS_PHASES) {
      sum_for_statistics(x, sums, here, unit, (int)phase, cut);
    } else {
      write_part_statistics(stats, here, unit, cut, statistics_of_parts(sums, here, cut, eps[0]));
    }
  }
}
