// gradient: one row of a LayerNorm's dx, and its (mean, r); an RMSNorm's is the same with both means held at 0.
//
// `gather(k, i, g, xhat)` is told every element of dy and of xhat = (x - mean) * r on the way: the one-pass kernel sums
// its columns there.
// Needs: lib/row, lib/team, lib/statistics, lib/alpha; KEPT.

struct Nothing {  // gathers nothing
  __device__ void operator()(int, int, float, float) {}
};

typedef Operand<(KEPT > 0)> XRow;
typedef Operand<(KEPT > 1)> DyRow;

// A thread's share of the sums of u, where the layer is CENTRED, and of u * xhat.
template <bool CENTRED, class Gather>
__device__ Shares<1 + CENTRED> gradient_share(
    const XRow& x_row, DyRow& dy_row, const AlphaCell* alphas, const Row& row, const Statistics& statistics,
    Gather& gather) {
  const int steps = steps_of(row);
  const float mean = statistics.near + statistics.rest;
  Shares<1 + CENTRED> sums = {};
  UNROLL for (int k = 0; k < steps; k++) {
    if (!inside(row, k)) continue;
    const Cell x_cell = x_row.again(k);
    const Cell dy_cell = dy_row.read(k);
    const AlphaCell alpha_cell = alphas[k * TEAM];
    UNROLL for (int i = 0; i < WIDTH; i++) {
      const float x_here = widen(x_cell.at[i]);
      const float g = widen(dy_cell.at[i]);
      const float u = g * widen(alpha_cell.at[i]);
      if (CENTRED) sums.at[0] += u;
      sums.at[CENTRED] += u * statistics.xhat(x_here);
      gather(k, i, g, (x_here - mean) * statistics.r);
    }
  }
  return sums;
}

// Writes a thread's cells of dx; `sums` are those of u, taken off where the layer is CENTRED, and of u * xhat.
template <bool CENTRED>
__device__ void write_gradient(
    const XRow& x_row, const DyRow& dy_row, const AlphaCell* alphas, F* dx, const Row& row,
    const Statistics& statistics, const Shares<1 + CENTRED>& sums, int d) {
  const int steps = steps_of(row);
  const float u_mean = CENTRED ? sums.at[0] / d : 0.0f;
  const float ux_mean = sums.at[CENTRED] / d;
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
}

// The row's dx by its statistics. What is not CENTRED sums less: a shuffle keeps alive what nobody reads after it.
template <bool CENTRED, class Gather>
__device__ void gradient_row(
    const XRow& x_row, const F* dy, const A* alpha, F* dx, float* stats, int d, const Row& row,
    const Statistics& statistics, Gather& gather) {
  const AlphaCell* alphas = (const AlphaCell*)alpha + lane_of_team();
  DyRow dy_row(dy, row);
  const auto sums = team_sum(gradient_share<CENTRED>(x_row, dy_row, alphas, row, statistics, gather));
  write_gradient<CENTRED>(x_row, dy_row, alphas, dx, row, statistics, sums, d);
  write_statistics(stats, row, statistics);
}

template <class Gather>
__device__ void layer_norm_row(
    const F* x, const F* dy, const A* alpha, const float* eps, F* dx, float* stats, int d, const Row& row,
    Gather& gather) {
  XRow x_row(x, row);
  gradient_row<true>(x_row, dy, alpha, dx, stats, d, row, statistics_of(x_row, row, d, eps[0]), gather);
}
