// layer_norm_back_parts: layer_norm_back for few long rows, each cut into parts, so that they use the whole device.
//
//   xhat = (x - mean) * r,  r = (var + eps)^-1/2,  u = dy * alpha
//   dx[r, j] = r * (u - mean(u) - xhat * mean(u * xhat))
//
//   argument   name       shape                type            access
//   0          x          [rows, d]            F               read
//   1          dy         [rows, d]            F               read
//   2          alpha      [d]                  F or f32        read
//   3          eps        [1]                  f32             read
//   4          dx         [rows, d]            F               write
//   5          stats      [rows, 2]            f32: (mean, r)  write
//   6          sums       [rows, parts, 3, 4]  f32             read and write
//   7          d                               int32
//   8          part                            int64
//   9          parts                           int64
//   10         phase                           int64
//   11         row_count                       int64
//
// A block takes a part of a row. Phases 0 and 1 sum for the statistics (lib/part_statistics), phase 2 sums u and
// u * xhat, phase 3 writes dx: 7 passes over rows x d, as many as layer_norm_back's where it keeps nothing.
// Right for any d >= 1 and any number of parts, rows and blocks.
// Twin: layer_norm_back_parts.wgsl. Oracle: reference.layer_norm_back.
// Parts: lib/row, lib/part, lib/team, lib/statistics, lib/part_statistics, lib/alpha, lib/gradient, lib/cell,
// lib/storage.

__device__ inline void part_gradient(
    const F* x, const F* dy, const A* alpha, float eps, F* dx, float* stats, float* sums, const Row& part,
    long long unit, int phase, const Parts& cut) {
  const AlphaCell* alphas = (const AlphaCell*)(alpha + cut.column(unit)) + lane_of_team();
  XRow x_part(x, part);
  DyRow dy_part(dy, part);
  const Statistics statistics = statistics_of_parts(sums, part, cut, eps);
  if (phase == STATISTICS_PHASES) {
    Nothing nothing;
    sum_part(sums, unit, phase, gradient_share<true>(x_part, dy_part, alphas, part, statistics, nothing));
  } else {
    const Shares<2> sum = sum_of_parts<2>(sums, part, STATISTICS_PHASES, cut.parts);
    write_gradient<true>(x_part, dy_part, alphas, dx, part, statistics, sum, cut.d);
    write_part_statistics(stats, part, unit, cut, statistics);
  }
}

KERNEL layer_norm_back_parts(
    const F* __restrict__ x, const F* __restrict__ dy, const A* __restrict__ alpha, const float* __restrict__ eps,
    F* __restrict__ dx, float* __restrict__ stats, float* sums, int d, long long part, long long parts,
    long long phase, long long row_count) {
  const Parts cut = {d, part, parts};
  for (long long unit = blockIdx.x; unit < row_count * parts; unit += gridDim.x) {
    const Row here = cut.at(unit);
    if (phase < STATISTICS_PHASES) {
      sum_for_statistics(x, sums, here, unit, (int)phase, cut);
    } else {
      part_gradient(x, dy, alpha, eps[0], dx, stats, sums, here, unit, (int)phase, cut);
    }
  }
}
