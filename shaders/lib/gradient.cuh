// gradient: one row of a LayerNorm's dx, and its (mean, r).
//
// `gather(k, i, g, xhat)` is told every element of dy and of xhat = (x - mean) * r on the way: the one-pass kernel sums
// its columns there.
// Needs: lib/row, lib/team, lib/statistics, lib/alpha; KEPT.

template <class Gather>
__device__ void layer_norm_row(
    const F* x, const F* dy, const A* alpha, const float* eps, F* dx, float* stats, int d, const Row& row,
    Gather& gather) {
  const int steps = steps_of(row);
  const AlphaCell* alphas = (const AlphaCell*)alpha + lane_of_team();
  Operand<(KEPT > 0)> x_row(x, row);
  Operand<(KEPT > 1)> dy_row(dy, row);
  const Statistics statistics = statistics_of(x_row, row, d, eps[0]);
  const float mean = statistics.near + statistics.rest;

  Shares<2> sums = {};
  UNROLL for (int k = 0; k < steps; k++) {
    if (!inside(row, k)) continue;
    const Cell x_cell = x_row.again(k);
    const Cell dy_cell = dy_row.read(k);
    const AlphaCell alpha_cell = alphas[k * TEAM];
    UNROLL for (int i = 0; i < WIDTH; i++) {
      const float x_here = widen(x_cell.at[i]);
      const float g = widen(dy_cell.at[i]);
      const float u = g * widen(alpha_cell.at[i]);
      sums.at[0] += u;
      sums.at[1] += u * statistics.xhat(x_here);
      gather(k, i, g, (x_here - mean) * statistics.r);
    }
  }
  sums = team_sum(sums);
  const float u_mean = sums.at[0] / d;
  const float ux_mean = sums.at[1] / d;

  UNROLL for (int k = 0; k < steps; k++) {
    if (!inside(row, k)) continue;
    const Cell x_cell = x_row.again(k);
    const Cell dy_cell = dy_row.again(k);
    const AlphaCell alpha_cell = alphas[k * TEAM];
    Cell result;
    UNROLL for (int i = 0; i < WIDTH; i++) {
      const float xhat = statistics.xhat(widen(x_cell.at[i]));
      const float u = widen(dy_cell.at[i]) * widen(alpha_cell.at[i]);
      result.at[i] = narrow(statistics.r * (u - u_mean - xhat * ux_mean));
    }
    store(dx, row, k, result);
  }
  write_statistics(stats, row, statistics);
}
