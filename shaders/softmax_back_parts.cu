// softmax_back_parts: softmax_back for few long rows, each cut into parts, so that they use the whole device.
//
//   dx[r, j] = y[r, j] * (dy[r, j] - sum_k dy[r, k] * y[r, k])
//
//   argument   name       shape             type   access
//   0          y          [rows, d]         F      read
//   1          dy         [rows, d]         F      read
//   2          dx         [rows, d]         F      write
//   3          sums       [rows, parts, 4]  f32    read and write
//   4          d                            int32
//   5          part                         int64
//   6          parts                        int64
//   7          phase                        int64
//   8          row_count                    int64
//
// A block takes a part of a row. Phase 0 sums dy * y over the part, phase 1 over the row's parts and writes dx.
// 5 passes over rows x d. Right for any d >= 1 and any number of parts, rows and blocks.
// Twin: softmax_back_parts.wgsl. Oracle: reference.softmax_back.
// Parts: lib/row, lib/part, lib/team, lib/cell, lib/storage.

__device__ inline Shares<1> inner_share(const F* y, const F* dy, const Row& part) {
  const int steps = steps_of(part);
  Operand<false> y_part(y, part);
  Operand<false> dy_part(dy, part);
  Shares<1> inner = {};
  for (int k = 0; k < steps; k++) {
    if (!inside(part, k)) continue;
    const Cell a = y_part.read(k);
    const Cell b = dy_part.read(k);
    UNROLL for (int i = 0; i < WIDTH; i++) inner.at[0] += widen(a.at[i]) * widen(b.at[i]);
  }
  return inner;
}

__device__ inline void write_dx(const F* y, const F* dy, F* dx, const Row& part, float inner) {
  const int steps = steps_of(part);
  Operand<false> y_part(y, part);
  Operand<false> dy_part(dy, part);
  for (int k = 0; k < steps; k++) {
    if (!inside(part, k)) continue;
    const Cell a = y_part.read(k);
    const Cell b = dy_part.read(k);
    Cell result;
    UNROLL for (int i = 0; i < WIDTH; i++) result.at[i] = narrow(widen(a.at[i]) * (widen(b.at[i]) - inner));
    store(dx, part, k, result);
  }
}

KERNEL softmax_back_parts(
    const F* __restrict__ y, const F* __restrict__ dy, F* __restrict__ dx, float* sums, int d, long long part,
    long long parts, long long phase, long long row_count) {
  const Parts cut = {d, part, parts};
  for (long long unit = blockIdx.x; unit < row_count * parts; unit += gridDim.x) {
    const Row here = cut.at(unit);
    if (phase == 0) {
      sum_part(sums, unit, 0, inner_share(y, dy, here));
    } else {
      write_dx(y, dy, dx, here, sum_of_parts<1>(sums, here, 0, parts).at[0]);
    }
  }
}
