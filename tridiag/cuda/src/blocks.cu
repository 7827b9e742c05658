// Block tridiagonal systems, a group of lanes for each: a lane has a column of the rows that elimination works on.
//
// As `tridiag.algorithms.block_elimination`: M carried rows [P0 P1 0 | r] and M rows [A B C | d] below them. The first column is
// eliminated with partial pivoting, all of whose candidates one lane has; its pivot row goes to scratch memory, and the others
// move up by one, zeros behind them. After M columns M rows are carried on, their columns M lanes to the left. On the way back
// a lane has a right side, and the others wait.
#include "access.cu"

enum Operand { X, RIGHT, BELOW, OWN, ABOVE, OPERANDS };

// All words of 8 bytes; `tridiag.cuda.blocks` writes them in this order.
struct Job {
  void* operand[OPERANDS];  // of a transposed matrix the blocks below are those above
  void* kept;  // the pivot rows of the systems at work
  Index n, systems;  // block rows
  Index sides, parts;  // right sides of a matrix, and of how many a group of lanes has some
  Index shift;  // 1: the block below block row i is in row i - 1 of its operand, that above in row i + 1
  Index row[OPERANDS], down[OPERANDS], along[OPERANDS];  // strides in elements: from block row to block row, within a block,
  Index length[RANK], step[RANK][OPERANDS];  // and along the batch axes, outermost first
};

// A column of the rows: where its entries are, and in which block rows it has any.
template <typename T> struct Column {
  const T* begin;
  Index row, down;
  int first, end;
};

template <typename T, int M>
__device__ __forceinline__ Column<T> column_of(const Job& job, Index system, int place, Index side) {
  const int kind = place / M, n = int(job.n);
  const int operand = kind == 0 ? BELOW : kind == 1 ? OWN : kind == 2 ? ABOVE : RIGHT;
  const int shift = kind < 3 ? int(job.shift) * (kind - 1) : 0;
  const Index along = kind < 3 ? place % M : side;
  const Index at = offset(job, operand, system) + shift * job.row[operand] + along * job.along[operand];
  const int end = kind == 2 ? n - 1 : kind < 3 || side < job.sides ? n : 0;
  return {start<T>(job, operand) + at, job.row[operand], job.down[operand], kind == 0, end};
}

template <typename T, int M> __device__ __forceinline__ void load(T (&rows)[2 * M], const Column<T>& column, int i) {
  const bool there = i >= column.first && i < column.end;
  const T* entry = column.begin + i * column.row;
#pragma unroll
  for (int r = 0; r < M; r++) rows[M + r] = there ? entry[r * column.down] : T(0);
}

// Where lanes are: in the warp, in their group, and where that begins.
struct Lanes {
  int own, place, begin;
};

// The M rows from FIRST on become those that are carried: columns of a block to the left, behind them zeros.
template <typename T, int M, int FIRST> __device__ __forceinline__ void carry(T (&rows)[2 * M], const Lanes& lanes) {
  const bool matrix = lanes.place < 3 * M, last = matrix && lanes.place >= 2 * M;
  const int from = matrix && !last ? lanes.own + M : lanes.own;
#pragma unroll
  for (int r = 0; r < M; r++) {
    const T moved = from_lane(rows[FIRST + r], from);
    rows[r] = last ? T(0) : moved;
  }
}

