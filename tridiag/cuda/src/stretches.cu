// What some steps of a recurrence of first order make of the value before them, and how two of such stretches are joined.
#pragma once
#include "logarithms.cu"
#include "sequences.cu"

const double TRUSTED = 1024;  // products of coefficients up to this lose little to cancellation

// Products smaller than `small` are scaled up by its inverse.
__device__ __forceinline__ float small(float) { return 3.5527136788005009e-15f; }  // 2^-48
__device__ __forceinline__ double small(double) { return 3.8725919148493183e-121; }  // 2^-400
template <typename R> __device__ __forceinline__ R small(Complex<R>) { return small(R(0)); }

__device__ __forceinline__ float times(float x, float y) { return x * y; }
__device__ __forceinline__ double times(double x, double y) { return x * y; }
template <typename R> __device__ __forceinline__ Complex<R> times(Complex<R> x, R y) { return Complex<R>(x.re * y, x.im * y); }

template <typename T> __device__ __forceinline__ bool is_finite(T x) { return size(x) - size(x) == Real<T>(0); }

// ------------------------------------------------------------------------------------------------------ from block to block

// What other blocks have written, past the caches that they do not share.
template <typename T> __device__ __forceinline__ T fresh(const T& x) { return *const_cast<const volatile T*>(&x); }
template <typename R> __device__ __forceinline__ Complex<R> fresh(const Complex<R>& x) {
  return Complex<R>(fresh(x.re), fresh(x.im));
}

// ----------------------------------------------------------------------------------------------- y[t] = a[t] y[t-1] + x[t]

// What some steps make of the value before them: factor small^times y + value.
template <typename T> struct Stretch {
  T factor, value;
  int times;
};
template <typename T> __device__ __forceinline__ Stretch<T> from_lane(Stretch<T> x, int lane) {
  return {from_lane(x.factor, lane), from_lane(x.value, lane), from_lane(x.times, lane)};
}
template <typename T> __device__ __forceinline__ Stretch<T> fresh(const Stretch<T>& x) {
  return {fresh(x.factor), fresh(x.value), fresh(x.times)};
}

__device__ __forceinline__ float smaller_of(float x, float y) { return fminf(x, y); }
__device__ __forceinline__ double smaller_of(double x, double y) { return y < x ? y : x; }

// The factor in the range that products of two leave by no underflow.
template <typename T> __device__ __forceinline__ void rescale(T& factor, int& count) {
  typedef Real<T> R;
  const R up = R(1) / small(R(0));
  if (count > 0 && size(factor) >= R(1)) factor = times(factor, small(R(0))), count--;
#pragma unroll 1
  while (size(factor) < small(R(0)) && !(factor == T(0))) factor = times(factor, up), count++;
}

// The rows of a chunk in shared memory: x, which values replace, and coefficients or what is kept of x.
template <typename T, int PIECE> struct Rows {
  typedef T Value;
  T *x, *a;
  int apart, count;  // from row to row, and rows

  // In order, each with its place in the arrays; some are read before the first of them is replaced.
  template <typename Do> __device__ __forceinline__ void each(const Do& act) const {
    int first = 0;
#pragma unroll 1
    for (; first + PIECE <= count; first += PIECE) {
      T some_x[PIECE], some_a[PIECE];
#pragma unroll
      for (int j = 0; j < PIECE; j++) some_x[j] = x[(first + j) * apart], some_a[j] = a[(first + j) * apart];
#pragma unroll
      for (int j = 0; j < PIECE; j++) act((first + j) * apart, some_x[j], some_a[j]);
    }
#pragma unroll 1
    for (; first < count; first++) act(first * apart, x[first * apart], a[first * apart]);
  }
};

// Every value of a chunk takes the place of x, each from the one before it.
template <typename Rows> __device__ __forceinline__ void find_in_turn(const Rows& rows, typename Rows::State y) {
  rows.each([&](int place, typename Rows::Value x, typename Rows::Value a) {
    Rows::step(y, x, a);
    rows.x[place] = Rows::value(y);
  });
}

