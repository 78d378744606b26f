// row: where a row lies in its bindings, cell by cell.
//
// A cell is four neighbouring elements that are read at once (lib/storage). A row whose d is a multiple of four begins
// with a cell (ALIGNED); another one begins `shift` elements into its first cell and shares its outer cells with its
// neighbours. Either way quad q of a row is the cell `row.cell + q`, and what it holds of other rows counts as zero.
// Needs: sizes.d, sizes.row_count, sizes.origin; TEAM, TEAMS, ROWS_IN_TURN, QUADS, FULL, ALIGNED.

struct Row {
  index: u32,   // in the window
  cell: u32,    // the binding's cell in which the row begins
  cells: u32,   // how many cells hold some of the row; 0 for a row that is not there
  shift: u32,   // how many elements of the first cell belong to the row before
  length: u32,  // d; 0 for a row that is not there
}

// The row that a thread's team begins with. Row numbers fold over a grid of two dimensions.
fn first_row(group: vec3u, groups: vec3u, thread: u32) -> u32 {
  return ((group.x + group.y * groups.x) * TEAMS + thread / TEAM) * ROWS_IN_TURN;
}

fn row_at(index: u32) -> Row {
  var row = Row(index, 0u, 0u, 0u, 0u);
  if (index < sizes.row_count) {
    let element = sizes.origin + index * sizes.d;
    row.cell = element / 4u;
    if (!ALIGNED) {
      row.shift = element % 4u;
    }
    row.cells = (row.shift + sizes.d + 3u) / 4u;
    row.length = sizes.d;
  }
  return row;
}

// How often a thread goes round a row: constant where the row is kept, so that the loop can be unrolled.
fn steps_of(row: Row) -> u32 {
  if (QUADS > 0u) {
    return QUADS;
  }
  return (row.cells + TEAM - 1u) / TEAM;
}

// The column of the first element of quad `q`; wraps round below zero in the first cell of a shifted row.
fn column_of(row: Row, q: u32) -> u32 {
  return 4u * q - row.shift;
}

// Whether quad `q` may be read: where the row is FULL each thread has one, if only of another row.
fn readable(row: Row, q: u32) -> bool {
  return FULL || q < row.cells;
}

// `quad` with zeros for what lies outside the row.
fn inside(row: Row, q: u32, quad: vec4f) -> vec4f {
  if (FULL) {
    return quad;
  }
  if (ALIGNED) {
    return select(vec4f(), quad, q < row.cells);
  }
  return select(vec4f(), quad, vec4u(column_of(row, q)) + vec4u(0u, 1u, 2u, 3u) < vec4u(row.length));
}

// The sum of a quad's elements.
fn across(quad: vec4f) -> f32 {
  return (quad.x + quad.y) + (quad.z + quad.w);
}
