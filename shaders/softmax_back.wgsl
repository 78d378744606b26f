// softmax_back: gradient of a softmax by its input, row by row.
//
//   dx[r, j] = y[r, j] * (dy[r, j] - sum_k dy[r, k] * y[r, k])
//
//   binding  name   shape      type            access
//   0        y      [rows, d]  F               read
//   1        dy     [rows, d]  F               read
//   2        dx     [rows, d]  F               write
//   3        sizes  Meta       u32 fields      uniform
//
// A team of TEAM threads takes a row. While a row fits (BOTH) each element is read once: 3 passes over rows x d in all.
// Where only y is kept (QUADS > 0) dy is read a second time for the write: 4 passes; else both are: 5.
// Right for any d >= 1, any rows and any number of workgroups.
// Twin: softmax_back.cu. Oracle: reference.softmax_back.
// Parts: lib/row, lib/quads, lib/team, lib/read, lib/storage, lib/store.

struct Meta {
  d: u32,
  row_count: u32,
  origin: u32,
}

@group(0) @binding(0) var<storage, read> y: array<Stored>;
@group(0) @binding(1) var<storage, read> dy: array<Stored>;
@group(0) @binding(2) var<storage, read_write> dx: array<Stored>;
@group(0) @binding(3) var<uniform> sizes: Meta;

var<private> y_kept: array<vec4f, KEPT>;
var<private> dy_kept: array<vec4f, KEPT_BESIDE>;

fn softmax_row(row: Row, thread: u32) {
  let lane = thread % TEAM;
  let steps = steps_of(row);

  var products = vec4f();
  for (var k = 0u; k < steps; k++) {
    let a = y_quad(row, k * TEAM + lane);
    let b = dy_quad(row, k * TEAM + lane);
    if (QUADS > 0u) {
      y_kept[k] = a;
    }
    if (BOTH) {
      dy_kept[k] = b;
    }
    products += a * b;
  }
  let inner = team_sum(vec4f(across(products), 0.0, 0.0, 0.0), thread).x;

  for (var k = 0u; k < steps; k++) {
    let q = k * TEAM + lane;
    var a: vec4f;
    var b: vec4f;
    if (QUADS > 0u) {
      a = y_kept[k];
    } else {
      a = y_quad(row, q);
    }
    if (BOTH) {
      b = dy_kept[k];
    } else {
      b = dy_quad(row, q);
    }
    if (q < row.quads) {
      store(row, q, a * (b - inner));
    }
  }
  end_store(row, thread);
}

@compute @workgroup_size(THREADS)
fn softmax_back(
  @builtin(workgroup_id) group: vec3u,
  @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_index) thread: u32,
) {
  let first = first_row(group, groups, thread);
  for (var k = 0u; k < ROWS_IN_TURN; k++) {
    softmax_row(row_at(first + k), thread);
  }
}