// Column j eliminated: its pivot row. The other rows move up. NaN in ``poison`` where the pivot is 0, or not finite.
template <typename T, int M>
__device__ __forceinline__ T eliminate(T (&rows)[2 * M], int j, const Lanes& lanes, Real<T>& poison) {
  int chosen = 0;
  Real<T> largest = size(rows[0]);
#pragma unroll
  for (int r = 1; r < 2 * M; r++) {
    const Real<T> found = size(rows[r]);
    const bool larger = found > largest;
    chosen = larger ? r : chosen;
    largest = larger ? found : largest;
  }
  chosen = from_lane(chosen, lanes.begin + j);
  largest = from_lane(largest, lanes.begin + j);
  poison = largest == Real<T>(0) ? not_a_number(poison) : poison + (largest - largest);
  const T first = rows[0];
  T pivot = first;
#pragma unroll
  for (int r = 1; r < 2 * M; r++) {
    const bool here = r == chosen;
    pivot = here ? rows[r] : pivot;
    rows[r] = here ? first : rows[r];
  }
  T multiplier = T(0);  // of row r in the r-th lane: so all are divided at once
#pragma unroll
  for (int r = 1; r < 2 * M; r++) {
    const T entry = from_lane(rows[r], lanes.begin + j);
    multiplier = lanes.place == r ? entry : multiplier;
  }
  multiplier = over(multiplier, from_lane(pivot, lanes.begin + j));
#pragma unroll
  for (int r = 1; r < 2 * M; r++) rows[r - 1] = rows[r] - from_lane(multiplier, lanes.begin + r) * pivot;
  rows[2 * M - 1] = T(0);
  return pivot;
}

// One right side from its column of the pivot rows; block row i of the solution from those of the two behind it.
template <typename T, int M, int W>
__device__ __forceinline__ void substitute(const T* kept, int place, T* x, const Job& job, Real<T> poison) {
  T after[M], second[M];
#pragma unroll
  for (int r = 0; r < M; r++) after[r] = second[r] = T(0);
  const bool regular = poison == poison;
  const T* rows = kept + job.n * (M * W);
  x += job.n * job.row[X];
#pragma unroll 1
  for (int i = int(job.n) - 1; i >= 0; i--) {
    T found[M];
    rows -= M * W;
    x -= job.row[X];
#pragma unroll
    for (int j = M - 1; j >= 0; j--) {
      const T* row = rows + j * W;
      T rest = row[place];
#pragma unroll
      for (int c = 0; c < M; c++) rest = rest - row[M + c] * after[c] - row[2 * M + c] * second[c];
#pragma unroll
      for (int c = j + 1; c < M; c++) rest = rest - row[c] * found[c];
      found[j] = over(rest, row[j]);
      x[j * job.down[X]] = regular ? found[j] : not_a_number(rest);
    }
#pragma unroll
    for (int r = 0; r < M; r++) second[r] = after[r], after[r] = found[r];
  }
}

// Blocks of M rows, W lanes for a system. A group takes one system after another, and keeps the pivot rows of one.
template <typename T, int M, int W> __global__ void __launch_bounds__(128, 1) blocks(Job job) {
  const int own = int(threadIdx.x % 32), group = own / W;
  const Lanes lanes = {own, own % W, group * W};
  const int n = int(job.n);
  const Index groups = Index(gridDim.x) * (blockDim.x / W), number = Index(blockIdx.x) * (blockDim.x / W) + threadIdx.x / W;
  T* const kept = static_cast<T*>(job.kept) + number * job.n * (M * W);
  const Index tasks = job.systems * job.parts;
  for (Index turn = number - group; turn < tasks; turn += groups) {  // of all lanes of a warp alike
    const bool there = turn + group < tasks;
    const Index task = there ? turn + group : turn, system = task / job.parts;
    const Index side = (task - system * job.parts) * (W - 3 * M) + lanes.place - 3 * M;
    const Column<T> column = column_of<T, M>(job, system, lanes.place, side);
    const bool has_side = column.end > 0 && lanes.place >= 3 * M, is_kept = lanes.place < 3 * M || has_side;
    T rows[2 * M];
    Real<T> poison = 0;
    T* at = kept + lanes.place;
    load<T, M>(rows, column, 0);
    carry<T, M, M>(rows, lanes);
#pragma unroll 1
    for (int i = 0; i < n; i++) {
      load<T, M>(rows, column, i + 1);
#pragma unroll 1
      for (int j = 0; j < M; j++, at += W) {
        const T pivot = eliminate<T, M>(rows, j, lanes, poison);
        if (is_kept) *at = pivot;
      }
      carry<T, M, 0>(rows, lanes);
    }
    __syncwarp();
    if (there && has_side) {
      T* const x = static_cast<T*>(job.operand[X]) + offset(job, X, system) + side * job.along[X];
      substitute<T, M, W>(kept, lanes.place, x, job, poison);
    }
    __syncwarp();
  }
}
