// Smooth local alignment: a wave runs over the cells of a pair, an anti-diagonal after another, a thread for some rows.
//
// The recursion is that of `tridiag.kernels.alignment.kernel`. A thread is one column behind that of the rows before its own, whose
// last values pass by a shuffle, from warp to warp through shared memory. Pairs with more rows than threads have take a strip of
// rows after another; what lies between is in memory, a row for each block. Blocks take one pair after another.
#include "access.cu"
#include "powers.cu"

enum Operand { SCORES, LENGTHS, GAP, OPEN, TEMPERATURE, SCORE, GRADIENT, BY_GAP, BY_OPEN, BY_TEMPERATURE, OPERANDS };
const int PARAMETERS = 3;

// All words of 8 bytes; `tridiag.cuda.pairs` writes them in this order.
struct Job {
  void* operand[OPERANDS];  // contiguous
  void* kept;  // scratch of all blocks
  Index room;  // bytes of it for each
  Index pairs, rows, columns;
  Index apart[PARAMETERS];  // from the parameter of a pair to that of the next; 0: one for all
  Index gaps_end, first_ends;  // whether an alignment may end with a gap, or with its first match
  Index down_after_side, side_after_down;  // whether a gap in one sequence may follow one in the other
};

const int WARP = 32, AHEAD = 4;  // columns, of the scores that are on their way

// What is the same for all cells of a pair.
template <typename T> struct Pair {
  int rows, columns;
  Boltzmann<T> weight;
  Number<T, 0> gap, opening;
  bool gaps_end, first_ends, down_after_side, side_after_down;

  __device__ __forceinline__ Pair(const Job& job, int rows, int columns, T of_gap, T of_opening, T temperature)
      : rows(rows), columns(columns), weight(temperature, T(job.rows + job.columns + 2)) {
    gap = weight(weight.within(of_gap)), opening = weight(weight.within(of_opening));
    gaps_end = job.gaps_end, first_ends = job.first_ends;
    down_after_side = job.down_after_side, side_after_down = job.side_after_down;
  }
};

// From the cells above and to the left: ``corner``, ``down`` and ``side`` are what a cell has from its three neighbours, and then what
// the next ones have from it. ``KEEPS``: what ends in a match is kept for the way back.
template <typename T, bool AFFINE, int N, bool KEEPS> struct Forward {
  static const bool BACK = false, CORNER = AFFINE;  // ``CORNER``: whether it is another number than ``down``
  typedef Number<T, N> Value;
  const Pair<T>& pair;
  T* const mantissas;
  Exponent<T>* const exponents;
  Value total;
  T peak;
  bool flawed;

  __device__ __forceinline__ Forward(const Pair<T>& pair, T* mantissas, Exponent<T>* exponents)
      : pair(pair), mantissas(mantissas), exponents(exponents), total(nothing<T, N>()), peak(minus_infinity<T>()), flawed(false) {}

  __device__ __forceinline__ Value extended(const Value& x) const {
    Value found = times(pair.gap, x);
    if (N > 0) found.d[0] = found.d[0] + found.m;
    return found;
  }
  __device__ __forceinline__ Value opened(const Value& x) const {
    Value found = times(pair.opening, x);
    if (N > 1) found.d[N - 1] = found.d[N - 1] + found.m;
    return found;
  }
  __device__ __forceinline__ void operator()(Index, Index place, T given, Value& corner, Value& down, Value& side) {
    flawed = flawed || given != given;
    peak = larger(given, peak);
    const Number<T, 0> w = pair.weight(pair.weight.within(given));
    const Value later = times(w, corner), match = times(w, plus(one<T, N>(), corner));
    const Value ends = either(pair.first_ends, match, later);
    if (KEEPS) mantissas[place] = ends.m, exponents[place] = ends.e;
    if (AFFINE) {
      const Value x = down, y = side;
      corner = normal(plus(match, plus(x, y)));
      down = normal(plus(opened(either(pair.down_after_side, plus(match, y), match)), extended(x)));
      side = normal(plus(opened(either(pair.side_after_down, plus(match, x), match)), extended(y)));
    } else {
      corner = down = side = normal(plus(match, extended(plus(down, side))));
    }
    total = plus(total, either(pair.gaps_end, corner, ends));
  }
};

