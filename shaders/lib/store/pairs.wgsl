// store/pairs: writes dx of 16-bit rows that share their outer cells with their neighbours, word by word.
//
// Where d is odd, an even row and the next share a word. A team takes the two in turn (ROWS_IN_TURN = 2): the even
// row's last element waits in `seam` and goes out with the odd row's first, so no word is written twice and nothing
// races. The barriers of the odd row's sums lie between. A window begins with an even row.
// Needs: dx, sizes.row_count; TEAM, TEAMS; lib/row, lib/storage.

alias Stored = Word;

var<workgroup> seam: array<u32, TEAMS>;

fn store(row: Row, q: u32, quad: vec4f, thread: u32) {
  let cell = narrow(quad);
  let word = 2u * (row.cell + q);
  let column = column_of(row, q);
  store_pair(row, word, column, cell.x, thread / TEAM);
  store_pair(row, word + 1u, column + 2u, cell.y, thread / TEAM);
}

fn store_pair(row: Row, word: u32, column: u32, pair: u32, team: u32) {
  let low = column < row.length;
  let high = column + 1u < row.length;
  if (low && high) {
    dx[word] = pair;
  } else if (low && row.index + 1u == sizes.row_count) {
    dx[word] = pair & 0xffffu;
  } else if (low) {
    seam[team] = pair & 0xffffu;
  } else if (high) {
    dx[word] = seam[team] | (pair & 0xffff0000u);
  }
}
