// yardstick/softmax_back: the seed's algorithm, as it stands there.
//
//   dx[r, j] = y[r, j] * (dy[r, j] - sum_k dy[r, k] * y[r, k])
//
// A block of 256 threads takes a row: scalar loads, a tree over shared memory, the row read again. 5 passes.
// Measured by `rowgrad bench`, used by nothing else. Parts: total, lib/storage.

KERNEL softmax_back(const F* y, const F* dy, F* dx, int d) {
  const long long base = (long long)blockIdx.x * d;
  float products = 0.0f;
  for (int i = threadIdx.x; i < d; i += THREADS) products += widen(dy[base + i]) * widen(y[base + i]);
  const float inner = total(products);
  for (int o = threadIdx.x; o < d; o += THREADS) {
    dx[base + o] = narrow(widen(y[base + o]) * (widen(dy[base + o]) - inner));
  }
}
