// softmax_back: gradient of a softmax by its input, row by row.
//
//   dx[r, j] = y[r, j] * (dy[r, j] - sum_k dy[r, k] * y[r, k])
//
//   argument   name       shape      type  access
//   0          y          [rows, d]  F     read
//   1          dy         [rows, d]  F     read
//   2          dx         [rows, d]  F     write
//   3          d                     int32
//   4          row_count             int64
//
// A team of TEAM threads takes a row. While a row fits (KEPT = 2) each element is read once: 3 passes over rows x d in
// all; where only y is kept 4, else 5. Right for any d >= 1, any rows and any number of blocks.
// Twin: softmax_back.wgsl. Oracle: reference.softmax_back. Parts: lib/row, lib/team, lib/cell, lib/storage.

__device__ inline void softmax_row(const F* y, const F* dy, F* dx, const Row& row) {
  const int steps = steps_of(row);
  Operand<(KEPT > 0)> y_row(y, row);
  Operand<(KEPT > 1)> dy_row(dy, row);

  Shares<1> inner = {};
  UNROLL for (int k = 0; k < steps; k++) {
    if (!inside(row, k)) continue;
    const Cell a = y_row.read(k);
    const Cell b = dy_row.read(k);
    UNROLL for (int i = 0; i < WIDTH; i++) inner.at[0] += widen(a.at[i]) * widen(b.at[i]);
  }
  inner = team_sum(inner);

  UNROLL for (int k = 0; k < steps; k++) {
    if (!inside(row, k)) continue;
    const Cell a = y_row.again(k);
    const Cell b = dy_row.again(k);
    Cell result;
    UNROLL for (int i = 0; i < WIDTH; i++) result.at[i] = narrow(widen(a.at[i]) * (widen(b.at[i]) - inner.at[0]));
    store(dx, row, k, result);
  }
}

KERNEL softmax_back(
    const F* __restrict__ y, const F* __restrict__ dy, F* __restrict__ dx, int d, long long row_count) {
  for (long long first = (long long)blockIdx.x * TEAMS; first < row_count; first += (long long)gridDim.x * TEAMS) {
    softmax_row(y, dy, dx, row_at(first + threadIdx.x / TEAM, row_count, d));
  }
}