template <typename T> struct LinearRows : Rows<T, 4> {
  typedef Stretch<T> Part;
  typedef T State;
  static const int operands = 2;

  static __device__ __forceinline__ T absent(int operand) { return operand ? T(1) : T(0); }

  __device__ __forceinline__ Part part() const {
    Part found = {T(1), T(0), 0};
    Real<T> least = Real<T>(1);
    this->each([&](int, T x, T a) {
      found.factor = found.factor * a;
      found.value = x + a * found.value;
      least = smaller_of(least, size(found.factor));
    });
    if (least < small(Real<T>(0))) {  // digits may be lost
      found.factor = T(1);
      this->each([&](int, T, T a) {
        rescale(a, found.times);
        found.factor = found.factor * a;
        rescale(found.factor, found.times);
      });
    }
    return found;
  }
  static __device__ __forceinline__ State apply(const Part& part, State y) {
    if (part.times == 0) return fused(part.factor, y, part.value);
    T total = part.factor * y;
#pragma unroll 1
    for (int k = 0; k < part.times && !(total == T(0)); k++) total = times(total, small(Real<T>(0)));
    return total + part.value;
  }
  static __device__ __forceinline__ Part join(const Part& before, const Part& after) {
    Part found = {before.factor * after.factor, apply(after, before.value), before.times + after.times};
    rescale(found.factor, found.times);
    return found;
  }
  static __device__ __forceinline__ bool sound(const Part& part) {
    return size(part.factor) <= Real<T>(TRUSTED) && is_finite(part.value);
  }
  static __device__ __forceinline__ bool sound(const State& y) { return is_finite(y); }
  static __device__ __forceinline__ State begin(const Job& job, Index sequence) {
    return job.given ? *first_row<T>(job, INIT, sequence) : T(0);
  }
  static __device__ __forceinline__ void step(State& y, T x, T a) { y = x + a * y; }
  __device__ __forceinline__ void find_values(const State& before) const { find_in_turn(*this, before); }
  static __device__ __forceinline__ T value(const State& y) { return y; }
};

// ------------------------------------------------------------------------------------------------------------ logcumsumexp

template <typename T> __device__ __forceinline__ Exponential<T> from_lane(Exponential<T> x, int lane) {
  return {from_lane(x.scale, lane), from_lane(x.high, lane), from_lane(x.low, lane), from_lane(x.largest, lane), T(0), T(0)};
}
template <typename T> __device__ __forceinline__ Exponential<T> fresh(const Exponential<T>& x) {
  return {fresh(x.scale), fresh(x.high), fresh(x.low), fresh(x.largest), T(0), T(0)};
}

// What the numbers of a chunk may be for one exponent to do for all: minus infinity, or below this in size, and the first of
// those not so many powers of two below the largest; what is farther below counts for nothing.
template <typename T> struct OneExponent;
template <> struct OneExponent<float> {
  static __device__ __forceinline__ float bound() { return 1048576.0f; }
  static const int first = 60, all = 100;
};
template <> struct OneExponent<double> {
  static __device__ __forceinline__ double bound() { return 1073741824.0 / 2; }
  static const int first = 600, all = 1000;
};

const int NO_POWER = -(1 << 30);  // the exponent of e to minus infinity

template <typename T> struct LogarithmicRows : Rows<T, sizeof(T) == 8 ? 3 : 4> {
  typedef Exponential<T> Part, State;
  static const int operands = 1;
  bool one_exponent;  // whether sums of the chunk's numbers up to each have been kept, ``a`` times 2^exponent
  T exponent;

  static __device__ __forceinline__ T absent(int) { return minus_infinity<T>(); }

  // x / log(2) as an integer, of an x that one exponent does for
  static __device__ __forceinline__ T power_within(T x, int& k, bool& within) {
    const T found = nearest_power(x, k);
    within = size(x) < OneExponent<T>::bound();
    k = within ? k : NO_POWER;
    return found;
  }

  __device__ __forceinline__ Part part() {
    int first = NO_POWER, most = NO_POWER;
    bool all = true;
    this->each([&](int, T x, T) {
      int k;
      bool within;
      power_within(x, k, within);
      all = all & (within | (x == minus_infinity<T>()));
      first = first == NO_POWER ? k : first;
      most = k > most ? k : most;
    });
    one_exponent = all && first >= most - OneExponent<T>::first;
    Part found = no_exponential<T>();
    exponent = most == NO_POWER ? found.scale : exact_number(T(0), most);
    if (one_exponent) {
      T sum = T(0), low = T(0);
      this->each([&](int place, T x, T) {
        int k;
        bool within;
        const T m = exponential(without_power(x, power_within(x, k, within)));
        T error;
        sum = two_sum(sum, within && k - most >= -OneExponent<T>::all ? times_power(m, k - most) : T(0), error);
        low = low + error;
        this->a[place] = sum + low;
        found.largest = within ? x : found.largest;  // not far, as all are
      });
      found.scale = exponent, found.high = sum, found.low = low;
    } else {
      this->each([&](int, T x, T) { step(found, x, T(0)); });
    }
    return found;
  }
  static __device__ __forceinline__ State apply(const Part& part, const State& y) { return merged(y, part); }
  static __device__ __forceinline__ Part join(const Part& before, const Part& after) { return apply(after, before); }
  static __device__ __forceinline__ bool sound(const Part&) { return true; }
  static __device__ __forceinline__ State begin(const Job&, Index) { return no_exponential<T>(); }
  static __device__ __forceinline__ void step(State& y, T x, T) {
    T k;
    const T m = mantissa(x, T(0), k);
    y = added(y, m, k, x);
  }
  __device__ __forceinline__ void find_values(const State& y) const {
    // a value that the first rows leave as it is, too small beside what comes then
    const bool stays = this->x[0] == minus_infinity<T>() && !(y.high == T(0)) && y.scale < exponent - T(OneExponent<T>::first);
    const bool within = (y.high == T(0) || !is_far(y.largest)) && y.high == y.high;
    if (!(one_exponent && !stays && within)) {
      find_in_turn(*this, y);
      return;
    }
    const T scale = larger(y.scale, exponent), unit = power_of_two(exponent - scale);
    const T before = (y.high + y.low) * power_of_two(y.scale - scale);
    this->each([&](int place, T, T sum) {
      const T total = fused(unit, sum, before), found = logarithm_of(total, scale);
      this->x[place] = total == T(0) ? minus_infinity<T>() : found;
    });
  }
  static __device__ __forceinline__ T value(const State& y) { return logarithm_of(y); }
};

