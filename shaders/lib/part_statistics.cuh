// part_statistics: the mean and r of a row that is cut into parts: each pass of lib/statistics is a phase.
// Needs: lib/part, lib/team, lib/statistics.

constexpr int STATISTICS_PHASES = 2;

__device__ inline float near_of_parts(const float* sums, const Row& part, const Parts& cut) {
  return sum_of_parts<1>(sums, part, 0, cut.parts).at[0] / cut.d;
}

__device__ inline void sum_for_statistics(
    const F* x, float* sums, const Row& part, long long unit, int phase, const Parts& cut) {
  Operand<false> x_part(x, part);
  if (phase == 0) {
    sum_part(sums, unit, phase, sum_share(x_part, part));
  } else {
    sum_part(sums, unit, phase, missed_share(x_part, part, near_of_parts(sums, part, cut)));
  }
}

__device__ inline Statistics statistics_of_parts(const float* sums, const Row& part, const Parts& cut, float eps) {
  const float near = near_of_parts(sums, part, cut);
  return statistics_from(near, sum_of_parts<3>(sums, part, 1, cut.parts), cut.d, eps);
}

// Written once a row, by its first part.
__device__ inline void write_part_statistics(
    float* stats, const Row& part, long long unit, const Parts& cut, const Statistics& statistics) {
  if (unit % cut.parts == 0) write_statistics(stats, part, statistics);
}
