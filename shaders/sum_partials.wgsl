// sum_partials: a LayerNorm's parameter gradients from their partial rows.
//
//   dalpha[j] = sum_c partial[c, 0, j]     over the chunks c, ascending, from 0
//   dbeta[j]  = sum_c partial[c, 1, j]
//
//   binding  name     shape           type        access
//   0        partial  [chunks, 2, d]  f32         read ("partial" is reserved in WGSL: partial_)
//   1        dalpha   [d]             f32         read and write
//   2        dbeta    [d]             f32         read and write
//   3        sizes    Meta            u32 fields  uniform
//
// Additions alone, in the order of the host's sum, so that both give the same bits. The binding may hold only a window
// of the chunks, from first_chunk; a window that is not the first goes on from the sums it finds.
// A thread takes a column. Twin: sum_partials.cu. Oracle: reference.sum_partials.

struct Meta {
  d: u32,
  first_chunk: u32,
  chunk_count: u32,
  partial_origin: u32,
}

@group(0) @binding(0) var<storage, read> partial_: array<f32>;
@group(0) @binding(1) var<storage, read_write> dalpha: array<f32>;
@group(0) @binding(2) var<storage, read_write> dbeta: array<f32>;
@group(0) @binding(3) var<uniform> sizes: Meta;

@compute @workgroup_size(THREADS)
fn sum_partials(
  @builtin(workgroup_id) group: vec3u,
  @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_index) thread: u32,
) {
  let j = (group.x + group.y * groups.x) * THREADS + thread;
  if (j < sizes.d) {
    var alpha_sum = 0.0;
    var beta_sum = 0.0;
    if (sizes.first_chunk > 0u) {
      alpha_sum = dalpha[j];
      beta_sum = dbeta[j];
    }
    for (var chunk = 0u; chunk < sizes.chunk_count; chunk++) {
      let slot = sizes.partial_origin + chunk * 2u * sizes.d + j;
      alpha_sum += partial_[slot];
      beta_sum += partial_[slot + sizes.d];
    }
    dalpha[j] = alpha_sum;
    dbeta[j] = beta_sum;
  }
}