// --------------------------------------------------------------------------------------------------- log_linear_recurrence

template <typename T> struct Weighted {
  Exponential<T> sum;
};
template <typename T> __device__ __forceinline__ Weighted<T> from_lane(const Weighted<T>& x, int lane) {
  Exponential<T> found = from_lane(x.sum, lane);
  found.shift = from_lane(x.sum.shift, lane), found.shift_low = from_lane(x.sum.shift_low, lane);
  return {found};
}
template <typename T> __device__ __forceinline__ Weighted<T> fresh(const Weighted<T>& x) {
  Exponential<T> found = fresh(x.sum);
  found.shift = fresh(x.sum.shift), found.shift_low = fresh(x.sum.shift_low);
  return {found};
}

// What some steps make of the value before them: log(exp(log_a + log_a_low + y) + exp(own)).
template <typename T> struct WeightedStretch {
  Weighted<T> own;
  T log_a, log_a_low;
};
template <typename T> __device__ __forceinline__ WeightedStretch<T> from_lane(const WeightedStretch<T>& x, int lane) {
  return {from_lane(x.own, lane), from_lane(x.log_a, lane), from_lane(x.log_a_low, lane)};
}
template <typename T> __device__ __forceinline__ WeightedStretch<T> fresh(const WeightedStretch<T>& x) {
  return {fresh(x.own), fresh(x.log_a), fresh(x.log_a_low)};
}

template <typename T> struct WeightedRows : Rows<T, 2> {
  typedef WeightedStretch<T> Part;
  typedef Weighted<T> State;
  static const int operands = 2;

  static __device__ __forceinline__ T absent(int operand) { return operand ? T(0) : minus_infinity<T>(); }

  __device__ __forceinline__ Part part() const {
    Part found = {{no_exponential<T>()}, T(0), T(0)};
    this->each([&](int, T x, T log_a) {
      step(found.own, x, log_a);
      accumulate(found, log_a, T(0));
    });
    return found;
  }
  static __device__ __forceinline__ void accumulate(Part& part, T log_a, T low) {
    T error;
    part.log_a = two_sum(part.log_a, log_a, error);
    part.log_a_low = is_finite(part.log_a) ? part.log_a_low + (low + error) : T(0);
  }
  static __device__ __forceinline__ State apply(const Part& part, State y) {
    y.sum = times_exponential(y.sum, part.log_a, part.log_a_low);
    return {merged(y.sum, shifted_as(y.sum, part.own.sum))};
  }
  static __device__ __forceinline__ Part join(const Part& before, const Part& after) {
    Part found = {apply(after, before.own), before.log_a, before.log_a_low};
    accumulate(found, after.log_a, after.log_a_low);
    return found;
  }
  // Sums of log_a that are NaN or infinite do not tell what each of them does.
  static __device__ __forceinline__ bool sound(const Part& part) { return is_finite(part.log_a) && sound(part.own); }
  static __device__ __forceinline__ bool sound(const State& y) { return y.sum.largest < -minus_infinity<T>(); }
  static __device__ __forceinline__ State begin(const Job& job, Index sequence) {
    return {job.given ? exponential_of(*first_row<T>(job, INIT, sequence)) : no_exponential<T>()};
  }
  static __device__ __forceinline__ void step(State& y, T x, T log_a) {
    y.sum = plus_exponential(times_exponential(y.sum, log_a), x);
  }
  __device__ __forceinline__ void find_values(const State& before) const { find_in_turn(*this, before); }
  static __device__ __forceinline__ T value(const State& y) { return logarithm_of(y.sum); }
};
