// store/pairs: writes dx of 16-bit rows that are no whole cells, word by word.
//
// Where d is odd, an even row and the next share a word. A team takes the two in turn (ROWS_IN_TURN = 2): the even
// row's last element waits and goes out with the odd row's first, so no word is written twice and nothing races. A
// window begins with an even row.
// Needs: dx, sizes.row_count; TEAM, ROWS_IN_TURN; lib/row, lib/team, lib/storage.

var<private> last: u32;    // the row's last element, in a low half, in the lane that has it
var<private> before: u32;  // that of the row before, in every lane

// Each word has one store: llvmpipe goes through every store lane by lane, whether a branch takes it or not.
fn store(row: Row, q: u32, quad: vec4f) {
  let cell = narrow(quad);
  let word = element_of(row, q) / 2u;
  let column = column_of(row, q);
  store_pair(row, word, column, cell.x);
  store_pair(row, word + 1u, column + 2u, cell.y);
  if (ROWS_IN_TURN > 1u) {
    // An even row of odd d ends in a low half: in its last quad's cell.x, or in cell.y where d % 4 is 3.
    let end = row.shift + row.length;
    last = select(last, select(cell.x, cell.y, end % 4u == 3u) & 0xffffu, q == end / 4u);
  }
}

fn store_pair(row: Row, word: u32, column: u32, pair: u32) {
  let low = column < row.length;
  let high = column + 1u < row.length;
  let waits = low && !high && row.index + 1u < sizes.row_count;
  if ((low || high) && !waits) {
    dx[word] = select(before, pair & 0xffffu, low) | select(0u, pair & 0xffff0000u, high);
  }
}

// Every thread of the workgroup has to come here, behind its team's row.
fn end_store(row: Row, thread: u32) {
  if (ROWS_IN_TURN > 1u) {
    before = of_lane(last, (row.shift + row.length) / 4u % TEAM, thread);
  }
}
