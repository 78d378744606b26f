// yardstick/total: a workgroup's sum by a tree over shared memory, returned to every thread.

const NT = 256u;

var<workgroup> smem: array<f32, NT>;

fn total(value: f32, t: u32) -> f32 {
  workgroupBarrier();
  smem[t] = value;
  workgroupBarrier();
  for (var stride = NT / 2u; stride > 0u; stride /= 2u) {
    if (t < stride) {
      smem[t] += smem[t + stride];
    }
    workgroupBarrier();
  }
  return smem[0];
}
