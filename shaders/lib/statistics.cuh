// statistics: a row's mean and r = (var + eps)^-1/2.
//
// The corrected two-pass algorithm (Chan, Golub and LeVeque, "Algorithms for computing the sample variance", 1983):
// what the first mean missed, `rest`, is the mean of the centred row, and is taken off the variance and off x again.
// A constant row comes out as exactly centred, and a mean far above the spread costs no digits.
// Where the squares overflow float32 (|x| above 1e18) the sum of squares of the scaled row takes their place, as it
// does where eps is as large as that.
// Needs: lib/row, lib/team.

constexpr float SMALL = 0x1p-80f;         // scales a row whose squares overflow so that they neither overflow nor vanish
constexpr float OVERFLOWING = 0x1p120f;   // from here on a mean square may have lost terms to overflow
constexpr float LEAST_SMALL = 0x1p-100f;

struct Statistics {
  float near;  // the first mean
  float rest;  // what it missed
  float r;

  __device__ float xhat(float x) const { return ((x - near) - rest) * r; }
};

// `value`, or `least` if it is below; NaN stays NaN.
__device__ inline float at_least(float least, float value) { return value < least ? least : value; }

__device__ inline float inverse_deviation(float rest, float square, float small_square, float eps) {
  if (square + eps < OVERFLOWING) return 1.0f / square_root(at_least(0.0f, square - rest * rest) + eps);
  const float small_rest = rest * SMALL;
  const float small_root = square_root(eps) * SMALL;  // SMALL * SMALL would be 0
  return SMALL / square_root(at_least(LEAST_SMALL, small_square - small_rest * small_rest) + small_root * small_root);
}

// A thread's share of the sum of x.
template <bool KEEP>
__device__ Shares<1> sum_share(Operand<KEEP>& x, const Row& row) {
  const int steps = steps_of(row);
  Shares<1> sum = {};
  UNROLL for (int k = 0; k < steps; k++) {
    if (!inside(row, k)) continue;
    const Cell cell = x.read(k);
    UNROLL for (int i = 0; i < WIDTH; i++) sum.at[0] += widen(cell.at[i]);
  }
  return sum;
}

// A thread's share of the sums of what the first mean missed, of its squares, and of the squares scaled.
template <bool KEEP>
__device__ Shares<3> missed_share(const Operand<KEEP>& x, const Row& row, float near) {
  const int steps = steps_of(row);
  Shares<3> missed = {};
  UNROLL for (int k = 0; k < steps; k++) {
    if (!inside(row, k)) continue;
    const Cell cell = x.again(k);
    UNROLL for (int i = 0; i < WIDTH; i++) {
      const float centred = widen(cell.at[i]) - near;
      const float small = centred * SMALL;
      missed.at[0] += centred;
      missed.at[1] += centred * centred;
      missed.at[2] += small * small;
    }
  }
  return missed;
}

__device__ inline Statistics statistics_from(float near, const Shares<3>& missed, int d, float eps) {
  const float rest = missed.at[0] / d;
  return {near, rest, inverse_deviation(rest, missed.at[1] / d, missed.at[2] / d, eps)};
}

template <bool KEEP>
__device__ Statistics statistics_of(Operand<KEEP>& x, const Row& row, int d, float eps) {
  const float near = team_sum(sum_share(x, row)).at[0] / d;
  return statistics_from(near, team_sum(missed_share(x, row, near)), d, eps);
}

__device__ inline void write_statistics(float* stats, const Row& row, const Statistics& statistics) {
  if (lane_of_team() == 0 && row.cells > 0) {
    stats[2 * row.index] = statistics.near + statistics.rest;
    stats[2 * row.index + 1] = statistics.r;
  }
}