// ... and back: the probability of each match, which is the gradient by its score.
template <typename T, bool AFFINE> struct Backward {
  static const bool BACK = true, CORNER = true;
  typedef Number<T, 0> Value;
  const Pair<T>& pair;
  const T* const mantissas;
  const Exponent<T>* const exponents;
  T* const gradient;
  const Number<T, 0> inverse;  // of the total
  T by_scores;

  __device__ __forceinline__ Backward(
      const Pair<T>& pair, const T* mantissas, const Exponent<T>* exponents, T* gradient, Number<T, 0> inverse)
      : pair(pair), mantissas(mantissas), exponents(exponents), gradient(gradient), inverse(inverse), by_scores(0) {}

  // The part of the total that is x y
  __device__ __forceinline__ T share(const Value& x, const Value& y) const {
    const Exponent<T> by = -(x.e + y.e + inverse.e), bounded = by < -8 ? -8 : by;
    const T part = x.m * inverse.m * (negative_power(bounded) * y.m), negligible = sizeof(T) == 4 ? T(0x1p-90) : T(0x1p-800);
    return part < negligible ? T(0) : part;
  }
  __device__ __forceinline__ void operator()(Index cell, Index place, T given, Value& corner, Value& down, Value& side) {
    const T score = pair.weight.within(given);
    const Value w = pair.weight(score), end = one<T>(), then = either(pair.gaps_end, plus(end, corner), corner);
    const Value gaps = times(AFFINE ? pair.opening : pair.gap, plus(down, side)), here = normal(plus(then, gaps));
    const Value x = down, y = side;
    Value after_match = here;
    if (!pair.gaps_end) after_match = normal(plus(here, end));
    if (AFFINE) {
      down = plus(then, times(pair.gap, x)), side = plus(then, times(pair.gap, y));
      down = normal(either(pair.side_after_down, plus(down, times(pair.opening, y)), down));
      side = normal(either(pair.down_after_side, plus(side, times(pair.opening, x)), side));
    } else {
      down = side = here;
    }
    corner = times(w, after_match);
    T found = share(number_of(mantissas[place], exponents[place]), after_match);
    if (!pair.first_ends) found = found + share(w, here);
    gradient[cell] = found;
    by_scores = by_scores + found * score;
  }
};

template <typename T> __device__ __forceinline__ T from_before(T x) { return __shfl_up_sync(~0u, x, 1); }
template <typename T, int N> __device__ __forceinline__ Number<T, N> from_before(Number<T, N> x) {
  x.m = from_before(x.m), x.e = from_before(x.e);
#pragma unroll
  for (int k = 0; k < N; k++) x.d[k] = from_before(x.d[k]);
  return x;
}

// What goes from the last row of a thread, a warp or a strip to the row behind it.
template <typename Value> struct Border {
  Value corner, down;
};
template <typename Value> __device__ __forceinline__ Border<Value> loaded(const Border<Value>& from) {
  return {loaded(from.corner), loaded(from.down)};
}
template <typename Value> __device__ __forceinline__ void store(Border<Value>& to, const Border<Value>& x) {
  store(to.corner, x.corner), store(to.down, x.down);
}

// All cells of a pair: in each step a thread has a column of its R rows, from the first strip on, or back from the last.
template <int R, typename T, typename Pass>
__device__ __forceinline__ void run_wave(Pass& pass, const T* scores, Index stride, void* row_between, void* shared) {
  typedef typename Pass::Value Value;
  typedef Border<Value> Edge;
  const int threads = int(blockDim.x), rank = int(threadIdx.x), warps = threads / WARP, warp = rank / WARP;
  const int home = Pass::BACK ? threads - 1 - rank : rank;  // among the rows of a strip
  Edge *const between = static_cast<Edge*>(row_between), *const slots = static_cast<Edge*>(shared);
  const int rows = pass.pair.rows, columns = pass.pair.columns, steps = columns + threads - 1, height = threads * R;
  const int strips = columns == 0 ? 0 : (rows + height - 1) / height, by = Pass::BACK ? -1 : 1;  // columns
  const auto row_of = [](int k) { return Pass::BACK ? R - 1 - k : k; };
  const Value none = nothing<T, Value::derivatives>();
#pragma unroll 1
  for (int s = 0; s < strips; s++) {
    const int strip = Pass::BACK ? strips - 1 - s : s, first = strip * height + home * R, there = rows - first;
    int column = -rank;
    Index cell = Index(first) * stride + (Pass::BACK ? columns - 1 - column : column);  // of the first row, in this column
    Index place = (Index(strip) * steps + (Pass::BACK ? steps - 1 : 0)) * height + home;
    const auto score_of = [&](int r, int later) {
      const bool is_cell = unsigned(column + later) < unsigned(columns) && r < there;
      return is_cell ? scores[cell + by * later + r * stride] : T(0);
    };
    Value corner[R], side[R], diagonal = none;
    T ahead[AHEAD][R];
#pragma unroll
    for (int k = 0; k < R; k++) {
      corner[k] = side[k] = none;
#pragma unroll
      for (int later = 0; later < AHEAD; later++) ahead[later][k] = score_of(row_of(k), later);
    }
    Edge last = {none, none}, next = last;
    if (rank == 0 && s > 0) next = loaded(between[0]);
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
      Edge above;
      above.down = from_before(last.down);
      if (Pass::CORNER) above.corner = from_before(last.corner);
      if (rank == 0) {
        above = next;
        if (s > 0 && column + 1 < columns) next = loaded(between[column + 1]);
      } else if (rank % WARP == 0) {
        above = loaded(slots[(step & 1) * warps + warp - 1]);
      }
      if (!Pass::CORNER) above.corner = above.down;
      T given[R];
#pragma unroll
      for (int k = 0; k < R; k++) {
        given[k] = ahead[0][k];
#pragma unroll
        for (int later = 1; later < AHEAD; later++) ahead[later - 1][k] = ahead[later][k];
        ahead[AHEAD - 1][k] = score_of(row_of(k), AHEAD);
      }
      if (unsigned(column) < unsigned(columns)) {
        Value before = diagonal, down = above.down;
        diagonal = above.corner;
#pragma unroll
        for (int k = 0; k < R; k++) {
          const int r = row_of(k);
          Value own = before, across = side[k];
          before = corner[k];
          if (r < there) {
            pass(cell + r * stride, place + r * threads, given[k], own, down, across);
          } else {
            own = before;
          }
          corner[k] = own, side[k] = across;
        }
        last.down = down, last.corner = corner[R - 1];
        if (rank == threads - 1 && s + 1 < strips) store(between[column], last);
      }
      column++, cell += by, place += by * height;
      if (warps > 1) {
        if (rank % WARP == WARP - 1) store(slots[((step + 1) & 1) * warps + warp], last);
        __syncthreads();
      }
    }
    __syncthreads();
  }
}

