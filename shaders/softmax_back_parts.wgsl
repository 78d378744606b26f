// softmax_back_parts: softmax_back for few long rows, each cut into parts, so that they use the whole device.
//
//   dx[r, j] = y[r, j] * (dy[r, j] - sum_k dy[r, k] * y[r, k])
//
//   binding  name   shape             type        access
//   0        y      [rows, d]         F           read
//   1        dy     [rows, d]         F           read
//   2        dx     [rows, d]         F           write
//   3        sums   [rows, parts, 4]  f32         read and write
//   4        sizes  Meta              u32 fields  uniform
//
// A workgroup takes a part of a row. Phase 0 sums dy * y over the part, phase 1 over the row's parts and writes dx.
// 5 passes over rows x d. For any d >= 1 but odd ones in 16 bits, whose rows share words; any number of parts.
// Twin: softmax_back_parts.cu. Oracle: reference.softmax_back.
// Parts: lib/row, lib/quads, lib/part, lib/team, lib/read, lib/storage, lib/store.

struct Meta {
  d: u32,
  part: u32,
  parts: u32,
  phase: u32,
  row_count: u32,
  origin: u32,
  sums_origin: u32,
}

@group(0) @binding(0) var<storage, read> y: array<Stored>;
@group(0) @binding(1) var<storage, read> dy: array<Stored>;
@group(0) @binding(2) var<storage, read_write> dx: array<Stored>;
@group(0) @binding(3) var<storage, read_write> sums: array<vec4f>;
@group(0) @binding(4) var<uniform> sizes: Meta;

fn inner_share(part: Row, thread: u32) -> vec4f {
  var products = vec4f();
  for (var q = thread; q < part.quads; q += TEAM) {
    products += y_quad(part, q) * dy_quad(part, q);
  }
  return vec4f(across(products), 0.0, 0.0, 0.0);
}

fn write_dx(part: Row, inner: f32, thread: u32) {
  for (var q = thread; q < part.quads; q += TEAM) {
    store(part, q, y_quad(part, q) * (dy_quad(part, q) - inner));
  }
}

@compute @workgroup_size(THREADS)
fn softmax_back_parts(
  @builtin(workgroup_id) group: vec3u,
  @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_index) thread: u32,
) {
  let unit = group.x + group.y * groups.x;
  let part = part_at(unit);
  if (sizes.phase == 0u) {
    sum_part(part, unit, inner_share(part, thread), thread);
  } else {
    write_dx(part, sum_of_parts(part, 0u, thread).x, thread);
  }
}
