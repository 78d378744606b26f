// yardstick/sum_partials: what the seed's host does with the partials, on the device.
//
//   dalpha[j] = sum_c partial[c, 0, j]     over the chunks c, ascending, from 0
//   dbeta[j]  = sum_c partial[c, 1, j]
//
// A thread takes a column. Measured by `rowgrad bench`, used by nothing else.

KERNEL sum_partials(const float* partial, float* dalpha, float* dbeta, int chunks, int d) {
  const int j = blockIdx.x * THREADS + threadIdx.x;
  if (j < d) {
    float alpha_sum = 0.0f;
    float beta_sum = 0.0f;
    for (long long c = 0; c < chunks; c++) {
      alpha_sum += partial[2 * c * d + j];
      beta_sum += partial[(2 * c + 1) * d + j];
    }
    dalpha[j] = alpha_sum;
    dbeta[j] = beta_sum;
  }
}