// What all threads of a block have together, in the same order for each of them; ``combine`` does not mind which comes first.
template <typename Value, typename Exchange, typename Combine>
__device__ __forceinline__ Value of_block(Value own, Value* slots, Exchange exchange, Combine combine) {
#pragma unroll
  for (int by = 1; by < WARP; by *= 2) own = combine(own, exchange(own, by));
  const int warps = int(blockDim.x) / WARP, rank = int(threadIdx.x);
  if (warps == 1) return own;
  if (rank % WARP == 0) slots[rank / WARP] = own;
  __syncthreads();
  Value found = slots[0];
#pragma unroll 1
  for (int k = 1; k < warps; k++) found = combine(found, slots[k]);
  __syncthreads();
  return found;
}

// What a thread knows of the cells that it has seen.
template <typename T, int N> struct Seen {
  Number<T, N> total;
  T peak;
  int flawed;
};

template <typename T> __device__ __forceinline__ T from_other(T x, int by) { return __shfl_xor_sync(~0u, x, by); }
template <typename T, int N> __device__ __forceinline__ Seen<T, N> from_other(Seen<T, N> x, int by) {
  x.total.m = from_other(x.total.m, by), x.total.e = from_other(x.total.e, by);
#pragma unroll
  for (int k = 0; k < N; k++) x.total.d[k] = from_other(x.total.d[k], by);
  x.peak = from_other(x.peak, by), x.flawed = from_other(x.flawed, by);
  return x;
}

__device__ __forceinline__ int clipped(Index length, Index most) { return int(length < 0 ? 0 : length < most ? length : most); }
template <typename T> __device__ __forceinline__ T parameter(const Job& job, int operand, Index pair) {
  return start<T>(job, operand)[pair * job.apart[operand - GAP]];
}
template <typename T> __device__ __forceinline__ T finite_or_zero(T x) { return size(x) < T(1) / Limits<T>::tiny() ? x : T(0); }
template <typename T> __device__ __forceinline__ void store(const Job& job, int operand, Index pair, T x) {
  static_cast<T*>(job.operand[operand])[pair] = x;
}

