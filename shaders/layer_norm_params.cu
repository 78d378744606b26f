// layer_norm_params: a LayerNorm's parameter gradients as one partial row per chunk of rows.
//
//   partial[c, 0, j] = sum_r dy[r, j] * (x[r, j] - mean[r]) * r[r]     over the rows r of chunk c, by turns
//   partial[c, 1, j] = sum_r dy[r, j]
//
//   argument   name         shape           type            access
//   0          x            [rows, d]       F               read
//   1          dy           [rows, d]       F               read
//   2          stats        [rows, 2]       f32: (mean, r)  read
//   3          partial      [chunks, 2, d]  f32             read and write
//   4          rows                         int64
//   5          d                            int32
//   6          per                          int64
//   7          first_row                    int64
//   8          row_count                    int64
//   9          first_chunk                  int64
//   10         chunk_count                  int64
//
// Chunk c holds rows c*per to min((c+1)*per, rows). The buffers may hold only some of the rows, from first_row; a chunk
// that began before them goes on from the sum it left in partial, so blocks never change the bits.
// A block takes TEAM cells of columns of one chunk or more; its TEAMS teams walk the rows by turns, and their sums are
// added in order: 2 passes over rows x d.
// Twin: layer_norm_params.wgsl. Oracle: reference.layer_norm_params. Parts: lib/turns, lib/cell, lib/storage.

__device__ inline void sum_columns(
    const F* x, const F* dy, const float* stats, Columns* partial, int d, const Walk& walk, long long slot, int column,
    bool there) {
  const int team = threadIdx.x / TEAM;
  const int width = d / WIDTH;
  Columns dalpha = {};
  Columns dbeta = {};
  if (there && walk.goes_on && team == 0) {
    dalpha = partial[slot];
    dbeta = partial[slot + width];
  }
  for (long long row = walk.begin + team; there && row < walk.end; row += TEAMS) {
    const Cell x_cell = ((const Cell*)x)[row * width + column];
    const Cell dy_cell = ((const Cell*)dy)[row * width + column];
    const float mean = stats[2 * row];
    const float r = stats[2 * row + 1];
    UNROLL for (int i = 0; i < WIDTH; i++) {
      const float g = widen(dy_cell.at[i]);
      dalpha.at[i] += g * ((widen(x_cell.at[i]) - mean) * r);
      dbeta.at[i] += g;
    }
  }
  dalpha = turn_sum(dalpha);
  dbeta = turn_sum(dbeta);
  if (there && team == 0) {
    partial[slot] = dalpha;
    partial[slot + width] = dbeta;
  }
}

KERNEL layer_norm_params(
    const F* __restrict__ x, const F* __restrict__ dy, const float* __restrict__ stats, float* partial, long long rows,
    int d, long long per, long long first_row, long long row_count, long long first_chunk, long long chunk_count) {
  const int width = d / WIDTH;
  const long long units = chunk_count * width;
  for (long long first = (long long)blockIdx.x * TEAM; first < units; first += (long long)gridDim.x * TEAM) {
    const long long unit = first + threadIdx.x % TEAM;
    const long long chunk = unit / width;
    const int column = (int)(unit - chunk * width);
    const Walk walk = walk_of(first_chunk + chunk, per, first_row, row_count);
    sum_columns(x, dy, stats, (Columns*)partial, d, walk, 2 * chunk * width + column, column, unit < units);
  }
}
