// quads: a row's quads of SOURCE, which stands for each input of rows.
// Needs: lib/row, lib/read.

// Quad `q`, zero outside the row.
fn SOURCE_quad(row: Row, q: u32) -> vec4f {
  var quad = vec4f();
  if (readable(row, q)) {
    quad = inside(row, q, SOURCE_at(element_of(row, q)));
  }
  return quad;
}
