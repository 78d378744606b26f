// sum_partials: a LayerNorm's parameter gradients from their partial rows.
//
//   dalpha[j] = sum_c partial[c, 0, j]     over the chunks c, ascending, from 0
//   dbeta[j]  = sum_c partial[c, 1, j]
//
//   argument   name         shape           type   access
//   0          partial      [chunks, 2, d]  f32    read
//   1          dalpha       [d]             f32    read and write
//   2          dbeta        [d]             f32    read and write
//   3          d                            int32
//   4          first_chunk                  int64
//   5          chunk_count                  int64
//
// Additions alone, in the order of the host's sum, so that both give the same bits. The buffer may hold only some of
// the chunks, from first_chunk; a part that is not the first goes on from the sums it finds.
// A thread takes a column. Twin: sum_partials.wgsl. Oracle: reference.sum_partials.

KERNEL sum_partials(
    const float* __restrict__ partial, float* dalpha, float* dbeta, int d, long long first_chunk,
    long long chunk_count) {
  for (long long j = (long long)blockIdx.x * THREADS + threadIdx.x; j < d; j += (long long)gridDim.x * THREADS) {
    float alpha_sum = first_chunk > 0 ? dalpha[j] : 0.0f;
    float beta_sum = first_chunk > 0 ? dbeta[j] : 0.0f;
    for (long long chunk = 0; chunk < chunk_count; chunk++) {
      alpha_sum += partial[2 * chunk * d + j];
      beta_sum += partial[(2 * chunk + 1) * d + j];
    }
    dalpha[j] = alpha_sum;
    dbeta[j] = beta_sum;
  }
}
