// yardstick/layer_norm_params: the seed's algorithm, as it stands there.
//
//   partial[c, 0, j] = sum_r dy[r, j] * (x[r, j] - mean[r]) * r[r]     over the rows r of chunk c, ascending
//   partial[c, 1, j] = sum_r dy[r, j]
//
// A thread takes a column of a chunk, one scalar at a time. 2 passes. The grid's two dimensions lie in one.
// Measured by `rowgrad bench`, used by nothing else. Parts: lib/storage.

KERNEL layer_norm_params(
    const F* x, const F* dy, const float* stats, float* partial, long long rows, int d, long long per) {
  const int across = (d + THREADS - 1) / THREADS;
  const int j = blockIdx.x % across * THREADS + threadIdx.x;
  const long long c = blockIdx.x / across;
  if (j < d) {
    const long long end = (c + 1) * per < rows ? (c + 1) * per : rows;
    float dalpha = 0.0f;
    float dbeta = 0.0f;
    for (long long row = c * per; row < end; row++) {
      const float g = widen(dy[row * d + j]);
      dalpha += g * (widen(x[row * d + j]) - stats[2 * row]) * stats[2 * row + 1];
      dbeta += g;
    }
    partial[2 * c * d + j] = dalpha;
    partial[(2 * c + 1) * d + j] = dbeta;
  }
}
