// yardstick/layer_norm_back: the seed's algorithm, as it stands there.
//
//   dx = r * (u - mean(u) - xhat * mean(u * xhat))     xhat = (x - mean) * r, u = dy * alpha; (mean, r) into stats
//
// A block of 256 threads takes a row: scalar loads, four trees over shared memory, x read four times. 7 passes.
// Measured by `rowgrad bench`, used by nothing else. Parts: total, lib/storage.

KERNEL layer_norm_back(
    const F* x, const F* dy, const F* alpha, const float* eps, F* dx, float* stats, int d) {
  const long long row = blockIdx.x;
  const long long base = row * d;
  const float n = (float)d;

  float sum = 0.0f;
  for (int i = threadIdx.x; i < d; i += THREADS) sum += widen(x[base + i]);
  const float mean = total(sum) / n;

  float squares = 0.0f;
  for (int i = threadIdx.x; i < d; i += THREADS) {
    const float centred = widen(x[base + i]) - mean;
    squares += centred * centred;
  }
  const float r = 1.0f / square_root(total(squares) / n + eps[0]);

  float u_sum = 0.0f;
  float ux_sum = 0.0f;
  for (int i = threadIdx.x; i < d; i += THREADS) {
    const float xhat = (widen(x[base + i]) - mean) * r;
    const float u = widen(dy[base + i]) * widen(alpha[i]);
    u_sum += u;
    ux_sum += u * xhat;
  }
  const float u_mean = total(u_sum) / n;
  const float ux_mean = total(ux_sum) / n;

  for (int o = threadIdx.x; o < d; o += THREADS) {
    const float xhat = (widen(x[base + o]) - mean) * r;
    const float u = widen(dy[base + o]) * widen(alpha[o]);
    dx[base + o] = narrow(r * (u - u_mean - xhat * ux_mean));
  }
  if (threadIdx.x == 0) {
    stats[2 * row] = mean;
    stats[2 * row + 1] = r;
  }
}
