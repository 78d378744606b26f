// row: where a row lies in its bindings, quad by quad.
//
// A quad is four neighbouring elements, of which a thread takes one after the other. Quad 0 begins with the row; only
// where two 16-bit rows share a word (ROWS_IN_TURN = 2), the second one's begins one element early, with that word.
// What a quad holds of other rows counts as zero.
// Needs: sizes.d, sizes.row_count, sizes.origin; TEAM, TEAMS, ROWS_IN_TURN, QUADS, LOOPED, FULL, ALIGNED.

struct Row {
  index: u32,   // in the window
  start: u32,   // the element of the bindings with which quad 0 begins
  quads: u32,   // how many quads hold some of the row; 0 for a row that is not there
  shift: u32,   // how many elements of quad 0 belong to the row before: 0 or 1
  length: u32,  // d; 0 for a row that is not there
  first: u32,   // the column that lies with its first element: 0, but for a part of a row
}

// The row that a thread's team begins with. Row numbers fold over a grid of two dimensions.
fn first_row(group: vec3u, groups: vec3u, thread: u32) -> u32 {
  return ((group.x + group.y * groups.x) * TEAMS + thread / TEAM) * ROWS_IN_TURN;
}

fn row_at(index: u32) -> Row {
  var row = Row(index, 0u, 0u, 0u, 0u, 0u);
  if (index < sizes.row_count) {
    let element = sizes.origin + index * sizes.d;
    if (ROWS_IN_TURN > 1u) {
      row.shift = element % 2u;
    }
    row.start = element - row.shift;
    row.quads = (row.shift + sizes.d + 3u) / 4u;
    row.length = sizes.d;
  }
  return row;
}

// How often a thread goes round a row: constant where the row is kept, so that the loop can be unrolled, but where it
// is LOOPED.
fn steps_of(row: Row) -> u32 {
  return steps_over(row.quads);
}

fn steps_over(quads: u32) -> u32 {
  if (QUADS > 0u && !LOOPED) {
    return QUADS;
  }
  return (quads + TEAM - 1u) / TEAM;
}

// The element of the bindings with which quad `q` begins.
fn element_of(row: Row, q: u32) -> u32 {
  return row.start + 4u * q;
}

// The column of the first element of quad `q`; wraps round below zero in the first quad of a shifted row.
fn column_of(row: Row, q: u32) -> u32 {
  return 4u * q - row.shift;
}

// A quad of columns as the row's quads lie, where `before` is the column before it.
fn moved(row: Row, before: f32, quad: vec4f) -> vec4f {
  return select(quad, vec4f(before, quad.xyz), row.shift == 1u);
}

// A quad as the row's quads lie by its columns again, where `next` is the element behind it.
fn moved_back(row: Row, quad: vec4f, next: f32) -> vec4f {
  return select(quad, vec4f(quad.yzw, next), row.shift == 1u);
}

// Whether quad `q` may be read: where the row is FULL each thread has one, if only of another row.
fn readable(row: Row, q: u32) -> bool {
  return FULL || q < row.quads;
}

// `quad` with zeros for what lies outside the row.
fn inside(row: Row, q: u32, quad: vec4f) -> vec4f {
  if (FULL) {
    return quad;
  }
  if (ALIGNED) {
    return select(vec4f(), quad, q < row.quads);
  }
  return select(vec4f(), quad, vec4u(column_of(row, q)) + vec4u(0u, 1u, 2u, 3u) < vec4u(row.length));
}

// The sum of a quad's elements.
fn across(quad: vec4f) -> f32 {
  return (quad.x + quad.y) + (quad.z + quad.w);
}
