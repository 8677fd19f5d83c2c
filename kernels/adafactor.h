#pragma once
#include "kernels/dispatch.h"

namespace qtrain::ops {

/// One Adafactor step (Shazeer and Stern 2018, as transformers.Adafactor without relative steps), all tensors f32:
///   g = grad * factor[0]; b = hyperparameters[1]; every square is g^2 + eps
///   param [R, C]: row [R] = b row + (1-b) mean of squares over C; column [C] likewise over R
///                 u = g / sqrt(row / mean(row)) / sqrt(column)
///   param [n]:    square [n] = b square + (1-b) (g^2 + eps); u = g / sqrt(square)
///   param -= lr * decay * param; param -= lr * u / max(1, rms(u) / clip)
/// On the device: hyperparameters f64 [2] = {lr, b}; factor f64 [2] from Clip. Nothing changes if factor[1] is 0.
struct Adafactor {
  Tensor param;
  Tensor row = {}, column = {};  ///< matrices only
  Tensor square = {};            ///< vectors only
  ConstTensor grad, hyperparameters, factor;
  double eps = 1e-30, clip = 1, decay = 0;
};
void run_cpu(Ctx&, const Adafactor&);
void run_cuda(Ctx&, const Adafactor&);

inline void adafactor(Ctx& ctx, const Adafactor& a) {
  check(a.param.numel() == a.grad.numel(), "adafactor: param and grad have the same length");
  if (a.param.shape.rank == 2)
    check(a.row.numel() == a.param.shape[0] && a.column.numel() == a.param.shape[1],
          "adafactor: a matrix has a value per row and per column");
  else
    check(a.param.shape.rank == 1 && a.square.numel() == a.param.numel(), "adafactor: a vector has a value per entry");
  if (a.param.numel() > 0) dispatch(ctx, a);
}

}  // namespace qtrain::ops