// The score of each pair; WANTED: 1, its gradient by the scores, 2, and by the parameters.
template <typename T, bool AFFINE, int WANTED, int R> __global__ void __launch_bounds__(256, 1) alignment(Job job) {
  const int N = WANTED < 2 ? 0 : AFFINE ? 2 : 1;
  typedef Forward<T, AFFINE, N, (WANTED > 0)> Onward;
  SHARED_MEMORY(shared);
  const int threads = int(blockDim.x), rank = int(threadIdx.x);
  const Index height = Index(threads) * R, strips = (job.rows + height - 1) / height;
  const Index cells = strips * height * (job.columns + threads - 1);  // that have a place to be kept
  char* const room = static_cast<char*>(job.kept) + Index(blockIdx.x) * job.room;
  Exponent<T>* const exponents = reinterpret_cast<Exponent<T>*>(room);
  T* const mantissas = reinterpret_cast<T*>(exponents + cells);
  void* const between = WANTED > 0 ? static_cast<void*>(mantissas + cells) : room;
#pragma unroll 1
  for (Index k = blockIdx.x; k < job.pairs; k += gridDim.x) {
    const T* const scores = start<T>(job, SCORES) + k * job.rows * job.columns;
    const int* const lengths = start<int>(job, LENGTHS);
    const int rows = clipped(lengths ? lengths[2 * k] : job.rows, job.rows);
    const int columns = clipped(lengths ? lengths[2 * k + 1] : job.columns, job.columns);
    const T gap = parameter<T>(job, GAP, k), opening = AFFINE ? parameter<T>(job, OPEN, k) : gap;
    T t = parameter<T>(job, TEMPERATURE, k);
    const T hottest = sizeof(T) == 4 ? T(0x1p96) : T(0x1p960), infinity = -minus_infinity<T>();
    const bool good = t > T(0) && t <= hottest && gap < infinity && opening < infinity;
    t = good ? larger(t, T(4) * Limits<T>::tiny()) : T(1);  // whose inverse is finite
    Seen<T, N> seen;
#pragma unroll 1
    for (int attempt = 0; attempt < 2; attempt++) {
      const Pair<T> pair(job, rows, columns, gap, opening, t);
      Onward pass(pair, mantissas, exponents);
      run_wave<R>(pass, scores, job.columns, between, shared);
      seen = of_block(
          Seen<T, N>{pass.total, pass.peak, pass.flawed}, reinterpret_cast<Seen<T, N>*>(shared),
          [](const Seen<T, N>& x, int by) { return from_other(x, by); },
          [](const Seen<T, N>& x, const Seen<T, N>& y) {
            return Seen<T, N>{plus(x.total, y.total), larger(x.peak, y.peak), x.flawed | y.flawed};
          });
      // so low a temperature that exponents might leave their range: next to the largest score, or a gap that is worth more, it is
      // lost in the rounding of the sum over an alignment, and so is the least that is not too low
      const T worth = larger(larger(finite_or_zero(gap), finite_or_zero(opening)), T(0.5) * size(finite_or_zero(seen.peak)));
      const T least = worth * (T(job.rows + job.columns + 2) * T(1.44269504088896340736) / T(Range<T>::highest));
      if (!(least > t)) break;
      t = least;
    }
    const T nan = not_a_number(T(0));
    const bool known = good && !seen.flawed, infinite = seen.peak == infinity;
    const bool empty = seen.peak == minus_infinity<T>() || seen.total.e < -Range<T>::lowest / 2;
    const T logarithm = t * logarithm_of(seen.total.m, T(seen.total.e));
    const T score = !known ? nan : infinite ? infinity : empty ? minus_infinity<T>() : logarithm;
    if (rank == 0) store(job, SCORE, k, score);
    if (WANTED > 0) {
      const T inverse = !known || infinite ? nan : empty ? T(0) : T(1) / seen.total.m;
      T* const gradient = static_cast<T*>(job.operand[GRADIENT]) + k * job.rows * job.columns;
      const Pair<T> pair(job, rows, columns, gap, opening, t);
      Backward<T, AFFINE> pass(pair, mantissas, exponents, gradient, number_of(inverse, -seen.total.e));
      run_wave<R>(pass, scores, job.columns, between, shared);
#pragma unroll 1
      for (Index i = 0; i < job.rows; i++) {
        for (Index j = (i < rows ? columns : 0) + rank; j < job.columns; j += threads) gradient[i * job.columns + j] = T(0);
      }
      if (WANTED > 1) {
        const T by_scores = of_block(
            pass.by_scores, reinterpret_cast<T*>(shared), [](T x, int by) { return from_other(x, by); },
            [](T x, T y) { return x + y; });
        const T by_gap = seen.total.d[0] * inverse, by_opening = N > 1 ? seen.total.d[N - 1] * inverse : T(0);
        // the score is homogeneous in all parameters together
        const T others = (by_gap == T(0) ? T(0) : by_gap * gap) + (by_opening == T(0) ? T(0) : by_opening * opening);
        const T by_temperature = inverse == T(0) ? T(0) : (score - by_scores - others) / t;
        if (rank == 0) {
          store(job, BY_GAP, k, by_gap);
          if (AFFINE) store(job, BY_OPEN, k, by_opening);
          store(job, BY_TEMPERATURE, k, by_temperature);
        }
      }
    }
  }
}
